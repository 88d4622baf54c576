package stream

import (
	"context"
	"math"
	"time"
)

// Defaults of SetWriteBuffer, in bytes. The high mark is a little more than
// one flight, so that a flight can be filled whole; the low mark wakes the
// writer while that flight is still being packed, so that copying overlaps
// with sealing and sending.
const (
	DefaultHigh = 64 << 10
	DefaultLow  = 32 << 10
)

// reserve is how many unsent bytes a stream may have however many the
// connection has: streams that the peer does not read must not fill the
// connection's buffer for those that it reads.
const reserve = 4 << 10

// datagram is how many bytes may be unsent when Write returns in the mode of
// SetWriteBuffer(0, 0).
const datagram = 1452

// Send is the sending half of a stream.
//
// Its bytes are [0, acc), accepted from the application. Of these [0, next)
// were packed at least once: they use credit, and next is the final size of a
// reset. A packed byte is in flight unless it is acked (below base, or in
// acked) or lost; lost never holds an acked byte. [next, acc) is unsent, and
// in the blocks. A packed and unacked byte is in the blocks too, but for
// those of a source that is read again (see source).
type Send struct {
	h    Host
	id   int64
	gate gate
	q    queue

	acc    int64
	next   int64
	copied int64 // end of the new bytes that Copy handed out, packed or not
	credit int64 // MAX_STREAM_DATA
	base   int64
	acked  ranges // above base
	lost   ranges

	low, high int
	writable  chan struct{} // closed at the next fall below low; nil: nobody asked
	filling   *Block        // a writer copies into its spare part right now
	src       *source
	ctx       *streamContext
	cork      *time.Timer

	err       error // why no byte is added any more (reset, connection closed)
	resetCode uint64
	boundary  int64 // bytes below it are to arrive though the stream is reset; see send_reset.go
	blockedAt int64 // credit that STREAM_DATA_BLOCKED was sent for

	want      want
	reset     resetState
	resetAt   bool // the peer takes RESET_STREAM_AT
	silent    bool // no byte leaves any more, either
	unbuffer  bool // SetWriteBuffer(0, 0)
	marked    bool // SetWriteBuffer has set the high mark
	paused    bool // unsent reached high and has not fallen to low since
	corked    bool
	told      bool // the application knows that the stream was reset
	closing   bool // Close was called: no call may begin to add bytes
	finQueued bool // acc is the final size
	finSent   bool
	finLost   bool
	finAcked  bool
	stays     bool // the write inside has its thread for itself
	done      bool // SendDone was called, or never will be
}

// want is what the call inside the gate waits for.
type want uint8

const (
	wantRoom   want = iota // room for more bytes
	wantSent               // at most one datagram unsent
	wantSource             // source.ready
)

type streamContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

// NewSend makes the sending half of a stream; see [Send.Init].
func NewSend(id int64, h Host, credit int64) *Send {
	s := new(Send)
	s.Init(id, h, credit)
	return s
}

// Init makes the zero Send the sending half of stream id. credit is the peer's initial
// MAX_STREAM_DATA.
func (s *Send) Init(id int64, h Host, credit int64) {
	s.h, s.id, s.credit = h, id, credit
	s.low, s.high, s.blockedAt = DefaultLow, DefaultHigh, -1
	s.gate.wake.ForRoom = true
}

// ID returns the stream's ID.
func (s *Send) ID() int64 { return s.id }

// Next names the next contiguous range to pack: lost bytes first, in
// ascending order, then new bytes at hand, as far as the stream's credit and
// max, the connection's, allow; or a FIN alone (n == 0), which needs no
// credit. fin says that the range ends the stream, lost that it was packed
// before (and uses no credit). Nothing moves until Packed. Monitor held.
func (s *Send) Next(max int) (off int64, n int, fin, lost, ok bool) {
	if s.silent {
		return 0, 0, false, false, false
	}
	if !s.lost.empty() {
		f := s.lost.spans()[0]
		return f.lo, int(f.hi - f.lo), s.finDue() && f.hi == s.acc, true, true
	}
	if n := min(s.newBytes(), int64(max)); n > 0 {
		return s.next, int(n), s.finDue() && s.next+n == s.acc, false, true
	}
	if s.finDue() && s.next == s.acc {
		return s.acc, 0, true, s.finLost, true
	}
	return 0, 0, false, false, false
}

// newBytes is how many new bytes may be packed now.
func (s *Send) newBytes() int64 {
	if s.corked {
		return 0
	}
	return max(0, min(s.acc, s.credit)-s.next)
}

func (s *Send) finDue() bool { return s.finQueued && (!s.finSent || s.finLost) }

