package udp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The wait after a refusal that the kernel will not tell the end of.
const (
	minBackoff = time.Millisecond
	maxBackoff = 10 * time.Millisecond
)

// blockage is what Send leaves behind for WaitWritable.
type blockage struct {
	refused  atomic.Bool  // the last send met EAGAIN or ENOBUFS
	pollable atomic.Bool  // it was EAGAIN: the poller tells when it is over
	backoffs atomic.Int32 // waits since the kernel last took something

	mu      sync.Mutex
	polling chan struct{} // closed by the goroutine that polls for everybody; nil: there is none
}

func (k *blockage) blocked(err error) {
	k.pollable.Store(!errors.Is(err, syscall.ENOBUFS))
	k.refused.Store(true)
}

// unblocked stores only on a change, so that senders do not fight for the cache line.
func (k *blockage) unblocked() {
	if k.refused.Load() {
		k.refused.Store(false)
		k.backoffs.Store(0)
	}
}

// WaitWritable waits after ErrBlocked until sending again makes sense. It returns
// nil then, net.ErrClosed if the Conn is closed, or ctx's error. Any number of
// goroutines may wait.
//
// A full socket (EAGAIN) wakes its waiters through the poller. A full device
// queue (ENOBUFS) wakes nobody, and neither does a kernel that calls a socket
// writable and refuses all the same: that takes 1 ms, doubling up to 10 ms while
// nothing is taken, so that a loop of Send and WaitWritable never spins.
func (c *Conn) WaitWritable(ctx context.Context) error {
	if !c.refused.Load() {
		return c.waitEnd(ctx)
	}
	if c.pollable.Load() {
		if now, ok := c.sock.writable(); ok && !now {
			select {
			case <-c.poll():
				return c.waitEnd(ctx)
			case <-c.closed:
			case <-ctx.Done():
			}
			return c.waitEnd(ctx)
		} else if ok && c.backoffs.CompareAndSwap(0, 1) {
			return c.waitEnd(ctx) // room was made meanwhile
		}
	}
	wait := time.NewTimer(min(minBackoff<<min(c.backoffs.Add(1)-1, 8), maxBackoff))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.closed:
	case <-ctx.Done():
	}
	return c.waitEnd(ctx)
}

func (c *Conn) waitEnd(ctx context.Context) error {
	if c.isClosed() {
		return net.ErrClosed
	}
	return ctx.Err()
}

// poll returns a channel that is closed when the kernel has room. One goroutine
// waits for all, and only while somebody is blocked: the wait cannot be called off.
func (c *Conn) poll() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.polling == nil {
		done := make(chan struct{})
		c.polling = done
		go func() {
			if c.sock.awaitWritable() != nil && !c.isClosed() {
				time.Sleep(maxBackoff) // a write deadline of the application's: do not spin on it
			}
			c.mu.Lock()
			c.polling = nil
			c.mu.Unlock()
			close(done)
		}()
	}
	return c.polling
}
