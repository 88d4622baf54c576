package sender

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// In-place askers, bulk writers and scattering sources share a connection whose window is
// the bottleneck: nobody starves.
func TestShares(t *testing.T) {
	for _, window := range []int{20, 100, 1000} {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.cc.bytes = window * 1452
			c.serve(rtt, nil)
			var streams []*testStream
			for i, tuning := range append(modes, modes...) {
				s := c.open(int64(4*i), plenty)
				streams = append(streams, s)
				c.do(func() { s.st.SetTuning(tuning) })
				if i%5 == 1 {
					go func() {
						for n := int64(0); ; n += 50_000 {
							if _, err := s.Write(bytesOf(s.ID(), n, 50_000)); err != nil {
								return
							}
						}
					}()
					continue
				}
				c.start(s, c.source(s, plenty), 0, -1, false)
			}
			for c.peer.total() < 1_000_000 {
				time.Sleep(time.Millisecond)
			}
			before := make([]int, len(streams))
			for i, s := range streams {
				before[i] = c.peer.bytes(s.ID())
			}
			all := c.peer.total()
			for c.peer.total() < all+5_000_000 {
				time.Sleep(time.Millisecond)
			}
			fair := float64(c.peer.total()-all) / float64(len(streams))
			for i, s := range streams {
				if share := float64(c.peer.bytes(s.ID())-before[i]) / fair; share < 0.6 || share > 1.5 {
					t.Errorf("window of %d: %s has %.2f of its share", window, name(s.st.tuning), share)
				}
			}
			c.stop(io.EOF)
			time.Sleep(time.Second)
		})
	}
}

// When the window is wide most flights are whole, in every mode and with any number of streams:
// how many, who runs first decides. A flight for each pass would have 10 datagrams.
func TestBulkFlightsAreWhole(t *testing.T) {
	for _, tuning := range append(modes, emit.Tuning{}) {
		for _, n := range []int{1, 2, 7} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				for i := range n {
					s := c.open(int64(4*i), plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					if tuning == (emit.Tuning{}) {
						go s.Write(bytesOf(s.ID(), 0, 2_000_000))
						continue
					}
					c.start(s, c.source(s, 2_000_000), 0, -1, false)
				}
				time.Sleep(time.Second)
				for i := range n {
					c.whole(int64(4*i), 2_000_000, false)
				}
				c.do(func() {
					st := c.x.Stats()
					if mean := float64(st.Datagrams) / float64(st.Flights); mean < 20 {
						t.Errorf("%s, %d streams: %.1f datagrams a flight", name(tuning), n, mean)
					}
				})
				c.stop(io.EOF)
				time.Sleep(time.Second)
			})
		}
	}
}

func (p *peer) bytes(id int64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream(id).bytes
}

func (p *peer) total() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.streams {
		n += a.bytes
	}
	return n
}

