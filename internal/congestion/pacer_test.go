package congestion

import (
	"math/rand/v2"
	"testing"
	"time"
)

// link plays a sender that has data without end against a pacer, in virtual
// time, with timers that come late by the given time. It returns bytes sent,
// wake-ups, and the largest burst at one instant.
func drive(p *Pacer, d time.Duration, flight int, late time.Duration) (sent, wakeups, burst int) {
	now := t0
	for now.Before(t0.Add(d)) {
		atOnce := 0
		for {
			n := min(p.Budget(now), flight)
			if n == 0 {
				break
			}
			p.OnSent(now, n)
			atOnce += n
		}
		sent += atOnce
		burst = max(burst, atOnce)
		next := p.Next(now)
		if !next.After(now) {
			panic("Next is not later although there is no budget")
		}
		now = next.Add(late)
		wakeups++
	}
	return sent, wakeups, burst
}

// RFC 9002 §7.7: N × cwnd per RTT.
func TestPacerRate(t *testing.T) {
	for _, tt := range []struct {
		cwnd      int
		rtt       time.Duration
		slowStart bool
		late      time.Duration
		gain      float64
	}{
		{100_000, 100 * ms, false, 0, 1.25},
		{100_000, 100 * ms, true, 0, 2},
		{10_000_000, 100 * ms, false, 0, 1.25},
		{10_000_000, 10 * ms, false, 0, 1.25},
		{100_000, 100 * time.Microsecond, false, 0, 1.25},
		{2 * mss, 500 * ms, false, 0, 1.25},
		{100_000, 100 * ms, false, ms, 1.25}, // late timers cost no rate
		{10_000_000, 100 * ms, false, ms, 1.25},
	} {
		p := NewPacer(mss)
		p.SetRate(tt.cwnd, tt.rtt, tt.slowStart)
		d := max(100*tt.rtt, 100*ms)
		sent, _, _ := drive(p, d, 40*mss, tt.late)
		want := tt.gain * float64(tt.cwnd) * float64(d) / float64(tt.rtt)
		if r := float64(sent) / want; r < 0.98 || r > 1.03 {
			t.Errorf("%+v: sent %.3f of the rate", tt, r)
		}
	}
}

// Anchors P1, B4, B5: bursts are no longer than 2 ms of rate or ten datagrams,
// and not shorter either, so that volleys are whole and wake-ups few.
func TestPacerQuantum(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cwnd    int
		rtt     time.Duration
		quantum int
	}{
		{"one pass", 1_000_000, 100 * ms, 25000}, // 12.5 MB/s: 2 ms are 25 kB
		{"slow path", 100_000, 100 * ms, 12000},
		{"2 ms of rate", 4_000_000, 100 * ms, 100_000},
		{"256 datagrams", 100_000_000, 100 * ms, 256 * mss},
		{"half a window", 16_000, 100 * ms, 8000},
		{"smallest window", 2 * mss, 100 * ms, mss},
		{"short RTT", 100_000, 100 * time.Microsecond, 50_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPacer(mss)
			p.SetRate(tt.cwnd, tt.rtt, false)
			if got := p.Budget(t0); got != tt.quantum {
				t.Fatalf("first budget of %d, want %d", got, tt.quantum)
			}
			sent, wakeups, burst := drive(p, 50*tt.rtt, 40*mss, 0)
			if burst > tt.quantum+1 {
				t.Errorf("burst of %d, the quantum is %d", burst, tt.quantum)
			}
			if mean := sent / wakeups; mean < tt.quantum*9/10 {
				t.Errorf("%d bytes per wake-up, the quantum is %d", mean, tt.quantum)
			}
		})
	}
}

// Anchor P2.
func TestPacerAtRTT100Microseconds(t *testing.T) {
	p := NewPacer(1452)
	p.SetRate(1_000_000, 100*time.Microsecond, false)
	sent, _, _ := drive(p, 100*ms, 40*1452, 0)
	if gbps := float64(sent) * 8 / 0.1 / 1e9; gbps < 90 {
		t.Fatalf("%.1f Gbit/s", gbps)
	}
}

