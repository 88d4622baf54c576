package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// rereading are the modes that keep nothing.
var rereading = modes[1:]

// Whatever is lost, the peer gets everything, and nothing but that is asked for again.
func TestLossesAreReadAgain(t *testing.T) {
	for _, tuning := range rereading {
		for _, percent := range []int{1, 20, 60} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s, %d %%, seed %#x", name(tuning), percent, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 0))
					c := newConn(t, setup{dst: 4})
					lost := 0
					c.serve(rtt, func(pn int64) bool {
						if lost < 200 && r.IntN(100) < percent {
							lost++
							return true
						}
						return false
					})
					s := c.open(0, plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					src := c.source(s, 1_000_000)
					ch := c.start(s, src, 0, -1, false, emit.End())
					var o outcome
					select {
					case o = <-ch:
					case <-time.After(time.Hour):
						t.Fatal("it hangs")
					}
					if o.err != nil || o.n != 1_000_000 {
						t.Error(o)
					}
					c.whole(0, 1_000_000, true)
					st := s.st.Stats()
					if st.Reread == 0 && lost > 20 || st.Reread > 200*1452 {
						t.Errorf("%d lost, %+v", lost, st)
					}
					if uint64(src.total()) != st.Asked+st.Reread || st.Bytes != 1_000_000 {
						t.Errorf("%d bytes asked for: %+v", src.total(), st)
					}
					c.stop(io.EOF)
				})
			})
		}
	}
}

// By default each byte is asked for once, however much is lost, and the source is not
// touched after SendFrom has returned.
func TestKeptBytesAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		lost := 0
		c.serve(rtt, func(pn int64) bool { lost++; return lost%3 == 0 && lost < 1000 })
		s := c.open(0, plenty)
		src := c.source(s, 1_000_000)
		c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Scatter}) })
		if o := ended(t, c.start(s, src, 0, -1, false, emit.End())); o.err != nil || o.n != 1_000_000 {
			t.Error(o)
		}
		calls := len(src.calls)
		time.Sleep(time.Minute)
		c.whole(0, 1_000_000, true)
		if len(src.calls) != calls || src.total() > 1_000_000+14_260 {
			t.Errorf("%d calls, then %d; %d bytes", calls, len(src.calls), src.total())
		}
	})
}

// A source that promises not to change is asked again, and believed.
func TestSourceThatPromisesNotToChange(t *testing.T) {
	for _, tuning := range rereading {
		t.Run(name(tuning), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				lost := 0
				c.serve(rtt, func(pn int64) bool { lost++; return lost%3 == 0 && lost < 300 })
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				if o := ended(t, c.start(s, c.source(s, 300_000), 0, -1, false, emit.End(), emit.Unchanging())); o.err != nil || o.n != 300_000 {
					t.Error(o)
				}
				time.Sleep(time.Minute)
				c.whole(0, 300_000, true)
				c.do(func() {
					if s.st.stats.Reread == 0 {
						t.Error("nothing was asked for again")
					}
				})
			})
		})
	}
}

// Bytes that come back different never leave: the stream is reset. The peer checks that
// no offset has two values.
func TestSourceThatChanges(t *testing.T) {
	for _, tuning := range rereading {
		for what, again := range map[string]struct {
			answer func(s *source, k call) (int, error)
			want   error
		}{
			"one bit":  {want: emit.ErrSourceChanged},
			"shorter":  {want: emit.ErrSourceChanged, answer: func(s *source, k call) (int, error) { return k.n / 2, io.EOF }},
			"gone":     {want: emit.ErrSourceChanged, answer: func(s *source, k call) (int, error) { return 0, io.EOF }},
			"error":    {want: errDisk, answer: func(s *source, k call) (int, error) { return 10, errDisk }},
			"silent":   {want: io.ErrNoProgress, answer: func(s *source, k call) (int, error) { return 0, nil }},
			"too many": {answer: func(s *source, k call) (int, error) { return k.n + 1, nil }},
		} {
			t.Run(name(tuning)+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConn(t, setup{dst: 4})
					c.cc.bytes = 50 * 1452
					n := 0
					c.serve(rtt, func(pn int64) bool { n++; return n == 10 })
					s, other := c.open(0, plenty), c.open(4, plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					src := &fickle{source: c.source(s, 1_000_000)}
					highest := int64(0)
					src.answer = func(k call) (int, error) {
						if k.off < highest {
							src.changed = again.answer == nil
							if again.answer != nil {
								return again.answer(src.source, k)
							}
						}
						m, err := src.all(k)
						highest = max(highest, k.off+int64(m))
						return m, err
					}
					w := &watcher{c: c}
					ch := make(chan outcome, 1)
					go func() {
						v := both{vector{src.source}, lender{src.source}}
						var o outcome
						o.n, o.err = s.st.SendFrom(t.Context(), changing{v, src}, 0, -1, emit.Apply(w.options()...))
						ch <- o
					}()
					o := ended(t, ch)
					if again.want != nil && o.err != again.want || o.err == nil {
						t.Error(o)
					}
					time.Sleep(time.Second)
					if !c.peer.wasReset(0) || c.err(s) == nil {
						t.Error("the stream is not reset")
					}
					if rs := w.told(); len(rs) != 1 || rs[0] != o.err {
						t.Errorf("OnRelease was told %v", rs)
					}
					other.CloseWith(bytesOf(4, 0, 1000))
					time.Sleep(time.Second)
					c.whole(4, 1000, true)
				})
			})
		}
	}
}

