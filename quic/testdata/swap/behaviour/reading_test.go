package behaviour

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

var _ = add(
	row{"EOF together with the last bytes", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		s.Close()
		settle()
		n, err := r.Read(make([]byte, 2))
		w.say("2 of 3: %d, %v", n, err)
		n, err = r.Read(make([]byte, 1))
		w.say("the third: %d, %v", n, err)
		n, err = r.Read(make([]byte, 10))
		w.say("after: %d, %v", n, err)
	}},
	row{"EOF alone", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("before FIN: %d, %v", n, err)
		s.Close()
		n, err = r.Read(make([]byte, 10))
		w.say("FIN: %d, %v", n, err)
		n, err = r.Read(nil)
		w.say("Read(nil) after it: %d, %v", n, err)
		n, err = r.Peek(make([]byte, 1))
		w.say("Peek after it: %d, %v", n, err)
		n, err = r.Peek(nil)
		w.say("Peek(nil) after it: %d, %v", n, err)
		r.CancelRead(1)
		n, err = r.Read(make([]byte, 10))
		w.say("after CancelRead: %d, %v", n, err)
	}},
	row{"Read of no bytes", func(w *world) {
		_, r := w.streams(nil)
		n, err := r.Read(nil)
		w.say("with nothing there: %d, %v", n, err)
		n, err = r.Peek(nil)
		w.say("Peek: %d, %v", n, err)
		r.CancelRead(1)
		n, err = r.Read(nil)
		w.say("after CancelRead: %d, %v", n, err)
		n, err = r.Peek(nil)
		w.say("Peek after CancelRead: %d, %v", n, err)
	}},
	row{"CancelRead", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		settle()
		time.AfterFunc(time.Second, func() { r.CancelRead(5) })
		io.ReadFull(r, make([]byte, 3))
		n, err := r.Read(make([]byte, 10))
		w.say("waiting: %d, %v", n, err)
		r.CancelRead(6)
		n, err = r.Read(make([]byte, 10))
		w.say("cancelled twice: %d, %v", n, err)
		n, err = r.Peek(make([]byte, 10))
		w.say("Peek: %d, %v", n, err)
	}},
	row{"CancelRead with bytes unread", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		settle()
		r.CancelRead(5)
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
	}},
	row{"reset with bytes unread", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		settle()
		s.CancelWrite(5)
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
		n, err = r.Read(make([]byte, 10))
		w.say("again: %d, %v", n, err)
		r.CancelRead(6)
		n, err = r.Read(make([]byte, 10))
		w.say("after CancelRead: %d, %v", n, err)
	}},
	row{"the connection ends with bytes unread", func(w *world) {
		client, server := w.conns(nil, nil)
		s, r := w.uni(client, server)
		s.Write([]byte("abc"))
		s.Close()
		settle()
		client.CloseWithError(5, "that's it")
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
		r.CancelRead(6)
		n, err = r.Read(make([]byte, 10))
		w.say("after CancelRead: %d, %v", n, err)
	}},
	row{"the connection ends after EOF was read", func(w *world) {
		client, server := w.conns(nil, nil)
		s, r := w.uni(client, server)
		s.Close()
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
		client.CloseWithError(5, "that's it")
		settle()
		n, err = r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
	}},
	row{"read deadline", func(w *world) {
		s, r := w.streams(nil)
		r.SetReadDeadline(time.Now().Add(time.Second))
		start := time.Now()
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v after %v", n, err, time.Since(start).Round(100*time.Millisecond))
		s.Write([]byte("abc"))
		settle()
		n, err = r.Read(make([]byte, 10))
		w.say("with bytes there: %d, %v", n, err)
		n, err = r.Read(nil)
		w.say("of no bytes: %d, %v", n, err)
		n, err = r.Peek(make([]byte, 1))
		w.say("Peek: %d, %v", n, err)
		r.SetReadDeadline(time.Time{})
		n, err = r.Read(make([]byte, 10))
		w.say("without a deadline: %d, %v", n, err)
		time.AfterFunc(time.Second, func() { r.SetReadDeadline(time.Now()) })
		_, err = r.Read(make([]byte, 10))
		w.say("moved while Read waits: %v", errors.Is(err, os.ErrDeadlineExceeded))
	}},
	row{"Peek", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		time.AfterFunc(time.Second, func() { s.Write([]byte("def")) })
		b := make([]byte, 6)
		n, err := r.Peek(b)
		w.say("%q, %v", b[:n], err)
		n, err = r.Read(b)
		w.say("then Read: %q, %v", b[:n], err)
		s.Write([]byte("gh"))
		s.Close()
		n, err = r.Peek(b)
		w.say("more than comes: %q, %v", b[:n], err)
		n, err = r.Read(b)
		w.say("then Read: %q, %v", b[:n], err)
	}},
	row{"Peek of a stream that is reset", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		settle()
		time.AfterFunc(time.Second, func() { s.CancelWrite(3) })
		n, err := r.Peek(make([]byte, 10))
		w.say("%d, %v", n, err)
	}},
	row{"Peek beyond the window", func(w *world) {
		s, r := w.streams(&quic.Config{InitialStreamReceiveWindow: 1000, MaxStreamReceiveWindow: 1 << 20})
		go s.Write(make([]byte, 10000))
		r.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := r.Peek(make([]byte, 5000))
		w.say("%d, %v", n, err == nil)
		s.CancelWrite(0)
	}},
	row{"final size callback", func(w *world) {
		s, r := w.streams(nil)
		var got []int64
		note := func(n int64) { got = append(got, n) }
		r.SetReceiveFinalSizeCallback(note)
		s.Write([]byte("abc"))
		s.Close()
		settle()
		w.say("at FIN: %v", got)
		r.SetReceiveFinalSizeCallback(note)
		w.say("set when it is known: %v", got)
	}},
	row{"reset after all bytes have arrived, unread", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("abc"))
		s.Close()
		time.Sleep(7 * time.Millisecond) // they are there, and the acknowledgement is on its way
		s.CancelWrite(5)
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("%d, %v", n, err)
	}},
)
