package wire

import (
	"fmt"
	"strings"

	"github.com/quic-go/quic-go/quicvarint"
)

// MaxAckRanges bounds how many ranges of an ACK frame ParseAck hands over. A
// packet of 64 KiB has room for more than 30,000, each of which would cost its
// receiver a search; an honest peer needs one per gap that it still remembers.
// The ranges with the largest numbers are kept. The others are checked and then
// forgotten, as if the frame had not been able to hold them: acknowledgments may
// be repeated or be lost, so that costs at most a retransmission.
const MaxAckRanges = 512

// Ack is an ACK frame (RFC 9000 §19.3). It has at least one range.
type Ack struct {
	Ranges         []AckRange // in descending order: [0] holds the largest number
	Delay          uint64     // as encoded: in units of 2^ack_delay_exponent µs
	ECT0, ECT1, CE uint64
	ECN            bool // the frame has the three counts
}

// AckRange is a run of packet numbers, both ends included.
type AckRange struct{ Lo, Hi int64 }

// Largest is the Largest Acknowledged field.
func (f Ack) Largest() int64 { return f.Ranges[0].Hi }

// ParseAck reads an ACK frame, of either type. The ranges, of which there is at
// least one and at most MaxAckRanges, are appended to ranges[:0]: it does not
// allocate if that has the capacity. Neighbouring ranges leave at least one
// number out between them.
func ParseAck(b []byte, ranges []AckRange) (Ack, int, error) {
	if len(b) == 0 || b[0]&^1 != byte(FrameAck) {
		return Ack{}, 0, truncated(FrameAck)
	}
	typ := uint64(b[0])
	c := cursor{b: b, n: 1}
	hi := c.int63()
	f := Ack{Delay: c.varint(), ECN: typ == FrameAckECN}
	count := c.varint()
	lo := hi - c.int63()
	if c.short {
		return Ack{}, 0, truncated(typ)
	}
	ranges = ranges[:0]
	for {
		// §19.3.1: if any computed packet number is negative.
		if lo < 0 {
			return Ack{}, 0, encodingError(typ, "negative packet number")
		}
		if len(ranges) < MaxAckRanges {
			ranges = append(ranges, AckRange{Lo: lo, Hi: hi})
		}
		if count == 0 {
			break
		}
		count--
		// Differences of 62-bit values: nothing wraps around before lo is
		// looked at.
		hi = lo - c.int63() - 2
		lo = hi - c.int63()
		if c.short {
			// §20.1: a count greater than what the packet can carry, perhaps.
			return Ack{}, 0, truncated(typ)
		}
	}
	f.Ranges = ranges
	if f.ECN {
		f.ECT0, f.ECT1, f.CE = c.varint(), c.varint(), c.varint()
	}
	n, err := c.end(typ)
	if err != nil {
		return Ack{}, 0, err
	}
	return f, n, nil
}

// Append appends the frame, with all its ranges.
func (f Ack) Append(b []byte) []byte {
	typ := FrameAck
	if f.ECN {
		typ = FrameAckECN
	}
	first := f.Ranges[0]
	b = append(b, byte(typ))
	b = appendInt(b, first.Hi)
	b = quicvarint.Append(b, f.Delay)
	b = quicvarint.Append(b, uint64(len(f.Ranges)-1))
	b = appendInt(b, first.Hi-first.Lo)
	lo := first.Lo
	for _, r := range f.Ranges[1:] {
		b = appendInt(b, lo-r.Hi-2)
		b = appendInt(b, r.Hi-r.Lo)
		lo = r.Lo
	}
	if f.ECN {
		b = quicvarint.Append(b, f.ECT0)
		b = quicvarint.Append(b, f.ECT1)
		b = quicvarint.Append(b, f.CE)
	}
	return b
}

// Len is the frame's length in bytes.
func (f Ack) Len() int {
	first := f.Ranges[0]
	n := 1 + varintLen(first.Hi) + quicvarint.Len(f.Delay) +
		quicvarint.Len(uint64(len(f.Ranges)-1)) + varintLen(first.Hi-first.Lo)
	lo := first.Lo
	for _, r := range f.Ranges[1:] {
		n += varintLen(lo-r.Hi-2) + varintLen(r.Hi-r.Lo)
		lo = r.Lo
	}
	if f.ECN {
		n += quicvarint.Len(f.ECT0) + quicvarint.Len(f.ECT1) + quicvarint.Len(f.CE)
	}
	return n
}

func (f Ack) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "ACK{delay %d", f.Delay)
	for _, r := range f.Ranges {
		fmt.Fprintf(&s, ", %d-%d", r.Lo, r.Hi)
	}
	if f.ECN {
		fmt.Fprintf(&s, ", ECT0 %d, ECT1 %d, CE %d", f.ECT0, f.ECT1, f.CE)
	}
	return s.String() + "}"
}
