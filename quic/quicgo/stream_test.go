package quicgo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/volley-quic/volley/emit"
)

const volley = emit.MaxDatagrams * payload

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{7})
	r.Read(b)
	return b
}

// counted is a source that notes how it was asked.
type counted struct {
	data []byte
	dsts []int
	offs []int64
}

func (c *counted) ReadAt(dst []byte, off int64) (int, error) {
	c.dsts, c.offs = append(c.dsts, len(dst)), append(c.offs, off)
	return bytes.NewReader(c.data).ReadAt(dst, off)
}

func TestSendFromAsksOncePerVolley(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		src := &counted{data: content(5*volley + 100)}
		got := p.received()
		s := p.open()
		n, err := s.SendFrom(t.Context(), src, 100, int64(5*volley), emit.End())
		if n != 5*volley || err != nil {
			t.Fatalf("SendFrom: %d, %v", n, err)
		}
		if !bytes.Equal(got(), src.data[100:]) {
			t.Fatal("the peer received something else")
		}
		for i, off := range src.offs {
			if off != int64(100+i*volley) || src.dsts[i] != volley {
				t.Errorf("call %d was for %d bytes at %d", i, src.dsts[i], off)
			}
		}
		want := emit.Stats{Mode: emit.Scatter, Calls: 5, Passes: 5, Datagrams: 50, Bytes: 5 * volley, Asked: 5 * volley}
		if st := s.EmissionStats(); st != want {
			t.Errorf("stats %+v, want %+v", st, want)
		}
	})
}

// What a datagram holds is a guess. It should be a good one, where path MTU discovery has
// come to its end at 1452 bytes. It finds nothing on a path without the don't-fragment
// bit, as here: packets stay at 1280.
func TestPayloadIsWhatAPacketCarries(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		got := p.received()
		s := p.open()
		if _, err := s.SendFrom(t.Context(), bytes.NewReader(content(1<<20)), 0, -1, emit.End()); err != nil {
			t.Fatal(err)
		}
		got()
		if n := p.sent.largest.Load() + 1452 - 1280; n < payload || n > payload+8 {
			t.Errorf("the largest STREAM frame would have %d bytes, a datagram is taken for %d", n, payload)
		}
	})
}

// The scratch is one, and not touched before quic-go is done with it: neither by us while
// Write runs, nor by a later volley.
func TestScratchRestsWhileWriteRuns(t *testing.T) {
	f := &fake{t: t}
	s := Wrap(f)
	var dst *byte
	var writing bool
	f.write = func(p []byte) (int, error) {
		writing = true
		defer func() { writing = false }()
		was := bytes.Clone(p)
		runtime.Gosched()
		if &p[0] != dst || !bytes.Equal(was, p) {
			t.Error("Write was given something else, or something that changes")
		}
		return len(p), nil
	}
	src := emit.OnEmit(func(b []byte, off int64) (int, error) {
		if writing {
			t.Error("the source was asked while Write runs")
		}
		if dst != nil && dst != &b[0] {
			t.Error("a second scratch")
		}
		dst = &b[0]
		if cap(b) != len(b) {
			t.Errorf("room for %d bytes beyond dst", cap(b)-len(b))
		}
		for i := range b {
			b[i] = byte(off)
		}
		return len(b), nil
	})
	if n, err := s.SendFrom(t.Context(), src, 0, 9*volley+100); n != 9*volley+100 || err != nil {
		t.Fatal(n, err)
	}
}

// fake is a stream that hands what is written to a function.
type fake struct {
	Stream // nil: what a test does not expect panics
	t      *testing.T
	write  func(p []byte) (int, error)
	wrote  []byte
	ended  error
	closed int
}

func (f *fake) Write(p []byte) (int, error) {
	if f.ended != nil {
		return 0, f.ended
	}
	if len(p) == 0 {
		return 0, nil
	}
	if f.write != nil {
		return f.write(p)
	}
	f.wrote = append(f.wrote, p...)
	return len(p), nil
}

func (f *fake) Close() error { f.closed++; return nil }

func (f *fake) CancelWrite(code quic.StreamErrorCode) {
	f.ended = &quic.StreamError{ErrorCode: code}
}

func (f *fake) Context() context.Context { return context.Background() }

