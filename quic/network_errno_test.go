package quic

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/udp"
)

// kernel stands between one side's transport and the wire, and answers as a kernel may.
// Its function is called for each system call that sends, with the number of those
// before it.
func kernel(tr *Transport, f func(n int, s udp.Sending) udp.Verdict) {
	var mu sync.Mutex
	n := 0
	udp.Inject(tr.udpConn(), &udp.Hook{Send: func(s udp.Sending) udp.Verdict {
		mu.Lock()
		defer mu.Unlock()
		n++
		return f(n-1, s)
	}})
}

// for2s is a kernel that says no for two seconds, beginning now, to calls that f picks.
func for2s(err error, f func(s udp.Sending) bool) func(int, udp.Sending) udp.Verdict {
	begin := time.Now()
	return func(n int, s udp.Sending) udp.Verdict {
		if time.Since(begin) < 2*time.Second && f(s) {
			return udp.Verdict{Err: err}
		}
		return udp.Verdict{}
	}
}

func all(udp.Sending) bool { return true }

// quic-go#2809, #2258: whatever the kernel says to a send, or to a read, the connection lives
// and the bytes arrive, in good time once the kernel is willing again.
func TestNetworkErrnos(t *testing.T) {
	size := less[int64](2_000_000)
	tests := []struct {
		name   string
		kernel func(w *world) func(n int, s udp.Sending) udp.Verdict
		within time.Duration
	}{
		{"every fifth send finds the socket full", func(w *world) func(int, udp.Sending) udp.Verdict {
			return func(int, udp.Sending) udp.Verdict {
				if w.rnd.IntN(5) == 0 {
					return udp.Verdict{Err: syscall.EAGAIN}
				}
				return udp.Verdict{}
			}
		}, 5 * time.Second},
		{"nearly every send finds the socket full", func(w *world) func(int, udp.Sending) udp.Verdict {
			return func(int, udp.Sending) udp.Verdict {
				if w.rnd.IntN(5) != 0 {
					return udp.Verdict{Err: syscall.EAGAIN}
				}
				return udp.Verdict{}
			}
		}, 60 * time.Second},
		{"no buffers for two seconds", func(w *world) func(int, udp.Sending) udp.Verdict {
			return for2s(syscall.ENOBUFS, all)
		}, 3 * time.Second},
		{"socket full for two seconds", func(w *world) func(int, udp.Sending) udp.Verdict {
			return for2s(syscall.EAGAIN, all)
		}, 3 * time.Second},
		{"no route for two seconds", func(w *world) func(int, udp.Sending) udp.Verdict {
			return for2s(syscall.ENETUNREACH, all)
		}, 10 * time.Second},
		{"forbidden for two seconds", func(w *world) func(int, udp.Sending) udp.Verdict {
			return for2s(syscall.EPERM, all)
		}, 10 * time.Second},
		{"nothing larger than 1252 bytes for two seconds", func(w *world) func(int, udp.Sending) udp.Verdict {
			return for2s(syscall.EMSGSIZE, func(s udp.Sending) bool { return s.Segment > 1252 })
		}, 3 * time.Second},
		{"nothing larger than 1252 bytes, ever", func(w *world) func(int, udp.Sending) udp.Verdict {
			return func(n int, s udp.Sending) udp.Verdict {
				if s.Segment > 1252 {
					return udp.Verdict{Err: syscall.EMSGSIZE}
				}
				return udp.Verdict{}
			}
		}, 3 * time.Second},
		{"one datagram in a hundred is too large", func(w *world) func(int, udp.Sending) udp.Verdict {
			return func(int, udp.Sending) udp.Verdict {
				if w.rnd.IntN(100) == 0 {
					return udp.Verdict{Err: syscall.EMSGSIZE}
				}
				return udp.Verdict{}
			}
		}, 10 * time.Second},
		{"what was refused is said to be sent", func(w *world) func(int, udp.Sending) udp.Verdict {
			return func(int, udp.Sending) udp.Verdict { return udp.Verdict{Lose: w.rnd.IntN(50) == 0} }
		}, 20 * time.Second},
	}
	for _, tt := range tests {
		for _, way := range waysToSend {
			t.Run(tt.name+"/"+way.name, func(t *testing.T) {
				virtual(t, func(w *world) {
					w.sniff()
					c, s := w.connect(nil, nil)
					kernel(w.client, tt.kernel(w))
					if took := w.transfer(c, s, way.send, patternOf(8, 1), size); took > tt.within {
						w.Errorf("it took %v", took)
					}
					kernel(w.client, func(int, udp.Sending) udp.Verdict { return udp.Verdict{} })
					w.exchange(c, s, 1000)
				})
			})
		}
	}
}

