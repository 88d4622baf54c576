package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/volley-quic/volley/emit"
)

const plenty = 1 << 40

func TestFinIsAcknowledgedOnItsOwn(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)

	t.Run("after all bytes were", func(t *testing.T) {
		s := NewSend(0, h, 1000) // the FIN needs no credit
		s.Write(pattern(0, 1000))
		ps := h.pack(s, 2000, 9, nil)
		h.ack(s, ps...)
		if h.done != 0 {
			t.Fatal("done without FIN")
		}
		if s.HasPending() {
			t.Fatal("something is pending before Close")
		}
		h.ready, h.pushed = 0, 0
		s.Close()
		if h.ready == 0 || h.pushed != 1 {
			t.Fatal("Close does not send the FIN")
		}
		fin := h.pack(s, 2000, 9, nil)
		if !slices.Equal(fin, []packet{{1000, 0, true}}) {
			t.Fatalf("sent %v", fin)
		}
		h.lose(s, fin...)
		again := h.pack(s, 2000, 9, nil)
		if !slices.Equal(again, fin) {
			t.Fatalf("after the loss sent %v", again)
		}
		h.ack(s, ps...) // once more, late
		if h.done != 0 {
			t.Fatal("done before the FIN was acknowledged")
		}
		h.ack(s, again...)
		h.lose(s, fin...)
		h.ack(s, fin...)
		if h.done != 1 || s.HasPending() {
			t.Fatalf("done %d times, pending %v", h.done, s.HasPending())
		}
	})
	h.done = 0

	t.Run("without data or credit", func(t *testing.T) {
		s := NewSend(4, h, 0)
		s.Close()
		ps := h.pack(s, 1000, 9, nil)
		if !slices.Equal(ps, []packet{{0, 0, true}}) {
			t.Fatalf("sent %v", ps)
		}
		h.ack(s, ps...)
		if h.done != 1 {
			t.Fatal("not done")
		}
	})
	h.done = 0

	t.Run("it waits for bytes without credit", func(t *testing.T) {
		s := NewSend(8, h, 1000)
		s.Write(pattern(0, 1500))
		s.Close()
		ps := h.pack(s, 2000, 9, nil)
		if !slices.Equal(ps, []packet{{0, 1000, false}}) {
			t.Fatalf("sent %v", ps)
		}
		h.do(func() {
			if !s.Blocked() {
				t.Error("the peer is not told that the stream is blocked")
			}
			s.BlockedSent()
			if s.Blocked() {
				t.Error("the peer is told twice")
			}
			s.BlockedLost(1000)
			if !s.Blocked() {
				t.Error("a lost STREAM_DATA_BLOCKED is not sent again")
			}
			s.SetCredit(2000)
			if s.Blocked() {
				t.Error("blocked with credit")
			}
		})
		rest := h.pack(s, 2000, 9, nil)
		if !slices.Equal(rest, []packet{{1000, 500, true}}) {
			t.Fatalf("sent %v", rest)
		}
		h.ack(s, rest...)
		h.ack(s, ps...)
		if h.done != 1 {
			t.Fatal("not done")
		}
	})
}

