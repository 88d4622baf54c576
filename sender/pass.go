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
// The mutex is held, except while a source of self is called in place.
func (x *Sender) build(now time.Time, self *asker) *Flight {
	budget := x.budget(now)
	control, ack := x.host.Due(now)
	probes := x.rec.Probes(recovery.App)
	streams := x.streamsDue(now)
	if budget == 0 && streams {
		x.rec.SetAppLimited(false) // the window, or the pacer, holds bytes back
		x.late = time.Time{}       // they wait for that, and for nothing else
	}
	if !ack && (budget == 0 || !control && !streams && probes == 0) {
		return nil
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

	next := x.rec.NextPN(recovery.App)
	pnLen := wire.PNLen(next+maxSegments, x.rec.LargestAcked(recovery.App))
	f := newFlight(x, x.size, x.headerLen(pnLen), pnLen, max(budget, 1))
	if control || ack || budget > 0 {
		x.host.AppendControl(f, now, budget == 0)
	}
	if budget > 0 && streams {
		x.passes(f, self)
	}
	if budget > 0 && probes > 0 && !f.eliciting() {
		// A probe carries new or lost bytes, FINs or control frames if there are any,
		// and a PING otherwise (RFC 9002 §6.2.4). It never calls a source.
		if b := f.Tail(1); b != nil {
			wire.Ping{}.Append(b)
			f.Wrote(1, true, recovery.Frame{})
		}
	}
	f.dropEmpty()
	if f.n == 0 || !x.ready { // or closed while a source was called
		f.release()
		return nil
	}
	x.late = time.Time{}
	x.flush(f, now)
	x.rec.SetAppLimited(!x.fillsWindow())
	return f
}

// fillsWindow reports whether the congestion window is put to use. It must not grow
// while something else sets the pace: the application, flow control, or this machine
// (RFC 9002 §7.8). In slow start half a window is enough, as it doubles.
func (x *Sender) fillsWindow() bool {
	inFlight, window := x.rec.BytesInFlight(), x.cc.Window()
	return inFlight+x.passBytes() >= window || x.cc.InSlowStart() && inFlight >= window/2
}

// eliciting reports whether the flight will be acknowledged.
func (f *Flight) eliciting() bool {
	for _, t := range f.trains {
		if t.Eliciting != 0 {
			return true
		}
	}
	return false
}

// streamsDue reports whether a stream has something that should leave now. The rest
// of a bulk writer's bytes, less than a pass, waits for more until x.late.
func (x *Sender) streamsDue(now time.Time) bool {
	if e, _ := x.sched.Next(); e == nil {
		return false
	}
	return x.late.IsZero() || !now.Before(x.late) || x.unsent >= x.passBytes()
}

// passBytes is about what a full pass carries.
func (x *Sender) passBytes() int { return fullPass * (x.size - 48) }

// budget is how many datagrams that count as in flight may leave now.
func (x *Sender) budget(now time.Time) int {
	inFlight := x.rec.BytesInFlight()
	window := x.cc.Window()
	n := (window - inFlight) / x.size
	// Small openings of the window are left to grow while much is in flight: a call
	// with few datagrams costs nearly as much as one with many. More
	// acknowledgements are on their way, or the probe timer ends the wait.
	if n < fullPass && inFlight > window/2 && n < window/x.size/4 && x.unsent > max(n, 0)*x.size {
		n = 0
	}
	x.paused = time.Time{}
	if n > 0 {
		// The pacer opens with a whole quantum, so volleys stay whole.
		if n = min(n, x.pacer.Budget(now)/x.size); n == 0 {
			x.paused = x.pacer.Next(now)
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
	return max(n, 0)
}

// passes runs passes until the flight is full or no stream has more.
func (x *Sender) passes(f *Flight, self *asker) {
	defer x.sched.FlightEnd()
	for {
		e, quantum := x.sched.Next()
		if e == nil {
			return
		}
		st := e.Value.(*Stream)
		slots := st.tuning.MaxDatagrams
		if quantum > 0 {
			slots = min(slots, quantum)
		}
		n := 0
		if st.inPlace() && !st.send.HasPending() {
			n = x.passInPlace(f, st, slots, self)
		} else {
			n = x.pass(f, st, slots)
		}
		more := st.pending()
		x.sched.Sent(e, n, more)
		if n == 0 && f.n == f.max && f.Room() == 0 || !x.ready {
			return
		}
	}
}

// pass cuts the next contiguous range of a stream into slots and copies it into the
// flight. It returns how many slots it filled.
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
		return 1
	}
	for slots < most && left > 0 {
		n, length, ok := f.plan(id, off, left)
		if !ok {
			break
		}
		last := fin && n == left
		s.Copy(f.stream(id, off, n, length, last), off)
		f.slot(s, off, n, last)
		off += int64(n)
		left -= n
		slots++
	}
	if slots > 0 {
		x.used += int64(s.Packed(start, int(off-start), fin && left == 0))
		if !lost && start < st.sourced {
			st.stats.Datagrams += uint64(slots)
			st.stats.Bytes += uint64(off - start)
		}
	}
	return slots
}

// plan decides the next slot for left bytes of a stream at off: how many of them it
// takes and whether its frame has a Length field. It opens a datagram if the open one
// has no useful room, and writes the PADDING of a frame that fits neither with a
// Length field nor without.
func (f *Flight) plan(id, off int64, left int) (n int, length, ok bool) {
	h := wire.StreamHeaderLen(id, off, -1)
	room := f.Room()
	if room <= h || room <= tinyTail && room < wire.StreamHeaderLen(id, off, left)+left {
		if !f.next() {
			return 0, false, false
		}
		room = f.Room()
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

// Ready marks a stream as having something to send.
func (x *Sender) Ready(st *Stream) { x.sched.Ready(st.entry) }

// Remove takes a stream out of the schedule for good.
func (x *Sender) Remove(st *Stream) { x.sched.Idle(st.entry) }

// SetPriority sets a stream's urgency, 0 to 7 with the lowest first, and whether it
// shares its turn with streams of the same urgency (RFC 9218 §4).
func (x *Sender) SetPriority(st *Stream, urgency int8, incremental bool) {
	x.sched.SetPriority(st.entry, urgency, incremental)
}
