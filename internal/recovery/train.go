package recovery

import (
	"math/bits"
	"sync"
	"time"
)

// MaxPackets bounds a train. Passes use at most ten.
const MaxPackets = 16

// Data is whoever owns bytes that packets carry: a stream's send side, or a
// crypto stream. Offsets are absolute. Called with the connection's mutex
// held; must not call back into Recovery.
//
// OnLost also gives back what the kernel refused to send. A range given to
// OnLost may come to OnAcked after all, when only its ACK was late.
type Data interface {
	OnAcked(off int64, n int, fin bool)
	OnLost(off int64, n int, fin bool)
}

// Frame is any other frame, in its Owner's own terms. Kind 0 is no frame.
type Frame struct {
	Kind     uint8
	ID, A, B int64
}

// Owner hears what became of Frames. Called with the connection's mutex held;
// must not call back into Recovery. As with Data, FrameAcked may follow
// FrameLost, and so may FrameLost: a frame is also given back, to be sent once
// more, when a probe timeout says that it may be lost.
type Owner interface {
	FrameAcked(Frame)
	FrameLost(Frame)
}

// Train is the record of the packets of one pass: consecutive numbers, one
// time, and at most one run of one owner's bytes laid over the packets. It
// belongs to Recovery from OnSent on.
type Train struct {
	First int64     // number of the first packet; set by OnSent
	N     int       // packets: 1..MaxPackets
	Time  time.Time // when they left; set by OnSent and Restamp

	// Slot i of Data lies in packet i, at Off + Lens[0] + … + Lens[i-1].
	// Fin: the last slot, be it empty or not, carries the FIN. If packets
	// without a slot follow it in the train, the FIN counts as acknowledged
	// only when they are too, and as lost as soon as one of them is.
	Data Data
	Off  int64
	Lens [MaxPackets]uint16
	Fin  bool

	Sizes     [MaxPackets]uint16 // bytes of UDP payload, for congestion control
	Eliciting uint16             // bit i: packet i is ack-eliciting
	InFlight  uint16             // bit i: packet i counts in bytes in flight

	Extra []Extra // the other frames in these packets; the array is kept across reuse

	Probe bool // a path MTU probe, whose loss says nothing of congestion (RFC 9000 §14.4)
	ECT0  bool // the packets left marked ECT(0), which validates the peer's counts (RFC 9000 §13.4.2)

	// Elsewhere: the packets left by another path than the one in use. What becomes of
	// them says nothing about that: no RTT sample, no threshold, no congestion (RFC 9000
	// §9.4). Neither Eliciting nor InFlight is set in those that probe a path.
	Elsewhere bool

	// What became of each packet. A packet with no bit set is undecided; one
	// with both lost and acked was declared lost and then acknowledged.
	acked, lost, unsent uint16
	lostAt              time.Time // when the latest of the lost were declared so
	lostLast            uint16    // which those were
}

// Extra is one more frame of a packet: either a Frame or a range of Data.
type Extra struct {
	I     uint8 // index of the packet within the train
	Frame Frame
	Data  Data
	Off   int64
	Len   int
	Fin   bool
}

// below is the mask of packets 0..n-1.
func below(n int) uint16 { return uint16(1<<n - 1) }

func (t *Train) last() int64       { return t.First + int64(t.N) - 1 }
func (t *Train) undecided() uint16 { return below(t.N) &^ (t.acked | t.lost | t.unsent) }
func (t *Train) settled() bool     { return t.acked|t.unsent == below(t.N) }

// span is the mask of the packets numbered lo..hi.
func (t *Train) span(lo, hi int64) uint16 {
	if hi < t.First || lo > t.last() {
		return 0
	}
	from := max(lo-t.First, 0)
	to := min(hi-t.First, int64(t.N)-1)
	return below(int(to)+1) &^ below(int(from))
}

// bytes is the size of the packets of mask that counted as in flight.
func (t *Train) bytes(mask uint16) (n int) {
	for m := mask & t.InFlight; m != 0; m &= m - 1 {
		n += int(t.Sizes[bits.TrailingZeros16(m)])
	}
	return n
}

