package quicgo

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/volley-quic/volley/emit"
)

// Stream is the sending side of a quic-go stream: *quic.SendStream and *quic.Stream.
type Stream interface {
	StreamID() quic.StreamID
	Write(p []byte) (int, error)
	WriteWithLimit(p []byte, limiter func(maxBytes int) int) (int, error)
	TryWriteAll(p []byte) error
	Close() error
	CancelWrite(code quic.StreamErrorCode)
	Context() context.Context
	SetWriteDeadline(t time.Time) error
	SetPriority(urgency int8, incremental bool)
	SetReliableBoundary()
}

var (
	_ Stream = (*quic.SendStream)(nil)
	_ Stream = (*quic.Stream)(nil)
)

// A SendStream is a quic-go stream that emits in volleys. It has the stream's methods;
// those that add bytes take turns with the new ones, and return [emit.ErrBusy] while
// SendFrom or ReadFrom runs. Its methods may be called from several goroutines.
type SendStream struct {
	Stream

	mu     sync.Mutex
	left   sync.Cond // whoever was inside has left
	inside who
	// closing: Close was called while somebody was inside, who closes when he leaves.
	closing bool

	deadline time.Time // as the application set it
	// cut: the stream's deadline is in the past instead, to end a Write whose context
	// has ended.
	cut bool

	armed bool          // Ready was called
	wake  chan struct{} // capacity 1: a parked source has something to look at

	tuning emit.Tuning
	stats  emit.Stats
}

// who is inside: one call at a time adds bytes.
type who uint8

const (
	nobody who = iota
	aCall
	aSource
)

// Wrap makes a stream emit in volleys. Reading, of a *quic.Stream, goes on on the stream
// itself. Wrap a stream once: two wrappers would not know of each other.
func Wrap(s Stream) *SendStream {
	w := &SendStream{Stream: s, wake: make(chan struct{}, 1)}
	w.left.L = &w.mu
	return w
}

// enter lets a call or a source in. A call waits for another one; a source does not.
func (s *SendStream) enter(w who) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closing:
			return quic.ErrStreamClosed
		case s.inside == nobody:
			s.inside = w
			return nil
		case s.inside == aSource || w == aSource:
			return emit.ErrBusy
		}
		s.left.Wait()
	}
}

// leave lets the next one in.
func (s *SendStream) leave() {
	s.mu.Lock()
	if s.closing {
		// Still inside: nobody gets between the last byte and the FIN.
		s.mu.Unlock()
		s.Stream.Close() // an error would say that the stream was reset, which Write tells, too
		s.mu.Lock()
		s.closing = false
	}
	s.inside = nobody
	s.left.Broadcast()
	s.mu.Unlock()
}

// Write is quic-go's Write.
func (s *SendStream) Write(p []byte) (int, error) {
	if err := s.enter(aCall); err != nil {
		return 0, err
	}
	defer s.leave()
	return s.Stream.Write(p)
}

// WriteWithLimit is quic-go's WriteWithLimit.
func (s *SendStream) WriteWithLimit(p []byte, limiter func(maxBytes int) int) (int, error) {
	if err := s.enter(aCall); err != nil {
		return 0, err
	}
	defer s.leave()
	return s.Stream.WriteWithLimit(p, limiter)
}

// TryWriteAll is quic-go's TryWriteAll. While another write is under way it returns
// quic.ErrWouldBlock.
func (s *SendStream) TryWriteAll(p []byte) error {
	s.mu.Lock()
	var err error
	switch {
	case s.closing:
		err = quic.ErrStreamClosed
	case s.inside == aSource:
		err = emit.ErrBusy
	case s.inside == aCall:
		err = quic.ErrWouldBlock
	default:
		s.inside = aCall
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.leave()
	return s.Stream.TryWriteAll(p)
}

// Close ends the stream. A write or a source under way is finished first; Close does not
// wait for it. Other than quic-go's it may be called at any time.
func (s *SendStream) Close() error {
	s.mu.Lock()
	if s.inside != nobody {
		s.closing = true
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return s.Stream.Close()
}

// SetWriteDeadline sets the time from which on writes and sources fail, also those under
// way. The zero time means never. Set it here and not on the quic-go stream: SendFrom
// moves the stream's own deadline when its context ends, and puts back what was set here.
func (s *SendStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	signal(s.wake)
	if s.cut {
		return nil
	}
	return s.Stream.SetWriteDeadline(t)
}

// SetEmission sets how SendFrom emits: the mode, and how many datagrams' worth of bytes
// the source is asked for at a time. It may be called at any time, and counts from the
// next call of the source on.
func (s *SendStream) SetEmission(t emit.Tuning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tuning = t
}

// EmissionStats returns the stream's emission counters. Datagrams are reckoned from the
// bytes, and Reread is always 0.
func (s *SendStream) EmissionStats() emit.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Ready tells SendFrom or ReadFrom that a source which answered [emit.ErrNotReady] has
// bytes again. It may be called from any goroutine at any time, also before that answer
// has arrived: it is never lost.
func (s *SendStream) Ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
	signal(s.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