// From the very first datagram on, too.
func TestNetworkErrnosInHandshake(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kernel func(n int, s udp.Sending) udp.Verdict
	}{
		{"the first sends are forbidden", func(n int, s udp.Sending) udp.Verdict {
			if n < 2 {
				return udp.Verdict{Err: syscall.EPERM}
			}
			return udp.Verdict{}
		}},
		{"nothing larger than 1200 bytes", func(n int, s udp.Sending) udp.Verdict {
			if s.Segment > 1200 {
				return udp.Verdict{Err: syscall.EMSGSIZE}
			}
			return udp.Verdict{}
		}},
		{"every second send finds the socket full", func(n int, s udp.Sending) udp.Verdict {
			if n%2 == 0 {
				return udp.Verdict{Err: syscall.EAGAIN}
			}
			return udp.Verdict{}
		}},
		{"no buffers for the first ten", func(n int, s udp.Sending) udp.Verdict {
			if n < 10 {
				return udp.Verdict{Err: syscall.ENOBUFS}
			}
			return udp.Verdict{}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.pair = largeTLSPair()
				for _, tr := range []*Transport{w.client, w.server} {
					if err := tr.init(false); err != nil {
						t.Fatal(err)
					}
					kernel(tr, tt.kernel)
				}
				c, s := w.connect(patient(), patient())
				w.exchange(c, s, 100_000)
				if took := w.elapsed(); took > 20*time.Second {
					w.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A read that fails as reads of UDP sockets may does not end the transport.
func TestNetworkReadErrnos(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(nil, nil)
		var n atomic.Int32 // others than the reader read, too
		udp.Inject(w.server.udpConn(), &udp.Hook{Read: func() error {
			switch n.Add(1) % 10 {
			case 3:
				return syscall.EMSGSIZE
			case 6:
				return syscall.ECONNREFUSED
			}
			return nil
		}})
		for _, dir := range [][2]*Conn{{c, s}, {s, c}} {
			if took := w.transfer(dir[0], dir[1], waysToSend[0].send, patternOf(8, 2), 1_000_000); took > time.Second {
				w.Errorf("it took %v", took)
			}
		}
		udp.Inject(w.server.udpConn(), nil)
	})
}

// A13: the kernel takes k datagrams of a flight and is full then, k from 0 to 9, again
// and again. The rest goes out when it takes more, with nothing else to wake anybody.
func TestNetworkRestOfAFlightLeaves(t *testing.T) {
	for k := range 10 {
		virtual(t, func(w *world) {
			c, s := w.connect(nil, nil)
			left := k
			kernel(w.client, func(int, udp.Sending) udp.Verdict {
				if left == 0 {
					left = 10
					return udp.Verdict{Err: syscall.EAGAIN}
				}
				left--
				return udp.Verdict{}
			})
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			p := patternOf(8, 3)
			const chunk = 12_500 // ten datagrams and some bytes
			var in *ReceiveStream
			check := p.checker()
			for i := range 20 {
				b := make([]byte, chunk)
				p.fill(b, int64(i*chunk))
				begin := time.Now()
				if _, err := out.Write(b); err != nil {
					t.Fatal(err)
				}
				if in == nil {
					if in, err = s.AcceptUniStream(w.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for check.n < int64((i+1)*chunk) {
					n, err := in.Read(b)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := check.Write(b[:n]); err != nil {
						t.Fatal(err)
					}
				}
				if d := time.Since(begin); d > 80*time.Millisecond {
					t.Errorf("after %d datagrams the rest took %v", k, d)
				}
			}
		})
	}
}

// rounds is how often the connection's goroutine has run.
func rounds(c *Conn) int { return int(c.rounds.Load()) }

// A19: what cannot be done waits for what lifts the obstacle. In virtual time a loop
// without end would never come to an end; these are at rest.
func TestNetworkBlockedIsIdle(t *testing.T) {
	const window = 5 * time.Second
	// blocked writes, brings about an obstacle, and wants less than 100 rounds and 100
	// system calls a second while it lasts, and the bytes within 50 ms after.
	blocked := func(t *testing.T, begin, end func(w *world, c, s *Conn)) {
		virtual(t, func(w *world) {
			c, s := w.connect(patient(), patient())
			p := patternOf(8, 4)
			const size = 40_000
			done := make(chan error, 1)
			go func() {
				in, err := s.AcceptUniStream(w.Context())
				if err == nil {
					err = p.check(in, size)
				}
				done <- err
			}()
			time.Sleep(time.Second)
			begin(w, c, s)
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := out.CloseWith(p.bytes(size)); err != nil {
				t.Fatal(err)
			}
			before := rounds(c)
			time.Sleep(window)
			if n := rounds(c) - before; n > int(window/time.Second)*120 {
				t.Errorf("%d rounds in %v", n, window)
			}
			end(w, c, s)
			lifted := time.Now()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if d := time.Since(lifted); d > 100*time.Millisecond {
				t.Errorf("it took %v to go on", d)
			}
		})
	}
	t.Run("the socket is full", func(t *testing.T) {
		var full atomic.Bool
		blocked(t, func(w *world, c, s *Conn) {
			full.Store(true)
			kernel(w.client, func(int, udp.Sending) udp.Verdict {
				if full.Load() {
					return udp.Verdict{Err: syscall.EAGAIN}
				}
				return udp.Verdict{}
			})
		}, func(w *world, c, s *Conn) { full.Store(false) })
	})
	t.Run("the window is full and nothing is acknowledged", func(t *testing.T) {
		virtual(t, func(w *world) {
			c, _ := w.connect(patient(), patient())
			time.Sleep(time.Second)
			w.down.set(func(d *direction) { d.lose = 1 })
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			go waysToSend[0].send(out, patternOf(8, 5), 10_000_000)
			before, sent := rounds(c), w.up.now().sent
			time.Sleep(window)
			if n := rounds(c) - before; n > int(window/time.Second)*120 {
				t.Errorf("%d rounds in %v", n, window)
			}
			// An initial window, and two probes for each of a few timeouts.
			if n := w.up.now().sent - sent; n > 60 {
				t.Errorf("%d datagrams in %v", n, window)
			}
			out.CancelWrite(0)
		})
	})
	t.Run("a server may send no more", func(t *testing.T) {
		virtual(t, func(w *world) {
			w.pair = largeTLSPair()
			// The client's first flight arrives, and nothing more for a while.
			w.up.set(func(d *direction) {
				d.hook = func(n int, b []byte) fate {
					if n >= 2 && w.elapsed() < window+time.Second {
						return lose
					}
					return pass
				}
			})
			go func() {
				time.Sleep(time.Second)
				w.server.mu.RLock()
				var s *Conn
				for _, s = range w.server.ids {
				}
				w.server.mu.RUnlock()
				if s == nil {
					t.Error("there is no connection")
					return
				}
				before, sent := rounds(s), w.down.now().sent
				time.Sleep(window)
				if n := rounds(s) - before; n > int(window/time.Second)*20 {
					t.Errorf("%d rounds in %v", n, window)
				}
				if n := w.down.now().sent - sent; n > 0 {
					t.Errorf("%d datagrams beyond the limit", n)
				}
			}()
			c, s := w.connect(patient(), patient())
			w.exchange(c, s, 1000)
		})
	})
	t.Run("a source has nothing", func(t *testing.T) {
		virtual(t, func(w *world) {
			c, _ := w.connect(patient(), patient())
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			go out.SendFrom(w.Context(), idleSource{&calls}, 0, -1)
			time.Sleep(time.Second)
			before := rounds(c)
			time.Sleep(window)
			if n := rounds(c) - before; n > 100 || calls != 1 {
				t.Errorf("%d rounds in %v, %d calls of the source", n, window, calls)
			}
			out.CancelWrite(0)
		})
	})
	t.Run("packets arrive while it closes", func(t *testing.T) {
		virtual(t, func(w *world) {
			w.both(func(d *direction) { d.delay = 100 * time.Millisecond })
			c, s := w.connect(patient(), patient())
			out, err := s.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			go waysToSend[0].send(out, patternOf(8, 6), 50_000_000)
			in, err := c.AcceptUniStream(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			go in.Read(make([]byte, 1))
			time.Sleep(time.Second)
			// The peer does not hear of the end, and goes on.
			w.up.set(func(d *direction) { d.lose = 1 })
			sent, before := w.up.now().sent, rounds(c)
			c.CloseWithError(0, "")
			time.Sleep(window)
			if n := rounds(c) - before; n > int(window/time.Second)*120 {
				t.Errorf("%d rounds in %v", n, window)
			}
			if n := w.up.now().sent - sent; n > 20 {
				t.Errorf("%d datagrams after the end", n)
			}
		})
	})
}

// The peer is told of the end although the socket is full just then.
func TestNetworkCloseWaitsForTheSocket(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		virtual(t, func(w *world) {
			c, s := w.connect(patient(), patient())
			if bulk {
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				go waysToSend[0].send(out, patternOf(8, 7), 1<<30)
				time.Sleep(time.Second)
			}
			begin := time.Now()
			kernel(w.client, func(int, udp.Sending) udp.Verdict {
				if time.Since(begin) < 30*time.Millisecond {
					return udp.Verdict{Err: syscall.EAGAIN}
				}
				return udp.Verdict{}
			})
			c.CloseWithError(9, "so long")
			if err := over(s); !errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 9}) {
				t.Errorf("the peer sees %v", err)
			}
			if d := time.Since(begin); d > 60*time.Millisecond {
				t.Errorf("after %v", d)
			}
		})
	}
	// But not for ever.
	virtual(t, func(w *world) {
		c, _ := w.connect(patient(), patient())
		kernel(w.client, func(int, udp.Sending) udp.Verdict { return udp.Verdict{Err: syscall.EAGAIN} })
		begin := time.Now()
		c.CloseWithError(9, "so long")
		if d := time.Since(begin); d > time.Second {
			t.Errorf("CloseWithError took %v", d)
		}
	})
}
