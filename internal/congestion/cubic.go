package congestion

import (
	"math"
	"time"
)

// NewCubic returns CUBIC (RFC 9438), which leaves its first slow start by
// HyStart++ (RFC 9406).
func NewCubic(datagramSize int) Controller {
	return &cubic{window: newWindow(datagramSize), hystart: newHystart()}
}

// Constants of RFC 9438 §4.1 and §4.6.
const (
	cubicC    = 0.4 // segments/s³
	cubicBeta = 0.7
)

// renoAlpha is by how many segments a round trip the window grows at least. RFC 9438
// §4.3 would start with α = 3(1-β)/(1+β) = 0.53, so that a flow has no more than one of
// Reno's with β = 0.5, and go on with 1 from the window before the loss on. Volley departs
// from that SHOULD and takes 1 throughout: what it meets, and what people come from, is
// quic-go, whose default grows by 1 and falls to 0.7. With 0.53 a flow beside that one,
// or in its place on a path that loses packets at random, has a fifth less.
const renoAlpha = 1

type cubic struct {
	window
	hystart hystart
	curve
	undo struct { // before the latest reduction (RFC 9438 §4.9.2)
		cwnd, ssthresh float64
		curve          curve
	}
	lastAck time.Time
}

// curve is the state of congestion avoidance. Sizes are bytes.
type curve struct {
	wMax float64 // the plateau; 0: unknown, it is then where avoidance begins
	k    float64 // seconds from the epoch to the plateau
	wEst float64 // what Reno's window would be

	epoch  time.Time // start of congestion avoidance; zero: at the next ACK
	frozen time.Time // since when the application limits us; zero: it does not
}

func (c *cubic) OnSent(now time.Time, bytes, inFlight int) {
	// §4.2: t must not include idle periods, or the first ACK after one
	// would meet a window far up the curve. Where the sender said that it was
	// application-limited, avoid takes that time out.
	if inFlight == bytes && !c.epoch.IsZero() && c.frozen.IsZero() && c.lastAck.After(c.epoch) {
		c.epoch = c.epoch.Add(max(now.Sub(c.lastAck), 0))
	}
}

func (c *cubic) OnAck(a Ack) {
	c.lastAck = a.Now
	// RFC 9406 §4.2 reads the delay from every ACK, also from those that do
	// not grow the window, but only in the first slow start.
	exit := math.IsInf(c.ssthresh, 1) && c.hystart.onAck(&a)
	if a.AppLimited && !c.epoch.IsZero() && c.frozen.IsZero() {
		c.frozen = a.Now
	}
	if c.mayGrow(&a) {
		if c.slowStart() {
			c.slowStartGrow(c.hystart.growth(float64(a.Bytes)))
		} else {
			c.avoid(&a)
		}
	}
	if exit {
		// §4.10: no loss has shown where the plateau is.
		c.ssthresh = c.cwnd
		c.curve = curve{}
	}
}

// avoid is one ACK in congestion avoidance (RFC 9438 §4.2 to §4.5).
func (c *cubic) avoid(a *Ack) {
	if !c.frozen.IsZero() {
		c.epoch = c.epoch.Add(max(a.Now.Sub(c.frozen), 0))
		c.frozen = time.Time{}
	}
	if c.epoch.IsZero() {
		c.epoch = a.Now
		c.wEst = c.cwnd
		if c.wMax <= c.cwnd { // §4.8, §4.10: and K = 0
			c.wMax = c.cwnd
		}
		c.k = math.Cbrt((c.wMax - c.cwnd) / c.mss / cubicC)
	}
	t := max(a.Now.Sub(c.epoch), 0).Seconds()

	// One ACK may cover many segments, yet never counts for more than the
	// window that it acknowledges.
	share := min(float64(a.Bytes)/c.cwnd, 1)
	c.wEst = min(c.wEst+renoAlpha*c.mss*share, maxWindow)

	if c.at(t) < c.wEst {
		// Reno-friendly region. The window may already be ahead of the
		// estimate, because the target below looks one RTT ahead.
		c.set(max(c.cwnd, c.wEst))
		return
	}
	target := min(max(c.at(t+a.SmoothedRTT.Seconds()), c.cwnd), 1.5*c.cwnd)
	c.set(c.cwnd + (target-c.cwnd)*share)
}

// at is W_cubic(t), figure 1 of RFC 9438.
func (c *cubic) at(t float64) float64 {
	d := t - c.k
	return cubicC*d*d*d*c.mss + c.wMax
}

func (c *cubic) OnLoss(l Loss) {
	c.reduce(l.Now, l.LargestSentTime)
	c.lost += l.Packets
	if l.Persistent {
		c.collapse()
		c.curve = curve{} // §4.8: the next avoidance starts where slow start ends
	}
}

func (c *cubic) OnECN(now, sentTime time.Time) {
	if c.reduce(now, sentTime) {
		c.lost++ // a CE mark cannot turn out to be spurious
	}
}

// reduce is the multiplicative decrease (RFC 9438 §4.6) with fast convergence
// (§4.7), once per recovery period. It takes cwnd for the flight size, which
// is allowed because an underused window does not grow.
func (c *cubic) reduce(now, sent time.Time) bool {
	if !c.startsPeriod(now, sent) {
		return false
	}
	c.undo.cwnd, c.undo.ssthresh, c.undo.curve = c.cwnd, c.ssthresh, c.curve
	plateau := c.cwnd
	if c.cwnd < c.wMax {
		plateau = c.cwnd * (1 + cubicBeta) / 2
	}
	c.curve = curve{wMax: plateau}
	c.set(c.cwnd * cubicBeta)
	c.ssthresh = c.cwnd
	return true
}

func (c *cubic) OnSpurious(s Spurious) {
	if c.allSpurious(&s) && c.cwnd < c.undo.cwnd { // §4.9.2
		c.cwnd, c.ssthresh, c.curve = c.undo.cwnd, c.undo.ssthresh, c.undo.curve
	}
}

func (c *cubic) Window() int               { return int(c.cwnd) }
func (c *cubic) InSlowStart() bool         { return c.slowStart() }
func (c *cubic) SetDatagramSize(bytes int) { c.setDatagramSize(bytes) }
