package sender

import (
	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/scheduler"
	"github.com/volley-quic/volley/stream"
)

// Stream is the sending half of one stream as the sender drives it: its bytes, its
// place in the schedule, and its emission.
type Stream struct {
	x      *Sender
	send   *stream.Send
	entry  *scheduler.Entry
	tuning emit.Tuning // effective: Mode may be Auto, MaxDatagrams is 1..10
	stats  emit.Stats
	asker  *asker // while a SendFrom or ReadFrom runs
	// sourced is where the bytes end that came from a source and are retained. Bytes
	// of Write may lie before; who mixes both on one stream gets counters that do.
	sourced int64
	armed   bool // Ready was called and no asker has seen it yet
}

// NewStream returns the sending half of stream s.
func (x *Sender) NewStream(s *stream.Send) *Stream {
	st := &Stream{x: x, send: s, tuning: emit.Tuning{}.Effective()}
	st.entry = scheduler.NewEntry(s.ID(), st)
	return st
}

// SetTuning changes how the stream is emitted, from the next pass on. An emission
// that is under way keeps to Reread or to retained bytes as it began.
func (st *Stream) SetTuning(t emit.Tuning) {
	st.tuning = t.Effective()
	if a := st.asker; a != nil {
		a.choose()
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

// pending reports whether the stream belongs into the ready set.
func (st *Stream) pending() bool {
	return st.send.HasPending() || st.inPlace() && st.asker.wants()
}

// inPlace reports whether the stream's next bytes come from a source that fills
// packets, or lends memory for them, while its asker holds the token.
func (st *Stream) inPlace() bool { return st.asker != nil && st.asker.placesNow() }
