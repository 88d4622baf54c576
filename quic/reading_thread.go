package quic

import (
	"runtime"
	"sync/atomic"
)

// ownThreads is how many transports have a thread for a caller that sends in bulk, in the
// whole process (see stream.Host.Stay): never more than can run at once, as a thread whose
// goroutine cannot run is of no use to anybody else.
var ownThreads atomic.Int32

// reserve reserves a thread for the caller that sends in bulk, if there is one left. Whoever
// calls it has the right.
func (r *reading) reserve() {
	if most := int32(runtime.GOMAXPROCS(0)); most > 1 && !r.reserved.Load() {
		if ownThreads.Add(1) <= most {
			r.reserved.Store(true)
		} else {
			ownThreads.Add(-1)
		}
	}
}

// unreserve undoes reserve.
func (r *reading) unreserve() {
	if r.reserved.Swap(false) {
		ownThreads.Add(-1)
	}
}

// Stay implements stream.Host. Where two calls send at once nobody stays: they wait for the
// mutex all the time, and to wait is dear for who does.
func (m *monitor) Stay() bool {
	r := m.reads.Load()
	if r == nil || !r.reserved.Load() || r.alone.Load() != (*Conn)(m) {
		return false
	}
	if !r.stays.CompareAndSwap(false, true) {
		r.unreserve()
		return false
	}
	return true
}

// Unstay implements stream.Host. The connection's callers may have lost the right to read since.
func (m *monitor) Unstay() { m.transport.reading.stays.Store(false) }
