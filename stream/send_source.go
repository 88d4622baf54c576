package stream

import (
	"context"
	"math"
	"os"

	"github.com/volley-quic/volley/emit"
)

// source is what a stream needs for SendFrom and ReadFrom. The goroutine in
// such a call, the asker, is inside the gate until EndSource. A filled block
// becomes the stream's next bytes (AppendBlock), packed and kept as those of a
// Write. In the modes that keep nothing, bytes are packed without ever being
// at hand (PackedSource): each datagram's share is a slot, with a hash by
// which the same bytes are known when they are read again after a loss.
type source struct {
	ready   func() bool // what the asker waits for, while it waits
	slots   []slot      // unacked, by offset; slots[:head] is free
	head    int
	nlost   int   // lost slots
	from    int64 // where the asker that is inside began: slots below have none
	onAcked func(off int64)
	tell    func() // runs onAcked, made once
	telling bool   // tell is under way
	told    int64  // the offset that onAcked knows
	last    int64  // the last offset that it will know, once the stream is reset
	lens    [emit.MaxDatagrams]uint16
	hashes  [emit.MaxDatagrams]uint64
}

// slot is a datagram's share of the stream whose bytes are not at hand.
type slot struct {
	off  int64
	hash uint64
	n    uint16
	lost bool
}

func (l slot) end() int64 { return l.off + int64(l.n) }

func (s *Send) getSource() *source {
	if s.src == nil {
		s.src = &source{}
	}
	return s.src
}

// find returns the index of the first slot that ends above off.
func (c *source) find(off int64) int {
	lo, hi := c.head, len(c.slots)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); c.slots[m].end() > off {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo
}

// replace puts the slots that begin at off, of the given lengths, in the
// place of slots i..j-1.
func (c *source) replace(i, j int, off int64, lens []uint16, hashes []uint64) {
	for _, l := range c.slots[i:j] {
		if l.lost {
			c.nlost--
		}
	}
	n := 0
	for _, k := range lens {
		if k > 0 {
			n++
		}
	}
	if i == j && i == len(c.slots) && c.head > 0 && len(c.slots)+n > cap(c.slots) && c.head >= len(c.slots)-c.head {
		// Reuse the free front instead of growing.
		k := copy(c.slots, c.slots[c.head:])
		c.slots, c.head = c.slots[:k], 0
		i, j = k, k
	}
	old := len(c.slots)
	for range n - (j - i) {
		c.slots = append(c.slots, slot{})
	}
	copy(c.slots[i+n:], c.slots[j:old])
	c.slots = c.slots[:old+n-(j-i)]
	for k, ln := range lens {
		if ln == 0 {
			continue
		}
		l := slot{off: off, n: ln}
		if k < len(hashes) {
			l.hash = hashes[k]
		}
		c.slots[i] = l
		i++
		off += int64(ln)
	}
	c.trim(0)
}

// trim drops the slots below base.
func (c *source) trim(base int64) {
	for c.head < len(c.slots) && c.slots[c.head].end() <= base {
		if c.slots[c.head].lost {
			c.nlost--
		}
		c.head++
	}
	if c.head == len(c.slots) {
		c.slots, c.head = c.slots[:0], 0
	}
}

// acked follows an acknowledgement of [lo, hi).
func (c *source) acked(s *Send, lo, hi int64) {
	if c.nlost > 0 {
		for i := c.find(lo); i < len(c.slots) && c.slots[i].off < hi; i++ {
			l := &c.slots[i]
			if a, b := s.unacked(l.off, l.end()); l.lost && a == b {
				l.lost = false
				c.nlost--
			}
		}
	}
	c.trim(s.base)
	if c.told < s.base && s.err == nil {
		c.tellLater(s)
	}
}

// tellLater has onAcked told. One batch per ACK: what comes before tell runs is in it.
func (c *source) tellLater(s *Send) {
	if c.onAcked != nil && !c.telling {
		c.telling = true
		s.h.After(c.tell)
	}
}

// lost follows the loss of [lo, hi), all unacked: bytes at hand are pending
// again, slots wait for the asker.
func (c *source) lost(s *Send, lo, hi int64) {
	i := c.find(lo)
	for ; lo < hi && i < len(c.slots) && c.slots[i].off < hi; i++ {
		l := &c.slots[i]
		s.lost.add(lo, l.off)
		if !l.lost {
			l.lost = true
			c.nlost++
		}
		lo = l.end()
	}
	s.lost.add(lo, hi)
	c.abandon(s)
}

