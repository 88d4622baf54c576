package recovery

import (
	"time"

	"github.com/volley-quic/volley/internal/congestion"
)

// Abandon gives up packets first..last of the application space, which left by a path
// that is not in use any more. Their bytes leave the count of bytes in flight and their
// owners hear that they are lost, so that what they carried goes by the path in use. That
// is no sign of congestion, and a late ACK still withdraws it.
func (r *Recovery) Abandon(first, last int64, now time.Time) {
	s := &r.spaces[App]
	last = min(last, s.next-1)
	if first > last {
		return
	}
	r.cut(s, last+1)
	r.cut(s, first)
	s.mixed = true
	for i := s.ring.find(last); i >= s.ring.head; i-- {
		t := s.ring.at(i).train
		if t == nil {
			continue
		}
		if t.last() < first {
			break
		}
		t.Elsewhere = true
		if gone := t.undecided(); gone != 0 {
			t.lost |= gone
			t.lostAt, t.lostLast = now, 0
			r.decide(s, t, gone)
			t.tell(gone, false, r.owner)
		}
	}
}

// Restart begins anew for another path, by which packets from number first on have left
// already: all before are abandoned, and the controller, the RTT, and the validation of
// ECN marks start from their initial values (RFC 9000 §9.4, §13.4.2). rtt, if there is
// any, is how long the path took to answer: it stands in for the initial RTT, and is no
// sample (RFC 9002 §6.2.2).
func (r *Recovery) Restart(ctl congestion.Controller, first int64, rtt time.Duration, now time.Time) {
	r.Abandon(0, first-1, now)
	if rtt <= 0 {
		rtt = initialRTT
	}
	r.ctl = ctl
	r.rtt = RTT{Smoothed: rtt, Var: rtt / 2}
	r.firstRTT, r.newMinRTT = time.Time{}, false
	r.ecn = ecnPath{}
	s := &r.spaces[App]
	s.past = past{}
	s.ecn.anew = true
	r.resetPTO(now)
}

// InitialPTO is the probe timeout on a path of which nothing is known (RFC 9002 §6.2.2).
func (r *Recovery) InitialPTO() time.Duration {
	rtt := RTT{Smoothed: initialRTT, Var: initialRTT / 2}
	return rtt.pto() + r.maxAckDelay
}
