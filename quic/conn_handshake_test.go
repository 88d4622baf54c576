package quic

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/quicvarint"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// longChain makes a server's certificate chain n times as long: about 600 bytes each.
func longChain(n int) func(*tls.Config) {
	return func(c *tls.Config) {
		cert := c.Certificates[0]
		cert.Certificate = slices.Repeat(cert.Certificate, n)
		c.Certificates = []tls.Certificate{cert}
	}
}

// largeHello lets the client offer post-quantum key shares: more than a datagram.
func largeHello(c *tls.Config) { c.CurvePreferences = nil }

func TestHandshake(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.wantAlive("the handshake is complete")
		p.wantIdle("the handshake is complete")
		select {
		case <-p.c.HandshakeComplete():
		default:
			t.Error("HandshakeComplete is not closed")
		}
		if s := p.c.ConnectionState(); !s.TLS.HandshakeComplete || s.TLS.NegotiatedProtocol != "volley" || s.Version != Version1 {
			t.Errorf("ConnectionState: %+v", s)
		}
	})
}

// What one flight has to say shares its datagrams (RFC 9000 §12.2), and those with
// Initial packets are full (§14.1).
func TestHandshakeDatagrams(t *testing.T) {
	t.Run("as client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			d := p.wantDatagram("the ClientHello")
			if d.size != 1280 || len(d.packets) != 1 || d.packets[0].typ != wire.Initial {
				t.Errorf("the first datagram: %v", d)
			}
			p.writeServerFlight()
			d = p.wantDatagram("the client's Finished, with what acknowledges Initial packets")
			if len(d.packets) != 2 || d.packets[0].typ != wire.Initial || d.packets[1].typ != wire.Handshake {
				t.Errorf("the second flight: %v", d)
			}
		})
	})
	t.Run("as client, ClientHello of two datagrams", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, largeHello)
			p.start()
			for _, d := range p.wantDatagrams("the ClientHello", 2) {
				if d.size != 1280 {
					t.Errorf("%v", d)
				}
			}
			p.handshake()
		})
	})
	t.Run("as server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer)
			p.start()
			p.writeCrypto(wire.Initial)
			d := p.wantDatagram("the server's flight")
			if len(d.packets) != 2 || d.packets[0].typ != wire.Initial || d.packets[1].typ != wire.Handshake {
				t.Errorf("the server's flight: %v", d)
			}
			if _, ok := d.packets[0].frames[0].(wire.Ack); !ok {
				t.Errorf("the first Initial does not acknowledge: %v", d)
			}
			p.wantIdle("all fits into one datagram")
			p.handshake()
		})
	})
	t.Run("as server, long chain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer, longChain(3))
			p.start()
			p.writeCrypto(wire.Initial)
			ds := p.wantDatagrams("the server's flight", 2)
			if len(ds[0].packets) != 2 || len(ds[1].packets) != 1 || ds[1].packets[0].typ != wire.Handshake {
				t.Errorf("the server's flight: %v", ds)
			}
			if ds[0].size != 1280 {
				t.Errorf("the first datagram is not full: %v", ds[0])
			}
		})
	})
}

// The end of Handshake keys may arrive together with packets that need them.
func TestKeyDiscardInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.writeServerFlight()
		p.collect()
		p.mustTLS()
		c, err := p.dialing.result()
		if err != nil {
			t.Fatal(err)
		}
		p.c = c
		p.queue = nil
		var batch []packet
		for _, s := range []*packetSpec{
			p.packet(wire.OneRTT, wire.HandshakeDone{}),
			p.packet(wire.Handshake, wire.Crypto{Data: []byte("too late")}, rawFrame{0x21}),
		} {
			buf := udp.CopyBuffer(p.seal(s, true))
			batch = append(batch, packet{buf: buf, data: buf.Bytes(), segment: len(buf.Bytes()),
				remote: hereAddr.AddrPort(), remoteAddr: hereAddr, at: time.Now(), via: p.transport})
		}
		c.deliver(batch)
		p.collect()
		p.wantAlive("the second packet is not looked at")
		if !c.confirmed {
			t.Error("the handshake is not confirmed")
		}
	})
}

