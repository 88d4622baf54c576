package stream

import (
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func (h *testHost) push(r *Recv, off int64, n int, fin bool) (fresh int64) {
	h.do(func() {
		var err error
		if fresh, err = r.Push(off, pattern(off, n), fin); err != nil {
			h.t.Helper()
			h.t.Fatal(err)
		}
	})
	return fresh
}

func TestReadGivesEOFWithTheLastBytes(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	r := NewRecv(0, h, 10_000, 10_000)
	h.push(r, 5, 5, true)
	h.push(r, 0, 5, false)
	p := make([]byte, 7)
	if n, err := r.Read(p); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := r.Read(p); n != 3 || err != io.EOF {
		t.Fatal(n, err)
	}
	if h.recvDone != 1 {
		t.Fatal("not done")
	}
	if n, err := r.Read(p); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	h.do(func() { r.ConnClosed(io.ErrClosedPipe) })
	if _, err := r.Read(p); err != io.EOF {
		t.Fatal("EOF does not stay:", err)
	}

	// A FIN that comes alone, later, ends a stream whose bytes were read.
	r = NewRecv(4, h, 10_000, 10_000)
	h.push(r, 0, 5, false)
	r.Read(p)
	h.push(r, 5, 0, true)
	if h.recvDone != 2 {
		t.Fatal("not done")
	}
	// An empty stream that nobody looked at is not over.
	r = NewRecv(8, h, 10_000, 10_000)
	h.push(r, 0, 0, true)
	if h.recvDone != 2 {
		t.Fatal("done before it was accepted")
	}
	if n, err := r.Read(p); n != 0 || err != io.EOF || h.recvDone != 3 {
		t.Fatal(n, err, h.recvDone)
	}
}

func TestWhatEndsABlockedRead(t *testing.T) {
	watchBlocks(t)
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		end  func(h *testHost, r *Recv)
		want error
		n    int
	}{
		"data":     {func(h *testHost, r *Recv) { h.push(r, 10, 10, false) }, nil, 10},
		"FIN":      {func(h *testHost, r *Recv) { h.push(r, 10, 0, true) }, io.EOF, 0},
		"reset":    {func(h *testHost, r *Recv) { h.do(func() { r.Reset(7, 500) }) }, testReset{7, true}, 0},
		"Cancel":   {func(h *testHost, r *Recv) { r.Cancel(8) }, testReset{8, false}, 0},
		"closed":   {func(h *testHost, r *Recv) { h.do(func() { r.ConnClosed(gone) }) }, gone, 0},
		"deadline": {func(h *testHost, r *Recv) { r.SetDeadline(time.Now().Add(time.Second)); time.Sleep(time.Second) }, os.ErrDeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				useTestErrors(t)
				h := newHost(t)
				r := NewRecv(0, h, 10_000, 10_000)
				h.push(r, 0, 10, false)
				h.push(r, 20, 10, false) // behind a gap
				p := make([]byte, 10)
				if n, err := r.Read(p); n != 10 || err != nil {
					t.Fatal(n, err)
				}
				if name == "FIN" {
					h.do(func() { r.ConnClosed(gone) })
					r = NewRecv(0, h, 10_000, 10_000)
					h.push(r, 0, 10, false)
					r.Read(p)
				}
				r.SetDeadline(time.Now().Add(time.Hour)) // to be moved
				var n int
				var err error
				returned := false
				go func() { n, err = r.Read(p); returned = true }()
				synctest.Wait()
				if returned {
					t.Fatal("did not wait:", n, err)
				}
				c.end(h, r)
				synctest.Wait()
				if !returned || n != c.n || err != c.want {
					t.Fatalf("returned %v: %d, %v, want %d, %v", returned, n, err, c.n, c.want)
				}
				h.do(func() { r.ConnClosed(gone) })
			})
		})
	}
}

func TestReadDeadlineCanBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		r := NewRecv(0, h, 10_000, 10_000)
		h.push(r, 0, 5, false)
		r.SetDeadline(time.Now())
		if n, err := r.Read(make([]byte, 9)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		r.SetDeadline(time.Time{})
		if n, err := r.Read(make([]byte, 9)); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestConcurrentReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		r := NewRecv(0, h, 10_000, 10_000)
		sum := make(chan int, 5)
		for range 5 {
			go func() {
				n, _ := r.Read(make([]byte, 10))
				sum <- n
			}()
		}
		synctest.Wait()
		h.push(r, 0, 25, true)
		synctest.Wait()
		total := 0
		for range 5 {
			total += <-sum
		}
		if total != 25 {
			t.Fatalf("%d bytes were read", total)
		}
	})
}

func TestPeekConsumesNothing(t *testing.T) {
	watchBlocks(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		r := NewRecv(0, h, 1000, 5000)
		h.push(r, 0, 600, false)
		r.Read(make([]byte, 400))
		p := make([]byte, 3000)
		var n int
		var err error
		go func() { n, err = r.Peek(p) }()
		synctest.Wait()
		h.do(func() { // it gets the credit for what it wants
			v, ok := r.MaxDataDue()
			if !ok || v < 3400 {
				t.Fatal("no credit for Peek:", v, ok)
			}
			r.MaxDataSent(v)
		})
		h.push(r, 600, 2000, false)
		synctest.Wait()
		if n != 0 {
			t.Fatal("Peek returned early")
		}
		h.push(r, 2600, 800, false)
		synctest.Wait()
		if n != 3000 || err != nil {
			t.Fatal(n, err)
		}
		checkPattern(t, p, 400)
		h.push(r, 3400, 0, true)
		if n, err := r.Peek(make([]byte, 3001)); n != 3000 || err != io.EOF {
			t.Fatal(n, err)
		}
		if h.recvDone != 0 {
			t.Fatal("done by Peek")
		}
		if n, err := io.ReadFull(r, p); n != 3000 || err != nil {
			t.Fatal(n, err)
		}
		checkPattern(t, p, 400)
		if n, err := r.Peek(p); n != 0 || err != io.EOF || h.recvDone != 1 {
			t.Fatal(n, err, h.recvDone)
		}
	})
}

// A10: however a stream ends, the connection gets back all it was charged.
func TestConnectionCreditComesBackOnce(t *testing.T) {
	watchBlocks(t)
	for name, script := range map[string]func(h *testHost, r *Recv) int64{
		"cancel, then FIN": func(h *testHost, r *Recv) int64 {
			n := h.push(r, 0, 50_000, false)
			r.Read(make([]byte, 10))
			r.Cancel(1)
			return n + h.push(r, 50_000, 50_000, true)
		},
		"FIN, then cancel": func(h *testHost, r *Recv) int64 {
			n := h.push(r, 0, 100_000, true)
			r.Read(make([]byte, 10))
			r.Cancel(1)
			return n + h.push(r, 0, 1000, false)
		},
		"FIN behind a gap, then cancel": func(h *testHost, r *Recv) int64 {
			n := h.push(r, 90_000, 10_000, true)
			r.Cancel(1)
			return n + h.push(r, 0, 90_000, false)
		},
		"reset before data": func(h *testHost, r *Recv) (n int64) {
			h.do(func() { n, _ = r.Reset(1, 100_000) })
			n += h.push(r, 0, 50_000, false)
			r.Read(make([]byte, 10))
			return n
		},
		"data, reset, cancel": func(h *testHost, r *Recv) int64 {
			n := h.push(r, 0, 50_000, false)
			r.Read(make([]byte, 10))
			h.do(func() {
				k, _ := r.Reset(1, 100_000)
				n += k
			})
			r.Cancel(1)
			return n
		},
		"cancel, reset": func(h *testHost, r *Recv) int64 {
			n := h.push(r, 0, 50_000, false)
			r.Cancel(1)
			h.do(func() {
				k, _ := r.Reset(1, 100_000)
				n += k
				k, _ = r.Reset(1, 100_000)
				n += k
			})
			return n
		},
		"deadline, then cancel": func(h *testHost, r *Recv) int64 {
			r.SetDeadline(time.Now().Add(-time.Second))
			n := h.push(r, 0, 100_000, false)
			r.Read(make([]byte, 10))
			r.Cancel(1)
			r.Cancel(2)
			return n + h.push(r, 100_000, 0, true)
		},
	} {
		h := newHost(t)
		r := NewRecv(0, h, 512<<10, 512<<10)
		if n := script(h, r); n != 100_000 || h.consumed != n || h.recvDone != 1 {
			t.Errorf("%s: charged %d, gave back %d, done %d times", name, n, h.consumed, h.recvDone)
		}
		if _, ok := r.MaxDataDue(); ok {
			t.Errorf("%s: MAX_STREAM_DATA for a stream that has ended", name)
		}
	}
}

