package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// The frame types of RFC 9000 §19, of RFC 9221 (DATAGRAM), of
// draft-ietf-quic-reliable-stream-reset (RESET_STREAM_AT) and of
// draft-ietf-quic-ack-frequency. STREAM frames use 0x08 to 0x0f: see IsStream.
const (
	FramePadding            uint64 = 0x00
	FramePing               uint64 = 0x01
	FrameAck                uint64 = 0x02
	FrameAckECN             uint64 = 0x03
	FrameResetStream        uint64 = 0x04
	FrameStopSending        uint64 = 0x05
	FrameCrypto             uint64 = 0x06
	FrameNewToken           uint64 = 0x07
	FrameStream             uint64 = 0x08
	FrameMaxData            uint64 = 0x10
	FrameMaxStreamData      uint64 = 0x11
	FrameMaxStreamsBidi     uint64 = 0x12
	FrameMaxStreamsUni      uint64 = 0x13
	FrameDataBlocked        uint64 = 0x14
	FrameStreamDataBlocked  uint64 = 0x15
	FrameStreamsBlockedBidi uint64 = 0x16
	FrameStreamsBlockedUni  uint64 = 0x17
	FrameNewConnectionID    uint64 = 0x18
	FrameRetireConnectionID uint64 = 0x19
	FramePathChallenge      uint64 = 0x1a
	FramePathResponse       uint64 = 0x1b
	FrameConnectionClose    uint64 = 0x1c
	FrameConnectionCloseApp uint64 = 0x1d
	FrameHandshakeDone      uint64 = 0x1e
	FrameImmediateAck       uint64 = 0x1f
	FrameResetStreamAt      uint64 = 0x24
	FrameDatagram           uint64 = 0x30
	FrameDatagramLen        uint64 = 0x31
	FrameAckFrequency       uint64 = 0xaf
)

// Frame is any frame, for tests, traces and the paths that are not hot.
type Frame interface {
	Append(b []byte) []byte // appends the encoding
	Len() int               // its length in bytes
	String() string         // for people
}

// IsStream reports whether typ is one of the eight types of STREAM frames.
func IsStream(typ uint64) bool { return typ&^streamBits == FrameStream }

// FrameType reads the type at the beginning of b, which holds the rest of a
// packet's payload, and says in how many bytes it is encoded. It does not ask
// whether the type is known: see CheckFrameType. Only its shortest encoding is
// accepted. The error is an *Error with ProtocolViolation, or FrameEncodingError
// if the type is cut off (RFC 9000 §12.4).
func FrameType(b []byte) (typ uint64, n int, err error) {
	if len(b) > 0 && b[0] < 0x40 { // nearly always
		return uint64(b[0]), 1, nil
	}
	return longFrameType(b)
}

func longFrameType(b []byte) (typ uint64, n int, err error) {
	if len(b) == 0 {
		// §12.4: a packet must contain a frame.
		return 0, 0, &Error{Code: ProtocolViolation, Reason: "packet without frames"}
	}
	typ, n, err = quicvarint.Parse(b)
	if err != nil {
		return 0, 0, encodingError(0, "truncated frame type")
	}
	if n != quicvarint.Len(typ) {
		return 0, 0, &Error{Code: ProtocolViolation, FrameType: typ, Reason: "frame type not in its shortest encoding"}
	}
	return typ, n, nil
}

// Where a frame may appear, and whether it elicits an acknowledgment: a row of
// the table in RFC 9000 §12.4.
const (
	inInitial = 1 << iota
	inHandshake
	inZeroRTT
	inOneRTT
	notEliciting // "N" in the table

	inApp = inZeroRTT | inOneRTT
	inAny = inInitial | inHandshake | inApp
	inIH1 = inInitial | inHandshake | inOneRTT
)