// arrives fails the test unless stream id has n bytes after d, and not much before it is
// to have them.
func (c *conn) arrives(what string, id int64, n int, fin bool, within time.Duration) {
	c.t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		c.peer.mu.Lock()
		a := c.peer.stream(id)
		ok := a.bytes >= n && (!fin || a.final >= 0)
		c.peer.mu.Unlock()
		if ok {
			return
		}
		if time.Since(start) >= within {
			c.t.Errorf("%s: stream %d has %d bytes of %d, fin %v, after %v", what, id, a.bytes, n, a.final >= 0, within)
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// A lone write on a quiet connection leaves at once; behind a bulk writer's flight the
// bulk writer's own rest may wait for more of it, for half a millisecond, and nothing else
// waits for it.
func TestWhatWaitsForABulkWriter(t *testing.T) {
	bulk := func(t *testing.T) (c *conn, s, other *testStream) {
		c = newConn(t, setup{dst: 4})
		c.serve(rtt, nil)
		s, other = c.open(0, plenty), c.open(4, plenty)
		if _, err := s.Write(bytesOf(0, 0, 60_000)); err != nil {
			t.Fatal(err)
		}
		c.do(func() {
			if c.x.bulk != s.st || c.x.unsent == 0 || c.x.late.IsZero() {
				t.Error("not what this test is about")
			}
		})
		return c, s, other
	}
	for what, f := range map[string]func(c *conn, s, other *testStream){
		"nothing happens": func(c *conn, s, other *testStream) { c.arrives("the rest", 0, 60_000, false, lateAfter) },
		"a word that no more comes": func(c *conn, s, other *testStream) {
			c.do(func() {
				if !c.x.Hasten() {
					t.Error("nothing waits")
				}
			})
			c.x.Run(1)
			c.arrives("the rest", 0, 60_000, false, 0)
			c.do(func() {
				if c.x.Hasten() {
					t.Error("something waits still")
				}
			})
		},
		"a write of its own": func(c *conn, s, other *testStream) {
			time.Sleep(lateAfter / 2)
			s.Write(bytesOf(0, 60_000, 100))
			c.arrives("all", 0, 60_100, false, lateAfter/2)
		},
		"many writes of its own": func(c *conn, s, other *testStream) {
			for i := range 100 {
				s.Write(bytesOf(0, 60_000+int64(i), 1))
				time.Sleep(lateAfter / 10)
				if i == 10 {
					c.arrives("the first of them", 0, 60_000, false, 0)
				}
			}
			c.arrives("all", 0, 60_100, false, lateAfter)
		},
		"a write of another": func(c *conn, s, other *testStream) {
			other.Write(bytesOf(4, 0, 100))
			c.arrives("it", 4, 100, false, 0)
		},
		"FIN": func(c *conn, s, other *testStream) {
			s.Close()
			c.arrives("it", 0, 60_000, true, 0)
		},
		"FIN of another": func(c *conn, s, other *testStream) {
			other.Close()
			c.arrives("it", 4, 0, true, 0)
		},
		"a reset": func(c *conn, s, other *testStream) {
			s.Cancel(1)
			synctest.Wait()
			if !c.peer.wasReset(0) {
				c.t.Error("the reset waits")
			}
		},
		"a source": func(c *conn, s, other *testStream) {
			c.do(func() { other.st.SetTuning(emit.Tuning{Mode: emit.Single}) })
			c.start(other, c.source(other, 5000), 0, -1, false)
			c.arrives("it", 4, 5000, false, 0)
		},
		"a source that scatters": func(c *conn, s, other *testStream) {
			c.start(other, c.source(other, 5000), 0, -1, false)
			c.arrives("it", 4, 5000, false, 0)
		},
		"a control frame": func(c *conn, s, other *testStream) {
			c.do(func() { c.control = append(c.control, due{wire.Ping{}, recovery.Frame{}}) })
			(*host)(c).Wake()
			synctest.Wait()
			c.do(func() {
				if len(c.control) > 0 {
					c.t.Error("the control frame waits")
				}
			})
			c.arrives("the rest", 0, 60_000, false, lateAfter)
		},
		"a loss": func(c *conn, s, other *testStream) {
			pns := c.pns()
			c.acked(pns[1:]...)
			(*host)(c).Wake()
			synctest.Wait()
			c.do(func() {
				if s.HasPending() && !c.x.late.IsZero() {
					c.t.Error("a repair waits")
				}
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s, other := bulk(t)
				f(c, s, other)
				time.Sleep(time.Minute)
				c.do(func() {
					if c.rounds > 200 {
						t.Errorf("%d rounds in a minute", c.rounds)
					}
				})
				c.stop(io.EOF)
				time.Sleep(time.Second)
			})
		})
	}
}

func TestLoneWriteLeavesAtOnce(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	for i := range 100 {
		if _, err := s.Write(bytesOf(0, int64(10*i), 10)); err != nil {
			t.Fatal(err)
		}
		if n := len(c.take()); n != 1 {
			t.Fatalf("write %d: %d datagrams", i, n)
		}
		c.acked(c.pns()...)
	}
}

// Who has sent everything in its own goroutine wakes nobody.
func TestLoneWriteWakesNobody(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	woken := func() bool {
		select {
		case <-c.wake:
			return true
		default:
			return false
		}
	}
	for i := range 10 {
		s.Write(bytesOf(0, int64(10*i), 10))
		if woken() {
			t.Fatalf("write %d woke the connection's goroutine", i)
		}
		c.acked(c.pns()...)
		woken()
	}
	s.Write(bytesOf(0, 100, 10))
	s.Write(bytesOf(0, 110, 10)) // the connection is not quiet any more
	if !woken() {
		t.Error("a write that left nothing behind woke nobody for what it did not send")
	}
}

// A call that sends in bulk pauses between its flights, for others to have their turn. One
// that leaves less than a pass does not, and neither does the connection's goroutine.
func TestBulkPausesBetweenFlights(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	s.Write(bytesOf(0, 0, 10))
	c.acked(c.pns()...)
	if n := c.breaks.Load(); n != 0 {
		t.Errorf("%d breaks for a small write", n)
	}
	s.Write(bytesOf(0, 10, 3*c.x.flightBytes()))
	n := c.breaks.Load()
	if n == 0 {
		t.Error("no break in three flights")
	}
	c.x.Run(1)
	if c.breaks.Load() != n {
		t.Error("a break for a flight of the connection's goroutine")
	}

	for _, m := range modes {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			s := c.open(0, plenty)
			c.do(func() { s.st.SetTuning(m) })
			ended(t, c.start(s, c.source(s, 500_000), 0, -1, false))
			if c.breaks.Load() == 0 {
				t.Errorf("%s: no break in 500 kB", name(m))
			}
			c.stop(io.EOF)
			time.Sleep(time.Second)
		})
	}
}

