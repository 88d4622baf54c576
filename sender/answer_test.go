package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

const rtt = 20 * time.Millisecond

// outcome is how a SendFrom or ReadFrom ended.
type outcome struct {
	n        int64
	err      error
	panicked any
	exited   bool // by runtime.Goexit
}

func (o outcome) String() string {
	return fmt.Sprintf("%d, %v (panicked: %v, exited: %v)", o.n, o.err, o.panicked, o.exited)
}

// watcher notes what the callbacks of a SendFrom are told.
type watcher struct {
	c        *conn
	mu       sync.Mutex
	acked    []int64
	released []error
	late     bool // OnAcked after OnRelease
}

func (w *watcher) options() []emit.Option {
	return []emit.Option{
		emit.OnAcked(func(off int64) {
			w.c.outside("OnAcked")
			w.mu.Lock()
			defer w.mu.Unlock()
			w.acked = append(w.acked, off)
			w.late = w.late || len(w.released) > 0
		}),
		emit.OnRelease(func(err error) {
			w.c.outside("OnRelease")
			w.mu.Lock()
			defer w.mu.Unlock()
			w.released = append(w.released, err)
		}),
	}
}

// told is what OnRelease was told.
func (w *watcher) told() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.released)
}

// start calls SendFrom, or ReadFrom if read is set, in a goroutine of its own.
func (c *conn) start(s *testStream, src *source, off, n int64, read bool, opts ...emit.Option) <-chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		o := outcome{exited: true}
		defer func() {
			if v := recover(); v != nil {
				o.panicked, o.exited = v, false
			}
			ch <- o
		}()
		if read {
			o.n, o.err = s.st.ReadFrom(context.Background(), &reader{src, off})
		} else {
			o.n, o.err = s.st.SendFrom(context.Background(), both{vector{src}, lender{src}}, off, n, emit.Apply(opts...))
		}
		o.exited = false
	}()
	return ch
}

// ended waits for the outcome, but not forever.
func ended(t *testing.T, ch <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
		return outcome{}
	}
}

var errDisk = errors.New("disk on fire")

// What a source may answer, and what becomes of it. The source has 100,000 bytes from its
// offset 5,000 on.
var answers = map[string]struct {
	n      int64 // of SendFrom; 0: what there is
	answer func(s *source, k call) (int, error)
	want   int64 // bytes
	err    error // nil; or its text in errText
	text   string
	broken bool // the stream is reset
}{
	"everything":      {want: 100_000},
	"everything, n":   {n: 100_000, want: 100_000},
	"a part of it, n": {n: 50_000, want: 50_000},
	"nil at the end": {n: 100_000, want: 100_000, answer: func(s *source, k call) (int, error) {
		n, _ := s.all(k)
		return n, nil
	}},
	"EOF when full, and more promised": {n: 200_000, want: 100_000, err: io.ErrUnexpectedEOF, answer: func(s *source, k call) (int, error) {
		n, _ := s.all(k)
		if n > 0 && k.off+int64(n) == s.size {
			return n, io.EOF
		}
		return s.all(k)
	}},
	"short": {want: 100_000, answer: func(s *source, k call) (int, error) {
		k.n = min(k.n, 999)
		return s.all(k)
	}},
	"one byte at a time, at first": {want: 100_000, answer: func(s *source, k call) (int, error) {
		if len(s.calls) < 100 {
			k.n = 1
		}
		return s.all(k)
	}},
	"nothing, once": {want: 100_000, answer: func(s *source, k call) (int, error) {
		if len(s.calls)%2 == 1 {
			return 0, nil
		}
		return s.all(k)
	}},
	"nothing at all": {want: 0, err: io.ErrNoProgress, answer: func(s *source, k call) (int, error) { return 0, nil }},
	"nothing, twice": {want: 3000, err: io.ErrNoProgress, answer: first(3000, func(call) (int, error) { return 0, nil })},
	"EOF at once":    {want: 0, answer: func(s *source, k call) (int, error) { return 0, io.EOF }},
	"EOF too soon":   {n: 100_001, want: 100_000, err: io.ErrUnexpectedEOF},
	"EOF at once, n": {n: 1, want: 0, err: io.ErrUnexpectedEOF, answer: func(s *source, k call) (int, error) {
		return 0, io.EOF
	}},
	"an error with bytes": {want: 2077, err: errDisk, answer: first(2000, func(call) (int, error) { return 77, errDisk })},
	"an error without":    {want: 1000, err: errDisk, answer: first(1000, func(call) (int, error) { return 0, errDisk })},
	"an error when full":  {n: 1000, want: 1000, err: errDisk, answer: func(s *source, k call) (int, error) { return k.n, errDisk }},
	"too many":            {want: 1000, text: "count", answer: first(1000, func(k call) (int, error) { return k.n + 1, nil })},
	"fewer than none":     {want: 0, text: "count", answer: func(s *source, k call) (int, error) { return -1, nil }},
	"a panic":             {broken: true, want: 1000, text: "panic: oh", answer: first(1000, func(call) (int, error) { panic("oh") })},
	"Goexit": {broken: true, want: 1000, text: "exit", answer: first(1000, func(call) (int, error) {
		runtime.Goexit()
		return 0, nil
	})},
}

