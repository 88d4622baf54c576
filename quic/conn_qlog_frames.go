package quic

import (
	"bytes"
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// qlogFrames describes the frames of a packet, PADDING excepted, which qlog has no type
// for. Nothing of it aliases b, which is about to be encrypted or to be used again. exponent
// is the ack_delay_exponent of who sent the packet.
func qlogFrames(b []byte, exponent int) []qlog.Frame {
	frames := make([]qlog.Frame, 0, 4)
	for len(b) > 0 {
		f, n, err := wire.ParseFrame(b)
		if err != nil {
			break // the connection is about to close for it
		}
		if g := qlogFrame(f, exponent); g != nil {
			frames = append(frames, qlog.Frame{Frame: g})
		}
		b = b[n:]
	}
	return frames
}

// qlogFrame is f as qlog wants it; nil: not at all.
func qlogFrame(f wire.Frame, exponent int) any {
	switch f := f.(type) {
	case wire.Ping:
		return &qlog.PingFrame{}
	case wire.Ack:
		g := &qlog.AckFrame{
			DelayTime: ackDelay(f.Delay, exponent),
			ECT0:      f.ECT0, ECT1: f.ECT1, ECNCE: f.CE,
		}
		for _, r := range f.Ranges {
			g.AckRanges = append(g.AckRanges, qlog.AckRange{Smallest: qlog.PacketNumber(r.Lo), Largest: qlog.PacketNumber(r.Hi)})
		}
		return g
	case wire.ResetStream:
		g := &qlog.ResetStreamFrame{StreamID: StreamID(f.ID)}
		setCode(&g.ErrorCode, f.Code)
		set(&g.FinalSize, f.FinalSize)
		return g
	case wire.ResetStreamAt:
		g := &qlog.ResetStreamFrame{StreamID: StreamID(f.ID)}
		setCode(&g.ErrorCode, f.Code)
		set(&g.FinalSize, f.FinalSize)
		set(&g.ReliableSize, f.ReliableSize)
		return g
	case wire.StopSending:
		g := &qlog.StopSendingFrame{StreamID: StreamID(f.ID)}
		setCode(&g.ErrorCode, f.Code)
		return g
	case wire.Crypto:
		return &qlog.CryptoFrame{Offset: f.Off, Length: int64(len(f.Data))}
	case wire.NewToken:
		return &qlog.NewTokenFrame{Token: bytes.Clone(f.Token)}
	case wire.Stream:
		return &qlog.StreamFrame{StreamID: StreamID(f.ID), Offset: f.Off, Length: int64(len(f.Data)), Fin: f.Fin}
	case wire.MaxData:
		g := &qlog.MaxDataFrame{}
		set(&g.MaximumData, f.Max)
		return g
	case wire.MaxStreamData:
		g := &qlog.MaxStreamDataFrame{StreamID: StreamID(f.ID)}
		set(&g.MaximumStreamData, f.Max)
		return g
	case wire.MaxStreams:
		g := &qlog.MaxStreamsFrame{Type: kindBidi}
		if f.Uni {
			g.Type = kindUni
		}
		set(&g.MaxStreamNum, f.Max)
		return g
	case wire.DataBlocked:
		g := &qlog.DataBlockedFrame{}
		set(&g.MaximumData, f.Max)
		return g
	case wire.StreamDataBlocked:
		g := &qlog.StreamDataBlockedFrame{StreamID: StreamID(f.ID)}
		set(&g.MaximumStreamData, f.Max)
		return g
	case wire.StreamsBlocked:
		g := &qlog.StreamsBlockedFrame{Type: kindBidi}
		if f.Uni {
			g.Type = kindUni
		}
		set(&g.StreamLimit, f.Max)
		return g
	case wire.NewConnectionID:
		return &qlog.NewConnectionIDFrame{
			SequenceNumber: uint64(f.Seq), RetirePriorTo: uint64(f.RetirePriorTo),
			ConnectionID: ConnectionIDFromBytes(f.ID), StatelessResetToken: f.ResetToken,
		}
	case wire.RetireConnectionID:
		return &qlog.RetireConnectionIDFrame{SequenceNumber: uint64(f.Seq)}
	case wire.PathChallenge:
		return &qlog.PathChallengeFrame{Data: f.Data}
	case wire.PathResponse:
		return &qlog.PathResponseFrame{Data: f.Data}
	case wire.ConnectionClose:
		return &qlog.ConnectionCloseFrame{
			IsApplicationError: f.App, ErrorCode: f.Code, FrameType: f.FrameType, ReasonPhrase: string(f.Reason),
		}
	case wire.HandshakeDone:
		return &qlog.HandshakeDoneFrame{}
	case wire.Datagram:
		return &qlog.DatagramFrame{Length: int64(len(f.Data))}
	case wire.AckFrequency:
		return &qlog.AckFrequencyFrame{
			SequenceNumber: uint64(f.Seq), AckElicitingThreshold: f.Threshold,
			RequestMaxAckDelay:  time.Duration(f.MaxDelay) * time.Microsecond,
			ReorderingThreshold: qlog.PacketNumber(f.Reordering),
		}
	case wire.ImmediateAck:
		return &qlog.ImmediateAckFrame{}
	}
	return nil
}

func setCode[T ~uint64](field *T, code uint64) { *field = T(code) }

func qlogPacketType(t wire.PacketType) qlog.PacketType {
	switch t {
	case wire.Initial:
		return qlog.PacketTypeInitial
	case wire.ZeroRTT:
		return qlog.PacketType0RTT
	case wire.Handshake:
		return qlog.PacketTypeHandshake
	case wire.Retry:
		return qlog.PacketTypeRetry
	case wire.VersionNegotiation:
		return qlog.PacketTypeVersionNegotiation
	case wire.OneRTT:
		return qlog.PacketType1RTT
	}
	return qlog.PacketTypeUnknown
}

func qlogECN(e udp.ECN) qlog.ECN {
	switch e {
	case udp.ECT0:
		return qlog.ECT0
	case udp.ECT1:
		return qlog.ECT1
	case udp.CE:
		return qlog.ECNCE
	}
	return qlog.ECNUnsupported // quic-go says nothing of unmarked packets, either
}