func (f *fake) SetWriteDeadline(time.Time) error { return nil }

// answer is what a source says to one call.
type answer struct {
	n   int
	err error
}

// Package emit says what each answer means.
func TestAnswers(t *testing.T) {
	broken := errors.New("broken")
	const all = math.MaxInt
	tests := []struct {
		name    string
		n       int64 // of SendFrom
		answers []answer
		want    int64
		err     error
		calls   int
	}{
		{"full", 100, []answer{{all, nil}}, 100, nil, 1},
		{"full and EOF", 100, []answer{{all, io.EOF}}, 100, nil, 1},
		{"nothing to send", 0, nil, 0, nil, 0},
		{"short", 100, []answer{{10, nil}, {1, nil}, {all, nil}}, 100, nil, 3},
		{"nothing once", 100, []answer{{0, nil}, {50, nil}, {0, nil}, {all, nil}}, 100, nil, 4},
		{"nothing twice", 100, []answer{{10, nil}, {0, nil}, {0, nil}}, 10, io.ErrNoProgress, 3},
		{"EOF too early", 100, []answer{{10, nil}, {20, io.EOF}}, 30, io.ErrUnexpectedEOF, 2},
		{"full and EOF, and there is more", volley + 100, []answer{{all, io.EOF}, {all, nil}}, volley + 100, nil, 2},
		{"full and EOF, and there is not", volley + 100, []answer{{all, io.EOF}, {0, io.EOF}}, volley, io.ErrUnexpectedEOF, 2},
		{"EOF at once", 100, []answer{{0, io.EOF}}, 0, io.ErrUnexpectedEOF, 1},
		{"up to EOF", -1, []answer{{all, nil}, {20, io.EOF}}, volley + 20, nil, 2},
		{"up to EOF, told late", -1, []answer{{20, nil}, {0, io.EOF}}, 20, nil, 2},
		{"up to EOF, full", -1, []answer{{all, io.EOF}}, volley, nil, 1},
		{"error", 100, []answer{{10, nil}, {5, broken}}, 15, broken, 2},
		{"error with all", 100, []answer{{all, broken}}, 100, broken, 1},
		{"wrapped EOF is an error", -1, []answer{{5, fmt.Errorf("no: %w", io.EOF)}}, 5, io.EOF, 1},
		{"not ready and all", 100, []answer{{all, emit.ErrNotReady}}, 100, nil, 1},
		{"not ready", 100, []answer{{10, emit.ErrNotReady}, {0, emit.ErrNotReady}, {all, nil}}, 100, nil, 3},
		{"count too large", 100, []answer{{10, nil}, {101, nil}}, 10, errCount, 2},
		{"count negative", 100, []answer{{10, nil}, {-1, nil}}, 10, errCount, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{t: t}
			s := Wrap(f)
			data := content(2 * volley)
			pos, calls := 0, 0
			src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
				a := tt.answers[calls]
				calls++
				if off != int64(pos) {
					t.Errorf("asked for offset %d after %d bytes", off, pos)
				}
				if a.n == all {
					a.n = len(dst)
				}
				if a.n > 0 {
					pos += copy(dst[:min(a.n, len(dst))], data[pos:])
				}
				if a.err == emit.ErrNotReady && calls < len(tt.answers) {
					go s.Ready()
				}
				return a.n, a.err
			})
			var released []error
			n, err := s.SendFrom(t.Context(), src, 0, tt.n, emit.End(), emit.OnRelease(func(err error) { released = append(released, err) }))
			if n != tt.want || !isOrCount(err, tt.err) || calls != tt.calls {
				t.Errorf("%d bytes, %v after %d calls; want %d, %v, %d", n, err, calls, tt.want, tt.err, tt.calls)
			}
			if !bytes.Equal(f.wrote, data[:n]) {
				t.Errorf("%d bytes written, not what the source gave", len(f.wrote))
			}
			if want := map[bool]int{true: 1}[err == nil]; f.closed != want {
				t.Errorf("closed %d times, want %d: err is %v", f.closed, want, err)
			}
			if len(released) != 1 || released[0] != err {
				t.Errorf("released with %v", released)
			}
			if _, err := s.Write([]byte("on")); err != nil {
				t.Errorf("the stream is not usable after: %v", err)
			}
		})
	}
}