func init() {
	// The same, but so late that the token is another's by then.
	for _, what := range []string{"everything", "short", "EOF too soon", "an error with bytes", "too many", "a panic", "Goexit"} {
		w := answers[what]
		answer := w.answer
		if answer == nil {
			answer = (*source).all
		}
		w.answer = func(s *source, k call) (int, error) {
			time.Sleep(time.Duration(len(s.calls)%3) * patience)
			return answer(s, k)
		}
		answers["slow: "+what] = w
	}
}

// first is a source that gives n bytes, in pieces, and then does something else.
func first(n int64, then func(call) (int, error)) func(*source, call) (int, error) {
	return func(s *source, k call) (int, error) {
		if left := s.shift + n - k.off; left > 0 {
			return int(min(left, int64(k.n), 600)), nil
		}
		return then(k)
	}
}

func TestAnswers(t *testing.T) {
	for what, w := range answers {
		for i, tuning := range append(modes, emit.Tuning{}) {
			for _, detach := range []bool{false, true} {
				read := i == len(modes)
				if read && (w.n != 0 || detach) {
					continue
				}
				label := fmt.Sprintf("%s/%s", what, name(tuning))
				if read {
					label = what + "/ReadFrom"
				}
				t.Run(fmt.Sprintf("%s/detach %v", label, detach), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newConn(t, setup{dst: 4})
						c.serve(rtt, nil)
						s, other := c.open(0, plenty), c.open(4, plenty)
						c.do(func() { s.st.SetTuning(tuning) })
						src := c.source(s, 5000+100_000)
						src.shift = 5000
						if w.answer != nil {
							src.answer = func(k call) (int, error) { return w.answer(src, k) }
						}
						n := w.n
						if n == 0 {
							n = -1
						}
						watch := &watcher{c: c}
						opts := append(watch.options(), emit.End())
						if detach {
							opts = append(opts, emit.Detach())
						}
						ch := c.start(s, src, 5000, n, read, opts...)
						o := ended(t, ch)
						if detach {
							if o != (outcome{}) {
								t.Errorf("detached: %v", o)
							}
							time.Sleep(10 * time.Second)
						} else {
							good := o.n == w.want
							switch w.text {
							case "":
								good = good && o.err == w.err
							case "count":
								good = good && o.err != nil
							case "exit":
								good = o.exited
							default:
								good = o.panicked == "oh"
							}
							if !good {
								t.Errorf("%v", o)
							}
						}
						time.Sleep(time.Second)
						fin := w.err == nil && w.text == "" && !read
						if w.broken {
							if c.err(s) == nil {
								t.Error("the stream is not reset")
							}
						} else {
							c.whole(0, w.want, fin)
							if c.err(s) != nil {
								t.Errorf("the stream is not usable: %v", c.err(s))
							} else if !fin {
								if _, err := s.CloseWith(bytesOf(0, w.want, 100)); err != nil {
									t.Error(err)
								}
								time.Sleep(time.Second)
								c.whole(0, w.want+100, true)
							}
						}
						if !read {
							checkWatched(t, watch, 5000, w.want, w.err, w.text, w.broken)
						}
						// Token and buffers are back: another stream goes on.
						if _, err := other.CloseWith(bytesOf(4, 0, 100_000)); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Second)
						c.whole(4, 100_000, true)
						calls := len(src.calls)
						time.Sleep(time.Hour)
						if len(src.calls) != calls {
							t.Error("the source was touched after its end")
						}
						if st := s.st.Stats(); !w.broken && (int(st.Calls) != calls || st.Asked != uint64(src.total()) || st.Bytes != uint64(w.want)) {
							t.Errorf("%d calls for %d bytes: %+v", calls, src.total(), st)
						}
					})
				})
			}
		}
	}
}

