package recovery

import (
	"math/bits"
	"time"
)

const (
	ptoProbes = 2                // packets sent on a probe timeout (RFC 9002 §6.2.4)
	maxPTO    = 60 * time.Second // backoff ends here
)

// PTO is the space's probe timeout without backoff (RFC 9002 §6.2.1).
func (r *Recovery) PTO(sp Space) time.Duration {
	d := r.rtt.pto()
	if sp == App {
		d += r.maxAckDelay
	}
	return d
}

// Timer is when OnTimer must be called: the earliest time at which a packet
// becomes lost or, if there is none, the probe timeout (RFC 9002 A.8). Zero:
// there is nothing to wait for. It may lie in the past, but only where OnTimer
// makes progress.
func (r *Recovery) Timer() time.Time {
	if t, _ := r.lossTimer(); !t.IsZero() {
		return t
	}
	t, _ := r.ptoTimer()
	return t
}

// lossTimer is the earliest loss time and its space.
func (r *Recovery) lossTimer() (t time.Time, sp Space) {
	for i := range r.spaces {
		if l := r.spaces[i].lossTime; !l.IsZero() && (t.IsZero() || l.Before(t)) {
			t, sp = l, Space(i)
		}
	}
	return t, sp
}

// ptoTimer is the probe timeout and its space (RFC 9002 §6.2).
func (r *Recovery) ptoTimer() (t time.Time, sp Space) {
	// §6.2.2.1: a server that may not send waits for the client, not for
	// time. The same is right when the kernel takes nothing.
	if r.amplified || r.blocked {
		return t, sp
	}
	if r.deadlockRisk() {
		return r.touched.Add(r.backoff(r.rtt.pto())), r.deadlockSpace()
	}
	for i := range r.spaces {
		s := &r.spaces[i]
		if s.eliciting == 0 {
			continue
		}
		if Space(i) == App && !r.confirmed {
			break // §6.2.1: no application probes before confirmation
		}
		// A probe that could not be sent does not make the timer fire again
		// at once.
		from := s.lastEliciting
		if r.ptoAt.After(from) {
			from = r.ptoAt
		}
		if d := from.Add(r.backoff(r.PTO(Space(i)))); t.IsZero() || d.Before(t) {
			t, sp = d, Space(i)
		}
	}
	return t, sp
}

// deadlockRisk: a server that has used up what it may send before it knows our
// address hears from us again only if we send without being asked. So a client
// keeps a timer although nothing is in flight (RFC 9002 §6.2.2.1). Application
// packets do not help: they have no timer yet.
func (r *Recovery) deadlockRisk() bool {
	return r.client && !r.validated && !r.touched.IsZero() &&
		r.spaces[Initial].eliciting == 0 && r.spaces[Handshake].eliciting == 0
}

func (r *Recovery) deadlockSpace() Space {
	if r.hsKeys {
		return Handshake
	}
	return Initial
}

// backoff doubles d for each probe timeout since the last acknowledgement.
func (r *Recovery) backoff(d time.Duration) time.Duration {
	for range r.ptoCount {
		if d >= maxPTO {
			break
		}
		d = min(2*d, maxPTO)
	}
	return d
}

// OnTimer does what is due at now; called early it does nothing. If probe is
// true, a probe timeout fired and Probes says what must be sent, in sp and
// possibly in other spaces.
func (r *Recovery) OnTimer(now time.Time) (probe bool, sp Space) {
	if t, sp := r.lossTimer(); !t.IsZero() {
		if !t.After(now) {
			r.detectLost(sp, now)
			r.allMarkedLost()
			r.expire(&r.spaces[sp], now)
		}
		return false, sp
	}
	t, sp := r.ptoTimer()
	if t.IsZero() || t.After(now) {
		return false, sp
	}
	if r.deadlockRisk() {
		r.spaces[sp].probes = 1
	} else {
		r.spaces[sp].probes = ptoProbes
		// §6.2.4: what else is in flight is worth a packet too, for the peer
		// may have the keys of one space only.
		for i := range r.spaces {
			s := &r.spaces[i]
			if s.eliciting > 0 && s.probes == 0 && (Space(i) != App || r.confirmed) {
				s.probes = 1
			}
		}
	}
	if s := &r.spaces[App]; s.probes > 0 {
		r.repeat(s)
	}
	r.ptoCount++
	r.stats.PTOs++
	r.ptoAt, r.touched = now, now
	return true, sp
}

// repeat has the frames of the oldest packets in flight sent again, for the probes to
// carry them: a PING would only find out that they are lost, which takes one more round
// trip, and on a bad path its answer may not come at all while a client waits in silence
// for HANDSHAKE_DONE. Bytes of streams are left to the sender.
func (r *Recovery) repeat(s *space) {
	left := ptoProbes // packets that have such frames
	for i := s.cursor; i < s.ring.tail && left > 0; i++ {
		t := s.ring.at(i).train
		if t == nil || t.Probe || t.Elsewhere {
			continue
		}
		for open := t.undecided() & t.Eliciting; open != 0 && left > 0; open &= open - 1 {
			found := false
			for j := range t.Extra {
				e := &t.Extra[j]
				if int(e.I) == bits.TrailingZeros16(open) && e.Data == nil && e.Frame.Kind != 0 {
					r.owner.FrameLost(e.Frame)
					found = true
				}
			}
			if found {
				left--
			}
		}
	}
}

// Probes is how many ack-eliciting packets a probe timeout made due in the
// space and OnSent has not seen yet. The congestion window does not hold them
// up (RFC 9002 §7.5).
func (r *Recovery) Probes(sp Space) int { return r.spaces[sp].probes }

// resetPTO ends the backoff.
func (r *Recovery) resetPTO(now time.Time) {
	r.ptoCount = 0
	r.touched = now
	for i := range r.spaces {
		r.spaces[i].probes = 0
	}
}