var errCount = errors.New("a count")

func isOrCount(err, want error) bool {
	if want == errCount {
		return err != nil && strings.Contains(err.Error(), "returned a count of")
	}
	return errors.Is(err, want)
}

func TestReadFrom(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		data := content(3*volley + 1)
		got := p.received()
		s := p.open()
		// A bytes.Reader has a WriteTo of its own; without it io.Copy takes ReadFrom.
		n, err := io.Copy(s, struct{ io.Reader }{bytes.NewReader(data)})
		if n != int64(len(data)) || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.ReadFrom(iotest.OneByteReader(strings.NewReader("abc"))); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		broken := errors.New("broken")
		n, err = s.ReadFrom(io.MultiReader(strings.NewReader("xyz"), iotest.ErrReader(broken)))
		if n != 3 || err != broken {
			t.Fatal(n, err)
		}
		s.Close()
		if want := append(data, "abcxyz"...); !bytes.Equal(got(), want) {
			t.Fatal("the peer received something else")
		}
		if st := s.EmissionStats(); st.Calls < 4+4+2 || st.Bytes != uint64(len(data)+6) {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestNotReadyRestsUntilReady(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		s := p.open()
		got := p.received()
		var mu sync.Mutex
		var have []byte
		src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			n := copy(dst, have[off:])
			if n < len(dst) {
				return n, emit.ErrNotReady
			}
			return n, nil
		})
		s.Ready() // before the call: not lost, and does no harm
		go func() {
			for range 10 {
				time.Sleep(time.Second)
				mu.Lock()
				have = append(have, "some bytes"...)
				mu.Unlock()
				s.Ready()
			}
		}()
		n, err := s.SendFrom(t.Context(), src, 0, 100, emit.End())
		if n != 100 || err != nil {
			t.Fatal(n, err)
		}
		if want := strings.Repeat("some bytes", 10); string(got()) != want {
			t.Fatal("the peer received something else")
		}
		if st := s.EmissionStats(); st.NotReady < 10 || st.NotReady > 11 {
			t.Errorf("%d answers of ErrNotReady", st.NotReady)
		}
	})
}

// never is a source that has nothing to say.
var never = emit.OnEmit(func([]byte, int64) (int, error) { return 0, emit.ErrNotReady })

// endless gives bytes for ever.
var endless = emit.OnEmit(func(dst []byte, _ int64) (int, error) { return len(dst), nil })

// Whatever ends a stream ends a source, whether it rests or its bytes wait for credit.
func TestWhatEndsASource(t *testing.T) {
	why := errors.New("why")
	tests := []struct {
		name string
		do   func(p *pair, s *SendStream, cancel context.CancelCauseFunc)
		want error
	}{
		{"context", func(_ *pair, _ *SendStream, cancel context.CancelCauseFunc) { cancel(why) }, why},
		{"deadline", func(_ *pair, s *SendStream, _ context.CancelCauseFunc) { s.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		{"deadline, later", func(_ *pair, s *SendStream, _ context.CancelCauseFunc) {
			s.SetWriteDeadline(time.Now().Add(time.Second))
		}, os.ErrDeadlineExceeded},
		{"CancelWrite", func(_ *pair, s *SendStream, _ context.CancelCauseFunc) { s.CancelWrite(5) }, &quic.StreamError{StreamID: 2, ErrorCode: 5}},
		{"the peer", func(p *pair, _ *SendStream, _ context.CancelCauseFunc) { p.accept().CancelRead(6) }, &quic.StreamError{StreamID: 2, ErrorCode: 6, Remote: true}},
		{"the connection", func(p *pair, _ *SendStream, _ context.CancelCauseFunc) { p.client.CloseWithError(7, "") }, &quic.ApplicationError{ErrorCode: 7}},
		{"the peer's connection", func(p *pair, _ *SendStream, _ context.CancelCauseFunc) { p.server.CloseWithError(8, "") }, &quic.ApplicationError{ErrorCode: 8, Remote: true}},
	}
	sources := map[string]emit.OnEmit{"resting": never, "waiting for credit": endless}
	for _, tt := range tests {
		for name, src := range sources {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				inPair(t, 64<<10, func(t *testing.T, p *pair) {
					s := p.open()
					s.Write([]byte("x")) // so that the peer knows of it
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					time.AfterFunc(10*time.Second, func() { tt.do(p, s, cancel) })
					var released []error
					start := time.Now()
					n, err := s.SendFrom(ctx, src, 0, -1, emit.OnRelease(func(err error) { released = append(released, err) }))
					if took := time.Since(start); !errors.Is(err, tt.want) || took > 12*time.Second {
						t.Errorf("%v after %v, want %v", err, took, tt.want)
					}
					if name != "resting" && n != 64<<10-1 {
						t.Errorf("%d bytes of a window of 65536 with one used", n)
					}
					if len(released) != 1 || released[0] != err {
						t.Errorf("released with %v", released)
					}
				})
			})
		}
	}
}

