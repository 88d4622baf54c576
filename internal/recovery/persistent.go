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
	begin, _ := ends(sl, firstRTT, time.Time{})
	if sl.acked {
		p.acked = sl.time
		p.lost = time.Time{}
	}
	if begin && p.lost.IsZero() {
		p.lost = sl.time
	}
}

// ends says whether a slot has lost packets that can begin a period of
// persistent congestion, that is, with none above them in the train
// acknowledged, and whether it has some, declared lost just now, that can end
// one, with none below them acknowledged.
func ends(sl *slot, firstRTT, now time.Time) (begin, end bool) {
	t := sl.train
	// §7.6.2: only ack-eliciting packets, sent after the first RTT sample.
	if t == nil || t.Probe || t.Elsewhere || firstRTT.IsZero() || !t.Time.After(firstRTT) {
		return false, false
	}
	lost := t.lost &^ t.acked & t.Eliciting
	var fresh uint16
	if t.lostAt.Equal(now) {
		fresh = lost & t.lostLast
	}
	// Without a bit, zeros are counted up to 16: beyond any packet.
	begin = lost != 0 && bits.LeadingZeros16(lost) < bits.LeadingZeros16(t.acked)
	end = fresh != 0 && bits.TrailingZeros16(fresh) < bits.TrailingZeros16(t.acked)
	return begin, end
}

// persistent says whether the losses just declared, at places low..high of the
// space, establish persistent congestion: two lost packets, further apart in
// time than three PTOs, and nothing acknowledged that was sent between them in
// any space (RFC 9002 §7.6.2).
func (r *Recovery) persistent(sp Space, low, high int64, now time.Time) bool {
	s := &r.spaces[sp]
	// §7.6.1: with the peer's delay, whatever the space.
	duration := persistentThreshold * (r.rtt.pto() + r.maxAckDelay)
	// Going back in time, newest is the last lost packet of a period without
	// acknowledged ones, and floor when other spaces end it.
	var newest, floor time.Time
	for i := high; i >= s.ring.head; i-- {
		sl := s.ring.at(i)
		begin, end := ends(sl, r.firstRTT, now)
		if !newest.IsZero() && !sl.time.After(floor) {
			newest = time.Time{}
		}
		if begin && !newest.IsZero() && newest.Sub(sl.time) > duration {
			return true
		}
		if sl.acked {
			newest = time.Time{}
		}
		if end && newest.IsZero() {
			newest, floor = sl.time, r.ackedElsewhere(sp, sl.time)
		}
		if newest.IsZero() && i <= low {
			return false // what is below was looked at when it was lost
		}
	}
	old := s.past.lost
	return !newest.IsZero() && !old.IsZero() && newest.Sub(old) > duration && old.After(floor)
}

// ackedElsewhere is when the last packet left, by t and in any other space,
// that was acknowledged. For packets out of the ring only the latest is known;
// if that left later than t, the answer is t.
func (r *Recovery) ackedElsewhere(except Space, t time.Time) (last time.Time) {
	later := func(u time.Time) {
		if u.After(last) {
			last = u
		}
	}
	for i := range r.spaces {
		if Space(i) == except {
			continue
		}
		s := &r.spaces[i]
		if s.past.acked.After(t) {
			later(t)
		} else {
			later(s.past.acked)
		}
		for p := s.ring.tail - 1; p >= s.ring.head; p-- {
			if sl := s.ring.at(p); sl.acked && !sl.time.After(t) {
				later(sl.time)
				break
			}
		}
	}
	return last
}
