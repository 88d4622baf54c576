package quic

import "time"

const (
	// readerLate is how long nobody has read when the reader counts as late. The socket's
	// buffer is full after some 10 ms.
	readerLate = 500 * time.Microsecond

	// helpedReads bounds the batches that a connection's goroutine reads in a row: all that
	// the socket's buffer holds, but not for ever.
	helpedReads = 16
)

// help hands over what has arrived if the reader is late. It is for a connection's
// goroutine, holding no lock, and does not wait.
//
// Goroutines have no priorities: where a thousand connections are busy the reader waits
// behind all that are runnable when it has slept, or has used up its time, and that is longer
// than the socket's buffer lasts. What is lost then is lost at random, so that some
// connections get several times what others get, and all of it is sent twice. So the
// connections' goroutines, which are the ones that it waits for, read in its place.
func (r *reading) help(now time.Time) {
	if !r.able || r.state.Load() != atReader {
		return
	}
	at, last := int64(now.Sub(r.start)), r.at.Load()
	if at-last < int64(readerLate) || !r.at.CompareAndSwap(last, at) || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	for range helpedReads {
		n := r.sock.ReadNow(r.ms)
		if n == 0 {
			return
		}
		r.batch(n, nil)
	}
}
