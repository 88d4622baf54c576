package stream

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

func TestSourceKeepsWritersOut(t *testing.T) {
	watchBlocks(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		if err := s.BeginSource(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := 0
		p := pattern(0, 1000)
		if _, err := s.Write(p); err != emit.ErrBusy {
			t.Error("Write:", err)
		}
		if _, err := s.CloseWith(p); err != emit.ErrBusy {
			t.Error("CloseWith:", err)
		}
		if _, err := s.WriteOwned(p, func() { released++ }); err != emit.ErrBusy {
			t.Error("WriteOwned:", err)
		}
		if err := s.TryWriteAll(p); err != emit.ErrBusy {
			t.Error("TryWriteAll:", err)
		}
		if err := s.BeginSource(t.Context()); err != emit.ErrBusy {
			t.Error("BeginSource:", err)
		}
		s.EndSource()
		h.later()
		if released != 1 {
			t.Error("a piece that was not taken is not released")
		}
		go s.Write(pattern(0, 1<<20))
		synctest.Wait()
		if err := s.BeginSource(t.Context()); err != emit.ErrBusy {
			t.Error("BeginSource beside a write:", err)
		}
		h.do(func() { s.ConnClosed(io.EOF) })
	})
}

func TestCloseLetsASourceFinish(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.BeginSource(t.Context())
	h.do(func() { s.AppendBlock(filled(0, 3000), 3000) })
	s.Close() // from within the source, say
	h.do(func() {
		if err := s.AppendBlock(filled(3000, 500), 500); err != nil {
			t.Fatal(err)
		}
	})
	ps := h.pack(s, 2000, 9, nil)
	if !slices.Equal(ps, []packet{{0, 2000, false}, {2000, 1500, false}}) {
		t.Fatalf("sent %v", ps)
	}
	h.pushed = 0
	s.EndSource()
	if h.pushed != 1 {
		t.Error("the FIN is not sent")
	}
	fin := h.pack(s, 2000, 9, nil)
	if !slices.Equal(fin, []packet{{3500, 0, true}}) {
		t.Fatalf("sent %v", fin)
	}
	h.ack(s, append(ps, fin...)...)
	if h.done != 1 {
		t.Error("not done")
	}
}

func filled(off int64, n int) *Block {
	b := Get(n)
	copy(b.Bytes(), pattern(off, n))
	return b
}

func TestFinRidesOnTheLastSlice(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.BeginSource(t.Context())
	h.do(func() {
		s.AppendBlock(filled(0, 2500), 2500)
		s.FinishSource()
		if err := s.AppendBlock(filled(0, 10), 10); err != errs.Closed {
			t.Error("bytes after the end:", err)
		}
	})
	s.EndSource()
	ps := h.pack(s, 1000, 9, nil)
	if !slices.Equal(ps, []packet{{0, 1000, false}, {1000, 1000, false}, {2000, 500, true}}) {
		t.Fatalf("sent %v", ps)
	}
	h.ack(s, ps...)

	h.done = 0
	s = NewSend(4, h, plenty)
	s.BeginSource(t.Context())
	h.do(func() {
		if n := s.PackedSource(0, []uint16{1000, 500}, []uint64{1, 2}, true); n != 1500 {
			t.Error(n)
		}
		if n := s.PackedSource(1500, []uint16{1}, []uint64{1}, false); n != -1 {
			t.Error("bytes after the end")
		}
		s.OnLost(1500, 0, true)
		if _, n, fin, _, ok := s.Next(0); !ok || !fin || n != 0 {
			t.Error("the lost FIN is not due")
		}
		s.Packed(1500, 0, true)
		s.OnAcked(0, 1500, false)
		s.OnAcked(1500, 0, true)
	})
	s.EndSource()
	if h.done != 1 {
		t.Error("not done")
	}
}

func TestZeroBytesAreNoProgress(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.BeginSource(t.Context())
	h.do(func() {
		if err := s.AppendBlock(Get(100), 0); err != nil {
			t.Error(err)
		}
		if n := s.PackedSource(0, nil, nil, false); n != 0 {
			t.Error(n)
		}
		if n := s.PackedSource(0, []uint16{0, 0}, []uint64{0, 0}, false); n != 0 {
			t.Error(n)
		}
		if s.HasPending() || s.NewOffset() != 0 || s.q.n > 0 || len(s.slotsForTest()) > 0 || h.ready > 0 {
			t.Error("nothing left a trace")
		}
	})
	s.EndSource()
}