// fickle is a source whose bytes may change.
type fickle struct {
	*source
	changed bool
}

type changing struct {
	both
	f *fickle
}

func (v changing) ReadAt(p []byte, off int64) (int, error) {
	n, err := v.both.ReadAt(p, off)
	if v.f.changed && n > 0 {
		p[n/2] ^= 4
	}
	return n, err
}

// A source that is asked again may say that it is not ready, and short answers count.
func TestLossesWithAnswers(t *testing.T) {
	for _, tuning := range rereading {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.cc.bytes = 30 * 1452
			n := 0
			c.serve(rtt, func(pn int64) bool { n++; return n >= 10 && n < 20 })
			s := c.open(0, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, 300_000)
			highest, asleep := int64(0), 0
			src.answer = func(k call) (int, error) {
				m, err := src.all(k)
				if k.off < highest {
					switch asleep++; asleep % 4 {
					case 1:
						time.AfterFunc(3*time.Second, func() { c.do(s.st.Ready) })
						return 100, emit.ErrNotReady
					case 2:
						return 0, nil
					case 3:
						return 500, nil
					}
					return m, err
				}
				highest = max(highest, k.off+int64(m))
				return m, err
			}
			if o := ended(t, c.start(s, src, 0, -1, false, emit.End())); o.err != nil {
				t.Error(name(tuning), o, asleep)
			}
			if asleep < 4 {
				t.Errorf("%s: asked again %d times", name(tuning), asleep)
			}
			c.whole(0, 300_000, true)
		})
	}
}

// Bytes of Write before those of a source stay with the stream; the source's do not.
func TestOnlyTheSourcesBytesAreForgotten(t *testing.T) {
	for _, tuning := range rereading {
		c := newConn(t, setup{dst: 4})
		c.cc.bytes = 0
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(tuning) })
		s.Write(bytesOf(0, 0, 5000))
		src := c.source(s, 30_000)
		a := c.begin(s, src, 5000, -1)
		for range 10 {
			c.step(a)
		}
		c.do(func() { c.cc.bytes = 10 * 1452 }) // a pass with some of both, perhaps
		for s.NewOffset() < 30_000 || s.HasPending() {
			if did, _, _ := c.step(a); !did && !c.x.Run(1) {
				c.do(func() { c.cc.bytes += 5 * 1452 })
			}
		}
		c.do(func() { s.OnLost(0, 30_000, false) })
		if err := c.finish(a); err != nil {
			t.Fatal(err)
		}
		if st := s.st.Stats(); st.Reread != 25_000 {
			t.Errorf("%s: %+v", name(tuning), st)
		}
	}
}

// A source that waits for new bytes is asked for lost ones all the same.
func TestLossWhileParked(t *testing.T) {
	for _, tuning := range rereading {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			n := 0
			c.serve(rtt, func(pn int64) bool { n++; return n == 1 || n == 5 })
			s := c.open(0, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, 300_000)
			src.answer = func(k call) (int, error) {
				if left := 20_000 - k.off; left < int64(k.n) {
					return int(max(left, 0)), emit.ErrNotReady
				}
				return src.all(k)
			}
			c.start(s, src, 0, -1, false, emit.End())
			time.Sleep(time.Minute)
			c.do(func() {
				if !s.AllAcked(20_000) {
					t.Errorf("%s: what was lost is not repaired", name(tuning))
				}
			})
			c.stop(io.EOF)
			time.Sleep(time.Second)
		})
	}
}

// A context or a deadline that ends leaves the stream alone, unless bytes that cannot be
// had any more are lost.
func TestContextEndsBeforeTheLastACK(t *testing.T) {
	stop := errors.New("stop")
	for _, tuning := range modes {
		for _, lose := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				n := 0
				c.serve(rtt, func(pn int64) bool { n++; return lose && n == 3 })
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				src := c.source(s, 50_000)
				src.answer = func(k call) (int, error) {
					if k.off >= 20_000 {
						return 0, emit.ErrNotReady
					}
					k.n = int(min(int64(k.n), 20_000-k.off))
					return src.all(k)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				ch := make(chan outcome, 1)
				go func() {
					var o outcome
					o.n, o.err = s.st.SendFrom(ctx, both{vector{src}, lender{src}}, 0, -1, emit.Apply(emit.End()))
					ch <- o
				}()
				time.Sleep(rtt / 2)
				cancel(stop)
				if o := ended(t, ch); o.err != stop || o.n != 20_000 {
					t.Error(name(tuning), o)
				}
				time.Sleep(time.Minute)
				keeps := tuning.Mode == emit.Scatter && !tuning.Reread
				if reset := c.err(s) != nil; reset != (lose && !keeps) {
					t.Errorf("%s, with loss %v: reset %v", name(tuning), lose, reset)
				} else if !reset {
					if _, err := s.CloseWith(bytesOf(0, 20_000, 10)); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second)
					c.whole(0, 20_010, true)
				}
			})
		}
	}
}
