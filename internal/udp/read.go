package udp

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ReadBatch waits for a message, then takes what else has arrived, up to len(ms).
// The caller owns the Buffers of ms[:n] and releases each. Messages of at most
// 2 KiB come in small buffers, so that a little data kept does not keep 64 KiB.
//
// Errors that are about one datagram (EMSGSIZE, ECONNREFUSED …) do not end it. It
// returns net.ErrClosed when the Conn is closed, os.ErrDeadlineExceeded after the
// read deadline, or an error that leaves the socket of no use.
func (c *Conn) ReadBatch(ms []Message) (n int, err error) {
	if len(ms) == 0 {
		return 0, nil
	}
	for failures := 0; ; {
		if c.isClosed() {
			return 0, net.ErrClosed
		}
		n, err := c.read(ms)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			failures = 0
		case errors.Is(err, net.ErrClosed):
			return 0, net.ErrClosed
		case errors.Is(err, os.ErrDeadlineExceeded) || !isPassing(err):
			return 0, err
		default:
			// An ICMP answer is reported once, a system out of memory as often as it is
			// asked: the former must not cost time, the latter not all of it.
			if failures++; failures > 16 {
				c.pause(min(minBackoff<<min(failures-17, 8), maxBackoff))
			}
		}
	}
}

func (c *Conn) read(ms []Message) (int, error) {
	if h := c.hook.Load(); h != nil && h.Read != nil {
		if err := h.Read(); err != nil {
			return 0, err
		}
	}
	return c.sock.read(ms, &c.stats, c.lock)
}

// SetReadLock lets others read while the reader waits in ReadBatch: ReadBatch locks l
// before it takes messages from the kernel, and returns them with l locked. So whoever has
// l may call ReadNow, and nobody reads before it has done with its messages what is to be
// done in order. SetReadLock comes before the first call of ReadBatch.
func (c *Conn) SetReadLock(l sync.Locker) { c.lock = l }

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// ReadNow is ReadBatch without waiting: it returns 0 if nothing has arrived, and leaves
// every error that lasts to be met by ReadBatch. Where CanReadNow says no, nothing ever has.
// The caller has the lock of SetReadLock, if there is one.
func (c *Conn) ReadNow(ms []Message) (n int) {
	if !c.can.now || len(ms) == 0 || c.isClosed() {
		return 0
	}
	if h := c.hook.Load(); h != nil && h.Read != nil && h.Read() != nil {
		return 0
	}
	n, _ = c.sock.readNow(ms, &c.stats)
	return n
}

// Nap lets less than a tenth of a millisecond pass, so that more arrives: whoever is asleep
// without waiting for the socket need not be woken by those that send to it, which is a large
// part of what a call costs them on the same host. It has no effect where CanReadNow says no.
func (c *Conn) Nap() { c.sock.nap() }

// Watch says whether anybody waits, or will soon, in ReadBatch: there the poller need not
// wake a processor for what arrives. Only sockets of [Listen] heed it. It is called by
// whoever may read.
func (c *Conn) Watch(on bool) {
	if w, ok := c.pc.(interface{ watch(on bool) }); ok {
		w.watch(on)
	}
}

func (c *Conn) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.closed:
	}
}

// isPassing reports whether reading can go on after err: the system reported
// something other than that the socket itself is no good.
func isPassing(err error) bool {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case syscall.EBADF, syscall.ENOTSOCK, syscall.EFAULT, syscall.EINVAL:
			return false
		}
		return true
	}
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}
