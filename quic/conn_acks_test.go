package quic

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// deliverAs hands packets to Volley's connection as one message of the socket: joined by
// the kernel, and with an ECN mark.
func (p *actor) deliverAs(ecn udp.ECN, specs ...*packetSpec) {
	p.Helper()
	p.collect()
	var b []byte
	segment := 0
	for _, s := range specs {
		one := p.seal(s, true)
		if segment == 0 {
			segment = len(one)
		}
		b = append(b, one...)
	}
	buf := udp.CopyBuffer(b)
	p.logf(time.Now(), "→ %d packets in a message, ECN %d", len(specs), ecn)
	p.c.deliver([]packet{{
		buf: buf, data: buf.Bytes(), segment: segment, ecn: ecn, at: time.Now(),
		remote: netip.MustParseAddrPort(p.sock.far.String()), remoteAddr: p.sock.far, via: p.transport,
	}})
	synctest.Wait()
}

// acked is an ACK frame of the ranges given as pairs, the highest first.
func acked(ranges ...int64) wire.Ack {
	f := wire.Ack{}
	for r := range slices.Chunk(ranges, 2) {
		f.Ranges = append(f.Ranges, wire.AckRange{Lo: r[0], Hi: r[1]})
	}
	return f
}

// RFC 9000 §13.2.2: every second ack-eliciting packet is acknowledged at once, a single
// one after max_ack_delay (§13.2.1), which the frame says.
func TestAckEverySecondPacket(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		n := p.nextPN[recovery.App]
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantIdle("one packet can wait")
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantFrame("two cannot", wire.OneRTT, acked(0, n+1))
		for range 2 {
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.wantIdle("one packet can wait")
			if d := p.advanceToSend(); d != maxAckDelay {
				t.Errorf("it waits %v", d)
			}
			f := wantA[wire.Ack](p, "but not for long", wire.OneRTT)
			if d := time.Duration(f.Delay<<ackDelayExponent) * time.Microsecond; d != maxAckDelay {
				t.Errorf("%v says that it was delayed by %v", f, d)
			}
		}
		p.advance(time.Minute / 4)
		p.wantIdle("that was all")
	})
}

// RFC 9000 §13.2.1: what comes out of order is acknowledged at once.
func TestAckReordered(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		n := p.nextPN[recovery.App]
		write := func(pn int64) {
			p.nextPN[recovery.App] = n + pn
			p.writeFrames(wire.OneRTT, wire.Ping{})
		}
		write(2)
		p.wantFrame("a gap", wire.OneRTT, acked(n+2, n+2, 0, n-1))
		write(0)
		p.wantFrame("half of it closes", wire.OneRTT, acked(n+2, n+2, 0, n))
		write(5)
		p.wantFrame("a second gap", wire.OneRTT, acked(n+5, n+5, n+2, n+2, 0, n))
		write(1)
		p.wantFrame("the first is closed", wire.OneRTT, acked(n+5, n+5, 0, n+2))
		write(6)
		p.wantIdle("in order again")
		p.advance(maxAckDelay)
		p.wantFrame("in order again", wire.OneRTT, acked(n+5, n+6, 0, n+2))
	})
}

// A message of many packets is acknowledged once, after all of them were looked at.
func TestAckBatch(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		var specs []*packetSpec
		for range 10 {
			specs = append(specs, p.packet(wire.OneRTT, wire.Ping{}))
		}
		p.deliverAs(udp.NotECT, specs...)
		p.wantFrame("all of them", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		p.wantIdle("one ACK is enough")
	})
}

// RFC 9000 §13.2.1: acknowledgements are not acknowledged, or there would be no end.
func TestAckOfAck(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, wire.Ping{}, p.ackFrame(wire.OneRTT))
		p.writeFrames(wire.OneRTT, wire.Ping{})
		wantA[wire.Ack](p, "two PINGs", wire.OneRTT)
		for range 5 {
			p.writeFrames(wire.OneRTT, p.ackFrame(wire.OneRTT))
			p.writeFrames(wire.OneRTT, p.ackFrame(wire.OneRTT), wire.Padding{N: 10})
		}
		p.advance(10 * time.Second)
		p.wantIdle("nothing to acknowledge")
		// They are in the next one all the same.
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(maxAckDelay)
		p.wantFrame("everything", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
	})
}

