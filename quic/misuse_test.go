package quic

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// What applications do that they should not, or seldom do: nothing panics, and no call
// hangs for longer than the network takes.

// quickly fails the test if f takes more than a minute of virtual time.
func quickly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Errorf("%s hangs", what)
	}
}

// sink reads all that the peer sends, and forgets it.
func sink(c *Conn) {
	go func() {
		for {
			s, err := c.AcceptStream(context.Background())
			if err != nil {
				return
			}
			go io.Copy(io.Discard, s)
		}
	}()
}

func TestOddArguments(t *testing.T) {
	virtual(t, func(w *world) {
		c, server := w.connect(nil, nil)
		sink(server)
		calls := map[string]func(s *Stream){
			"Write(nil)":            func(s *Stream) { s.Write(nil) },
			"Read(nil)":             func(s *Stream) { s.SetReadDeadline(time.Now()); s.Read(nil); s.Peek(nil) },
			"WriteBuffers(empty)":   func(s *Stream) { s.WriteBuffers(new(net.Buffers)); s.WriteBuffers(&net.Buffers{nil, {}, nil}) },
			"WriteOwned(nil)":       func(s *Stream) { s.WriteOwned(nil, nil); s.WriteOwned(make([]byte, 512), nil) },
			"TryWriteAll(nil)":      func(s *Stream) { s.TryWriteAll(nil) },
			"SendFrom(nil)":         func(s *Stream) { s.SendFrom(context.Background(), nil, 0, 1) },
			"ReadFrom(nil)":         func(s *Stream) { s.ReadFrom(nil) },
			"SendFrom at -1":        func(s *Stream) { s.SendFrom(context.Background(), zeros{}, -1, 1) },
			"SendFrom of too much":  func(s *Stream) { s.SendFrom(context.Background(), zeros{}, 1, math.MaxInt64) },
			"SendFrom of nothing":   func(s *Stream) { s.SendFrom(context.Background(), zeros{}, math.MaxInt64, 0) },
			"SetWriteBuffer":        func(s *Stream) { s.SetWriteBuffer(-1, -1); s.SetWriteBuffer(2, 1); s.SetWriteBuffer(0, 0) },
			"SetWriteBuffer, large": func(s *Stream) { s.SetWriteBuffer(math.MaxInt, math.MaxInt); s.Write(make([]byte, 5000)) },
			"SetPriority":           func(s *Stream) { s.SetPriority(-128, false); s.SetPriority(127, true) },
			"SetEmission":           func(s *Stream) { s.SetEmission(emit.Tuning{Mode: 200, MaxDatagrams: -5}) },
			"limiter, odd": func(s *Stream) {
				s.WriteWithLimit(make([]byte, 9), func(int) int { return -1 })
				s.WriteWithLimit(make([]byte, 9), func(int) int { return math.MaxInt })
			},
			"Cork, Uncork": func(s *Stream) {
				s.Uncork()
				s.Cork()
				s.Cork()
				s.SetReliableBoundary()
				s.Write([]byte("x"))
				s.Uncork()
				s.Uncork()
			},
			"Ready, Writable": func(s *Stream) { s.Ready(); <-s.Writable(); s.EmissionStats() },
			"deadlines":       func(s *Stream) { s.SetDeadline(time.Unix(0, 0)); s.Write(make([]byte, 9)); s.SetDeadline(time.Time{}) },
		}
		after := []func(s *Stream){
			func(*Stream) {},
			func(s *Stream) { s.Close() },
			func(s *Stream) { s.SetReliableBoundary(); s.CancelWrite(math.MaxUint32); s.CancelRead(0) },
		}
		var last *Stream
		for _, end := range after {
			s, err := c.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			last = s
			end(s)
			for name, f := range calls {
				quickly(t, name, func() { f(s) })
			}
		}
		quickly(t, "SendDatagram", func() { c.SendDatagram(nil); c.SendDatagram(make([]byte, 1<<20)) })
		c.CloseWithError(math.MaxUint32, string(make([]byte, 1<<16)))
		for name, f := range calls {
			quickly(t, name+" at the end", func() { f(last) })
		}
		if _, err := c.OpenStream(); err == nil {
			t.Error("a stream is opened on a connection that is over")
		}
	})
}

// zeros is a source for every mode.
type zeros struct{ emit.OnEmit }

