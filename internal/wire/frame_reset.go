package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// ResetStream is a RESET_STREAM frame (RFC 9000 §19.4).
type ResetStream struct {
	ID        int64
	Code      uint64 // the application's
	FinalSize int64  // bytes
}

// ParseResetStream reads a RESET_STREAM frame.
func ParseResetStream(b []byte) (ResetStream, int, error) {
	c := body(b, FrameResetStream)
	f := ResetStream{ID: c.int63(), Code: c.varint(), FinalSize: c.int63()}
	n, err := c.end(FrameResetStream)
	return f, n, err
}

// Append appends the frame.
func (f ResetStream) Append(b []byte) []byte {
	b = append(b, byte(FrameResetStream))
	b = appendInt(b, f.ID)
	b = quicvarint.Append(b, f.Code)
	return appendInt(b, f.FinalSize)
}

// Len is the frame's length in bytes.
func (f ResetStream) Len() int {
	return 1 + varintLen(f.ID) + quicvarint.Len(f.Code) + varintLen(f.FinalSize)
}

func (f ResetStream) String() string {
	return fmt.Sprintf("RESET_STREAM{id %d, code 0x%x, final size %d}", f.ID, f.Code, f.FinalSize)
}

// ResetStreamAt is a RESET_STREAM_AT frame
// (draft-ietf-quic-reliable-stream-reset): a reset that does not take back the
// stream's first ReliableSize bytes.
type ResetStreamAt struct {
	ID           int64
	Code         uint64 // the application's
	FinalSize    int64  // bytes
	ReliableSize int64  // bytes, at most FinalSize
}

// ParseResetStreamAt reads a RESET_STREAM_AT frame.
func ParseResetStreamAt(b []byte) (ResetStreamAt, int, error) {
	c := body(b, FrameResetStreamAt)
	f := ResetStreamAt{ID: c.int63(), Code: c.varint(), FinalSize: c.int63(), ReliableSize: c.int63()}
	n, err := c.end(FrameResetStreamAt)
	if err == nil && f.ReliableSize > f.FinalSize {
		return ResetStreamAt{}, 0, encodingError(FrameResetStreamAt, "reliable size exceeds final size")
	}
	return f, n, err
}

// Append appends the frame.
func (f ResetStreamAt) Append(b []byte) []byte {
	b = append(b, byte(FrameResetStreamAt))
	b = appendInt(b, f.ID)
	b = quicvarint.Append(b, f.Code)
	b = appendInt(b, f.FinalSize)
	return appendInt(b, f.ReliableSize)
}

// Len is the frame's length in bytes.
func (f ResetStreamAt) Len() int {
	return 1 + varintLen(f.ID) + quicvarint.Len(f.Code) + varintLen(f.FinalSize) + varintLen(f.ReliableSize)
}

func (f ResetStreamAt) String() string {
	return fmt.Sprintf("RESET_STREAM_AT{id %d, code 0x%x, final size %d, reliable size %d}", f.ID, f.Code, f.FinalSize, f.ReliableSize)
}

// StopSending is a STOP_SENDING frame (RFC 9000 §19.5).
type StopSending struct {
	ID   int64
	Code uint64 // the application's
}

// ParseStopSending reads a STOP_SENDING frame.
func ParseStopSending(b []byte) (StopSending, int, error) {
	c := body(b, FrameStopSending)
	f := StopSending{ID: c.int63(), Code: c.varint()}
	n, err := c.end(FrameStopSending)
	return f, n, err
}

// Append appends the frame.
func (f StopSending) Append(b []byte) []byte {
	b = append(b, byte(FrameStopSending))
	b = appendInt(b, f.ID)
	return quicvarint.Append(b, f.Code)
}

// Len is the frame's length in bytes.
func (f StopSending) Len() int { return 1 + varintLen(f.ID) + quicvarint.Len(f.Code) }

func (f StopSending) String() string {
	return fmt.Sprintf("STOP_SENDING{id %d, code 0x%x}", f.ID, f.Code)
}
