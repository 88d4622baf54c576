package congestion

import (
	"math"
	"time"
)

const (
	// Bursts of this much rate keep wake-ups rare and are still short beside
	// the round trips for which pacing matters.
	pacerBurst = 2 * time.Millisecond
	// The most that a late timer is made up for. Timers come late by about a
	// millisecond; a process that was stopped for a second gets no burst.
	pacerLateness = 2 * time.Millisecond

	passDatagrams = 10 // one pass of the sender

	maxQuantumDatagrams = 256

	unpaced = 1 << 30 // a budget that limits nothing
)

// Pacer spreads flights over time (RFC 9002 §7.7): a token bucket whose
// capacity is the quantum, the larger of 2 ms of rate and
// min(ten datagrams, initial window), at most 256 datagrams and half the
// congestion window.
//
// When the bucket has run dry it opens again only with a whole quantum, so
// that the sender builds volleys instead of single datagrams.
//
// All methods are told the time and are called with the connection's mutex
// held. Times that go backwards count as no time passed.
type Pacer struct {
	mss    float64
	cwnd   float64       // as last told
	rtt    time.Duration // 0: unpaced
	gain   float64       // windows per round trip
	rate   float64       // bytes per second
	tokens float64       // negative: more was sent than was there
	at     time.Time     // when tokens was right; zero: never, the bucket is full

	dry bool      // waiting for a whole quantum
	due time.Time // when Next said that it would be there; zero: Next was not called
}

// NewPacer returns a Pacer that lets everything through until SetRate gives it
// a round-trip time.
func NewPacer(datagramSize int) *Pacer {
	p := &Pacer{}
	p.SetDatagramSize(datagramSize)
	return p
}

// SetDatagramSize follows path MTU discovery.
func (p *Pacer) SetDatagramSize(bytes int) {
	p.mss = float64(datagram(bytes))
	p.setRate()
}

// SetRate paces at 1.25 windows of cwnd bytes per srtt, two in slow start,
// where the window itself doubles each round trip. An srtt of 0 or less means
// no pacing.
func (p *Pacer) SetRate(cwnd int, srtt time.Duration, slowStart bool) {
	p.cwnd = float64(cwnd)
	p.rtt = max(srtt, 0)
	p.gain = 1.25
	if slowStart {
		p.gain = 2
	}
	p.setRate()
}

// setRate keeps the window at two datagrams or more: then half a window holds
// a datagram, and no wait is longer than a round trip.
func (p *Pacer) setRate() {
	p.cwnd = min(max(p.cwnd, 2*p.mss), maxWindow)
	if p.rtt == 0 {
		return
	}
	p.rate = p.gain * p.cwnd / p.rtt.Seconds()
	p.tokens = min(max(p.tokens, -p.cwnd/2), p.quantum())
}

// quantum is the bucket's capacity in bytes.
func (p *Pacer) quantum() float64 {
	q := max(p.rate*pacerBurst.Seconds(),
		min(passDatagrams*p.mss, float64(initialWindow(int(p.mss)))))
	return max(min(q, maxQuantumDatagrams*p.mss, p.cwnd/2), p.mss)
}

// refill brings the tokens up to date.
func (p *Pacer) refill(now time.Time) {
	q := p.quantum()
	limit := q
	if p.dry && !p.due.IsZero() && now.After(p.due) {
		// The quantum was there at p.due, and nobody came for it because the
		// timer was late. Without this each late timer would cost rate.
		late := min(now.Sub(p.due), pacerLateness).Seconds()
		limit = max(q, min(q+late*p.rate, p.cwnd/2))
	}
	switch {
	case p.at.IsZero():
		p.tokens, p.at = q, now
	case now.After(p.at):
		full := p.tokens + now.Sub(p.at).Seconds()*p.rate
		p.tokens = max(p.tokens, min(full, limit))
		p.at = now
	}
	if p.dry && p.tokens >= q {
		p.dry, p.due = false, time.Time{}
	}
}

// Budget is how many bytes may leave now: 0, or at least one datagram.
func (p *Pacer) Budget(now time.Time) int {
	if p.rtt == 0 {
		return unpaced
	}
	p.refill(now)
	if p.dry {
		return 0
	}
	if p.tokens < p.mss {
		p.dry = true
		return 0
	}
	return int(min(p.tokens, unpaced))
}

// OnSent takes bytes out. More than the budget may be taken (a probe is not
// held up); what follows then waits for longer.
func (p *Pacer) OnSent(now time.Time, bytes int) {
	if p.rtt == 0 {
		return
	}
	p.refill(now)
	// The debt is bounded: half a window is less than a round trip's worth
	// at any gain, so that no wait is longer than that.
	p.tokens = max(p.tokens-float64(bytes), -p.cwnd/2)
}

// Next is when Budget will allow something again: now if it does so already,
// else when a whole quantum is there, which is later than now but not by more
// than a round trip.
func (p *Pacer) Next(now time.Time) time.Time {
	if p.Budget(now) > 0 {
		return now
	}
	// The extra nanosecond outweighs what rounding took off the wait, so
	// that whoever comes at this time finds the quantum.
	ns := math.Ceil((p.quantum()-p.tokens)/p.rate*1e9) + 1
	wait := time.Duration(min(max(ns, 1), float64(p.rtt)))
	p.due = now.Add(wait)
	return p.due
}
