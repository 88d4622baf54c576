package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/scheduler"
)

const (
	requestSize = 1 << 10 // P7, P8
	lineSize    = 64      // W3, and a piece of W4
	pieces      = 10      // W4: writes of one response

	// settle passes before what is measured by time is measured.
	settle = 300 * time.Millisecond
)

// What an echo server does with a stream is said by the request's first byte.
const (
	askEcho   = 'e' // one request, ended by FIN: the same comes back
	askLines  = 'l' // lines of lineSize bytes, each sent back, until the end
	askPieces = 'p' // one request: pieces come back, each written on its own
)

// echoServer serves until it is told to stop.
func echoServer(p *proc.Peer, t task) (any, error) {
	l, err := server(p, t, func(o *options) {
		if t.Lone {
			o.scheduler = lone
		}
	})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	c, err := l.accept(ctx)
	if err != nil {
		return nil, err
	}
	var m meter
	m.begin(t.Profile)
	go func() {
		for {
			s, err := c.accept(ctx)
			if err != nil {
				return
			}
			go serve(s, &t)
		}
	}()
	var stop bool
	if err := p.Hear(&stop, 0); err != nil {
		return nil, err
	}
	return m.end(), nil
}

var requests = sync.Pool{New: func() any { return new([2 * requestSize]byte) }}

// serve answers one stream. Errors show at the client.
func serve(s stream, t *task) {
	buf := requests.Get().(*[2 * requestSize]byte)
	defer requests.Put(buf)
	n, err := s.Read(buf[:])
	if n == 0 {
		return
	}
	switch buf[0] {
	case askEcho, askPieces:
		for err == nil && n < len(buf) {
			var k int
			k, err = s.Read(buf[n:])
			n += k
		}
		if err != io.EOF {
			return
		}
		if buf[0] == askEcho {
			s.Write(buf[:n])
		} else {
			writePiecewise(s, t)
		}
		s.Close()
	case askLines:
		for {
			if n < lineSize {
				if k, err := io.ReadFull(s, buf[n:lineSize]); err != nil || n+k != lineSize {
					return
				}
			}
			if _, err := s.Write(buf[:lineSize]); err != nil {
				return
			}
			n = 0
		}
	}
}

// writePiecewise writes a response in small pieces. With t.Lone, each waits until the
// one before it is in a packet.
func writePiecewise(s stream, t *task) {
	if x, ok := s.(interface{ SetWriteBuffer(low, high int) error }); ok && t.Lone {
		x.SetWriteBuffer(0, lineSize)
	}
	for i := range pieces {
		s.Write(content(0, int64(i*lineSize), lineSize))
	}
}

// lone is a scheduler that lets one stream into each flight: with a write buffer of one
// piece, every small write leaves in a datagram, and a system call, of its own.
// That is gathering switched off, by what the library has for others.
func lone() scheduler.Scheduler { return &loneScheduler{Scheduler: scheduler.New()} }

type loneScheduler struct {
	scheduler.Scheduler
	full bool
}

// Next implements scheduler.Scheduler.
func (s *loneScheduler) Next() (*scheduler.Entry, int) {
	if s.full {
		return nil, 0
	}
	return s.Scheduler.Next()
}

// Sent implements scheduler.Scheduler.
func (s *loneScheduler) Sent(e *scheduler.Entry, datagrams int, more bool) {
	s.full = s.full || datagrams > 0
	s.Scheduler.Sent(e, datagrams, more)
}

// FlightEnd implements scheduler.Scheduler.
func (s *loneScheduler) FlightEnd() {
	s.full = false
	s.Scheduler.FlightEnd()
}

// echoReport is what a client measured.
type echoReport struct {
	usage
	Requests int
	P50, P99 time.Duration
}

func (r echoReport) perSecond() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

func (r echoReport) say() string { return fmt.Sprintf("%.0f/s", r.perSecond()) }

// exchange is one request with its response.
type exchange func(buf []byte) error

// echoClient sends requests for t.Span, t.Concurrent of them at a time.
func echoClient(_ *proc.Peer, t task) (any, error) {
	c, err := connect(t, nil)
	if err != nil {
		return nil, err
	}
	var rep echoReport
	var m meter
	if err := exchangeFor(c, t, settle, nil); err != nil {
		return nil, err
	}
	took := make([][]time.Duration, t.Concurrent)
	for i := range took {
		took[i] = make([]time.Duration, 0, 1<<16)
	}
	m.begin(t.Profile)
	err = exchangeFor(c, t, t.Span, took)
	rep.usage = m.end()
	var all []time.Duration
	for _, ds := range took {
		all = append(all, ds...)
	}
	rep.Requests = len(all)
	rep.P50, rep.P99 = percentile(all, 0.50), percentile(all, 0.99)
	return rep, err
}

// exchangeFor runs exchanges for a while. took, if not nil, gets how long each took.
func exchangeFor(c conn, t task, span time.Duration, took [][]time.Duration) error {
	until := time.Now().Add(span)
	return together(t.Concurrent, func(i int) error {
		do, done, err := exchangeOf(c, t)
		if err != nil {
			return err
		}
		defer done()
		buf := make([]byte, 2*requestSize)
		for {
			start := time.Now()
			if start.After(until) {
				return nil
			}
			if err := do(buf); err != nil {
				return err
			}
			if took != nil {
				took[i] = append(took[i], time.Since(start))
			}
		}
	})
}

var errAnswer = errors.New("an answer is not what was asked for")

// request and line are what is asked.
var (
	request = append([]byte{askEcho}, ring[:requestSize-1]...)
	line    = append([]byte{askLines}, ring[:lineSize-1]...)
)

func exchangeOf(c conn, t task) (do exchange, done func(), err error) {
	ctx := context.Background()
	switch t.Ask {
	case "echo":
		return func(buf []byte) error { return ask(ctx, c, request, request, buf) }, func() {}, nil
	case "pieces":
		question := []byte{askPieces}
		answer := content(0, 0, pieces*lineSize)
		return func(buf []byte) error { return ask(ctx, c, question, answer, buf) }, func() {}, nil
	case "lines":
		s, err := c.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		return func(buf []byte) error {
			if _, err := s.Write(line); err != nil {
				return err
			}
			if _, err := io.ReadFull(s, buf[:lineSize]); err != nil {
				return err
			}
			if !bytes.Equal(buf[:lineSize], line) {
				return errAnswer
			}
			return nil
		}, func() { s.Close() }, nil
	}
	return nil, nil, fmt.Errorf("nobody asks for %q", t.Ask)
}

// ask sends a request on a stream of its own and reads the response to its end.
func ask(ctx context.Context, c conn, question, answer, buf []byte) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write(question); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	n := 0
	for err == nil && n < len(buf) {
		var k int
		k, err = s.Read(buf[n:])
		n += k
	}
	if err != io.EOF {
		return fmt.Errorf("after %d bytes of an answer: %w", n, err)
	}
	if !bytes.Equal(buf[:n], answer) {
		return errAnswer
	}
	return nil
}
