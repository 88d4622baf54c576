package congestion

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	ms  = time.Millisecond
	mss = 1200
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

var controllers = map[string]func(int) Controller{"CUBIC": NewCubic, "NewReno": NewReno}

func eachController(t *testing.T, f func(*testing.T, func(int) Controller)) {
	for name, make := range controllers {
		t.Run(name, func(t *testing.T) { f(t, make) })
	}
}

func wantWindow(t *testing.T, c Controller, what string, want int) {
	t.Helper()
	if got := c.Window(); got != want {
		t.Fatalf("%s: window of %d bytes, want %d", what, got, want)
	}
}

// RFC 9002 §7.2.
func TestInitialWindow(t *testing.T) {
	for _, tt := range []struct{ datagram, want int }{
		{1200, 12000}, {1280, 12800}, {1452, 14520}, {1472, 14720}, {1500, 14720}, {9000, 18000}, {16376, 32752},
	} {
		eachController(t, func(t *testing.T, make func(int) Controller) {
			wantWindow(t, make(tt.datagram), "initial", tt.want)
			c := make(1200)
			c.SetDatagramSize(tt.datagram)
			wantWindow(t, c, "after a change of size", tt.want)
			c.SetDatagramSize(1200)
			wantWindow(t, c, "after the change back", 12000)
		})
	}
}

// A larger datagram leaves a window that was learnt alone, except that two
// datagrams must fit.
func TestDatagramSizeAndLearntWindow(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 5000, LargestSentTime: t0, LargestPN: -1})
		c.SetDatagramSize(1452)
		wantWindow(t, c, "learnt", 17000)
		c.SetDatagramSize(16376)
		wantWindow(t, c, "two datagrams", 32752)
	})
}

// One ACK per flight, however large, still doubles the window each round trip.
func TestSlowStartDoublesWithLargeAcks(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		now := time.Duration(0)
		for round := range 8 {
			if !c.InSlowStart() {
				t.Fatal("slow start is over")
			}
			w := c.Window()
			if w != 12000<<round {
				t.Fatalf("round %d: window of %d", round, w)
			}
			sent := now
			for left := w; left > 0; { // flights of 40 datagrams
				n := min(left, 40*mss)
				c.OnSent(at(now), n, w-left+n)
				left -= n
			}
			now += 50 * ms
			for left := w; left > 0; {
				n := min(left, 40*mss)
				c.OnAck(Ack{Now: at(now), Bytes: n, InFlightBefore: left, LargestSentTime: at(sent),
					LargestPN: int64(round), SentPN: int64(round), RTT: 50 * ms, MinRTT: 50 * ms, SmoothedRTT: 50 * ms})
				left -= n
			}
		}
	})
}

// RFC 9002 §7.8, and picoquic#1485.
func TestUnderusedWindowDoesNotGrow(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		for i := range 600 {
			now := time.Duration(i) * 100 * ms
			c.OnSent(at(now), 10000, 10000)
			c.OnAck(Ack{Now: at(now + 50*ms), Bytes: 10000, InFlightBefore: 10000, LargestSentTime: at(now),
				LargestPN: int64(i), SentPN: int64(i), RTT: 50 * ms, MinRTT: 50 * ms, SmoothedRTT: 50 * ms, AppLimited: true})
		}
		wantWindow(t, c, "100 kB/s for a minute", 12000)
	})
}

// RFC 9002 §7.3.2: one reduction per round trip, and no growth during it.
func TestRecoveryPeriod(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 88000, LargestSentTime: t0, LargestPN: -1})
		wantWindow(t, c, "slow start", 100000)
		c.OnLoss(Loss{Now: at(100 * ms), Bytes: 1200, Packets: 1, LargestSentTime: at(50 * ms)})
		if c.InSlowStart() {
			t.Fatal("slow start after a loss")
		}
		w := c.Window()
		if want := map[bool]int{true: 70000, false: 50000}[isCubic(c)]; w != want {
			t.Fatalf("window of %d after a loss, want %d", w, want)
		}
		c.OnLoss(Loss{Now: at(110 * ms), Bytes: 1200, Packets: 1, LargestSentTime: at(100 * ms)})
		c.OnECN(at(110*ms), at(90*ms))
		c.OnAck(Ack{Now: at(120 * ms), Bytes: 50000, LargestSentTime: at(99 * ms), SmoothedRTT: 50 * ms})
		wantWindow(t, c, "the same round trip", w)
		c.OnECN(at(200*ms), at(150*ms))
		if c.Window() >= w {
			t.Fatal("CE marks on later packets were ignored")
		}
	})
}

