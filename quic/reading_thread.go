package quic

import "sync/atomic"

// ownThreads is for how many callers that send in bulk a thread is reserved, in the whole
// process (see stream.Host.Stays): there are never more than processors, as a thread whose
// goroutine cannot run is of no use to anybody else.
var ownThreads atomic.Int32

// reserve reserves a thread for the caller that sends in bulk, if there is one left. Whoever
// calls it has the right.
func (r *reading) reserve() {
	if r.threads > 1 && !r.stays.Load() {
		if ownThreads.Add(1) <= r.threads {
			r.stays.Store(true)
		} else {
			ownThreads.Add(-1)
		}
	}
}

// unreserve undoes reserve. Whoever calls it has the right.
func (r *reading) unreserve() {
	if r.stays.Swap(false) {
		ownThreads.Add(-1)
	}
}

// Stays implements stream.Host.
func (m *monitor) Stays() bool {
	r := m.reads.Load()
	return r != nil && r.stays.Load() && r.alone.Load() == (*Conn)(m)
}
