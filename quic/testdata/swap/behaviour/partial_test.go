package behaviour

import (
	"context"
	"errors"
	"io"

	"github.com/quic-go/quic-go"
)

func withPartial() *quic.Config { return &quic.Config{EnableStreamResetPartialDelivery: true} }

// pieces writes each piece in packets of its own.
func pieces(s *quic.SendStream, pieces ...string) {
	for _, p := range pieces {
		s.Write([]byte(p))
		settle()
	}
}

var _ = add(
	row{"partial delivery", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "reliable")
		s.SetReliableBoundary()
		pieces(s, "not")
		s.CancelWrite(5)
		settle()
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
		n, err := r.Read(make([]byte, 1))
		w.say("again: %d, %v", n, err)
		n, err = s.Write([]byte("more"))
		w.say("Write: %d, %v", n, err)
		w.say("cause: %v", context.Cause(s.Context()))
	}},
	row{"partial delivery, a buffer that fits", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "reliable")
		s.SetReliableBoundary()
		pieces(s, "not")
		s.CancelWrite(5)
		settle()
		n, err := r.Read(make([]byte, 3))
		w.say("%d, %v", n, err)
		n, err = r.Read(make([]byte, 5))
		w.say("%d, %v", n, err)
		n, err = r.Read(make([]byte, 5))
		w.say("%d, %v", n, err)
	}},
	row{"partial delivery, boundaries", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "one")
		s.SetReliableBoundary()
		pieces(s, "two")
		s.SetReliableBoundary()
		pieces(s, "three")
		s.CancelWrite(5)
		s.SetReliableBoundary()
		s.CancelWrite(6)
		settle()
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
	}},
	row{"partial delivery, boundary before anything", func(w *world) {
		client, server := w.conns(withPartial(), withPartial())
		s, err := client.OpenUniStream()
		w.must(err)
		s.SetReliableBoundary()
		pieces(s, "not")
		s.CancelWrite(5)
		r, err := server.AcceptUniStream(w.Context())
		w.must(err)
		settle()
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
	}},
	row{"partial delivery, a reader that waits", func(w *world) {
		s, r := w.streams(withPartial())
		done := make(chan error)
		go func() {
			b, err := io.ReadAll(r)
			w.say("%q, %v", b, err)
			close(done)
		}()
		pieces(s, "reliable")
		s.SetReliableBoundary()
		s.CancelWrite(5)
		<-done
	}},
	row{"partial delivery, Peek", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "reliable")
		s.SetReliableBoundary()
		pieces(s, "not")
		s.CancelWrite(5)
		settle()
		b := make([]byte, 20)
		for _, k := range []int{4, 8, 20} {
			n, err := r.Peek(b[:k])
			w.say("%d: %q, %v", k, b[:n], err)
		}
		n, err := r.Read(b[:8])
		w.say("Read: %q, %v", b[:n], err)
		n, err = r.Peek(b[:1])
		w.say("Peek: %q, %v", b[:n], err)
	}},
	row{"partial delivery, CancelRead", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "reliable")
		s.SetReliableBoundary()
		s.CancelWrite(5)
		settle()
		r.CancelRead(9)
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("Read: %d, %v", n, err)
		w.say("cause: %v", context.Cause(s.Context()))
	}},
	row{"partial delivery, CancelRead first", func(w *world) {
		s, r := w.streams(withPartial())
		pieces(s, "reliable")
		s.SetReliableBoundary()
		r.CancelRead(9)
		settle()
		w.say("cause: %v", context.Cause(s.Context()))
		s.CancelWrite(5)
		settle()
		n, err := r.Read(make([]byte, 10))
		w.say("Read: %d, %v", n, err)
		n, err = s.Write([]byte("more"))
		w.say("Write: %d, %v", n, err)
	}},
	row{"partial delivery, the final size", func(w *world) {
		s, r := w.streams(withPartial())
		var size int64
		r.SetReceiveFinalSizeCallback(func(n int64) { size = n })
		pieces(s, "reliable")
		s.SetReliableBoundary()
		pieces(s, "not")
		s.CancelWrite(5)
		settle()
		w.say("%d", size)
	}},
	row{"partial delivery, offered by one side", func(w *world) {
		client, server := w.conns(withPartial(), nil)
		for _, c := range []*quic.Conn{client, server} {
			st := c.ConnectionState().SupportsStreamResetPartialDelivery
			w.say("local %v, remote %v", st.Local, st.Remote)
		}
		for i, from := range []*quic.Conn{client, server} {
			to := []*quic.Conn{server, client}[i]
			s, r := w.uni(from, to)
			pieces(s, "reliable")
			s.SetReliableBoundary()
			pieces(s, "not")
			s.CancelWrite(5)
			settle()
			b, err := io.ReadAll(r)
			w.say("%q, %v", b, err)
		}
	}},
	row{"partial delivery, bidirectional", func(w *world) {
		client, server := w.conns(withPartial(), withPartial())
		s, err := client.OpenStream()
		w.must(err)
		s.Write([]byte("reliable"))
		settle()
		s.SetReliableBoundary()
		s.CancelWrite(5)
		r, err := server.AcceptStream(w.Context())
		w.must(err)
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
		r.Write([]byte("answer"))
		r.Close()
		b, err = io.ReadAll(s)
		w.say("%q, %v", b, err)
	}},
	row{"partial delivery, streams come back", func(w *world) {
		conf := withPartial()
		conf.MaxIncomingUniStreams = 3
		client, server := w.conns(conf, conf)
		for range 20 {
			s, err := client.OpenUniStreamSync(w.Context())
			w.must(err)
			s.Write([]byte("reliable"))
			s.SetReliableBoundary()
			s.CancelWrite(5)
			r, err := server.AcceptUniStream(w.Context())
			w.must(err)
			b, err := io.ReadAll(r)
			if string(b) != "reliable" || !errors.Is(err, &quic.StreamError{StreamID: r.StreamID(), ErrorCode: 5, Remote: true}) {
				w.say("%q, %v", b, err)
			}
		}
	}},
)
