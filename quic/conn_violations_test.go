package quic

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/quic-go/quic-go/quicvarint"

	"github.com/volley-quic/volley/internal/wire"
)

// smallWindows gives streams 1000 bytes and the connection 1500.
func smallWindows(c *Config) {
	c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 1000, 1000
	c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = 1500, 1500
	c.MaxIncomingStreams, c.MaxIncomingUniStreams = 5, 3
}

func noConnID(p *actor) { p.scid = []byte{} }

// What a peer must not do, and what it is told then (RFC 9000 §20.1).
func TestViolations(t *testing.T) {
	s := stream0
	zeroes := func(n int) string { return string(make([]byte, n)) }
	long := func(typ byte, fields ...uint64) rawFrame {
		b := []byte{typ}
		for _, f := range fields {
			b = quicvarint.Append(b, f)
		}
		return b
	}
	newID := func(seq, prior int64, id string) wire.NewConnectionID {
		return wire.NewConnectionID{Seq: seq, RetirePriorTo: prior, ID: []byte(id), ResetToken: [16]byte{byte(seq), id[0]}}
	}
	for _, tt := range []struct {
		name string
		// say is one packet after the other.
		say  func(p *actor) [][]wire.Frame
		code wire.ErrorCode
		only string // "client", "server": Volley's role
		opts []any
	}{
		// §3, §19: the states of streams.
		{name: "STREAM on a stream that only Volley sends on", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(s(p.yours(uni, 0), 0, "x", false)) }},
		{name: "STREAM on a stream of Volley's that it did not open", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(s(p.yours(bidi, 0), 0, "x", false)) }},
		{name: "RESET_STREAM on a stream that only Volley sends on", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.ResetStream{ID: p.yours(uni, 0)}) }},
		{name: "RESET_STREAM on a stream that Volley did not open", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.ResetStream{ID: p.yours(bidi, 0)}) }},
		{name: "STREAM_DATA_BLOCKED on a stream that only Volley sends on", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.StreamDataBlocked{ID: p.yours(uni, 0)}) }},
		{name: "STOP_SENDING on a stream that Volley does not send on", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.StopSending{ID: p.mine(uni, 0)}) }},
		{name: "STOP_SENDING on a stream that Volley did not open", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.StopSending{ID: p.yours(bidi, 0)}) }},
		{name: "STOP_SENDING on a unidirectional stream that Volley did not open", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.StopSending{ID: p.yours(uni, 0)}) }},
		{name: "MAX_STREAM_DATA on a stream that Volley does not send on", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.MaxStreamData{ID: p.mine(uni, 0), Max: 1}) }},
		{name: "MAX_STREAM_DATA on a stream that Volley did not open", code: wire.StreamStateError,
			say: func(p *actor) [][]wire.Frame { return one(wire.MaxStreamData{ID: p.yours(bidi, 0), Max: 1}) }},

		// §4.6: limits on streams, whatever frame opens them.
		{name: "STREAM beyond MAX_STREAMS", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(bidi, 5), 0, "x", false)) }},
		{name: "STREAM beyond MAX_STREAMS, unidirectional", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(uni, 3), 0, "x", false)) }},
		{name: "RESET_STREAM beyond MAX_STREAMS", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(wire.ResetStream{ID: p.mine(uni, 3)}) }},
		{name: "STREAM_DATA_BLOCKED beyond MAX_STREAMS", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(wire.StreamDataBlocked{ID: p.mine(bidi, 5)}) }},
		{name: "STOP_SENDING beyond MAX_STREAMS", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(wire.StopSending{ID: p.mine(bidi, 5)}) }},
		{name: "MAX_STREAM_DATA beyond MAX_STREAMS", code: wire.StreamLimitError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(wire.MaxStreamData{ID: p.mine(bidi, 5)}) }},
		{name: "the highest stream ID there is", code: wire.StreamLimitError,
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(bidi, 1<<60-1), 0, "x", false)) }},
		{name: "MAX_STREAMS above 2^60", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x12, 1<<60+1)) }},
		{name: "MAX_STREAMS above 2^60, unidirectional", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x13, 1<<60+1)) }},
		{name: "STREAMS_BLOCKED above 2^60", code: wire.StreamLimitError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x16, 1<<60+1)) }},

		// §4.1: flow control.
		{name: "more than MAX_STREAM_DATA", code: wire.FlowControlError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(uni, 0), 990, zeroes(11), false)) }},
		{name: "more than MAX_STREAM_DATA, for the FIN", code: wire.FlowControlError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(uni, 0), 1001, "", true)) }},
		{name: "more than MAX_DATA", code: wire.FlowControlError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame {
				return [][]wire.Frame{{s(p.mine(uni, 0), 0, zeroes(800), false)}, {s(p.mine(bidi, 0), 0, zeroes(701), false)}}
			}},
		{name: "a final size beyond MAX_STREAM_DATA", code: wire.FlowControlError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame { return one(wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 1001}) }},
		{name: "final sizes beyond MAX_DATA", code: wire.FlowControlError, opts: []any{smallWindows},
			say: func(p *actor) [][]wire.Frame {
				// None of the streams is read, so nothing is given back but what is reset.
				return one(s(p.mine(uni, 0), 0, zeroes(1000), false), wire.ResetStream{ID: p.mine(bidi, 0), FinalSize: 501})
			}},
		{name: "stream data beyond 2^62", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(s(p.mine(uni, 0), 1<<62-1, "x", false)) }},

		// §4.5: final sizes do not change.
		{name: "data beyond FIN", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 0, "abc", true), s(p.mine(uni, 0), 3, "d", false))
			}},
		{name: "another FIN beyond the first", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 5, "", true), s(p.mine(uni, 0), 6, "", true))
			}},
		{name: "another FIN below the first", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 5, "", true), s(p.mine(uni, 0), 4, "", true))
			}},
		{name: "FIN below what was sent", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 5, "abc", false), s(p.mine(uni, 0), 7, "", true))
			}},
		{name: "RESET_STREAM below what was sent", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 5, "abc", false), wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 7})
			}},
		{name: "RESET_STREAM unlike FIN", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(s(p.mine(uni, 0), 5, "", true), wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 6})
			}},
		{name: "RESET_STREAM unlike the first", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 6}, wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 7})
			}},
		{name: "data beyond RESET_STREAM", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 2}, s(p.mine(uni, 0), 0, "abc", false))
			}},
		{name: "FIN below RESET_STREAM", code: wire.FinalSizeError,
			say: func(p *actor) [][]wire.Frame {
				return one(wire.ResetStream{ID: p.mine(uni, 0), FinalSize: 2}, s(p.mine(uni, 0), 0, "a", true))
			}},

		// §5.1, §19.15, §19.16: connection IDs.
		{name: "NEW_CONNECTION_ID that retires itself", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(newID(1, 2, "one.")) }},
		{name: "NEW_CONNECTION_ID without an ID", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(append(rawFrame{0x18, 1, 0, 0}, zeroes(16)...)) }},
		{name: "NEW_CONNECTION_ID of 21 bytes", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(append(rawFrame{0x18, 1, 0, 21}, zeroes(21+16)...)) }},
		{name: "a sequence number for two connection IDs", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(newID(1, 0, "one."), newID(1, 0, "uno.")) }},
		{name: "a connection ID with two tokens", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame {
				f := newID(1, 0, "one.")
				f.ResetToken[3]++
				return one(newID(1, 0, "one."), f)
			}},
		{name: "two sequence numbers for a connection ID", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(newID(1, 0, "one."), newID(2, 0, "one.")) }},
		{name: "the handshake's connection ID under another number", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(newID(1, 0, string(p.scid))) }},
		{name: "more connection IDs than active_connection_id_limit", code: wire.ConnectionIDLimitError,
			say: func(p *actor) (fs [][]wire.Frame) {
				for seq := int64(1); seq <= p.theirs.ActiveConnIDLimit; seq++ {
					fs = append(fs, []wire.Frame{newID(seq, 0, fmt.Sprintf("id%02d", seq))})
				}
				return fs
			}},
		{name: "NEW_CONNECTION_ID from a peer that uses none", code: wire.ProtocolViolation, opts: []any{noConnID},
			say: func(p *actor) [][]wire.Frame { return one(newID(1, 0, "one.")) }},
		{name: "RETIRE_CONNECTION_ID of one that was never issued", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(wire.RetireConnectionID{Seq: 9}) }},

		// §13.1, §19.3.1: acknowledgements.
		{name: "ACK of a packet that was not sent", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(ack(p.largest[2] + 1)) }},
		{name: "ACK of everything up to the highest number there is", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(wire.Ack{Ranges: []wire.AckRange{{Lo: 0, Hi: 1<<62 - 1}}}) }},
		{name: "ACK whose first range is longer than its number", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x02, 0, 0, 0, 1)) }},
		{name: "ACK with a gap below zero", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x02, 1, 0, 1, 0, 5, 0)) }},
		{name: "ACK with fewer ranges than it says", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(long(0x02, 0, 0, 1<<40, 0)) }},

		// §12.4, §19: frames.
		{name: "unknown frame type", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(rawFrame{0x21}) }},
		{name: "unknown frame type of four bytes", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(rawFrame{0x80, 0xff, 0, 1}) }},
		{name: "frame type in more bytes than it needs", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(rawFrame{0x40, 0x01}) }},
		{name: "frame type that is cut off", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(rawFrame{0xc0}) }},
		{name: "STREAM longer than the packet", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(append(long(0x0a, uint64(p.mine(uni, 0)), 5), "abc"...)) }},
		{name: "CRYPTO longer than the packet", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(append(long(0x06, 0, 5), "abc"...)) }},
		{name: "CONNECTION_CLOSE longer than the packet", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(append(long(0x1c, 0, 0, 5), "abc"...)) }},
		{name: "packet without frames", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return [][]wire.Frame{{}} }},
		{name: "NEW_TOKEN from a client", code: wire.ProtocolViolation, only: "server",
			say: func(p *actor) [][]wire.Frame { return one(wire.NewToken{Token: []byte("t")}) }},
		{name: "empty NEW_TOKEN", code: wire.FrameEncodingError, only: "client",
			say: func(p *actor) [][]wire.Frame { return one(long(0x07, 0)) }},
		{name: "HANDSHAKE_DONE from a client", code: wire.ProtocolViolation, only: "server",
			say: func(p *actor) [][]wire.Frame { return one(wire.HandshakeDone{}) }},
		{name: "DATAGRAM that was not offered", code: wire.ProtocolViolation, // RFC 9221 §3
			say: func(p *actor) [][]wire.Frame { return one(wire.Datagram{Data: []byte("d"), HasLen: true}) }},
		{name: "RESET_STREAM_AT that was not offered", code: wire.FrameEncodingError,
			say: func(p *actor) [][]wire.Frame { return one(wire.ResetStreamAt{ID: p.mine(uni, 0)}) }},
		{name: "ACK_FREQUENCY with no delay at all", code: wire.ProtocolViolation,
			say: func(p *actor) [][]wire.Frame { return one(wire.AckFrequency{Seq: 1}) }},

		// §7.5, RFC 9001 §6: CRYPTO after the handshake.
		{name: "CRYPTO far ahead of its turn", code: wire.CryptoBufferExceeded,
			say: func(p *actor) [][]wire.Frame { return one(wire.Crypto{Off: 1 << 20, Data: []byte("x")}) }},
		{name: "a TLS KeyUpdate", code: wire.CryptoError(10),
			say: func(p *actor) [][]wire.Frame {
				return one(wire.Crypto{Off: int64(p.out[2].sent), Data: []byte{24, 0, 0, 1, 0}})
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				if tt.only != "" && tt.only != volley.String() {
					return
				}
				p := newActor(t, volley, tt.opts...).handshake()
				say := tt.say(p)
				p.watching.loose = true
				for _, fs := range say[:len(say)-1] {
					p.writeFrames(wire.OneRTT, fs...)
					p.wantAlive("up to here all is well")
				}
				last := say[len(say)-1]
				p.writeFrames(wire.OneRTT, last...)
				f := p.wantClosed("this must not be", tt.code)
				if f.FrameType == 0 {
					return // unknown, and so it may be
				}
				if blamed := last[len(last)-1]; wire.FrameName(f.FrameType) != wire.FrameName(frameType(blamed)) {
					t.Errorf("the close blames frame type %#x", f.FrameType)
				}
			})
		})
	}
}

