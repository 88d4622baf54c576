package stream

import (
	"io"
	"math/bits"
	"sync"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// Received bytes lie in pages: page i holds [i·4096, (i+1)·4096) of the
// stream, in a block of 1 KiB while that is enough. So whatever the size and
// order of the frames, memory is bounded by the window, and a frame costs its
// own length: there is no list of gaps to search or to limit. A page with
// more than one gap marks its bytes in a bitmap (an eighth more memory).
const (
	pageShift = 12
	pageSize  = 1 << pageShift
)

type page struct {
	b      *Block
	bits   *bitmap // if set, says what is there instead of lo and hi
	lo, hi uint16  // received bytes of the page
}

type bitmap [pageSize / 64]uint64

var bitmapPool = sync.Pool{New: func() any { return new(bitmap) }}

// Recv is the receiving half of a stream.
//
// Bytes below read were read (or discarded), which is also what the
// connection was given credit for; [read, ready) can be read; [ready, high)
// has gaps.
type Recv struct {
	h    Host
	id   int64
	gate gate

	held  heldRuns
	pages []page  // a ring whose length is a power of two
	few   [2]page // the first one
	head  int
	first int64 // number of the page at head

	read  int64
	ready int64
	high  int64 // end of the highest byte received; last once it is known
	final int64 // -1: unknown
	last  int64 // where reading ends: the final size, or, after a RESET_STREAM_AT, the reliable size; -1: unknown

	limit     int64 // MAX_STREAM_DATA that the peer may use
	window    int64
	maxWindow int64
	epoch     time.Time // when the window was last moved

	copying int64  // a reader copies bytes below this offset right now; 0: none
	stale   *Block // what the reader's page was in before it grew

	err       error  // why nothing can be read any more, but for ending
	ending    error  // what follows the last byte: io.EOF, or the error of a RESET_STREAM_AT
	want      int64  // the call that waits wants the bytes below this offset
	code      uint64 // of our STOP_SENDING, or of the peer's RESET_STREAM_AT
	onSize    func(int64)
	maxDue    bool // MAX_STREAM_DATA
	stopDue   bool // STOP_SENDING
	stopAcked bool
	cancelled bool // Cancel was called
	told      bool // the application knows how the stream ended
	discarded bool // what comes is not kept: cancelled, reset or closed
	cut       bool // … from last on: a RESET_STREAM_AT came
	done      bool // RecvDone was called, or never will be
}

// NewRecv makes the receiving half of a stream; see [Recv.Init].
func NewRecv(id int64, h Host, window, maxWindow int64) *Recv {
	r := new(Recv)
	r.Init(id, h, window, maxWindow)
	return r
}

// Init makes the zero Recv the receiving half of stream id. window is the credit that
// the peer has, maxWindow how far auto-tuning may take it, both in bytes.
func (r *Recv) Init(id int64, h Host, window, maxWindow int64) {
	r.h, r.id = h, id
	r.final, r.last, r.ending = -1, -1, io.EOF
	r.limit, r.window, r.maxWindow = window, window, max(window, maxWindow)
}

// ID returns the stream's ID.
func (r *Recv) ID() int64 { return r.id }

// Push takes the data of a STREAM frame, copying what is new of it; frames
// may come in any order, twice, or overlap. newBytes is by how much the
// highest offset grew, for the connection's flow control; bytes of a stream
// that nobody reads any more have been given to RecvConsumed already. The
// error is a *wire.Error that must close the connection. Monitor held.
func (r *Recv) Push(off int64, data []byte, fin bool) (newBytes int64, err error) {
	return r.PushHeld(off, data, fin, nil)
}

// PushHeld is Push for data that lies in mem, which it may hold instead of copying: long
// frames that come in order stay where they are until they are read. A nil mem makes it
// Push. Monitor held.
func (r *Recv) PushHeld(off int64, data []byte, fin bool, mem Memory) (newBytes int64, err error) {
	end := off + int64(len(data))
	switch {
	case r.final >= 0 && (end > r.final || fin && end != r.final):
		// RFC 9000 §4.5: the final size does not change.
		return 0, finalSizeError(wire.FrameStream, "data or FIN beyond or unlike the final size")
	case fin && end < r.high:
		return 0, finalSizeError(wire.FrameStream, "FIN below data received before")
	case end > r.limit:
		return 0, flowError(wire.FrameStream)
	}
	if fin {
		r.setFinal(end)
	}
	if r.cut {
		end = min(end, r.last)
		data = data[:max(end-off, 0)]
	}
	if end > r.high {
		newBytes = end - r.high
		r.high = end
	}
	if r.discarded {
		r.discard()
		r.finish()
		return newBytes, nil
	}
	if r.epoch.IsZero() && r.final < 0 {
		r.epoch = time.Now()
	}
	// What can be read is never written again: a reader may be copying it.
	if off < r.ready {
		data = data[min(r.ready-off, int64(len(data))):]
		off = r.ready
	}
	if len(data) > 0 {
		inOrder := off == r.ready && r.high == end
		if inOrder && mem != nil && len(data) >= heldMin {
			mem.Hold()
			r.held.push(run{off, data, mem})
		} else {
			r.store(off, data)
		}
		if inOrder {
			r.ready = end
		} else if off == r.ready {
			r.advance()
		}
	}
	if r.gate.parked && (r.ready >= r.want || r.ready == r.last) {
		r.gate.rouse(r.h)
	}
	r.finish()
	return newBytes, nil
}

func finalSizeError(frame uint64, reason string) error {
	return &wire.Error{Code: wire.FinalSizeError, FrameType: frame, Reason: reason}
}

func flowError(frame uint64) error {
	return &wire.Error{Code: wire.FlowControlError, FrameType: frame, Reason: "stream data beyond MAX_STREAM_DATA"}
}

func (r *Recv) setFinal(n int64) {
	if r.final >= 0 {
		return
	}
	r.final, r.last = n, n
	r.maxDue = false // RFC 9000 §4.1: no credit once the size is known
	if f := r.onSize; f != nil {
		r.onSize = nil
		r.h.After(func() { f(n) })
	}
}

// finish sees whether the stream has come to its end.
func (r *Recv) finish() {
	if r.done || r.final < 0 {
		return
	}
	// What was never looked at is not over: else a peer could open, end and
	// open streams faster than the application accepts them.
	all := !r.discarded && r.read == r.last && (r.told || r.last > 0)
	if all || r.cancelled || r.discarded && r.told {
		r.done = true
		r.h.RecvDone(r)
	}
}

// discard drops what is buffered, and gives what was not read back to the
// connection.
func (r *Recv) discard() {
	r.discarded = true
	if n := r.high - r.read; n > 0 {
		r.read, r.ready = r.high, r.high
		r.h.RecvConsumed(n)
	}
	if r.copying > 0 {
		return // the reader comes back here
	}
	r.held.release(r.high)
	r.held = heldRuns{}
	for i := range r.pages {
		r.drop(&r.pages[i])
	}
	r.pages = nil
}

func (r *Recv) drop(p *page) {
	if p.b != nil {
		p.b.Release()
	}
	if p.bits != nil {
		bitmapPool.Put(p.bits)
	}
	*p = page{}
}

// at returns page number n, making room for it in the ring.
func (r *Recv) at(n int64) *page {
	if r.pages == nil {
		r.pages, r.head, r.first = r.few[:], 0, r.read>>pageShift
	}
	i := n - r.first
	if i >= int64(len(r.pages)) {
		size := len(r.pages)
		for int64(size) <= i {
			size *= 2
		}
		pages := make([]page, size)
		k := copy(pages, r.pages[r.head:])
		copy(pages[k:], r.pages[:r.head])
		r.pages, r.head = pages, 0
		r.few = [len(r.few)]page{} // keeps no block
	}
	return &r.pages[(r.head+int(i))&(len(r.pages)-1)]
}

// store copies data, which begins at or above ready, into its pages.
func (r *Recv) store(off int64, data []byte) {
	for len(data) > 0 {
		n := off >> pageShift
		lo := int(off & (pageSize - 1))
		hi := min(lo+len(data), pageSize)
		p := r.at(n)
		if p.b == nil {
			p.b = Get(blockFor(hi))
		} else if len(p.b.buf) < hi {
			old := p.b
			p.b = Get(pageSize)
			copy(p.b.buf, old.buf)
			if n<<pageShift < r.copying {
				r.stale = old // a page grows once
			} else {
				old.Release()
			}
		}
		k := copy(p.b.buf[lo:hi], data)
		p.mark(lo, hi)
		data = data[k:]
		off += int64(k)
	}
}

func blockFor(n int) int {
	if n <= classSize[class1K] {
		return n
	}
	return pageSize
}

// mark notes that the bytes lo..hi-1 of the page are there.
func (p *page) mark(lo, hi int) {
	if p.bits == nil {
		switch {
		case p.lo == p.hi:
			p.lo, p.hi = uint16(lo), uint16(hi)
			return
		case lo <= int(p.hi) && hi >= int(p.lo):
			p.lo, p.hi = min(p.lo, uint16(lo)), max(p.hi, uint16(hi))
			return
		}
		p.bits = bitmapPool.Get().(*bitmap)
		clear(p.bits[:])
		p.bits.set(int(p.lo), int(p.hi))
	}
	p.bits.set(lo, hi)
}

// run returns where the received bytes from lo on end.
func (p *page) run(lo int) int {
	switch {
	case p.bits != nil:
		return p.bits.run(lo)
	case int(p.lo) <= lo && lo < int(p.hi):
		return int(p.hi)
	}
	return lo
}

// cut forgets the bytes from end on.
func (p *page) cut(end int) {
	if p.bits == nil {
		p.hi = min(p.hi, uint16(end))
		p.lo = min(p.lo, p.hi)
		return
	}
	for i := range p.bits {
		switch lo := i << 6; {
		case lo >= end:
			p.bits[i] = 0
		case end-lo < 64:
			p.bits[i] &= 1<<(end-lo) - 1
		}
	}
}

func (m *bitmap) set(lo, hi int) {
	for lo < hi {
		k := min(64-lo&63, hi-lo)
		m[lo>>6] |= (1<<k - 1) << (lo & 63)
		lo += k
	}
}

func (m *bitmap) run(lo int) int {
	for lo < pageSize {
		k := bits.TrailingZeros64(^(m[lo>>6] >> (lo & 63)))
		if k < 64-lo&63 {
			return lo + k
		}
		lo = lo&^63 + 64
	}
	return pageSize
}

// advance moves ready over what has become contiguous.
func (r *Recv) advance() {
	for r.ready < r.high {
		p := r.at(r.ready >> pageShift)
		end := r.ready&^(pageSize-1) + int64(p.run(int(r.ready&(pageSize-1))))
		if end == r.ready {
			return
		}
		r.ready = end
	}
}

// consume counts n bytes as read.
func (r *Recv) consume(n int64) {
	r.read += n
	// A page that is read, or whose last byte so far is, has done its work.
	r.held.release(r.read)
	for ; r.pages != nil && r.first < r.read>>pageShift; r.first++ {
		r.drop(&r.pages[r.head])
		r.head = (r.head + 1) & (len(r.pages) - 1)
	}
	if r.read == r.high && r.pages != nil {
		r.drop(&r.pages[r.head])
	}
	r.h.RecvConsumed(n)
	r.updateWindow()
	r.finish()
}

// updateWindow makes MAX_STREAM_DATA due when half of the window is used up,
// and doubles the window if that took less than two round trips: then the
// window, not the path, may be what limits the peer.
func (r *Recv) updateWindow() {
	if r.final >= 0 || r.maxDue || r.limit-r.read > r.window/2 {
		return
	}
	now := time.Now()
	if rtt := r.h.RTT(); rtt > 0 && now.Sub(r.epoch) < 2*rtt {
		r.window = min(2*r.window, r.maxWindow)
	}
	r.epoch = now
	r.update()
}

func (r *Recv) update() {
	r.maxDue = true
	r.h.RecvUpdate(r)
}

// Window is the present size of the stream's window in bytes. Monitor held.
func (r *Recv) Window() int64 { return r.window }

// Scarce reports whether the peer has used up most of its credit. Monitor held.
func (r *Recv) Scarce() bool { return r.limit-r.high <= r.window/4 }

// MaxDataDue says that MAX_STREAM_DATA with the value max is to be sent.
// Monitor held.
func (r *Recv) MaxDataDue() (max int64, ok bool) {
	return r.read + r.window, r.maxDue && !r.discarded
}

// MaxDataSent says that MAX_STREAM_DATA with the value max was packed.
// Monitor held.
func (r *Recv) MaxDataSent(max int64) {
	if max > r.limit {
		r.limit = max
	}
	r.maxDue = false
}

// MaxDataLost makes MAX_STREAM_DATA due again, with the value of then
// (RFC 9000 §13.3), unless the peer needs no credit any more. Monitor held.
func (r *Recv) MaxDataLost() {
	if r.final < 0 && !r.discarded && !r.maxDue {
		r.update()
	}
}

// StopSendingDue says that STOP_SENDING is to be sent. Monitor held.
func (r *Recv) StopSendingDue() (code uint64, ok bool) { return r.code, r.stopDue }

// StopSendingSent says that STOP_SENDING was packed. Monitor held.
func (r *Recv) StopSendingSent() { r.stopDue = false }

// StopSendingLost makes STOP_SENDING due again, unless the peer has one, or
// has ended the stream. Monitor held.
func (r *Recv) StopSendingLost() {
	if r.cancelled && !r.stopAcked && r.final < 0 && !r.done {
		r.stopDue = true
		r.h.RecvUpdate(r)
	}
}

// StopSendingAcked says that the peer has the STOP_SENDING. Monitor held.
func (r *Recv) StopSendingAcked() { r.stopAcked, r.stopDue = true, false }

// ConnClosed ends the stream with the connection: calls that wait return err,
// and what was not read is dropped. Monitor held.
func (r *Recv) ConnClosed(err error) {
	if r.err == nil {
		r.err = err
	}
	r.done = true
	r.maxDue, r.stopDue = false, false
	r.onSize = nil
	// EOF stays EOF, and so does what a RESET_STREAM_AT says.
	if r.final < 0 || r.read != r.last {
		r.discard()
	}
	r.gate.signalAll()
}
