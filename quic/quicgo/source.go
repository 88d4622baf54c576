package quicgo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/volley-quic/volley/emit"
)

// ErrOnAcked is returned by SendFrom with [emit.OnAcked]: quic-go does not tell what the
// peer has acknowledged. It wraps [errors.ErrUnsupported].
var ErrOnAcked error = fmt.Errorf("quicgo: emit.OnAcked: quic-go does not tell of acknowledgements: %w", errors.ErrUnsupported)

// errSourceGone is what OnRelease hears of a source that did not return.
var errSourceGone = errors.New("quicgo: the source panicked or ended its goroutine")

// payload is what a datagram of quic-go's carries of a stream: of 1452 bytes, the packet
// header and the AEAD's tag take some 20, and the header of a STREAM frame 8.
const payload = 1424

// scratch is where a source writes. It belongs to one SendFrom at a time.
type scratch [emit.MaxDatagrams * payload]byte

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// SendFrom sends n bytes of src, from its offset off on; all up to EOF if n < 0. It asks
// src for ten datagrams' worth of bytes at a time, by one ReadAt, into memory that is
// src's only during the call, and hands them to quic-go's Write. Package emit says how
// src may answer.
//
// It returns the number of bytes that quic-go has taken, when all are taken. src is not
// touched after. The stream is closed only with [emit.End]. An error of src is returned
// as it is: the bytes before go out, and the stream can be used on. src ending before n
// bytes is io.ErrUnexpectedEOF. If ctx ends, its cause is returned.
//
// src is called in this goroutine (but with [emit.Detach] in one of its own). It may
// call any method of the stream; those that would add bytes return [emit.ErrBusy] until
// SendFrom returns. If src panics, the stream is reset with code 0.
func (s *SendStream) SendFrom(ctx context.Context, src io.ReaderAt, off, n int64, opts ...emit.Option) (int64, error) {
	a := &asker{s: s, opts: emit.Apply(opts...), src: src, pos: off, end: math.MaxInt64}
	a.lender, _ = src.(emit.Lender)
	if n >= 0 {
		a.end = off + n
	}
	switch {
	case src == nil:
		return a.refuse(errors.New("quicgo: SendFrom with a nil source"))
	case off < 0:
		return a.refuse(fmt.Errorf("quicgo: SendFrom at negative offset %d", off))
	case n > math.MaxInt64-off:
		return a.refuse(fmt.Errorf("quicgo: SendFrom of %d bytes at offset %d overflows", n, off))
	case a.opts.OnAcked != nil:
		return a.refuse(ErrOnAcked)
	}
	return a.start(ctx)
}

// ReadFrom sends what r reads up to EOF, and so makes io.Copy emit in volleys. It calls
// nothing but r.Read, each time with room for a volley. An error of r is returned with
// the number of bytes sent before.
func (s *SendStream) ReadFrom(r io.Reader) (int64, error) {
	a := &asker{s: s, reader: r, end: math.MaxInt64}
	if r == nil {
		return a.refuse(errors.New("quicgo: ReadFrom with a nil reader"))
	}
	return a.start(context.Background())
}

// An asker is one SendFrom or ReadFrom under way. Only its goroutine uses it.
type asker struct {
	s      *SendStream
	opts   emit.Options
	reader io.Reader   // ReadFrom
	src    io.ReaderAt // SendFrom
	lender emit.Lender // src, if it is one

	pos, end int64 // offsets in the source; end is math.MaxInt64 up to EOF
	zeroes   int   // answers of (0, nil) in a row
	chosen   bool  // tuning and lend are valid
	tuning   emit.Tuning
	lend     bool
}

// refuse ends a call that never begins.
func (a *asker) refuse(err error) (int64, error) {
	a.released(err)
	return 0, err
}

func (a *asker) released(err error) {
	if f := a.opts.OnRelease; f != nil {
		f(err)
	}
}

func (a *asker) start(ctx context.Context) (int64, error) {
	if ctx.Err() != nil {
		return a.refuse(context.Cause(ctx))
	}
	if err := a.s.enter(aSource); err != nil {
		return a.refuse(err)
	}
	if a.opts.Detach {
		go a.run(ctx)
		return 0, nil
	}
	return a.run(ctx)
}

// run sends. However it ends, also by a panic of the source or runtime.Goexit, the
// stream can be entered again after it, and OnRelease is called.
func (a *asker) run(ctx context.Context) (n int64, err error) {
	s := a.s
	restore := s.cutAfter(ctx)
	finished := false
	err = errSourceGone
	defer func() {
		if !finished {
			if a.opts.Detach {
				// There is no caller to panic in: OnRelease hears of it.
				if v := recover(); v != nil {
					err = fmt.Errorf("quicgo: source panicked: %v", v)
				}
			}
			s.CancelWrite(0)
		}
		restore()
		s.leave()
		a.released(err)
	}()
	begin := a.pos
	e := a.volleys(ctx)
	n, err, finished = a.pos-begin, e, true
	return n, err
}

