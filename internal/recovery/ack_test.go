package recovery

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

func TestNeighboursAreOneCall(t *testing.T) {
	c := established(t)
	s := newBytes(1000)
	c.sendData(s, 100, true, 0, 10, 20, 30, 40, 50)
	c.ack(App, 50*ms, 3, 4, 1, 1)
	s.want(c, "acked 160+90 fin", "acked 110+20", "lost 100+10")
	c.ack(App, 51*ms, 0, 4)
	s.want(c, "acked 100+10", "acked 130+30")
	c.wantInFlight(0)
	if n := c.spaces[App].ring.tail - c.spaces[App].ring.head; n != 0 {
		t.Fatalf("%d trains remain", n)
	}
}

func TestEachTrainIsOneCall(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, false, 0, 10, 10, 10)
	c.sendData(s, 30, false, 0, 10, 10, 10)
	c.ack(App, 50*ms, 0, 5)
	s.want(c, "acked 30+30", "acked 0+30")
}

func TestFinWithoutBytes(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 40, true, 0, 0)
	c.ack(App, 50*ms, 0, 0)
	s.want(c, "acked 40+0 fin")
}

// Packets that carry no slot may follow the last one that does. Where the FIN
// is, Recovery cannot know then, so it must not be taken for delivered before
// both are.
func TestFinBeforePacketsWithoutSlot(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, true, 0, 10, 5, 0)
	c.ack(App, 50*ms, 0, 1)
	s.want(c, "acked 0+15")
	c.ack(App, 51*ms, 0, 2)
	s.want(c, "acked 15+0 fin")

	c.sendData(s, 20, true, 60*ms, 10, 5, 0)
	c.send(App, 3, 60*ms)
	c.ack(App, 110*ms, 6, 8, 3, 4) // packet 5 is lost
	s.want(c, "acked 20+15", "lost 35+0 fin")
}

func TestFinIsToldOnce(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, true, 0, 10, 5, 0, 0)
	c.send(App, 3, 0)
	c.ack(App, 50*ms, 4, 6, 2, 2)
	if s.finLost != 1 || s.finAcked != 0 {
		t.Fatalf("FIN lost %d times, acked %d times: %q", s.finLost, s.finAcked, s.calls)
	}
}

func TestSharedPacketCountsOnce(t *testing.T) {
	c := established(t)
	first, second := newBytes(100), newBytes(100)
	tr := c.packets(2, 1000)
	tr.Data, tr.Lens = first, [MaxPackets]uint16{10, 10}
	tr.Extra = append(tr.Extra,
		Extra{I: 0, Frame: Frame{Kind: 1, ID: 7}},
		Extra{I: 1, Data: second, Off: 5, Len: 20, Fin: true},
		Extra{I: 1, Frame: Frame{Kind: 1, ID: 8}})
	c.OnSent(App, []*Train{tr}, t0)
	c.wantInFlight(2000)
	if res := c.ack(App, 50*ms, 1, 1); res.AckedPackets != 1 || res.AckedBytes != 1000 {
		t.Fatalf("%+v", res)
	}
	first.want(c, "acked 10+10")
	second.want(c, "acked 5+20 fin")
	if c.owner.acked[7] != 0 || c.owner.acked[8] != 1 {
		t.Fatalf("frames acked: %v", c.owner.acked)
	}
	c.send(App, 3, 0)
	c.ack(App, 51*ms, 1, 4)
	first.want(c, "lost 0+10")
	second.want(c)
	if c.owner.lost[7] != 1 || c.owner.lost[8] != 0 {
		t.Fatalf("frames lost: %v", c.owner.lost)
	}
}

// Field report A18, and RFC 9000 §13.1 and §21.4.
func TestForgedAcksAreRefused(t *testing.T) {
	const all = 1<<62 - 1
	for _, tt := range []struct {
		name  string
		pairs []int64
		code  wire.ErrorCode
	}{
		{"next unsent number", []int64{5, 5}, wire.ProtocolViolation},
		{"everything", []int64{0, all}, wire.ProtocolViolation},
		{"skipped number", []int64{2, 2}, wire.ProtocolViolation},
		{"over a skipped number", []int64{0, 4}, wire.ProtocolViolation},
		{"skipped number in a later range", []int64{4, 4, 1, 2}, wire.ProtocolViolation},
		{"negative", []int64{-3, 1}, wire.FrameEncodingError},
		{"reversed", []int64{1, 0}, wire.FrameEncodingError},
		{"ascending ranges", []int64{0, 0, 3, 4}, wire.FrameEncodingError},
		{"no range", nil, wire.FrameEncodingError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := established(t)
			s := newBytes(100)
			c.sendData(s, 0, false, 0, 10, 10)
			c.Skip(App)
			c.sendData(s, 20, false, 0, 10, 10)
			_, err := c.OnAck(App, frame(tt.pairs...), 0, at(50*ms))
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != tt.code {
				t.Fatalf("got %v, want %v", err, tt.code)
			}
			s.want(c)
			c.wantInFlight(4000)
			if len(c.ctl.acks) != 0 {
				t.Fatal("the window heard of it")
			}
			c.ack(App, 50*ms, 3, 4, 0, 1)
			s.want(c, "acked 20+20", "acked 0+20")
		})
	}
}

