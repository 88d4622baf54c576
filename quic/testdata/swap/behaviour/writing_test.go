package behaviour

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// window is what the peer takes before it reads.
const window = 64 << 10

func narrow() *quic.Config {
	return &quic.Config{InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window}
}

// noBuffer gives a stream the rule of quic-go's Write, on a stack that has another one.
func noBuffer(s any) {
	if s, ok := s.(interface{ SetWriteBuffer(low, high int) error }); ok {
		s.SetWriteBuffer(0, 0)
	}
}

// mostUnsent is the largest number of bytes that a Write leaves unsent when it returns:
// it is more than the peer takes by that much.
func mostUnsent(w *world, prepare func(s *quic.SendStream)) int {
	client, server := w.conns(narrow(), nil)
	lo, hi := 0, 4<<20 // a Write that leaves lo unsent returns, one that would leave hi does not
	for hi-lo > 1 {
		m := (lo + hi) / 2
		s, _ := w.uni(client, server)
		prepare(s)
		s.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := s.Write(make([]byte, window-2+m)); err == nil {
			lo = m
		} else {
			hi = m
		}
		s.CancelWrite(0)
	}
	return lo
}

// about puts a number of bytes in words that do not depend on the size of packets.
func about(n int) string {
	switch {
	case n == 0:
		return "nothing"
	case n <= 1452:
		return "a packet or less"
	case n <= 64<<10:
		return "64 KiB or less"
	}
	return "more than 64 KiB"
}

