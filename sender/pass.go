package sender

import (
	"math"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// build makes the next flight: what is due outside the streams first, then passes
// over the streams that the scheduler names. nil: nothing may or need be sent.
//
// The mutex is held, except while a source of self is called in place. If the caller is
// robbed of the token meanwhile the result is nil.
func (x *Sender) build(now time.Time, self *asker) *Flight {
	budget := x.budget(now)
	control, ack := x.host.Due(now)
	probes := x.rec.Probes(recovery.App)
	streams := x.streamsDue(now)
	if budget == 0 && streams {
		x.rec.SetAppLimited(false) // the window, or the pacer, holds bytes back
	}
	if !ack && (budget == 0 || !control && !streams && probes == 0) {
		return nil
	}
	if amp := x.host.AntiAmplification(); amp >= 0 && amp < x.size {
		return nil // not even an ACK (RFC 9000 §8.1)
	}
	// A key that has served as long as it may goes before the flight that would be
	// one too many (RFC 9001 §6.6).
	if x.early == nil {
		x.keys.MaybeUpdate(now, x.rec.PTO(recovery.App))
		if err := x.keys.SendLimit(); err != nil {
			x.host.KeysExhausted(err)
			return nil
		}
	}

	f := x.newFlight(x.size, max(budget, 1))
	x.host.AppendControl(f, now, budget == 0)
	var hastened mark
	if budget > 0 && probes > 0 {
		hastened = x.hastenProbe(f)
	}
	if budget > 0 && streams {
		if probes > 0 {
			self = nil // a probe never calls a source
		}
		if x.turns != nil {
			x.turns.SetTurn(x.turn())
		}
		x.passes(f, self)
	}
	if f.robbed {
		f.release()
		return nil
	}
	if budget > 0 && probes > 0 && !f.eliciting() {
		x.probe(f, probes)
	}
	if hastened.train != nil {
		hastened.elicit()
	} else {
		x.hastenEnd(f)
	}
	f.dropEmpty()
	if f.n == 0 || !x.ready { // or closed while a source was called
		f.release()
		return nil
	}
	return f
}

// turnTime is how long a stream's turn may take the path when it is worth more than one pass.
const turnTime = 100 * time.Microsecond

// turn is what a stream's turn is worth, in datagrams: what leaves in turnTime at the rate of
// late, a pass at least and a flight at most.
func (x *Sender) turn() int {
	n := x.passSlots()
	if rtt := x.rec.RTT(); rtt.Has && rtt.Smoothed > 0 {
		flown := int64(x.rec.BytesInFlight() / x.size)
		n = max(n, int(min(flown*int64(turnTime)/int64(rtt.Smoothed), int64(segments(x.size)))))
	}
	return n
}

// streamsDue reports whether a stream has something that should leave now. Less than enough
// may wait for more of a bulk writer's, until x.late.
func (x *Sender) streamsDue(now time.Time) bool {
	if e, _ := x.sched.Next(); e == nil {
		x.late = time.Time{}
		return false
	}
	if x.late.IsZero() || x.pressing > 0 {
		x.late = time.Time{}
		return true
	}
	late := !now.Before(x.late)
	if late {
		x.returns = 0
	}
	if late || x.unsent >= x.enough() {
		x.late = time.Time{}
	}
	return x.late.IsZero()
}

// budget is how many datagrams that count as in flight may leave now.
func (x *Sender) budget(now time.Time) int {
	inFlight := x.rec.BytesInFlight()
	window := x.cc.Window()
	if inFlight > 0 { // else no ACK brings the probe about
		window -= x.probeRoom
	}
	n := max(window-inFlight, 0) / x.size
	// Small openings of the window are left to grow while much is in flight: a call
	// with few datagrams costs nearly as much as one with many. More
	// acknowledgements are on their way, or the probe timer ends the wait.
	if n < fullPass && inFlight > window/2 && n < window/x.size/16 && x.haveMore(n*x.size) {
		n = 0
	}
	x.paused = time.Time{}
	if n > 0 {
		// The pacer opens with a whole quantum, so volleys stay whole.
		if n = min(n, x.pacer.Budget(now)/x.size); n == 0 {
			x.paused = x.pacer.Next(now)
			x.host.SetTimer(x.paused)
		}
	}
	// Probes are not bound by the congestion window (RFC 9002 §7.5).
	if p := x.rec.Probes(recovery.App); p > 0 {
		n = max(n, p)
		x.paused = time.Time{}
	}
	if amp := x.host.AntiAmplification(); amp >= 0 {
		n = min(n, amp/x.size)
	}
	return n
}

// haveMore reports whether more than n bytes could leave if the window let them: bytes at
// hand, or those of a source that fills packets in place.
func (x *Sender) haveMore(n int) bool {
	if x.unsent > n {
		return true
	}
	for _, a := range x.askers {
		if a.inPlace() && a.wants() && a.allowance() > int64(n) {
			return true
		}
	}
	return false
}

// passes runs passes until the flight is full or no stream has more. A source that fills
// packets in place is called by its own asker only: where another one's turn comes the
// flight ends, lest those behind it go first, and the asker gets the token next.
func (x *Sender) passes(f *Flight, self *asker) {
	defer func() {
		if !f.robbed {
			x.sched.FlightEnd()
		}
	}()
	x.bulk = nil
	for x.ready {
		e, quantum := x.sched.Next()
		if e == nil {
			return
		}
		st := e.Value.(*Stream)
		slots := st.slots
		if quantum > 0 {
			slots = min(slots, quantum)
		}
		n, end := 0, false
		switch a := st.asker; {
		case a == nil || !a.inPlace() || st.send.HasPending():
			n = x.pass(f, st, slots)
		case !a.wants():
		case a == self:
			n = x.passInPlace(f, a, slots)
		default:
			x.queue(a)
			end = a.idle // else it comes by itself
		}
		if f.robbed {
			return
		}
		more := st.pending()
		x.sched.Sent(e, n, more)
		if !more {
			st.press(false)
		}
		switch {
		case end:
			x.goOn(f, self)
			return
		case n == 0 && f.n == f.max && f.room() == 0:
			return
		}
	}
}

// goOn makes more passes over self's stream, whose turn is over, if a whole flight may
// leave and only in-place askers want to send: each has a flight then, in its turn.
func (x *Sender) goOn(f *Flight, self *asker) {
	if self == nil || x.unsent > 0 || f.max < segments(f.size) {
		return
	}
	for x.ready && !f.robbed && self.inPlace() && self.wants() {
		if x.passInPlace(f, self, self.st.slots) == 0 {
			return
		}
	}
}

// pass cuts the next contiguous range of a stream into slots and copies it into the
// flight. It returns how many slots it filled. The mutex is held all along, so what the
// stream offers at the beginning it takes as packed at the end.
func (x *Sender) pass(f *Flight, st *Stream, most int) (slots int) {
	s := st.send
	start, left, fin, lost, ok := s.Next(int(min(x.credit-x.used, math.MaxInt32)))
	if !ok {
		return 0
	}
	id, off := s.ID(), start
	if left == 0 { // nothing but FIN
		if !f.fits(wire.StreamHeaderLen(id, off, 0)) {
			return 0
		}
		f.stream(id, off, 0, true, true)
		f.slot(s, off, 0, true)
		s.Packed(off, 0, true)
		if x.trace != nil {
			f.passed(Pass{Stream: id, Off: off, Slots: 1, Fin: true, Lost: lost, Mode: st.source(off)})
		}
		x.latest = st
		return 1
	}
	// With Reread new bytes of the source are not kept once they are packed; but those
	// that a reset has spared are, as it is not asked again.
	var kept = true
	if a := st.asker; a != nil && a.reread && !lost && s.Err() == nil {
		if kept = start < a.from; kept && start+int64(left) > a.from {
			left, fin = int(a.from-start), false
		}
	}
	var cuts cuts
	for slots < most && left > 0 {
		n, length, ok := f.plan(id, off, left)
		if !ok {
			break
		}
		last := fin && n == left
		dst := f.stream(id, off, n, length, last)
		s.Copy(dst, off)
		f.slot(s, off, n, last)
		if !kept {
			cuts.add(st.asker, dst)
		}
		off += int64(n)
		left -= n
		slots++
	}
	if slots == 0 {
		return 0
	}
	fin = fin && left == 0
	if kept {
		x.used += int64(s.Packed(start, int(off-start), fin))
	} else {
		x.used += int64(s.PackedSource(start, cuts.lens[:slots], cuts.hashes[:slots], fin))
	}
	if !lost {
		st.packed(start, off, slots)
	}
	if x.trace != nil {
		f.passed(Pass{Stream: id, Off: start, Bytes: int(off - start), Slots: slots, Fin: fin, Lost: lost, Mode: st.source(start)})
	}
	x.latest = st
	if slots >= x.passSlots() {
		x.bulk = st
		st.press(st.pending() && !st.onlyNewBytes())
	}
	return slots
}

// probe fills a flight that nothing new is there for, on a probe timeout: with bytes that
// are in flight and at hand, or the FIN, of the stream that sent last, and else with a PING
// (RFC 9002 §6.2.4). It never calls a source.
func (x *Sender) probe(f *Flight, most int) {
	if st := x.latest; st != nil {
		s := st.send
		off, left, fin, ok := s.Probe(most * x.size)
		for ok && most > 0 && (left > 0 || fin) {
			n, length, room := f.plan(s.ID(), off, left)
			if !room {
				break
			}
			last := fin && n == left
			s.Copy(f.stream(s.ID(), off, n, length, last), off)
			f.slot(s, off, n, last)
			s.Packed(off, n, last)
			if x.trace != nil {
				f.passed(Pass{Stream: s.ID(), Off: off, Bytes: n, Slots: 1, Fin: last, Lost: true, Probe: true, Mode: st.source(off)})
			}
			off += int64(n)
			left -= n
			fin = fin && !last
			most--
		}
	}
	if !f.eliciting() {
		if b := f.Tail(1); b != nil {
			f.Wrote(len(wire.Ping{}.Append(b)), true, recovery.Frame{})
		}
	}
}

// plan decides the next slot for left bytes of a stream at off: how many of them it
// takes and whether its frame has a Length field. It opens a datagram if the open one
// has no useful room, and writes the PADDING of a frame that fits neither with a
// Length field nor without.
func (f *Flight) plan(id, off int64, left int) (n int, length, ok bool) {
	h := wire.StreamHeaderLen(id, off, -1)
	room := f.room()
	if room <= tinyTail && room < h+left {
		if !f.next() {
			return 0, false, false
		}
		room = f.room()
	}
	avail := room - h
	if left >= avail {
		return avail, false, true // fills the datagram: the frame runs to its end
	}
	if wire.StreamHeaderLen(id, off, left)+left > room {
		// The room beside the bytes is no more than a Length field. Behind a frame
		// without one nothing may follow, so the PADDING goes before it.
		f.pad(avail - left)
		return left, false, true
	}
	return left, true, true
}

// ahead foresees the next slots of a stream, at most len(bufs), given that all are filled
// with the left bytes from off on: what plan will say of them one by one. bufs become the
// places of their payload in the flight. It returns how many there are, and their bytes.
func (f *Flight) ahead(id, off int64, left int64, bufs [][]byte) (slots, bytes int) {
	for i := f.n; slots < len(bufs) && left > 0; slots++ {
		h := wire.StreamHeaderLen(id, off, -1)
		at, end := f.w, f.limit
		if slots > 0 || f.room() <= tinyTail { // only the first may use what is open
			if i == f.max {
				break
			}
			at, end = i*f.size+f.hdr, (i+1)*f.size-overhead
			i++
		}
		n := int(min(int64(end-at-h), left))
		bufs[slots] = f.buf[at+h : at+h+n : at+h+n]
		off += int64(n)
		left -= int64(n)
		bytes += n
	}
	return slots, bytes
}

// passSize is exactly what the next pass of a stream carries from offset off on, in
// slots datagrams of their own, given that limit bytes may be sent.
func (x *Sender) passSize(id, off int64, slots int, limit int64) int {
	hdr, _ := x.header()
	n := 0
	for range min(slots, x.passSlots()) {
		n += x.size - hdr - overhead - wire.StreamHeaderLen(id, off+int64(n), -1)
	}
	return int(min(int64(n), limit))
}
