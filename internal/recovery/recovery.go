package recovery

import (
	"math/bits"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

// Space is a packet number space (RFC 9000 §12.3).
type Space uint8

const (
	Initial Space = iota
	Handshake
	App
	NumSpaces
)

// Config is what New needs.
type Config struct {
	IsClient   bool
	Owner      Owner                 // hears of Frames; may be nil if no train carries any
	Controller congestion.Controller // not nil
	Trace      Trace                 // nil: nobody listens
}

// Stats counts over the whole connection.
type Stats struct {
	PacketsSent, BytesSent uint64 // all packets, ACK-only ones too
	PacketsAcked           uint64 // including those once declared lost
	PacketsLost, BytesLost uint64 // in flight when declared lost
	PacketsSpurious        uint64 // declared lost, acknowledged later
	PacketsUnsent          uint64 // refused by the kernel
	PTOs                   uint64 // probe timeouts
	PersistentCongestions  uint64
}

// Recovery is one connection's loss recovery. All its methods are called with
// the connection's mutex held.
type Recovery struct {
	client bool
	owner  Owner
	ctl    congestion.Controller
	trace  Trace

	spaces   [NumSpaces]space
	free     []*Train
	inFlight int
	rtt      RTT
	stats    Stats

	maxAckDelay time.Duration
	confirmed   bool // the handshake is confirmed (RFC 9001 §4.1.2)
	validated   bool // the peer is known to have validated our address
	hsKeys      bool
	amplified   bool // the anti-amplification limit is reached
	blocked     bool // the kernel does not take what we have
	appLimited  bool

	ptoCount  int
	ptoAt     time.Time // when the last probe timeout fired
	touched   time.Time // what the anti-deadlock timer counts from
	firstRTT  time.Time // when the first RTT sample was taken; zero: none yet
	newMinRTT bool      // the next sample starts min_rtt afresh

	ecn ecnPath
}

// space is the recovery state of one packet number space.
type space struct {
	ring         ring
	cursor       int64 // no packet of a place below it is undecided
	next         int64 // number of the next packet
	largestAcked int64 // -1: none
	largestHere  int64 // … of those that left by the path in use
	mixed        bool  // packets left by other paths, too
	skips        skips
	discarded    bool

	eliciting     int       // ack-eliciting packets that are undecided
	lastEliciting time.Time // when the latest ack-eliciting packet left
	lossTime      time.Time // when time makes the next packet lost; zero: none
	probes        int       // ack-eliciting packets due since a probe timeout

	past past
	ecn  ecnSpace
}

// New returns the recovery of a connection that has sent nothing yet.
func New(cfg Config) *Recovery {
	r := &Recovery{
		client:      cfg.IsClient,
		owner:       cfg.Owner,
		ctl:         cfg.Controller,
		trace:       cfg.Trace,
		rtt:         RTT{Smoothed: initialRTT, Var: initialRTT / 2},
		maxAckDelay: defaultDelay,
		validated:   !cfg.IsClient, // RFC 9002 A.8: clients validate the server implicitly
	}
	for i := range r.spaces {
		r.spaces[i].largestAcked, r.spaces[i].largestHere = -1, -1
	}
	return r
}

// NextPN is the number that the next packet of the space gets.
func (r *Recovery) NextPN(sp Space) int64 { return r.spaces[sp].next }

// LargestAcked is the largest number acknowledged in the space; -1: none.
func (r *Recovery) LargestAcked(sp Space) int64 { return r.spaces[sp].largestAcked }

// Skip burns NextPN. An ACK for it proves that the peer acknowledges what it
// has not received (RFC 9000 §21.4).
func (r *Recovery) Skip(sp Space) {
	s := &r.spaces[sp]
	s.skips.add(s.next, s.next)
	s.next++
}

// OnSent registers the trains of one flight, in the order in which they leave,
// and numbers them from NextPN. They belong to Recovery from here on. It is
// called just before the system call; Restamp and OnUnsent correct it.
func (r *Recovery) OnSent(sp Space, trains []*Train, now time.Time) {
	s := &r.spaces[sp]
	r.expire(s, now)
	packets, total, bytes, eliciting := 0, 0, 0, 0
	for _, t := range trains {
		t.First, t.Time = s.next, now
		s.next += int64(t.N)
		t.Eliciting &= below(t.N)
		t.InFlight &= below(t.N)
		s.ring.push(t)
		s.mixed = s.mixed || t.Elsewhere

		for i, n := range t.Sizes[:t.N] {
			total += int(n)
			if t.InFlight>>i&1 != 0 {
				bytes += int(n)
			}
		}
		packets += t.N
		eliciting += bits.OnesCount16(t.Eliciting)
		if t.ECT0 {
			s.ecn.sent += uint64(t.N)
			r.ecn.sent += uint64(t.N)
		}
	}
	r.stats.PacketsSent += uint64(packets)
	r.stats.BytesSent += uint64(total)
	if eliciting > 0 {
		s.eliciting += eliciting
		s.lastEliciting, r.touched = now, now
		s.probes = max(s.probes-eliciting, 0)
	}
	if bytes > 0 {
		r.inFlight += bytes
		r.ctl.OnSent(now, bytes, r.inFlight)
	}
}

// OnUnsent takes back packets first..last, which the kernel refused for good
// (EMSGSIZE). Their bytes leave the count of bytes in flight, their owners
// hear that they are lost, their numbers count as skipped. It is no sign of
// congestion.
func (r *Recovery) OnUnsent(sp Space, first, last int64) {
	s := &r.spaces[sp]
	last = min(last, s.next-1)
	for i := s.ring.find(last); i >= s.ring.head; i-- {
		t := s.ring.at(i).train
		if t == nil {
			continue
		}
		if t.last() < first {
			break
		}
		gone := t.span(first, last) & t.undecided()
		if gone == 0 {
			continue
		}
		t.unsent |= gone
		n := bits.OnesCount16(gone)
		r.stats.PacketsUnsent += uint64(n)
		if t.ECT0 {
			s.ecn.sent -= uint64(n)
			r.ecn.sent -= uint64(n)
		}
		r.decide(s, t, gone)
		lo, hi := bits.TrailingZeros16(gone), 15-bits.LeadingZeros16(gone)
		for k := lo; k <= hi; k++ {
			if gone>>k&1 != 0 {
				s.skips.add(t.First+int64(k), t.First+int64(k))
			}
		}
		t.tell(gone, false, r.owner)
		if t.settled() {
			s.ring.settle(i)
			r.recycle(t)
		}
	}
}

// decide takes packets that were undecided until now out of the counts.
func (r *Recovery) decide(s *space, t *Train, mask uint16) (bytes int) {
	bytes = t.bytes(mask)
	r.inFlight -= bytes
	s.eliciting -= bits.OnesCount16(mask & t.Eliciting)
	return bytes
}

// Restamp says that the kernel took packets first..last only now. A train that
// left in parts is cut, for a train has one time.
func (r *Recovery) Restamp(sp Space, first, last int64, now time.Time) {
	s := &r.spaces[sp]
	last = min(last, s.next-1)
	r.cut(s, last+1)
	r.cut(s, first)
	for i := s.ring.find(last); i >= s.ring.head; i-- {
		sl := s.ring.at(i)
		t := sl.train
		if t == nil {
			continue
		}
		if t.last() < first {
			break
		}
		t.Time, sl.time = now, now
		if t.undecided()&t.Eliciting != 0 {
			s.lastEliciting, r.touched = now, now
		}
	}
}

// cut makes packet pn and those after it a train of their own, if it lies
// within one. Where a FIN may lie on either side, it cuts before both.
func (r *Recovery) cut(s *space, pn int64) {
	place := s.ring.find(pn)
	if place < s.ring.head {
		return
	}
	t := s.ring.at(place).train
	if t == nil || pn > t.last() {
		return
	}
	k := int(pn - t.First)
	if fin := t.finMask(); fin != 0 {
		k = min(k, bits.TrailingZeros16(fin))
	}
	if k == 0 {
		return
	}
	u := r.NewTrain()
	t.split(k, u)
	s.ring.insert(place, u)
	s.ring.at(place).acked = t.acked != 0
	s.ring.at(place + 1).acked = u.acked != 0
}

// Discard forgets a space whose keys are gone (RFC 9002 §6.4). Owners hear
// nothing: what they would send again has no keys either.
func (r *Recovery) Discard(sp Space, now time.Time) {
	s := &r.spaces[sp]
	if s.discarded {
		return
	}
	s.discarded = true
	r.forget(s, false)
	s.ring.buf = nil // nothing is sent in this space any more
	s.past.lost = time.Time{}
	// §6.2.2: it is progress, so timers and backoff start afresh.
	r.resetPTO(now)
}

// ResetForRetry forgets everything sent so far, after a Retry or Version
// Negotiation packet: without a sign of congestion, with all Data and Frames
// given back as lost, and with the numbers going on (RFC 9000 §17.2.5.3,
// RFC 9002 §6.3).
func (r *Recovery) ResetForRetry(now time.Time) {
	for i := range r.spaces {
		r.forget(&r.spaces[i], true)
	}
	r.resetPTO(now)
}

// forget empties the ring.
func (r *Recovery) forget(s *space, tell bool) {
	for !s.ring.empty() {
		if t := s.ring.at(s.ring.head).train; t != nil {
			gone := t.undecided()
			r.decide(s, t, gone)
			if tell {
				t.lost |= gone
				t.tell(gone, false, r.owner)
			}
		}
		r.pop(s)
	}
	s.cursor = s.ring.head
	s.lossTime, s.lastEliciting = time.Time{}, time.Time{}
	s.probes = 0
}

// pop takes the oldest train out, whatever its state.
func (r *Recovery) pop(s *space) {
	sl := s.ring.at(s.ring.head)
	s.past.take(sl, r.firstRTT)
	if sl.train != nil {
		r.recycle(sl.train)
	}
	s.ring.pop()
	s.cursor = max(s.cursor, s.ring.head)
}

// expire takes out the oldest trains that nothing more is wanted of. Lost
// packets stay for three PTOs, so that a late ACK finds them.
func (r *Recovery) expire(s *space, now time.Time) {
	if s.ring.empty() {
		return
	}
	keep := 3 * (r.rtt.pto() + r.maxAckDelay)
	for !s.ring.empty() {
		t := s.ring.at(s.ring.head).train
		if t == nil {
			r.pop(s)
			continue
		}
		open := t.undecided()
		if open&t.InFlight != 0 {
			return
		}
		if open != 0 {
			// Nobody has to acknowledge an ACK-only packet. If nobody does
			// for so long, it counts as lost without being a loss.
			if now.Sub(t.Time) < keep {
				return
			}
			t.lost |= open
			r.decide(s, t, open)
			t.tell(open, false, r.owner)
		}
		if t.lost&^t.acked != 0 && now.Sub(t.lostAt) < keep {
			return
		}
		r.pop(s)
	}
}

// Shed gives back the memory that is kept for packets to come. It is for connections
// that rest.
func (r *Recovery) Shed(now time.Time) {
	for i := range r.spaces {
		s := &r.spaces[i]
		r.expire(s, now)
		if s.ring.empty() {
			s.ring.buf = nil
		}
	}
	for _, t := range r.free {
		pool.Put(t)
	}
	r.free = nil
}

// SetMaxAckDelay takes the peer's transport parameter.
func (r *Recovery) SetMaxAckDelay(d time.Duration) { r.maxAckDelay = d }

// SetHandshakeConfirmed lets the application space have its probe timeout.
func (r *Recovery) SetHandshakeConfirmed() { r.confirmed, r.validated = true, true }

// SetPeerAddressValidated says that the peer is known to have validated our
// address. A Handshake ACK and confirmation say so by themselves.
func (r *Recovery) SetPeerAddressValidated() { r.validated = true }

// SetHandshakeKeys says whether Handshake packets can be sent.
func (r *Recovery) SetHandshakeKeys(have bool) { r.hsKeys = have }

// SetAmplificationLimited says whether a server may send nothing before it
// receives more (RFC 9000 §8.1): there is no probe timeout then.
func (r *Recovery) SetAmplificationLimited(limited bool) { r.amplified = limited }

// SetSendBlocked says whether a flight waits for the kernel to take it. There
// is no probe timeout then, since a probe could not leave; Restamp follows
// when it was taken.
func (r *Recovery) SetSendBlocked(blocked bool) { r.blocked = blocked }

// SetAppLimited says whether the sender stopped for want of data or of flow
// control credit, and not because of the window or the pacer (RFC 9002 §7.8).
func (r *Recovery) SetAppLimited(limited bool) { r.appLimited = limited }

// BytesInFlight is what congestion control counts (RFC 9002 §2).
func (r *Recovery) BytesInFlight() int { return r.inFlight }

// RTT is the current estimate. It stays valid and is updated in place.
func (r *Recovery) RTT() *RTT { return &r.rtt }

// Stats is a copy of the counters.
func (r *Recovery) Stats() Stats { return r.stats }

// ECNCapable reports whether packets may go on being marked ECT(0): true
// until validation fails (RFC 9000 §13.4.2).
func (r *Recovery) ECNCapable() bool { return !r.ecn.failed }

// errAck is the answer to an ACK that no honest peer sends.
func errAck(code wire.ErrorCode, reason string) *wire.Error {
	return &wire.Error{Code: code, FrameType: wire.FrameAck, Reason: reason}
}
