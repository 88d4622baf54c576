package scheduler

import (
	"math/bits"

	"github.com/volley-quic/volley/emit"
)

// Option changes what New makes.
type Option func(*rfc9218)

// Quantum sets how many datagrams a stream sends in its turn while others of
// its urgency wait: 1 interleaves as finely as possible, emit.MaxDatagrams lets whole
// passes through. n is clipped to 1..emit.MaxDatagrams. Without Quantum it is
// emit.MaxDatagrams, and more where [Turner] says so.
func Quantum(n int) Option {
	return func(s *rfc9218) { s.quantum, s.fixed = min(max(n, 1), emit.MaxDatagrams), true }
}

// New returns the scheduler that the package comment describes. No method
// allocates, but when the first stream of an urgency is ready. Next, Ready, Sent
// and SetPriority take constant time, as long as no non-incremental stream leaves
// its line; that takes time logarithmic in the length of the line, amortised.
// FlightEnd takes constant time for each entry that was passed over.
func New(opts ...Option) Scheduler {
	s := &rfc9218{quantum: emit.MaxDatagrams}
	for _, o := range opts {
		o(s)
	}
	return s
}

type rfc9218 struct {
	quantum int                     // what a turn is worth
	fixed   bool                    // … by Quantum
	levels  [LeastUrgent + 1]*level // nil: nobody was ever ready there
	busy    uint8                   // bit u: level u can name somebody
	skipped list                    // all levels, in the order in which they were passed over
}

// level holds the ready entries of one urgency.
type level struct {
	// ring holds whoever takes turns, the next one first: the incremental
	// entries and, always, line.
	ring list
	// line stands for all non-incremental entries. It stays in the ring, and
	// keeps its used count, while there are none: a non-incremental stream that
	// comes and goes has the line's turns, not a fresh one each time.
	line Entry
	heap heap // the non-incremental entries
}

func (s *rfc9218) level(urgency uint8) *level {
	if s.levels[urgency] == nil {
		l := new(level)
		l.ring.pushBack(&l.line)
		s.levels[urgency] = l
	}
	return s.levels[urgency]
}

func (l *level) busy() bool { return l.ring.n > 1 || l.heap.min != nil }

// turn returns whose turn it is, an incremental entry or the line, and whether
// it has nobody to share with. The level must be busy.
func (l *level) turn() (e *Entry, alone bool) {
	e = l.ring.first
	if l.heap.min != nil {
		return e, l.ring.n == 1
	}
	if e == &l.line {
		e = e.next // the line has nobody to send, but its turn is not used up
	}
	return e, l.ring.n == 2
}

func (s *rfc9218) Next() (*Entry, int) {
	if s.busy == 0 {
		return nil, 0
	}
	l := s.levels[bits.TrailingZeros8(s.busy)]
	e, alone := l.turn()
	if alone {
		e.used = 0
	}
	left := max(s.quantum-e.used, 1) // the turn may have become shorter
	if e == &l.line {
		e = l.heap.min
	}
	return e, left
}

func (s *rfc9218) Ready(e *Entry) {
	if e.state == idle {
		s.attach(e)
	}
}

func (s *rfc9218) Sent(e *Entry, datagrams int, more bool) {
	if datagrams > 0 {
		s.charge(e, datagrams)
	}
	switch {
	case !more:
		s.Idle(e)
	case datagrams <= 0 && e.state == ready:
		s.detach(e)
		e.state = skipped
		s.skipped.pushBack(e)
	}
}

// charge counts n datagrams against e's turn, or the line's, and ends the turn
// when it is used up.
func (s *rfc9218) charge(e *Entry, n int) {
	l := s.level(e.urgency)
	if !e.incremental {
		// Also if e left meanwhile: the bytes went out in the line's turn.
		if l.line.used += n; l.line.used >= s.quantum {
			l.line.used = 0
			l.ring.remove(&l.line)
			l.ring.pushBack(&l.line)
		}
		return
	}
	if e.state == idle {
		return
	}
	if e.used += n; e.used >= s.quantum {
		e.used = 0
		s.detach(e)
		s.attach(e)
	}
}

// SetTurn implements Turner.
func (s *rfc9218) SetTurn(datagrams int) {
	if !s.fixed {
		s.quantum = max(datagrams, emit.MaxDatagrams)
	}
}

func (s *rfc9218) FlightEnd() {
	for s.skipped.first != nil {
		// Last first, each before its equals: so the order among those passed
		// over stays what it was.
		e := s.skipped.first.prev
		s.detach(e)
		s.attach(e)
		if e.incremental {
			s.level(e.urgency).ring.first = e
		}
	}
}

func (s *rfc9218) Idle(e *Entry) {
	s.detach(e)
	e.used = 0
}

func (s *rfc9218) SetPriority(e *Entry, urgency int8, incremental bool) {
	u := uint8(min(max(urgency, 0), LeastUrgent))
	if u == e.urgency && incremental == e.incremental {
		return // it must not cost a stream its turn
	}
	in := e.state != idle
	s.Idle(e)
	e.urgency, e.incremental = u, incremental
	if in {
		s.attach(e)
	}
}

// attach puts e, which is in no list, behind its equals or into the line.
func (s *rfc9218) attach(e *Entry) {
	e.state = ready
	l := s.level(e.urgency)
	if e.incremental {
		l.ring.pushBack(e)
	} else {
		l.heap.push(e)
	}
	s.busy |= 1 << e.urgency
}

// detach takes e out of wherever it is and leaves its used count alone.
func (s *rfc9218) detach(e *Entry) {
	l := s.level(e.urgency)
	switch {
	case e.state == idle:
		return
	case e.state == skipped:
		s.skipped.remove(e)
	case e.incremental:
		l.ring.remove(e)
	default:
		l.heap.remove(e)
	}
	e.state = idle
	if !l.busy() {
		s.busy &^= 1 << e.urgency
	}
}
