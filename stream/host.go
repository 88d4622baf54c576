package stream

import (
	"context"
	"time"
)

// Host is the connection as a stream sees it.
type Host interface {
	// Lock and Unlock are the monitor's mutex.
	Lock()
	Unlock()

	// Await waits until there is a token in w, which it takes, or until the end of ctx,
	// which may be nil. Called without any lock.
	Await(w *Wake, ctx context.Context)
	// Rouse signals w: at once, or when the monitor is let go. Monitor held.
	Rouse(w *Wake)

	// Stay reports whether a call that writes much is to keep its thread for itself, but
	// while it waits, until it calls Unstay. Monitor held.
	Stay() bool
	// Unstay ends what Stay allowed. Called without any lock.
	Unstay()

	// SendReady says that s has something new to send: bytes, FIN, lost
	// bytes, RESET_STREAM or STREAM_DATA_BLOCKED. Monitor held. It may be
	// called again for a stream that is ready already.
	SendReady(s *Send)
	// PushUnlock is Unlock after a writer added bytes or FIN, or cancelled: the
	// host sends in the caller's goroutine or wakes its own. Monitor held, and not
	// any more when it returns; always after SendReady.
	PushUnlock(s *Send)
	// DataSent says that all bytes and FIN of s have left for the first time (RFC 9000
	// §3.1). Monitor held, called once at most.
	DataSent(s *Send)
	// SendDone says that s has come to its end: all bytes and FIN are
	// acknowledged, or the RESET_STREAM is. Monitor held, called once.
	SendDone(s *Send)

	// BufferRoom is how many more unsent bytes the connection takes over all
	// its streams; a writer waits while it is not positive and its own stream
	// has 4 KiB unsent: so much every stream may have, lest streams that the
	// peer does not read hold up those that it does. Monitor held.
	BufferRoom() int
	// Buffered reports a change of the unsent bytes. When BufferRoom becomes
	// positive again the host calls Wake of its streams. Monitor held.
	Buffered(delta int)

	// RecvUpdate says that r wants MAX_STREAM_DATA or STOP_SENDING sent.
	// Monitor held.
	RecvUpdate(r *Recv)
	// RecvConsumed says that n bytes were read or discarded, which gives the
	// connection's window that much credit back. Monitor held.
	RecvConsumed(n int64)
	// RecvDone says that r has come to its end: all data was read, its reset
	// was, or it was cancelled and its final size is known. Monitor held,
	// called once.
	RecvDone(r *Recv)

	// After runs f soon, without any lock and off the receive path, in the
	// order of the calls. Monitor held.
	After(f func())

	// RTT is the smoothed round-trip time, 0 while unknown. Monitor held.
	RTT() time.Duration
	// Context is the parent of the streams' contexts. Called without any lock.
	Context() context.Context
}