func TestToResendIsLostMinusAcked(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.Write(pattern(0, 3000))
	ps := h.pack(s, 1000, 9, nil)
	pending := func(want ...packet) {
		t.Helper()
		var got []packet
		h.do(func() {
			for _, r := range s.lost.spans() {
				got = append(got, packet{r.lo, int(r.hi - r.lo), false})
			}
		})
		if !slices.Equal(got, want) {
			t.Fatalf("to resend: %v, want %v", got, want)
		}
	}
	h.lose(s, ps...)
	h.lose(s, ps[1]) // the same again
	pending(packet{0, 3000, false})
	h.ack(s, packet{1200, 300, false}) // the middle, late
	pending(packet{0, 1200, false}, packet{1500, 1500, false})
	h.ack(s, ps...) // the originals, late
	pending()
	h.lose(s, ps...) // the copies
	pending()
	s.CloseWith(pattern(3000, 10))
	last := h.pack(s, 1000, 9, nil)
	s.Cancel(1)
	h.ack(s, last...)
	h.lose(s, last...)
	pending()
	if h.done != 0 {
		t.Fatal("a reset stream is done without its acknowledgement")
	}
	h.do(func() {
		if code, size, ok := s.ResetDue(); code != 1 || size != 3010 || !ok {
			t.Fatalf("reset: %d %d %v", code, size, ok)
		}
		s.ResetSent()
		s.ResetLost(0)
		if _, _, ok := s.ResetDue(); !ok {
			t.Fatal("a lost reset is not due")
		}
		s.ResetSent()
		s.ResetAcked(0)
		s.ResetLost(0)
	})
	h.ack(s, last...)
	if h.done != 1 || s.HasPending() {
		t.Fatalf("done %d times", h.done)
	}
}

func TestDeadlineCountsExactlyWhatMayArrive(t *testing.T) {
	watchBlocks(t)
	synctest.Test(t, func(t *testing.T) {
		for round := range 200 {
			h := newHost(t)
			s := NewSend(0, h, 10_000)
			s.SetWriteBuffer(0, 0)
			p := pattern(0, 50_000)
			var wire []byte
			h.onPush = func(s *Send) { h.pack(s, 1000, 100, &wire) }
			switch round % 3 {
			case 0:
				s.SetDeadline(time.Now().Add(50 * time.Millisecond))
			case 1: // moved while the writer is blocked
				s.SetDeadline(time.Now().Add(time.Hour))
				go func() {
					time.Sleep(20 * time.Millisecond)
					s.SetDeadline(time.Now().Add(30 * time.Millisecond))
				}()
			case 2: // the sender holds copies of what it has not packed yet
				s.SetDeadline(time.Now().Add(50 * time.Millisecond))
				h.onPush = func(s *Send) {
					h.pack(s, 1000, 9, &wire)
					h.do(func() {
						if off, n, _, _, ok := s.Next(700); ok {
							s.Copy(make([]byte, n), off)
						}
					})
				}
			}
			begin := time.Now()
			n, err := s.Write(p)
			if d := time.Since(begin); d != 50*time.Millisecond {
				t.Fatalf("returned after %v", d)
			}
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Fatalf("error %v", err)
			}
			if want := 10_000 - round%3/2*300; n != want {
				t.Fatalf("n = %d, want %d", n, want)
			}
			if k, err := s.Write(p[n:]); k != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("after the deadline: %d, %v", k, err)
			}
			s.SetDeadline(time.Time{})
			h.onPush = func(s *Send) { h.pack(s, 1000, 100, &wire) }
			h.do(func() { s.SetCredit(plenty) })
			if k, err := s.Write(p[n:]); k != len(p)-n || err != nil {
				t.Fatalf("the rest: %d, %v", k, err)
			}
			s.Close()
			if !bytes.Equal(wire, p) {
				t.Fatalf("the peer has %d bytes, not p", len(wire))
			}
			h.do(func() { s.ConnClosed(io.EOF) })
		}
	})
}

func TestPastDeadlineWritesNothing(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.SetDeadline(time.Now().Add(-time.Second))
	released := 0
	for _, write := range []func() (int, error){
		func() (int, error) { return s.Write(pattern(0, 100)) },
		func() (int, error) { return s.CloseWith(pattern(0, 100)) },
		func() (int, error) { return s.WriteOwned(pattern(0, 1000), func() { released++ }) },
		func() (int, error) { n, err := s.WriteBuffers(&net.Buffers{pattern(0, 100)}); return int(n), err },
		func() (int, error) { return 0, s.BeginSource(t.Context()) },
	} {
		if n, err := write(); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
	}
	h.later()
	if s.HasPending() || h.pushed > 0 || h.ready > 0 || released != 1 {
		t.Error("something was written")
	}
}

