package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// session is one transfer as either side sees it: a connection, its control
// stream, and one cause for its end, whoever finds it first.
type session struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	conn   conn
	ctrl   *control

	messages  chan message  // from the other side
	ctrlEnded chan struct{} // nothing more comes
	hungUp    chan struct{} // the connection is closed
}

const (
	// answerTimeout is for what the other side does at once.
	answerTimeout = 10 * time.Second
	// lingerTime is how long a side waits for the other to hang up.
	lingerTime = time.Second
)

var errFinished = errors.New("finished")

// newSession takes over c and its control stream.
func newSession(ctx context.Context, c conn, ctrl stream) *session {
	s := &session{
		conn:      c,
		ctrl:      newControl(ctrl),
		messages:  make(chan message, 1),
		ctrlEnded: make(chan struct{}),
		hungUp:    make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(s.ctx, s.hangUp)
	return s
}

// greet sends the greeting and the first messages, reads the other side's
// greeting, and listens to what it says from then on.
func (s *session) greet(first ...message) error {
	err := s.within(answerTimeout, func() error {
		if err := s.ctrl.writeGreeting(); err != nil {
			return err
		}
		for _, m := range first {
			if err := s.ctrl.send(m); err != nil {
				return err
			}
		}
		return s.ctrl.readGreeting()
	})
	go s.listen()
	return err
}

// within ends the session if f takes longer than d.
func (s *session) within(d time.Duration, f func() error) error {
	t := time.AfterFunc(d, func() { s.cancel(errNoAnswer) })
	defer t.Stop()
	return f()
}

// listen reads the control stream to its end, which ends the session: nobody
// hangs up before everything is said.
func (s *session) listen() {
	defer close(s.ctrlEnded)
	for {
		m, err := s.ctrl.receive()
		if err != nil {
			s.cancel(err)
			return
		}
		select {
		case s.messages <- m:
		case <-s.ctx.Done():
			// Nobody wants it; what counts now is when the other side hangs up.
		}
	}
}

// next returns the other side's next message.
func (s *session) next() (message, error) {
	select {
	case m := <-s.messages:
		return m, nil
	case <-s.ctx.Done():
		return message{}, context.Cause(s.ctx)
	}
}

// hangUp closes the connection when the session has ended, which makes every
// blocked call on it return. It first tells the other side why, unless that is
// where the reason came from.
func (s *session) hangUp() {
	defer close(s.hungUp)
	cause := context.Cause(s.ctx)
	if cause == errFinished {
		s.conn.CloseWithError(0, "")
		return
	}
	text := describe(cause)
	if !fromPeer(cause) {
		go s.ctrl.send(message{Error: text})
		select {
		case <-s.ctrlEnded:
		case <-time.After(lingerTime):
		}
	}
	s.conn.CloseWithError(1, text)
}

// end ends the session, if nothing else has, and returns why it ended: nil if
// err is nil, else the first cause.
func (s *session) end(err error) error {
	if err == nil {
		s.cancel(errFinished)
	} else {
		s.cancel(err)
	}
	<-s.hungUp
	if err == nil {
		return nil
	}
	return context.Cause(s.ctx)
}

// each runs f for every stream at the same time. The first failure ends the
// session.
func (s *session) each(streams []stream, f func(i int, st stream) error) error {
	var wg sync.WaitGroup
	var failed atomic.Bool
	for i, st := range streams {
		wg.Go(func() {
			if err := f(i, st); err != nil {
				failed.Store(true)
				s.cancel(err)
			}
		})
	}
	wg.Wait()
	if failed.Load() {
		return context.Cause(s.ctx)
	}
	return nil
}

// A data stream's header is the number of its part.
const streamHeaderSize = 4

// openStreams opens the data streams of j (client).
func (s *session) openStreams(j *job) ([]stream, error) {
	streams := make([]stream, j.Streams)
	for i := range streams {
		st, err := s.conn.OpenStream(s.ctx)
		if err != nil {
			return nil, err
		}
		var header [streamHeaderSize]byte
		binary.BigEndian.PutUint32(header[:], uint32(i))
		if _, err := st.Write(header[:]); err != nil {
			return nil, err
		}
		streams[i] = st
	}
	return streams, nil
}

// acceptStreams accepts the data streams of j, in any order (server).
func (s *session) acceptStreams(j *job) ([]stream, error) {
	streams := make([]stream, j.Streams)
	for range streams {
		st, err := s.conn.AcceptStream(s.ctx)
		if err != nil {
			return nil, err
		}
		var header [streamHeaderSize]byte
		if _, err := io.ReadFull(st, header[:]); err != nil {
			return nil, err
		}
		i := binary.BigEndian.Uint32(header[:])
		if i >= uint32(len(streams)) || streams[i] != nil {
			return nil, fmt.Errorf("%w: stream header %d of %d", errNotQuicperf, i, len(streams))
		}
		streams[i] = st
	}
	return streams, nil
}

// send sends the content, one part a stream. It returns the streams that
// asked a source, if any.
func (s *session) send(streams []stream, c *content, j *job, p *progress) ([]emitter, error) {
	var emitters []emitter
	if j.Source != "write" {
		for _, st := range streams {
			if e, ok := st.(emitter); ok {
				emitters = append(emitters, e)
			}
		}
	}
	p.watch(emitters)

	err := s.each(streams, func(i int, st stream) error {
		part := j.part(i)
		if e, ok := st.(emitter); ok && j.Source != "write" {
			return e.Emit(s.ctx, c.source(j.Emission), part.off, part.n, emission{j.Emission, j.MaxDatagrams})
		}
		return writePart(st, c, part, &p.moved)
	})
	return emitters, err
}

// emitted is what es did, nil if there are none. It counts what has been put into
// packets, and is complete when the receiver has everything.
func emitted(es []emitter) *emissionStats {
	if len(es) == 0 {
		return nil
	}
	var sum emissionStats
	for _, e := range es {
		sum.add(e.EmissionStats())
	}
	return &sum
}

// writePart is how a stack without emission sends, and source write on any: by
// Write, writeSize bytes each.
func writePart(st stream, c *content, p part, moved *atomic.Int64) error {
	var buf []byte
	if c.file != nil {
		buf = make([]byte, min(p.n, writeSize))
	}
	for p.n > 0 {
		n := int(min(p.n, writeSize))
		var b []byte
		if c.file != nil {
			b = buf[:n]
			if _, err := readFullAt(c.file, b, p.off); err != nil {
				return err
			}
		} else {
			b, _ = c.memory.LendAt(p.off, n)
		}
		if _, err := st.Write(b); err != nil {
			return err
		}
		moved.Add(int64(n))
		p.off += int64(n)
		p.n -= int64(n)
	}
	return st.CloseWrite()
}

// receive takes the content, one part a stream.
func (s *session) receive(streams []stream, k *sink, j *job, p *progress) error {
	return s.each(streams, func(i int, st stream) error {
		return k.receive(st, j.part(i), &p.moved)
	})
}
