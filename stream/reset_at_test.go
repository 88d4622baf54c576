package stream

import (
	"io"
	"testing"
	"time"
)

// A reset while a write is copying: neither the bytes of the write nor a block that it
// appends to get lost or are freed twice (the watch sees to it), and what was marked leaves.
func TestResetSparesBytesWhileAWriteCopies(t *testing.T) {
	for name, c := range map[string]struct {
		before func(h *testHost, s *Send) // the boundary lies behind it
		stop   bool                       // STOP_SENDING follows
	}{
		"unsent":                {func(h *testHost, s *Send) {}, false},
		"in flight":             {func(h *testHost, s *Send) { h.pack(s, 2, 10, nil) }, false},
		"acknowledged":          {func(h *testHost, s *Send) { h.ack(s, h.pack(s, 2, 10, nil)...) }, false},
		"acknowledged in part":  {func(h *testHost, s *Send) { h.ack(s, h.pack(s, 2, 10, nil)[1]) }, false},
		"unsent, stopped":       {func(h *testHost, s *Send) {}, true},
		"in flight, stopped":    {func(h *testHost, s *Send) { h.pack(s, 2, 10, nil) }, true},
		"acknowledged, stopped": {func(h *testHost, s *Send) { h.ack(s, h.pack(s, 2, 10, nil)...) }, true},
	} {
		for _, size := range []int{10, 5000, 200_000} {
			t.Run(name, func(t *testing.T) {
				neverBrief(t)
				watchBlocks(t)
				useTestErrors(t)
				h := newHost(t)
				s := NewSend(0, h, plenty)
				h.do(s.AllowResetAt)
				s.Write(pattern(0, 5))
				c.before(h, s)
				s.SetReliableBoundary()
				s.Write(pattern(5, 7))
				h.inGap = func() {
					s.Cancel(7)
					if c.stop {
						h.do(func() { s.StopSending(8) })
					}
				}
				if n, err := s.Write(pattern(12, size)); n != 0 || err != (testReset{7, false}) {
					t.Errorf("Write returned %d, %v", n, err)
				}
				var sent []byte
				ps := h.pack(s, 1000, 10, &sent)
				checkPattern(t, sent, 0)
				for _, p := range ps {
					if p.off+int64(p.n) > 5 || c.stop {
						t.Errorf("%v leaves after the reset", p)
					}
				}
				h.ack(s, packet{0, 5, false})
				h.do(func() {
					code, size, ok := s.ResetDue()
					reliable := int64(5)
					if c.stop {
						reliable = 0
					}
					if !ok || code != 7 || s.ReliableSize() != reliable || size < reliable || size > 5 {
						t.Errorf("code %d, final size %d, due %v, reliable size %d", code, size, ok, s.ReliableSize())
					}
					s.ResetSent()
					s.ResetAcked(s.ReliableSize())
				})
				if h.done != 1 || h.buffered != 0 {
					t.Errorf("done %d times, %d bytes unsent", h.done, h.buffered)
				}
			})
		}
	}
}

// Lent memory is given back as soon as it is certain that it is not sent again.
func TestResetReleasesWhatItDoesNotSpare(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	h.do(s.AllowResetAt)
	released := [3]int{}
	for i := range released {
		s.WriteOwned(pattern(int64(i)*1000, 1000), func() { released[i]++ })
		if i == 0 {
			s.SetReliableBoundary()
		}
	}
	ps := h.pack(s, 1000, 2, nil)
	s.Cancel(7)
	h.later()
	if released != [3]int{0, 1, 1} {
		t.Errorf("released %v after the reset", released)
	}
	h.lose(s, ps...)
	if again := h.pack(s, 2000, 10, nil); len(again) != 1 || again[0] != ps[0] {
		t.Errorf("sent again: %v", again)
	}
	h.ack(s, ps...)
	h.later()
	if released != [3]int{1, 1, 1} {
		t.Errorf("released %v in the end", released)
	}
	h.do(func() { s.ResetSent(); s.ResetAcked(1000) })
	if h.done != 1 {
		t.Error("not over")
	}
}

// What a deadline takes back is not marked any more.
func TestBoundaryFollowsWhatIsTakenBack(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, 1000)
	h.do(s.AllowResetAt)
	s.SetWriteBuffer(0, 0)
	h.onPush = func(*Send) { // once the write waits for its bytes to be sent
		h.onPush = nil
		h.pack(s, 1000, 1, nil)
		s.SetReliableBoundary()
		s.SetDeadline(time.Now())
	}
	n, err := s.Write(pattern(0, 5000))
	if n != 1000 || err == nil {
		t.Fatalf("Write returned %d, %v", n, err)
	}
	s.Cancel(7)
	h.do(func() {
		if _, size, ok := s.ResetDue(); !ok || size != 1000 || s.ReliableSize() != 1000 {
			t.Errorf("final size %d, due %v, reliable size %d", size, ok, s.ReliableSize())
		}
	})
	h.do(func() { s.ConnClosed(io.EOF) })
}