// Probe is Next for a PTO probe: the first bytes at hand, or the FIN, that
// are in flight and so would not be sent again yet. Monitor held.
func (s *Send) Probe(max int) (off int64, n int, fin, ok bool) {
	if s.silent {
		return 0, 0, false, false
	}
	var lo, hi int64 // the run so far, which may go through several blocks
	for i := 0; i < s.q.n && hi-lo < int64(max); i++ {
		b := s.q.at(i).b
		from, to := int64(0), int64(0)
		if b != nil {
			from, to = s.unacked(b.off, min(b.off+int64(b.n), s.next))
		}
		if lo < hi && (from != hi || from == to) {
			break
		}
		if from < to {
			if lo == hi {
				lo = from
			}
			hi = to
		}
	}
	if n := min(hi-lo, int64(max)); n > 0 {
		return lo, int(n), s.finQueued && s.finSent && !s.finAcked && lo+n == s.acc, true
	}
	if s.finSent && !s.finAcked {
		return s.acc, 0, true, true
	}
	return 0, 0, false, false
}

// unacked returns the first run of [lo, hi) that is not acknowledged.
func (s *Send) unacked(lo, hi int64) (int64, int64) {
	return s.acked.gap(max(lo, s.base), max(hi, s.base))
}

// Copy copies the bytes from off on into dst. It reports false, and clears
// what it has not, if some of them are not at hand any more, which happens
// only if the monitor was released since Next; Packed refuses the range then.
// Monitor held.
func (s *Send) Copy(dst []byte, off int64) bool {
	if !s.q.copyOut(dst, off) {
		clear(dst)
		return false
	}
	s.copied = max(s.copied, off+int64(len(dst)))
	return true
}

// Packed commits the range [off, off+n), and FIN, into packets that will
// leave. It returns how many of the bytes are new, for the connection's
// credit, or -1 if the range must not leave: the stream was reset or the
// connection closed, or the bytes were acknowledged or taken back since Next.
// A refusal changes nothing. Monitor held.
func (s *Send) Packed(off int64, n int, fin bool) int {
	end := off + int64(n)
	switch {
	case s.silent, s.done, off > s.next, end > s.acc, end > s.next && end > s.credit,
		fin && (!s.finQueued || end != s.acc || s.finAcked):
		return -1
	}
	if old := min(end, s.next); off < old {
		if off < s.base || s.acked.overlaps(off, old) {
			return -1
		}
		s.lost.remove(off, old)
	}
	if fin {
		s.sentFin()
	}
	fresh := int(max(0, end-s.next))
	if fresh > 0 {
		s.next = end
		s.h.Buffered(-fresh)
		s.drained()
		if s.reset == resetDue || s.Blocked() {
			s.h.SendReady(s)
		}
	}
	s.wakeSource()
	return fresh
}

// FinSent reports whether all bytes and FIN have left once (RFC 9000 §3.1: "Data Sent").
// Monitor held.
func (s *Send) FinSent() bool { return s.finSent }

func (s *Send) sentFin() {
	first := !s.finSent
	s.finSent, s.finLost = true, false
	if first {
		s.h.DataSent(s)
	}
}

// OnAcked says that the peer has the range, and FIN. Anything that was packed
// may be named, late, twice, or after the end. Monitor held.
func (s *Send) OnAcked(off int64, n int, fin bool) {
	if s.silent || s.done {
		return
	}
	lo, hi := max(off, s.base), min(off+int64(n), s.next)
	for a := lo; a < hi; {
		g, end := s.acked.gap(a, hi)
		if g == end {
			break
		}
		s.q.acked(g, end, s.h, s.filling)
		a = end
	}
	if lo < hi {
		// To resend = lost − acked (RFC 9000 §13.3): a late acknowledgement
		// withdraws the range.
		s.lost.remove(lo, hi)
		if lo == s.base {
			s.base = hi
			s.absorb()
		} else {
			s.acked.add(lo, hi)
		}
		if s.src != nil {
			s.src.acked(s, lo, hi)
		}
	}
	if fin && s.finSent {
		s.finAcked, s.finLost = true, false
	}
	// The FIN has an acknowledgement of its own (RFC 9000 §3.1): bytes alone
	// do not complete the stream.
	if s.base == s.acc {
		if s.finAcked {
			s.done = true
			s.h.SendDone(s)
		} else {
			s.finishReset()
		}
	}
	s.wakeSource()
}

// absorb moves base over what is acknowledged behind it.
func (s *Send) absorb() {
	for !s.acked.empty() && s.acked.spans()[0].lo <= s.base {
		s.base = max(s.base, s.acked.spans()[0].hi)
		s.acked.cut(0, 1)
	}
}

// OnLost says that the range, and FIN, did not arrive, or was never sent. It
// is as tolerant as OnAcked. Monitor held.
func (s *Send) OnLost(off int64, n int, fin bool) {
	if s.silent || s.done {
		return
	}
	lo, hi := off, min(off+int64(n), s.next)
	for lo < hi {
		// base may move on the way: what cannot be read again is taken out of a reset.
		g, end := s.unacked(lo, hi)
		if g == end {
			break
		}
		if s.src != nil && len(s.src.slots) > 0 {
			s.src.lost(s, g, end)
			if s.silent {
				return // nobody can read them again: the stream was reset
			}
		} else {
			s.lost.add(g, end)
		}
		lo = end
	}
	if fin && s.finSent && !s.finAcked {
		s.finLost = true
	}
	if !s.lost.empty() || s.finLost {
		s.h.SendReady(s)
	}
	s.wakeSource()
}

