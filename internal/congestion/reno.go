package congestion

import "time"

// NewReno returns the controller of RFC 9002 §7 and appendix B.
func NewReno(datagramSize int) Controller {
	return &reno{window: newWindow(datagramSize)}
}

const renoBeta = 0.5 // kLossReductionFactor (RFC 9002 B.1)

type reno struct {
	window
	undoCwnd, undoThresh float64 // before the latest reduction
}

func (r *reno) OnSent(time.Time, int, int) {}

func (r *reno) OnAck(a Ack) {
	if !r.mayGrow(&a) {
		return
	}
	bytes := float64(a.Bytes)
	if r.slowStart() {
		r.slowStartGrow(bytes)
		return
	}
	// §7.3.3: at most one datagram per window acknowledged, also when a
	// single ACK covers more than that.
	r.set(r.cwnd + r.mss*min(bytes/r.cwnd, 1))
}

func (r *reno) OnLoss(l Loss) {
	r.reduce(l.Now, l.LargestSentTime)
	r.lost += l.Packets
	if l.Persistent {
		r.collapse()
	}
}

func (r *reno) OnECN(now, sentTime time.Time) {
	if r.reduce(now, sentTime) {
		r.lost++ // a CE mark cannot turn out to be spurious
	}
}

// reduce is OnCongestionEvent of RFC 9002 B.6.
func (r *reno) reduce(now, sent time.Time) bool {
	if !r.startsPeriod(now, sent) {
		return false
	}
	r.undoCwnd, r.undoThresh = r.cwnd, r.ssthresh
	r.ssthresh = r.cwnd * renoBeta
	r.set(r.ssthresh)
	return true
}

func (r *reno) OnSpurious(s Spurious) {
	if r.allSpurious(&s) && r.cwnd < r.undoCwnd {
		r.cwnd, r.ssthresh = r.undoCwnd, r.undoThresh
	}
}

func (r *reno) Window() int               { return int(r.cwnd) }
func (r *reno) InSlowStart() bool         { return r.slowStart() }
func (r *reno) SetDatagramSize(bytes int) { r.setDatagramSize(bytes) }