func checkWatched(t *testing.T, w *watcher, base, n int64, err error, text string, broken bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.released) != 1 {
		t.Fatalf("OnRelease was called %d times", len(w.released))
	}
	if got := w.released[0]; text == "" && got != err || text != "" && got == nil {
		t.Errorf("OnRelease was told %v", got)
	}
	if w.late {
		t.Error("OnAcked after OnRelease")
	}
	for i := range w.acked {
		if w.acked[i] <= base || w.acked[i] > base+n || i > 0 && w.acked[i] <= w.acked[i-1] {
			t.Errorf("OnAcked was told %v; the source had %d bytes from %d on", w.acked, n, base)
		}
	}
	if !broken && n > 0 && (len(w.acked) == 0 || slices.Max(w.acked) != base+n) {
		t.Errorf("OnAcked was told %v, all was acknowledged up to %d", w.acked, base+n)
	}
}

// Ready is never lost: neither before the answer, nor while the source is called, nor after.
func TestReady(t *testing.T) {
	for _, when := range []string{"before", "during", "after", "twice", "never"} {
		for _, with := range []int{0, 1, 700} {
			for i, tuning := range append(modes, emit.Tuning{}) {
				t.Run(fmt.Sprintf("%s, with %d bytes, %s %d", when, with, name(tuning), i), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newConn(t, setup{dst: 4})
						c.serve(rtt, nil)
						s := c.open(0, plenty)
						c.do(func() { s.st.SetTuning(tuning) })
						src := c.source(s, 50_000)
						slept := false
						src.answer = func(k call) (int, error) {
							if k.off < 3000 {
								k.n = int(min(int64(k.n), 1000, 3000-k.off))
							} else if !slept {
								slept = true
								if when == "during" {
									c.do(s.st.Ready)
								}
								return min(with, k.n), emit.ErrNotReady
							}
							return src.all(k)
						}
						if when == "before" {
							c.do(s.st.Ready)
						}
						ch := c.start(s, src, 0, -1, i == len(modes))
						synctest.Wait()
						time.Sleep(time.Minute)
						c.do(func() { // idle means idle
							if c.rounds > 100 {
								t.Errorf("%d rounds of the connection in a minute", c.rounds)
							}
						})
						if when == "after" || when == "twice" {
							c.whole(0, src.calls[len(src.calls)-1].off+int64(min(with, src.calls[len(src.calls)-1].n)), false)
							calls := len(src.calls)
							if when == "twice" {
								c.do(s.st.Ready)
							}
							c.do(s.st.Ready)
							synctest.Wait()
							if len(src.calls) == calls {
								t.Error("Ready was lost")
							}
						}
						if when == "never" {
							select {
							case o := <-ch:
								t.Fatalf("went on without Ready: %v", o)
							default:
							}
							s.Cancel(1)
							if o := ended(t, ch); o.err == nil {
								t.Error(o)
							}
							return
						}
						if o := ended(t, ch); o.err != nil || o.n != 50_000 {
							t.Error(o)
						}
						time.Sleep(time.Second)
						c.whole(0, 50_000, false)
						if st := s.st.Stats(); st.NotReady != 1 {
							t.Errorf("%+v", st)
						}
					})
				})
			}
		}
	}
}

