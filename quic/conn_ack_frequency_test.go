package quic

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/experiment"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// The ACK frequency extension (draft-ietf-quic-ack-frequency), by script.

// obeying makes the actor announce that it acknowledges as Volley asks it to.
func obeying(tp *wire.TransportParams) {
	d := 2 * time.Millisecond
	tp.MinAckDelay = &d
}

// ask has the actor ask for other ACKs, and takes the one that tells of it.
func (p *actor) ask(f wire.AckFrequency) {
	p.Helper()
	p.writeFrames(wire.OneRTT, f)
	p.advance(time.Second)
	wantA[wire.Ack](p, "the frame is acknowledged", wire.OneRTT)
	p.wantIdle("once")
}

// ping sends one ack-eliciting packet, with number pn if that is not negative.
func (p *actor) ping(pn int64) {
	p.Helper()
	if pn >= 0 {
		p.nextPN[recovery.App] = pn
	}
	p.writeFrames(wire.OneRTT, wire.Ping{})
}

func TestAckFrequencyAnnounced(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		if d := p.theirs.MinAckDelay; d == nil || *d != minAckDelay || *d > p.theirs.MaxAckDelay {
			t.Errorf("min_ack_delay is %v", d)
		}
	})
	t.Run("switched off", func(t *testing.T) {
		experiment.AckFrequencyOff.Store(true)
		defer experiment.AckFrequencyOff.Store(false)
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, obeying, distant, credit(1<<30, 1<<30)).handshake()
			if d := p.theirs.MinAckDelay; d != nil {
				t.Errorf("min_ack_delay is %v", *d)
			}
			p.bulk()
			if fs := p.asks(); len(fs) > 0 {
				t.Errorf("%v", fs)
			}
			p.writeFrames(wire.OneRTT, wire.ImmediateAck{})
			p.wantClosed("this was not offered", wire.FrameEncodingError)
		})
	})
}

// So many packets go without an ACK, and no ACK waits longer, as the peer wants.
func TestAckFrequencyObeyed(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		const delay = 40 * time.Millisecond // more than Volley's own
		p.ask(wire.AckFrequency{Seq: 5, Threshold: 6, MaxDelay: uint64(delay / time.Microsecond), Reordering: 1})
		for range 2 {
			for range 6 {
				p.ping(-1)
				p.wantIdle("six packets can wait")
			}
			p.ping(-1)
			p.wantFrame("seven cannot", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		}
		p.ping(-1)
		if d := p.advanceToSend(); d != delay {
			t.Errorf("one waits for %v", d)
		}
		wantA[wire.Ack](p, "one", wire.OneRTT)

		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 4, Threshold: 1, MaxDelay: 1000})
		p.wantIdle("it was overtaken: one packet can wait")
		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 5, Threshold: 1, MaxDelay: 1000})
		p.wantIdle("it was sent twice: two packets can wait")
		p.advance(10 * time.Millisecond)
		p.wantIdle("longer than that")
		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 6, Threshold: 20, MaxDelay: 15_000})
		if d := p.advanceToSend(); d != 5*time.Millisecond {
			t.Errorf("what waits already, for 10 ms, waits for another %v", d)
		}
		wantA[wire.Ack](p, "three", wire.OneRTT)
		for range 5 {
			p.ping(-1)
		}
		p.wantIdle("20 can wait")
		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 7, Threshold: 3, MaxDelay: 15_000})
		wantA[wire.Ack](p, "five are too many now", wire.OneRTT)

		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 1 << 61, Threshold: 0, MaxDelay: 1000})
		wantA[wire.Ack](p, "each at once", wire.OneRTT)
		for range 3 {
			p.ping(-1)
			wantA[wire.Ack](p, "each at once", wire.OneRTT)
		}
	})
}

