package quic

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

func init() {
	stream.SetErrors(stream.Errors{
		Closed:     ErrStreamClosed,
		WouldBlock: ErrWouldBlock,
		Reset: func(id int64, code uint64, remote bool) error {
			return &StreamError{StreamID: StreamID(id), ErrorCode: StreamErrorCode(code), Remote: remote}
		},
	})
}

// A SendStream is the sending side of a stream. Its methods may be called from several
// goroutines; writes are taken one after the other.
type SendStream struct {
	conn *Conn
	send stream.Send
	st   sender.Stream
	// wrote: the first write went through the connection's goroutine, so that a
	// Close right behind it usually leaves in the same frame.
	wrote bool
}

// StreamID returns the stream's ID.
func (s *SendStream) StreamID() StreamID { return StreamID(s.send.ID()) }

// Write queues p and returns when all of it is taken. It waits while the stream holds
// more unsent bytes than its high watermark ([SendStream.SetWriteBuffer]), which does
// not include bytes in flight. n counts the bytes that may reach the peer: those from n
// on never do, so that after a deadline p[n:] can be written again.
//
// On a quiet connection the bytes leave before Write returns. While something is in
// flight small writes gather until the connection sends next, which is no later than
// as soon as its goroutine runs.
//
// Other than quic-go's, which returns when at most one packet of p is unsent, Write
// returns when the unsent rest fits the write buffer; SetWriteBuffer(0, 0) gives
// quic-go's rule. While SendFrom or ReadFrom runs the error is [emit.ErrBusy].
func (s *SendStream) Write(p []byte) (int, error) { return s.send.Write(p) }

// WriteBuffers queues the contents of b without joining them first, and takes from b
// what was queued, as net.Buffers.WriteTo does. Otherwise it is [SendStream.Write].
func (s *SendStream) WriteBuffers(b *net.Buffers) (int64, error) { return s.send.WriteBuffers(b) }

// WriteOwned queues p without copying it: p must not change until release is called,
// once, when the last byte is acknowledged or the stream or connection is over. release
// runs in a goroutine of the connection and must not block. If the error is not nil
// the bytes from n on were not taken, and release is called when the first n are done
// with. Otherwise it is [SendStream.Write].
func (s *SendStream) WriteOwned(p []byte, release func()) (int, error) {
	return s.send.WriteOwned(p, release)
}

// TryWriteAll queues all of p if the peer's flow control credit, for the stream and the
// connection, admits it at once, and otherwise nothing: then the error is [ErrWouldBlock].
// It never waits. A high watermark counts as well if [SendStream.SetWriteBuffer] has set
// it: then [SendStream.Writable] tells when to try again.
func (s *SendStream) TryWriteAll(p []byte) error {
	if err := s.send.TryWriteAll(nil); err != nil || len(p) == 0 {
		return err // nothing may be written at all
	}
	s.conn.mu.Lock()
	left := s.conn.snd.CreditLeft()
	s.conn.mu.Unlock()
	if int64(len(p)) > left {
		return ErrWouldBlock
	}
	return s.send.TryWriteAll(p)
}

// WriteWithLimit is Write under a limit of the application's own: limiter is asked, in
// this goroutine and without any lock, how many of the next max bytes may be sent, once for
// a pass of up to ten packets and after QUIC's flow control. What it grants (it is clamped
// to 0..max) is used up, also if it is lost and sent again. If it grants less, the accepted
// count and [ErrWriteLimitReached] are returned, and p[n:] can be written when there is more.
//
// Other than with quic-go, limiter may call methods of the stream and the connection. A nil
// limiter makes it Write.
func (s *SendStream) WriteWithLimit(p []byte, limiter func(max int) int) (int, error) {
	if limiter == nil || len(p) == 0 {
		return s.Write(p)
	}
	n, err := s.st.ReadFrom(context.Background(), &limited{p, limiter})
	return int(n), err
}

// limited is what WriteWithLimit sends from.
type limited struct {
	p       []byte
	limiter func(int) int
}

func (l *limited) Read(dst []byte) (int, error) {
	most := min(len(dst), len(l.p))
	n := min(max(l.limiter(most), 0), most)
	copy(dst, l.p[:n])
	l.p = l.p[n:]
	switch {
	case n < most:
		return n, ErrWriteLimitReached
	case len(l.p) == 0:
		return n, io.EOF
	}
	return n, nil
}

// Close ends the stream after what was written. It does not wait for delivery. Closing
// twice is harmless; after CancelWrite the error says so.
func (s *SendStream) Close() error { return s.send.Close() }

// CloseWith writes p and closes the stream: last bytes and FIN leave together.
func (s *SendStream) CloseWith(p []byte) (int, error) { return s.send.CloseWith(p) }

// CancelWrite ends the stream abruptly (RESET_STREAM): what is not delivered may never
// be, but for what [SendStream.SetReliableBoundary] has marked. Blocked and later writes fail with a [StreamError]. After the stream is over it
// does nothing.
func (s *SendStream) CancelWrite(code StreamErrorCode) { s.send.Cancel(uint64(code)) }

// Context ends when the sending side is closed, cancelled here or by the peer, or the
// connection is over. Its cause says which: [ErrStreamClosed], a [StreamError], or the
// connection's error.
func (s *SendStream) Context() context.Context { return s.send.Context() }

// SetWriteDeadline makes writes, also those under way, fail with
// os.ErrDeadlineExceeded from t on. The zero time means never.
func (s *SendStream) SetWriteDeadline(t time.Time) error {
	s.send.SetDeadline(t)
	return nil
}