// Bytes that nobody keeps are lost after a reset: the reliable size falls to the first of
// them, and an acknowledgement of the reset before counts no more.
func TestLostSlotLowersTheReliableSize(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	h.do(s.AllowResetAt)
	s.BeginSource(t.Context())
	h.do(func() { s.PackedSource(0, []uint16{1000, 1000, 1000, 1000}, []uint64{1, 2, 3, 4}, false) })
	s.SetReliableBoundary()
	h.do(func() { s.PackedSource(4000, []uint16{1000}, []uint64{5}, false) })
	s.Cancel(7)
	s.EndSource()
	want := func(reliable int64) {
		t.Helper()
		h.do(func() {
			if code, size, ok := s.ResetDue(); !ok || code != 7 || size != 5000 || s.ReliableSize() != reliable {
				t.Fatalf("code %d, final size %d, due %v, reliable size %d, want %d", code, size, ok, s.ReliableSize(), reliable)
			}
			s.ResetSent()
		})
	}
	want(4000)
	h.lose(s, packet{4000, 1000, false}) // not marked
	h.do(func() {
		if _, _, ok := s.ResetDue(); ok {
			t.Error("nothing has changed")
		}
		s.ResetAcked(4000)
	})
	h.ack(s, packet{2000, 500, false})
	h.lose(s, packet{2000, 1000, false})
	want(2500)
	h.do(func() {
		if _, _, _, ok := s.LostSource(); ok {
			t.Error("nobody is there to read it again")
		}
		s.ResetAcked(4000)
		s.ResetLost(4000)
		if _, _, ok := s.ResetDue(); ok {
			t.Error("the reset before does not count any more")
		}
	})
	h.ack(s, packet{0, 1000, false}, packet{1000, 1000, false})
	if h.done != 0 {
		t.Error("over without an acknowledgement of the last reset")
	}
	h.do(func() { s.ResetAcked(2500) })
	if h.done != 1 {
		t.Error("not over")
	}
	// Nothing is left: RESET_STREAM.
	s = NewSend(4, h, plenty)
	h.do(s.AllowResetAt)
	s.BeginSource(t.Context())
	h.do(func() { s.PackedSource(0, []uint16{1000}, []uint64{1}, false) })
	s.SetReliableBoundary()
	s.Cancel(7)
	s.EndSource()
	h.lose(s, packet{0, 1000, false})
	h.do(func() {
		if code, size, ok := s.ResetDue(); !ok || code != 7 || size != 1000 || s.ReliableSize() != 0 {
			t.Errorf("code %d, final size %d, due %v, reliable size %d", code, size, ok, s.ReliableSize())
		}
	})
}

// Recovery names the packets of a train together, also if some of them are acknowledged. The
// first that is lost takes all behind it out of the reset: none of them is lost any more.
func TestLossBeyondWhatAResetHasLeft(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	h.do(s.AllowResetAt)
	s.BeginSource(t.Context())
	h.do(func() { s.PackedSource(0, []uint16{1000, 1000, 1000, 1000}, []uint64{1, 2, 3, 4}, false) })
	s.SetReliableBoundary()
	s.Cancel(7)
	s.EndSource()
	h.ack(s, packet{0, 1000, false}, packet{2000, 1000, false})
	h.lose(s, packet{1000, 3000, false})
	h.do(func() {
		if off, n, _, _, ok := s.Next(plenty); ok || s.ReliableSize() != 1000 {
			t.Errorf("%d bytes at %d are to be sent, reliable size %d", n, off, s.ReliableSize())
		}
		s.ResetSent()
		s.ResetAcked(1000)
	})
	if h.done != 1 {
		t.Error("not over")
	}
}

// The peer may have the FIN and not all that is before it when the stream is reset: without
// the reset it would wait for the rest.
func TestResetArrivesAfterTheFin(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	h.do(s.AllowResetAt)
	s.Write(pattern(0, 1000))
	s.SetReliableBoundary()
	s.Write(pattern(1000, 2000))
	s.Close()
	ps := h.pack(s, 1000, 10, nil)
	h.ack(s, ps[2:]...)
	if !ps[2].fin {
		t.Fatal("the FIN is elsewhere")
	}
	s.Cancel(7)
	h.ack(s, ps[0])
	if h.done != 0 {
		t.Error("over, and the peer waits for bytes that never come")
	}
	h.do(func() {
		if code, size, ok := s.ResetDue(); !ok || code != 7 || size != 3000 || s.ReliableSize() != 1000 {
			t.Errorf("code %d, final size %d, due %v, reliable size %d", code, size, ok, s.ReliableSize())
		}
		s.ResetSent()
		s.ResetLost(1000)
		if _, _, ok := s.ResetDue(); !ok {
			t.Error("not due again")
		}
		s.ResetSent()
		s.ResetAcked(1000)
	})
	if h.done != 1 {
		t.Error("not over")
	}
}

// A RESET_STREAM_AT that comes while a reader copies: the reader keeps what it copies.
func TestResetAtWhileAReadCopies(t *testing.T) {
	for name, call := range map[string]func(r *Recv, p []byte) (int, error){
		"Read": (*Recv).Read, "Peek": (*Recv).Peek,
	} {
		t.Run(name, func(t *testing.T) {
			watchBlocks(t)
			useTestErrors(t)
			h := newHost(t)
			r := NewRecv(0, h, 100_000, 100_000)
			h.push(r, 0, 10_000, false)
			h.push(r, 20_000, 10_000, false)
			h.inGap = func() { h.do(func() { r.ResetAt(7, 50_000, 100) }) }
			p := make([]byte, 6000)
			n, err := call(r, p)
			wantErr := error(testReset{7, true})
			if name == "Peek" {
				wantErr = nil
			}
			if n != 6000 || err != wantErr {
				t.Fatalf("%d, %v", n, err)
			}
			checkPattern(t, p, 0)
			if name == "Peek" {
				if n, err := r.Read(make([]byte, 10_000)); n != 6000 || err != (testReset{7, true}) {
					t.Errorf("Read: %d, %v", n, err)
				}
			}
			if h.consumed != 50_000 || h.recvDone != 1 {
				t.Errorf("consumed %d, done %d times", h.consumed, h.recvDone)
			}
			h.do(func() { r.ConnClosed(io.EOF) })
		})
	}
}