func TestResetAfterAllDataIsTooLate(t *testing.T) {
	h := newHost(t)
	r := NewRecv(0, h, 1000, 1000)
	h.push(r, 0, 100, true)
	h.do(func() {
		if n, err := r.Reset(1, 100); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	})
	p := make([]byte, 200)
	if n, err := r.Read(p); n != 100 || err != io.EOF || h.recvDone != 1 {
		t.Fatal(n, err, h.recvDone)
	}
	checkPattern(t, p[:100], 0)
}

func TestStopSendingIsSentUntilItArrives(t *testing.T) {
	h := newHost(t)
	r := NewRecv(0, h, 1000, 1000)
	r.Cancel(9)
	due := func(want bool) {
		t.Helper()
		h.do(func() {
			if code, ok := r.StopSendingDue(); ok != want || ok && code != 9 {
				t.Fatalf("due %v with code %d", ok, code)
			}
		})
	}
	if h.updates != 1 {
		t.Fatal("the host was not told")
	}
	due(true)
	h.do(r.StopSendingSent)
	due(false)
	h.do(r.StopSendingLost)
	due(true)
	h.do(r.StopSendingSent)
	h.do(r.StopSendingAcked)
	h.do(r.StopSendingLost)
	due(false)

	r = NewRecv(4, h, 1000, 1000) // all data is here
	h.push(r, 0, 10, true)
	r.Cancel(9)
	due(false)
	r = NewRecv(8, h, 1000, 1000) // the peer was quicker
	r.Cancel(9)
	h.do(func() { r.Reset(1, 0) })
	due(false)
}

func TestLostMaxStreamDataComesAgain(t *testing.T) {
	h := newHost(t)
	r := NewRecv(0, h, 1000, 1000)
	read := func(off int64, n int) {
		h.push(r, off, n, false)
		io.ReadFull(r, make([]byte, n))
	}
	read(0, 499)
	if _, ok := r.MaxDataDue(); ok {
		t.Fatal("due with more than half of the window left")
	}
	read(499, 1)
	h.do(func() {
		v, ok := r.MaxDataDue()
		if !ok || v != 1500 || h.updates != 1 {
			t.Fatal(v, ok, h.updates)
		}
		r.MaxDataSent(v)
		if _, ok := r.MaxDataDue(); ok {
			t.Fatal("due again at once")
		}
		r.MaxDataLost() // and nobody reads any more
		if v, ok := r.MaxDataDue(); !ok || v != 1500 || h.updates != 2 {
			t.Fatal(v, ok, h.updates)
		}
		r.MaxDataSent(v)
	})
	read(500, 100)
	h.do(func() {
		r.MaxDataLost()
		if v, _ := r.MaxDataDue(); v != 1600 {
			t.Fatal("not the current value:", v)
		}
	})
	h.push(r, 600, 0, true)
	h.do(func() {
		r.MaxDataLost()
		if _, ok := r.MaxDataDue(); ok {
			t.Fatal("credit beyond the final size")
		}
	})
}

func TestWindowGrowsWhenItIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.rtt = 100 * time.Millisecond
		r := NewRecv(0, h, 10_000, 35_000)
		off := int64(0)
		half := func(after time.Duration) {
			time.Sleep(after)
			n := int(r.Window() / 2)
			h.push(r, off, n, false)
			io.ReadFull(r, make([]byte, n))
			off += int64(n)
			h.do(func() {
				v, ok := r.MaxDataDue()
				if !ok {
					t.Fatal("no credit")
				}
				r.MaxDataSent(v)
			})
		}
		want := func(n int64) {
			t.Helper()
			if r.Window() != n {
				t.Fatalf("the window is %d, want %d", r.Window(), n)
			}
		}
		half(0)
		want(20_000)
		half(300 * time.Millisecond) // slow
		want(20_000)
		half(100 * time.Millisecond)
		want(35_000)
		half(100 * time.Millisecond)
		want(35_000)
		h.rtt = 0 // unknown
		r = NewRecv(4, h, 10_000, 35_000)
		off = 0
		half(0)
		want(10_000)
	})
}

func TestFinalSizeCallback(t *testing.T) {
	h := newHost(t)
	var got []int64
	f := func(n int64) { got = append(got, n) }
	r := NewRecv(0, h, 1000, 1000)
	r.SetFinalSizeCallback(f)
	h.push(r, 100, 10, true)
	if len(got) != 0 {
		t.Fatal("called with the monitor held")
	}
	h.push(r, 0, 110, true)
	h.later()
	r.SetFinalSizeCallback(f) // known: at once
	r = NewRecv(0, h, 1000, 1000)
	r.SetFinalSizeCallback(f)
	h.do(func() { r.Reset(1, 7) })
	h.later()
	r = NewRecv(0, h, 1000, 1000)
	r.SetFinalSizeCallback(f)
	r.SetFinalSizeCallback(nil)
	h.push(r, 0, 1, true)
	r = NewRecv(0, h, 1000, 1000)
	r.SetFinalSizeCallback(f)
	h.do(func() { r.ConnClosed(io.EOF) })
	h.later()
	if len(got) != 3 || got[0] != 110 || got[1] != 110 || got[2] != 7 {
		t.Fatal(got)
	}
}

func TestOneByteDoesNotPinALargeBlock(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	r := NewRecv(0, h, 1<<20, 1<<20)
	h.push(r, 0, 1, false)
	if n := len(r.pages[0].b.buf); n > 1<<10 {
		t.Errorf("a byte is kept in %d", n)
	}
	r.Read(make([]byte, 10))
	for _, p := range r.pages {
		if p.b != nil {
			t.Error("a stream whose bytes were read holds a block")
		}
	}
}

// A frame of one byte every other byte, backwards: no list of gaps grows, and
// the memory is that of the window.
func TestTinyFramesOutOfOrder(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	const window = 256 << 10
	r := NewRecv(0, h, window, window)
	for off := int64(window - 1); off > 0; off -= 2 {
		h.push(r, off, 1, false)
	}
	memory := 0
	for _, p := range r.pages {
		if p.b != nil {
			memory += len(p.b.buf) + pageSize/8
		}
	}
	if memory > window+window/8 {
		t.Errorf("%d bytes of memory for a window of %d", memory, window)
	}
	for off := int64(0); off < window; off += 2 {
		h.push(r, off, 1, false)
	}
	p := make([]byte, window)
	if n, err := io.ReadFull(r, p); err != nil {
		t.Fatal(n, err)
	}
	checkPattern(t, p, 0)
}

// The block of the page that a reader copies from grows meanwhile.
func TestPageGrowsUnderAReader(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	r := NewRecv(0, h, 1<<20, 1<<20)
	h.push(r, 0, 100, false)
	h.mu.Lock()
	r.copying = 100 // as if a reader were at it
	old := r.pages[0].b
	h.mu.Unlock()
	h.push(r, 100, 2000, false)
	if r.stale != old {
		t.Fatal("the block was given back under the reader")
	}
	checkPattern(t, old.buf[:100], 0)
	p := make([]byte, 2100)
	if n, err := io.ReadFull(r, p); err != nil {
		t.Fatal(n, err)
	}
	checkPattern(t, p, 0)
	if r.stale != nil {
		t.Fatal("the old block is kept")
	}
}