// What ends a blocked write, and with which count.
func TestBlockedWriteEnds(t *testing.T) {
	watchBlocks(t)
	gone := errors.New("connection is gone")
	for name, c := range map[string]struct {
		end     func(h *testHost, s *Send)
		want    error
		pending bool // RESET_STREAM is due
	}{
		"STOP_SENDING": {func(h *testHost, s *Send) { h.do(func() { s.StopSending(7) }) }, testReset{7, true}, true},
		"Cancel":       {func(h *testHost, s *Send) { s.Cancel(8) }, testReset{8, false}, true},
		"connection":   {func(h *testHost, s *Send) { h.do(func() { s.ConnClosed(gone) }) }, gone, false},
		"deadline":     {func(h *testHost, s *Send) { s.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				useTestErrors(t)
				for _, unbuffered := range []bool{false, true} {
					h := newHost(t)
					h.onPush = func(s *Send) { h.pack(s, 1000, 100, nil) }
					s := NewSend(0, h, 10_000)
					if unbuffered {
						s.SetWriteBuffer(0, 0)
					}
					type result struct {
						n   int
						err error
					}
					first, second := make(chan result, 1), make(chan result, 1)
					go func() {
						n, err := s.Write(pattern(0, 200_000))
						first <- result{n, err}
					}()
					synctest.Wait()
					go func() { // another one behind it
						n, err := s.Write(pattern(0, 10))
						second <- result{n, err}
					}()
					synctest.Wait()
					c.end(h, s)
					synctest.Wait()
					r := <-first
					want := 10_000
					if name == "deadline" && !unbuffered {
						want = DefaultHigh // these stay, and may arrive
					}
					if r.n != want || r.err != c.want {
						t.Errorf("unbuffered %v: %d, %v, want %d, %v", unbuffered, r.n, r.err, want, c.want)
					}
					if r := <-second; r.n != 0 || r.err != c.want {
						t.Errorf("the second write: %d, %v", r.n, r.err)
					}
					if _, _, ok := s.ResetDue(); ok != c.pending {
						t.Errorf("reset due: %v", ok)
					}
					h.do(func() { s.ConnClosed(gone) })
					if h.buffered != 0 {
						t.Errorf("%d bytes still count as unsent", h.buffered)
					}
				}
			})
		})
	}
}

type testReset struct {
	code   uint64
	remote bool
}

func (testReset) Error() string { return "reset" }

func useTestErrors(t testing.TB) {
	old := errs
	t.Cleanup(func() { errs = old })
	SetErrors(Errors{Reset: func(id int64, code uint64, remote bool) error { return testReset{code, remote} }})
}

func TestEmptyWriteDoesNotSwallowTheNext(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	for range 1000 {
		if n, err := s.Write(nil); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		h.ready, h.pushed = 0, 0
		s.Write(pattern(s.acc, 1))
		if h.ready == 0 || h.pushed != 1 {
			t.Fatal("a byte was written and nobody was told")
		}
		h.ack(s, h.pack(s, 1000, 1, nil)...)
	}
}

