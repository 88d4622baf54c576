package sender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// A source that sleeps for five seconds holds up its own stream only, whatever the mode.
func TestSleepingSourceHoldsUpItsOwnStreamOnly(t *testing.T) {
	for _, tuning := range modes {
		for _, sleepAt := range []int{1, 5, 10} {
			t.Run(fmt.Sprintf("%s, call %d", name(tuning), sleepAt), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newConn(t, setup{dst: 4})
					dropped := false
					c.serve(rtt, func(pn int64) bool {
						lose := !dropped && pn > 60
						dropped = dropped || lose
						return lose
					})
					s, other := c.open(0, plenty), c.open(4, plenty)
					c.do(func() { s.st.SetTuning(tuning) })
					src := c.source(s, 400_000)
					asleep := make(chan bool, 1)
					src.answer = func(k call) (int, error) {
						if len(src.calls) == sleepAt {
							asleep <- true
							time.Sleep(5 * time.Second)
						}
						return src.all(k)
					}
					ch := c.start(s, src, 0, 400_000, false, emit.End())
					<-asleep
					start := time.Now()
					// Within the five seconds others write, bytes are lost and repaired,
					// ACKs and control frames leave.
					n := int64(0)
					for time.Since(start) < 4*time.Second {
						c.do(func() {
							c.ackDue, c.ack = true, ackOf([]int64{1, 2, 3})
							c.control = append(c.control, due{wire.MaxData{Max: 5}, recovery.Frame{Kind: 3}})
						})
						(*host)(c).Wake()
						if _, err := other.Write(bytesOf(4, n, 3000)); err != nil {
							t.Fatal(err)
						}
						n += 3000
						time.Sleep(2 * patience)
						c.do(func() {
							if c.ackDue || len(c.control) > 0 {
								t.Fatal("ACKs and control frames wait for the source")
							}
						})
						c.whole(4, n, false)
						time.Sleep(100 * time.Millisecond)
					}
					synctest.Wait()
					c.do(func() {
						if !other.AllAcked(n) {
							t.Error("lost bytes are not repaired")
						}
						if c.rounds > 3000 {
							t.Errorf("%d rounds of the connection in 4 s", c.rounds)
						}
					})
					if o := ended(t, ch); o.err != nil || o.n != 400_000 {
						t.Error(o)
					}
					time.Sleep(time.Second)
					c.whole(0, 400_000, true)
					if st := s.st.Stats(); st.Asked != 400_000 || st.Bytes != 400_000 {
						t.Errorf("a byte was asked for twice: %+v", st)
					}
				})
			})
		}
	}
}

// The end of a connection waits for no source.
func TestCloseWaitsForNoSource(t *testing.T) {
	for _, tuning := range modes {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			s, other := c.open(0, plenty), c.open(4, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, 400_000)
			src.answer = func(k call) (int, error) {
				if len(src.calls) == 3 {
					time.Sleep(time.Minute)
				}
				return src.all(k)
			}
			w := &watcher{c: c}
			ch := c.start(s, src, 0, -1, false, w.options()...)
			time.Sleep(time.Second)
			go other.Write(bytesOf(4, 0, 1_000_000))
			start, packets := time.Now(), c.peer.sealings()
			c.stop(errDisk)
			if d := time.Since(start); d > 0 {
				t.Errorf("it took %v", d)
			}
			time.Sleep(time.Microsecond) // for whoever was sealing
			c.do(func() {
				if !c.x.MayClose() {
					t.Error("the keys are in use")
				}
			})
			if o := ended(t, ch); o.err != errDisk {
				t.Error(o)
			}
			time.Sleep(time.Hour)
			c.later()
			if c.peer.sealings() > packets+100 {
				t.Error("something was sent after the end")
			}
			if rs := w.told(); len(rs) != 1 || rs[0] != errDisk {
				t.Errorf("OnRelease was told %v", rs)
			}
		})
	}
}