func TestPacerWithoutRTT(t *testing.T) {
	p := NewPacer(mss)
	for range 100 {
		if p.Budget(t0) < 64*1452 || !p.Next(t0).Equal(t0) {
			t.Fatal("paced before there is an RTT")
		}
		p.OnSent(t0, 64*1452)
	}
	p.SetRate(100_000, 100*ms, true)
	if p.Budget(t0) < 10*mss {
		t.Fatal("what left unpaced is held against the first paced flight")
	}
	p.SetRate(100_000, 0, true)
	p.SetRate(100_000, -5, true)
	if p.Budget(t0) < 64*1452 {
		t.Fatal("an RTT of 0 paces")
	}
}

// An idle time fills the bucket and no more.
func TestPacerAfterIdle(t *testing.T) {
	p := NewPacer(mss)
	p.SetRate(100_000, 100*ms, false)
	drive(p, time.Second, 40*mss, 0)
	if n := p.Budget(at(time.Hour)); n > 10*mss+2500 {
		t.Fatalf("budget of %d after an hour", n)
	}
	p.OnSent(at(time.Hour), p.Budget(at(time.Hour)))
	if n := p.Budget(at(time.Hour)); n != 0 {
		t.Fatalf("and %d more", n)
	}
	if n := p.Budget(at(2 * time.Hour)); n != 10*mss {
		t.Fatalf("budget of %d, want the quantum", n)
	}
}

// A lone datagram leaves at once while the bucket has tokens for it: only a dry
// bucket waits for a whole quantum.
func TestPacerLetsSmallThingsThrough(t *testing.T) {
	p := NewPacer(mss)
	p.SetRate(100_000, 100*ms, false)
	for i := range 10 {
		if p.Budget(t0) < mss {
			t.Fatalf("datagram %d is held up", i)
		}
		p.OnSent(t0, mss)
	}
	if p.Budget(t0) != 0 {
		t.Fatal("an eleventh")
	}
	next := p.Next(t0)
	if n := p.Budget(next.Add(-ms)); n != 0 {
		t.Fatalf("%d bytes before the quantum is there", n)
	}
	if n := p.Budget(next); n < 10*mss {
		t.Fatalf("budget of %d at the time that Next gave", n)
	}
}

// lxin/quic#55, and A19: whatever happens to rate, time and debt, a wait is
// between nothing and one round trip, and the time it leads to has budget.
func TestPacerWaitIsAtMostOneRTT(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 500 {
		p := NewPacer(1200 + rng.IntN(300))
		now := t0
		rtt := time.Duration(0)
		for step := range 200 {
			switch rng.IntN(8) {
			case 0: // jumps of a factor of a thousand and more
				rtt = time.Duration(1 + rng.Int64N(int64(time.Second)>>rng.IntN(30)))
				p.SetRate(rng.IntN(1<<rng.IntN(41)+1), rtt, rng.IntN(2) == 0)
			case 1:
				p.SetDatagramSize(1200 + rng.IntN(1<<rng.IntN(16)))
			case 2: // time stands still, runs, or goes back
				now = now.Add(time.Duration(rng.Int64N(int64(time.Second)) >> rng.IntN(30)))
			case 3:
				now = now.Add(-time.Duration(rng.Int64N(int64(ms))))
			case 4:
				p.OnSent(now, rng.IntN(1<<rng.IntN(32)+1))
			default:
				b := p.Budget(now)
				if b < 0 || b > unpaced {
					t.Fatalf("seed %d, run %d, step %d: budget of %d", seed, run, step, b)
				}
				next := p.Next(now)
				wait := next.Sub(now)
				if wait < 0 || wait > rtt || (b > 0) != (wait == 0) {
					t.Fatalf("seed %d, run %d, step %d: wait of %v at an RTT of %v with a budget of %d: %+v", seed, run, step, wait, rtt, b, p)
				}
				if now.Before(p.at) {
					continue // the clock has yet to come back to where it was
				}
				if now = next; p.Budget(now) < int(p.mss) {
					t.Fatalf("seed %d, run %d, step %d: no budget after a wait of %v: %+v", seed, run, step, wait, p)
				}
				if rng.IntN(2) == 0 {
					p.OnSent(now, p.Budget(now))
				}
			}
		}
	}
}
