package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// idleSource is never ready.
type idleSource struct{ calls *int }

func (s idleSource) ReadAt([]byte, int64) (int, error) {
	*s.calls++
	return 0, emit.ErrNotReady
}

// spied is a source that has all modes and calls f at the beginning of each call.
type spied struct {
	*patternSource
	f func(call int)
}

func (s *spied) ReadAt(b []byte, off int64) (int, error) {
	s.f(s.calls)
	return s.patternSource.ReadAt(b, off)
}

func (s *spied) LendAt(off int64, n int) ([]byte, error) {
	s.f(s.calls)
	l := lender{*s.patternSource}
	b, err := l.LendAt(off, n)
	s.calls = l.calls
	return b, err
}

func (s *spied) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	s.f(s.calls)
	v := vectors{*s.patternSource}
	n, err := v.ReadVecAt(bufs, off)
	s.calls = v.calls
	return n, err
}

// Read makes it an io.Reader.
func (s *spied) reader() io.Reader { return &spiedReader{s, 0} }

type spiedReader struct {
	*spied
	off int64
}

func (r *spiedReader) Read(b []byte) (int, error) {
	n, err := r.ReadAt(b, r.off)
	r.off += int64(n)
	return n, err
}

// waysToAsk are all the ways in which a source is asked.
var waysToAsk = []struct {
	name string
	send func(ctx context.Context, s *SendStream, src *spied, size int64) (int64, error)
}{
	{"scatter", askMode(emit.Scatter, false)},
	{"scatter reread", askMode(emit.Scatter, true)},
	{"single", askMode(emit.Single, false)},
	{"lend", askMode(emit.Lend, false)},
	{"vector", askMode(emit.Vector, false)},
	{"read from", func(_ context.Context, s *SendStream, src *spied, size int64) (int64, error) {
		n, err := s.ReadFrom(src.reader())
		if err == nil {
			err = s.Close()
		}
		return n, err
	}},
}

func askMode(mode emit.Mode, reread bool) func(context.Context, *SendStream, *spied, int64) (int64, error) {
	return func(ctx context.Context, s *SendStream, src *spied, size int64) (int64, error) {
		s.SetEmission(emit.Tuning{Mode: mode, Reread: reread})
		return s.SendFrom(ctx, src, 0, size, emit.End())
	}
}