// What is wrong from the start is an error, and OnRelease hears of it all the same.
func TestBadCalls(t *testing.T) {
	c := newConn(t, setup{})
	s := c.open(0, plenty)
	over, cancel := context.WithCancelCause(context.Background())
	cancel(errDisk)
	for what, call := range map[string]func(o emit.Options) (int64, error){
		"no source": func(o emit.Options) (int64, error) { return s.st.SendFrom(context.Background(), nil, 0, 1, o) },
		"negative offset": func(o emit.Options) (int64, error) {
			return s.st.SendFrom(context.Background(), c.source(s, 9), -1, 1, o)
		},
		"overflow": func(o emit.Options) (int64, error) {
			return s.st.SendFrom(context.Background(), c.source(s, 9), 2, 1<<63-2, o)
		},
		"context": func(o emit.Options) (int64, error) { return s.st.SendFrom(over, c.source(s, 9), 0, 1, o) },
	} {
		for _, detach := range []bool{false, true} {
			w := &watcher{c: c}
			o := emit.Apply(w.options()...)
			o.Detach = detach
			n, err := call(o)
			if n != 0 || err == nil || what == "context" && err != errDisk {
				t.Errorf("%s: %d, %v", what, n, err)
			}
			if len(w.released) != 1 || w.released[0] != err {
				t.Errorf("%s: OnRelease was told %v", what, w.released)
			}
		}
	}
	if _, err := s.st.ReadFrom(context.Background(), nil); err == nil {
		t.Error("no reader")
	}
}

// A source is asked for no more than may be sent, and for all of that.
func TestAsksKeepWithinCredit(t *testing.T) {
	for _, tuning := range modes {
		for _, own := range []int64{15_000, 30_000} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4, credit: 20_000})
				c.serve(rtt, nil)
				s := c.open(0, own)
				c.do(func() { s.st.SetTuning(tuning) })
				src := c.source(s, 100_000)
				ch := c.start(s, src, 0, -1, false)
				time.Sleep(time.Second)
				synctest.Wait()
				limit := min(own, 20_000)
				if src.total() != limit {
					t.Errorf("%s: asked for %d bytes of %d", name(tuning), src.total(), limit)
				}
				c.whole(0, limit, false)
				c.do(func() {
					if _, blocked := c.x.Credit(); blocked != (own > 20_000) {
						t.Errorf("%s: blocked by the connection's credit: %v", name(tuning), blocked)
					}
				})
				c.do(func() {
					c.peer.mu.Lock()
					c.peer.credit = plenty
					c.peer.mu.Unlock()
					s.SetCredit(plenty)
					s.st.CreditRose()
					c.x.SetCredit(plenty)
					c.x.WakeAskers()
				})
				if o := ended(t, ch); o.err != nil || o.n != 100_000 {
					t.Error(name(tuning), o)
				}
			})
		}
	}
}

// SendFrom of nothing asks for nothing, and still ends the stream if it is told so.
func TestNothingToSend(t *testing.T) {
	for _, tuning := range modes {
		for _, written := range []int{0, 5000} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				c.serve(rtt, nil)
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				s.Write(bytesOf(0, 0, written))
				src := c.source(s, 100)
				w := &watcher{c: c}
				ch := c.start(s, src, 0, 0, false, append(w.options(), emit.End())...)
				time.Sleep(rtt / 2)
				c.whole(0, int64(written), true) // FIN does not wait for the bytes' ACK
				if o := ended(t, ch); o.n != 0 || o.err != nil || len(src.calls) > 0 {
					t.Errorf("%s: %v, %d calls", name(tuning), o, len(src.calls))
				}
				time.Sleep(time.Second)
				checkWatched(t, w, 0, 0, nil, "", false)
			})
		}
	}
}