func TestEveryWriteKeepsToTheHighMark(t *testing.T) {
	watchBlocks(t)
	const high, low = 64 << 10, 16 << 10
	for name, write := range map[string]func(s *Send, p []byte) error{
		"Write":        func(s *Send, p []byte) error { _, err := s.Write(p); return err },
		"WriteBuffers": func(s *Send, p []byte) error { _, err := s.WriteBuffers(&net.Buffers{p[:1], p[1:]}); return err },
		"WriteOwned":   func(s *Send, p []byte) error { _, err := s.WriteOwned(p, nil); return err },
		"TryWriteAll": func(s *Send, p []byte) error {
			for {
				err := s.TryWriteAll(p)
				if !errors.Is(err, errs.WouldBlock) {
					return err
				}
				<-s.Writable()
			}
		},
	} {
		for _, size := range []int{2, 1 << 10, 1 << 20} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t)
					s := NewSend(0, h, plenty)
					s.SetWriteBuffer(low, high)
					total := max(4*high, 2*size)
					var result error
					go func() {
						for off := 0; off < total && result == nil; off += size {
							result = write(s, pattern(int64(off), size))
						}
					}()
					synctest.Wait()
					var wire []byte
					for round := 0; ; {
						level, acc := h.level(s)
						if level > high+size || level < high && int(acc) < total {
							t.Fatalf("%d bytes unsent", level)
						}
						if level < high { // the writer is through
							h.pack(s, 1400, 1e6, &wire)
							break
						}
						writable := s.Writable()
						for level > low {
							if n, a := h.level(s); n != level || a != acc {
								t.Fatalf("%d bytes unsent, want %d: a paused writer added some, or a lost one counts", n, level)
							}
							select {
							case <-writable:
								t.Fatalf("writable with %d bytes unsent", level)
							default:
							}
							if round++; round%5 == 0 {
								h.lose(s, packet{0, min(3000, len(wire)), false})
							}
							before := len(wire)
							h.pack(s, 1400, 1, &wire)
							level -= len(wire) - before
							if level > low {
								synctest.Wait()
							}
						}
						select {
						case <-writable:
						default:
							t.Fatal("below the low mark, and not writable")
						}
						synctest.Wait()
					}
					if result != nil {
						t.Fatal(result)
					}
					if len(wire) != total {
						t.Fatalf("%d bytes arrived, want %d", len(wire), total)
					}
					checkPattern(t, wire, 0)
					h.do(func() { s.ConnClosed(io.EOF) })
				})
			})
		}
	}
}

func TestMarksMoveWhileAWriterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		s.SetWriteBuffer(16<<10, 64<<10)
		go s.Write(pattern(0, 1<<20))
		synctest.Wait()
		unsent := func(want int) {
			t.Helper()
			synctest.Wait()
			if n, _ := h.level(s); n != want {
				t.Fatalf("%d bytes unsent, want %d", n, want)
			}
		}
		unsent(64 << 10)
		s.SetWriteBuffer(16<<10, 128<<10) // raising resumes
		unsent(128 << 10)
		s.SetWriteBuffer(1<<10, 2<<10)
		h.pack(s, 1000, 100, nil)
		unsent(128<<10 - 100_000)
		h.pack(s, 1000, 30, nil)
		unsent(128<<10 - 130_000)
		h.pack(s, 100, 1, nil)
		unsent(2 << 10)
		if err := s.SetWriteBuffer(3, 2); err == nil {
			t.Error("low above high is accepted")
		}
		if err := s.SetWriteBuffer(-1, 2); err == nil {
			t.Error("a negative mark is accepted")
		}
		h.do(func() { s.ConnClosed(io.EOF) })
	})
}

func TestConnectionBufferPausesWritersButStarvesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.high = 100_000
		a, b := NewSend(0, h, 0), NewSend(4, h, plenty) // the peer does not read a
		a.SetWriteBuffer(0, 1<<20)
		b.SetWriteBuffer(1<<19, 1<<20)
		go a.Write(pattern(0, 1<<20))
		synctest.Wait()
		if n, _ := h.level(a); n != 100_000 {
			t.Fatalf("%d bytes unsent", n)
		}
		var wire []byte
		done := false
		go func() {
			b.Write(pattern(0, 1<<20))
			h.do(func() { done = true })
		}()
		for over := false; !over; h.do(func() { over = done }) {
			synctest.Wait()
			if n, _ := h.level(b); n > reserve || n == 0 {
				t.Fatalf("%d bytes of b unsent", n)
			}
			h.pack(b, 1400, 10, &wire)
		}
		checkPattern(t, wire, 0)
		h.do(func() {
			h.high += 50_000
			a.Wake()
		})
		synctest.Wait()
		na, _ := h.level(a)
		if nb, _ := h.level(b); na != 150_000-nb {
			t.Fatalf("%d bytes unsent after Wake", na)
		}
		h.do(func() { a.ConnClosed(io.EOF) })
	})
}

func TestCorkGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		three := func() {
			s.Cork()
			for range 3 {
				s.Write(pattern(s.acc, 20))
			}
			if h.pending(s) {
				t.Fatal("a corked byte is pending")
			}
		}
		want := func(n int) {
			t.Helper()
			if ps := h.pack(s, 200_000, 9, nil); len(ps) != 1 || ps[0].n != n {
				t.Fatalf("sent %v, want %d bytes at once", ps, n)
			}
			h.do(func() {
				if s.corked {
					t.Fatal("still corked")
				}
			})
		}
		three()
		h.ready, h.pushed = 0, 0
		s.Uncork()
		if h.ready == 0 || h.pushed != 1 {
			t.Fatal("Uncork does not send")
		}
		want(60)

		three()
		s.Cork() // does not nest, nor begin anew
		time.Sleep(199 * time.Millisecond)
		synctest.Wait()
		if h.pending(s) {
			t.Fatal("lifted too early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		want(60)

		three()
		s.Write(pattern(s.acc, DefaultHigh-60))
		want(DefaultHigh)

		three()
		s.Close()
		want(60)
		time.Sleep(time.Second)
	})
}

func TestCorkDoesNotHoldUpLostBytes(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.Write(pattern(0, 100))
	ps := h.pack(s, 1000, 1, nil)
	s.Cork()
	s.Write(pattern(100, 100))
	h.lose(s, ps...)
	if again := h.pack(s, 1000, 9, nil); !slices.Equal(again, ps) {
		t.Fatalf("sent %v", again)
	}
	s.Uncork()
}

func TestSmallWritesShareABlockAndAPacket(t *testing.T) {
	watchBlocks(t)
	h := newHost(t)
	s := NewSend(0, h, plenty)
	for i := range 100 {
		s.Write(pattern(int64(i)*20, 20))
	}
	if s.q.n > 2 {
		t.Errorf("%d blocks for 2000 bytes", s.q.n)
	}
	ps := h.pack(s, 1420, 99, nil)
	if len(ps) != 2 {
		t.Errorf("%d packets", len(ps))
	}
	h.ack(s, ps[1])
	h.ack(s, ps[0])
	if s.q.n != 0 {
		t.Error("an idle stream holds a block")
	}
}

func TestCloseWithIsOneFrame(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 10_000} {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		s.Write(pattern(0, 500)) // in the same block, so that the bytes lie in two
		if k, err := s.CloseWith(pattern(500, n)); k != n || err != nil {
			t.Fatal(k, err)
		}
		if ps := h.pack(s, 1<<20, 9, nil); len(ps) != 1 || !ps[0].fin {
			t.Errorf("%d bytes: sent %v", n, ps)
		}
		if _, err := s.Write([]byte{1}); err != errs.Closed {
			t.Errorf("write after CloseWith: %v", err)
		}
		if s.Close() != nil {
			t.Error("Close after CloseWith fails")
		}
	}
}

func TestCloseLetsAWriteFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		var n int
		var err error
		done := false
		go func() { n, err = s.Write(pattern(0, 300_000)); done = true }()
		synctest.Wait()
		second := false
		go func() {
			if _, err := s.Write([]byte{1}); err != errs.Closed {
				t.Error("the write behind it:", err)
			}
			second = true
		}()
		synctest.Wait()
		s.Close()
		synctest.Wait()
		if done || !second {
			t.Fatal("Close ended a write, or did not end the one behind it")
		}
		if _, err := s.Write([]byte{1}); err != errs.Closed {
			t.Fatalf("a new write: %v", err)
		}
		var last packet
		for range 300 {
			for _, p := range h.pack(s, 1400, 5, nil) {
				last = p
			}
			synctest.Wait()
		}
		if !done || n != 300_000 || err != nil {
			t.Fatalf("%v: %d, %v", done, n, err)
		}
		if last.off+int64(last.n) != 300_000 || !last.fin {
			t.Fatalf("the last packet is %v", last)
		}
	})
}

