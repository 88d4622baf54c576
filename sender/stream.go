package sender

import (
	"math"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/scheduler"
	"github.com/volley-quic/volley/stream"
)

// Stream is the sending half of one stream as the sender drives it: its bytes, its
// place in the schedule, and its emission.
type Stream struct {
	x       *Sender
	send    *stream.Send
	entry   scheduler.Entry
	tuning  emit.Tuning
	slots   int // tuning's MaxDatagrams, within its limits
	stats   emit.Stats
	asker   *asker // while a SendFrom or ReadFrom runs
	armed   bool   // Ready was called and no asker has seen it yet
	presses bool   // what it has to send does not wait for more of a bulk writer's
	// sourced is where the bytes end that came from a source and were kept for packing.
	// Bytes of Write may lie before; who mixes both on one stream gets counters that do.
	sourced int64
	told    []*asker // those with an OnAcked that has more to be told, also after they ended
}

// Init makes the zero Stream that of x and s.
func (st *Stream) Init(x *Sender, s *stream.Send) {
	st.x, st.send, st.slots = x, s, emit.MaxDatagrams
	st.entry.Init(s.ID(), st)
}

// SetTuning changes how the stream is emitted, from the next pass on. An emission that
// keeps its bytes goes on to keep them, unless the new mode cannot: then it needs its
// source until what it emits from here on is acknowledged.
func (st *Stream) SetTuning(t emit.Tuning) {
	st.tuning, st.slots = t, t.Effective().MaxDatagrams
	if a := st.asker; a != nil {
		a.choose()
		a.turn = true
		st.send.Wake()
	}
}

// Stats returns a copy of the stream's counters.
func (st *Stream) Stats() emit.Stats { return st.stats }

// Ready un-parks an asker whose source answered emit.ErrNotReady. It is remembered if
// there is none, or if it is amid a call of its source: a wake-up is never lost.
func (st *Stream) Ready() {
	st.armed = true
	if st.asker != nil {
		st.send.Wake()
	}
}

// CreditRose makes the stream's source look at its credit again.
func (st *Stream) CreditRose() {
	if a := st.asker; a != nil {
		a.turn = true
		st.send.Wake()
	}
}

// pending reports whether the stream belongs into the ready set. A source that fills
// packets in place does while its asker waits to be named; one that is busy comes by itself.
func (st *Stream) pending() bool {
	a := st.asker
	return st.send.HasPending() || a != nil && a.inPlace() && (a.idle || !a.queued) && a.wants()
}

// onlyNewBytes reports whether the stream has new bytes to send, and neither repairs nor
// ends anything with them.
func (st *Stream) onlyNewBytes() bool {
	_, n, fin, lost, ok := st.send.Next(math.MaxInt32)
	return ok && n > 0 && !fin && !lost && st.send.Err() == nil
}

// packed counts the bytes of a source in a range that was packed for the first time.
func (st *Stream) packed(start, end int64, slots int) {
	if start < st.sourced {
		st.stats.Datagrams += uint64(slots)
		st.stats.Bytes += uint64(min(end, st.sourced) - start)
	}
}

// Ready marks a stream as having something to send. Only new bytes of a bulk writer, or of
// a source, may wait until there are more of them.
func (x *Sender) Ready(st *Stream) {
	x.sched.Ready(&st.entry)
	st.press(st.presses || st != x.bulk && st.asker == nil || !st.onlyNewBytes())
}

// press says whether the stream presses.
func (st *Stream) press(on bool) {
	if on == st.presses {
		return
	}
	st.presses = on
	if on {
		st.x.pressing++
	} else {
		st.x.pressing--
	}
}

// Remove takes a stream out of the schedule for good.
func (x *Sender) Remove(st *Stream) {
	x.sched.Idle(&st.entry)
	st.press(false)
	for _, p := range []**Stream{&x.latest, &x.bulk, &x.steady} {
		if *p == st {
			*p = nil
		}
	}
}

// SetPriority sets a stream's urgency, 0 to 7 with the lowest first, and whether it
// shares its turn with streams of the same urgency (RFC 9218 §4).
func (x *Sender) SetPriority(st *Stream, urgency int8, incremental bool) {
	x.sched.SetPriority(&st.entry, urgency, incremental)
}