// SetPriority sets the stream's place among the others: urgency 0 (first) to 7, and
// whether it shares its turn with those of the same urgency (RFC 9218). The default is
// 3, incremental, as in quic-go.
func (s *SendStream) SetPriority(urgency int8, incremental bool) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.streams.sendByID(s.send.ID()) == s {
		s.conn.snd.SetPriority(&s.st, urgency, incremental)
		if q := s.conn.qlog; q != nil {
			q.priority(s.StreamID(), urgency, incremental)
		}
	}
}

// SetReliableBoundary marks what was written so far, sent or not, as to be delivered even
// if [SendStream.CancelWrite] follows: it then ends the stream behind those bytes
// (RESET_STREAM_AT, draft-ietf-quic-reliable-stream-reset), and the peer reads them before
// the [StreamError]. Called again it marks more. If the peer asks to stop, by its
// CancelRead, nothing is delivered any more.
//
// It has an effect if the peer offers the extension
// ([Config.EnableStreamResetPartialDelivery]), which ConnectionState tells, and the stream
// was not cancelled before.
//
// Of [SendStream.SendFrom] and [SendStream.ReadFrom] the bytes are marked that they have
// taken by then. After CancelWrite a source is not asked any more, so with
// [emit.Tuning.Reread], and the modes that imply it, the bytes arrive up to the first one
// that is lost on the way.
func (s *SendStream) SetReliableBoundary() { s.send.SetReliableBoundary() }

// SetWriteBuffer sets the watermarks of the write buffer in bytes of unsent data: a
// writer waits above high, and goes on when low is reached. The default is in package
// stream. (0, 0) makes Write behave as quic-go's. Limits may change at any time.
func (s *SendStream) SetWriteBuffer(low, high int) error { return s.send.SetWriteBuffer(low, high) }

// Writable returns a channel that is closed when a write need not wait, or the stream is
// over: now, or when the unsent bytes, which have reached the high watermark, have fallen to
// the low one. For the next time it has to be called again.
func (s *SendStream) Writable() <-chan struct{} { return s.send.Writable() }

// Cork holds small writes back so that they leave together: until Uncork, Close, the
// high watermark, or 200 ms. It does not nest.
func (s *SendStream) Cork() { s.send.Cork() }

// Uncork ends Cork.
func (s *SendStream) Uncork() { s.send.Uncork() }

// SetEmission sets how SendFrom emits the stream's bytes: the mode, how many datagrams a
// pass has, and whether bytes are retained. It may be called at any time, and counts
// from the next pass on; Reread counts from the next SendFrom on.
func (s *SendStream) SetEmission(t emit.Tuning) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.st.SetTuning(t)
}

// EmissionStats returns the stream's emission counters.
func (s *SendStream) EmissionStats() emit.Stats {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.st.Stats()
}

// SendFrom sends n bytes of src, from its offset off on; all up to EOF if n < 0. It asks
// src for what the next packets carry, up to ten at a time, by one ReadAt per pass, into
// memory that is src's only during the call. Package emit says how src may answer, and
// what modes there are.
//
// It returns the number of bytes taken from src when all are taken; with
// [emit.Tuning.Reread], and the modes that imply it, when they are acknowledged. src is
// not touched after. FIN follows only with [emit.End]. An error of src is returned as it
// is: the bytes before go out, and the stream can be used on. src ending before n bytes
// is io.ErrUnexpectedEOF. If ctx ends, its cause is returned; what was sent by then stays
// sent, but with Reread nobody can send it again: if it is lost the stream is reset.
//
// src is called in this goroutine (but with [emit.Detach] in one of its own), and holds
// up only its own stream: everything else of the connection goes on. It may call any
// method of the stream and the connection; those that would add bytes to this stream
// return [emit.ErrBusy] until SendFrom returns. If src panics the stream is reset.
func (s *SendStream) SendFrom(ctx context.Context, src io.ReaderAt, off, n int64, opts ...emit.Option) (int64, error) {
	return s.st.SendFrom(ctx, src, off, n, emit.Apply(opts...))
}

// ReadFrom sends what r reads up to EOF, and so makes io.Copy emit in passes. It calls
// nothing but r.Read, each time with room for a pass. An error of r is returned with the
// number of bytes sent before.
func (s *SendStream) ReadFrom(r io.Reader) (int64, error) {
	return s.st.ReadFrom(context.Background(), r)
}

// Ready tells SendFrom or ReadFrom that a source which answered [emit.ErrNotReady] has
// bytes again. It may be called from any goroutine at any time, also before that answer
// has arrived: it is never lost.
func (s *SendStream) Ready() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.st.Ready()
}

// pushUnlock sends what a writer has added, in its goroutine when that is best. The mutex
// is held, and not any more when it returns.
func (c *Conn) pushUnlock(snd *stream.Send) {
	s := c.streams.sendByID(snd.ID())
	if s == nil || c.phase != phaseOpen || !c.confirmed {
		c.mu.Unlock()
		c.wakeUp()
		return
	}
	wake := true
	if s.wrote {
		wake = c.snd.PushUnlock(&s.st)
	} else {
		// The first write of a stream often has a Close right behind it: through the
		// connection's goroutine, both usually leave in one frame.
		s.wrote = true
		c.mu.Unlock()
	}
	if wake {
		c.written.Store(true)
		if r := c.reads.Load(); r == nil || !r.leaveTo(c) {
			c.wakeUp()
		}
	}
}