func (z zeros) LendAt(off int64, n int) ([]byte, error) {
	p := make([]byte, n)
	n, err := z.ReadAt(p, off)
	return p[:n], err
}

func (z zeros) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	for _, p := range bufs {
		k, err := z.ReadAt(p, off+int64(n))
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	if z.OnEmit != nil {
		return z.OnEmit(p, off)
	}
	clear(p)
	return len(p), nil
}

// A source may do to its own stream and connection whatever it likes, in every mode.
func TestSourceThatTurnsOnItsStream(t *testing.T) {
	acts := map[string]func(c *Conn, s *SendStream){
		"Close":          func(_ *Conn, s *SendStream) { s.Close() },
		"CancelWrite":    func(_ *Conn, s *SendStream) { s.SetReliableBoundary(); s.CancelWrite(1) },
		"CloseWithError": func(c *Conn, _ *SendStream) { c.CloseWithError(1, "") },
		"Write": func(_ *Conn, s *SendStream) {
			if _, err := s.Write([]byte("x")); !errors.Is(err, emit.ErrBusy) {
				panic(err)
			}
		},
		"SendFrom": func(_ *Conn, s *SendStream) { s.SendFrom(context.Background(), zeros{}, 0, 1) },
		"settings": func(_ *Conn, s *SendStream) {
			s.SetEmission(emit.Tuning{Mode: emit.Single})
			s.SetWriteBuffer(0, 0)
			s.Cork()
			s.Ready()
			s.SetPriority(7, false)
			s.SetWriteDeadline(time.Now().Add(time.Hour))
		},
		"another stream": func(c *Conn, _ *SendStream) {
			if o, err := c.OpenStream(); err == nil {
				o.CloseWith(make([]byte, 3000))
			}
		},
		"panic": func(*Conn, *SendStream) { panic("a source") },
	}
	for _, mode := range []emit.Mode{emit.Auto, emit.Scatter, emit.Single, emit.Lend, emit.Vector} {
		for name, act := range acts {
			virtual(t, func(w *world) {
				c, server := w.connect(nil, nil)
				sink(server)
				s, err := c.OpenStream()
				if err != nil {
					t.Fatal(err)
				}
				s.SetEmission(emit.Tuning{Mode: mode})
				calls := 0
				src := zeros{func(p []byte, _ int64) (int, error) {
					if calls++; calls == 3 {
						act(c, s.SendStream)
					}
					clear(p)
					return len(p), nil
				}}
				quickly(t, mode.String()+": a source that does "+name, func() {
					defer func() { recover() }()
					s.SendFrom(context.Background(), src, 0, 200_000, emit.End())
				})
				if name == "panic" {
					if _, err := s.Write([]byte("x")); err == nil {
						t.Errorf("%v: after a panic the stream goes on", mode)
					}
				}
			})
		}
	}
}

// Whatever ends a stream, and when: who lent memory gets it back once.
func TestLentMemoryComesBackOnce(t *testing.T) {
	virtual(t, func(w *world) {
		c, server := w.connect(nil, nil)
		go func() {
			for n := 0; ; n++ {
				s, err := server.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					if n%3 == 0 {
						s.CancelRead(7)
					}
					io.Copy(io.Discard, s)
					s.CancelWrite(0)
				}()
			}
		}()
		var back []*atomic.Int32
		for round := range 120 {
			s, err := c.OpenStreamSync(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				s.SetWriteBuffer(0, 0)
			}
			go io.Copy(io.Discard, s)
			s.SetWriteDeadline(time.Now().Add(time.Duration(w.rnd.IntN(60)) * time.Millisecond))
			for range 4 {
				n := new(atomic.Int32)
				back = append(back, n)
				s.WriteOwned(make([]byte, 1+w.rnd.IntN(40_000)), func() { n.Add(1) })
				switch w.rnd.IntN(8) {
				case 0:
					s.SetReliableBoundary()
				case 1:
					s.CancelWrite(1)
				case 2:
					s.Cork()
				case 3:
					s.Close()
				}
			}
			if round%4 == 0 {
				s.CancelWrite(2)
			}
			s.Close()
		}
		time.Sleep(20 * time.Millisecond)
		c.CloseWithError(0, "")
		time.Sleep(time.Second)
		synctest.Wait()
		if i := slices.IndexFunc(back, func(n *atomic.Int32) bool { return n.Load() != 1 }); i >= 0 {
			t.Errorf("block %d came back %d times", i, back[i].Load())
		}
	})
}