// The draft's own examples ("Examples"), with other packet numbers.
func TestAckFrequencyReordering(t *testing.T) {
	for _, tt := range []struct {
		threshold uint64
		packets   []int64
		acks      []int64 // the packets that bring an ACK
	}{
		{3, []int64{0, 1, 3, 4, 5, 8, 9, 10, 11}, []int64{5, 9, 10}},
		{5, []int64{0, 1, 3, 5, 6, 7, 8, 9, 10}, []int64{7, 9}},
		{3, []int64{0, 2, 3, 4, 5, 1, 6}, []int64{4, 1}},   // 1 is believed to be lost
		{3, []int64{0, 2, 3, 1, 4, 5, 6}, nil},             // it is not
		{1, []int64{0, 2, 1, 3, 6}, []int64{2, 1, 6}},      // RFC 9000's way
		{0, []int64{0, 5, 9, 1, 20, 2}, nil},               // never
		{1 << 61, []int64{0, 5, 9, 1, 20, 2, 19, 21}, nil}, // nor here
	} {
		t.Run(fmt.Sprint(tt.threshold, tt.packets), func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley).handshake()
				p.ask(wire.AckFrequency{Threshold: 1000, MaxDelay: 1_000_000, Reordering: tt.threshold})
				first := p.nextPN[recovery.App]
				var got []int64
				for _, n := range tt.packets {
					p.ping(first + n)
					if fs := heard[wire.Ack](p); len(fs) > 0 {
						got = append(got, n)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.acks) {
					t.Errorf("the packets that brought an ACK are %d, want %d", got, tt.acks)
				}
				p.advance(time.Second)
				if n := len(heard[wire.Ack](p)); n > 1 {
					t.Errorf("%d ACKs in the end", n)
				}
			})
		})
	}
}

// What a peer wants to have told late is told all the same.
func TestAckFrequencyForgetsNothing(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.ask(wire.AckFrequency{Threshold: 1000, MaxDelay: 1_000_000, Reordering: 0})
		first := p.nextPN[recovery.App]
		var told spans
		for n := first + 1; n < first+400; n += 2 {
			p.ping(n)
			for _, f := range heard[wire.Ack](p) {
				for _, r := range f.Ranges {
					told.add(r.Lo, r.Hi)
				}
			}
		}
		p.advance(time.Second)
		for _, f := range heard[wire.Ack](p) {
			for _, r := range f.Ranges {
				told.add(r.Lo, r.Hi)
			}
		}
		for n := first + 1; n < first+400; n += 2 {
			if !told.contains(n) {
				t.Fatalf("no ACK has told of packet %d; they have of %v", n, told)
			}
		}
	})
}

// "Expediting Explicit Congestion Notification (ECN) Signals": the first mark of a run.
func TestAckFrequencyECN(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.ask(wire.AckFrequency{Threshold: 10, MaxDelay: 20_000, Reordering: 3})
		mark := func(ecn udp.ECN) []wire.Ack {
			p.deliverAs(ecn, p.packet(wire.OneRTT, wire.Ping{}))
			return heard[wire.Ack](p)
		}
		for i, tt := range []struct {
			ecn  udp.ECN
			acks int
		}{{udp.ECT0, 0}, {udp.CE, 1}, {udp.CE, 0}, {udp.CE, 0}, {udp.ECT0, 0}, {udp.CE, 1}, {udp.ECT0, 0}} {
			if fs := mark(tt.ecn); len(fs) != tt.acks {
				t.Errorf("packet %d, mark %v: %v", i, tt.ecn, fs)
			}
		}
		p.writeFrames(wire.OneRTT, wire.AckFrequency{Seq: 1, Threshold: 1, MaxDelay: 20_000, Reordering: 3})
		heard[wire.Ack](p)
		for range 3 {
			if len(mark(udp.CE)) != 1 {
				t.Error("RFC 9000 §13.2.1: every mark")
			}
		}
	})
}

func TestImmediateAck(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, wire.ImmediateAck{})
		p.wantFrame("at once", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		p.ask(wire.AckFrequency{Threshold: 100, MaxDelay: 100_000, Reordering: 3})
		for range 3 {
			p.ping(-1)
			p.wantIdle("it can wait")
			p.writeFrames(wire.OneRTT, wire.ImmediateAck{}, wire.Ping{})
			p.wantFrame("at once", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		}
		// However many ask, they are answered together.
		var specs []*packetSpec
		for range 20 {
			specs = append(specs, p.packet(wire.OneRTT, wire.ImmediateAck{}))
		}
		p.deliverAs(udp.NotECT, specs...)
		p.wantFrame("all of them", wire.OneRTT, acked(0, p.nextPN[recovery.App]-1))
		p.advance(time.Second)
		p.wantIdle("one ACK is enough")
	})
}

