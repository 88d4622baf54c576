package sender

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// idler is a small source without a memory of its calls, for very many streams.
type idler struct {
	c     *conn
	id    int64
	calls atomic.Int64
	have  atomic.Int64 // bytes that it has now
	size  int64
	then  error // the answer when it has no more for now
}

func (s *idler) ReadAt(p []byte, off int64) (int, error) {
	s.calls.Add(1)
	n := int(min(int64(len(p)), s.have.Load()-off))
	fill(s.id, off, p[:max(n, 0)])
	if n < len(p) && off+int64(n) < s.size {
		return max(n, 0), s.then
	}
	return n, nil
}

func (s *idler) LendAt(off int64, n int) ([]byte, error) {
	p := make([]byte, n)
	n, err := s.ReadAt(p, off)
	return p[:n], err
}

func (s *idler) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	s.calls.Add(int64(1 - len(bufs)))
	for _, b := range bufs {
		m, err := s.ReadAt(b, off+int64(n))
		n += m
		if m < len(b) || err != nil {
			return n, err
		}
	}
	return n, nil
}

// Field report A02: very many streams, most of which have nothing. No stream is called more
// often than it was armed, nothing empty leaves, the healthy ones finish, and who is idle
// costs nothing.
func TestManyStreams(t *testing.T) {
	const (
		never  = iota // nothing, for ever
		later         // nothing, then all when it is armed
		some          // five full datagrams, then nothing, then the rest
		twice         // armed twice before one call
		faulty        // nothing and no error, again and again
		healthy
		kinds
	)
	const all = 12_000
	for i, tuning := range modes {
		many := 3000
		if i == 0 && !testing.Short() && !raced {
			many = 12_000
		}
		t.Run(name(tuning), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 8, quick: true})
				c.cc.bytes = 2000 * 1452
				c.serve(rtt, nil)
				var wg sync.WaitGroup
				srcs := make([]*idler, many)
				streams := make([]*testStream, many)
				errs := make([]error, many)
				for i := range srcs {
					s := c.open(int64(4*i), plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					src := &idler{c: c, id: s.ID(), size: all, then: emit.ErrNotReady}
					srcs[i], streams[i] = src, s
					switch i % kinds {
					case some:
						src.have.Store(5 * 1400)
					case faulty:
						src.then = nil
					case healthy:
						src.have.Store(all)
					}
					wg.Add(1)
					go func() {
						defer wg.Done()
						_, errs[i] = s.st.SendFrom(context.Background(), src, 0, all, emit.Apply(emit.End()))
					}()
				}
				time.Sleep(time.Minute)
				rounds, calls := 0, 0
				c.do(func() { rounds = c.rounds })
				for i, src := range srcs {
					calls += int(src.calls.Load())
					switch i % kinds {
					case healthy:
						c.whole(src.id, all, true)
					case some:
						c.whole(src.id, 5*1400, false)
					default:
						c.whole(src.id, 0, false)
					}
				}
				time.Sleep(time.Minute)
				idle := 0
				for _, src := range srcs {
					idle += int(src.calls.Load())
				}
				c.do(func() {
					if c.rounds-rounds > 10 || idle != calls {
						t.Errorf("idle for a minute: %d rounds, %d calls", c.rounds-rounds, idle-calls)
					}
				})
				for i, src := range srcs {
					before := src.calls.Load()
					if n := before; i%kinds != healthy && i%kinds != some && n > 2 {
						t.Fatalf("kind %d: %d calls", i%kinds, n)
					}
					if k := i % kinds; k == later || k == some || k == twice {
						src.have.Store(all)
						c.do(streams[i].st.Ready)
						if k == twice {
							c.do(streams[i].st.Ready)
						}
					}
				}
				time.Sleep(time.Minute)
				for i, src := range srcs {
					switch i % kinds {
					case never:
						c.do(func() { streams[i].StopSending(1) })
					case faulty:
						c.whole(src.id, 0, false)
					default:
						c.whole(src.id, all, true)
					}
				}
				wg.Wait()
				for i, err := range errs {
					if k := i % kinds; (k == never || k == faulty) != (err != nil) {
						t.Fatalf("kind %d: %v", k, err)
					}
				}
				for _, p := range c.take() {
					if len(p.frames) == 0 {
						t.Fatal("an empty packet")
					}
				}
			})
		})
	}
}

// Streams of other connections' worth: a thousand writers share a datagram's room.
func TestSmallWritesShareDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 8})
		c.serve(rtt, nil)
		first := c.open(4000, plenty)
		first.Write(bytesOf(4000, 0, 1)) // the connection is not quiet any more
		synctest.Wait()
		c.take()
		for i := range 100 {
			s := c.open(int64(4*i), plenty)
			if _, err := s.CloseWith(bytesOf(s.ID(), 0, 100)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		frames := 0
		ps := c.take()
		for _, p := range ps {
			frames += len(p.frames)
		}
		if frames < 100 {
			t.Errorf("%d frames", frames)
		}
		for i := range 100 {
			c.whole(int64(4*i), 100, true)
		}
		t.Logf("%d frames in %d datagrams", frames, len(ps))
		c.stop(fmt.Errorf("the end"))
	})
}
