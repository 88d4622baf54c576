package congestion

import (
	"math"
	"time"
)

// maxWindow keeps windows far inside the integers that a float64 holds
// exactly, whatever a peer acknowledges: 1 TiB.
const maxWindow = 1 << 40

// datagram limits a UDP payload size to what QUIC can work with (RFC 9000 §14
// and §18.2).
func datagram(size int) int { return min(max(size, minDatagramSize), 65527) }

const minDatagramSize = 1200

// initialWindow is RFC 9002 §7.2: ten datagrams, but at most the larger of
// 14,720 bytes and two datagrams.
func initialWindow(datagramSize int) int {
	return min(10*datagramSize, max(14720, 2*datagramSize))
}

// window is what both controllers have in common: the window itself, the slow
// start threshold, and recovery periods (RFC 9002 §7.3), all in bytes.
//
// Sizes are float64 so that growth by fractions of a byte per ACK adds up.
type window struct {
	mss      float64 // current maximum datagram size
	cwnd     float64
	ssthresh float64   // +Inf until something ends the first slow start
	recovery time.Time // start of the latest recovery period; zero: none

	// Packets lost in the latest recovery period less those that turned out
	// to have arrived: when none is left, the period had no cause.
	lost       int
	prevPeriod time.Time // start of the period before
}

func newWindow(datagramSize int) window {
	datagramSize = datagram(datagramSize)
	return window{
		mss:      float64(datagramSize),
		cwnd:     float64(initialWindow(datagramSize)),
		ssthresh: math.Inf(1),
	}
}

// minimum is RFC 9002 §7.2: two datagrams.
func (w *window) minimum() float64 { return 2 * w.mss }

func (w *window) set(cwnd float64) { w.cwnd = min(max(cwnd, w.minimum()), maxWindow) }

func (w *window) slowStart() bool { return w.cwnd < w.ssthresh }

// mayGrow says whether an acknowledgement is one that opens the window: not in
// a recovery period, which ends with the first acknowledged packet that was
// sent after its start (RFC 9002 §7.3.2), and not while the window is
// underused (§7.8).
//
// An ACK frame counts as a whole, by its largest packet. The frame that ends
// a recovery period may thus count some packets from before it.
func (w *window) mayGrow(a *Ack) bool {
	return !a.AppLimited && a.LargestSentTime.After(w.recovery)
}

// slowStartGrow adds newly acknowledged bytes (RFC 9002 §7.3.1), but does not
// run past the threshold however much one ACK covers.
func (w *window) slowStartGrow(bytes float64) {
	w.set(min(w.cwnd+bytes, max(w.ssthresh, w.cwnd)))
}

// startsPeriod says whether a congestion signal about packets sent at sent
// begins a new recovery period, and begins it (RFC 9002 §7.3.2, B.6: at most
// one reduction per round trip).
func (w *window) startsPeriod(now, sent time.Time) bool {
	if !sent.After(w.recovery) {
		return false
	}
	w.prevPeriod, w.recovery, w.lost = w.recovery, now, 0
	return true
}

// collapse is the response to persistent congestion (RFC 9002 §7.6.2, B.8).
func (w *window) collapse() {
	w.cwnd = w.minimum()
	w.recovery, w.prevPeriod, w.lost = time.Time{}, time.Time{}, 0
}

// allSpurious takes late acknowledgements into account and says whether they
// leave the latest recovery period without a single lost packet. Packets of
// earlier periods are not counted: when in doubt, a reduction stands.
func (w *window) allSpurious(s *Spurious) bool {
	if w.lost == 0 || s.SentTime.After(w.recovery) || !s.SentTime.After(w.prevPeriod) {
		return false
	}
	w.lost = max(w.lost-s.Packets, 0)
	return w.lost == 0
}

func (w *window) setDatagramSize(datagramSize int) {
	datagramSize = datagram(datagramSize)
	// RFC 9002 §7.2: nothing has been learnt yet, so the initial window
	// follows the datagram size.
	untouched := w.cwnd == float64(initialWindow(int(w.mss))) && math.IsInf(w.ssthresh, 1)
	w.mss = float64(datagramSize)
	if untouched {
		w.cwnd = float64(initialWindow(datagramSize))
	}
	w.set(w.cwnd)
}