func TestUnbufferedCloseWithTakesTheFinBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, 1000)
		s.SetWriteBuffer(0, 0)
		h.onPush = func(s *Send) { h.pack(s, 1000, 9, nil) }
		s.SetDeadline(time.Now().Add(time.Second))
		n, err := s.CloseWith(pattern(0, 5000))
		if n != 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		s.SetDeadline(time.Time{})
		h.do(func() { s.SetCredit(plenty) })
		if s.HasPending() {
			t.Fatal("something is left")
		}
		if n, err := s.CloseWith(pattern(1000, 4000)); n != 4000 || err != nil {
			t.Fatal(n, err)
		}
		if !s.finSent || s.next != 5000 {
			t.Fatal("the rest was not sent")
		}
	})
}

// Every way in which lent memory can come back, once each.
func TestOwnedMemoryIsReleasedOnce(t *testing.T) {
	watchBlocks(t)
	for name, end := range map[string]func(h *testHost, s *Send){
		"acknowledged": func(h *testHost, s *Send) { h.ack(s, h.pack(s, 700, 999, nil)...) },
		"out of order": func(h *testHost, s *Send) {
			ps := h.pack(s, 700, 999, nil)
			slices.Reverse(ps)
			h.ack(s, ps...)
			h.ack(s, ps...)
		},
		"reset":             func(h *testHost, s *Send) { h.pack(s, 700, 2, nil); s.Cancel(1); s.Cancel(2) },
		"stopped":           func(h *testHost, s *Send) { h.do(func() { s.StopSending(1) }) },
		"connection closed": func(h *testHost, s *Send) { h.do(func() { s.ConnClosed(io.EOF) }) },
		"reset, closed, acked": func(h *testHost, s *Send) {
			ps := h.pack(s, 700, 999, nil)
			s.Cancel(1)
			h.do(func() { s.ConnClosed(io.EOF) })
			h.ack(s, ps...)
		},
	} {
		h := newHost(t)
		s := NewSend(0, h, plenty)
		released := 0
		for _, n := range []int{0, 100, 3000, 200_000} {
			if k, err := s.WriteOwned(pattern(s.acc, n), func() { released++ }); k != n || err != nil {
				t.Fatal(name, k, err)
			}
			s.high = plenty
			s.paused = false
		}
		h.later()
		if released != 2 { // the small ones were copied
			t.Errorf("%s: %d pieces released while in use", name, released)
		}
		end(h, s)
		s.Close()
		s.WriteOwned(make([]byte, 5000), func() { released++ })
		h.later()
		if released != 5 {
			t.Errorf("%s: %d releases, want 5", name, released)
		}
	}
}

func TestUnbufferedOwnedPieceIsTakenBack(t *testing.T) {
	watchBlocks(t)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, 1000)
		s.SetWriteBuffer(0, 0)
		h.onPush = func(s *Send) { h.pack(s, 1000, 9, nil) }
		s.SetDeadline(time.Now().Add(time.Second))
		released := 0
		n, err := s.WriteOwned(pattern(0, 5000), func() { released++ })
		if n != 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		h.later()
		if released != 0 {
			t.Fatal("released before the first part is acknowledged")
		}
		h.ack(s, packet{0, 1000, false})
		h.later()
		if released != 1 {
			t.Fatal("not released")
		}
		n, err = s.WriteOwned(pattern(1000, 5000), func() { released++ })
		h.later()
		if n != 0 || err == nil || released != 2 {
			t.Fatal(n, err, released)
		}
	})
}

func TestWriteBuffersConsumesWhatItWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		s := NewSend(0, h, 0)
		s.SetWriteBuffer(0, 5000)
		s.SetDeadline(time.Now().Add(time.Second))
		b := net.Buffers{pattern(0, 2000), nil, pattern(2000, 2000), pattern(4000, 2000), pattern(6000, 10)}
		n, err := s.WriteBuffers(&b)
		if n != 5000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		if len(b) != 2 || len(b[0]) != 1000 {
			t.Fatalf("%d buffers are left", len(b))
		}
		s.SetDeadline(time.Time{})
		var wire []byte
		h.do(func() { s.SetCredit(plenty) })
		h.pack(s, 1000, 99, &wire)
		if n, err := s.WriteBuffers(&b); n != 1010 || err != nil || len(b) != 0 {
			t.Fatal(n, err, len(b))
		}
		h.pack(s, 1000, 99, &wire)
		checkPattern(t, wire, 0)
		if len(wire) != 6010 {
			t.Fatal(len(wire))
		}
	})
}

func TestRefusedPassLeavesNoTrace(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.Write(pattern(0, 3000))
	ps := h.pack(s, 1000, 1, nil)
	h.lose(s, ps...)
	h.do(func() {
		off, n, _, lost, ok := s.Next(1 << 20)
		if off != 0 || n != 1000 || !lost || !ok {
			t.Fatal(off, n, lost, ok)
		}
		s.OnAcked(0, 500, false) // between Next and Packed
		if s.Copy(make([]byte, n), off); s.Packed(off, n, false) != -1 {
			t.Error("an acknowledged byte is sent again")
		}
		if off, n, _, _, _ = s.Next(1 << 20); off != 500 || n != 500 {
			t.Errorf("then offered %d bytes at %d", n, off)
		}
	})
	s.Cancel(3)
	h.do(func() {
		if s.Packed(1000, 100, false) != -1 {
			t.Error("a byte follows the reset")
		}
		if _, size, _ := s.ResetDue(); size != 1000 {
			t.Errorf("final size %d", size)
		}
		if _, _, _, _, ok := s.Next(1 << 20); ok {
			t.Error("a reset stream has bytes")
		}
	})
	s = NewSend(4, h, plenty)
	h.do(func() {
		if _, _, _, _, ok := s.Next(1 << 20); ok || s.Packed(0, 10, false) != -1 || s.Packed(5, 0, false) != -1 || s.Packed(0, 0, true) != -1 {
			t.Error("an empty stream has bytes")
		}
	})
}

func TestContextEndsWithTheStream(t *testing.T) {
	useTestErrors(t)
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		end  func(h *testHost, s *Send)
		want error
	}{
		"Close":      {func(h *testHost, s *Send) { s.Close() }, errs.Closed},
		"CloseWith":  {func(h *testHost, s *Send) { s.CloseWith([]byte{1}) }, errs.Closed},
		"Cancel":     {func(h *testHost, s *Send) { s.Cancel(1) }, testReset{1, false}},
		"STOP":       {func(h *testHost, s *Send) { h.do(func() { s.StopSending(2) }) }, testReset{2, true}},
		"connection": {func(h *testHost, s *Send) { h.do(func() { s.ConnClosed(gone) }) }, gone},
	} {
		for _, early := range []bool{true, false} {
			h := newHost(t)
			s := NewSend(0, h, plenty)
			if early && s.Context().Err() != nil {
				t.Fatal("ended at once")
			}
			c.end(h, s)
			h.later()
			s.Cancel(9)
			h.later()
			ctx := s.Context()
			<-ctx.Done()
			if context.Cause(ctx) != c.want {
				t.Errorf("%s, early %v: %v", name, early, context.Cause(ctx))
			}
		}
	}
}

func TestIdleStreamsAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(Send{}); n > 400 {
		t.Errorf("Send has %d bytes", n)
	}
	if n := unsafe.Sizeof(Recv{}); n > 400 {
		t.Errorf("Recv has %d bytes", n)
	}
}

func TestTryWriteAllNeverWaits(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, 1000)
	s.SetWriteBuffer(0, 600)
	s.SetDeadline(time.Now().Add(-time.Second)) // does not matter here
	steps := []struct {
		n    int
		want error
	}{{500, nil}, {501, errs.WouldBlock}, {200, nil}, {1, errs.WouldBlock}}
	for _, c := range steps {
		if err := s.TryWriteAll(pattern(s.acc, c.n)); err != c.want {
			t.Errorf("%d bytes: %v", c.n, err)
		}
	}
	h.pack(s, 1000, 9, nil)
	if err := s.TryWriteAll(pattern(s.acc, 300)); err != nil {
		t.Error(err)
	}
	h.pack(s, 1000, 9, nil)
	s.SetDeadline(time.Time{})
	s.BeginSource(t.Context())
	if err := s.TryWriteAll([]byte{1}); err != emit.ErrBusy {
		t.Error(err)
	}
	s.EndSource()
	s.Close()
	if err := s.TryWriteAll([]byte{1}); err != errs.Closed {
		t.Error(err)
	}
}

// What may happen while a writer copies without the monitor, behind bytes
// that are in flight in the same block.
func TestWhileAWriterCopies(t *testing.T) {
	neverBrief(t)
	watchBlocks(t)
	useTestErrors(t)
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		happen func(h *testHost, s *Send)
		want   error
	}{
		"acked":          {func(h *testHost, s *Send) { h.ack(s, packet{0, 100, false}) }, nil},
		"Cancel":         {func(h *testHost, s *Send) { s.Cancel(3) }, testReset{3, false}},
		"STOP_SENDING":   {func(h *testHost, s *Send) { h.do(func() { s.StopSending(4) }) }, testReset{4, true}},
		"closed":         {func(h *testHost, s *Send) { h.do(func() { s.ConnClosed(gone) }) }, gone},
		"acked, Cancel":  {func(h *testHost, s *Send) { h.ack(s, packet{0, 100, false}); s.Cancel(3) }, testReset{3, false}},
		"deadline":       {func(h *testHost, s *Send) { s.SetDeadline(time.Now().Add(-1)) }, os.ErrDeadlineExceeded},
		"acked, expired": {func(h *testHost, s *Send) { h.ack(s, packet{0, 100, false}); s.SetDeadline(time.Now().Add(-1)) }, os.ErrDeadlineExceeded},
		"Close":          {func(h *testHost, s *Send) { s.Close() }, nil},
	} {
		for _, n := range []int{50, 5000} { // in the block's rest, or beyond
			h := newHost(t)
			s := NewSend(0, h, plenty)
			s.Write(pattern(0, 100))
			ps := h.pack(s, 1000, 9, nil)
			h.inGap = func() { c.happen(h, s) }
			k, err := s.Write(pattern(100, n))
			if err != c.want || err == nil && k != n || err != nil && k != 0 {
				t.Errorf("%s: %d, %v, want %v", name, k, err, c.want)
			}
			s.SetDeadline(time.Time{})
			if err == nil {
				var wire []byte
				ps := append(ps, h.pack(s, 1000, 9, &wire)...)
				checkPattern(t, wire[100:], 100)
				h.ack(s, ps...)
				if s.Close(); h.pending(s) == s.finSent {
					t.Errorf("%s: no FIN", name)
				}
			}
			h.ack(s, ps...)
			h.do(func() {
				if s.q.n != 0 || h.buffered != 0 {
					t.Errorf("%s: %d blocks are left, %d bytes unsent", name, s.q.n, h.buffered)
				}
				s.ConnClosed(gone)
			})
		}
	}
}