var frameRules = [...]uint8{
	FramePadding:            inAny | notEliciting,
	FramePing:               inAny,
	FrameAck:                inIH1 | notEliciting,
	FrameAckECN:             inIH1 | notEliciting,
	FrameResetStream:        inApp,
	FrameStopSending:        inApp,
	FrameCrypto:             inIH1,
	FrameNewToken:           inOneRTT,
	FrameStream:             inApp,
	FrameStream | 1:         inApp,
	FrameStream | 2:         inApp,
	FrameStream | 3:         inApp,
	FrameStream | 4:         inApp,
	FrameStream | 5:         inApp,
	FrameStream | 6:         inApp,
	FrameStream | 7:         inApp,
	FrameMaxData:            inApp,
	FrameMaxStreamData:      inApp,
	FrameMaxStreamsBidi:     inApp,
	FrameMaxStreamsUni:      inApp,
	FrameDataBlocked:        inApp,
	FrameStreamDataBlocked:  inApp,
	FrameStreamsBlockedBidi: inApp,
	FrameStreamsBlockedUni:  inApp,
	FrameNewConnectionID:    inApp,
	// RFC 9000 §12.4 lists RETIRE_CONNECTION_ID as __01 and then says that it
	// cannot be sent in 0-RTT, where a server MAY refuse it. The table stands.
	FrameRetireConnectionID: inApp,
	FramePathChallenge:      inApp,
	FramePathResponse:       inOneRTT,
	FrameConnectionClose:    inAny | notEliciting,
	FrameConnectionCloseApp: inApp | notEliciting,
	FrameHandshakeDone:      inOneRTT,
	// min_ack_delay is not remembered for 0-RTT, so neither frame can be used.
	FrameImmediateAck:  inOneRTT,
	FrameResetStreamAt: inApp,
	FrameDatagram:      inApp, // RFC 9221 §5
	FrameDatagramLen:   inApp,
	FrameAckFrequency:  inOneRTT,
}

func rulesFor(typ uint64) uint8 {
	if typ < uint64(len(frameRules)) {
		return frameRules[typ]
	}
	return 0
}

// AllowedIn reports whether a frame of type typ may appear in a packet of type
// pt (RFC 9000 §12.4, table 3). It is false for unknown types.
func AllowedIn(typ uint64, pt PacketType) bool {
	switch pt {
	case Initial:
		return rulesFor(typ)&inInitial != 0
	case Handshake:
		return rulesFor(typ)&inHandshake != 0
	case ZeroRTT:
		return rulesFor(typ)&inZeroRTT != 0
	case OneRTT:
		return rulesFor(typ)&inOneRTT != 0
	}
	return false
}

// CheckFrameType returns the *Error that a frame of type typ in a packet of type
// pt must be answered with, if any: FrameEncodingError for an unknown type,
// ProtocolViolation for a packet it is not allowed in (RFC 9000 §12.4).
func CheckFrameType(typ uint64, pt PacketType) error {
	if AllowedIn(typ, pt) {
		return nil
	}
	if rulesFor(typ) == 0 {
		return encodingError(typ, "unknown frame type")
	}
	return &Error{Code: ProtocolViolation, FrameType: typ, Reason: "not allowed in " + pt.String() + " packets"}
}

// IsAckEliciting reports whether a packet with a frame of type typ must be
// acknowledged: all but PADDING, ACK and CONNECTION_CLOSE (RFC 9002 §2).
func IsAckEliciting(typ uint64) bool { return rulesFor(typ)&notEliciting == 0 }

// ParseFrame reads the frame at the beginning of b, the rest of a packet's
// payload, and says how many bytes it takes. A run of PADDING is one frame. The
// frame aliases b; it may allocate. Where the frame appeared is not checked: see
// CheckFrameType. The error is an *Error.
func ParseFrame(b []byte) (Frame, int, error) {
	typ, _, err := FrameType(b)
	if err != nil {
		return nil, 0, err
	}
	if IsStream(typ) {
		return boxed(ParseStream(b))
	}
	switch typ {
	case FramePadding:
		return boxed(ParsePadding(b))
	case FramePing:
		return boxed(ParsePing(b))
	case FrameAck, FrameAckECN:
		return boxed(ParseAck(b, nil))
	case FrameResetStream:
		return boxed(ParseResetStream(b))
	case FrameStopSending:
		return boxed(ParseStopSending(b))
	case FrameCrypto:
		return boxed(ParseCrypto(b))
	case FrameNewToken:
		return boxed(ParseNewToken(b))
	case FrameMaxData:
		return boxed(ParseMaxData(b))
	case FrameMaxStreamData:
		return boxed(ParseMaxStreamData(b))
	case FrameMaxStreamsBidi, FrameMaxStreamsUni:
		return boxed(ParseMaxStreams(b))
	case FrameDataBlocked:
		return boxed(ParseDataBlocked(b))
	case FrameStreamDataBlocked:
		return boxed(ParseStreamDataBlocked(b))
	case FrameStreamsBlockedBidi, FrameStreamsBlockedUni:
		return boxed(ParseStreamsBlocked(b))
	case FrameNewConnectionID:
		return boxed(ParseNewConnectionID(b))
	case FrameRetireConnectionID:
		return boxed(ParseRetireConnectionID(b))
	case FramePathChallenge:
		return boxed(ParsePathChallenge(b))
	case FramePathResponse:
		return boxed(ParsePathResponse(b))
	case FrameConnectionClose, FrameConnectionCloseApp:
		return boxed(ParseConnectionClose(b))
	case FrameHandshakeDone:
		return boxed(ParseHandshakeDone(b))
	case FrameImmediateAck:
		return boxed(ParseImmediateAck(b))
	case FrameResetStreamAt:
		return boxed(ParseResetStreamAt(b))
	case FrameDatagram, FrameDatagramLen:
		return boxed(ParseDatagram(b))
	case FrameAckFrequency:
		return boxed(ParseAckFrequency(b))
	}
	// RFC 9000 §12.4
	return nil, 0, encodingError(typ, "unknown frame type")
}

