package udp

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// refuse makes every send fail by err until the returned function is called.
func refuse(c *Conn, err error) (allow func()) {
	Inject(c, &Hook{Send: func(Sending) Verdict { return Verdict{Err: err} }})
	return func() { Inject(c, nil) }
}

// A19: who sends and waits in a loop gets a turn now and then, not all the time, and
// goes on soon after the kernel has room again.
func TestWaitingBacksOff(t *testing.T) {
	ms := func(ns ...int) (ds []time.Duration) {
		for _, n := range ns {
			ds = append(ds, time.Duration(n)*time.Millisecond)
		}
		return ds
	}
	for _, errno := range []syscall.Errno{syscall.ENOBUFS, syscall.EAGAIN} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := memoryPair()
				c := wrap(t, a)
				r := &Route{RemoteAddr: memoryAddr("b")}
				if err := c.WaitWritable(t.Context()); err != nil {
					t.Fatal(err) // nothing to wait for
				}
				allow := refuse(c, errno)
				for range 2 { // what was learnt is forgotten once something leaves
					var waits []time.Duration
					for range 8 {
						if sent, err := c.Send(r, []byte("x"), 0, NotECT); sent != 0 || err != ErrBlocked {
							t.Fatalf("sent %d, %v", sent, err)
						}
						start := time.Now()
						if err := c.WaitWritable(t.Context()); err != nil {
							t.Fatal(err)
						}
						waits = append(waits, time.Since(start))
					}
					if want := ms(1, 2, 4, 8, 10, 10, 10, 10); !slices.Equal(waits, want) {
						t.Errorf("waited %v, want %v", waits, want)
					}
					allow()
					if sent, err := c.Send(r, []byte("x"), 0, NotECT); sent != 1 || err != nil {
						t.Fatalf("sent %d, %v", sent, err)
					}
					start := time.Now()
					if err := c.WaitWritable(t.Context()); err != nil || time.Since(start) != 0 {
						t.Errorf("waited %v after a send that worked: %v", time.Since(start), err)
					}
					refuse(c, errno)
				}
			})
		})
	}
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := memoryPair()
		c := wrap(t, a)
		refuse(c, syscall.ENOBUFS)
		if _, err := c.Send(&Route{RemoteAddr: memoryAddr("b")}, []byte("x"), 0, NotECT); err != ErrBlocked {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.WaitWritable(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("after cancel: %v", err)
		}
		start := time.Now()
		go func() { ended <- c.WaitWritable(context.Background()) }()
		synctest.Wait()
		c.Close()
		if err := <-ended; err != net.ErrClosed || time.Since(start) != 0 {
			t.Errorf("after Close: %v", err)
		}
		if err := c.WaitWritable(context.Background()); err != net.ErrClosed {
			t.Errorf("on a closed Conn: %v", err)
		}
	})
}
