package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// NewToken is a NEW_TOKEN frame (RFC 9000 §19.7). A server that receives one
// answers with PROTOCOL_VIOLATION; the parser does not know who it is.
type NewToken struct{ Token []byte }

// ParseNewToken reads a NEW_TOKEN frame. Token aliases b.
func ParseNewToken(b []byte) (NewToken, int, error) {
	c := body(b, FrameNewToken)
	f := NewToken{Token: c.bytes(c.varint())}
	n, err := c.end(FrameNewToken)
	// §19.7: the token MUST NOT be empty.
	if err == nil && len(f.Token) == 0 {
		return NewToken{}, 0, encodingError(FrameNewToken, "empty token")
	}
	return f, n, err
}

// Append appends the frame.
func (f NewToken) Append(b []byte) []byte {
	b = append(b, byte(FrameNewToken))
	b = quicvarint.Append(b, uint64(len(f.Token)))
	return append(b, f.Token...)
}

// Len is the frame's length in bytes.
func (f NewToken) Len() int { return 1 + quicvarint.Len(uint64(len(f.Token))) + len(f.Token) }

func (f NewToken) String() string { return fmt.Sprintf("NEW_TOKEN{%x}", f.Token) }
