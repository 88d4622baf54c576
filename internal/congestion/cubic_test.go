package congestion

import (
	"math"
	"testing"
	"time"
)

// afterLoss is CUBIC with a window of w bytes that just met a loss at 1 s.
func afterLoss(w int) *cubic {
	c := NewCubic(mss).(*cubic)
	c.OnAck(Ack{Now: at(ms), Bytes: w - c.Window(), LargestSentTime: t0, LargestPN: -1})
	c.OnLoss(Loss{Now: at(time.Second), Packets: 1, LargestSentTime: at(900 * ms)})
	return c
}

// ackWindow acknowledges a whole window in n ACKs over one RTT that ends at d.
func (c *cubic) ackWindow(d, rtt time.Duration, n int) {
	w := c.Window()
	for i := range n {
		now := d - rtt*time.Duration(n-1-i)/time.Duration(n)
		c.OnAck(Ack{Now: at(now), Bytes: w / n, LargestSentTime: at(now - rtt), SmoothedRTT: rtt})
	}
}

// With a long RTT the window follows W_cubic(t) = C (t-K)³ + W_max
// (RFC 9438 figure 1): concave up to W_max at t = K, convex after it.
func TestCubicFollowsTheCurve(t *testing.T) {
	const w = 1000 * mss
	const rtt = 100 * ms
	c := afterLoss(w)
	wantWindow(t, c, "after the loss", 700*mss)
	k := math.Cbrt(1000 * 0.3 / 0.4) // figure 2: K = ∛((W_max − cwnd_epoch)/C) = 9.086 s
	epoch := time.Second + 2*rtt
	c.OnAck(Ack{Now: at(epoch), Bytes: mss, LargestSentTime: at(epoch - rtt), SmoothedRTT: rtt})
	for d := epoch + rtt; d < epoch+15*time.Second; d += rtt {
		c.ackWindow(d, rtt, 20)
		elapsed := (d - epoch).Seconds()
		want := 0.4*math.Pow(elapsed-k, 3) + 1000
		if got := float64(c.Window()) / mss; math.Abs(got-want) > 0.01*want {
			t.Fatalf("t = %.1f s: window of %.1f segments, the curve is at %.1f", elapsed, got, want)
		}
	}
	if c.Window() < w {
		t.Fatal("the plateau was not passed")
	}
}

// One ACK for a whole window gives what twenty give: growth is by bytes.
func TestCubicIsIndifferentToAckFrequency(t *testing.T) {
	var windows []float64
	for _, acks := range []int{1, 4, 40} {
		c := afterLoss(1000 * mss)
		for d := 1200 * ms; d < 12*time.Second; d += 100 * ms {
			c.ackWindow(d, 100*ms, acks)
		}
		windows = append(windows, float64(c.Window()))
	}
	for _, w := range windows {
		if math.Abs(w-windows[0]) > 0.02*windows[0] {
			t.Fatalf("windows of %v for 1, 4 and 40 ACKs per round trip", windows)
		}
	}
}

// With a short RTT CUBIC is as fast as Reno with β = 0.7 (RFC 9438 §4.3, but for α, which
// is 1 also below the window before the loss).
func TestCubicRenoFriendly(t *testing.T) {
	const rtt = 5 * ms
	c := afterLoss(100 * mss)
	est := 70.0
	for round := range 150 {
		d := 1010*ms + time.Duration(round)*rtt
		segments := float64(c.Window()) / mss
		c.ackWindow(d, rtt, 1)
		est += math.Floor(segments*mss) / mss / segments
		if got := float64(c.Window()) / mss; math.Abs(got-est) > 0.05 {
			t.Fatalf("round %d: window of %.2f segments, W_est is %.2f", round, got, est)
		}
	}
	if est < 200 {
		t.Fatalf("W_est is only %.1f: it did not pass the window before the loss", est)
	}
}

// RFC 9438 §4.7.
func TestCubicFastConvergence(t *testing.T) {
	c := afterLoss(1000 * mss)
	if c.wMax != 1000*mss {
		t.Fatalf("W_max is %.0f, want the window before the loss", c.wMax)
	}
	c.OnLoss(Loss{Now: at(2 * time.Second), Packets: 1, LargestSentTime: at(1900 * ms)})
	if want := 700 * mss * (1 + 0.7) / 2; math.Abs(c.wMax-want) > 1 {
		t.Fatalf("W_max is %.0f, want %.0f: the flow lost before it had its window back", c.wMax, want)
	}
	if math.Abs(c.cwnd-490*mss) > 1 {
		t.Fatalf("cwnd %.0f", c.cwnd)
	}
}

// RFC 9438 §4.8: after persistent congestion the curve starts flat, where slow
// start ends.
func TestCubicAfterPersistentCongestion(t *testing.T) {
	c := afterLoss(1000 * mss)
	c.OnLoss(Loss{Now: at(9 * time.Second), Packets: 9, LargestSentTime: at(8 * time.Second), Persistent: true})
	d := 10 * time.Second
	for c.InSlowStart() {
		c.ackWindow(d, 100*ms, 1)
		d += 100 * ms
	}
	wantWindow(t, c, "threshold", 490*mss)
	c.ackWindow(d, 100*ms, 1)
	if c.k != 0 || c.wMax != 490*mss || !c.epoch.Equal(at(d)) {
		t.Fatalf("K = %v, W_max = %.0f", c.k, c.wMax)
	}
}

// No update of the window falls into the time for which the application or
// silence was the limit (RFC 9438 §4.2, §5.8).
func TestCubicEpochStandsStill(t *testing.T) {
	const rtt = 100 * ms
	bulk := func(c *cubic, d time.Duration, rounds int) time.Duration {
		for range rounds {
			d += rtt
			c.OnSent(at(d-rtt), mss, c.Window()) // something else is always in flight
			c.ackWindow(d, rtt, 4)
		}
		return d
	}
	busy := afterLoss(1000 * mss)
	bulk(busy, 1100*ms, 60)

	limited := afterLoss(1000 * mss)
	d := bulk(limited, 1100*ms, 30)
	w := limited.Window()
	for range 600 { // a minute of little data
		d += rtt
		limited.OnSent(at(d-rtt), mss, mss)
		limited.OnAck(Ack{Now: at(d), Bytes: mss, LargestSentTime: at(d - rtt), SmoothedRTT: rtt, AppLimited: true})
	}
	wantWindow(t, limited, "while limited", w)
	bulk(limited, d, 30)

	idle := afterLoss(1000 * mss)
	d = bulk(idle, 1100*ms, 30) + time.Minute
	idle.OnSent(at(d), mss, mss) // nothing else is in flight
	bulk(idle, d, 30)

	for name, c := range map[string]*cubic{"limited": limited, "idle": idle} {
		if got, want := float64(c.Window()), float64(busy.Window()); math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: window of %.0f, a busy flow has %.0f", name, got, want)
		}
	}
}

// The curve's slope is bounded: at most half a window per round trip (§4.2).
func TestCubicTargetIsBounded(t *testing.T) {
	c := afterLoss(10 * mss)
	c.ackWindow(1200*ms, 100*ms, 1)
	w := float64(c.Window())
	c.ackWindow(1000*time.Hour, 100*ms, 1)
	if got := float64(c.Window()); got > 1.5*w+1 || got < w {
		t.Fatalf("window went from %.0f to %.0f", w, got)
	}
}