func isCubic(c Controller) bool { _, ok := c.(*cubic); return ok }

func TestPersistentCongestion(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 88000, LargestSentTime: t0, LargestPN: -1})
		c.OnLoss(Loss{Now: at(100 * ms), Bytes: 1200, Packets: 1, LargestSentTime: at(50 * ms), Persistent: true})
		wantWindow(t, c, "collapsed", 2*mss)
		if !c.InSlowStart() {
			t.Fatal("no slow start after persistent congestion")
		}
		// B.8: the recovery period is over as well.
		c.OnAck(Ack{Now: at(110 * ms), Bytes: 1200, LargestSentTime: at(60 * ms), SmoothedRTT: 50 * ms})
		wantWindow(t, c, "grows again", 3*mss)
		// One ACK does not carry slow start past its threshold.
		c.OnAck(Ack{Now: at(120 * ms), Bytes: 1 << 30, LargestSentTime: at(110 * ms), SmoothedRTT: 50 * ms})
		wantWindow(t, c, "threshold", map[bool]int{true: 70000, false: 50000}[isCubic(c)])
		if c.InSlowStart() {
			t.Fatal("slow start at the threshold")
		}
	})
}

func TestMinimumWindow(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		for i := range 20 {
			now := at(time.Duration(i+1) * time.Second)
			c.OnLoss(Loss{Now: now, Bytes: 1200, Packets: 1, LargestSentTime: now.Add(-ms)})
		}
		wantWindow(t, c, "after many losses", 2*mss)
	})
}

// RFC 9438 §4.9.2: a reduction without cause is undone, but only if nothing at
// all was lost.
func TestSpuriousLoss(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		for _, tt := range []struct {
			name string
			play func(Controller)
			want bool
		}{
			{"all arrived", func(c Controller) {
				c.OnSpurious(Spurious{Now: at(120 * ms), Packets: 1, SentTime: at(50 * ms)})
				c.OnSpurious(Spurious{Now: at(121 * ms), Packets: 2, SentTime: at(51 * ms)})
			}, true},
			{"one did not", func(c Controller) {
				c.OnSpurious(Spurious{Now: at(120 * ms), Packets: 2, SentTime: at(50 * ms)})
			}, false},
			{"more were lost since", func(c Controller) {
				c.OnLoss(Loss{Now: at(110 * ms), Packets: 1, LargestSentTime: at(60 * ms)})
				c.OnSpurious(Spurious{Now: at(120 * ms), Packets: 3, SentTime: at(50 * ms)})
			}, false},
		} {
			c := make(mss)
			c.OnAck(Ack{Now: at(ms), Bytes: 88000, LargestSentTime: t0, LargestPN: -1})
			c.OnLoss(Loss{Now: at(100 * ms), Packets: 3, LargestSentTime: at(55 * ms)})
			tt.play(c)
			if got := c.Window() == 100000 && c.InSlowStart(); got != tt.want {
				t.Errorf("%s: window of %d, slow start %v", tt.name, c.Window(), c.InSlowStart())
			}
		}
	})
}

func TestSpuriousLossBesideRealCongestion(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 988000, LargestSentTime: t0, LargestPN: -1})
		c.OnLoss(Loss{Now: at(100 * ms), Packets: 3, LargestSentTime: at(55 * ms)})
		c.OnLoss(Loss{Now: at(300 * ms), Packets: 1, LargestSentTime: at(250 * ms)})
		w := c.Window()
		c.OnSpurious(Spurious{Now: at(320 * ms), Packets: 3, SentTime: at(50 * ms)})
		wantWindow(t, c, "packets of an earlier period arrived", w)

		c.OnECN(at(500*ms), at(450*ms))
		c.OnLoss(Loss{Now: at(510 * ms), Packets: 1, LargestSentTime: at(455 * ms)})
		w = c.Window()
		c.OnSpurious(Spurious{Now: at(520 * ms), Packets: 1, SentTime: at(455 * ms)})
		wantWindow(t, c, "there was a CE mark as well", w)
	})
}

