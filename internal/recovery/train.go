package recovery

import "time"

// MaxPackets bounds a train; passes use at most ten.
const MaxPackets = 16

// Data is whoever owns bytes carried by packets: a stream's send side, or a
// crypto stream. Offsets are absolute. Called with the connection's mutex
// held; it must not call back into Recovery.
//
// A range may be given to OnLost and later to OnAcked, when the ACK was only
// late. Ranges of packets that the kernel refused come by OnLost too.
type Data interface {
	OnAcked(off int64, n int, fin bool)
	OnLost(off int64, n int, fin bool)
}

// Frame is any other frame, in its Owner's own terms. Kind 0 is no frame.
type Frame struct {
	Kind     uint8
	ID, A, B int64
}

// Owner hears of Frames. Called with the connection's mutex held; it must not
// call back into Recovery. Like Data, it may hear FrameLost and then, late,
// FrameAcked of the same frame.
type Owner interface {
	FrameAcked(Frame)
	FrameLost(Frame)
}

// Train is the record of the packets of one pass: consecutive numbers, and at
// most one run of one owner's bytes laid over them.
type Train struct {
	First int64     // number of the first packet
	N     int       // packets, 1..MaxPackets
	Time  time.Time // set by OnSent

	// Slot i of Data lies in packet First+i, at Off + Lens[0] + … + Lens[i-1].
	// Fin: the last slot carries the FIN, be it empty or not. (Packets
	// without a slot may follow in the same train: FIN then counts as acked
	// when they are too, and as lost when one of them is.)
	Data Data
	Off  int64
	Lens [MaxPackets]uint16
	Fin  bool

	Sizes     [MaxPackets]uint16 // bytes on the wire, for congestion control
	Eliciting uint16             // bit i: packet i is ack-eliciting
	InFlight  uint16             // bit i: packet i counts in bytes in flight

	Extra []Extra // other frames in these packets, in packet order; the array is kept across reuse

	Probe bool // a path MTU probe: its loss says nothing of congestion (RFC 9000 §14.4)
	ECT0  bool // the packets left marked ECT(0): needed to validate the peer's counts (RFC 9000 §13.4.2)

	acked, lost, unsent uint16
}

// Extra is one more frame of a packet: either a Frame, or a range of Data.
type Extra struct {
	I     uint8 // index of the packet within the train
	Frame Frame
	Data  Data
	Off   int64
	Len   int
	Fin   bool
}