// SetCredit takes the peer's MAX_STREAM_DATA and reports whether it is more
// than before. Monitor held.
func (s *Send) SetCredit(max int64) bool {
	if max <= s.credit {
		return false // RFC 9000 §4.1: a smaller limit is ignored
	}
	s.credit = max
	if !s.silent && s.newBytes() > 0 {
		s.h.SendReady(s)
	}
	s.wakeSource()
	return true
}

// Credit is the peer's MAX_STREAM_DATA. Monitor held.
func (s *Send) Credit() int64 { return s.credit }

// Blocked says that STREAM_DATA_BLOCKED with Credit is due: there are new
// bytes, or a source that has some, credit is used up, and the peer was not
// told yet. Monitor held.
func (s *Send) Blocked() bool {
	return !s.silent && s.next >= s.credit && s.blockedAt != s.credit &&
		(s.acc > s.next || s.gate.inside == aSource && !s.finQueued && s.err == nil)
}

// BlockedSent says that STREAM_DATA_BLOCKED was packed. Monitor held.
func (s *Send) BlockedSent() { s.blockedAt = s.credit }

// BlockedLost says that the STREAM_DATA_BLOCKED with this limit was lost. It
// is due again if the stream is still blocked there (RFC 9000 §13.3).
// Monitor held.
func (s *Send) BlockedLost(limit int64) {
	if limit == s.blockedAt {
		s.blockedAt = -1
		if s.Blocked() {
			s.h.SendReady(s)
		}
	}
}

// HasPending reports whether Next, with enough connection credit, or ResetDue
// would give something. Monitor held.
func (s *Send) HasPending() bool {
	if _, _, ok := s.ResetDue(); ok {
		return true
	}
	_, _, _, _, ok := s.Next(math.MaxInt32)
	return ok
}

// ConnClosed ends the stream with the connection: calls that wait return err,
// blocks are freed, and nothing is sent any more. Monitor held.
func (s *Send) ConnClosed(err error) {
	if !s.silent {
		s.end(err)
	}
	s.reset = resetNone
	s.done = true
}

// Err is why no byte can be added any more: the error of a reset or of the
// connection, or nil. Monitor held.
func (s *Send) Err() error { return s.err }

// Unsent is how many bytes were accepted and not yet packed. Monitor held.
func (s *Send) Unsent() int { return int(s.acc - s.next) }

// Wake makes calls that wait look again, after the connection's room for
// unsent bytes changed, or whatever a source waits for did. Monitor held.
func (s *Send) Wake() {
	s.wakeWriter()
	s.wakeSource()
}

// drained follows every fall of the unsent bytes.
func (s *Send) drained() {
	if n := s.Unsent(); s.paused && n <= s.low && n < s.high {
		s.paused = false
	}
	s.wakeWriter()
}

// grown follows every rise.
func (s *Send) grown() {
	if s.Unsent() >= s.high {
		s.paused = true
		s.uncork()
	}
}

// Room is how many bytes may be added now before the unsent ones are at the high mark of
// the stream or of the connection. A source asks as long as it is positive. Monitor held.
func (s *Send) Room() int { return s.room() }

// room is how many bytes a write may add now.
func (s *Send) room() int {
	if s.paused {
		return 0
	}
	n := s.Unsent()
	return min(s.high-n, max(s.h.BufferRoom(), reserve-n))
}

func (s *Send) wakeWriter() {
	if s.gate.parked {
		switch s.want {
		case wantRoom:
			if s.room() > 0 {
				s.gate.signal()
			}
		case wantSent:
			if s.Unsent() <= datagram {
				s.gate.signal()
			}
		}
	}
	if s.writable != nil && s.room() > 0 {
		s.fireWritable()
	}
}

func (s *Send) fireWritable() {
	if s.writable != nil {
		close(s.writable)
		s.writable = nil
	}
}

// queueFin makes acc the final size.
func (s *Send) queueFin() {
	s.closing, s.finQueued = true, true
	s.uncork()
	s.fireWritable()
	s.h.SendReady(s)
}

// Context is cancelled when the stream ends for writers: by Close (the cause
// is Errors.Closed), by a reset, or with the connection.
func (s *Send) Context() context.Context {
	s.h.Lock()
	c := s.ctx
	s.h.Unlock()
	if c != nil {
		return c.Context
	}
	// It ends when the stream does, for the stream's own reason, and has only values of
	// its parent, which may be of the application's making: no lock here.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.h.Context()))
	mine := &streamContext{ctx, cancel}
	s.h.Lock()
	if s.ctx == nil {
		s.ctx = mine
	}
	c = s.ctx
	cause := s.err
	if s.closing {
		cause = errs.Closed // it came before whatever else
	}
	s.h.Unlock()
	if c != mine {
		mine.cancel(nil)
	}
	if cause != nil {
		c.cancel(cause)
	}
	return c.Context
}

func (s *Send) endContext(cause error) {
	if c := s.ctx; c != nil {
		s.h.After(func() { c.cancel(cause) })
	}
}