// A source that goes on wakes nobody between its flights, in any mode, but for what others
// want to send.
func TestSourceWakesNobody(t *testing.T) {
	for _, m := range modes {
		t.Run(name(m), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				s, other := c.open(0, plenty), c.open(4, plenty)
				c.do(func() { s.st.SetTuning(m) })
				woken := func() bool {
					select {
					case <-c.wake:
						return true
					default:
						return false
					}
				}
				flights := 0
				c.send = func(udp.Sending) udp.Verdict {
					flights++
					switch got := woken(); {
					case flights == 6 && !got:
						t.Error("nobody was woken for another stream's bytes")
					case flights != 6 && flights != 1 && got:
						t.Errorf("the goroutine was woken before flight %d", flights)
					}
					if flights == 5 {
						other.Write(bytesOf(4, 0, 10))
						woken() // and finds the token taken
					}
					return udp.Verdict{}
				}
				ch := c.start(s, c.source(s, 1<<20), 0, 1<<20, false)
				synctest.Wait()
				c.acked(c.pns()...)
				o := ended(t, ch)
				if o.n != 1<<20 || o.err != nil {
					t.Errorf("%+v", o)
				}
				if flights < 12 {
					t.Errorf("%d flights only", flights)
				}
			})
		})
	}
}

// bulkWriter is a connection whose stream 0 has a window for all of its writes, of 64 KiB each.
func bulkWriter(t *testing.T) (c *conn, write func(), written func() int) {
	c = newConn(t, setup{dst: 4})
	c.do(func() { c.cc.bytes = 64 << 20 })
	c.serve(rtt, nil)
	s := c.open(0, plenty)
	s.SetWriteBuffer(1<<20, 2<<20)
	off := 0
	write = func() {
		if _, err := s.Write(bytesOf(0, int64(off), 64<<10)); err != nil {
			t.Fatal(err)
		}
		off += 64 << 10
	}
	return c, write, func() int { return off }
}

