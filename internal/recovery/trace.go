package recovery

import "time"

// A Trace hears of single packets, for qlog. Like Owner, it is called with the
// connection's mutex held and must not call back. Where there is none, it costs
// a comparison for each train with losses.
type Trace interface {
	// PacketLost reports an ack-eliciting packet that was declared lost, because
	// of the time since it left or else because of later ones that arrived
	// (RFC 9002 §6.1).
	PacketLost(sp Space, pn int64, byTime, probe bool)

	// SpuriousLoss reports a packet that was declared lost and then acknowledged
	// after all, age after it left, in an ACK whose largest number is by so many
	// packets the later one.
	SpuriousLoss(sp Space, pn, by int64, age time.Duration)
}

// traceLost reports the packets of one train that were declared lost.
func (r *Recovery) traceLost(sp Space, t *Train, gone uint16, byTime bool) {
	for i := range t.N {
		if gone&t.Eliciting>>i&1 != 0 {
			r.trace.PacketLost(sp, t.First+int64(i), byTime, t.Probe)
		}
	}
}

// spurious is a packet of which SpuriousLoss will be told: while an ACK is being
// taken in, trains of which nothing more is wanted are used again.
type spurious struct {
	pn   int64
	sent time.Time
}

func (a *acked) noteSpurious(t *Train, late uint16) {
	for i := t.N - 1; i >= 0; i-- { // descending, as ranges and trains come
		if late>>i&1 != 0 {
			a.spurious = append(a.spurious, spurious{t.First + int64(i), t.Time})
		}
	}
}

func (r *Recovery) traceSpurious(sp Space, a *acked, largest int64, now time.Time) {
	for i := len(a.spurious) - 1; i >= 0; i-- {
		p := a.spurious[i]
		by := largest - p.pn - r.spaces[sp].skips.between(p.pn, largest)
		r.trace.SpuriousLoss(sp, p.pn, by, now.Sub(p.sent))
	}
}

// PacketsInFlight is how many ack-eliciting packets are neither acknowledged nor
// declared lost.
func (r *Recovery) PacketsInFlight() (n int) {
	for i := range r.spaces {
		n += r.spaces[i].eliciting
	}
	return n
}

// PTOCount is how many probe timeouts there were since the last acknowledgement
// (RFC 9002 A.3).
func (r *Recovery) PTOCount() int { return r.ptoCount }

// NextTimer is Timer, and what it is for: a probe timeout, or else a packet of
// the space that becomes lost.
func (r *Recovery) NextTimer() (t time.Time, sp Space, pto bool) {
	if t, sp = r.lossTimer(); !t.IsZero() {
		return t, sp, false
	}
	t, sp = r.ptoTimer()
	return t, sp, true
}

// ECNState is how far the validation of ECN is (RFC 9000 §13.4.2, A.4).
type ECNState uint8

const (
	ECNUnused  ECNState = iota // no packet was marked yet
	ECNTesting                 // marked packets are on their way, none is acknowledged
	ECNCapable                 // the path lets marks through
	ECNFailed
)

// ECN returns the state of ECN validation, and why it failed.
func (r *Recovery) ECN() (state ECNState, why string) {
	switch e := &r.ecn; {
	case e.failed:
		return ECNFailed, e.why
	case e.acked > 0:
		return ECNCapable, ""
	case e.sent > 0:
		return ECNTesting, ""
	}
	return ECNUnused, ""
}
