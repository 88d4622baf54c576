package recovery

import (
	"math/bits"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

// AckResult says what one ACK frame did. The first group is about packets
// that were undecided until now.
type AckResult struct {
	NewlyAcked        bool // there was at least one
	LargestNewlyAcked bool // the frame's largest was one
	Eliciting         bool // an ack-eliciting packet was among them
	AckedPackets      int
	AckedBytes        int // of those in flight

	LostPackets     int // in flight until now
	LostBytes       int
	SpuriousPackets int // declared lost earlier, acknowledged now

	RTTSample  bool // RTT() has changed
	Persistent bool // persistent congestion was established
	CE         bool // the count of CE marks grew, and was believed
	ECNFailed  bool // ECN validation failed now: mark no more packets
}

// OnAck takes an ACK frame in. ackDelay is the frame's, scaled to time but not
// limited yet. Everything is checked before anything is touched: the error is
// a *wire.Error, and the connection must be closed with it. An ACK for a space
// that was discarded does nothing.
//
// Data and Owner are told of the acknowledged before the lost.
func (r *Recovery) OnAck(sp Space, ack *wire.Ack, ackDelay time.Duration, now time.Time) (AckResult, error) {
	s := &r.spaces[sp]
	var res AckResult
	if s.discarded {
		return res, nil
	}
	if err := s.check(ack); err != nil {
		return res, err
	}
	r.expire(s, now)

	largest := ack.Ranges[0].Hi
	raised := largest > s.largestAcked
	s.largestAcked = max(s.largestAcked, largest)
	before := r.inFlight
	a := r.settle(s, ack.Ranges)
	if s.mixed {
		s.largestHere = max(s.largestHere, a.largestHere)
	} else {
		s.largestHere = s.largestAcked
	}
	res.NewlyAcked = a.packets > 0
	res.AckedPackets, res.AckedBytes = a.packets, a.bytes
	res.Eliciting = a.eliciting
	res.LargestNewlyAcked = res.NewlyAcked && a.largest == largest
	res.SpuriousPackets = a.late
	if a.spurious != nil {
		r.traceSpurious(sp, &a, largest, now)
	}
	if a.packets+a.late == 0 {
		return res, nil
	}
	r.stats.PacketsAcked += uint64(a.packets + a.late)
	r.stats.PacketsSpurious += uint64(a.late)

	// RFC 9002 §5.1.
	var sample time.Duration
	if res.LargestNewlyAcked && a.eliciting {
		sample = r.sample(now.Sub(a.largestTime), ackDelay, now)
		res.RTTSample = sample > 0
	}
	if raised {
		ce, ok := r.validateECN(s, ack, a.ect0)
		res.ECNFailed = !ok
		if ce && res.LargestNewlyAcked {
			res.CE = true
			r.ctl.OnECN(now, a.largestTime) // RFC 9002 B.7
		}
	}

	loss := r.detectLost(sp, now)
	res.LostPackets, res.LostBytes, res.Persistent = loss.Packets, loss.Bytes, loss.Persistent
	res.ECNFailed = r.allMarkedLost() || res.ECNFailed
	if a.late > 0 {
		r.ctl.OnSpurious(congestion.Spurious{Now: now, Packets: a.late, SentTime: a.lateTime})
	}
	if a.bytes > 0 {
		event := congestion.Ack{
			Now:             now,
			Bytes:           a.bytes,
			InFlightBefore:  before,
			LargestSentTime: a.largestTime,
			LargestPN:       -1,
			SentPN:          s.next - 1,
			RTT:             sample,
			MinRTT:          r.rtt.Min,
			SmoothedRTT:     r.rtt.Smoothed,
			AppLimited:      r.appLimited,
		}
		if sp == App {
			event.LargestPN = s.largestAcked
		}
		r.ctl.OnAck(event)
	}

	if sp == Handshake {
		r.validated = true // RFC 9002 A.8
	}
	// §6.2.1: a client that may still be unvalidated keeps backing off.
	if r.validated {
		r.resetPTO(now)
	} else {
		r.touched = now
	}
	r.expire(s, now)
	return res, nil
}

// check refuses ACKs that no honest peer sends.
func (s *space) check(ack *wire.Ack) error {
	if len(ack.Ranges) == 0 {
		return errAck(wire.FrameEncodingError, "ACK without ranges")
	}
	for i, rg := range ack.Ranges {
		if rg.Lo < 0 || rg.Lo > rg.Hi || i > 0 && rg.Hi >= ack.Ranges[i-1].Lo {
			return errAck(wire.FrameEncodingError, "ACK ranges do not descend") // RFC 9000 §19.3.1
		}
	}
	if ack.Ranges[0].Hi >= s.next { // RFC 9000 §13.1
		return errAck(wire.ProtocolViolation, "ACK of a packet that was not sent")
	}
	if s.skips.named(ack.Ranges) { // RFC 9000 §21.4
		return errAck(wire.ProtocolViolation, "ACK of a packet number that was skipped")
	}
	return nil
}

// acked sums up what an ACK newly acknowledged.
type acked struct {
	packets, bytes int
	eliciting      bool
	largest        int64 // number and time of the largest that left by the path in use
	largestTime    time.Time
	ect0           uint64 // marked ones, late ones among them
	largestHere    int64  // as largest, late ones among them

	late     int // declared lost earlier
	lateTime time.Time
	spurious []spurious // … one by one, if somebody wants to know
}

// settle walks the trains that the ranges cover and that are not settled yet.
func (r *Recovery) settle(s *space, ranges []wire.AckRange) acked {
	a := acked{largest: -1, largestHere: -1}
	q := &s.ring
	if q.empty() {
		return a
	}
	oldest := q.at(q.head).first
	for _, rg := range ranges {
		if rg.Hi < oldest {
			break
		}
		for i := q.live(q.find(rg.Hi)); i >= q.head; i = q.live(i - 1) {
			sl := q.at(i)
			t := sl.train
			if t.last() < rg.Lo {
				break
			}
			if news := t.span(rg.Lo, rg.Hi) &^ t.acked; news != 0 {
				sl.acked = true
				a.add(r, s, t, news)
				if t.settled() {
					q.settle(i)
					r.recycle(t)
				}
			}
		}
	}
	return a
}

func (a *acked) add(r *Recovery, s *space, t *Train, news uint16) {
	late := news & t.lost
	fresh := news &^ late
	t.acked |= news
	if t.ECT0 {
		n := uint64(bits.OnesCount16(news))
		a.ect0 += n
		if !t.Elsewhere {
			r.ecn.acked += n
		}
	}
	// Ranges and trains come in descending order.
	if a.largestHere < 0 && !t.Elsewhere {
		a.largestHere = t.First + int64(15-bits.LeadingZeros16(news))
	}
	if fresh != 0 {
		if a.largest < 0 && !t.Elsewhere {
			a.largest = t.First + int64(15-bits.LeadingZeros16(fresh))
			a.largestTime = t.Time
		}
		a.packets += bits.OnesCount16(fresh)
		a.bytes += r.decide(s, t, fresh)
		a.eliciting = a.eliciting || fresh&t.Eliciting != 0
	}
	// Only what was in flight was ever reported as lost.
	if n := bits.OnesCount16(late & t.InFlight); n > 0 && !t.Probe && !t.Elsewhere {
		a.late += n
		a.lateTime = t.Time // descending order: ends with the earliest
		if r.trace != nil {
			a.noteSpurious(t, late&t.InFlight)
		}
	}
	t.tell(news, true, r.owner)
}

// sample takes an RTT measurement in and returns it, 0 if it is not to be believed.
func (r *Recovery) sample(latest, ackDelay time.Duration, now time.Time) time.Duration {
	if r.confirmed {
		ackDelay = min(ackDelay, r.maxAckDelay)
	} else if ackDelay > granularity && (!r.rtt.Has || latest-ackDelay < r.rtt.Min) {
		// §5.3: "MAY ignore RTT samples if adjusting the RTT sample for acknowledgment
		// delay causes the sample to be less than the min_rtt", which it does whenever it
		// is the first. The ACKs of the handshake are not held back, but sent again, with
		// every packet: if the first one was lost, the next may come seconds later.
		return 0
	}
	if r.newMinRTT { // §5.2: after persistent congestion
		r.rtt.Min, r.newMinRTT = max(latest, 1), false
	}
	r.rtt.sample(latest, ackDelay)
	if r.firstRTT.IsZero() {
		r.firstRTT = now
	}
	return r.rtt.Latest
}