// The deadline that SendFrom's context borrows is given back, and n is true: the peer
// receives what was counted, and then what is sent after.
func TestContextGivesTheDeadlineBack(t *testing.T) {
	inPair(t, 64<<10, func(t *testing.T, p *pair) {
		s := p.open()
		deadline := time.Now().Add(20 * time.Second)
		s.SetWriteDeadline(deadline)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		data := content(1 << 20)
		n, err := s.SendFrom(ctx, bytes.NewReader(data), 0, -1)
		if n != 64<<10 || err != context.DeadlineExceeded {
			t.Fatal(n, err)
		}
		got := p.received()
		if m, err := s.SendFrom(t.Context(), bytes.NewReader(data), n, -1); m != int64(len(data))-n || err != nil {
			t.Fatal(m, err)
		}
		time.Sleep(time.Until(deadline))
		if _, err := s.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after the application's deadline: %v", err)
		}
		s.Close()
		if !bytes.Equal(got(), data) {
			t.Fatal("the peer received something else")
		}
	})
}

// A deadline that is set while the context's is in place is the one that is put back.
func TestDeadlineSetMeanwhile(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		s := p.open()
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := emit.OnEmit(func([]byte, int64) (int, error) {
			cancel()
			synctest.Wait()
			s.SetWriteDeadline(time.Now().Add(time.Hour))
			return 1, nil
		})
		if n, err := s.SendFrom(ctx, cancelled, 0, -1); n != 0 || err != context.Canceled {
			t.Fatal(n, err)
		}
		if _, err := s.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	})
}

// While a source runs, nobody else adds bytes, and Close waits its turn.
func TestBusy(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		s := p.open()
		got := p.received()
		asked := false
		src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
			if asked {
				return copy(dst, "more"), io.EOF
			}
			asked = true
			busy := func(what string, err error) {
				t.Helper()
				if err != emit.ErrBusy {
					t.Errorf("%s during a source: %v", what, err)
				}
			}
			_, err := s.Write([]byte("no"))
			busy("Write", err)
			_, err = s.WriteWithLimit([]byte("no"), nil)
			busy("WriteWithLimit", err)
			busy("TryWriteAll", s.TryWriteAll([]byte("no")))
			_, err = s.WriteBuffers(&net.Buffers{[]byte("no")})
			busy("WriteBuffers", err)
			_, err = s.ReadFrom(strings.NewReader("no"))
			busy("ReadFrom", err)
			_, err = s.SendFrom(t.Context(), strings.NewReader("no"), 0, -1)
			busy("SendFrom", err)
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
			if _, err := s.Write([]byte("no")); err != quic.ErrStreamClosed {
				t.Errorf("Write after Close: %v", err)
			}
			if err := s.TryWriteAll([]byte("no")); err != quic.ErrStreamClosed {
				t.Errorf("TryWriteAll after Close: %v", err)
			}
			return copy(dst, "some"), nil
		})
		if n, err := s.SendFrom(t.Context(), src, 0, -1); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		if b := got(); string(b) != "somemore" {
			t.Fatalf("the peer received %q", b)
		}
		if _, err := s.SendFrom(t.Context(), src, 0, -1); err != quic.ErrStreamClosed {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Writes of several goroutines come one after the other, each whole.
func TestWritesTakeTurns(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		s := p.open()
		got := p.received()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				line := bytes.Repeat([]byte{'a' + byte(i)}, 5000)
				for range 5 {
					b := net.Buffers{line[:10], line[10:4000], line[4000:]}
					if n, err := s.WriteBuffers(&b); n != 5000 || err != nil {
						t.Error(n, err)
					}
					if n, err := s.Write(line); n != 5000 || err != nil {
						t.Error(n, err)
					}
				}
			})
		}
		synctest.Wait()
		wg.Wait()
		s.Close()
		b := got()
		if len(b) != 4*5*2*5000 {
			t.Fatalf("%d bytes arrived", len(b))
		}
		for ; len(b) > 0; b = b[5000:] {
			if bytes.Count(b[:5000], b[:1]) != 5000 {
				t.Fatal("two writes were mixed")
			}
		}
	})
}

