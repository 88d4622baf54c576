package sender

import (
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// SetImmediateAck says whether the peer knows the IMMEDIATE_ACK frame, and whether it was
// asked for few ACKs (draft-ietf-quic-ack-frequency). Then flights behind which nothing more
// is coming end with the frame: the peer would wait in vain for more to acknowledge.
func (x *Sender) SetImmediateAck(known, sparse bool) { x.hastens, x.sparse = known, sparse }

// mark is a datagram of a flight.
type mark struct {
	train *recovery.Train
	bit   uint16
}

// hastenProbe has the probes that follow in f acknowledged at once. The frame counts as
// ack-eliciting when they are there (elicit), as it makes no probe by itself.
func (x *Sender) hastenProbe(f *Flight) mark {
	if !x.immediateAck(f, false) {
		return mark{}
	}
	t := f.last()
	return mark{t, 1 << (t.N - 1)}
}

func (m mark) elicit() {
	m.train.Eliciting |= m.bit
	m.train.InFlight |= m.bit
}

// hastenEnd has f acknowledged at once if it is the end of what there is to send: streams
// have no more, and FIN was the last, or less than a whole pass. What a bulk writer that
// comes back in a moment leaves behind has waited for it: see mayWait.
func (x *Sender) hastenEnd(f *Flight) {
	if !x.sparse || x.unsent > 0 || !f.eliciting() || f.n%x.passSlots() == 0 && !f.last().Fin {
		return
	}
	if e, _ := x.sched.Next(); e == nil {
		x.immediateAck(f, true)
	}
}

// immediateAck writes the frame, and reports false if it did not.
func (x *Sender) immediateAck(f *Flight, eliciting bool) bool {
	if !x.hastens || f.early != nil { // RFC 9000 §7.4.1: what 0-RTT may hold is remembered
		return false
	}
	b := f.Tail(1)
	if b == nil {
		return false
	}
	f.Wrote(len(wire.ImmediateAck{}.Append(b)), eliciting, recovery.Frame{})
	return true
}
