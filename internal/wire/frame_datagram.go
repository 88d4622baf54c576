package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// Datagram is a DATAGRAM frame (RFC 9221 §4). Without a Length field its data
// goes on to the end of the packet.
type Datagram struct {
	Data   []byte
	HasLen bool
}

// ParseDatagram reads a DATAGRAM frame, of either type. Data aliases b.
func ParseDatagram(b []byte) (Datagram, int, error) {
	c, typ := body2(b, FrameDatagram)
	f := Datagram{HasLen: typ == FrameDatagramLen}
	if f.HasLen {
		f.Data = c.bytes(c.varint())
	} else {
		f.Data = c.rest()
	}
	n, err := c.end(typ)
	return f, n, err
}

// Append appends the frame.
func (f Datagram) Append(b []byte) []byte {
	if f.HasLen {
		b = append(b, byte(FrameDatagramLen))
		b = quicvarint.Append(b, uint64(len(f.Data)))
	} else {
		b = append(b, byte(FrameDatagram))
	}
	return append(b, f.Data...)
}

// Len is the frame's length in bytes.
func (f Datagram) Len() int {
	n := 1 + len(f.Data)
	if f.HasLen {
		n += quicvarint.Len(uint64(len(f.Data)))
	}
	return n
}

func (f Datagram) String() string { return fmt.Sprintf("DATAGRAM{%d bytes}", len(f.Data)) }