// Inside a source every method works or returns an error; none hangs.
func TestMethodsInsideSources(t *testing.T) {
	type setting struct {
		*testing.T
		c        *conn
		s, other *testStream
		src      *source
		k        call
	}
	const all = 160_000
	errBusy := func(t setting, what string, err error) {
		if err != emit.ErrBusy {
			t.Errorf("%s on the source's stream: %v", what, err)
		}
	}
	closed := errors.New("closed")
	for what, w := range map[string]struct {
		do      func(t setting)
		over    bool  // the source's stream is
		written int64 // bytes of the other stream
	}{
		"Write":       {do: func(t setting) { _, err := t.s.Write([]byte("x")); errBusy(t, "Write", err) }},
		"WriteOwned":  {do: func(t setting) { _, err := t.s.WriteOwned(make([]byte, 600), nil); errBusy(t, "WriteOwned", err) }},
		"TryWriteAll": {do: func(t setting) { errBusy(t, "TryWriteAll", t.s.TryWriteAll([]byte("x"))) }},
		"CloseWith":   {do: func(t setting) { _, err := t.s.CloseWith([]byte("x")); errBusy(t, "CloseWith", err) }},
		"SendFrom": {do: func(t setting) {
			_, err := t.s.st.SendFrom(context.Background(), t.c.source(t.s, 5), 0, 5, emit.Options{})
			errBusy(t, "SendFrom", err)
		}},
		"ReadFrom": {do: func(t setting) {
			_, err := t.s.st.ReadFrom(context.Background(), &reader{t.c.source(t.s, 5), 0})
			errBusy(t, "ReadFrom", err)
		}},
		"Close":       {do: func(t setting) { t.s.Close() }},
		"Cancel":      {do: func(t setting) { t.s.Cancel(7) }, over: true},
		"STOP":        {do: func(t setting) { t.c.do(func() { t.s.StopSending(7) }) }, over: true},
		"SetDeadline": {do: func(t setting) { t.s.SetDeadline(time.Now().Add(time.Hour)) }},
		"SetEmission": {do: func(t setting) { t.c.do(func() { t.s.st.SetTuning(modes[len(t.src.calls)%len(modes)]) }) }},
		"Ready":       {do: func(t setting) { t.c.do(t.s.st.Ready) }},
		"Stats":       {do: func(t setting) { t.c.do(func() { t.s.st.Stats() }) }},
		"Cork":        {do: func(t setting) { t.s.Cork(); t.s.Uncork() }},
		"SetBuffer":   {do: func(t setting) { t.s.SetWriteBuffer(1000, 2000) }},
		"end of the connection": {do: func(t setting) {
			t.c.stop(closed)
			time.Sleep(time.Microsecond) // for whoever was sealing
			t.c.do(func() {
				if !t.c.x.MayClose() {
					t.Error("the keys are in use")
				}
			})
		}, over: true},
		"a little to another": {do: func(t setting) { t.other.Write(bytesOf(4, 0, 100)) }, written: 100},
		"much to another": {do: func(t setting) {
			if n, err := t.other.Write(bytesOf(4, 0, 1_000_000)); n != 1_000_000 || err != nil {
				t.Error(n, err)
			}
		}, written: 1_000_000},
		"a source to another": {do: func(t setting) {
			t.c.do(func() { t.other.st.SetTuning(emit.Tuning{Mode: emit.Single}) })
			if n, err := t.other.st.SendFrom(context.Background(), t.c.source(t.other, 50_000), 0, -1, emit.Options{}); n != 50_000 || err != nil {
				t.Error(n, err)
			}
		}, written: 50_000},
		"end of another": {do: func(t setting) { t.other.Cancel(1) }},
		"an ACK comes":   {do: func(t setting) { t.c.acked(t.c.pns()...) }},
		"another datagram size": {do: func(t setting) {
			t.c.do(func() { t.c.x.SetDatagramSize(1300) })
		}},
	} {
		for _, tuning := range modes {
			for _, when := range []int{1, 5, 10} {
				t.Run(fmt.Sprintf("%s/%s/%d", what, name(tuning), when), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newConn(t, setup{dst: 4})
						c.serve(rtt, nil)
						s, other := c.open(0, plenty), c.open(4, plenty)
						c.do(func() { s.st.SetTuning(tuning) })
						src := c.source(s, all)
						src.answer = func(k call) (int, error) {
							if len(src.calls) == when {
								w.do(setting{t, c, s, other, src, k})
							}
							return src.all(k)
						}
						o := ended(t, c.start(s, src, 0, all, false))
						if w.over != (o.err != nil) {
							t.Error(o)
						}
						time.Sleep(10 * time.Second)
						if !w.over {
							c.whole(0, all, what == "Close")
						}
						if w.written > 0 {
							c.whole(4, w.written, false)
						}
					})
				})
			}
		}
	}
}

// A source that comes back while another flight is on its way to the kernel takes nothing
// from it.
func TestSleeperComesBackDuringACall(t *testing.T) {
	for _, tuning := range modes[2:] {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			c.send = func(udp.Sending) udp.Verdict {
				time.Sleep(3 * patience)
				return udp.Verdict{}
			}
			s, other := c.open(0, plenty), c.open(4, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, 200_000)
			src.answer = func(k call) (int, error) {
				time.Sleep(2 * patience)
				return src.all(k)
			}
			ch := c.start(s, src, 0, -1, false, emit.End())
			for n := int64(0); n < 200_000; n += 1000 {
				other.Write(bytesOf(4, n, 1000))
				time.Sleep(patience / 3)
			}
			if o := ended(t, ch); o.err != nil {
				t.Error(o)
			}
			time.Sleep(time.Minute)
			c.whole(0, 200_000, true)
			c.whole(4, 200_000, false)
		})
	}
}