// Keys are thrown away at the time that RFC 9001 §4.9 says. Then packets that need them
// mean nothing any more: they are not acknowledged, nor do they do any harm.
func TestKeyDiscard(t *testing.T) {
	poison := func(typ wire.PacketType) func(p *actor) {
		return func(p *actor) {
			p.Helper()
			p.writeFrames(typ, wire.Ping{}, rawFrame{0x21})
			p.wantIdle("packets without keys are not answered")
			p.wantAlive("nor looked at")
		}
	}
	t.Run("a client's Initial keys, with its first Handshake packet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.writeServerFlight()
			p.collect()
			p.queue = nil
			poison(wire.Initial)(p)
			p.writeFrames(wire.Handshake, wire.Ping{})
			wantA[wire.Ack](p, "Handshake keys are still there", wire.Handshake)
		})
	})
	t.Run("a server's Initial keys, with the first Handshake packet it receives", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer)
			p.start()
			p.writeCrypto(wire.Initial)
			p.collect()
			p.writeFrames(wire.Initial, wire.Ping{})
			p.queue = p.queue[2:]
			p.ignore(wire.FrameCrypto)
			wantA[wire.Ack](p, "Initial keys are still there", wire.Initial)
			p.writeFrames(wire.Handshake, wire.Ping{})
			wantA[wire.Ack](p, "the address is validated now", wire.Handshake)
			poison(wire.Initial)(p)
		})
	})
	t.Run("a server's Handshake keys, when the handshake is complete", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer).handshake()
			poison(wire.Handshake)(p)
			poison(wire.Initial)(p)
		})
	})
	t.Run("a client's Handshake keys, when the handshake is confirmed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.writeServerFlight()
			p.collect()
			p.queue = nil
			p.writeFrames(wire.Handshake, wire.Ping{})
			wantA[wire.Ack](p, "it is complete, but not confirmed", wire.Handshake)
			p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
			p.advance(time.Second)
			p.queue = nil
			poison(wire.Handshake)(p)
		})
	})
}

// A packet that overtakes what it takes to open it is kept (RFC 9000 §5.2.1, RFC 9001
// §5.7).
func TestPacketsBeforeTheirKeys(t *testing.T) {
	t.Run("as client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.queue = nil
			// All of a server's flight backwards, with early data at the end.
			p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "early", true))
			first := p.cryptoFrameOf(wire.Handshake, 100)
			p.writeFrames(wire.Handshake, p.cryptoFrame(wire.Handshake))
			p.writeFrames(wire.Handshake, first)
			p.wantIdle("there are no keys")
			p.writeFrames(wire.Initial, p.ackFrame(wire.Initial), p.cryptoFrame(wire.Initial))
			p.collect()
			if !p.done {
				t.Fatal("the handshake is not complete")
			}
			wantRead(p, "early")
		})
	})
	t.Run("as server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer)
			p.start()
			p.writeCrypto(wire.Initial)
			p.collect()
			p.queue = nil
			finished := p.cryptoFrame(wire.Handshake)
			// RFC 9001 §5.7: "1-RTT packets MUST NOT be processed before the handshake
			// is complete", though there are keys.
			p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "early", true))
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1 << 30})
			p.wantIdle("the client is not authenticated")
			p.writeFrames(wire.Handshake, finished)
			p.ignore(wire.FrameHandshakeDone, wire.FrameNewToken, wire.FrameNewConnectionID, wire.FrameCrypto)
			if f := wantA[wire.Ack](p, "what was kept is acknowledged now", wire.OneRTT); f.Largest() != 1 {
				t.Errorf("%v", f)
			}
			wantRead(p, "early")
		})
	})
}