// An ACK that waits goes along with whatever leaves.
func TestAckRidesAlong(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantIdle("one packet can wait")
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("data"))
		ack := p.wantFrame("the ACK first", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		data := p.wantFrame("then the data", wire.OneRTT, stream0(p.yours(uni, 0), 0, "data", false))
		if ack != data {
			t.Error("not in one packet")
		}
		p.advance(time.Second / 100)
		p.wantIdle("no ACK is due any more")
	})
}

// RFC 9000 §13.2.4: ranges that the peer knows of are not told for ever.
func TestAckRangesForgotten(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		n := p.nextPN[recovery.App]
		p.nextPN[recovery.App] = n + 10
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantFrame("two ranges", wire.OneRTT, acked(n+10, n+10, 0, n-1))
		s, _ := p.c.OpenUniStream()
		p.writeFrames(wire.OneRTT, wire.Ping{})
		s.Write([]byte("data"))
		p.wantFrame("along with data", wire.OneRTT, acked(n+10, n+11, 0, n-1))
		p.settle()
		p.nextPN[recovery.App] += 10
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.ignore(wire.FrameStream)
		f := wantA[wire.Ack](p, "a new gap", wire.OneRTT)
		if f.Ranges[len(f.Ranges)-1].Lo == 0 {
			t.Errorf("%v tells what was acknowledged in an ACK that was acknowledged", f)
		}
		// What was forgotten counts as received: it must not be taken in twice.
		old := p.packet(wire.OneRTT, rawFrame{0x21})
		old.pn = n - 1
		p.send(old)
		p.advance(time.Second)
		p.wantAlive("a duplicate")
	})
}

// RFC 9000 §13.2.3: the number of ranges is bounded.
func TestAckRangesBounded(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		for range 1000 {
			p.nextPN[recovery.App]++
			p.writeFrames(wire.OneRTT, wire.Ping{})
			f := wantA[wire.Ack](p, "a gap", wire.OneRTT)
			if len(f.Ranges) > maxAckRanges || f.Largest() != p.nextPN[recovery.App]-1 {
				t.Fatalf("%v", f)
			}
		}
		if n := len(p.c.spaces[recovery.App].acks.got); n > maxAckRanges {
			t.Errorf("%d ranges are kept", n)
		}
	})
}

// RFC 9000 §13.4.1: ECN marks are counted and told, in every space on its own; CE at once
// (§13.2.1).
func TestAckECN(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		ping := func() *packetSpec { return p.packet(wire.OneRTT, wire.Ping{}) }
		p.deliverAs(udp.ECT0, ping(), ping())
		want := acked(0, p.nextPN[recovery.App]-1)
		want.ECN, want.ECT0 = true, 2
		p.wantFrame("two marks", wire.OneRTT, want)
		p.deliverAs(udp.ECT1, ping())
		p.wantIdle("a mark alone is not urgent")
		p.deliverAs(udp.CE, ping())
		want = acked(0, p.nextPN[recovery.App]-1)
		want.ECN, want.ECT0, want.ECT1, want.CE = true, 2, 1, 1
		p.wantFrame("congestion", wire.OneRTT, want)
		p.deliverAs(udp.CE, ping())
		want = acked(0, p.nextPN[recovery.App]-1)
		want.ECN, want.ECT0, want.ECT1, want.CE = true, 2, 1, 2
		p.wantFrame("congestion is told at once", wire.OneRTT, want)
		// A duplicate counts once.
		s := ping()
		b := slices.Clone(p.seal(s, true))
		p.deliver(b)
		s.frames = []wire.Frame{wire.Ping{}}
		p.deliverAs(udp.CE, s)
		p.advance(maxAckDelay)
		want = acked(0, p.nextPN[recovery.App]-1)
		want.ECN, want.ECT0, want.ECT1, want.CE = true, 2, 1, 2
		p.wantFrame("no more marks", wire.OneRTT, want)
	})
}

