// Package nullsink drives the parts of Volley's sending side without a peer: what would
// leave is taken and acknowledged at once, so that what is left to measure is the
// work before.
package nullsink

import (
	"context"
	"sync"
	"time"

	"github.com/volley-quic/volley/stream"
)

// payload is about what a datagram of 1452 bytes carries of a stream.
const payload = 1410

// A Stream is the sending half of a stream alone, without packets. It is meant for one
// goroutine.
type Stream struct {
	*stream.Send
	Lazy bool // nothing is taken until Drain

	mu     sync.Mutex
	unsent int
	packet [64 << 10]byte
	after  []func()
}

// NewStream returns a stream whose bytes are copied out as into packets, and
// acknowledged, as soon as they are written.
func NewStream() *Stream {
	s := new(Stream)
	s.Send = stream.NewSend(0, (*host)(s), 1<<60)
	return s
}

// Drain takes what the stream holds, in ranges of at most n bytes.
func (s *Stream) Drain(n int) {
	s.mu.Lock()
	w := 0
	for {
		off, k, fin, _, ok := s.Send.Next(n)
		if !ok {
			break
		}
		for i := 0; i < k; i += payload {
			m := min(payload, k-i)
			if w+m > len(s.packet) {
				w = 0
			}
			s.Send.Copy(s.packet[w:w+m:w+m], off+int64(i))
			w += m
		}
		s.Send.Packed(off, k, fin)
		s.Send.OnAcked(off, k, fin)
	}
	after := s.after
	s.after = nil
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// Host is what the stream takes for its connection.
func (s *Stream) Host() stream.Host { return (*host)(s) }

// host is the connection that a Stream sees.
type host Stream

func (h *host) Lock()                    { h.mu.Lock() }
func (h *host) Unlock()                  { h.mu.Unlock() }
func (h *host) SendReady(*stream.Send)   {}
func (h *host) DataSent(*stream.Send)    {}
func (h *host) SendDone(*stream.Send)    {}
func (h *host) BufferRoom() int          { return 1 << 40 }
func (h *host) Buffered(n int)           { h.unsent += n }
func (h *host) RecvUpdate(*stream.Recv)  {}
func (h *host) RecvConsumed(int64)       {}
func (h *host) RecvDone(*stream.Recv)    {}
func (h *host) After(f func())           { h.after = append(h.after, f) }
func (h *host) RTT() time.Duration       { return 0 }
func (h *host) Context() context.Context { return context.Background() }

// Await implements stream.Host.
func (h *host) Await(w *stream.Wake, ctx context.Context) { w.Wait(ctx) }

// Stay implements stream.Host.
func (h *host) Stay() bool { return false }

// Unstay implements stream.Host.
func (h *host) Unstay() {}

// Rouse implements stream.Host.
func (h *host) Rouse(w *stream.Wake) { w.Signal() }

// PushUnlock implements stream.Host: the sender would run now.
func (h *host) PushUnlock(*stream.Send) {
	h.mu.Unlock()
	if !h.Lazy {
		(*Stream)(h).Drain(1 << 20)
	}
}
