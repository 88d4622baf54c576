package sender

import (
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// What becomes due while a bulk writer's flight is on its way to the kernel, and its holder
// of the token has to see to, does not wait for more of that writer, though the rest that it
// leaves behind does.
func TestNothingWaitsWithTheRest(t *testing.T) {
	const size = 64 << 10
	for _, tt := range []struct {
		name string
		due  func(c *conn, other *testStream)
		left func(c *conn) bool
	}{
		{"nothing", func(*conn, *testStream) {}, func(*conn) bool { return true }},
		{"an ACK", func(c *conn, _ *testStream) {
			c.do(func() { c.ackDue, c.ack = true, wire.Ack{Ranges: []wire.AckRange{{Lo: 0, Hi: 9}}} })
		}, func(c *conn) bool { return !c.ackDue }},
		{"MAX_DATA", func(c *conn, _ *testStream) {
			c.do(func() { c.control = append(c.control, due{wire.MaxData{Max: 9}, recovery.Frame{Kind: 7}}) })
		}, func(c *conn) bool { return len(c.control) == 0 }},
		{"another stream's bytes", func(c *conn, other *testStream) {
			other.Write(bytesOf(4, 5, 10))
		}, func(c *conn) bool { return c.streams[4].Unsent() == 0 }},
		{"another stream's FIN", func(c *conn, other *testStream) {
			other.Close()
		}, func(c *conn) bool { return !c.streams[4].HasPending() }},
		{"another stream's loss", func(c *conn, other *testStream) {
			c.do(func() { other.OnLost(0, 5, false) })
		}, func(c *conn) bool { return !c.streams[4].HasPending() }},
		{"a probe", func(c *conn, other *testStream) {
			time.Sleep(time.Second) // in the kernel
			c.do(func() { c.rec.OnTimer(time.Now()) })
		}, func(c *conn) bool { return c.rec.Probes(recovery.App) == 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				s, other := c.open(0, plenty), c.open(4, plenty)
				s.SetWriteBuffer(1<<20, 2<<20)
				other.Write(bytesOf(4, 0, 5))
				synctest.Wait()
				c.send = func(udp.Sending) udp.Verdict {
					c.send = nil
					tt.due(c, other)
					(*host)(c).Wake()
					synctest.Wait() // the connection's goroutine finds the token taken
					return udp.Verdict{}
				}
				if _, err := s.Write(bytesOf(0, 0, size)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // and no time passes
				c.do(func() {
					if !tt.left(c) {
						t.Errorf("it waits; %d bytes are unsent", c.x.Unsent())
					}
					if tt.name == "nothing" && c.x.Unsent() == 0 {
						t.Error("there is no rest that waits: the test tests nothing")
					}
				})
				time.Sleep(lateAfter)
				synctest.Wait()
				c.do(func() {
					if n := c.x.Unsent(); n > 0 {
						t.Errorf("%d bytes wait for ever", n)
					}
				})
				time.Sleep(time.Second)
				c.stop(io.EOF)
			})
		})
	}
}

// A flight that the kernel had refused is taken by it from a writer's goroutine at last, and
// nothing else is to be sent: that it may be lost is known by no timer but the one that is
// set then.
func TestTimerOfHeldFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		full := true
		c.send = func(udp.Sending) udp.Verdict {
			if full {
				full = false
				return udp.Verdict{Err: syscall.ENOBUFS}
			}
			(*host)(c).Wake() // by who waited for the socket
			synctest.Wait()
			return udp.Verdict{}
		}
		c.serve(rtt, nil)
		s := c.open(0, plenty)
		s.SetWriteBuffer(1<<20, 2<<20)
		c.do(func() { c.cc.bytes = 60 * c.x.size })
		write := make(chan bool)
		c.do(func() {
			c.x.waiting = c.sock // as if somebody waited for it still
		})
		go func() {
			s.Write(bytesOf(0, 0, 64<<10)) // held
			<-write
			s.Write(bytesOf(0, 64<<10, 128<<10))
			write <- true
		}()
		synctest.Wait()
		c.do(func() { c.rec.SetSendBlocked(true) })
		time.Sleep(time.Minute) // the timer that was set before has run out
		c.do(func() {
			if c.x.held == nil {
				t.Fatal("the flight is not held")
			}
			c.cc.bytes = 1 // what follows has to wait
			c.x.waiting = nil
		})
		write <- true
		<-write
		synctest.Wait()
		c.do(func() {
			if c.x.held != nil {
				t.Fatal("the flight is held still")
			}
			if due := c.rec.Timer(); due.IsZero() || c.timerAt.IsZero() || c.timerAt.After(due) {
				t.Errorf("the probe is due at %v, and the timer is set to %v", due, c.timerAt)
			}
		})
		c.stop(io.EOF)
	})
}
