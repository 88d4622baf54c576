package stream

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/volley-quic/volley/emit"
)

const (
	// chunk is the most that a write adds at a time, in bytes.
	chunk = 64 << 10
	// ownedMin is the size in bytes below which WriteOwned copies: the record
	// of a block would cost more than the copy, and small pieces share a block.
	ownedMin = 512
	// corkLimit is how long a cork holds at most.
	corkLimit = 200 * time.Millisecond
)

// brief is how many bytes are copied without letting the monitor go: to get it back would
// take longer. Tests change it.
var brief = 2 << 10

var errWriteBuffer = errors.New("stream: write buffer limits must be 0 ≤ low ≤ high")

// readyChan is what Writable returns when there is no need to wait.
var readyChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// pieces is what a write still has to copy.
type pieces struct {
	p    []byte
	more [][]byte
}

// copyStep is how many bytes are copied at a time. From 2 KiB on the runtime takes REP MOVSQ
// where the destination is aligned, as blocks are, and that takes twice as long as vectors do
// if the source is not: BenchmarkCopyIn shows it.
const copyStep = 2<<10 - 1

func (c *pieces) copyTo(dst []byte) {
	for len(dst) > 0 {
		for len(c.p) == 0 {
			c.p, c.more = c.more[0], c.more[1:]
		}
		k := copy(dst[:min(len(dst), copyStep)], c.p)
		dst, c.p = dst[k:], c.p[k:]
	}
}

// Write adds p to the stream. It copies p, and waits while the unsent bytes
// are at the high mark of SetWriteBuffer. The n that it returns counts the
// bytes that may reach the peer; byte n and later never do. After the write
// deadline the error is os.ErrDeadlineExceeded, and the stream goes on with a
// later deadline. Concurrent writes come one after the other, each whole.
func (s *Send) Write(p []byte) (int, error) {
	c := pieces{p: p}
	return s.write(&c, len(p), false)
}

// CloseWith writes p and closes the stream; the last bytes and the FIN leave
// in one frame. With an error the stream is not closed.
func (s *Send) CloseWith(p []byte) (int, error) {
	c := pieces{p: p}
	return s.write(&c, len(p), true)
}

// WriteBuffers writes the buffers as one Write, without joining them first,
// and consumes b by what was written, as net.Buffers.WriteTo does.
func (s *Send) WriteBuffers(b *net.Buffers) (int64, error) {
	total := 0
	for _, p := range *b {
		total += len(p)
	}
	c := pieces{more: *b}
	n, err := s.write(&c, total, false)
	for rest := n; len(*b) > 0; {
		first := (*b)[0]
		if len(first) > rest {
			(*b)[0] = first[rest:]
			break
		}
		rest -= len(first)
		(*b)[0] = nil
		*b = (*b)[1:]
	}
	return int64(n), err
}

func (s *Send) write(c *pieces, total int, fin bool) (int, error) {
	h := s.h
	h.Lock()
	err := s.enter(aCall)
	if err != nil {
		h.Unlock()
		return 0, err
	}
	if s.stay(total) {
		defer s.unstay()
	}
	start, added, due := s.acc, 0, false
	if total == 0 && fin {
		s.queueFin()
		due = true
	}
	for added < total && err == nil {
		k := min(s.room(), total-added, chunk)
		if k <= 0 {
			err = s.wait(wantRoom)
			continue
		}
		if err = s.copyIn(c, k, fin && added+k == total, true); err != nil {
			break
		}
		added += k
		due = true
		if added < total {
			h.PushUnlock(s)
			h.Lock()
			due = false
		}
	}
	n, err := s.settle(start, added, &due, err)
	if fin && err == nil {
		s.endContext(errs.Closed)
	}
	s.exit(&due)
	s.unlock(due)
	return n, err
}

// unlock lets the monitor go. due says that there is something new to send.
func (s *Send) unlock(due bool) {
	if due {
		s.h.PushUnlock(s)
	} else {
		s.h.Unlock()
	}
}

// settle ends a write that began at start and added n bytes: in the mode
// without a buffer it waits until they are sent; it makes n and err true.
// due says that a Push is due.
func (s *Send) settle(start int64, n int, due *bool, err error) (int, error) {
	if s.unbuffer && err == nil && n > 0 && s.Unsent() > datagram {
		if *due {
			*due = false
			s.h.PushUnlock(s)
			s.h.Lock()
		}
		err = s.wait(wantSent)
	}
	if s.err != nil {
		// Of what this call added, only what the reset has left may arrive.
		if m := int(max(0, s.acc-start)); err != nil && m < n {
			return m, s.err
		}
		return n, err
	}
	if err != nil && s.unbuffer {
		if m := int(s.takeBack(start) - start); m < n {
			return m, err
		}
		if n > 0 {
			return n, nil // everything is on its way after all
		}
	}
	return n, err
}