// The peer's ack_delay_exponent scales what it says of its delays (RFC 9000 §19.3), which
// does not count into the round-trip time.
func TestAckDelayOfPeer(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(tp *wire.TransportParams) {
			tp.AckDelayExponent, tp.MaxAckDelay = 10, 100*time.Millisecond
		}, func(p *actor) { p.rtt = 10 * time.Millisecond }).handshake()
		s, _ := p.c.OpenUniStream()
		before := p.c.ConnectionStats().SmoothedRTT
		s.Write([]byte("data"))
		p.collect()
		f := p.ackFrame(wire.OneRTT).(wire.Ack)
		f.Delay = 80_000 >> 10 // of 90 ms, all but 10.9 are the peer's delay
		p.advance(80 * time.Millisecond)
		p.writeFrames(wire.OneRTT, f)
		after := p.c.ConnectionStats().SmoothedRTT
		if d := after - before; before > 20*time.Millisecond || d < -10*time.Millisecond || d > 5*time.Millisecond {
			t.Errorf("the round-trip time was %v, is %v", before, after)
		}
	})
}

// A18. Who acknowledges what it cannot have received is found out: some numbers are
// skipped (RFC 9000 §21.4).
func TestAckOfSkippedNumber(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s, _ := p.c.OpenUniStream()
		for n := 0; len(p.got[recovery.App]) == 1; n++ {
			if n > 300 {
				t.Fatalf("no number was skipped up to %d", p.largest[recovery.App])
			}
			s.Write([]byte("x"))
			p.ackAll()
		}
		skipped := p.got[recovery.App][0].hi + 1
		s.Write([]byte("x"))
		p.collect()
		p.wantAlive("honest so far")
		p.writeFrames(wire.OneRTT, acked(skipped, skipped))
		p.wantClosed("nobody can have got that", wire.ProtocolViolation)
	})
}

// A18. Who acknowledges ahead of what it receives, to make Volley send faster, is found
// out within 300 packets, and then again for as long as it lasts.
func TestAckAhead(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, credit(1<<30, 1<<30)).handshake()
		s := p.open(uni)
		go s.ReadFrom(readerOf(zeroes{}))
		for p.cause() == nil {
			p.advance(time.Millisecond)
			if p.largest[recovery.App] > 300 {
				t.Fatal("all numbers up to 300 were acknowledged at once, and that went well")
			}
			p.writeFrames(wire.OneRTT, acked(0, p.largest[recovery.App]))
		}
		p.wantClosed("some of that was not sent", wire.ProtocolViolation)
	})
}

// A18. The congestion window does not grow by acknowledgements of what was not in flight.
func TestAckOfAckOnlyPackets(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		before := p.c.ConnectionStats().CongestionWindow
		for range 200 {
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.writeFrames(wire.OneRTT, wire.Ping{}, p.ackFrame(wire.OneRTT))
		}
		if after := p.c.ConnectionStats().CongestionWindow; after != before {
			t.Errorf("the window was %d bytes, is %d", before, after)
		}
		p.wantAlive("nothing wrong with that")
	})
}

// An acknowledgement counts once, however often it comes.
func TestAckRepeated(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s, _ := p.c.OpenUniStream()
		s.Write(make([]byte, 5000))
		p.advance(time.Millisecond)
		p.queue = nil
		f := p.ackFrame(wire.OneRTT)
		p.writeFrames(wire.OneRTT, f)
		window := p.c.ConnectionStats().CongestionWindow
		for range 50 {
			p.writeFrames(wire.OneRTT, f, f, f)
		}
		st := p.c.ConnectionStats()
		if st.CongestionWindow != window || st.PacketsLost != 0 {
			t.Errorf("window %d, was %d; %d packets lost", st.CongestionWindow, window, st.PacketsLost)
		}
		p.wantAlive("harmless")
	})
}
