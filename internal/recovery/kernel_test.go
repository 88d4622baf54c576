package recovery

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// The kernel refuses the middle of a flight (EMSGSIZE).
func TestUnsent(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, true, 0, 10, 10, 10, 10, 10)
	c.OnUnsent(App, 1, 2)
	s.want(c, "lost 10+20")
	c.wantInFlight(3000)
	c.OnUnsent(App, 1, 2) // twice is once
	s.want(c)
	c.wantInFlight(3000)
	if _, err := c.OnAck(App, frame(1, 1), 0, at(50*ms)); err == nil {
		t.Fatal("an ACK of a burnt number was accepted")
	}
	c.ack(App, 50*ms, 3, 4, 0, 0)
	s.want(c, "acked 30+20 fin", "acked 0+10")
	c.wantInFlight(0)
	if len(c.ctl.losses) != 0 {
		t.Fatalf("refused packets were taken for congestion: %v", c.ctl.losses)
	}
	if st := c.Stats(); st.PacketsUnsent != 2 || st.PacketsLost != 0 {
		t.Fatalf("%+v", st)
	}
	c.wantTimer("nothing in flight", time.Time{})
}

func TestUnsentFlight(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, false, 0, 10, 10)
	c.sendData(s, 20, false, 0, 10, 10)
	c.OnUnsent(App, 0, 3)
	s.want(c, "lost 20+20", "lost 0+20")
	c.wantInFlight(0)
	if n := c.NextPN(App); n != 4 {
		t.Fatalf("next number %d: burnt numbers were used again", n)
	}
	c.sendData(s, 0, false, 10*ms, 10, 10)
	c.ack(App, 60*ms, 4, 5)
	s.want(c, "acked 0+20")
}

// The kernel took the rest of a flight later. Its packets count from then, the
// others keep their time: else they would give an RTT that is too short.
func TestRestampCutsTheTrain(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	tr := c.packets(5, 1000)
	tr.Data, tr.Fin = s, true
	tr.Lens = [MaxPackets]uint16{10, 10, 10, 10, 10}
	tr.Extra = append(tr.Extra, Extra{I: 1, Frame: Frame{Kind: 1, ID: 1}}, Extra{I: 4, Frame: Frame{Kind: 1, ID: 4}})
	c.OnSent(App, []*Train{tr}, t0)
	c.ack(App, 30*ms, 0, 0) // an ACK may come before the call returns
	s.want(c, "acked 0+10")
	c.Restamp(App, 2, 4, at(30*ms))
	c.ack(App, 60*ms, 0, 1)
	if c.RTT().Latest != 60*ms {
		t.Fatalf("RTT %v of a packet that was sent 60 ms ago", c.RTT().Latest)
	}
	s.want(c, "acked 10+10")
	c.wantTimer("PTO counts from the later time", at(30*ms).Add(c.PTO(App)))
	c.ack(App, 70*ms, 0, 4)
	if c.RTT().Latest != 40*ms {
		t.Fatalf("RTT %v of a packet that was taken 40 ms ago", c.RTT().Latest)
	}
	s.want(c, "acked 20+30 fin")
	if c.owner.acked[1] != 1 || c.owner.acked[4] != 1 {
		t.Fatalf("frames acked: %v", c.owner.acked)
	}
	c.wantInFlight(0)
}

// Each part of a flight has the time at which the kernel took it.
func TestRestampInParts(t *testing.T) {
	for pn, want := range []time.Duration{100 * ms, 100 * ms, 90 * ms, 90 * ms, 70 * ms} {
		c := established(t)
		c.OnSent(App, []*Train{c.packets(5, 1000)}, t0)
		c.Restamp(App, 2, 3, at(10*ms))
		c.Restamp(App, 4, 4, at(30*ms))
		c.ack(App, 100*ms, int64(pn), int64(pn))
		if got := c.RTT().Latest; got != want {
			t.Errorf("packet %d: RTT %v, want %v", pn, got, want)
		}
	}
	c := established(t)
	c.OnSent(App, []*Train{c.packets(5, 1000)}, t0)
	c.Restamp(App, 1, 2, at(10*ms))
	c.ack(App, 100*ms, 4, 4)
	if got := c.RTT().Latest; got != 100*ms {
		t.Errorf("packet 4 was not restamped, RTT %v", got)
	}
}

func TestSplitLosesNothing(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		n := 2 + rng.IntN(MaxPackets-1)
		bits := func() uint16 { return uint16(rng.Uint32()) & below(n) }
		whole := Train{First: 100, N: n, Time: t0, Off: 1000, Eliciting: bits(), InFlight: bits(), ECT0: true,
			acked: bits(), lost: bits(), unsent: bits(), lostAt: at(ms), lostLast: bits()}
		for i := range n {
			whole.Lens[i], whole.Sizes[i] = uint16(rng.IntN(9)), uint16(rng.IntN(9))
			whole.Extra = append(whole.Extra, Extra{I: uint8(i), Len: i})
		}
		k := 1 + rng.IntN(n-1)
		a, b := whole, Train{}
		a.Extra = slices.Clone(whole.Extra)
		a.split(k, &b)

		joined := a
		joined.N += b.N
		off := a.Off
		for i := range k {
			off += int64(a.Lens[i])
		}
		if b.First != 100+int64(k) || b.Off != off || b.Time != t0 || b.lostAt != at(ms) || !b.ECT0 {
			t.Fatalf("seed %d: %+v", seed, b)
		}
		copy(joined.Lens[k:], b.Lens[:b.N])
		copy(joined.Sizes[k:], b.Sizes[:b.N])
		for _, f := range []func(*Train) *uint16{
			func(t *Train) *uint16 { return &t.Eliciting }, func(t *Train) *uint16 { return &t.InFlight },
			func(t *Train) *uint16 { return &t.acked }, func(t *Train) *uint16 { return &t.lost },
			func(t *Train) *uint16 { return &t.unsent }, func(t *Train) *uint16 { return &t.lostLast },
		} {
			if *f(&a)&^below(k) != 0 {
				t.Fatalf("seed %d: a bit beyond the end: %+v", seed, a)
			}
			*f(&joined) |= *f(&b) << k
		}
		for _, e := range b.Extra {
			e.I += uint8(k)
			joined.Extra = append(joined.Extra, e)
		}
		if !reflect.DeepEqual(joined, whole) {
			t.Fatalf("seed %d: cut at %d\n%+v\nand joined again\n%+v", seed, k, whole, joined)
		}
	}
}