var _ = add(
	row{"write returns", func(w *world) {
		w.say("when %s is unsent", about(mostUnsent(w, func(*quic.SendStream) {})))
	}},
	row{"write returns, without a buffer", func(w *world) {
		w.say("when %d bytes are unsent", mostUnsent(w, func(s *quic.SendStream) { noBuffer(s) }))
	}},
	row{"write deadline", func(w *world) {
		s, _ := w.streams(narrow())
		s.SetWriteDeadline(time.Now().Add(time.Second))
		start := time.Now()
		_, err := s.Write(make([]byte, 1<<20))
		w.say("%v after %v", err, time.Since(start).Round(100*time.Millisecond))
		_, err = s.Write(nil)
		w.say("no bytes: %v", err)
		s.SetWriteDeadline(time.Time{})
		_, err = s.Write(nil)
		w.say("without a deadline: %v", err)
	}},
	row{"write deadline, n", func(w *world) {
		s, _ := w.streams(narrow())
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ := s.Write(make([]byte, 1<<20))
		w.say("all of the peer's credit, and %s", about(n-(window-2)))
	}},
	row{"write deadline, n without a buffer", func(w *world) {
		s, _ := w.streams(narrow())
		noBuffer(s)
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ := s.Write(make([]byte, 1<<20))
		w.say("%d bytes of a window of %d with 2 used", n, window)
	}},
	row{"write deadline, bytes counted go and others never do", func(w *world) {
		s, r := w.streams(narrow())
		data := bytes.Repeat([]byte("0123456789"), 1<<16)
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ := s.Write(data)
		s.SetWriteDeadline(time.Time{})
		settle()
		go func() {
			_, err := s.Write(data[n:])
			w.say("the rest: %v", err)
			s.Close()
		}()
		b, err := io.ReadAll(r)
		w.say("the peer reads the same: %v, %v", bytes.Equal(b, data), err)
	}},
	row{"write deadline moved while Write waits", func(w *world) {
		s, _ := w.streams(narrow())
		time.AfterFunc(time.Second, func() { s.SetWriteDeadline(time.Now()) })
		start := time.Now()
		_, err := s.Write(make([]byte, 1<<20))
		w.say("%v after %v", errors.Is(err, os.ErrDeadlineExceeded), time.Since(start).Round(100*time.Millisecond))
	}},
	row{"CancelWrite with bytes unsent", func(w *world) {
		s, r := w.streams(narrow())
		noBuffer(s)
		var size int64
		r.SetReceiveFinalSizeCallback(func(n int64) { size = n })
		time.AfterFunc(time.Second, func() { s.CancelWrite(7) })
		n, err := s.Write(make([]byte, 1<<20))
		w.say("%d, %v", n, err)
		settle()
		m, err := r.Read(make([]byte, 10))
		w.say("the peer reads %d, %v; final size %d", m, err, size)
		_, err = s.Write([]byte("x"))
		w.say("Write: %v", err)
		s.CancelWrite(8)
		_, err = s.Write(nil)
		w.say("cancelled again, Write: %v", err)
	}},
	row{"Close after CancelWrite", func(w *world) {
		s, _ := w.streams(nil)
		s.CancelWrite(7)
		w.say("%v", s.Close())
		w.say("again: %v", s.Close())
	}},
	row{"the text of a deadline's error", func(w *world) {
		s, _ := w.streams(nil)
		s.SetWriteDeadline(time.Now())
		_, err := s.Write([]byte("x"))
		w.say("%s", err.Error())
	}},
	row{"Close", func(w *world) {
		s, r := w.streams(nil)
		w.say("%v, again %v", s.Close(), s.Close())
		n, err := s.Write([]byte("x"))
		w.say("Write: %d, %v", n, err)
		_, err = s.Write(nil)
		w.say("Write of nothing: %v", err)
		w.say("TryWriteAll: %v", s.TryWriteAll([]byte("x")))
		_, err = s.WriteWithLimit([]byte("x"), func(n int) int { return n })
		w.say("WriteWithLimit: %v", err)
		b, err := io.ReadAll(r)
		w.say("the peer reads %q, %v", b, err)
		s.CancelWrite(9)
		_, err = s.Write([]byte("x"))
		w.say("after CancelWrite and when all is acknowledged, Write: %v", err)
	}},
	row{"CancelWrite after Close with bytes unsent", func(w *world) {
		s, r := w.streams(narrow())
		noBuffer(s)
		n, err := s.Write(make([]byte, window))
		w.say("%d, %v", n, err)
		s.Close()
		settle()
		s.CancelWrite(9)
		_, err = s.Write([]byte("x"))
		w.say("Write: %v", err)
		w.say("Close: %v", s.Close())
		settle()
		_, err = r.Read(make([]byte, 1))
		w.say("the peer reads: %v", err)
		w.say("cause: %v", context.Cause(s.Context()))
	}},
	row{"STOP_SENDING", func(w *world) {
		s, r := w.streams(narrow())
		time.AfterFunc(time.Second, func() { r.CancelRead(6) })
		_, err := s.Write(make([]byte, 1<<20))
		w.say("Write: %v", err)
		w.say("TryWriteAll: %v", s.TryWriteAll([]byte("x")))
		w.say("cause: %v", context.Cause(s.Context()))
		w.say("Close fails: %v", s.Close() != nil)
	}},
	row{"TryWriteAll", func(w *world) {
		s, r := w.streams(narrow())
		w.say("beyond the peer's credit: %v", s.TryWriteAll(make([]byte, window)))
		w.say("nothing: %v", s.TryWriteAll(nil))
		w.say("all of the credit: %v", s.TryWriteAll(make([]byte, window-2)))
		w.say("one more: %v", s.TryWriteAll([]byte("x")))
		s.SetWriteDeadline(time.Now().Add(-time.Second))
		w.say("one more, after the deadline: %v", s.TryWriteAll([]byte("x")))
		_, err := io.ReadFull(r, make([]byte, window-2))
		w.must(err)
		settle()
		w.say("with credit, after the deadline: %v", s.TryWriteAll([]byte("x")))
		s.SetWriteDeadline(time.Time{})
		go s.Write(make([]byte, 1<<20))
		settle()
		w.say("during a Write: %v", s.TryWriteAll([]byte("x")))
		s.CancelWrite(3)
		settle()
		w.say("cancelled: %v", s.TryWriteAll([]byte("x")))
		w.say("cancelled, nothing: %v", s.TryWriteAll(nil))
	}},
	row{"TryWriteAll against the connection's credit", func(w *world) {
		client, server := w.conns(&quic.Config{
			InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
			InitialConnectionReceiveWindow: window, MaxConnectionReceiveWindow: window,
		}, nil)
		a, _ := w.uni(client, server)
		b, _ := w.uni(client, server)
		w.say("half of it: %v", a.TryWriteAll(make([]byte, window/2)))
		w.say("more than is left: %v", b.TryWriteAll(make([]byte, window-2)))
		w.say("a part of what is left: %v", b.TryWriteAll(make([]byte, window/4)))
	}},
	row{"TryWriteAll twice in a row", func(w *world) {
		s, r := w.streams(nil)
		for range 2 {
			w.say("100 kB: %v", s.TryWriteAll(bytes.Repeat([]byte("x"), 100_000)))
		}
		s.Close()
		b, err := io.ReadAll(r)
		w.say("the peer reads %d of them, %v", bytes.Count(b, []byte("x")), err)
	}},
	row{"WriteWithLimit", func(w *world) {
		s, r := w.streams(nil)
		data := []byte(strings.Repeat("0123456789", 1000))
		write := func(p []byte, limiter func(int) int) int {
			n, err := s.WriteWithLimit(p, limiter)
			w.say("%d, %v", n, err)
			return n
		}
		w.say("nothing, ten, all, more than all, a negative number, no limiter:")
		write(data, func(int) int { return 0 })
		n := write(data, func(int) int { return 10 })
		n += write(data[n:100], func(most int) int { return most })
		n += write(data[n:200], func(most int) int { return most + 1 })
		write(data[n:], func(int) int { return -1 })
		n += write(data[n:300], nil)
		asked := 0
		n += write(data[n:], func(most int) int {
			if asked++; asked > 1 {
				return most
			}
			return 1000
		})
		w.say("asked again after a refusal: %v", asked > 1)
		left := 5000
		n += write(data[n:], func(most int) int {
			most = min(most, left)
			left -= most
			return most
		})
		w.say("%d of the limit are left", left)
		s.Close()
		b, err := io.ReadAll(r)
		w.say("the peer reads what was granted: %v, %v", bytes.Equal(b, data[:n]), err)
	}},
	row{"WriteWithLimit, calls of the limiter", func(w *world) {
		s, r := w.streams(nil)
		calls := 0
		go s.WriteWithLimit(make([]byte, 500_000), func(most int) int { calls++; return most })
		_, err := io.ReadFull(r, make([]byte, 500_000))
		w.must(err)
		settle()
		w.say("one for 5 packets or less: %v", calls > 500_000/1452/5)
	}},
	row{"Write and Close while a Write waits for credit", func(w *world) {
		s, r := w.streams(narrow())
		noBuffer(s)
		var wg sync.WaitGroup
		wg.Go(func() {
			n, err := s.Write(make([]byte, 100_000))
			w.say("Write: %d, %v", n, err)
		})
		settle()
		w.say("Close: %v", s.Close())
		b, err := io.ReadAll(r)
		wg.Wait()
		w.say("the peer reads %d, %v", len(b), err)
	}},
	row{"a stream's context, Close", func(w *world) {
		s, _ := w.streams(nil)
		w.say("before: %v", s.Context().Err())
		s.Close()
		settle()
		w.say("%v, %v", s.Context().Err(), context.Cause(s.Context()))
	}},
	row{"a stream's context, CancelWrite", func(w *world) {
		s, _ := w.streams(nil)
		s.CancelWrite(4)
		settle()
		w.say("%v, %v", s.Context().Err(), context.Cause(s.Context()))
		s.Close()
		settle()
		w.say("after Close: %v", context.Cause(s.Context()))
	}},
	row{"a stream's context, the connection's end", func(w *world) {
		client, server := w.conns(nil, nil)
		s, _ := w.uni(client, server)
		client.CloseWithError(5, "that's it")
		settle()
		w.say("%v, %v", s.Context().Err(), context.Cause(s.Context()))
	}},
	row{"a stream's context, Close and then the connection's end", func(w *world) {
		client, server := w.conns(nil, nil)
		s, _ := w.uni(client, server)
		s.Close()
		settle()
		client.CloseWithError(5, "that's it")
		settle()
		w.say("%v", context.Cause(s.Context()))
		_, err := s.Write([]byte("x"))
		w.say("Write: %v", err)
	}},
)