func TestLostSlotsAreReadAgain(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, 10_000)
	s.BeginSource(t.Context())
	h.do(func() {
		if n := s.PackedSource(0, []uint16{1000, 1000, 1000, 500}, []uint64{10, 11, 12, 13}, false); n != 3500 {
			t.Fatal(n)
		}
		if s.NewCredit() != 6500 || s.NewOffset() != 3500 {
			t.Error(s.NewCredit(), s.NewOffset())
		}
		if s.PackedSource(3500, []uint16{6501}, []uint64{0}, false) != -1 {
			t.Error("packed beyond credit")
		}
		if _, _, _, ok := s.LostSource(); ok {
			t.Error("lost before anything was")
		}
		s.OnLost(1000, 1000, false)
		s.OnLost(2000, 1000, false)
		s.OnLost(2000, 1000, false)
		if s.HasPending() {
			t.Error("what is not at hand is pending")
		}
		off, lens, hashes, ok := s.LostSource()
		if off != 1000 || !slices.Equal(lens, []uint16{1000, 1000}) || !slices.Equal(hashes, []uint64{11, 12}) || !ok {
			t.Fatal(off, lens, hashes, ok)
		}
		s.OnAcked(1000, 1000, false) // while they are read
		s.Refill(off, filled(1000, 2000), 2000)
		if _, _, _, ok := s.LostSource(); ok {
			t.Error("asked for twice")
		}
		if off, n, _, lost, ok := s.Next(0); off != 2000 || n != 1000 || !lost || !ok {
			t.Fatal(off, n, lost, ok)
		}
		buf := make([]byte, 1000)
		s.Copy(buf, 2000)
		checkPattern(t, buf, 2000)
		s.Packed(2000, 400, false)
		s.Packed(2400, 600, false)
		s.OnLost(2400, 600, false) // at hand now: not read a third time
		if off, n, _, _, _ := s.Next(0); off != 2400 || n != 600 {
			t.Fatal(off, n)
		}
		s.OnLost(0, 1000, false)
		s.OnLost(3000, 500, false)
		if s.PackedSource(0, []uint16{900}, []uint64{1}, false) != -1 {
			t.Error("half a slot was packed again")
		}
		if s.PackedSource(500, []uint16{500}, []uint64{1}, false) != -1 {
			t.Error("the other half was packed again")
		}
		if s.PackedSource(0, []uint16{1000, 300}, []uint64{1, 2}, false) != -1 {
			t.Error("more than a slot was packed again")
		}
		if s.PackedSource(0, []uint16{900, 100}, []uint64{20, 21}, false) != 0 {
			t.Error("a slot cut anew was refused")
		}
		if off, _, hashes, _ := s.LostSource(); off != 3000 || !slices.Equal(hashes, []uint64{13}) {
			t.Error(off, hashes)
		}
		if s.AllAcked(1) {
			t.Error("all is acked")
		}
		s.OnAcked(0, 3500, false)
		if !s.AllAcked(3500) || s.AllAcked(3501) || s.HasPending() {
			t.Error("not all is acked")
		}
		if _, _, _, ok := s.LostSource(); ok {
			t.Error("late acknowledgements do not withdraw slots")
		}
	})
	s.EndSource()
}

// Scatter with Reread: what was packed from the scratch is not kept.
func TestRereadKeepsNoBytes(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.Write(pattern(0, 100))
	s.BeginSource(t.Context())
	h.do(func() {
		s.AppendBlock(filled(100, 2500), 2500)
		s.AppendBlock(filled(2600, 900), 900)
		s.FinishSource()
		s.Packed(0, 100, false)
		if n := s.PackedSource(100, []uint16{1000, 1000}, []uint64{1, 2}, false); n != 2000 || s.Unsent() != 1400 {
			t.Fatal(n, s.Unsent())
		}
		if off, n, _, _ := s.Probe(5000); off != 0 || n != 100 {
			t.Error("a probe names bytes that are gone:", off, n)
		}
		if off, n, fin, _, _ := s.Next(1 << 20); off != 2100 || n != 1400 || !fin {
			t.Fatal(off, n, fin)
		}
		buf := make([]byte, 1400)
		if !s.Copy(buf, 2100) {
			t.Fatal("the rest is gone too")
		}
		checkPattern(t, buf, 2100)
		s.OnLost(100, 1000, false)
		off, _, hashes, ok := s.LostSource()
		if off != 100 || !slices.Equal(hashes, []uint64{1}) || !ok {
			t.Fatal(off, hashes, ok)
		}
		s.Refill(100, filled(100, 1000), 1000) // below a block that goes on
		if !s.Copy(buf[:1000], 100) || !s.Copy(buf[1000:], 2100) {
			t.Fatal("bytes are hidden")
		}
		checkPattern(t, buf[:1000], 100)
		checkPattern(t, buf[1000:], 2100)
		s.Packed(100, 1000, false)
		if n := s.PackedSource(2100, []uint16{1400}, []uint64{3}, true); n != 1400 || s.HasPending() {
			t.Fatal(n)
		}
		s.OnAcked(0, 3500, true)
	})
	s.EndSource()
	if h.done != 1 || h.buffered != 0 || s.q.n != 0 {
		t.Error(h.done, h.buffered, s.q.n)
	}
}