// wantRead accepts a unidirectional stream and reads all of it.
func wantRead(p *actor, want string) {
	p.Helper()
	p.collect()
	s := start(func() (string, error) {
		s, err := p.c.AcceptUniStream(p.Context())
		if err != nil {
			return "", err
		}
		b := make([]byte, len(want)+1)
		n := 0
		for err == nil && n < len(b) {
			var k int
			k, err = s.Read(b[n:])
			n += k
		}
		return string(b[:n]), nil
	})
	if !s.finished() {
		p.Fatalf("want to read %q, but it does not come", want)
	}
	if got, err := s.result(); got != want || err != nil {
		p.Fatalf("want to read %q, got %q, %v", want, got, err)
	}
}

// Handshake bytes come in any order, twice, and in crumbs.
func TestCryptoReassembly(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		typ := wire.Initial
		if volley == asClient {
			p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
			typ = wire.Handshake
		}
		o := &p.out[spaceOf(typ)]
		for at := len(o.data); at > 0; {
			n := min(7, at)
			at -= n
			var fs []wire.Frame
			for range 2 {
				fs = append(fs, wire.Crypto{Off: int64(at), Data: o.data[at:min(at+n+3, len(o.data))]})
			}
			p.writeFrames(typ, fs...)
		}
		o.sent = len(o.data)
		p.collect()
		if volley == asClient && !p.done || volley == asServer && p.oneRTT == nil {
			t.Fatal("the handshake does not go on")
		}
	})
}

// A peer may send what does not fit together at any level; it is bounded (RFC 9000
// §7.5).
func TestCryptoBuffer(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		for _, typ := range []wire.PacketType{wire.Initial, wire.Handshake} {
			p := newActor(t, volley)
			p.start()
			if typ == wire.Handshake {
				p.writeCrypto(wire.Initial)
				p.collect()
			}
			// 4096 bytes out of order are the least that must be taken.
			p.writeFrames(typ, wire.Crypto{Off: int64(p.out[spaceOf(typ)].sent) + 4095, Data: []byte{0}})
			p.wantAlive("4096 bytes")
			p.writeFrames(typ, wire.Crypto{Off: 1 << 20, Data: []byte{0}})
			p.wantClosed("too far ahead", wire.CryptoBufferExceeded)
		}
	})
}

// RFC 9001 §4.1.3: nothing new comes at a level that TLS has left.
func TestCryptoAtOldLevel(t *testing.T) {
	t.Run("as client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.out[recovery.Initial].data = append(p.out[recovery.Initial].data, "more"...)
			p.writeFrames(wire.Initial, p.cryptoFrameOf(wire.Initial, len(p.out[0].data)-4))
			p.wantAlive("so far it is a ServerHello")
			p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
			p.wantClosed("TLS reads Handshake messages", wire.ProtocolViolation)
		})
	})
	t.Run("as client, out of order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			hello := p.cryptoFrame(wire.Initial)
			p.writeFrames(wire.Initial, wire.Crypto{Off: int64(p.out[0].sent) + 5, Data: []byte("x")})
			p.wantAlive("nobody knows yet how long the ServerHello is")
			p.writeFrames(wire.Initial, hello)
			p.wantClosed("there is something behind it", wire.ProtocolViolation)
		})
	})
	t.Run("as server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer)
			p.start()
			p.writeCrypto(wire.Initial)
			p.collect()
			p.writeFrames(wire.Initial, wire.Crypto{Off: int64(p.out[0].sent), Data: []byte("more")})
			p.wantClosed("TLS reads Handshake messages", wire.ProtocolViolation)
		})
	})
}

// A client's packets that are lost leave again, later and later (RFC 9002 §6.2).
func TestClientHelloLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.queue = nil
		// §6.2.2: the initial round-trip time is 333 ms, and its variance half of that.
		for _, want := range []time.Duration{999, 1998} {
			if d := p.advanceToSend(); d != want*time.Millisecond {
				t.Errorf("the next probe comes after %v, want %v ms", d, want)
			}
			for _, d := range p.wantDatagrams("two probes", 2) {
				if f, ok := d.packets[0].frames[0].(wire.Crypto); !ok || f.Off != 0 {
					t.Errorf("a probe without the ClientHello: %v", d)
				}
			}
		}
		p.handshake()
	})
}