// A source that sleeps does not hold up a single small write to another stream, whenever
// that comes: there may be nothing but the timer of the token's patience to see to that.
func TestNetworkSlowSourceHoldsUpNoSmallWrite(t *testing.T) {
	for _, wait := range []time.Duration{0, 500 * time.Microsecond, 990 * time.Microsecond, 1100 * time.Microsecond} {
		t.Run(wait.String(), func(t *testing.T) {
			virtual(t, func(w *world) {
				c, s := w.connect(patient(), patient())
				slow, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				other, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				other.Write([]byte{0})
				in, err := s.AcceptUniStream(w.Context()) // slow's number is the lower one
				if err == nil {
					in, err = s.AcceptUniStream(w.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 1)
				if _, err := io.ReadFull(in, b); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second) // all is quiet

				const size = 100_000
				asleep := make(chan struct{}, 1)
				sent := make(chan error, 1)
				slow.SetEmission(emit.Tuning{Mode: emit.Single})
				go func() {
					src := &spied{patternOf(30, 0).source(size), func(call int) {
						if call == 3 {
							asleep <- struct{}{}
							time.Sleep(5 * time.Second)
						}
					}}
					_, err := slow.SendFrom(w.Context(), src, 0, size)
					sent <- err
				}()
				<-asleep
				time.Sleep(wait)
				begin := time.Now()
				other.Write([]byte{1})
				if _, err := io.ReadFull(in, b); err != nil || b[0] != 1 {
					t.Fatalf("%d, %v", b[0], err)
				}
				if took := time.Since(begin); took > 150*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A source that sleeps for five seconds holds up its own stream, and nothing else: other
// streams, acknowledgements, probes, limits, and the end of the connection go on.
func TestNetworkSlowSourceHoldsUpItsOwnStreamOnly(t *testing.T) {
	const nap, size = 5 * time.Second, 300_000
	for _, way := range waysToAsk {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				c, s := w.connect(patient(), patient())
				slow, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				p := patternOf(30, 0)
				asleep := make(chan struct{}, 1)
				src := &spied{p.source(size), func(call int) {
					if call == 3 {
						asleep <- struct{}{}
						time.Sleep(nap)
					}
				}}
				sent := make(chan error, 1)
				go func() {
					_, err := way.send(w.Context(), slow, src, size)
					sent <- err
				}()
				in, err := s.AcceptUniStream(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				<-asleep
				begin := time.Now()

				// Other streams, both ways, by Write and by sources of their own.
				for _, other := range waysToSend {
					for _, dir := range [][2]*Conn{{c, s}, {s, c}} {
						if took := w.transfer(dir[0], dir[1], other.send, patternOf(31, 0), 20_000); took > 150*time.Millisecond {
							t.Errorf("%s took %v beside it", other.name, took)
						}
					}
				}
				// A probe timeout: the loss of a lone packet is repaired.
				lost := false
				w.up.set(func(d *direction) {
					d.hook = func(int, []byte) fate {
						if !lost {
							lost = true
							return lose
						}
						return pass
					}
				})
				before := time.Now()
				w.exchange(c, s, 100)
				if took := time.Since(before); took > 300*time.Millisecond {
					t.Errorf("the repair of a loss took %v beside it", took)
				}
				if took := time.Since(begin); took > nap-time.Second {
					t.Fatalf("it slept too short: all that took %v", took)
				}
				// Its own stream goes on afterwards.
				if err := p.check(in, size); err != nil {
					t.Error(err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < nap || took > nap+time.Second {
					t.Errorf("the slow stream took %v", took)
				}
			})
			t.Run("close", func(t *testing.T) {
				virtual(t, func(w *world) {
					c, s := w.connect(patient(), patient())
					slow, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					asleep := make(chan struct{}, 1)
					src := &spied{patternOf(30, 0).source(size), func(call int) {
						if call == 3 {
							asleep <- struct{}{}
							time.Sleep(nap)
						}
					}}
					sent := make(chan error, 1)
					go func() {
						_, err := way.send(w.Context(), slow, src, size)
						sent <- err
					}()
					<-asleep
					begin := time.Now()
					c.CloseWithError(3, "")
					if err := over(s); !errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 3}) || time.Since(begin) > 10*time.Millisecond {
						t.Errorf("the peer hears %v after %v", err, time.Since(begin))
					}
					if err := <-sent; !errors.Is(err, &ApplicationError{ErrorCode: 3}) {
						t.Errorf("SendFrom returns %v", err)
					}
					if src.calls != 4 {
						t.Errorf("%d calls of the source", src.calls)
					}
				})
			})
		})
	}
}

// A05: whatever a source calls, on its own stream, on others or on the connection, itself
// or through a goroutine that it waits for, returns: it works or is an error. A bulk
// stream beside it gets through.
func TestNetworkSourcesMayCallAnything(t *testing.T) {
	type scene struct {
		w     *world
		c     *Conn
		own   *Stream
		other *SendStream
	}
	// ends says that the stream, or the connection, does not survive.
	calls := []struct {
		name string
		do   func(s scene) error
		want error // of do; nil: none
		ends bool
	}{
		{"Close", func(s scene) error { return s.own.Close() }, nil, false},
		{"CancelWrite", func(s scene) error { s.own.CancelWrite(4); return nil }, nil, true},
		{"CancelRead", func(s scene) error { s.own.CancelRead(4); return nil }, nil, false},
		{"SetWriteDeadline", func(s scene) error { return s.own.SetWriteDeadline(time.Now().Add(time.Hour)) }, nil, false},
		{"a write deadline in the past", func(s scene) error { return s.own.SetWriteDeadline(time.Now().Add(-1)) }, nil, true},
		{"SetPriority", func(s scene) error { s.own.SetPriority(1, false); return nil }, nil, false},
		{"Ready", func(s scene) error { s.own.Ready(); return nil }, nil, false},
		{"Write", func(s scene) error { _, err := s.own.Write([]byte("x")); return err }, emit.ErrBusy, false},
		{"CloseWith", func(s scene) error { _, err := s.own.CloseWith([]byte("x")); return err }, emit.ErrBusy, false},
		{"WriteOwned", func(s scene) error { _, err := s.own.WriteOwned(make([]byte, 1000), nil); return err }, emit.ErrBusy, false},
		{"TryWriteAll", func(s scene) error { return s.own.TryWriteAll([]byte("x")) }, emit.ErrBusy, false},
		{"SendFrom", func(s scene) error {
			_, err := s.own.SendFrom(s.w.Context(), patternOf(0, 0).source(1), 0, 1)
			return err
		}, emit.ErrBusy, false},
		{"ReadFrom", func(s scene) error { _, err := s.own.ReadFrom(patternOf(0, 0).reader(1)); return err }, emit.ErrBusy, false},
		{"Cork", func(s scene) error { s.own.Cork(); return nil }, nil, false},
		{"SetWriteBuffer", func(s scene) error { return s.own.SetWriteBuffer(1, 1) }, nil, false},
		{"Writable", func(s scene) error { s.own.Writable(); return nil }, nil, false},
		{"SetEmission", func(s scene) error { s.own.SetEmission(emit.Tuning{Mode: emit.Scatter, MaxDatagrams: 3}); return nil }, nil, false},
		{"EmissionStats", func(s scene) error { s.own.EmissionStats(); return nil }, nil, false},
		{"Context", func(s scene) error { return s.own.Context().Err() }, nil, false},
		{"OpenStream", func(s scene) error { _, err := s.c.OpenStream(); return err }, nil, false},
		{"Write to another", func(s scene) error { _, err := s.other.Write(make([]byte, 100)); return err }, nil, false},
		{"SendFrom to another", func(s scene) error {
			_, err := s.other.SendFrom(s.w.Context(), patternOf(0, 0).source(100_000), 0, -1)
			return err
		}, nil, false},
		{"SendFrom in place to another", func(s scene) error {
			s.other.SetEmission(emit.Tuning{Mode: emit.Single})
			_, err := s.other.SendFrom(s.w.Context(), patternOf(0, 0).source(100_000), 0, -1)
			return err
		}, nil, false},
		{"ConnectionStats", func(s scene) error { s.c.ConnectionStats(); s.c.ConnectionState(); return nil }, nil, false},
		{"CloseWithError", func(s scene) error { return s.c.CloseWithError(1, "") }, nil, true},
	}
	const size = 150_000 // ten calls of a pass each
	for _, way := range waysToAsk {
		for _, call := range calls {
			for _, at := range []int{0, 4, 9} {
				for _, direct := range []bool{true, false} {
					if !direct && at != 4 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s in call %d, directly: %v", way.name, call.name, at, direct), func(t *testing.T) {
						virtual(t, func(w *world) {
							w.sniff()
							c, s := w.connect(patient(), patient())
							own, err := c.OpenStream()
							if err != nil {
								t.Fatal(err)
							}
							other, err := c.OpenUniStream()
							if err != nil {
								t.Fatal(err)
							}
							bulk := make(chan time.Duration, 1)
							if call.name != "CloseWithError" {
								go func() {
									bulk <- w.transfer(s, c, waysToSend[0].send, patternOf(32, 1), 300_000)
								}()
							}
							p := patternOf(32, 0)
							after := 0 // calls since
							src := &spied{p.source(size), nil}
							src.f = func(n int) {
								if n > at {
									after++
								}
								if n != at {
									return
								}
								result := make(chan error, 1)
								do := func() { result <- call.do(scene{w, c, own, other}) }
								if direct {
									do()
								} else {
									go do()
								}
								select {
								case err := <-result:
									if !errors.Is(err, call.want) {
										t.Errorf("it returned %v, not %v", err, call.want)
									}
								case <-time.After(time.Second):
									t.Errorf("it hangs")
									<-result
								}
							}
							n, err := way.send(w.Context(), own.SendStream, src, size)
							if call.ends {
								if err == nil {
									t.Errorf("it sent %d bytes after the end", n)
								}
								// A deadline is looked at between flights.
								if after > 0 && (call.name != "a write deadline in the past" || after > 40) {
									t.Errorf("%d more calls after the end", after)
								}
							} else if err != nil || n != size {
								t.Errorf("it sent %d bytes: %v", n, err)
							} else {
								in, err := s.AcceptStream(w.Context())
								if err != nil {
									t.Fatal(err)
								}
								if err := p.check(in, size); err != nil {
									t.Error(err)
								}
							}
							if call.name != "CloseWithError" {
								if took := <-bulk; took > 5*time.Second {
									t.Errorf("the bulk stream took %v", took)
								}
							} else {
								<-s.Context().Done() // before, the server may have sent nothing yet
							}
						})
					})
				}
			}
		}
	}
}

// A source that fails in the middle of a batch, panics, or has nothing for a while,
// spoils nothing: bytes before the failure arrive, and the stream can be used on.
func TestNetworkSourceFails(t *testing.T) {
	const size = 200_000
	broken := errors.New("broken")
	for _, way := range waysToAsk {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				c, s := w.connect(patient(), patient())
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				p := patternOf(33, 0)
				calls := 0
				failing := emit.OnEmit(func(b []byte, off int64) (int, error) {
					if calls++; calls == 5 {
						n := len(b) / 2
						p.fill(b[:n], off)
						return n, broken
					}
					p.fill(b, off)
					return len(b), nil
				})
				var n int64
				if way.name == "read from" {
					n, err = out.ReadFrom(io.NewSectionReader(failing, 0, size))
				} else {
					n, err = func() (int64, error) {
						// Only ReadAt is there: what lends or fills vectors falls back.
						out.SetEmission(emit.Tuning{Mode: map[string]emit.Mode{"scatter": emit.Scatter, "scatter reread": emit.Scatter,
							"single": emit.Single, "lend": emit.Lend, "vector": emit.Vector}[way.name], Reread: way.name == "scatter reread"})
						return out.SendFrom(w.Context(), failing, 0, size, emit.End())
					}()
				}
				if !errors.Is(err, broken) || n <= 0 || n >= size {
					t.Fatalf("it returned %d, %v", n, err)
				}
				// The rest comes in another way, without a seam.
				if _, err := out.CloseWith(p.bytes(size)[n:]); err != nil {
					t.Fatal(err)
				}
				in, err := s.AcceptUniStream(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := p.check(in, size); err != nil {
					t.Error(err)
				}

				// A panic comes out where the call was, and resets the stream.
				out, err = c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				src := &spied{p.source(size), func(call int) {
					if call == 3 {
						panic("oh")
					}
				}}
				func() {
					defer func() {
						if v := recover(); v != "oh" {
							t.Errorf("recovered %v", v)
						}
					}()
					way.send(w.Context(), out, src, size)
				}()
				if in, err = s.AcceptUniStream(w.Context()); err != nil {
					t.Fatal(err)
				}
				_, err = io.Copy(io.Discard, readOnly{in})
				if _, reset := streamCode(err); !reset {
					t.Errorf("after the panic the reader sees %v", err)
				}
				w.exchange(c, s, 1000)
			})
		})
	}
}

