package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/volley-quic/volley/bench/internal/bare"
	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/emit"
)

// A bulk transfer goes from the client to the server, over one stream or several. On
// each stream:
//
//	client → server   8 bytes: the stream's number, which says what it carries
//	client → server   the warm-up, every byte of which is checked
//	server → client   1 byte, when all streams are as far; the clock starts
//	client → server   what is measured, and the end of the stream
//	server → client   1 byte, when all of it has been read; the clock stops

// sideReport is what one side of a bulk transfer found.
type sideReport struct {
	usage
	Traffic  traffic
	Cipher   string
	Emission emit.Stats
}

// gate holds back those who arrive until n have; the last to come runs f first.
type gate struct {
	mu   sync.Mutex
	left int
	f    func()
	open chan struct{}
}

func newGate(n int, f func()) *gate { return &gate{left: n, f: f, open: make(chan struct{})} }

func (g *gate) arrive() {
	g.mu.Lock()
	g.left--
	if g.left == 0 {
		g.f()
		close(g.open)
	}
	g.mu.Unlock()
	<-g.open
}

// together runs f for 0 to n-1 at once and returns the first error as soon as there
// is one.
func together(n int, f func(i int) error) error {
	errc := make(chan error, n)
	for i := range n {
		go func() { errc <- f(i) }()
	}
	for range n {
		if err := <-errc; err != nil {
			return err
		}
	}
	return nil
}

// receive is the server's side.
func receive(p *proc.Peer, t task) (any, error) {
	l, err := server(p, t, nil)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	c, err := l.accept(ctx)
	if err != nil {
		return nil, err
	}
	var m meter
	var before traffic
	var rep sideReport
	begin := newGate(t.Streams, func() {
		before = c.traffic()
		m.begin(t.Profile)
	})
	end := newGate(t.Streams, func() {
		rep.usage = m.end()
		rep.Traffic = c.traffic().since(before)
	})
	err = together(t.Streams, func(int) error {
		s, err := c.accept(ctx)
		if err != nil {
			return err
		}
		return receiveStream(s, t, begin, end)
	})
	rep.Cipher = tls.CipherSuiteName(c.tls().CipherSuite)
	return rep, err
}

func receiveStream(s stream, t task, begin, end *gate) error {
	buf := make([]byte, writeSize)
	if _, err := io.ReadFull(s, buf[:8]); err != nil {
		return err
	}
	number := int(binary.BigEndian.Uint64(buf))
	for off := int64(0); off < t.Warm; {
		n, err := s.Read(buf[:min(int64(len(buf)), t.Warm-off)])
		if !contentIs(buf[:n], number, off) {
			return fmt.Errorf("stream %d: wrong bytes at offset %d of the warm-up", number, off)
		}
		if off += int64(n); err != nil {
			return err
		}
	}
	seen := newSampler(number, t.Size)
	begin.arrive()
	if _, err := s.Write(buf[:1]); err != nil {
		return err
	}
	for off := int64(0); off < t.Size; {
		n, err := s.Read(buf[:min(int64(len(buf)), t.Size-off)])
		seen.note(buf[:n], off)
		if off += int64(n); err != nil && off < t.Size {
			return fmt.Errorf("stream %d, after %d of %d bytes: %w", number, off, t.Size, err)
		}
	}
	if _, err := s.Write(buf[:1]); err != nil {
		return err
	}
	end.arrive()
	if n, err := s.Read(buf); n != 0 || err != io.EOF {
		return fmt.Errorf("stream %d: no end where it should be: %d bytes, %v", number, n, err)
	}
	s.Close()
	return seen.check()
}

// send is the client's side.
func send(p *proc.Peer, t task) (any, error) {
	c, err := connect(t, nil)
	if err != nil {
		return nil, err
	}
	var m meter
	var before traffic
	var rep sideReport
	begin := newGate(t.Streams, func() {
		before = c.traffic()
		m.begin(t.Profile)
	})
	end := newGate(t.Streams, func() {
		rep.usage = m.end()
		rep.Traffic = c.traffic().since(before)
	})
	err = together(t.Streams, func(i int) error { return sendStream(c, i, t, begin, end, &rep.Emission) })
	rep.Cipher = tls.CipherSuiteName(c.tls().CipherSuite)
	return rep, err
}

