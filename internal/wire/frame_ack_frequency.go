package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// AckFrequency is an ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency).
type AckFrequency struct {
	Seq        int64
	Threshold  uint64 // ack-eliciting packets that may go unacknowledged
	MaxDelay   uint64 // requested max_ack_delay in µs
	Reordering uint64 // packets; 0: reordering elicits no immediate ACK
}

// ParseAckFrequency reads an ACK_FREQUENCY frame.
func ParseAckFrequency(b []byte) (AckFrequency, int, error) {
	c := body(b, FrameAckFrequency)
	f := AckFrequency{Seq: c.int63(), Threshold: c.varint(), MaxDelay: c.varint(), Reordering: c.varint()}
	n, err := c.end(FrameAckFrequency)
	return f, n, err
}

// Append appends the frame.
func (f AckFrequency) Append(b []byte) []byte {
	b = quicvarint.Append(b, FrameAckFrequency)
	b = appendInt(b, f.Seq)
	b = quicvarint.Append(b, f.Threshold)
	b = quicvarint.Append(b, f.MaxDelay)
	return quicvarint.Append(b, f.Reordering)
}

// Len is the frame's length in bytes.
func (f AckFrequency) Len() int {
	return quicvarint.Len(FrameAckFrequency) + varintLen(f.Seq) + quicvarint.Len(f.Threshold) +
		quicvarint.Len(f.MaxDelay) + quicvarint.Len(f.Reordering)
}

func (f AckFrequency) String() string {
	return fmt.Sprintf("ACK_FREQUENCY{seq %d, threshold %d, max delay %d µs, reordering %d}", f.Seq, f.Threshold, f.MaxDelay, f.Reordering)
}

// ImmediateAck is an IMMEDIATE_ACK frame (draft-ietf-quic-ack-frequency).
type ImmediateAck struct{}

// ParseImmediateAck reads an IMMEDIATE_ACK frame.
func ParseImmediateAck(b []byte) (ImmediateAck, int, error) {
	c := body(b, FrameImmediateAck)
	n, err := c.end(FrameImmediateAck)
	return ImmediateAck{}, n, err
}

// Append appends the frame.
func (ImmediateAck) Append(b []byte) []byte { return append(b, byte(FrameImmediateAck)) }

// Len is 1.
func (ImmediateAck) Len() int { return 1 }

func (ImmediateAck) String() string { return "IMMEDIATE_ACK{}" }