// A source that is not ready is asked again after Ready, and only then, while other
// streams go on.
func TestNetworkSourceBecomesReady(t *testing.T) {
	const size = 300_000
	for _, way := range waysToAsk {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				c, s := w.connect(patient(), patient())
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				p := patternOf(34, 0)
				var have, asked atomic.Int64 // bytes that are ready; calls that found nothing
				src := &growing{p: p, size: size, have: have.Load, none: func() { asked.Add(1) }}
				sent := make(chan error, 1)
				go func() {
					var err error
					if way.name == "read from" {
						if _, err = out.ReadFrom(src); err == nil {
							err = out.Close()
						}
					} else {
						out.SetEmission(emit.Tuning{Mode: map[string]emit.Mode{"scatter": emit.Scatter, "scatter reread": emit.Scatter,
							"single": emit.Single, "lend": emit.Lend, "vector": emit.Vector}[way.name], Reread: way.name == "scatter reread"})
						_, err = out.SendFrom(w.Context(), src, 0, size, emit.End())
					}
					sent <- err
				}()
				var in *ReceiveStream
				check := p.checker()
				for have.Load() < size {
					have.Store(min(have.Load()+w.rnd.Int64N(40_000), size))
					before := asked.Load()
					out.Ready()
					w.exchange(c, s, 1000)
					time.Sleep(200 * time.Millisecond)
					if n := asked.Load() - before; n > 2 { // Ready, and the first call of all
						t.Fatalf("%d calls that found nothing", n)
					}
					if in == nil && have.Load() > 0 {
						if in, err = s.AcceptUniStream(w.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if have.Load() > 0 {
						if _, err := io.CopyN(check, readOnly{in}, have.Load()-check.n); err != nil {
							t.Fatal(err)
						}
					}
				}
				if _, err := in.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("at the end: %v", err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// growing is a source that has a part of its bytes so far.
type growing struct {
	p    pattern
	size int64
	have func() int64
	none func()
	off  int64 // of Read
}

func (g *growing) clip(n int, off int64) (int, error) {
	have := g.have()
	left := have - off
	switch {
	case int64(n) <= left:
		return n, nil
	case have == g.size:
		return int(left), io.EOF
	}
	g.none()
	return int(left), emit.ErrNotReady
}

func (g *growing) ReadAt(b []byte, off int64) (int, error) {
	n, err := g.clip(len(b), off)
	g.p.fill(b[:n], off)
	return n, err
}

func (g *growing) LendAt(off int64, n int) ([]byte, error) {
	n, err := g.clip(n, off)
	b := make([]byte, n)
	g.p.fill(b, off)
	return b, err
}

func (g *growing) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	n, err := g.clip(total, off)
	for left, i := n, 0; left > 0; i++ {
		k := min(left, len(bufs[i]))
		g.p.fill(bufs[i][:k], off)
		off += int64(k)
		left -= k
	}
	return n, err
}

func (g *growing) Read(b []byte) (int, error) {
	n, err := g.ReadAt(b, g.off)
	g.off += int64(n)
	return n, err
}