func sendStream(c conn, number int, t task, begin, end *gate, stats *emit.Stats) error {
	s, err := c.open(context.Background())
	if err != nil {
		return err
	}
	var answer [8]byte
	binary.BigEndian.PutUint64(answer[:], uint64(number))
	if _, err := s.Write(answer[:]); err != nil {
		return err
	}
	if err := write(s, number, t.Warm); err != nil {
		return err
	}
	if t.Emission != nil {
		if number != 0 {
			return errors.New("an emission has one stream")
		}
		return emitStream(s, t, begin, end, stats)
	}
	if _, err := io.ReadFull(s, answer[:1]); err != nil {
		return err
	}
	begin.arrive()
	if err := write(s, number, t.Size); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if _, err := io.ReadFull(s, answer[:1]); err != nil {
		return err
	}
	end.arrive()
	return nil
}

// write sends size bytes of a stream's content.
func write(s stream, number int, size int64) error {
	for off := int64(0); off < size; {
		n, err := s.Write(content(number, off, int(min(writeSize, size-off))))
		if off += int64(n); err != nil {
			return fmt.Errorf("stream %d, after %d of %d bytes: %w", number, off, size, err)
		}
	}
	return nil
}

// emitStream sends the measured part from a source.
func emitStream(s stream, t task, begin, end *gate, stats *emit.Stats) error {
	var file *os.File
	if t.Emission.Source == "file" {
		var err error
		if file, err = os.Open(t.Emission.File); err != nil {
			return err
		}
		defer file.Close()
	}
	src, err := source(*t.Emission, file)
	if err != nil {
		return err
	}
	e, ok := s.(emitter)
	if !ok {
		return errors.New("this stack has no emission")
	}
	mode, err := emit.ParseMode(t.Emission.Mode)
	if err != nil {
		return err
	}
	e.SetEmission(emit.Tuning{Mode: mode, MaxDatagrams: t.Emission.Datagrams, Reread: t.Emission.Reread})
	var answer [1]byte
	if _, err := io.ReadFull(s, answer[:]); err != nil {
		return err
	}
	begin.arrive()
	// A long transfer sends the file again and again, and other sources likewise.
	for off := int64(0); off < t.Size; off += fileSize {
		n := min(fileSize, t.Size-off)
		var opts []emit.Option
		if off+n == t.Size {
			opts = append(opts, emit.End())
		}
		if t.Emission.Stays {
			opts = append(opts, emit.Unchanging())
		}
		if _, err := e.SendFrom(context.Background(), src, 0, n, opts...); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(s, answer[:]); err != nil {
		return err
	}
	end.arrive()
	*stats = e.EmissionStats()
	return nil
}

// emitter is what a stream of Volley has.
type emitter interface {
	SetEmission(emit.Tuning)
	SendFrom(ctx context.Context, src io.ReaderAt, off, n int64, opts ...emit.Option) (int64, error)
	EmissionStats() emit.Stats
}

func bareReceive(p *proc.Peer, t task) (any, error) {
	r, err := bare.Listen(t.Bare)
	if err != nil {
		return nil, err
	}
	if err := p.Say(r.Addr()); err != nil {
		return nil, err
	}
	var m meter
	var rep sideReport
	got, err := r.Receive(t.Warm, t.Size, func() { m.begin(t.Profile) }, func() { rep.usage = m.end() })
	if err == nil && got.Failed > 0 {
		err = fmt.Errorf("%d datagrams arrived damaged", got.Failed)
	}
	rep.Traffic = traffic{Received: uint64(got.Packets)}
	return rep, err
}

func bareSend(p *proc.Peer, t task) (any, error) {
	var m meter
	var rep sideReport
	c := t.Bare
	if t.Emission != nil {
		src, closeSource, err := bareSource(*t.Emission)
		if err != nil {
			return nil, err
		}
		defer closeSource()
		c.Source = src
	}
	sent, err := bare.Send(t.Addr, c, t.Warm, t.Size, func() { m.begin(t.Profile) }, func() { rep.usage = m.end() })
	rep.Traffic = traffic{Sent: uint64(sent.Packets), Flights: uint64(sent.Calls), FlightFilled: uint64(sent.Packets)}
	return rep, err
}

// measureParts times the parts of the bare loop's sender.
func measureParts(_ *proc.Peer, t task) (any, error) {
	size, datagrams := t.Bare.Size, t.Bare.Datagrams
	if size == 0 {
		size, datagrams = datagramSize, 40
	}
	return bare.MeasureParts(size, datagrams), nil
}
