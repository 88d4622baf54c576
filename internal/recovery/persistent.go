package recovery

import (
	"math/bits"
	"time"
)

// persistentThreshold is kPersistentCongestionThreshold (RFC 9002 §7.6.1).
const persistentThreshold = 3

// past is what trains that left the ring leave behind, so that persistent
// congestion which began with one of them is still recognised.
type past struct {
	lost  time.Time // first lost packet since the last acknowledged one; zero: none
	acked time.Time // when the latest acknowledged packet left
}

func (p *past) take(sl *slot, firstRTT time.Time) {
	above, _ := ends(sl, firstRTT)
	if sl.acked {
		p.acked = sl.time
		p.lost = time.Time{}
	}
	if above && p.lost.IsZero() {
		p.lost = sl.time
	}
}

// ends says whether a slot has lost packets that can begin a period of
// persistent congestion (none above them in the train was acknowledged) or
// end one (none below them was).
func ends(sl *slot, firstRTT time.Time) (begin, end bool) {
	t := sl.train
	// §7.6.2: only ack-eliciting packets, sent after the first RTT sample.
	if t == nil || t.Probe || firstRTT.IsZero() || !t.Time.After(firstRTT) {
		return false, false
	}
	lost := t.lost &^ t.acked & t.Eliciting
	if lost == 0 {
		return false, false
	}
	if t.acked == 0 {
		return true, true
	}
	return bits.LeadingZeros16(lost) < bits.LeadingZeros16(t.acked),
		bits.TrailingZeros16(lost) < bits.TrailingZeros16(t.acked)
}

// persistent says whether the losses just declared, at places low..high of the
// space, establish persistent congestion: two lost packets, further apart in
// time than three PTOs, and nothing acknowledged that was sent between them in
// any space (RFC 9002 §7.6.2).
func (r *Recovery) persistent(sp Space, low, high int64) bool {
	s := &r.spaces[sp]
	// §7.6.1: with the peer's delay, whatever the space.
	duration := persistentThreshold * (r.rtt.pto() + r.maxAckDelay)
	var newest time.Time // the period's last lost packet; zero: none found yet
	for i := high; i >= s.ring.head; i-- {
		sl := s.ring.at(i)
		begin, end := ends(sl, r.firstRTT)
		if begin && !newest.IsZero() && newest.Sub(sl.time) > duration {
			return !r.ackedBetween(sp, sl.time, newest)
		}
		if sl.acked {
			newest = time.Time{}
		}
		if end && newest.IsZero() && i >= low {
			newest = sl.time
		}
		if newest.IsZero() && i <= low {
			return false // what is below was looked at when it was lost
		}
	}
	old := s.past.lost
	return !newest.IsZero() && !old.IsZero() && newest.Sub(old) > duration &&
		!r.ackedBetween(sp, old, newest)
}

// ackedBetween says whether a packet of another space that was sent within
// from..to was acknowledged. In doubt it says yes.
func (r *Recovery) ackedBetween(except Space, from, to time.Time) bool {
	for i := range r.spaces {
		if Space(i) == except {
			continue
		}
		s := &r.spaces[i]
		if !s.past.acked.Before(from) {
			return true
		}
		for p := s.ring.head; p < s.ring.tail; p++ {
			if sl := s.ring.at(p); sl.acked && !sl.time.Before(from) && !sl.time.After(to) {
				return true
			}
		}
	}
	return false
}