// A train put in below settled ones is not jumped over.
func TestInsertBelowSettledTrains(t *testing.T) {
	var q ring
	for pn := range int64(10) {
		q.push(&Train{First: 10 * pn, N: 10})
	}
	for _, place := range []int64{4, 5, 6, 8} {
		q.settle(place)
	}
	if p := q.live(6); p != 3 {
		t.Fatalf("below 6 the first live place is %d, want 3", p)
	}
	q.insert(3, &Train{First: 35, N: 5})
	for from, want := range map[int64]int64{7: 4, 6: 4, 5: 4, 4: 4, 3: 3, 9: 8, 8: 8} {
		if p := q.live(from); p != want {
			t.Errorf("at or below %d the first live place is %d, want %d", from, p, want)
		}
	}
	for pn, want := range map[int64]int64{0: 0, 34: 3, 35: 4, 39: 4, 40: 5, 99: 10, -1: -1} {
		if p := q.find(pn); p != want {
			t.Errorf("number %d is at place %d, want %d", pn, p, want)
		}
	}
}

// A FIN that may be in either of two packets stays with both.
func TestRestampDoesNotCutTheFin(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, true, 0, 10, 10, 0)
	c.Restamp(App, 2, 2, at(30*ms))
	c.ack(App, 60*ms, 0, 1)
	s.want(c, "acked 10+10", "acked 0+10")
	c.ack(App, 60*ms, 0, 2)
	s.want(c, "acked 20+0 fin")
}

// No probe timeout runs for what the kernel did not take.
func TestNoProbeTimeoutWhileBlocked(t *testing.T) {
	c := established(t)
	c.send(App, 2, 0)
	c.SetSendBlocked(true)
	c.wantTimer("blocked", time.Time{})
	c.Restamp(App, 0, 1, at(5*time.Second))
	c.SetSendBlocked(false)
	c.wantTimer("taken", at(5*time.Second).Add(c.PTO(App)))
}

func TestDiscard(t *testing.T) {
	c := client(t)
	s := newBytes(10)
	tr := c.packets(2, 1200)
	tr.Data, tr.Lens[0] = s, 10
	c.OnSent(Initial, []*Train{tr}, t0)
	c.send(Handshake, 1, 0)
	c.OnTimer(at(time.Second))
	c.OnTimer(at(3 * time.Second))
	c.Discard(Initial, at(4*time.Second))
	c.wantInFlight(1000)
	s.want(c)
	if c.Probes(Initial) != 0 {
		t.Fatal("probes are due in a space without keys")
	}
	// The backoff starts afresh (RFC 9002 §6.2.2). Nothing was sent since the
	// last timeout, at 3 s.
	c.wantTimer("after Discard", at(3*time.Second+999*ms))
	if res, err := c.OnAck(Initial, frame(0, 100), 0, at(4*time.Second)); err != nil || res != (AckResult{}) {
		t.Fatalf("an ACK for a discarded space: %+v, %v", res, err)
	}
	c.Discard(Initial, at(5*time.Second))
	c.wantInFlight(1000)
}

func TestResetForRetry(t *testing.T) {
	c := client(t)
	s := newBytes(10)
	tr := c.packets(1, 1200)
	tr.Data, tr.Lens[0] = s, 10
	c.OnSent(Initial, []*Train{tr}, t0)
	c.OnTimer(at(time.Second))
	c.ResetForRetry(at(2 * time.Second))
	s.want(c, "lost 0+10")
	c.wantInFlight(0)
	if len(c.ctl.losses) != 0 || c.Stats().PacketsLost != 0 {
		t.Fatal("a Retry was taken for congestion")
	}
	if n := c.NextPN(Initial); n != 1 {
		t.Fatalf("next number %d, want 1 (RFC 9000 §17.2.5.3)", n)
	}
	c.ack(Initial, 2*time.Second, 0, 0)
	s.want(c)
}

// A connection that rests keeps no memory for packets to come, and forgets nothing that
// it waits for.
func TestShed(t *testing.T) {
	c := established(t)
	s := newBytes(40)
	c.sendData(s, 0, false, 0, 10, 10)
	c.sendData(s, 20, true, 0, 10, 10)
	c.ack(App, 50*ms, 0, 1)
	s.want(c, "acked 0+20")
	c.Shed(at(60 * ms))
	if len(c.free) != 0 {
		t.Fatalf("%d trains are kept", len(c.free))
	}
	c.ack(App, 70*ms, 2, 3)
	s.want(c, "acked 20+20 fin")
	c.Shed(at(80 * ms))
	if n := len(c.spaces[App].ring.buf); n != 0 || len(c.free) != 0 {
		t.Fatalf("nothing is under way, and room for %d trains is kept, and %d trains", n, len(c.free))
	}
	c.sendData(s, 0, false, 2*time.Second, 10)
	c.ack(App, 2050*ms, 4, 4)
	s.want(c, "acked 0+10")
}
