package quic

import (
	"time"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

const (
	// maxAckDelay is how long an acknowledgement may wait (RFC 9000 §13.2.1), and what
	// we tell the peer of it.
	maxAckDelay = 25 * time.Millisecond

	ackDelayExponent = wire.DefaultAckDelayExponent

	// maxAckRanges bounds what is remembered, and told, of a space's packets (RFC
	// 9000 §13.2.3). A packet below all of them counts as a duplicate.
	maxAckRanges = 32

	// untoldRanges is how many of them may wait for an ACK that tells of them.
	untoldRanges = maxAckRanges / 2
)

// ackState is what one packet number space has received and has yet to acknowledge.
type ackState struct {
	got       spans
	floor     int64 // every number below counts as received
	largest   int64 // -1: none
	largestAt time.Time
	eliciting int       // ack-eliciting packets since the last ACK
	deadline  time.Time // when the ACK is due; zero: it is not
	at        bool      // due at once
	ect0      uint64
	ect1      uint64
	ce        uint64
	lastCE    bool // the latest packet had the mark

	acked int64 // the largest number that an ACK has told of; -1: none
	rules ackRules
}

// ackRules say when an ACK is due: RFC 9000's, until the peer asks for others in an
// ACK_FREQUENCY frame.
type ackRules struct {
	threshold int64         // so many ack-eliciting packets may go without an ACK
	reorder   int64         // this far behind the largest a gap brings an ACK at once; 0: never
	delay     time.Duration // an ACK waits no longer
}

var rfcRules = ackRules{threshold: 1, reorder: 1, delay: maxAckDelay}

func newAckState() ackState { return ackState{largest: -1, acked: -1, rules: rfcRules} }

// seen reports whether packet pn was received before.
func (a *ackState) seen(pn int64) bool { return pn < a.floor || a.got.contains(pn) }

// received takes in packet pn, which seen does not know. immediate makes its
// acknowledgement due at once, as for all packets of the handshake.
func (a *ackState) received(pn int64, at time.Time, eliciting, immediate bool, ecn udp.ECN) {
	if a.largest >= 0 && pn != a.largest+1 && eliciting && a.rules.reorder == 1 {
		// Reordering, or a gap that may be loss: the peer wants to know at once
		// (RFC 9000 §13.2.1).
		immediate = true
	}
	a.got.add(pn, pn)
	if n := len(a.got); n > untoldRanges && a.got[n-untoldRanges].lo > a.acked {
		immediate = true // or some would be forgotten that no ACK has told of
	}
	if len(a.got) > maxAckRanges {
		a.floor = a.got[0].hi + 1
		a.got = append(a.got[:0], a.got[1:]...)
	}
	if pn > a.largest {
		a.largest, a.largestAt = pn, at
	}
	switch ecn {
	case udp.ECT0:
		a.ect0++
	case udp.ECT1:
		a.ect1++
	case udp.CE:
		a.ce++
		// RFC 9000 §13.2.1. A peer that wants few ACKs wants to know where a run of
		// marks begins.
		immediate = immediate || !a.lastCE || a.rules.threshold <= 1
	}
	a.lastCE = ecn == udp.CE
	if !eliciting {
		return
	}
	a.eliciting++
	// At least every second ack-eliciting packet (RFC 9000 §13.2.2), if the peer has not
	// asked for less. The ACK leaves after the batch that it came in, however many packets
	// that brought.
	if int64(a.eliciting) > a.rules.threshold || immediate || a.rules.reorder > 1 && a.gap(pn) {
		a.at = true
	} else if a.deadline.IsZero() {
		a.deadline = at.Add(a.rules.delay)
	}
}

// gap reports whether packet pn, just received, makes an ACK due by the reordering
// threshold: either the peer can declare a packet lost with it, or has already done so
// with pn (draft-ietf-quic-ack-frequency, "Response to Out-of-Order Packets").
func (a *ackState) gap(pn int64) bool {
	if pn <= a.acked-a.rules.reorder {
		return true
	}
	// The first missing number that no ACK has let the peer declare lost.
	missing := max(a.acked-a.rules.reorder+1, a.floor)
	for _, r := range a.got {
		if missing < r.lo {
			break
		}
		missing = max(missing, r.hi+1)
	}
	return a.largest-missing >= a.rules.reorder
}

// obey makes other rules hold, also for what is waiting already.
func (a *ackState) obey(r ackRules) {
	if !a.deadline.IsZero() {
		a.deadline = a.deadline.Add(r.delay - a.rules.delay)
	}
	a.rules = r
}

// due reports whether an ACK should leave now, even alone.
func (a *ackState) due(now time.Time) bool {
	return a.at || !a.deadline.IsZero() && !now.Before(a.deadline)
}

// pending reports whether an ACK frame would tell the peer something it waits for.
func (a *ackState) pending() bool { return a.eliciting > 0 || a.at }

// frame makes the ACK frame, no longer than room bytes, with ranges as its memory.
func (a *ackState) frame(now time.Time, ranges []wire.AckRange, room int) (wire.Ack, bool) {
	ranges = ranges[:0]
	for i := len(a.got) - 1; i >= 0; i-- {
		ranges = append(ranges, wire.AckRange{Lo: a.got[i].lo, Hi: a.got[i].hi})
	}
	f := wire.Ack{Ranges: ranges, Delay: uint64(max(0, now.Sub(a.largestAt).Microseconds())) >> ackDelayExponent}
	if a.ect0|a.ect1|a.ce != 0 {
		f.ECN, f.ECT0, f.ECT1, f.CE = true, a.ect0, a.ect1, a.ce
	}
	for len(f.Ranges) > 1 && f.Len() > room {
		f.Ranges = f.Ranges[:len(f.Ranges)-1]
	}
	return f, len(f.Ranges) > 0 && f.Len() <= room
}

// ackDelay is the delay of an ACK frame, given the ack_delay_exponent of who sent it.
func ackDelay(encoded uint64, exponent int) time.Duration {
	const most = uint64(time.Hour / time.Microsecond)
	return time.Duration(min(encoded<<exponent, most)) * time.Microsecond
}

// sent notes that an ACK frame is on its way.
func (a *ackState) sent() {
	a.eliciting = 0
	a.deadline = time.Time{}
	a.at = false
	a.acked = a.largest
}

// told notes that the peer has seen an ACK of everything up to largest: what it
// knows needs no telling again (RFC 9000 §13.2.4).
func (a *ackState) told(largest int64) {
	i := 0
	for i < len(a.got)-1 && a.got[i].hi < largest {
		i++
	}
	if i > 0 {
		a.got = append(a.got[:0], a.got[i:]...)
		a.floor = max(a.floor, a.got[0].lo)
	}
}