func TestAckFrequencyInvalid(t *testing.T) {
	for _, tt := range []struct {
		name string
		f    wire.AckFrequency
		good bool
	}{
		{"the shortest delay", wire.AckFrequency{MaxDelay: uint64(minAckDelay / time.Microsecond)}, true},
		{"a shorter one", wire.AckFrequency{MaxDelay: uint64(minAckDelay/time.Microsecond) - 1}, false},
		{"none", wire.AckFrequency{}, false},
		{"none, in a frame that was overtaken", wire.AckFrequency{Seq: -1}, false},
		{"the longest delay", wire.AckFrequency{MaxDelay: 1<<14*1000 - 1}, true},
		{"a longer one", wire.AckFrequency{MaxDelay: 1 << 14 * 1000}, false},
		{"one that is beyond all measure", wire.AckFrequency{MaxDelay: wire.MaxVarint}, false},
		{"the largest thresholds", wire.AckFrequency{MaxDelay: 2000, Threshold: wire.MaxVarint, Reordering: wire.MaxVarint}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley).handshake()
				f := tt.f
				if f.Seq < 0 {
					p.ask(wire.AckFrequency{Seq: 3, MaxDelay: 2000})
					f.Seq = 2
				}
				p.writeFrames(wire.OneRTT, f)
				if !tt.good {
					p.wantClosed("this must not be", wire.ProtocolViolation)
					return
				}
				p.advance(20 * time.Second)
				wantA[wire.Ack](p, "all is well", wire.OneRTT)
				p.wantAlive("all is well")
			})
		})
	}
}

// asks are the ACK_FREQUENCY frames that Volley has sent so far, with their packets.
func (p *actor) asks() (fs []wire.AckFrequency) {
	p.Helper()
	p.collect()
	for _, pkt := range p.packets {
		for _, f := range pkt.frames {
			if f, ok := f.(wire.AckFrequency); ok {
				fs = append(fs, f)
			}
		}
	}
	return fs
}

const bulkRTT = 40 * time.Millisecond

// distant makes the handshake take as long as the round trips of bulk do.
func distant(p *actor) { p.rtt = bulkRTT }

// bulk has Volley send more than the window takes, and acknowledges all of it once a round
// trip, for eight of them at most, until Volley asks for fewer ACKs. It returns how many
// packets were in flight before that.
func (p *actor) bulk() (s *SendStream, before int) {
	p.Helper()
	p.rtt = 0
	s = p.open(uni)
	go s.ReadFrom(readerOf(zeroes{}))
	for range 8 {
		p.advance(bulkRTT)
		if len(p.asks()) > 0 {
			break
		}
		before = p.inFlight() / p.c.snd.DatagramSize()
		p.ackAll()
	}
	return s, before
}

func (p *actor) pto() (variable, delay time.Duration) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	rtt := p.c.rec.RTT()
	variable = rtt.Smoothed + max(4*rtt.Var, time.Millisecond)
	return variable, p.c.rec.PTO(recovery.App) - variable
}

// What is asked for, by what is in flight and by the round trips.
func TestAckFrequencyChoice(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		inFlight  int
		min, srtt time.Duration
		slow      bool // start
		asked     bool // for something else before
		packets   int
		delay     time.Duration
	}{
		{inFlight: 0, min: 50 * ms, srtt: 50 * ms, packets: 2},
		{inFlight: 127, min: 50 * ms, srtt: 50 * ms, packets: 2},
		{inFlight: 128, min: 50 * ms, srtt: 50 * ms, packets: 4, delay: 12500 * time.Microsecond},
		{inFlight: 320, min: 50 * ms, srtt: 50 * ms, packets: 10, delay: 12500 * time.Microsecond},
		{inFlight: 320, min: 50 * ms, srtt: 50 * ms, packets: 10, delay: 12500 * time.Microsecond, slow: true},
		{inFlight: 320, min: 45 * ms, srtt: 50 * ms, packets: 16, delay: 12500 * time.Microsecond}, // a tenth is queued
		{inFlight: 100, min: 25 * ms, srtt: 50 * ms, packets: 12, delay: 12500 * time.Microsecond}, // a half
		{inFlight: 100, min: 25 * ms, srtt: 50 * ms, packets: 2, slow: true},
		{inFlight: 1 << 20, min: 200 * ms, srtt: 400 * ms, packets: manyPackets, delay: 25 * ms},
		{inFlight: 1 << 20, min: ms, srtt: 4 * ms, packets: 2},
		{inFlight: 1 << 20, min: ms, srtt: 5 * ms, packets: manyPackets, delay: 5 * ms},
		{inFlight: 127, min: 50 * ms, srtt: 50 * ms, packets: 3, delay: 12500 * time.Microsecond, asked: true},
		{inFlight: 63, min: 50 * ms, srtt: 50 * ms, packets: 2, asked: true},
		{inFlight: 1 << 20, min: ms, srtt: 4 * ms, packets: manyPackets, delay: 5 * ms, asked: true},
		{inFlight: 1 << 20, min: ms, srtt: 2 * ms, packets: 2, asked: true},
	} {
		var a ackAsking
		p := &wire.TransportParams{MaxAckDelay: 25 * ms}
		obeying(p)
		a.start(p)
		want := ackAsk{tt.packets, tt.delay}
		if tt.delay == 0 {
			want.delay = p.MaxAckDelay
		}
		if tt.asked {
			a.said.packets++
		}
		if got := a.choose(tt.inFlight, &recovery.RTT{Min: tt.min, Smoothed: tt.srtt}, tt.slow); got != want {
			t.Errorf("%+v: asked for %+v", tt, got)
		}
	}
}