// When the server's first flight is lost it goes again, with the ServerHello in it.
func TestServerFlightLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer, longChain(3))
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		p.writeFrames(wire.Initial, wire.Ping{}) // or the allowance would be used up
		p.queue = nil
		p.advanceToSend()
		var initial, hs tape
		for _, s := range p.queue {
			if f, ok := s.f.(wire.Crypto); ok && s.pkt.typ == wire.Initial {
				initial.put(f.Off, f.Data)
			} else if ok {
				hs.put(f.Off, f.Data)
			}
		}
		if initial.prefix() != p.in[recovery.Initial].prefix() {
			t.Errorf("the ServerHello has not come again")
		}
		if hs.prefix() == 0 {
			t.Errorf("nothing of the Handshake flight has come again")
		}
	})
}

// A client's Finished is repeated until the server has it.
func TestFinishedLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.writeServerFlight()
		p.collect()
		p.queue = nil
		for range 3 {
			p.advanceToSend()
			found := false
			for _, f := range heard[wire.Crypto](p) {
				found = found || f.Off == 0
			}
			if !found {
				t.Fatal("a probe without the Finished message")
			}
		}
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake))
		p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
		p.advance(time.Second)
		p.wantAlive("nothing was wrong")
	})
}

// HANDSHAKE_DONE is repeated until it is acknowledged (RFC 9000 §13.3).
func TestHandshakeDoneLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.start()
		p.writeCrypto(wire.Initial)
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake), p.cryptoFrame(wire.Handshake))
		if len(heard[wire.HandshakeDone](p)) != 1 {
			t.Fatal("no HANDSHAKE_DONE")
		}
		lost := p.largest[recovery.App]
		p.advance(time.Second)
		// Probes have left meanwhile; of those the client has seen the last.
		p.writeFrames(wire.OneRTT, ack(p.largest[recovery.App]))
		if p.largest[recovery.App] == lost {
			t.Fatal("no probes")
		}
		p.advance(time.Second)
		if len(heard[wire.HandshakeDone](p)) == 0 {
			t.Error("HANDSHAKE_DONE was lost and is not sent again")
		}
	})
}

// RFC 9000 §8.1: before it knows the client's address a server sends three times what it
// received and no more, then waits. The watch counts.
func TestAntiAmplification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer, longChain(20))
		p.start()
		p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
		p.collect()
		if out := p.watching.out; out < 2*1200 || out > 3*1200 {
			t.Errorf("a server sends %d bytes for the client's first 1200", out)
		}
		p.queue = nil
		before := rounds(p.c)
		p.advance(4 * time.Second)
		p.wantIdle("the allowance is used up")
		if n := rounds(p.c) - before; n > 10 {
			t.Errorf("while it waits, the connection's goroutine runs %d times", n)
		}
		for p.oneRTT == nil {
			was := p.watching.out
			p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
			p.collect()
			if p.watching.out == was {
				t.Fatal("more allowance, and nothing comes")
			}
		}
		p.handshake()
	})
}

// A server's 0.5-RTT data count as well.
func TestAntiAmplificationEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer, func(p *actor) { p.early = true })
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		c, err := p.accepted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
		p.advance(time.Second)
		if p.watching.out < 2*1200 {
			t.Errorf("the server sends %d bytes only", p.watching.out)
		}
		p.queue = nil
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake), p.cryptoFrame(wire.Handshake))
		p.advance(time.Millisecond)
		p.ackUntil(w.finished)
	})
}