// Of a bulk writer that comes back in time again and again, only whole flights leave, until
// it does not come back.
func TestSteadyBulkWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, write, written := bulkWriter(t)
		flights := func() (n, datagrams uint64) {
			c.do(func() { n, datagrams = c.x.stats.Flights, c.x.stats.Datagrams })
			return n, datagrams
		}
		for round := range 3 {
			// Its rests come to more than a pass with every second write, and leave, until
			// it is trusted.
			for range 4 * trusted {
				write()
				synctest.Wait()
			}
			before, datagrams := flights()
			for range 50 {
				write()
				synctest.Wait()
			}
			n, d := flights()
			if whole := uint64(segments(c.x.size)); d-datagrams != whole*(n-before) {
				t.Errorf("round %d: %d datagrams in %d flights, want %d in each", round, d-datagrams, n-before, whole)
			}
			c.arrives("the rest", 0, written(), false, lateAfter)
			time.Sleep(time.Second)
			c.do(func() {
				if c.x.returns != 0 {
					t.Errorf("round %d: a writer that did not come back is still trusted", round)
				}
			})
		}
		c.stop(io.EOF)
		time.Sleep(time.Second)
	})
}

// The longer a bulk writer has come back in time, the longer the rest of what it wrote may
// wait for more, and the less often the connection's goroutine is woken to see whether it
// has stayed away: an eighth of that time, up to mostLate.
func TestPatienceGrowsWithABulkWriter(t *testing.T) {
	for writing, want := range map[time.Duration]time.Duration{
		time.Millisecond:       lateAfter,
		16 * time.Millisecond:  2 * time.Millisecond,
		160 * time.Millisecond: mostLate,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, write, written := bulkWriter(t)
			const between = 100 * time.Microsecond
			for begin := time.Now(); time.Since(begin) < writing; time.Sleep(between) {
				write()
			}
			write()
			c.do(func() {
				if got := time.Until(c.x.late); c.x.late.IsZero() || got < want*7/8 || got > want {
					t.Errorf("after %v its rest waits %v, want %v", writing, got, want)
				}
			})
			c.arrives("the rest", 0, written(), false, mostLate)
			c.stop(io.EOF)
			time.Sleep(time.Second)
		})
	}
}

// A writer that came back for a while, and then was away, has not come back for long, also if
// another stream took along the last of what it had written.
func TestPatienceEndsWhileAWriterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, write, written := bulkWriter(t)
		other := c.open(4, plenty)
		for range 10 {
			write()
			time.Sleep(lateAfter / 5)
		}
		write()
		other.Write(bytesOf(4, 0, 1))
		c.arrives("the rest", 0, written(), false, lateAfter)
		time.Sleep(10 * time.Second)
		write()
		c.do(func() {
			if got := time.Until(c.x.late); c.x.late.IsZero() || got > lateAfter {
				t.Errorf("the rest waits %v after a pause, want %v", got, lateAfter)
			}
		})
		c.arrives("the rest", 0, written(), false, lateAfter)
		c.stop(io.EOF)
		time.Sleep(time.Second)
	})
}

// A source's first bytes leave at once, and later ones before the next call takes long.
func TestSlowSourceDelaysNothingItGave(t *testing.T) {
	for _, tuning := range modes {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			s := c.open(0, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, 100_000)
			var given atomic.Int64
			src.answer = func(k call) (int, error) {
				if len(src.calls) > 1 {
					time.Sleep(time.Minute)
				}
				n, err := min(k.n, 1000), error(nil)
				given.Add(int64(n))
				return n, err
			}
			c.start(s, src, 0, -1, false)
			at := time.Duration(0)
			if tuning.Mode != emit.Scatter {
				at = 2 * patience // they lie in a flight that is robbed
			}
			for range 6 {
				synctest.Wait()
				c.arrives(name(tuning), 0, int(given.Load()), false, at)
				time.Sleep(time.Minute)
			}
			if given.Load() < 4000 {
				t.Errorf("%s: %d bytes", name(tuning), given.Load())
			}
			c.stop(io.EOF)
			time.Sleep(time.Minute)
		})
	}
}