// After a reduction more may be in flight than the window, and one ACK may
// cover it all.
func TestOneAckCountsForOneWindow(t *testing.T) {
	eachController(t, func(t *testing.T, make func(int) Controller) {
		c := make(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 88000, LargestSentTime: t0, LargestPN: -1})
		c.OnLoss(Loss{Now: at(10 * ms), Packets: 1, LargestSentTime: at(5 * ms)})
		w := c.Window()
		c.OnAck(Ack{Now: at(20 * ms), Bytes: 10 * w, LargestSentTime: at(15 * ms), SmoothedRTT: 5 * ms})
		if got := c.Window(); got > w+mss {
			t.Fatalf("grew by %d bytes, want at most one datagram", got-w)
		}
	})
}

// RFC 9002 §7.3.3 and appendix B: per window acknowledged, one datagram.
func TestRenoCongestionAvoidance(t *testing.T) {
	for _, acks := range []int{1, 2, 10, 50} { // ACKs per round trip
		c := NewReno(mss)
		c.OnAck(Ack{Now: at(ms), Bytes: 88000, LargestSentTime: t0, LargestPN: -1})
		c.OnLoss(Loss{Now: at(10 * ms), Packets: 1, LargestSentTime: at(5 * ms)})
		want := 50000.0
		for round := range 100 {
			now := at(time.Duration(round+1) * 100 * ms)
			window := want
			for range acks {
				n := window / float64(acks)
				c.OnAck(Ack{Now: now, Bytes: int(n), LargestSentTime: now.Add(-50 * ms), SmoothedRTT: 50 * ms})
				want += mss * math.Floor(n) / want
			}
			if d := math.Abs(float64(c.Window()) - want); d > 2 {
				t.Fatalf("%d ACKs a round, round %d: window of %d, want %.0f", acks, round, c.Window(), want)
			}
		}
		if grown := want - 50000; grown > 100*mss || grown < 98*mss {
			t.Fatalf("%d ACKs a round: grew by %.0f in 100 rounds, want about %d", acks, grown, 100*mss)
		}
	}
}

// Whatever is reported, the window is a sane number.
func TestControllersNeverLoseTheirNumbers(t *testing.T) {
	seed := rand.Uint64()
	eachController(t, func(t *testing.T, make func(int) Controller) {
		rng := rand.New(rand.NewPCG(seed, 0))
		any := func() int { return int(rng.Uint64() >> (1 + rng.IntN(63))) }
		for range 200 {
			c := make(any())
			now := t0
			for step := range 300 {
				now = now.Add(time.Duration(any()) >> rng.IntN(63))
				sent := now.Add(-time.Duration(any()) >> rng.IntN(63))
				switch rng.IntN(8) {
				case 0:
					c.OnLoss(Loss{Now: now, Bytes: any(), Packets: any(), LargestSentTime: sent, Persistent: rng.IntN(4) == 0})
				case 1:
					c.OnECN(now, sent)
				case 2:
					c.OnSpurious(Spurious{Now: now, Packets: any(), SentTime: sent})
				case 3:
					c.SetDatagramSize(any() % 65528)
				case 4:
					n := any()
					c.OnSent(now, n, n)
				default:
					c.OnAck(Ack{Now: now, Bytes: any(), InFlightBefore: any(), LargestSentTime: sent, LargestPN: int64(any()),
						SentPN: int64(any()), RTT: time.Duration(any()), MinRTT: time.Duration(any()),
						SmoothedRTT: time.Duration(any()), AppLimited: rng.IntN(3) == 0})
				}
				if w := c.Window(); w < 2*minDatagramSize || w > maxWindow {
					t.Fatalf("seed %d, step %d: window of %d bytes: %+v", seed, step, w, c)
				}
			}
		}
	})
}