// A source waits for no write, and no write for a source.
func TestSourceDuringWrite(t *testing.T) {
	f := &fake{t: t}
	s := Wrap(f)
	inWrite, goOn := make(chan bool), make(chan bool)
	f.write = func(p []byte) (int, error) {
		inWrite <- true
		<-goOn
		return len(p), nil
	}
	go s.Write([]byte("slow"))
	<-inWrite
	if _, err := s.SendFrom(t.Context(), never, 0, -1); err != emit.ErrBusy {
		t.Errorf("SendFrom during a Write: %v", err)
	}
	if err := s.TryWriteAll([]byte("x")); err != quic.ErrWouldBlock {
		t.Errorf("TryWriteAll during a Write: %v", err)
	}
	goOn <- true
}

func TestWriteBuffers(t *testing.T) {
	data := content(5 * volley)
	tests := []struct {
		name  string
		lens  []int
		calls []int // lengths of the writes
	}{
		{"nothing", nil, nil},
		{"empty ones", []int{0, 0}, nil},
		{"one", []int{10}, []int{10}},
		{"small ones", []int{10, 0, 20, 30}, []int{60}},
		{"a large one", []int{3 * volley}, []int{3 * volley}},
		{"small and large", []int{10, 3 * volley, 10}, []int{volley, 2*volley + 10, 10}},
		{"many small ones", []int{volley / 2, volley / 2, volley / 2}, []int{volley, volley / 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{t: t}
			var calls []int
			f.write = func(p []byte) (int, error) {
				calls = append(calls, len(p))
				f.wrote = append(f.wrote, p...)
				return len(p), nil
			}
			var b net.Buffers
			total := 0
			for _, n := range tt.lens {
				b = append(b, data[total:total+n])
				total += n
			}
			n, err := Wrap(f).WriteBuffers(&b)
			if n != int64(total) || err != nil || len(b) != 0 {
				t.Errorf("%d, %v, %d left; want %d", n, err, len(b), total)
			}
			if !bytes.Equal(f.wrote, data[:total]) || fmt.Sprint(calls) != fmt.Sprint(tt.calls) {
				t.Errorf("writes of %v bytes, want %v", calls, tt.calls)
			}
		})
	}
}

// On an error, b keeps what was not written.
func TestWriteBuffersStops(t *testing.T) {
	inPair(t, 20000, func(t *testing.T, p *pair) {
		data := content(100_000)
		s := p.open()
		var b net.Buffers
		for q := data; len(q) > 0; q = q[1000:] {
			b = append(b, q[:1000])
		}
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := s.WriteBuffers(&b)
		if n < 20000 || n >= 20000+2*1452 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		var left []byte
		for _, p := range b {
			left = append(left, p...)
		}
		if !bytes.Equal(left, data[n:]) {
			t.Fatalf("%d bytes left after %d were written", len(left), n)
		}
		s.CancelWrite(1)
		if n, err := s.WriteBuffers(&b); n != 0 || err == nil {
			t.Fatal(n, err)
		}
		if n, err := s.WriteBuffers(&net.Buffers{}); n != 0 || err == nil {
			t.Fatal(n, err)
		}
	})
}

// lender lends its memory, and notes whether it was asked to.
type lender struct {
	*bytes.Reader
	data  []byte
	lends int
}

func (l *lender) LendAt(off int64, n int) ([]byte, error) {
	l.lends++
	b := l.data[off:min(off+int64(n), int64(len(l.data)))]
	if len(b) < n {
		return b, io.EOF
	}
	return b, nil
}