// one is a single packet.
func one(fs ...wire.Frame) [][]wire.Frame { return [][]wire.Frame{fs} }

// Every frame, cut off anywhere, is a FRAME_ENCODING_ERROR (RFC 9000 §12.4).
func TestTruncatedFrames(t *testing.T) {
	for _, f := range []wire.Frame{
		ack(0), wire.Ack{Ranges: []wire.AckRange{{}}, ECN: true}, wire.ResetStream{}, wire.StopSending{}, wire.Crypto{Data: []byte("ab")},
		wire.NewToken{Token: []byte("t")}, wire.MaxData{}, wire.MaxStreamData{}, wire.MaxStreams{}, wire.DataBlocked{},
		wire.StreamDataBlocked{}, wire.StreamsBlocked{}, wire.NewConnectionID{Seq: 1, ID: []byte("one.")},
		wire.RetireConnectionID{}, wire.PathChallenge{}, wire.PathResponse{}, wire.ConnectionClose{Reason: []byte("r")},
	} {
		t.Run(fmt.Sprintf("%T", f), func(t *testing.T) {
			b := f.Append(nil)
			for n := 1; n < len(b); n++ {
				synctest.Test(t, func(t *testing.T) {
					p := newActor(t, asClient).handshake()
					p.writeFrames(wire.OneRTT, rawFrame(b[:n]))
					p.wantClosed(fmt.Sprintf("%d of %d bytes", n, len(b)), wire.FrameEncodingError)
				})
			}
		})
	}
}

