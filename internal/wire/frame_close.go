package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// ConnectionClose is a CONNECTION_CLOSE frame (RFC 9000 §19.19).
type ConnectionClose struct {
	App       bool   // type 0x1d: the application closes, and Code is its own
	Code      uint64 // an ErrorCode unless App
	FrameType uint64 // what caused it, 0 if unknown; not encoded if App
	Reason    []byte // should be UTF-8; the peer chose it, so do not trust it
}

// ParseConnectionClose reads a CONNECTION_CLOSE frame, of either type. Reason
// aliases b.
func ParseConnectionClose(b []byte) (ConnectionClose, int, error) {
	c, typ := body2(b, FrameConnectionClose)
	f := ConnectionClose{App: typ == FrameConnectionCloseApp, Code: c.varint()}
	if !f.App {
		f.FrameType = c.varint()
	}
	f.Reason = c.bytes(c.varint())
	n, err := c.end(typ)
	return f, n, err
}

// Append appends the frame.
func (f ConnectionClose) Append(b []byte) []byte {
	if f.App {
		b = append(b, byte(FrameConnectionCloseApp))
		b = quicvarint.Append(b, f.Code)
	} else {
		b = append(b, byte(FrameConnectionClose))
		b = quicvarint.Append(b, f.Code)
		b = quicvarint.Append(b, f.FrameType)
	}
	b = quicvarint.Append(b, uint64(len(f.Reason)))
	return append(b, f.Reason...)
}

// Len is the frame's length in bytes.
func (f ConnectionClose) Len() int {
	n := 1 + quicvarint.Len(f.Code) + quicvarint.Len(uint64(len(f.Reason))) + len(f.Reason)
	if !f.App {
		n += quicvarint.Len(f.FrameType)
	}
	return n
}

func (f ConnectionClose) String() string {
	if f.App {
		return fmt.Sprintf("CONNECTION_CLOSE{application code 0x%x, %q}", f.Code, f.Reason)
	}
	return fmt.Sprintf("CONNECTION_CLOSE{%v, for %s, %q}", ErrorCode(f.Code), FrameName(f.FrameType), f.Reason)
}