// A bulk sender asks for fewer ACKs, in proportion to what it has in flight, and for
// delays that are a part of the round trip; its probe timeout follows once the peer is
// known to obey.
func TestAckFrequencyAsked(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, obeying, distant, credit(1<<30, 1<<30)).handshake()
		_, before := p.bulk()
		fs := p.asks()
		if len(fs) != 1 {
			t.Fatalf("asked %v", fs)
		}
		srtt := p.c.ConnectionStats().SmoothedRTT
		f := fs[0]
		if want := uint64(before/manyAcks - 1); f.Seq != 0 || f.Threshold != want || f.Threshold < fewPackets-1 || f.Reordering != 3 ||
			f.MaxDelay != uint64(srtt/4/time.Microsecond) {
			t.Errorf("%v, with up to %d packets in flight and a round trip of %v", f, before, srtt)
		}
		if _, d := p.pto(); d != p.params.MaxAckDelay {
			t.Errorf("the probe timeout has %v for the ACK's delay, and the peer may keep to %v", d, p.params.MaxAckDelay)
		}
		p.ackAll()
		if _, d := p.pto(); d != time.Duration(f.MaxDelay)*time.Microsecond {
			t.Errorf("the probe timeout has %v for the ACK's delay, and the peer obeys: %v", d, f)
		}
		// It is quite another when it is said again, and sequence numbers go up.
		for range 4 {
			p.advance(bulkRTT)
			p.ackAll()
		}
		fs = p.asks()
		for i, f := range fs[1:] {
			last := fs[i]
			if f.Seq != last.Seq+1 || 2*(f.Threshold+1) < 3*(last.Threshold+1) && 4*(f.Threshold+1) > 3*(last.Threshold+1) && f.MaxDelay == last.MaxDelay || f.Threshold >= manyPackets {
				t.Errorf("%v follows %v", f, last)
			}
		}
		if len(fs) < 2 || len(fs) > 6 {
			t.Errorf("asked %v", fs)
		}
	})
}

// A frame that is lost is sent again with what is right then, unless another has left.
func TestAckFrequencyLost(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, obeying, distant, credit(1<<30, 1<<30)).handshake()
		p.bulk()
		var gone int64 = -1
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				if _, ok := f.(wire.AckFrequency); ok {
					gone = pkt.pn
				}
			}
		}
		p.got[recovery.App].remove(gone, gone)
		p.ackAll()
		fs := p.asks()
		if len(fs) != 2 || fs[1].Seq != 1 {
			t.Fatalf("asked %v", fs)
		}
		if _, d := p.pto(); d != p.params.MaxAckDelay {
			t.Errorf("the probe timeout has %v for the ACK's delay", d)
		}
		// The first one has arrived after all: the second one decides.
		p.got[recovery.App].add(gone, gone)
		p.writeFrames(wire.OneRTT, ack(gone))
		if _, d := p.pto(); d != p.params.MaxAckDelay {
			t.Errorf("the probe timeout has %v for the ACK's delay", d)
		}
		if fs := p.asks(); len(fs) != 2 {
			t.Errorf("asked %v", fs)
		}
		p.advance(bulkRTT)
		p.ackAll()
		if _, d := p.pto(); d != time.Duration(fs[1].MaxDelay)*time.Microsecond {
			t.Errorf("the probe timeout has %v for the ACK's delay", d)
		}
	})
}

// Nobody is asked who has not offered it, and nobody whose ACKs somebody waits for.
func TestAckFrequencyNotAsked(t *testing.T) {
	t.Run("not offered", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, distant, credit(1<<30, 1<<30)).handshake()
			p.bulk()
			p.advance(10 * time.Second) // probes, too
			for _, pkt := range p.packets {
				for _, f := range pkt.frames {
					switch f.(type) {
					case wire.AckFrequency, wire.ImmediateAck:
						t.Errorf("%v", f)
					}
				}
			}
		})
	})
	t.Run("requests", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, obeying, distant, credit(1<<30, 1<<30)).handshake()
			p.rtt = 0
			s := p.open(uni)
			for range 200 {
				s.Write(make([]byte, 20000))
				p.advance(bulkRTT)
				p.ackAll()
			}
			if fs := p.asks(); len(fs) > 0 {
				t.Errorf("%v", fs)
			}
			for _, pkt := range p.packets {
				for _, f := range pkt.frames {
					if _, ok := f.(wire.ImmediateAck); ok {
						t.Fatalf("%v: no ACK is late", f)
					}
				}
			}
		})
	})
}

