package sender

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/udp"
)

// A source in place that falls asleep after some flights holds up nobody for longer than it
// may, however urgent its stream is: neither what less urgent streams have at hand, and have
// waited with for more, nor their sources.
func TestUrgentSourceFallsAsleep(t *testing.T) {
	const pace = 2 * time.Millisecond // of flights: slower than anybody waits
	for what, begin := range map[string]func(c *conn, s *testStream) (n int){
		"the rest of a bulk writer's": func(c *conn, s *testStream) (n int) {
			s.Write(bytesOf(4, 0, 60_000))
			return 60_000
		},
		"what a source has given": func(c *conn, s *testStream) (n int) {
			c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Scatter}) })
			src := c.source(s, plenty)
			src.answer = func(k call) (int, error) {
				if len(src.calls) > 2 {
					time.Sleep(10 * time.Second)
				} else {
					n += k.n
				}
				return src.all(k)
			}
			c.start(s, src, 0, -1, false)
			synctest.Wait()
			return n
		},
		"what a source in place gives": func(c *conn, s *testStream) (n int) {
			c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Lend}) })
			c.do(func() { c.cc.bytes = 60_000 })
			c.start(s, c.source(s, 100_000), 0, -1, false)
			synctest.Wait()
			c.do(func() { c.cc.bytes = plenty })
			return 100_000
		},
		"what a source in place gives after it was robbed": func(c *conn, s *testStream) (n int) {
			c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Lend}) })
			src := c.source(s, 100_000)
			src.answer = func(k call) (int, error) {
				if len(src.calls) == 1 {
					time.Sleep(2 * patience)
					// There is room for what it gives, and for no more until that has left.
					c.do(func() { c.cc.bytes = c.rec.BytesInFlight() + 10*c.x.size + 1 })
				}
				return src.all(k)
			}
			c.start(s, src, 0, -1, false)
			synctest.Wait()
			c.open(8, plenty).Write(bytesOf(8, 0, 10))
			time.Sleep(2 * patience)
			synctest.Wait()
			return 100_000
		},
	} {
		for _, m := range modes {
			if m.Mode == emit.Scatter {
				continue
			}
			t.Run(what+", "+name(m), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConn(t, setup{dst: 4})
					c.serve(time.Second, nil)
					urgent, s := c.open(0, plenty), c.open(4, plenty)
					c.do(func() {
						urgent.st.SetTuning(m)
						c.x.SetPriority(urgent.st, 1, false)
					})
					var begun atomic.Bool
					var flights atomic.Int64
					c.send = func(udp.Sending) udp.Verdict {
						if c.peer.bytes(8) > 0 || begun.Load() {
							time.Sleep(pace)
							c.do(func() { c.cc.bytes = plenty })
							flights.Add(1)
						}
						return udp.Verdict{}
					}
					n := begin(c, s)
					begun.Store(true)
					src, asleep, slept := c.source(urgent, plenty), make(chan bool), false
					src.answer = func(k call) (int, error) {
						if flights.Load() > 4 && !slept { // at the beginning of one
							slept = true
							close(asleep)
							time.Sleep(10 * time.Second)
						}
						return src.all(k)
					}
					c.start(urgent, src, 0, -1, false)
					<-asleep
					c.arrives("less urgent", 4, n, false, 10*pace)
					c.stop(io.EOF)
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// What fills a flight does not wait for more, whoever sends: here it came, of another source
// that gives no more for long, while the one that sends had the token.
func TestFullFlightDoesNotWait(t *testing.T) {
	for _, m := range modes {
		if m.Mode != emit.Scatter {
			continue // it keeps the token for a while
		}
		t.Run(name(m), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				s, other := c.open(0, plenty), c.open(4, plenty)
				c.do(func() {
					s.st.SetTuning(m)
					other.st.SetTuning(emit.Tuning{Mode: emit.Scatter})
				})
				other.SetWriteBuffer(0, 1<<20)
				ready := make(chan bool)
				gives := c.source(other, plenty)
				gives.answer = func(k call) (int, error) {
					<-ready
					if len(gives.calls) > 6 {
						time.Sleep(time.Minute)
					}
					return gives.all(k)
				}
				c.start(other, gives, 0, -1, false)
				src := c.source(s, plenty)
				sent := make(chan bool)
				src.answer = func(k call) (int, error) {
					select {
					case <-sent:
						time.Sleep(time.Minute)
					default:
					}
					return src.all(k)
				}
				c.send = func(udp.Sending) udp.Verdict {
					select {
					case <-sent:
					default:
						close(ready)
						time.Sleep(time.Microsecond)
						close(sent)
					}
					return udp.Verdict{}
				}
				c.start(s, src, 0, -1, false)
				c.arrives("a flight", 4, 40*1400, false, lateAfter/5)
				c.stop(io.EOF)
				time.Sleep(time.Hour)
			})
		})
	}
}

// Who is in line for the token behind a source in place does not wait for it for longer than
// it may, though nobody has come since.
func TestInLineBehindASlowSource(t *testing.T) {
	for _, m := range modes {
		if m.Mode == emit.Scatter {
			continue
		}
		t.Run(name(m), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(time.Second, nil)
				slow, s := c.open(0, plenty), c.open(4, plenty)
				c.do(func() {
					slow.st.SetTuning(m)
					s.st.SetTuning(m)
					c.x.take()
				})
				src := c.source(slow, 5000)
				src.answer = func(k call) (int, error) {
					time.Sleep(10 * time.Second)
					return src.all(k)
				}
				c.start(slow, src, 0, -1, false)
				synctest.Wait()
				c.start(s, c.source(s, 5000), 0, -1, false)
				synctest.Wait()
				c.do(c.x.release)
				c.arrives("the next in line", 4, 5000, false, patience)
				time.Sleep(time.Minute)
				c.whole(0, 5000, false)
				c.stop(io.EOF)
				time.Sleep(time.Second)
			})
		})
	}
}

// When the window opens, who is most urgent has the token first. If it is a source in place,
// and slow, the others wait for it no longer than they may.
func TestSlowSourceWhenTheWindowOpens(t *testing.T) {
	for what, begin := range map[string]func(c *conn, s *testStream){
		"a writer": func(c *conn, s *testStream) { s.Write(bytesOf(4, 0, 5000)) },
		"a source in place": func(c *conn, s *testStream) {
			c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Lend}) })
			c.start(s, c.source(s, 5000), 0, -1, false)
		},
	} {
		for _, m := range modes {
			if m.Mode == emit.Scatter {
				continue
			}
			t.Run(what+", "+name(m), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConn(t, setup{dst: 4})
					c.serve(time.Second, nil)
					slow, s := c.open(0, plenty), c.open(4, plenty)
					c.do(func() {
						slow.st.SetTuning(m)
						c.x.SetPriority(slow.st, 1, false)
						c.cc.bytes = 0
					})
					src := c.source(slow, 5000)
					src.answer = func(k call) (int, error) {
						time.Sleep(10 * time.Second)
						return src.all(k)
					}
					c.start(slow, src, 0, -1, false)
					synctest.Wait()
					begin(c, s)
					synctest.Wait()
					c.do(func() { c.cc.bytes = plenty })
					(*host)(c).Wake()
					c.arrives(what, 4, 5000, false, patience)
					time.Sleep(time.Minute)
					c.whole(0, 5000, false)
					c.stop(io.EOF)
					time.Sleep(time.Second)
				})
			})
		}
	}
}
