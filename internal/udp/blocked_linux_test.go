package udp

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stuffed is a Conn whose socket really is full: one end of a pair of local
// datagram sockets, since the kernel's loopback interface never fills a UDP socket.
// drain makes room. watched makes it a socket as Listen's.
func stuffed(t *testing.T, watched bool) (c *Conn, drain func()) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "full")
	defer f.Close()
	t.Cleanup(func() { unix.Close(fds[1]) })
	pc, err := net.FilePacketConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	raw, err := pc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if watched {
		w, err := watchReads(raw, pc.LocalAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		pc.Close()
		pc, raw = w, w
	}
	c = &Conn{pc: pc, sock: &fastSocket{raw: raw}, closed: make(chan struct{})}
	c.fillUp(t)
	return c, func() {
		for buf := make([]byte, 10); ; {
			if _, err := unix.Read(fds[1], buf); err != nil {
				return
			}
		}
	}
}

func bothKinds(t *testing.T, f func(t *testing.T, watched bool)) {
	t.Run("of package net", func(t *testing.T) { f(t, false) })
	t.Run("of Listen", func(t *testing.T) { f(t, true) })
}

// fillUp sends until the kernel refuses.
func (c *Conn) fillUp(t *testing.T) {
	t.Helper()
	c.sock.(*fastSocket).raw.Control(func(fd uintptr) {
		for range 1_000_000 {
			if _, err := unix.SendmsgN(int(fd), []byte("x"), nil, nil, unix.MSG_DONTWAIT); err == unix.EAGAIN {
				c.blocked(err)
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("never full")
	})
}

func (c *Conn) isPolling() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.polling != nil
}

// A13: whatever the order of waiting and making room, no wake-up is lost.
func TestRoomWakesEverybodyWhoWaits(t *testing.T) {
	bothKinds(t, func(t *testing.T, watched bool) {
		c, drain := stuffed(t, watched)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for round := range 300 {
			if now, ok := c.sock.writable(); now || !ok {
				t.Fatalf("round %d: a full socket is writable: %v, %v", round, now, ok)
			}
			ended := make(chan error)
			for range 3 {
				go func() { ended <- c.WaitWritable(ctx) }()
			}
			if round%2 == 0 {
				for !c.isPolling() && ctx.Err() == nil {
					runtime.Gosched()
				}
			}
			drain()
			for range 3 {
				if err := <-ended; err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			c.unblocked()
			c.fillUp(t)
		}
	})
}

func TestWaitingForAFullSocketEnds(t *testing.T) {
	bothKinds(t, func(t *testing.T, watched bool) {
		c, _ := stuffed(t, watched)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.WaitWritable(ctx) }()
		for !c.isPolling() {
			runtime.Gosched()
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("after cancel: %v", err)
		}
		go func() { ended <- c.WaitWritable(context.Background()) }()
		c.Close()
		if err := <-ended; err != net.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		for c.isPolling() { // the goroutine that polls ends with the socket
			runtime.Gosched()
		}
	})
}

// The poller tells of changes. One that came before it was asked must not be waited for.
func TestRoomMadeBeforehandIsSeen(t *testing.T) {
	bothKinds(t, func(t *testing.T, watched bool) {
		c, drain := stuffed(t, watched)
		drain()
		ended := make(chan error, 1)
		go func() { ended <- c.sock.awaitWritable() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("still waiting for a socket that has room")
		}
	})
}

func TestDetachEndsWaiting(t *testing.T) {
	bothKinds(t, func(t *testing.T, watched bool) {
		c, drain := stuffed(t, watched)
		ended := make(chan error)
		go func() { ended <- c.WaitWritable(context.Background()) }()
		for !c.isPolling() {
			runtime.Gosched()
		}
		c.Detach()
		if err := <-ended; err != net.ErrClosed {
			t.Errorf("after Detach: %v", err)
		}
		drain()
	})
}

// The application's write deadline is none of our business, but must not make us spin. (A
// socket of Listen has none.)
func TestAWriteDeadlineDoesNotSpin(t *testing.T) {
	c, drain := stuffed(t, false)
	if err := c.pc.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 3 {
		if err := c.WaitWritable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if time.Since(start) < 3*maxBackoff { // a lower bound: sleeping longer is fine
		t.Errorf("three waits in %v", time.Since(start))
	}
	drain()
}