func TestModes(t *testing.T) {
	data := content(3 * volley)
	tests := []struct {
		tuning    emit.Tuning
		lends     bool // the source is a lender
		mode      emit.Mode
		calls     uint64
		fallbacks uint64
	}{
		{emit.Tuning{}, false, emit.Scatter, 4, 0},
		{emit.Tuning{}, true, emit.Lend, 4, 0},
		{emit.Tuning{Mode: emit.Lend}, true, emit.Lend, 4, 0},
		{emit.Tuning{Mode: emit.Lend}, false, emit.Scatter, 4, 1},
		{emit.Tuning{Mode: emit.Scatter}, true, emit.Scatter, 4, 0},
		{emit.Tuning{Mode: emit.Scatter, Reread: true}, true, emit.Scatter, 4, 1},
		{emit.Tuning{Mode: emit.Single}, true, emit.Scatter, 4, 1},
		{emit.Tuning{Mode: emit.Vector}, true, emit.Scatter, 4, 1},
		{emit.Tuning{MaxDatagrams: 1}, false, emit.Scatter, 31, 0},
		{emit.Tuning{MaxDatagrams: 1}, true, emit.Lend, 31, 0},
		{emit.Tuning{MaxDatagrams: 100}, false, emit.Scatter, 4, 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%+v lends %v", tt.tuning, tt.lends), func(t *testing.T) {
			f := &fake{t: t}
			s := Wrap(f)
			s.SetEmission(tt.tuning)
			l := &lender{bytes.NewReader(data), data, 0}
			var src io.ReaderAt = l
			if !tt.lends {
				src = l.Reader
			}
			if n, err := s.SendFrom(t.Context(), src, 0, -1); n != int64(len(data)) || err != nil {
				t.Fatal(n, err)
			}
			st := s.EmissionStats()
			if st.Mode != tt.mode || st.Calls != tt.calls || st.Fallbacks != tt.fallbacks || (st.FallbackReason != "") != (tt.fallbacks > 0) {
				t.Errorf("stats %+v", st)
			}
			if !bytes.Equal(f.wrote, data) || (l.lends > 0) != (tt.mode == emit.Lend) {
				t.Errorf("%d bytes written, lent %d times", len(f.wrote), l.lends)
			}
		})
	}
}

// The flag may be moved while a source is under way.
func TestSetEmissionInMidStream(t *testing.T) {
	f := &fake{t: t}
	s := Wrap(f)
	var asked []int
	src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		asked = append(asked, len(dst)/payload)
		s.SetEmission(emit.Tuning{MaxDatagrams: len(asked)})
		return len(dst), nil
	})
	if _, err := s.SendFrom(t.Context(), src, 0, 16*payload); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(asked) != "[10 1 2 3]" {
		t.Errorf("asked for %v datagrams", asked)
	}
}

func TestDetach(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		s := p.open()
		got := p.received()
		released := make(chan error, 2)
		go1 := make(chan struct{})
		src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
			<-go1
			return copy(dst, "detached"), io.EOF
		})
		n, err := s.SendFrom(t.Context(), src, 0, -1, emit.Detach(), emit.End(), emit.OnRelease(func(err error) { released <- err }))
		if n != 0 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := s.Write([]byte("x")); err != emit.ErrBusy {
			t.Errorf("Write before the detached source is done: %v", err)
		}
		close(go1)
		if err := <-released; err != nil {
			t.Error(err)
		}
		if string(got()) != "detached" {
			t.Error("the peer received something else")
		}
		// A call that cannot begin releases, too.
		if _, err := s.SendFrom(t.Context(), src, 0, -1, emit.Detach(), emit.OnRelease(func(err error) { released <- err })); err != nil {
			t.Errorf("on a closed stream, detached: %v", err)
		}
		if err := <-released; err != quic.ErrStreamClosed {
			t.Errorf("released with %v", err)
		}
	})
}

