package congestion

import (
	"math"
	"time"
)

// Constants of RFC 9406 §4.3. L, the limit on growth per ACK, is infinite: it
// is meant for senders that do not pace.
const (
	hystartMinThresh   = 4 * time.Millisecond
	hystartMaxThresh   = 16 * time.Millisecond
	hystartDivisor     = 8
	hystartSamples     = 8
	cssGrowthDivisor   = 4
	cssRounds          = 5
	noRTT              = time.Duration(math.MaxInt64)
	roundNotStarted    = int64(-1)
	outsideRoundNumber = int64(-1)
)

// hystart finds the end of the first slow start by rising delay, before loss
// does (RFC 9406 §4.2). Where the delay rose it goes on in conservative slow
// start (CSS) for some rounds, so that mere jitter does not end slow start.
type hystart struct {
	windowEnd int64 // the round ends when this number is acknowledged
	samples   int   // RTT samples in this round
	current   time.Duration
	last      time.Duration // minimum RTT of this round and of the one before

	css      bool
	baseline time.Duration // minimum RTT when CSS began
	rounds   int           // rounds spent in CSS, the first may be a partial one
}

func newHystart() hystart {
	return hystart{windowEnd: roundNotStarted, current: noRTT, last: noRTT}
}

// onAck takes one ACK in and reports whether slow start is over.
func (h *hystart) onAck(a *Ack) (exit bool) {
	if a.LargestPN == outsideRoundNumber {
		return false
	}
	if h.windowEnd == roundNotStarted {
		h.windowEnd = a.SentPN
	}
	if a.RTT > 0 {
		h.current = min(h.current, a.RTT)
		h.samples++
	}
	if h.samples >= hystartSamples {
		switch {
		case h.css && h.current < h.baseline:
			// The delay went away again: it was no standing queue.
			h.css = false
		case !h.css && h.last != noRTT && h.current >= h.last+threshold(h.last):
			h.css, h.baseline, h.rounds = true, h.current, 0
		}
	}
	if a.LargestPN < h.windowEnd {
		return false
	}
	h.windowEnd = a.SentPN
	h.last, h.current, h.samples = h.current, noRTT, 0
	if h.css {
		h.rounds++
	}
	return h.css && h.rounds >= cssRounds
}

// threshold is how much more than the last round's minimum counts as delay.
func threshold(last time.Duration) time.Duration {
	return max(hystartMinThresh, min(last/hystartDivisor, hystartMaxThresh))
}

// growth is how much of the acknowledged bytes the window grows by.
func (h *hystart) growth(bytes float64) float64 {
	if h.css {
		return bytes / cssGrowthDivisor
	}
	return bytes
}