// abandon resets a stream that has lost bytes which nobody can read again, or takes them
// out of what a reset has spared.
func (c *source) abandon(s *Send) {
	if c.nlost == 0 || s.silent {
		return
	}
	for _, l := range c.slots[c.head:] {
		if l.lost && (s.err != nil || s.gate.inside != aSource || l.off < c.from) {
			s.abort(0, errs.Reset(s.id, 0, false), s.spared())
			return
		}
	}
}

// kept is the offset of the first byte that would have to be read again.
func (c *source) kept(s *Send) int64 {
	if c.nlost > 0 {
		for _, l := range c.slots[c.head:] {
			if l.lost {
				off, _ := s.unacked(l.off, l.end())
				return off
			}
		}
	}
	return math.MaxInt64
}

// cut forgets the slots that a reset does not spare. Those that are lost are among them.
func (c *source) cut(off int64) {
	i := c.head
	for i < len(c.slots) && c.slots[i].off < off && !c.slots[i].lost {
		i++
	}
	c.slots, c.nlost = c.slots[:i], 0
	c.trim(0)
}

// BeginSource lets a source in: until EndSource, calls that would add bytes
// return emit.ErrBusy. It returns that itself if another source or a
// write is going on, and the error that a Write would return if the stream
// takes no more bytes.
func (s *Send) BeginSource(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.h.Lock()
	err := s.enter(aSource)
	lifted := false
	if err == nil {
		s.getSource().from = s.acc
		lifted = s.uncork()
	}
	s.unlock(lifted)
	return err
}

// EndSource lets the source out. If it leaves slots behind, they must arrive
// as they were sent: one that is lost resets the stream (code 0), as nobody
// can read it again.
func (s *Send) EndSource() {
	s.h.Lock()
	due := false
	s.src.ready = nil
	s.exit(&due)
	s.src.abandon(s)
	due = due || s.reset == resetDue
	s.unlock(due)
}

// WaitSource parks the asker until ready, which is called with the monitor
// held and must be quick, or until the stream, the connection, ctx or the
// deadline ends; then it returns why. ready is asked again after everything
// that happens to the stream, and by Wake.
func (s *Send) WaitSource(ctx context.Context, ready func() bool) error {
	h := s.h
	h.Lock()
	defer h.Unlock()
	for {
		switch {
		case s.err != nil:
			return s.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.gate.expired():
			return os.ErrDeadlineExceeded
		case ready():
			return nil
		}
		if s.Blocked() {
			// Nobody else knows that there are bytes to come.
			h.SendReady(s)
			h.PushUnlock(s)
			h.Lock()
			if s.err != nil || ready() {
				continue
			}
		}
		s.want = wantSource
		s.src.ready = ready
		s.gate.park(h, ctx)
		s.src.ready = nil
	}
}

func (s *Send) wakeSource() {
	if s.gate.parked && s.want == wantSource && s.src.ready() {
		s.gate.signal()
	}
}

// AppendBlock makes the first n bytes of b the stream's next. It takes b over
// in any case; an error says that the stream takes no more bytes. It does not
// wait: how far to run ahead is for the asker to see. Monitor held.
func (s *Send) AppendBlock(b *Block, n int) error {
	err := s.err
	if err == nil && s.finQueued {
		err = errs.Closed
	}
	if err != nil || n == 0 {
		b.free(s.h)
		return err
	}
	s.link(b, n)
	s.h.Buffered(n)
	s.publish()
	return nil
}

// PackedSource is Packed for bytes that are not kept: slots of the given
// lengths from off on, with a hash for each, known until they are
// acknowledged. They are the stream's next bytes (fin: they end it), and at
// hand no longer, or never were if nothing was unsent; or, from below
// NewOffset, lost slots that were read again, cut anew at will but together
// as long as whole old ones. Of a block that is at hand all bytes must be kept,
// or none. It returns how many bytes are new, or -1 if they must not leave.
// Monitor held.
func (s *Send) PackedSource(off int64, lens []uint16, hashes []uint64, fin bool) int {
	n := 0
	for _, k := range lens {
		n += int(k)
	}
	end := off + int64(n)
	if s.err != nil || s.done {
		return -1
	}
	c := s.getSource()
	if off < s.next {
		i := c.find(off)
		j := i
		for j < len(c.slots) && c.slots[j].end() <= end {
			j++
		}
		if i == j || c.slots[i].off != off || c.slots[j-1].end() != end || fin && (!s.finQueued || end != s.acc) {
			return -1
		}
		c.replace(i, j, off, lens, hashes)
		if fin && !s.finAcked {
			s.sentFin()
		}
		return 0
	}
	atHand := s.acc > s.next
	switch {
	case off != s.next, end > s.credit,
		atHand && (end > s.acc || fin && (!s.finQueued || end != s.acc)),
		!atHand && s.finQueued && (n > 0 || !fin):
		return -1
	}
	c.replace(len(c.slots), len(c.slots), off, lens, hashes)
	s.next = end
	if atHand {
		s.q.discard(off, end, s.h)
		s.h.Buffered(-n)
		s.drained()
		s.wakeSource()
	} else {
		s.acc = end
	}
	if fin {
		if !s.finQueued {
			s.closing, s.finQueued = true, true
			s.fireWritable()
			s.endContext(errs.Closed)
		}
		s.sentFin()
	}
	return n
}