// What may happen while a reader copies without the monitor.
func TestWhileAReaderCopies(t *testing.T) {
	neverBrief(t)
	watchBlocks(t)
	useTestErrors(t)
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		happen func(h *testHost, r *Recv)
		want   error
	}{
		"more data": {func(h *testHost, r *Recv) { h.push(r, 500, 9000, false) }, nil},
		"Cancel":    {func(h *testHost, r *Recv) { r.Cancel(3) }, testReset{3, false}},
		"reset":     {func(h *testHost, r *Recv) { h.do(func() { r.Reset(4, 9600) }) }, testReset{4, true}},
		"closed":    {func(h *testHost, r *Recv) { h.do(func() { r.ConnClosed(gone) }) }, gone},
		"cancelled, data": {func(h *testHost, r *Recv) {
			r.Cancel(3)
			h.push(r, 500, 9000, true)
		}, testReset{3, false}},
	} {
		for _, peek := range []bool{false, true} {
			h := newHost(t)
			r := NewRecv(0, h, 1<<20, 1<<20)
			h.push(r, 0, 500, false)
			h.push(r, 9000, 10, false)
			read := r.Read
			if peek {
				read = r.Peek
			}
			h.inGap = func() { c.happen(h, r) }
			p := make([]byte, 500)
			n, err := read(p)
			if err != c.want || err == nil && n != 500 || err != nil && n != 0 {
				t.Errorf("%s: %d, %v, want %v", name, n, err, c.want)
			}
			if err == nil {
				checkPattern(t, p, 0)
			}
			h.do(func() { r.ConnClosed(gone) })
			if h.consumed != r.high {
				t.Errorf("%s: gave back %d of %d bytes", name, h.consumed, r.high)
			}
			if r.pages != nil {
				t.Errorf("%s: pages are left", name)
			}
		}
	}
}

// A short message is copied in one hold of the monitor, which nobody can come between.
func TestFewBytesAreCopiedInOneHold(t *testing.T) {
	h := newHost(t)
	s, r := NewSend(0, h, plenty), NewRecv(0, h, 10_000, 10_000)
	gaps := 0
	var count func()
	count = func() { gaps++; h.inGap = count }
	h.inGap = count
	if n, err := s.Write(pattern(0, brief)); n != brief || err != nil {
		t.Fatal(n, err)
	}
	if gaps != 0 || h.pushed != 1 {
		t.Errorf("the monitor was let go %d times in a write", gaps)
	}
	h.inGap = nil
	h.push(r, 0, brief, false)
	h.inGap = count
	if n, err := r.Read(make([]byte, brief)); n != brief || err != nil {
		t.Fatal(n, err)
	}
	if gaps != 1 {
		t.Errorf("the monitor was let go %d times in a read, want once, at its end", gaps)
	}
}

// What a stream begins with keeps nothing alive once there is more of it.
func TestFirstRingsAreLeftEmpty(t *testing.T) {
	h := newHost(t)
	s, r := NewSend(0, h, plenty), NewRecv(0, h, 1<<20, 1<<20)
	for i := range 8 {
		s.WriteOwned(pattern(int64(i)*ownedMin, ownedMin), nil)
	}
	h.push(r, 0, 5*pageSize, false)
	if len(s.q.ring) <= len(s.q.few) || len(r.pages) <= len(r.few) {
		t.Fatalf("rings of %d and %d", len(s.q.ring), len(r.pages))
	}
	if s.q.few != [len(s.q.few)]queued{} || r.few != [len(r.few)]page{} {
		t.Error("blocks are left in them")
	}
	p := make([]byte, 5*pageSize)
	if n, err := io.ReadFull(r, p); err != nil {
		t.Fatal(n, err)
	}
	checkPattern(t, p, 0)
	checkPattern(t, func() []byte { var wire []byte; h.pack(s, 1000, 9, &wire); return wire }(), 0)
}