// cutAfter ends a Write that is under way when ctx ends. quic-go's Write knows no
// context, but a deadline. The function that it returns puts the application's deadline
// back.
func (s *SendStream) cutAfter(ctx context.Context) (restore func()) {
	over := false
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !over {
			s.cut = true
			s.Stream.SetWriteDeadline(time.Now())
		}
	})
	return func() {
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		over = true
		if s.cut {
			s.cut = false
			s.Stream.SetWriteDeadline(s.deadline)
		}
	}
}

// volleys asks and writes until the source is at its end.
func (a *asker) volleys(ctx context.Context) error {
	s := a.s
	buf := scratches.Get().(*scratch)
	for done := a.pos == a.end; !done; {
		if err := s.broken(ctx); err != nil {
			scratches.Put(buf)
			return err
		}
		p, parked, end, err := a.ask(buf[:])
		if len(p) > 0 {
			m, werr := s.Stream.Write(p)
			a.pos += int64(m)
			s.count(m)
			if werr != nil {
				scratches.Put(buf)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return werr
			}
		}
		done = end || a.pos == a.end
		if parked && !done {
			err = s.park(ctx)
		}
		if err != nil {
			scratches.Put(buf)
			return err
		}
	}
	// After a panic the buffer is left to the garbage collector: who knows what still
	// writes to it.
	scratches.Put(buf)
	if a.opts.End {
		return s.Stream.Close()
	}
	return nil
}

// broken says why nothing can be sent any more.
func (s *SendStream) broken(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err := s.Stream.Write(nil) // no bytes: only what stands against it
	return err
}

// ask calls the source once. The bytes that it returns are to be sent whatever else it
// says: parked, the source has no more for now; end, it has no more at all; or err.
func (a *asker) ask(buf []byte) (p []byte, parked, end bool, err error) {
	want := a.choose()
	var n int
	switch {
	case a.reader != nil:
		p = buf[:want:want]
		n, err = a.reader.Read(p)
	case a.lend:
		p, err = a.lender.LendAt(a.pos, want)
		n = len(p)
	default:
		p = buf[:want:want]
		n, err = a.src.ReadAt(p, a.pos)
	}

	s := a.s
	s.mu.Lock()
	s.stats.Calls++
	s.stats.Passes++
	s.stats.Asked += uint64(want)
	if errors.Is(err, emit.ErrNotReady) {
		s.stats.NotReady++
	}
	s.mu.Unlock()

	if n < 0 || n > want {
		return nil, false, false, fmt.Errorf("quicgo: the source returned a count of %d from a call for %d bytes", n, want)
	}
	p = p[:n]
	if n > 0 {
		a.zeroes = 0
	}
	switch {
	case err == nil && n == 0:
		if a.zeroes++; a.zeroes > 1 {
			return p, false, false, io.ErrNoProgress
		}
		return p, false, false, nil
	case err == nil:
		return p, false, false, nil
	case errors.Is(err, emit.ErrNotReady):
		return p, true, false, nil
	case err == io.EOF && a.end == math.MaxInt64:
		return p, false, true, nil
	case err == io.EOF && n == want:
		return p, false, false, nil // if more was promised, the next call says that there is none
	case err == io.EOF:
		return p, false, false, io.ErrUnexpectedEOF
	}
	return p, false, false, err
}

// choose takes in the tuning as it is now, and returns how many bytes to ask for.
func (a *asker) choose() int {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tuning; !a.chosen || t != a.tuning {
		a.chosen, a.tuning = true, t
		e, fallback := t.For(a.src)
		switch {
		case fallback != "":
		case e.Mode == emit.Single || e.Mode == emit.Vector:
			fallback = e.Mode.String() + ": quic-go lets nobody write into its packets"
		case t.Reread:
			fallback = "reread: quic-go keeps its own copy of what it sends"
		}
		a.lend = e.Mode == emit.Lend
		if fallback != "" {
			s.stats.Fallbacks++
			s.stats.FallbackReason = fallback
		}
	}
	s.stats.Mode = emit.Scatter
	if a.lend {
		s.stats.Mode = emit.Lend
	}
	return int(min(int64(a.tuning.Effective().MaxDatagrams*payload), a.end-a.pos))
}

// count notes n bytes that quic-go has taken.
func (s *SendStream) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Bytes += uint64(n)
	s.stats.Datagrams += uint64((n + payload - 1) / payload)
}

// park waits for Ready, or for something that ends the source.
func (s *SendStream) park(ctx context.Context) error {
	for {
		s.mu.Lock()
		armed, deadline := s.armed, s.deadline
		s.armed = false
		s.mu.Unlock()
		if armed {
			return nil
		}
		if err := s.broken(ctx); err != nil {
			return err
		}
		s.waitForNews(ctx, deadline)
	}
}

// waitForNews returns when park should look again.
func (s *SendStream) waitForNews(ctx context.Context, deadline time.Time) {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-s.wake:
	case <-expired:
	case <-ctx.Done():
	case <-s.Stream.Context().Done():
	}
}
