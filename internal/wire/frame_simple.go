package wire

import (
	"fmt"
	"slices"
)

// The frames without fields.

// Padding is a run of N PADDING frames, one byte each (RFC 9000 §19.1).
type Padding struct{ N int }

// ParsePadding reads the whole run of PADDING at the beginning of b.
func ParsePadding(b []byte) (Padding, int, error) {
	n := 0
	for n < len(b) && b[n] == 0 {
		n++
	}
	if n == 0 {
		return Padding{}, 0, truncated(FramePadding)
	}
	return Padding{N: n}, n, nil
}

// Append appends N zero bytes.
func (f Padding) Append(b []byte) []byte {
	n := len(b)
	b = slices.Grow(b, f.N)[:n+f.N]
	clear(b[n:]) // the buffer may hold old bytes
	return b
}

// Len is N.
func (f Padding) Len() int { return f.N }

func (f Padding) String() string { return fmt.Sprintf("PADDING{%d}", f.N) }

// Ping is a PING frame (RFC 9000 §19.2).
type Ping struct{}

// ParsePing reads a PING frame.
func ParsePing(b []byte) (Ping, int, error) {
	c := body(b, FramePing)
	n, err := c.end(FramePing)
	return Ping{}, n, err
}

// Append appends the frame.
func (Ping) Append(b []byte) []byte { return append(b, byte(FramePing)) }

// Len is 1.
func (Ping) Len() int { return 1 }

func (Ping) String() string { return "PING{}" }

// HandshakeDone is a HANDSHAKE_DONE frame (RFC 9000 §19.20). A server that
// receives one answers with PROTOCOL_VIOLATION; the parser does not know who it is.
type HandshakeDone struct{}

// ParseHandshakeDone reads a HANDSHAKE_DONE frame.
func ParseHandshakeDone(b []byte) (HandshakeDone, int, error) {
	c := body(b, FrameHandshakeDone)
	n, err := c.end(FrameHandshakeDone)
	return HandshakeDone{}, n, err
}

// Append appends the frame.
func (HandshakeDone) Append(b []byte) []byte { return append(b, byte(FrameHandshakeDone)) }

// Len is 1.
func (HandshakeDone) Len() int { return 1 }

func (HandshakeDone) String() string { return "HANDSHAKE_DONE{}" }