// A22. The server has used up its allowance, and the client has nothing to send: the
// client must speak (RFC 9002 §6.2.2.1).
func TestClientEndsDeadlock(t *testing.T) {
	t.Run("with an Initial", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.queue = nil
			p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
			p.wantIdle("everything is acknowledged")
			for range 3 {
				if d := p.advanceToSend(); d > 3*time.Second {
					t.Errorf("silence for %v", d)
				}
				d := p.wantDatagram("a probe")
				if d.packets[0].typ != wire.Initial || d.size < 1200 {
					t.Errorf("%v", d)
				}
				p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
			}
			p.handshake()
		})
	})
	t.Run("with a Handshake packet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.queue = nil
			p.writeFrames(wire.Initial, p.ackFrame(wire.Initial), p.cryptoFrame(wire.Initial))
			p.writeFrames(wire.Handshake, p.cryptoFrameOf(wire.Handshake, 100))
			p.collect()
			p.queue = nil
			p.ignore(wire.FrameAck) // which goes along with everything
			for range 3 {
				if d := p.advanceToSend(); d > 3*time.Second {
					t.Errorf("silence for %v", d)
				}
				wantA[wire.Ping](p, "Handshake packets validate the address", wire.Handshake)
				p.queue = nil
			}
			p.handshake()
		})
	})
}

// RFC 9000 §14.1: the size of the datagram counts, not of the packet.
func TestServerDropsShortInitials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.start()
		short := p.packet(wire.Initial, wire.Ping{})
		short.unpadded = true
		p.send(short)
		p.wantIdle("no connection is made of it")
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		short = p.packet(wire.Initial, wire.Ping{}, rawFrame{0x21})
		short.unpadded = true
		p.send(short)
		p.wantIdle("later ones are dropped as well")
		p.wantAlive("unread")
		// What comes along with it in the same datagram is not.
		short = p.packet(wire.Initial, rawFrame{0x21})
		short.unpadded = true
		p.send(short, p.packet(wire.Handshake, wire.Ping{}))
		p.ignore(wire.FrameCrypto)
		wantA[wire.Ack](p, "the Handshake packet", wire.Handshake)
		p.handshake()
	})
}

// Connection IDs do not change during the handshake (RFC 9000 §7.2).
func TestPeerChangesConnID(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		for _, typ := range []wire.PacketType{wire.Initial, wire.Handshake} {
			s := p.packet(typ, wire.Ping{}, rawFrame{0x21})
			s.src = []byte("else")
			p.send(s)
			p.wantIdle("packets from another connection ID are dropped")
			p.wantAlive("unread")
		}
	})
}

// RFC 9000 §12.2: packets of one datagram go to one connection ID.
func TestCoalescedForAnother(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		p.ignore(wire.FrameCrypto)
		other := p.packet(wire.Handshake, rawFrame{0x21})
		other.dst = slices.Clone(other.dst)
		other.dst[0] ^= 1
		p.send(p.packet(wire.Handshake, wire.Ping{}), other)
		wantA[wire.Ack](p, "the first packet", wire.Handshake)
		p.wantAlive("the second is not for Volley")
	})
	t.Run("1-RTT", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			// Handshake keys are gone, but the header still says where the datagram goes.
			other := p.packet(wire.OneRTT, rawFrame{0x21})
			other.dst = slices.Clone(other.dst)
			other.dst[0] ^= 1
			p.send(p.packet(wire.Handshake, wire.Ping{}), other)
			p.wantIdle("the second packet goes elsewhere")
			p.wantAlive("the second packet goes elsewhere")
		})
	})
	t.Run("another ID of Volley's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer)
			p.start()
			p.writeCrypto(wire.Initial)
			p.queue = nil
			p.ignore(wire.FrameCrypto)
			other := p.packet(wire.Handshake, rawFrame{0x21})
			other.dst = p.origDst
			p.send(p.packet(wire.Handshake, wire.Ping{}), other)
			wantA[wire.Ack](p, "the first packet", wire.Handshake)
			p.wantAlive("the second does not belong there")
		})
	})
}

// RFC 9000 §17.2.2: a server's Initial has no token.
func TestClientDropsInitialWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.queue = nil
		s := p.packet(wire.Initial, wire.Ping{}, rawFrame{0x21})
		s.token = []byte("token")
		p.send(s)
		p.wantIdle("dropped")
		p.handshake()
	})
}