func boxed[F Frame](f F, n int, err error) (Frame, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return f, n, nil
}

var frameNames = map[uint64]string{
	FramePadding:            "PADDING",
	FramePing:               "PING",
	FrameAck:                "ACK",
	FrameAckECN:             "ACK",
	FrameResetStream:        "RESET_STREAM",
	FrameStopSending:        "STOP_SENDING",
	FrameCrypto:             "CRYPTO",
	FrameNewToken:           "NEW_TOKEN",
	FrameMaxData:            "MAX_DATA",
	FrameMaxStreamData:      "MAX_STREAM_DATA",
	FrameMaxStreamsBidi:     "MAX_STREAMS (bidirectional)",
	FrameMaxStreamsUni:      "MAX_STREAMS (unidirectional)",
	FrameDataBlocked:        "DATA_BLOCKED",
	FrameStreamDataBlocked:  "STREAM_DATA_BLOCKED",
	FrameStreamsBlockedBidi: "STREAMS_BLOCKED (bidirectional)",
	FrameStreamsBlockedUni:  "STREAMS_BLOCKED (unidirectional)",
	FrameNewConnectionID:    "NEW_CONNECTION_ID",
	FrameRetireConnectionID: "RETIRE_CONNECTION_ID",
	FramePathChallenge:      "PATH_CHALLENGE",
	FramePathResponse:       "PATH_RESPONSE",
	FrameConnectionClose:    "CONNECTION_CLOSE",
	FrameConnectionCloseApp: "CONNECTION_CLOSE (application)",
	FrameHandshakeDone:      "HANDSHAKE_DONE",
	FrameImmediateAck:       "IMMEDIATE_ACK",
	FrameResetStreamAt:      "RESET_STREAM_AT",
	FrameDatagram:           "DATAGRAM",
	FrameDatagramLen:        "DATAGRAM",
	FrameAckFrequency:       "ACK_FREQUENCY",
}

// FrameName is the name of a frame type as the RFC spells it.
func FrameName(typ uint64) string {
	if IsStream(typ) {
		return "STREAM"
	}
	if s, ok := frameNames[typ]; ok {
		return s
	}
	return fmt.Sprintf("frame 0x%x", typ)
}

// body begins to read a frame whose type must be typ, in its shortest encoding.
func body(b []byte, typ uint64) cursor {
	c := cursor{b: b}
	if t, n, err := FrameType(b); err == nil && t == typ {
		c.n = n
	} else {
		c.fail()
	}
	return c
}

// body2 is body for the types that come in two variants, typ and typ+1.
func body2(b []byte, typ uint64) (c cursor, got uint64) {
	if got, _, err := FrameType(b); err == nil && got == typ+1 {
		return body(b, got), got
	}
	return body(b, typ), typ
}

// end finishes a frame of type typ: how long it was, or that it was cut off, in
// which case its fields mean nothing.
func (c *cursor) end(typ uint64) (int, error) {
	if c.short {
		return 0, truncated(typ)
	}
	return c.n, nil
}

func varintLen(v int64) int { return quicvarint.Len(uint64(v)) }

func appendInt(b []byte, v int64) []byte { return quicvarint.Append(b, uint64(v)) }