// WriteOwned adds p without copying it: the stream reads p until every byte
// is acknowledged or given up, and then calls release (which may be nil), on
// another goroutine, exactly once whatever happens. p must not change before.
// It waits as Write does, and then takes p whole. Less than 512 bytes are
// copied, and released at once.
func (s *Send) WriteOwned(p []byte, release func()) (int, error) {
	h := s.h
	if len(p) < ownedMin {
		n, err := s.Write(p)
		if release != nil {
			h.Lock()
			h.After(release)
			h.Unlock()
		}
		return n, err
	}
	b := own(p, release)
	h.Lock()
	err := s.enter(aCall)
	if err != nil {
		b.free(h)
		h.Unlock()
		return 0, err
	}
	if s.stay(len(p)) {
		defer s.unstay()
	}
	if s.room() <= 0 {
		err = s.wait(wantRoom)
	}
	start, n, due := s.acc, 0, false
	if err == nil {
		n, due = len(p), true
		s.link(b, n)
		h.Buffered(n)
		s.publish()
	} else {
		b.free(h)
	}
	n, err = s.settle(start, n, &due, err)
	s.exit(&due)
	s.unlock(due)
	return n, err
}

// TryWriteAll writes all of p or nothing, and never waits: it returns
// Errors.WouldBlock if p goes beyond the peer's credit for the stream, or
// another write is going on; and if the unsent bytes are at the high mark, but
// only one that SetWriteBuffer has set.
func (s *Send) TryWriteAll(p []byte) error {
	h := s.h
	h.Lock()
	var err error
	switch {
	case s.endErr() != nil:
		err = s.endErr()
	case len(p) == 0:
	case s.gate.inside == aSource:
		err = emit.ErrBusy
	case s.gate.inside != nobody || s.marked && s.room() <= 0 || s.acc+int64(len(p)) > s.credit:
		err = errs.WouldBlock
	default:
		s.gate.inside = aCall
		c := pieces{p: p}
		err = s.copyIn(&c, len(p), false, false)
		due := err == nil
		s.exit(&due)
		s.unlock(due)
		return err
	}
	h.Unlock()
	return err
}

// Close ends the stream: FIN follows the last byte. A write that is going on
// in another goroutine, or a source, is finished first. Close after Close
// does nothing; after a reset it is an error.
func (s *Send) Close() error {
	h := s.h
	h.Lock()
	if s.closing {
		h.Unlock()
		return nil
	}
	if s.err != nil {
		s.learn()
		err := s.err
		if s.reset == resetNone && s.done { // the connection is gone, and the stream with it
			err = nil
		}
		h.Unlock()
		return err
	}
	s.closing = true
	s.uncork()
	if s.gate.inside == nobody {
		s.queueFin()
	} // else exit does
	s.fireWritable()
	s.endContext(errs.Closed)
	s.gate.signalAll() // writes that wait for their turn will not get it
	h.PushUnlock(s)
	return nil
}

// SetDeadline sets the time after which calls that add bytes fail, also those
// that wait now. The zero time means never.
func (s *Send) SetDeadline(t time.Time) {
	s.h.Lock()
	s.gate.setDeadline(t)
	s.h.Unlock()
}

// SetWriteBuffer sets the marks for unsent bytes (accepted and not yet in a
// packet): at high a write waits, until they have fallen to low. With (0, 0)
// Write returns only when at most one datagram (1452 bytes) is unsent; if its
// deadline comes before, it takes the unsent rest back. New marks hold at
// once: below the present level they pause writers, above they resume them.
func (s *Send) SetWriteBuffer(low, high int) error {
	if low < 0 || high < low {
		return errWriteBuffer
	}
	s.h.Lock()
	s.unbuffer, s.marked = high == 0, high > 0
	if s.unbuffer {
		low, high = DefaultLow, DefaultHigh
	}
	s.low, s.high = low, high
	corked := s.corked
	s.paused = false
	s.grown()
	s.wakeWriter()
	lifted := corked && !s.corked
	s.unlock(lifted)
	return nil
}

// Writable returns a channel that is closed as long as a write need not wait,
// and else is closed when the unsent bytes have fallen to the low mark (once
// for each fall), or the stream ends.
func (s *Send) Writable() <-chan struct{} {
	s.h.Lock()
	defer s.h.Unlock()
	if s.err != nil || s.closing || s.room() > 0 {
		return readyChan
	}
	if s.writable == nil {
		s.writable = make(chan struct{})
	}
	return s.writable
}

// Cork holds new bytes back, so that small writes leave together, until
// Uncork, Close, the high mark, a write that has to wait, a source, or 200 ms.
// It does not nest.
func (s *Send) Cork() {
	s.h.Lock()
	defer s.h.Unlock()
	if s.corked || s.err != nil || s.closing || s.paused || s.gate.inside == aSource {
		return
	}
	s.corked = true
	if s.cork == nil {
		s.cork = time.AfterFunc(corkLimit, s.Uncork)
	} else {
		s.cork.Reset(corkLimit)
	}
}

// Uncork lets the bytes go that Cork held back.
func (s *Send) Uncork() {
	s.h.Lock()
	lifted := s.uncork()
	s.unlock(lifted)
}