// Packets that are not authentic change nothing, at any time.
func TestForgedPackets(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		p.queue = nil
		forge := func() {
			p.Helper()
			p.collect()
			for _, s := range []*packetSpec{
				{typ: wire.Initial}, {typ: wire.Handshake}, {typ: wire.ZeroRTT}, {typ: wire.OneRTT},
			} {
				s.frames = []wire.Frame{rawFrame{0x21}}
				s.pnLen, s.dst, s.src, s.version = 4, p.dcid, p.scid, p.version
				s.sealer = p.levelKeys(tls.TLS_AES_128_GCM_SHA256, nil, []byte("a secret that nobody else has...")).seal
				b := p.seal(s, false)
				p.deliver(append(b, make([]byte, 1200)...))
				p.deliver(b)
			}
			p.deliver([]byte{0x40})
			p.deliver([]byte{0xc0})
			p.deliver([]byte{0xc0, 0, 0, 0, 1, 200})
			p.deliver(nil)
		}
		if volley == asClient {
			forge()
		}
		p.writeCrypto(wire.Initial)
		p.collect()
		forge()
		if volley == asClient {
			p.writeCrypto(wire.Handshake)
			p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
		} else {
			p.writeFrames(wire.Handshake, p.cryptoFrame(wire.Handshake))
		}
		p.collect()
		p.settle()
		forge()
		p.wantAlive("nothing of all that is authentic")
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(time.Second)
		wantA[wire.Ack](p, "the connection goes on", wire.OneRTT)
	})
}

// What comes twice is looked at once (RFC 9000 §12.3).
func TestDuplicates(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		data := stream0(p.mine(uni, 0), 0, "once", true)
		b := p.seal(p.packet(wire.OneRTT, data), true)
		for range 3 {
			p.deliver(slices.Clone(b))
		}
		wantRead(p, "once")
		p.advance(time.Second)
		wantA[wire.Ack](p, "one acknowledgement", wire.OneRTT)
		p.wantIdle("for three packets")
	})
}

// RFC 9000 §7.3, §7.4, §18.2: transport parameters that must not be.
func TestTransportParameters(t *testing.T) {
	param := func(id uint64, value []byte) []byte {
		b := quicvarint.Append(nil, id)
		b = quicvarint.Append(b, uint64(len(value)))
		return append(b, value...)
	}
	num := func(id, v uint64) []byte { return param(id, quicvarint.Append(nil, v)) }
	add := func(extra []byte) func(p *actor) {
		return func(p *actor) { p.rawTP = func(b []byte) []byte { return append(b, extra...) } }
	}
	for _, tt := range []struct {
		name string
		only string
		opt  any
	}{
		{"no initial_source_connection_id", "", func(p *wire.TransportParams) { p.InitialSrc = nil }},
		{"another initial_source_connection_id", "", func(p *wire.TransportParams) { p.InitialSrc = []byte("else") }},
		{"an empty initial_source_connection_id", "", func(p *wire.TransportParams) { p.InitialSrc = []byte{} }},
		{"another original_destination_connection_id", "client", func(p *wire.TransportParams) { p.OriginalDst = []byte("else") }},
		{"no original_destination_connection_id", "client", func(p *actor) {
			p.rawTP = func([]byte) []byte {
				tp := p.params
				tp.OriginalDst = nil
				return tp.Append(nil)
			}
		}},
		{"retry_source_connection_id without a Retry", "client", func(p *wire.TransportParams) { p.RetrySrc = []byte("else") }},
		{"original_destination_connection_id from a client", "server", func(p *wire.TransportParams) { p.OriginalDst = []byte("else") }},
		{"retry_source_connection_id from a client", "server", func(p *wire.TransportParams) { p.RetrySrc = []byte("else") }},
		{"stateless_reset_token from a client", "server", func(p *wire.TransportParams) { p.StatelessResetToken = new([16]byte) }},
		{"preferred_address from a client", "server", func(p *wire.TransportParams) {
			p.PreferredAddress = &wire.PreferredAddress{ConnID: []byte("pref")}
		}},
		{"a parameter twice", "", add(num(0x04, 1))},
		{"max_udp_payload_size of 1199", "", add(num(0x03, 1199))},
		{"ack_delay_exponent of 21", "", add(num(0x0a, 21))},
		{"max_ack_delay of 2^14", "", add(num(0x0b, 1<<14))},
		{"active_connection_id_limit of 1", "", func(p *actor) {
			p.params.ActiveConnIDLimit = 0
			p.rawTP = func(b []byte) []byte { return append(b, num(0x0e, 1)...) }
		}},
		{"initial_max_streams_bidi above 2^60", "", func(p *actor) {
			p.params.InitialMaxStreamsBidi = 0
			p.rawTP = func(b []byte) []byte { return append(b, num(0x08, 1<<60+1)...) }
		}},
		{"a value longer than the rest", "", add([]byte{0x3f, 0x20})},
		{"bytes behind a number", "", add(param(0x03, []byte{0x45, 0x00, 0}))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				if tt.only != "" && tt.only != volley.String() {
					return
				}
				p := newActor(t, volley, tt.opt)
				p.start()
				p.writeCrypto(wire.Initial)
				if volley == asClient {
					p.writeCrypto(wire.Handshake)
				}
				p.wantClosed("bad parameters", wire.TransportParameterError)
			})
		})
	}
}

