package recovery

import "time"

// ring is a space's trains in packet-number order. Places are counted from the
// beginning of the connection, so that a place stays right while older trains
// leave at the head.
//
// A train goes back to the free list as soon as all its packets are
// acknowledged (or never left); its slot remains, as a step to jump over,
// until everything older is gone too.
type ring struct {
	buf        []slot // length: a power of two, or none
	head, tail int64  // places head..tail-1 are used
}

type slot struct {
	first int64
	train *Train    // nil: settled, and recycled
	time  time.Time // when the packets left, kept for persistent congestion
	acked bool      // at least one of the packets was acknowledged
	skip  int64     // settled: every place above skip and up to this one is settled
}

const minRing = 4 // what an idle connection keeps

// ringKept is how many slots an empty ring keeps: more is a burst's memory.
const ringKept = 1024

func (q *ring) at(place int64) *slot { return &q.buf[place&int64(len(q.buf)-1)] }
func (q *ring) empty() bool          { return q.head == q.tail }

func (q *ring) push(t *Train) {
	if int(q.tail-q.head) == len(q.buf) {
		old := *q
		q.buf = make([]slot, max(2*len(old.buf), minRing))
		for i := old.head; i < old.tail; i++ {
			*q.at(i) = *old.at(i)
		}
	}
	*q.at(q.tail) = slot{first: t.First, train: t, time: t.Time}
	q.tail++
}

// insert puts t just above place, which holds a train.
func (q *ring) insert(place int64, t *Train) {
	q.push(t)
	for i := q.tail - 1; i > place+1; i-- {
		s := q.at(i)
		*s = *q.at(i - 1)
		if s.train == nil && s.skip >= place {
			s.skip++
		}
	}
	*q.at(place + 1) = slot{first: t.First, train: t, time: t.Time}
}

func (q *ring) pop() {
	*q.at(q.head) = slot{}
	q.head++
	if q.empty() && len(q.buf) > ringKept {
		q.buf = nil
	}
}

// settle marks the place as one to jump over.
func (q *ring) settle(place int64) {
	s := q.at(place)
	s.train, s.skip = nil, place-1
}

// find is the highest place whose first number is ≤ pn; head-1 if there is
// none.
func (q *ring) find(pn int64) int64 {
	lo, hi := q.head, q.tail // everything below lo is ≤ pn, from hi on it is > pn
	for lo < hi {
		mid := lo + (hi-lo)/2
		if q.at(mid).first <= pn {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// live is the highest place at or below the given one that still has a train;
// below head if there is none. The steps taken are joined into one, so that
// however often an ACK names what is long settled, passing it is cheap.
func (q *ring) live(place int64) int64 {
	i := place
	for i >= q.head && q.at(i).train == nil {
		i = q.at(i).skip
	}
	for place > i && place >= q.head {
		s := q.at(place)
		place, s.skip = s.skip, i
	}
	return i
}