// RFC 9000 §12.4, table 3: most frames are for 1-RTT packets only.
func TestFramesInWrongPackets(t *testing.T) {
	frames := []wire.Frame{
		wire.ResetStream{}, wire.StopSending{}, wire.NewToken{Token: []byte("t")}, stream0(0, 0, "x", false),
		wire.MaxData{}, wire.MaxStreamData{}, wire.MaxStreams{}, wire.MaxStreams{Uni: true}, wire.DataBlocked{},
		wire.StreamDataBlocked{}, wire.StreamsBlocked{}, wire.StreamsBlocked{Uni: true},
		wire.NewConnectionID{Seq: 1, ID: []byte("one.")}, wire.RetireConnectionID{}, wire.PathChallenge{}, wire.PathResponse{},
		wire.ConnectionClose{App: true}, wire.HandshakeDone{}, wire.Datagram{HasLen: true},
	}
	for _, f := range frames {
		t.Run(wire.FrameName(frameType(f)), func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley)
				p.start()
				p.writeFrames(wire.Initial, f)
				if volley == asServer {
					// There is a connection as soon as there is an Initial.
					p.wantClosed("not in Initial packets", wire.ProtocolViolation)
					return
				}
				p.wantClosed("not in Initial packets", wire.ProtocolViolation)
			})
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley)
				p.start()
				if volley == asServer {
					p.writeCrypto(wire.Initial)
				} else {
					p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
				}
				p.collect()
				p.writeFrames(wire.Handshake, f)
				p.wantClosed("not in Handshake packets", wire.ProtocolViolation)
			})
		})
	}
}

// RFC 9000 §17.2, §17.3.1: reserved bits are zero, which can be told only after the
// protection is removed.
func TestReservedBits(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		for _, bits := range []byte{0x08, 0x10} {
			p := newActor(t, volley).handshake()
			s := p.packet(wire.OneRTT, wire.Ping{})
			s.bits = bits
			p.send(s)
			p.wantClosed("reserved bits of a short header", wire.ProtocolViolation)
		}
		for _, bits := range []byte{0x04, 0x08} {
			p := newActor(t, volley)
			p.start()
			s := p.packet(wire.Initial, wire.Ping{})
			s.bits = bits
			p.send(s)
			p.wantClosed("reserved bits of an Initial", wire.ProtocolViolation)

			p = newActor(t, volley)
			p.start()
			p.writeCrypto(wire.Initial)
			p.collect()
			s = p.packet(wire.Handshake, wire.Ping{})
			s.bits = bits
			p.send(s)
			p.wantClosed("reserved bits of a Handshake packet", wire.ProtocolViolation)
		}
	})
}