// RFC 9000 §7.4.2: unknown parameters are nothing to worry about.
func TestUnknownTransportParameters(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		newActor(t, volley, func(p *actor) {
			p.rawTP = func(b []byte) []byte {
				b = quicvarint.Append(b, 31*7+27)
				return append(b, 3, 1, 2, 3)
			}
		}).handshake()
	})
}

// RFC 9001 §4.8: TLS alerts end the connection with their number, and a failed check of
// the certificate is found in the error.
func TestTLSFailure(t *testing.T) {
	t.Run("unknown authority", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, func(c *tls.Config) { c.RootCAs = nil })
			p.start()
			p.writeServerFlight()
			p.wantClosed("bad_certificate", wire.CryptoError(42))
			_, err := p.dialing.result()
			var cert *tls.CertificateVerificationError
			if !errors.As(err, &cert) {
				t.Errorf("Dial returned %v", err)
			}
		})
	})
	t.Run("no common protocol", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer, func(c *tls.Config) { c.NextProtos = []string{"other"} })
			p.start()
			p.writeCrypto(wire.Initial)
			p.wantClosed("no_application_protocol", wire.CryptoError(120))
		})
	})
	t.Run("nonsense", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley)
			p.start()
			p.writeFrames(wire.Initial, wire.Crypto{Data: []byte{0xff, 0, 0, 4, 1, 2, 3, 4}})
			f := p.wantClose("no TLS message")
			if !wire.ErrorCode(f.Code).IsCrypto() {
				t.Errorf("%v", f)
			}
		})
	})
}

// Dial that is given up tells the server.
func TestDialGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		ctx, cancel := context.WithCancelCause(t.Context())
		p.dialing = start(func() (*Conn, error) { return p.transport.Dial(ctx, hereAddr, p.tlsConfig, p.config) })
		p.collect()
		p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
		why := errors.New("changed my mind")
		cancel(why)
		if f := p.wantClose("the server learns of it"); f.App || wire.ErrorCode(f.Code) != wire.ApplicationError {
			t.Errorf("%v", f)
		}
		if _, err := p.dialing.result(); err != why {
			t.Errorf("Dial returned %v", err)
		}
	})
}

// Session tickets come in CRYPTO frames of 1-RTT packets, cut anywhere and in any order.
func TestSessionTicketInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &countingCache{}
		p := newActor(t, asClient, func(c *tls.Config) { c.ClientSessionCache = cache })
		p.handshake()
		p.onTLS(p.tls.SendSessionTicket(tls.QUICSessionTicketOptions{}))
		o := &p.out[recovery.App]
		if len(o.data) == 0 {
			t.Fatal("no ticket was made")
		}
		half := len(o.data) / 2
		p.writeFrames(wire.OneRTT, wire.Crypto{Off: int64(half), Data: o.data[half:]})
		if cache.puts != 0 {
			t.Error("half a ticket is none")
		}
		for at := range half {
			p.writeFrames(wire.OneRTT, wire.Crypto{Off: int64(at), Data: o.data[at : at+1]})
		}
		if cache.puts != 1 {
			t.Errorf("%d tickets were stored", cache.puts)
		}
		p.wantAlive("all is well")
	})
}