// An asker who is promised the token and has something else to do passes it on.
func TestPromiseIsPassedOn(t *testing.T) {
	for what, instead := range map[string]func(c *conn, s *testStream){
		"a loss":     func(c *conn, s *testStream) { s.OnLost(0, 1000, false) },
		"a reset":    func(c *conn, s *testStream) { s.StopSending(1) },
		"the end":    func(c *conn, s *testStream) { s.ConnClosed(errDisk) },
		"other mode": func(c *conn, s *testStream) { s.st.SetTuning(emit.Tuning{Mode: emit.Scatter}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			s, other := c.open(0, plenty), c.open(4, plenty)
			c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Single}) })
			src := c.source(s, 200_000)
			src.answer = func(k call) (int, error) {
				if len(src.calls) > 20 {
					time.Sleep(time.Hour)
				}
				return src.all(k)
			}
			c.cc.bytes = 20 * 1452
			c.start(s, src, 0, -1, false)
			synctest.Wait()
			c.serve(time.Hour, nil) // only now, so that nobody else moves
			c.do(func() { c.x.take() })
			if _, err := other.Write(bytesOf(4, 0, 1000)); err != nil {
				t.Error(err)
			}
			synctest.Wait() // the connection's goroutine has found the token taken
			c.do(func() {
				a := s.st.asker
				if !a.idle {
					t.Fatal("not what this test is about")
				}
				c.cc.bytes = plenty
				c.x.queue(a)
				c.x.release()
				if c.x.token.promised != a || a.idle {
					t.Fatal("not promised")
				}
				instead(c, s)
			})
			c.arrives(what, 4, 1000, false, patience)
			c.stop(errDisk)
			time.Sleep(2 * time.Hour)
		})
	}
}

// A connection ID of another length, or keys that change, do not reach into a flight that
// is being built.
func TestFlightKeepsWhatItBeganWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		c.serve(rtt, nil)
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Single}) })
		src := c.source(s, 20_000)
		src.answer = func(k call) (int, error) {
			if len(src.calls) == 7 {
				c.do(func() { c.x.SetDst([]byte("another ID")) })
			}
			return src.all(k)
		}
		var sizes []int
		c.look = func(f *Flight) {
			c.peer.mu.Lock()
			c.peer.id = slices.Clone(f.dst) // the peer knows all its IDs
			c.peer.mu.Unlock()
			sizes = append(sizes, len(f.dst))
		}
		if o := ended(t, c.start(s, src, 0, -1, false)); o.err != nil {
			t.Error(o)
		}
		c.whole(0, 20_000, false)
		if sizes[0] != 4 {
			t.Error("the flight changed in mid-air")
		}
		if _, err := s.Write(bytesOf(0, 20_000, 10)); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		c.whole(0, 20_010, false)
		if sizes[len(sizes)-1] != 10 {
			t.Error("the new ID is not in use")
		}
	})
}

// A reset in the middle of a pass: what the pass has packed already leaves before the reset
// and counts in its final size, the rest does not leave (the peer checks both).
func TestResetInMidPass(t *testing.T) {
	for _, tuning := range modes {
		for calls := 1; calls <= 25; calls++ {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				src := c.source(s, 400_000)
				src.answer = func(k call) (int, error) {
					if len(src.calls) == calls {
						s.Cancel(9)
					}
					return src.all(k)
				}
				if o := ended(t, c.start(s, src, 0, -1, false, emit.End())); o.err == nil {
					t.Error(o)
				}
				time.Sleep(time.Second)
				if !c.peer.wasReset(0) || c.peer.fins(0) > 0 {
					t.Errorf("%s, call %d: not reset", name(tuning), calls)
				}
				c.do(func() {
					if c.x.used != c.peer.used {
						t.Errorf("%s, call %d: %d bytes of credit used, %d arrived", name(tuning), calls, c.x.used, c.peer.used)
					}
				})
			})
		}
	}
}

// A reset between an asker's wake-up and its step: nothing leaves after it, and the source
// is not asked any more.
func TestResetBeforeStep(t *testing.T) {
	for _, tuning := range modes {
		c := newConn(t, setup{dst: 4})
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(tuning) })
		src := c.source(s, 400_000)
		a := c.begin(s, src, 0, -1)
		c.step(a)
		c.step(a)
		calls := len(src.calls)
		c.do(func() {
			a.ready()
			s.StopSending(1)
		})
		if more, err := a.step(); more || err == nil {
			t.Errorf("%s: more to do %v, %v", name(tuning), more, err)
		}
		c.run()
		if len(src.calls) != calls {
			t.Errorf("%s: the source is asked after the reset", name(tuning))
		}
		if !c.peer.wasReset(0) {
			t.Errorf("%s: not reset", name(tuning))
		}
	}
}
