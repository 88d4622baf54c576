package quic

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// shared is the time that the connections which send divide among themselves. It is
	// what the runtime gives a goroutine before it thinks of others, and what one that
	// sends alone has.
	shared = 10 * time.Millisecond

	// sharePeriod is how long a connection counts among those that send.
	sharePeriod = 100 * time.Millisecond
)

// share sees to it that all connections of a Transport send, and none of them for long.
//
// Writers send in their own goroutines, and a writer that is let go on for 10 ms sends
// megabytes. Where a thousand do that one after the other, each has its turn after seconds,
// what it has in flight by then says nothing of what the path takes, and its congestion
// window grows with it: the losses that end that hit some and spare others, which have a
// multiple of the rate for long.
type share struct {
	period atomic.Int64 // its number
	these  atomic.Int32 // connections that have sent in it
	those  atomic.Int32 // and in the one before
}

// myShare is what share knows of one connection.
type myShare struct {
	period atomic.Int64 // the last in which it has sent, from 1 on
	turn   atomic.Int64 // when its latest turn began, in nanoseconds since the Transport's start
}

// next comes after flights in the goroutine of a writer, which holds no lock: if its turn is
// over, others that can run do so first. It is at after start.
func (s *share) next(my *myShare, start time.Time, at time.Duration) {
	n := s.senders(my, at)
	if n > 1 && at-time.Duration(my.turn.Load()) >= shared/time.Duration(n) {
		runtime.Gosched()
		my.turn.Store(int64(time.Since(start)))
	}
}

// senders is how many connections send, my own included.
func (s *share) senders(my *myShare, at time.Duration) int {
	period := int64(at/sharePeriod) + 1
	if last := s.period.Load(); period > last && s.period.CompareAndSwap(last, period) {
		n := s.these.Swap(0)
		if period > last+1 {
			n = 0 // nobody has sent for a while
		}
		s.those.Store(n)
	}
	if last := my.period.Load(); period > last && my.period.CompareAndSwap(last, period) {
		s.these.Add(1)
	}
	return int(max(s.these.Load(), s.those.Load(), 1))
}