// Field report A13: after anything that stops a send for a while every byte arrives soon.
func TestNoWakeUpIsLost(t *testing.T) {
	const full = 1427 // about what a datagram carries
	for what, f := range map[string]func(c *conn, s *testStream) int{
		"nothing, then a byte": func(c *conn, s *testStream) int {
			s.Write(nil)
			s.Write(bytesOf(0, 0, 1))
			return 1
		},
		"one byte more than a pass": func(c *conn, s *testStream) int {
			s.Write(bytesOf(0, 0, 10*full+1))
			return 10*full + 1
		},
		"a window that opens": func(c *conn, s *testStream) int {
			c.do(func() { c.cc.bytes = 10 * 1452 })
			s.Write(bytesOf(0, 0, 11*full))
			time.Sleep(rtt)
			return 11 * full
		},
		"a pacer": func(c *conn, s *testStream) int {
			c.do(func() { c.pacer.SetRate(20*1452, rtt, false) })
			s.Write(bytesOf(0, 0, 30*full))
			time.Sleep(2 * rtt)
			return 30 * full
		},
		"a pacer that a writer meets": func(c *conn, s *testStream) int {
			c.do(func() { c.pacer.SetRate(60*1452, rtt, false) })
			n := 0
			for range 20 {
				s.Write(bytesOf(0, int64(n), 20_000))
				n += 20_000
			}
			time.Sleep(5 * rtt)
			return n
		},
		"a pacer that a source meets": func(c *conn, s *testStream) int {
			c.do(func() {
				c.pacer.SetRate(60*1452, rtt, false)
				s.st.SetTuning(emit.Tuning{Mode: emit.Single})
			})
			s.st.SendFrom(context.Background(), c.source(s, 100_000), 0, -1, emit.Options{})
			return 100_000
		},
		"credit": func(c *conn, s *testStream) int {
			c.do(func() { c.x.credit = 1000 })
			s.Write(bytesOf(0, 0, 5000))
			c.arrives("what there is credit for", 0, 1000, false, 0)
			c.do(func() {
				if _, blocked := c.x.Credit(); !blocked {
					c.t.Error("not blocked")
				}
				if c.x.SetCredit(1000) || !c.x.SetCredit(5000) {
					c.t.Error("the limit rose, or did not")
				}
				c.x.WakeAskers()
			})
			(*host)(c).Wake()
			return 5000
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				n := f(c, c.open(0, plenty))
				c.arrives(what, 0, n, false, rtt+30*time.Millisecond)
			})
		})
	}
}

// The pacer's time comes for whoever waits for it, without an ACK to help.
func TestPacedSourcesGoOn(t *testing.T) {
	for _, tuning := range append(modes, emit.Tuning{}) {
		for _, n := range []int{1, 2, 5} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.do(func() { c.pacer.SetRate(100*1452, 100*time.Millisecond, false) })
				c.serve(time.Hour, nil)
				for i := range n {
					s := c.open(int64(4*i), plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					c.start(s, c.source(s, 100_000), 0, -1, false)
				}
				// 1.25 windows in 100 ms, and the probe timeout takes a second.
				for i := range n {
					c.arrives(fmt.Sprintf("%s, %d streams", name(tuning), n), int64(4*i), 100_000, false, time.Duration(n)*70*time.Millisecond)
				}
				c.stop(io.EOF)
				time.Sleep(time.Second)
			})
		}
	}
}