func (s *Send) uncork() bool {
	if !s.corked {
		return false
	}
	s.corked = false
	s.cork.Stop()
	if s.err == nil && s.acc > s.next {
		s.h.SendReady(s)
	}
	return true
}

// endErr is why a call may not begin to add bytes, apart from the deadline.
func (s *Send) endErr() error {
	if s.closing && s.reset == resetNone {
		return errs.Closed
	}
	if s.err != nil {
		s.learn()
	}
	return s.err
}

// enter lets a call in that adds bytes, after those before it. Monitor held,
// released while waiting.
func (s *Send) enter(who uint8) error {
	for {
		if err := s.endErr(); err != nil {
			return err
		}
		if s.gate.expired() {
			return os.ErrDeadlineExceeded
		}
		switch {
		case s.gate.inside == nobody:
			s.gate.inside = who
			return nil
		case who == aSource || s.gate.inside == aSource:
			return emit.ErrBusy
		}
		s.gate.waitTurn(s.h)
	}
}

// exit lets the next call in, and does what Close left to this one.
func (s *Send) exit(due *bool) {
	s.stays = false
	s.gate.leave()
	if s.err != nil {
		s.learn() // from the call that leaves
	}
	if s.closing && !s.finQueued && s.err == nil {
		s.queueFin()
		*due = true
	}
}

// wait parks the call inside until what it wants is there; the error says
// that it will not come. Monitor held, released while waiting.
func (s *Send) wait(w want) error {
	for {
		if s.err != nil {
			return s.err
		}
		if w == wantRoom && s.room() > 0 || w == wantSent && s.Unsent() <= datagram {
			return nil
		}
		if s.gate.expired() {
			return os.ErrDeadlineExceeded
		}
		if s.uncork() { // or it would wait for the cork's timer
			s.h.PushUnlock(s)
			s.h.Lock()
			continue
		}
		s.want = w
		s.park()
	}
}

// copyIn adds the next k bytes of c. The monitor is released while many are
// copied; whether they may still be added is seen when it is held again.
func (s *Send) copyIn(c *pieces, k int, fin, timed bool) error {
	// What fits goes behind the bytes of the last block, the rest into a
	// fresh one. The caller is the only one who appends, so that the last
	// block's spare part is its own.
	tail := s.q.last()
	spare, at, size := 0, 0, k
	if tail != nil && tail.off+int64(tail.n) == s.acc {
		spare, at = min(tail.spare(), k), tail.n
	}
	if spare == 0 {
		tail = nil
	}
	if size -= spare; size > 0 && s.q.n > 0 {
		// Others wait before it: a stream of small writes gets larger blocks.
		size = max(size, min(2*len(s.q.last().buf), chunk))
	}
	s.filling = tail
	// They count from here on, or writers on many streams would all see the same room.
	s.h.Buffered(k)
	if k > brief {
		s.h.Unlock()
	}

	if spare > 0 {
		c.copyTo(tail.buf[at : at+spare])
	}
	var fresh *Block
	if k > spare {
		fresh = Get(size)
		c.copyTo(fresh.buf[:k-spare])
	}

	if k > brief {
		s.h.Lock()
	}
	s.filling = nil
	err := s.err
	if err == nil && timed && s.gate.expired() {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		s.h.Buffered(-k)
		if fresh != nil {
			fresh.free(s.h)
		}
		switch {
		case tail == nil:
		case s.silent:
			tail.free(s.h) // end left it to us
		case tail.live == 0:
			tail.free(s.h) // OnAcked or spare left it to us
			s.q.drop(s.q.n - 1)
		}
		return err
	}
	if tail != nil {
		tail.n += spare
		tail.live += spare
		s.acc += int64(spare)
	}
	if fresh != nil {
		s.link(fresh, k-spare)
	}
	if fin {
		s.queueFin()
	}
	s.publish()
	return nil
}

// link makes the n bytes of b the stream's next.
func (s *Send) link(b *Block, n int) {
	b.off, b.n, b.live = s.acc, n, n
	s.q.push(b)
	s.acc += int64(n)
}

// publish follows the adding of bytes, which Buffered knows of.
func (s *Send) publish() {
	s.grown()
	if !s.corked {
		s.h.SendReady(s)
	}
}

// takeBack takes back the unsent bytes from start on, and the FIN behind
// them, and returns where it stopped: behind what Copy handed out already, as
// that may be on its way.
func (s *Send) takeBack(start int64) int64 {
	cut := max(start, s.next, s.copied)
	if cut >= s.acc {
		return s.acc
	}
	for b := s.q.last(); b != nil && b.off+int64(b.n) > cut; b = s.q.last() {
		k := int(min(b.off+int64(b.n)-cut, int64(b.n)))
		b.n -= k
		b.live -= k // an unsent byte cannot be acked
		if b.live > 0 {
			break
		}
		b.free(s.h)
		s.q.drop(s.q.n - 1)
	}
	n := int(s.acc - cut)
	s.acc = cut
	s.boundary = min(s.boundary, cut)
	if s.finQueued && !s.finSent {
		s.closing, s.finQueued = false, false
	}
	s.h.Buffered(-n)
	s.drained()
	return cut
}