func TestLostSlotWithoutAskerResets(t *testing.T) {
	h := newHost(t)
	for _, next := range []bool{false, true} {
		s := NewSend(0, h, plenty)
		s.BeginSource(t.Context())
		h.do(func() { s.PackedSource(0, []uint16{1000, 1000}, []uint64{1, 2}, false) })
		s.EndSource()
		if next { // another source does not have those bytes
			s.BeginSource(t.Context())
		}
		h.ack(s, packet{0, 1000, false})
		if s.Err() != nil {
			t.Fatal("reset without need")
		}
		h.lose(s, packet{1000, 1000, false})
		h.do(func() {
			if _, size, ok := s.ResetDue(); !ok || size != 2000 || s.Err() == nil {
				t.Error("not reset")
			}
		})
	}
}

func TestWhatEndsTheWaitOfASource(t *testing.T) {
	useTestErrors(t)
	stop := errors.New("stop")
	for name, c := range map[string]struct {
		ready  func(s *Send) bool
		happen func(h *testHost, s *Send, cancel context.CancelCauseFunc)
		want   error
	}{
		"packed":  {func(s *Send) bool { return s.Unsent() == 0 }, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.pack(s, 1000, 9, nil) }, nil},
		"credit":  {func(s *Send) bool { return s.NewCredit() >= 9500 }, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.do(func() { s.SetCredit(10_000) }) }, nil},
		"acked":   {func(s *Send) bool { return s.AllAcked(500) }, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.ack(s, h.pack(s, 1000, 9, nil)...) }, nil},
		"Wake":    {func(s *Send) bool { return s.ID() == 1 }, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.do(func() { s.id = 1; s.Wake() }) }, nil},
		"STOP":    {nil, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.do(func() { s.StopSending(3) }) }, testReset{3, true}},
		"Cancel":  {nil, func(h *testHost, s *Send, _ context.CancelCauseFunc) { s.Cancel(4) }, testReset{4, false}},
		"closed":  {nil, func(h *testHost, s *Send, _ context.CancelCauseFunc) { h.do(func() { s.ConnClosed(stop) }) }, stop},
		"context": {nil, func(h *testHost, s *Send, cancel context.CancelCauseFunc) { cancel(stop) }, stop},
		"deadline": {nil, func(h *testHost, s *Send, _ context.CancelCauseFunc) {
			s.SetDeadline(time.Now().Add(time.Second))
			time.Sleep(time.Second)
		}, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				s := NewSend(0, h, 500)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if err := s.BeginSource(ctx); err != nil {
					t.Fatal(err)
				}
				h.do(func() { s.AppendBlock(filled(0, 500), 500) })
				var err error
				returned := false
				ready := func() bool { return false }
				if c.ready != nil {
					ready = func() bool { h.held(); return c.ready(s) }
				}
				go func() { err = s.WaitSource(ctx, ready); returned = true }()
				synctest.Wait()
				if returned {
					t.Fatal("did not wait:", err)
				}
				c.happen(h, s, cancel)
				synctest.Wait()
				if !returned || err != c.want {
					t.Fatalf("returned %v: %v, want %v", returned, err, c.want)
				}
				s.EndSource()
				h.do(func() { s.ConnClosed(stop) })
			})
		})
	}
}

func TestSourceWithoutCreditTellsThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, 1000)
		s.BeginSource(t.Context())
		h.do(func() { s.PackedSource(0, []uint16{1000}, []uint64{1}, false) })
		told := 0
		h.onPush = func(s *Send) {
			h.do(func() {
				if s.Blocked() {
					told++
					s.BlockedSent()
				}
			})
		}
		go s.WaitSource(t.Context(), func() bool { return s.NewCredit() > 0 })
		synctest.Wait()
		h.do(func() { s.Wake() })
		synctest.Wait()
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		h.do(func() { s.ConnClosed(io.EOF) })
	})
}

func TestAckedPrefixIsReportedOncePerAck(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	var got []int64
	h.do(func() { s.OnAckedFunc(func(off int64) { got = append(got, off) }) })
	s.Write(pattern(0, 5000))
	ps := h.pack(s, 1000, 9, nil)
	steps := []struct {
		acked []packet
		want  []int64
	}{
		{ps[1:2], nil},
		{ps[:1], []int64{2000}},
		{ps[:2], nil},
		{[]packet{ps[2], ps[4]}, []int64{3000}}, // one ACK
		{[]packet{ps[3]}, []int64{5000}},
	}
	for i, c := range steps {
		got = nil
		h.ack(s, c.acked...)
		h.later()
		if !slices.Equal(got, c.want) {
			t.Errorf("step %d: reported %v, want %v", i, got, c.want)
		}
	}
}