type countingCache struct{ puts int }

func (c *countingCache) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (c *countingCache) Put(string, *tls.ClientSessionState)        { c.puts++ }

// A handshake of 60 KiB, in bytes that come late: it takes its time, and no more.
func TestLongChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer, longChain(100))
		p.start()
		p.writeCrypto(wire.Initial)
		for i := 0; p.oneRTT == nil; i++ {
			if i > 1000 {
				t.Fatal("the handshake got stuck")
			}
			p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
			if f := p.ackFrame(wire.Handshake); f != nil {
				p.writeFrames(wire.Handshake, f)
			}
			p.advance(10 * time.Millisecond)
		}
		p.handshake()
	})
}

// Whatever the peer's connection ID looks like.
func TestConnIDLengths(t *testing.T) {
	for _, n := range []int{0, 1, 8, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, func(p *actor) {
					p.scid = make([]byte, n)
					rand.Read(p.scid)
				}, func(tr *Transport) { tr.ConnectionIDLength = max(n, 1) })
				p.handshake()
				p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "hello", true))
				wantRead(p, "hello")
			})
		})
	}
}

// Packet numbers are read whatever their length, as long as it is enough.
func TestPacketNumberLengths(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		for n, gap := range []int64{1, 100, 1, 30_000, 100, 1, 8_000_000, 30_000, 1} {
			p.nextPN[recovery.App] += gap - 1
			s := p.packet(wire.OneRTT, wire.Ping{}, wire.Padding{N: 4})
			s.pnLen = 1
			for gap >= 1<<(8*s.pnLen-1) {
				s.pnLen++
			}
			p.send(s)
			p.advance(maxAckDelay)
			if f := wantA[wire.Ack](p, "it is read", wire.OneRTT); f.Largest() != s.pn {
				t.Fatalf("packet %d: %v, want %d", n, f, s.pn)
			}
		}
	})
}

// RFC 9000 §18.2: no datagram is longer than what the peer takes. The watch measures.
func TestMaxUDPPayloadSize(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(tp *wire.TransportParams) { tp.MaxUDPPayload = 1200 },
			func(c *Config) { c.InitialPacketSize, c.DisablePathMTUDiscovery = 1400, false }).handshake()
		s := p.open(uni)
		w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
		p.ackUntil(w.finished)
		longest := 0
		for _, pkt := range p.packets {
			if pkt.typ == wire.OneRTT {
				longest = max(longest, pkt.size)
			}
		}
		if longest != 1200 {
			t.Errorf("the longest packet has %d bytes", longest)
		}
	})
}

// What a server says at the end of the handshake is said again if it gets lost.
func TestEndOfHandshakeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.start()
		p.writeCrypto(wire.Initial)
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake), p.cryptoFrame(wire.Handshake))
		kinds := func() map[string]int {
			m := map[string]int{}
			for _, s := range p.queue {
				if s.pkt.typ == wire.OneRTT && wire.IsAckEliciting(frameType(s.f)) {
					m[fmt.Sprintf("%T", s.f)]++
				}
			}
			return m
		}
		p.collect()
		want := kinds()
		for _, f := range []wire.Frame{wire.HandshakeDone{}, wire.NewToken{}, wire.NewConnectionID{}, wire.Crypto{}} {
			if want[fmt.Sprintf("%T", f)] == 0 {
				t.Errorf("no %T", f)
			}
		}
		for range 3 {
			p.lose()
			if got := kinds(); !maps.Equal(got, want) {
				t.Errorf("after a loss there came %v, want %v", got, want)
			}
		}
		p.settle()
		p.advance(10 * time.Second)
		p.wantIdle("acknowledged")
	})
}
