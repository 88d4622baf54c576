package stream

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// testHost is a connection that does nothing by itself.
type testHost struct {
	t       testing.TB
	mu      sync.Mutex
	ctx     context.Context
	rtt     time.Duration
	high    int // of BufferRoom
	onPush  func(s *Send)
	stays   bool // Stay says so …
	staying bool // … and has done since Unstay

	onAwait func() // in place of a wait

	ready, pushed, sent, done int
	buffered                  int
	consumed                  int64
	updates, recvDone         int
	afters                    []func()
	inGap                     func() // runs once, at the next Unlock, without the monitor
}

// neverBrief has even few bytes copied without the monitor.
func neverBrief(t testing.TB) {
	old := brief
	t.Cleanup(func() { brief = old })
	brief = 0
}

func newHost(t testing.TB) *testHost {
	return &testHost{t: t, ctx: context.Background(), high: 1 << 40}
}

func (h *testHost) Lock() { h.mu.Lock() }
func (h *testHost) Unlock() {
	f := h.inGap
	h.inGap = nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

func (h *testHost) held() {
	if h.mu.TryLock() {
		h.mu.Unlock()
		h.t.Error("called without the monitor")
	}
}

func (h *testHost) Stay() bool      { h.held(); h.staying = h.staying || h.stays; return h.stays }
func (h *testHost) Unstay()         { h.staying = false }
func (h *testHost) SendReady(*Send) { h.held(); h.ready++ }
func (h *testHost) PushUnlock(s *Send) {
	h.held()
	h.pushed++
	f := h.onPush
	h.mu.Unlock()
	if f != nil {
		f(s)
	}
}
func (h *testHost) DataSent(*Send)       { h.held(); h.sent++ }
func (h *testHost) SendDone(*Send)       { h.held(); h.done++ }
func (h *testHost) BufferRoom() int      { return h.high - h.buffered }
func (h *testHost) Buffered(n int)       { h.held(); h.buffered += n }
func (h *testHost) RecvUpdate(*Recv)     { h.held(); h.updates++ }
func (h *testHost) RecvConsumed(n int64) { h.held(); h.consumed += n }
func (h *testHost) RecvDone(*Recv)       { h.held(); h.recvDone++ }
func (h *testHost) Rouse(w *Wake)        { h.held(); w.Signal() }
func (h *testHost) RTT() time.Duration   { return h.rtt }
func (h *testHost) Context() context.Context {
	return h.ctx
}
func (h *testHost) After(f func()) { h.held(); h.afters = append(h.afters, f) }

func (h *testHost) Await(w *Wake, ctx context.Context) {
	if h.onAwait == nil {
		w.Wait(ctx)
	} else {
		h.onAwait()
		w.Take()
	}
}

// later runs what After was given.
func (h *testHost) later() {
	h.mu.Lock()
	fs := h.afters
	h.afters = nil
	h.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// do runs f with the monitor held.
func (h *testHost) do(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

var poison = bytes.Repeat([]byte{0xdb}, 256<<10)

// watchBlocks fails the test if a block is given back twice or not at all,
// or is written to after that; and overwrites what is given back, so that
// reading it shows.
func watchBlocks(t testing.TB) {
	var mu sync.Mutex
	out := make(map[*Block]bool)
	back := make(map[*byte][]byte) // memory that was given back, by its first byte
	intact := func(p []byte) {
		if len(p) <= len(poison) && !bytes.Equal(p, poison[:len(p)]) {
			t.Errorf("a block of %d bytes was written to after it was given back", len(p))
		}
	}
	audit = func(b *Block, taken bool) {
		mu.Lock()
		defer mu.Unlock()
		if taken == out[b] {
			t.Errorf("block %p: taken %v twice", b, taken)
		}
		out[b] = taken
		if b.owned {
			return
		}
		mem := &b.buf[0]
		if !taken {
			copy(b.buf, poison)
			back[mem] = b.buf
		} else if p := back[mem]; p != nil {
			intact(p)
			delete(back, mem)
		}
	}
	t.Cleanup(func() {
		audit = nil
		for b, taken := range out {
			if taken {
				t.Errorf("block of %d bytes at %d was never given back", len(b.buf), b.off)
			}
		}
		for _, p := range back {
			intact(p)
		}
	})
}

// at is what byte off of every test's stream is.
func at(off int64) byte { return byte(off*131 + off>>7*7 + off>>13) }

func pattern(off int64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = at(off + int64(i))
	}
	return p
}

func checkPattern(t testing.TB, p []byte, off int64) {
	t.Helper()
	for i, c := range p {
		if c != at(off+int64(i)) {
			t.Fatalf("wrong byte at offset %d", off+int64(i))
		}
	}
}

// chooser makes the choices of a random test.
type chooser interface {
	choose(n int) int // 0..n-1
	over() bool
}

type randomChoice struct {
	*rand.Rand
	left int
}

func newRandom(t testing.TB, steps int) *randomChoice {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &randomChoice{rand.New(rand.NewPCG(seed, 1)), steps}
}

func (r *randomChoice) choose(n int) int { return r.IntN(n) }
func (r *randomChoice) over() bool       { r.left--; return r.left < 0 }

// fuzzChoice takes them from the fuzzer's bytes.
type fuzzChoice struct{ b []byte }

func (f *fuzzChoice) choose(n int) int {
	v := 0
	for k := 1; k < n; k <<= 8 {
		v <<= 8
		if len(f.b) > 0 {
			v |= int(f.b[0])
			f.b = f.b[1:]
		}
	}
	return v % n
}
func (f *fuzzChoice) over() bool { return len(f.b) == 0 }

type packet struct {
	off int64
	n   int
	fin bool
}

func (p packet) String() string { return fmt.Sprintf("[%d,%d) fin=%v", p.off, p.off+int64(p.n), p.fin) }

// pack packs what the stream offers, in packets of at most size bytes, as
// long as credit lasts, and appends what it holds to *got.
func (h *testHost) pack(s *Send, size, limit int, got *[]byte) (ps []packet) {
	h.do(func() {
		for len(ps) < limit {
			off, n, fin, _, ok := s.Next(1 << 30)
			if !ok {
				return
			}
			if n > size {
				n, fin = size, false
			}
			buf := make([]byte, n)
			if !s.Copy(buf, off) {
				h.t.Fatal("offered bytes are not at hand")
			}
			if s.Packed(off, n, fin) < 0 {
				h.t.Fatal("offered bytes were refused")
			}
			ps = append(ps, packet{off, n, fin})
			if got != nil {
				if int64(len(*got)) < off+int64(n) {
					*got = append(*got, make([]byte, off+int64(n)-int64(len(*got)))...)
				}
				copy((*got)[off:], buf)
			}
		}
	})
	return ps
}

// level is how much is unsent, and how much was ever accepted.
func (h *testHost) level(s *Send) (unsent int, acc int64) {
	h.do(func() { unsent, acc = s.Unsent(), s.acc })
	return unsent, acc
}

func (h *testHost) pending(s *Send) (yes bool) {
	h.do(func() { yes = s.HasPending() })
	return yes
}

func (h *testHost) ack(s *Send, ps ...packet) {
	h.do(func() {
		for _, p := range ps {
			s.OnAcked(p.off, p.n, p.fin)
		}
	})
}

func (h *testHost) lose(s *Send, ps ...packet) {
	h.do(func() {
		for _, p := range ps {
			s.OnLost(p.off, p.n, p.fin)
		}
	})
}
