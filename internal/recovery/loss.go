package recovery

import (
	"math/bits"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
)

// PacketThreshold is kPacketThreshold (RFC 9002 §6.1.1): a packet is lost when one with a
// number higher by this has arrived.
const PacketThreshold = 3

// detectLost declares lost what was sent long enough before an acknowledged
// packet, by number or by time (RFC 9002 §6.1), tells the owners and the
// controller, and sets the time at which it must be called again.
func (r *Recovery) detectLost(sp Space, now time.Time) congestion.Loss {
	s := &r.spaces[sp]
	s.lossTime = time.Time{}
	loss := congestion.Loss{Now: now}
	if s.largestHere < 0 {
		return loss
	}
	delay := max(r.rtt.Latest, r.rtt.Smoothed)
	delay = max(delay+delay/8, granularity) // §6.1.2: kTimeThreshold is 9/8
	lostBefore := now.Add(-delay)
	// The thresholds speak of packets, so numbers that were never sent do not
	// count (A.10).
	byNumber := s.skips.back(s.largestHere, PacketThreshold)

	q := &s.ring
	low, high := int64(-1), int64(-1) // places with losses
	for i := s.cursor; i < q.tail; i++ {
		t := q.at(i).train
		if t == nil {
			continue
		}
		if t.First > s.largestHere {
			break
		}
		open := t.undecided() & t.span(t.First, s.largestHere)
		gone := open & t.span(t.First, byNumber)
		if !t.Time.After(lostBefore) {
			gone = open
		}
		if wait := open &^ gone & t.InFlight; wait != 0 && s.lossTime.IsZero() {
			s.lossTime = t.Time.Add(delay) // trains are in order of time
		}
		if gone != 0 {
			if low < 0 {
				low = i
			}
			high = i
			if r.trace != nil {
				r.traceLost(sp, t, gone, !t.Time.After(lostBefore))
			}
			r.lose(s, t, gone, now, &loss)
		}
	}
	for s.cursor < q.tail && (q.at(s.cursor).train == nil || q.at(s.cursor).train.undecided() == 0) {
		s.cursor++
	}
	if loss.Packets > 0 {
		if loss.Persistent = r.persistent(sp, low, high, now); loss.Persistent {
			r.stats.PersistentCongestions++
			r.newMinRTT = true
		}
		r.ctl.OnLoss(loss)
	}
	return loss
}

// lose declares packets of one train lost.
func (r *Recovery) lose(s *space, t *Train, gone uint16, now time.Time, loss *congestion.Loss) {
	t.lost |= gone
	t.lostAt, t.lostLast = now, gone
	bytes := r.decide(s, t, gone)
	if t.ECT0 {
		r.ecn.lost += uint64(bits.OnesCount16(gone))
	}
	if n := bits.OnesCount16(gone & t.InFlight); n > 0 {
		r.stats.PacketsLost += uint64(n)
		r.stats.BytesLost += uint64(bytes)
		if !t.Probe { // RFC 9000 §14.4: too large for the path is not congestion
			loss.Packets += n
			loss.Bytes += bytes
			loss.LargestSentTime = t.Time
		}
	}
	t.tell(gone, false, r.owner)
}