// finMask is where the FIN may lie: from the last slot that has bytes to the
// end. It is one packet unless packets without a slot follow.
func (t *Train) finMask() uint16 {
	if !t.Fin {
		return 0
	}
	for i := t.N - 1; i >= 0; i-- {
		if t.Lens[i] != 0 {
			return below(t.N) &^ below(i)
		}
	}
	return below(t.N) &^ below(t.N-1)
}

// tell reports the packets of mask to their owners as acknowledged or, with
// acked false, as lost. A run of neighbours is one call.
func (t *Train) tell(mask uint16, acked bool, owner Owner) {
	if t.Data != nil {
		fin := t.finMask()
		if acked && t.acked&fin != fin {
			fin = 0
		}
		fin &= mask
		off := t.Off
		for i := 0; i < t.N; {
			if mask>>i&1 == 0 {
				off += int64(t.Lens[i])
				i++
				continue
			}
			from, start := i, off
			for i < t.N && mask>>i&1 != 0 {
				off += int64(t.Lens[i])
				i++
			}
			run := below(i) &^ below(from)
			// The FIN is told once, with the run that reaches furthest.
			withFin := fin&run != 0 && fin>>i == 0
			tellData(t.Data, start, int(off-start), withFin, acked)
		}
	}
	for i := range t.Extra {
		e := &t.Extra[i]
		if mask>>e.I&1 == 0 {
			continue
		}
		switch {
		case e.Data != nil:
			tellData(e.Data, e.Off, e.Len, e.Fin, acked)
		case e.Frame.Kind == 0:
		case acked:
			owner.FrameAcked(e.Frame)
		default:
			owner.FrameLost(e.Frame)
		}
	}
}

func tellData(d Data, off int64, n int, fin, acked bool) {
	switch {
	case n == 0 && !fin:
	case acked:
		d.OnAcked(off, n, fin)
	default:
		d.OnLost(off, n, fin)
	}
}

// split moves the packets from index k on into u, a zeroed train.
func (t *Train) split(k int, u *Train) {
	u.First, u.N, u.Time = t.First+int64(k), t.N-k, t.Time
	u.Data, u.Off = t.Data, t.Off
	for _, n := range t.Lens[:k] {
		u.Off += int64(n)
	}
	if t.finMask()>>k != 0 {
		u.Fin, t.Fin = true, false
	}
	copy(u.Lens[:], t.Lens[k:])
	copy(u.Sizes[:], t.Sizes[k:])
	clear(t.Lens[k:])
	u.Probe, u.ECT0, u.Elsewhere, u.lostAt = t.Probe, t.ECT0, t.Elsewhere, t.lostAt
	cut := func(from, to *uint16) {
		*to = *from >> k
		*from &= below(k)
	}
	cut(&t.Eliciting, &u.Eliciting)
	cut(&t.InFlight, &u.InFlight)
	cut(&t.acked, &u.acked)
	cut(&t.lost, &u.lost)
	cut(&t.unsent, &u.unsent)
	cut(&t.lostLast, &u.lostLast)
	kept := t.Extra[:0]
	for _, e := range t.Extra {
		if int(e.I) < k {
			kept = append(kept, e)
			continue
		}
		e.I -= uint8(k)
		u.Extra = append(u.Extra, e)
	}
	clear(t.Extra[len(kept):])
	t.Extra = kept
	t.N = k
}

// Trains are recycled through a short list per connection and, beyond that,
// one pool for all, so that a connection does not keep its peak's memory.
const maxFree = 64

var pool sync.Pool

// New ones are made several at a time, each with room for as many extras as most have:
// there are thousands where much is in flight.
type newTrains [8]struct {
	Train
	extra [2]Extra
}

// NewTrain returns an empty train. Its Extra has capacity: append to it.
func (r *Recovery) NewTrain() *Train {
	if len(r.free) == 0 {
		if t, _ := pool.Get().(*Train); t != nil {
			return t
		}
		ts := new(newTrains)
		for i := range ts {
			t := &ts[i]
			t.Extra = t.extra[:0]
			r.free = append(r.free, &t.Train)
		}
	}
	n := len(r.free)
	t := r.free[n-1]
	r.free = r.free[:n-1]
	return t
}

func (r *Recovery) recycle(t *Train) {
	clear(t.Extra) // holds pointers to streams
	*t = Train{Extra: t.Extra[:0]}
	if len(r.free) < maxFree {
		r.free = append(r.free, t)
		return
	}
	pool.Put(t)
}