// A source that panics or ends its goroutine takes its stream with it and nothing else.
func TestSourceThatDoesNotReturn(t *testing.T) {
	ends := map[string]emit.OnEmit{
		"panic":  func([]byte, int64) (int, error) { panic("ouch") },
		"Goexit": func([]byte, int64) (int, error) { runtime.Goexit(); return 0, nil },
	}
	for name, src := range ends {
		for _, detached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, detached %v", name, detached), func(t *testing.T) {
				inPair(t, 0, func(t *testing.T, p *pair) {
					s := p.open()
					s.Write([]byte("x"))
					released := make(chan error, 2)
					opts := []emit.Option{emit.OnRelease(func(err error) { released <- err })}
					if detached {
						opts = append(opts, emit.Detach())
					}
					panicked := make(chan any, 1)
					go func() {
						defer func() { panicked <- recover() }()
						s.SendFrom(t.Context(), src, 0, -1, opts...)
					}()
					v := <-panicked
					if surfaced := v != nil; surfaced != (name == "panic" && !detached) {
						t.Errorf("panic in the caller: %v", v)
					}
					err := <-released
					if err == nil || detached && name == "panic" && !strings.Contains(err.Error(), "ouch") {
						t.Errorf("released with %v", err)
					}
					synctest.Wait()
					if len(released) > 0 {
						t.Error("released twice")
					}
					if _, err := s.Write([]byte("x")); !errors.Is(err, &quic.StreamError{StreamID: 2}) {
						t.Errorf("Write after: %v", err)
					}
					if _, err := io.ReadAll(p.accept()); !errors.Is(err, &quic.StreamError{StreamID: 2, Remote: true}) {
						t.Errorf("the peer reads: %v", err)
					}
				})
			})
		}
	}
}

// When the source is released, the stream is free for the next one.
func TestOnReleaseMaySend(t *testing.T) {
	f := &fake{t: t}
	s := Wrap(f)
	send := func(text string, next func(error)) {
		if _, err := s.SendFrom(t.Context(), strings.NewReader(text), 0, -1, emit.OnRelease(next)); err != nil {
			t.Error(err)
		}
	}
	send("one, ", func(error) {
		send("two, ", func(error) {
			if _, err := s.Write([]byte("three")); err != nil {
				t.Error(err)
			}
		})
	})
	if string(f.wrote) != "one, two, three" {
		t.Errorf("%q", f.wrote)
	}
}

func TestRefused(t *testing.T) {
	src := emit.OnEmit(func([]byte, int64) (int, error) {
		t.Error("the source was asked")
		return 0, io.EOF
	})
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	tests := []struct {
		name string
		call func(s *SendStream, o ...emit.Option) (int64, error)
		want error
	}{
		{"OnAcked", func(s *SendStream, o ...emit.Option) (int64, error) {
			return s.SendFrom(t.Context(), src, 0, 1, append(o, emit.OnAcked(func(int64) {}))...)
		}, errors.ErrUnsupported},
		{"context", func(s *SendStream, o ...emit.Option) (int64, error) { return s.SendFrom(ended, src, 0, 1, o...) }, cause},
		{"nil source", func(s *SendStream, o ...emit.Option) (int64, error) { return s.SendFrom(t.Context(), nil, 0, 1, o...) }, nil},
		{"negative offset", func(s *SendStream, o ...emit.Option) (int64, error) { return s.SendFrom(t.Context(), src, -1, 1, o...) }, nil},
		{"overflow", func(s *SendStream, o ...emit.Option) (int64, error) {
			return s.SendFrom(t.Context(), src, 2, math.MaxInt64-1, o...)
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Wrap(&fake{t: t})
			var released []error
			n, err := tt.call(s, emit.OnRelease(func(err error) { released = append(released, err) }))
			if n != 0 || err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%d, %v", n, err)
			}
			if len(released) != 1 || released[0] != err {
				t.Errorf("released with %v", released)
			}
			if _, err := s.Write([]byte("x")); err != nil {
				t.Errorf("the stream is not usable after: %v", err)
			}
		})
	}
	if n, err := Wrap(&fake{t: t}).ReadFrom(nil); n != 0 || err == nil {
		t.Error("ReadFrom(nil) went well")
	}
}

// A bidirectional stream goes as well.
func TestWrapsAStream(t *testing.T) {
	inPair(t, 0, func(t *testing.T, p *pair) {
		str, err := p.client.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			peer, err := p.server.AcceptStream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(Wrap(peer), peer)
			peer.Close()
		}()
		if _, err := Wrap(str).SendFrom(t.Context(), strings.NewReader("there and back"), 0, -1, emit.End()); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(str)
		if string(b) != "there and back" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
	})
}