// … and after the kernel took k datagrams of ten and no more, for any way to write them.
func TestNoWakeUpIsLostToAFullSocket(t *testing.T) {
	for _, errno := range []error{syscall.EAGAIN, syscall.ENOBUFS} {
		for k := range 10 {
			for i, tuning := range append(modes, emit.Tuning{}) {
				for again := range 3 {
					synctest.Test(t, func(t *testing.T) {
						c := newConn(t, setup{dst: 4})
						c.serve(rtt, nil)
						s, next := c.open(0, plenty), c.open(4, plenty)
						calls := 0
						c.send = func(s udp.Sending) (v udp.Verdict) {
							if calls++; calls <= again+1 {
								v = udp.Verdict{Err: errno, Take: min(k, s.Datagrams()-1)}
							}
							return v
						}
						c.do(func() { s.st.SetTuning(tuning) })
						const n = 10 * 1420
						if i == len(modes) {
							s.CloseWith(bytesOf(0, 0, n))
						} else {
							c.start(s, c.source(s, n), 0, -1, false, emit.End())
						}
						// What is written meanwhile waits in no goroutine.
						if _, err := next.CloseWith(bytesOf(4, 0, 500)); err != nil {
							t.Error(err)
						}
						what := fmt.Sprintf("%v, %d taken, %d times", errno, k, again+1)
						c.arrives(what, 0, n, true, 30*time.Millisecond)
						c.arrives(what, 4, 500, true, 30*time.Millisecond)
						time.Sleep(time.Minute)
						c.do(func() {
							if s := c.rec.Stats(); s.PTOs > 0 || s.PacketsLost > 0 {
								t.Errorf("%s: %+v", what, s)
							}
							if rtt := c.rec.RTT(); rtt.Min != 20*time.Millisecond || rtt.Latest != 20*time.Millisecond {
								t.Errorf("%s: the wait for the socket counts as round-trip time: %+v", what, *rtt)
							}
							if c.rounds > 200 {
								t.Errorf("%s: %d rounds", what, c.rounds)
							}
						})
						c.stop(io.EOF)
						time.Sleep(time.Second)
					})
				}
			}
		}
	}
}

// Field report A19: what cannot be sent now keeps nobody busy.
func TestBlockedSenderIsIdle(t *testing.T) {
	for what, block := range map[string]func(c *conn){
		"a full window":          func(c *conn) { c.do(func() { c.cc.bytes = 0 }) },
		"amplification":          func(c *conn) { c.do(func() { c.amp = 0 }) },
		"a socket":               func(c *conn) { c.send = func(udp.Sending) udp.Verdict { return udp.Verdict{Err: syscall.ENOBUFS} } },
		"connection credit":      func(c *conn) { c.do(func() { c.x.credit = 0 }) },
		"EMSGSIZE":               func(c *conn) { c.send = func(udp.Sending) udp.Verdict { return udp.Verdict{Err: syscall.EMSGSIZE} } },
		"a network that is down": func(c *conn) { c.send = func(udp.Sending) udp.Verdict { return udp.Verdict{Err: syscall.ENETUNREACH} } },
		"nothing":                func(c *conn) {},
	} {
		for i, tuning := range append(modes, emit.Tuning{}) {
			t.Run(fmt.Sprintf("%s, %s", what, name(tuning)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConn(t, setup{dst: 4})
					c.cc.bytes = 100 * 1452
					block(c)
					c.serve(rtt, func(int64) bool { return what == "nothing" })
					s := c.open(0, plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					var ch <-chan outcome
					if i == len(modes) {
						go s.Write(bytesOf(0, 0, 300_000))
					} else {
						ch = c.start(s, c.source(s, 300_000), 0, -1, false)
					}
					time.Sleep(5 * time.Second)
					c.do(func() {
						// ENOBUFS has the socket tried again every 10 ms.
						if c.rounds > 1100 || c.timers > 1100 {
							t.Errorf("%d rounds in 5 s, timer set %d times", c.rounds, c.timers)
						}
					})
					c.do(func() {
						c.cc.bytes, c.amp = plenty, -1
						c.x.SetCredit(plenty)
						c.x.WakeAskers()
					})
					c.stop(io.EOF)
					time.Sleep(time.Minute)
					if ch != nil {
						ended(t, ch)
					}
				})
			})
		}
	}
}