func TestAckOnlyPacketsDoNotOpenTheWindow(t *testing.T) {
	c := established(t)
	for range 5 {
		tr := c.NewTrain()
		tr.N, tr.Sizes[0] = 1, 40
		tr.Extra = append(tr.Extra, Extra{Frame: Frame{Kind: 1, ID: 1}})
		c.OnSent(App, []*Train{tr}, t0)
	}
	c.wantInFlight(0)
	c.wantTimer("nothing elicits an ACK", time.Time{})
	res := c.ack(App, 50*ms, 4, 4)
	if res.RTTSample || len(c.ctl.acks) != 0 {
		t.Fatalf("sample %v, window events %v", res.RTTSample, c.ctl.acks)
	}
	// 0 and 1 are out of reach now, which is no loss, but their frames are.
	if c.owner.acked[1] != 1 || c.owner.lost[1] != 2 || len(c.ctl.losses) != 0 {
		t.Fatalf("frames acked %v, lost %v, losses %v", c.owner.acked, c.owner.lost, c.ctl.losses)
	}
}

// A peer has no reason to acknowledge packets that only acknowledge. They must
// not pile up.
func TestAckOnlyPacketsAreForgotten(t *testing.T) {
	c := established(t)
	for i := range 10000 {
		tr := c.NewTrain()
		tr.N, tr.Sizes[0] = 1, 40
		c.OnSent(App, []*Train{tr}, at(time.Duration(i)*ms))
	}
	if n := c.spaces[App].ring.tail - c.spaces[App].ring.head; n > 400 {
		t.Fatalf("%d trains are remembered", n)
	}
}

// A huge ACK, or one with many ranges, must cost little: what was settled is
// passed in a few steps, however long it is.
func TestSettledTrainsArePassed(t *testing.T) {
	c := established(t)
	const n = 20000
	c.send(App, 1, 0) // lost later: it keeps everything behind it in the ring
	for range n {
		c.OnSent(App, []*Train{c.packets(2, 1000)}, t0)
	}
	c.ack(App, 50*ms, 1, 2*n)
	q := &c.spaces[App].ring
	if q.tail-q.head != n+1 {
		t.Fatalf("%d trains in the ring, want %d", q.tail-q.head, n+1)
	}
	for place := q.head + 1; place < q.tail; place++ {
		if q.at(place).train != nil {
			t.Fatal("a settled train is kept")
		}
	}
	steps := func(place int64) (hops int) {
		for place >= q.head && q.at(place).train == nil {
			place = q.at(place).skip
			hops++
		}
		return hops
	}
	rng := rand.New(rand.NewPCG(1, 2))
	c.ack(App, 51*ms, 1, 2*n) // the same again
	for range 500 {
		hi := 2 + rng.Int64N(2*n-2)
		c.ack(App, 51*ms, hi-1, hi)
	}
	total := 0
	for range 500 {
		total += steps(q.find(2 + rng.Int64N(2*n-2)))
	}
	if total > 500*200 {
		t.Fatalf("%d steps for 500 ranges over %d settled trains", total, n)
	}
	if first := steps(q.tail - 1); first > 2 {
		t.Fatalf("%d steps over everything", first)
	}
}

// After a burst the memory goes back.
func TestMemoryAfterABurst(t *testing.T) {
	c := established(t)
	for range 5000 {
		c.OnSent(App, []*Train{c.packets(10, 1000)}, t0)
	}
	c.ack(App, 50*ms, 0, 49999)
	if n := len(c.spaces[App].ring.buf); n > ringKept {
		t.Errorf("an empty ring of %d slots", n)
	}
	if len(c.free) > maxFree {
		t.Errorf("%d free trains", len(c.free))
	}
}
