package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// The three low bits of a STREAM frame's type (RFC 9000 §19.8).
const (
	streamFin  = 0x01
	streamLen  = 0x02
	streamOff  = 0x04
	streamBits = streamFin | streamLen | streamOff
)

// Stream is a STREAM frame (RFC 9000 §19.8). Without a Length field its data
// goes on to the end of the packet.
type Stream struct {
	ID, Off int64
	Data    []byte
	Fin     bool
	HasLen  bool
}

// ParseStream reads a STREAM frame. Data aliases b. It does not allocate.
func ParseStream(b []byte) (Stream, int, error) {
	if len(b) == 0 || b[0]&^streamBits != byte(FrameStream) {
		return Stream{}, 0, truncated(FrameStream)
	}
	typ := b[0]
	id, n, err := quicvarint.Parse(b[1:])
	if err != nil {
		return Stream{}, 0, truncated(uint64(typ))
	}
	pos := 1 + n
	var off uint64
	if typ&streamOff != 0 {
		off, n, err = quicvarint.Parse(b[pos:])
		if err != nil {
			return Stream{}, 0, truncated(uint64(typ))
		}
		pos += n
	}
	end := len(b)
	if typ&streamLen != 0 {
		length, n, err := quicvarint.Parse(b[pos:])
		if err != nil {
			return Stream{}, 0, truncated(uint64(typ))
		}
		pos += n
		if length > uint64(len(b)-pos) {
			return Stream{}, 0, truncated(uint64(typ))
		}
		end = pos + int(length)
	}
	// §19.8: no stream can be that long. FRAME_ENCODING_ERROR or
	// FLOW_CONTROL_ERROR; the former does not depend on the limits we gave.
	if off+uint64(end-pos) > MaxVarint {
		return Stream{}, 0, encodingError(uint64(typ), "stream data beyond 2^62-1")
	}
	return Stream{
		ID:     int64(id),
		Off:    int64(off),
		Data:   b[pos:end:end],
		Fin:    typ&streamFin != 0,
		HasLen: typ&streamLen != 0,
	}, end, nil
}

// StreamHeaderLen is the number of bytes AppendStreamHeader appends.
func StreamHeaderLen(id, off int64, dataLen int) int {
	n := 1 + varintLen(id)
	if off > 0 {
		n += varintLen(off)
	}
	if dataLen >= 0 {
		n += quicvarint.Len(uint64(dataLen))
	}
	return n
}

// AppendStreamHeader appends a STREAM frame up to its data: with a Length field
// of value dataLen, or, if dataLen is -1, without one. An offset of 0 is left
// out.
func AppendStreamHeader(b []byte, id, off int64, dataLen int, fin bool) []byte {
	typ := byte(FrameStream)
	if off > 0 {
		typ |= streamOff
	}
	if dataLen >= 0 {
		typ |= streamLen
	}
	if fin {
		typ |= streamFin
	}
	b = append(b, typ)
	b = appendInt(b, id)
	if off > 0 {
		b = appendInt(b, off)
	}
	if dataLen >= 0 {
		b = quicvarint.Append(b, uint64(dataLen))
	}
	return b
}

func (f Stream) dataLen() int {
	if f.HasLen {
		return len(f.Data)
	}
	return -1
}

// Append appends the frame.
func (f Stream) Append(b []byte) []byte {
	b = AppendStreamHeader(b, f.ID, f.Off, f.dataLen(), f.Fin)
	return append(b, f.Data...)
}

// Len is the frame's length in bytes.
func (f Stream) Len() int { return StreamHeaderLen(f.ID, f.Off, f.dataLen()) + len(f.Data) }

func (f Stream) String() string {
	return fmt.Sprintf("STREAM{id %d, off %d, %d bytes, fin %t}", f.ID, f.Off, len(f.Data), f.Fin)
}