// After bulk the end is not waited for, no packet leaves to say that it is over, and what
// comes after a silence is acknowledged as ever.
func TestAckFrequencyTakenBack(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, obeying, distant, credit(1<<30, 1<<30)).handshake()
		p.rtt = 0
		s := p.open(uni)
		w := start(func() (int64, error) { return s.ReadFrom(io.LimitReader(readerOf(zeroes{}), 2<<20+3000)) })
		for !w.finished() || p.inFlight() > 0 {
			p.advance(bulkRTT)
			p.ackAll()
		}
		if fs := p.asks(); len(fs) == 0 || fs[len(fs)-1].Threshold < fewPackets-1 {
			t.Fatalf("asked %v", fs)
		}
		var last wire.Frame
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				switch f.(type) {
				case wire.Stream, wire.ImmediateAck:
					last = f
				}
			}
		}
		if _, ok := last.(wire.ImmediateAck); !ok {
			t.Errorf("%v is the end: the peer may wait for more", last)
		}
		p.queue = nil
		p.advance(5 * time.Second)
		p.wantIdle("nothing to say")
		n := len(p.asks())
		s.Write([]byte("request"))
		f := wantA[wire.AckFrequency](p, "as ever", wire.OneRTT)
		if f.Threshold != 1 || f.Reordering != 1 || f.MaxDelay != uint64(p.params.MaxAckDelay/time.Microsecond) {
			t.Errorf("%v", f)
		}
		wantA[wire.Stream](p, "the request", wire.OneRTT)
		p.wantIdle("that is all")
		// It is lost, and is right still: then it is said again.
		lost := p.largest[recovery.App]
		for range 3 {
			s.Write([]byte("more"))
			p.advance(time.Millisecond)
		}
		p.got[recovery.App].remove(lost, lost)
		p.queue = nil
		p.ackAll()
		if g := wantA[wire.AckFrequency](p, "once more", wire.OneRTT); g.Seq != f.Seq+1 || g.Threshold != f.Threshold || g.MaxDelay != f.MaxDelay || g.Reordering != f.Reordering {
			t.Errorf("%v follows %v", g, f)
		}
		p.ackAll()
		for range 5 {
			p.advance(time.Second)
			s.Write([]byte("request"))
			p.collect()
			p.ackAll()
		}
		if fs := p.asks(); len(fs) != n+2 {
			t.Errorf("asked %v", fs)
		}
	})
}

// Probes are to be acknowledged at once, and hold more than the wish for it.
func TestImmediateAckWithProbes(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, obeying).handshake()
		s := p.open(kind)
		s.Write([]byte("hello"))
		p.collect()
		for range 3 {
			p.queue = nil
			p.advanceToSend()
			hasten, data := 0, 0
			for _, d := range p.wantDatagrams("probes", 2) {
				for _, f := range d.packets[0].frames {
					switch f := f.(type) {
					case wire.ImmediateAck:
						hasten++
					case wire.Stream:
						if string(f.Data) == "hello" {
							data++
						}
					}
				}
			}
			if hasten != 2 || data != 2 {
				t.Errorf("%d IMMEDIATE_ACK, %d with what is in flight", hasten, data)
			}
		}
		p.ackAll()
		if n := p.inFlight(); n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
	})
}

// Another path has another window and another round trip: what was asked for is taken back.
func TestAckFrequencyMove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t, obeying, distant, credit(1<<30, 1<<30))
		p.bulk()
		p.ackAll()
		before := p.asks()
		if len(before) == 0 {
			t.Fatal("nothing was asked")
		}
		p.dcid = p.issued()[2].ID
		p.moveTo(farHost)
		p.queue = nil
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		p.answer(p.theChallenge(p.post()[elseward]))
		p.advance(bulkRTT)
		after := p.asks()[len(before):]
		if len(after) == 0 || after[0].Threshold != 1 || after[0].Reordering != 1 || after[0].MaxDelay != uint64(p.params.MaxAckDelay/time.Microsecond) {
			t.Fatalf("asked %v, then %v", before, after)
		}
	})
}
