package quic

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// FuzzFrames sends packets with anything in them to a connection that is in use.
// Whatever that is, Volley does not panic, nor hang; it closes the connection, or goes on
// and answers.
//
// The first byte chooses Volley's role and the kind of packets. What follows are the
// payloads, each behind its length in two bytes.
func FuzzFrames(f *testing.F) {
	packets := func(role byte, payloads ...[]wire.Frame) {
		b := []byte{role}
		for _, fs := range payloads {
			p := payloadOf(fs)
			b = append(b, byte(len(p)>>8), byte(len(p)))
			b = append(b, p...)
		}
		f.Add(b)
	}
	id := func(seq, prior int64) wire.Frame { return newConnID(seq, prior) }
	for role := range byte(2) {
		mine, yours := int64(1-role), int64(role) // lowest bits of stream IDs
		uni := int64(uniBit)
		packets(role, []wire.Frame{stream0(mine, 0, "hello", true), stream0(mine|uni, 3, "lo", false)}, []wire.Frame{stream0(mine|uni, 0, "hello", true)})
		packets(role, []wire.Frame{wire.ResetStream{ID: mine | uni, Code: 7, FinalSize: 9}, wire.StopSending{ID: yours, Code: 8}, wire.StopSending{ID: yours | uni}})
		packets(role, []wire.Frame{wire.MaxData{Max: 1 << 40}, wire.MaxStreamData{ID: yours, Max: 1 << 40}, wire.MaxStreams{Max: 1 << 20}, wire.MaxStreams{Uni: true, Max: 200}})
		packets(role, []wire.Frame{wire.DataBlocked{Max: 1}, wire.StreamDataBlocked{ID: mine, Max: 5}, wire.StreamsBlocked{Max: 7}, wire.StreamsBlocked{Uni: true}})
		packets(role, []wire.Frame{id(1, 0), id(2, 1)}, []wire.Frame{id(3, 3), wire.RetireConnectionID{Seq: 1}}, []wire.Frame{wire.RetireConnectionID{Seq: 2}})
		packets(role, []wire.Frame{wire.PathChallenge{Data: [8]byte{1}}, wire.PathResponse{}, wire.Ping{}, wire.Padding{N: 7}})
		packets(role, []wire.Frame{wire.NewToken{Token: []byte("token")}, wire.HandshakeDone{}, wire.Crypto{Data: []byte{4, 0, 0, 1, 2}}})
		packets(role, []wire.Frame{ack(0, 1)}, []wire.Frame{wire.Ack{Ranges: []wire.AckRange{{Lo: 1, Hi: 2}}, Delay: 1 << 60, ECN: true, ECT0: 1 << 61, CE: 3}})
		packets(role, []wire.Frame{ack(2), ack(4)}, []wire.Frame{ack(5, 6, 7)})
		packets(role, []wire.Frame{wire.ConnectionClose{App: true, Code: 3, Reason: []byte("bye")}})
		packets(role, []wire.Frame{wire.ConnectionClose{Code: 3, FrameType: 9}})
		packets(role, []wire.Frame{wire.Datagram{Data: []byte("d")}, wire.ResetStreamAt{ID: mine, ReliableSize: 3}, wire.AckFrequency{}, wire.ImmediateAck{}})
		packets(role|16, []wire.Frame{wire.Ping{}}, []wire.Frame{stream0(mine, 0, "hello", true)}, []wire.Frame{wire.PathChallenge{}})
		at := func(final, reliable int64) wire.Frame {
			return wire.ResetStreamAt{ID: mine | uni, Code: 7, FinalSize: final, ReliableSize: reliable}
		}
		packets(role|32, []wire.Frame{stream0(mine|uni, 3, "lo", false), at(9, 5)}, []wire.Frame{at(9, 4), stream0(mine|uni, 0, "hello", false)}, []wire.Frame{wire.ResetStream{ID: mine | uni, Code: 7, FinalSize: 9}})
		packets(role|32, []wire.Frame{wire.StopSending{ID: yours, Code: 8}, ack(2)}, []wire.Frame{wire.MaxStreamData{ID: yours + 4, Max: 1 << 40}, wire.MaxData{Max: 1 << 40}})
		packets(role|2, []wire.Frame{wire.Crypto{Off: 3, Data: []byte("late")}, wire.Ping{}}, []wire.Frame{wire.Crypto{Data: []byte{2, 0, 0}}})
		packets(role|4, []wire.Frame{wire.Crypto{Off: 3, Data: []byte("late")}, ack(0)}, []wire.Frame{wire.Crypto{Data: []byte{20, 0, 0, 32}}})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			volley := role(data[0] & 1)
			typ := wire.OneRTT
			p := newActor(t, volley, func(c *Config) {
				c.EnableDatagrams = data[0]&8 != 0
				c.EnableStreamResetPartialDelivery = data[0]&32 != 0
				c.KeepAlivePeriod = time.Second
			}, windows(1000, 5000), credit(2000, 8000), func(tp *wire.TransportParams) {
				tp.GreaseQUICBit = data[0]&16 != 0
				tp.ResetStreamAt = data[0]&32 != 0
			})
			p.watching.loose = true
			switch data[0] >> 1 & 3 {
			case 1:
				typ = wire.Initial
				p.start()
			case 2:
				typ = wire.Handshake
				p.start()
				p.writeCrypto(wire.Initial)
			default:
				p.handshake()
				use(p)
			}
			retired := map[int64]bool{}
			for n, rest := 0, data[1:]; len(rest) > 2 && n < 50; n++ {
				k := min(int(rest[0])<<8|int(rest[1]), len(rest)-2, 1300)
				payload := rest[2 : 2+k]
				rest = rest[2+k:]
				for b := payload; len(b) > 0; {
					fr, k, err := wire.ParseFrame(b)
					if err != nil {
						break
					}
					p.watching.said(fr)
					if fr, ok := fr.(wire.RetireConnectionID); ok {
						retired[fr.Seq] = true
					}
					b = b[k:]
				}
				p.greased = data[0]&16 != 0 && p.c != nil && n%2 == 1
				p.writeFrames(typ, rawFrame(payload))
				p.advance(time.Millisecond)
				if n%3 == 0 {
					p.advance(100 * time.Millisecond)
				}
			}
			if typ == wire.OneRTT && p.cause() == nil {
				for seq, f := range p.issued() {
					if retired[0] && !retired[seq] {
						p.dcid = f.ID
					}
				}
				p.queue = nil
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.advance(time.Second)
				if p.cause() == nil && len(heard[wire.Ack](p)) == 0 {
					t.Error("Volley does not answer any more")
				}
			}
			p.advance(time.Minute)
			p.queue, p.got = nil, [recovery.NumSpaces]spans{}
			p.transport.Close()
		})
	})
}

// use makes an application of the connection: it answers what comes, and says something
// itself.
func use(p *actor) {
	ctx := p.Context()
	go func() {
		for {
			s, err := p.c.AcceptStream(ctx)
			if err != nil {
				return
			}
			go func() {
				io.Copy(s, s)
				s.Close()
			}()
		}
	}()
	go func() {
		for n := 0; ; n++ {
			s, err := p.c.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			if n%3 == 2 {
				s.CancelRead(1)
				continue
			}
			go io.Copy(io.Discard, s)
		}
	}()
	go func() {
		for n := range 150 {
			s, err := p.c.OpenStreamSync(ctx)
			if err != nil {
				return
			}
			go io.Copy(io.Discard, s)
			if _, err := s.Write(make([]byte, 3000)); err == nil && n%2 == 0 {
				s.Close()
			} else {
				if n%4 == 1 {
					s.SetReliableBoundary()
				}
				s.CancelWrite(2)
			}
		}
	}()
	if s, err := p.c.OpenUniStream(); err == nil {
		go func() {
			s.ReadFrom(readerOf(zeroes{}))
		}()
	}
	go func() {
		for {
			if _, err := p.c.ReceiveDatagram(ctx); err != nil {
				return
			}
		}
	}()
}