// LostSource returns the first run of lost slots, at most emit.MaxDatagrams
// of them: where it begins, and the lengths and hashes with which they were
// sent. The slices are valid until the next call. Monitor held.
func (s *Send) LostSource() (off int64, lens []uint16, hashes []uint64, ok bool) {
	c := s.src
	if c == nil || c.nlost == 0 {
		return 0, nil, nil, false
	}
	i := c.head
	for !c.slots[i].lost {
		i++
	}
	off = c.slots[i].off
	n := 0
	for ; i < len(c.slots) && n < len(c.lens) && c.slots[i].lost; i++ {
		if n > 0 && c.slots[i].off != c.slots[i-1].end() {
			break
		}
		c.lens[n], c.hashes[n] = c.slots[i].n, c.slots[i].hash
		n++
	}
	return off, c.lens[:n], c.hashes[:n], true
}

// Refill puts back bytes that LostSource named, whole slots of them: from
// here on they are at hand as others are, and pending, but for what was
// acknowledged meanwhile. It takes b over in any case. Monitor held.
func (s *Send) Refill(off int64, b *Block, n int) {
	c, end := s.src, off+int64(n)
	if s.err != nil || s.done || c == nil {
		b.free(s.h)
		return
	}
	i := c.find(off)
	j := i
	for j < len(c.slots) && c.slots[j].off >= off && c.slots[j].end() <= end {
		j++
	}
	b.off, b.n, b.live = off, n, 0
	for _, l := range c.slots[i:j] {
		for lo := l.off; ; {
			a, z := s.unacked(lo, l.end())
			if a == z {
				break
			}
			b.live += int(z - a)
			s.lost.add(a, z)
			lo = z
		}
	}
	c.replace(i, j, off, nil, nil)
	if b.live == 0 {
		b.free(s.h)
		return
	}
	s.q.insert(b)
	s.h.SendReady(s)
}

// NewOffset is the offset of the next byte that is added. Monitor held.
func (s *Send) NewOffset() int64 { return s.acc }

// NewCredit is how many more bytes may be added and still have credit.
// Monitor held.
func (s *Send) NewCredit() int64 { return s.credit - s.acc }

// FinishSource makes FIN due at NewOffset; with the last AppendBlock, in the
// same hold of the monitor, it rides on the last bytes. Monitor held.
func (s *Send) FinishSource() {
	if s.err == nil && !s.finQueued {
		s.queueFin()
		s.endContext(errs.Closed)
	}
}

// AllAcked reports whether every byte below off is acknowledged. Monitor held.
func (s *Send) AllAcked(off int64) bool { return s.base >= off }

// Acked is the offset below which all is acknowledged, or was when the stream was reset.
// Monitor held.
func (s *Send) Acked() int64 {
	if s.err != nil {
		return s.src.last
	}
	return s.base
}

// TellAcked has the function of OnAckedFunc called though nothing moved. Monitor held.
func (s *Send) TellAcked() { s.src.tellLater(s) }

// OnAckedFunc has f called with the offset below which all is acknowledged,
// after every ACK that moves it, and when the stream ends before all is; nil
// ends that. f runs by Host.After. Monitor held.
func (s *Send) OnAckedFunc(f func(off int64)) {
	c := s.getSource()
	c.onAcked, c.told = f, s.base
	if c.tell == nil && f != nil {
		c.tell = func() {
			s.h.Lock()
			f, off := c.onAcked, s.Acked()
			c.told, c.telling = off, false
			s.h.Unlock()
			if f != nil {
				f(off)
			}
		}
	}
}
