package wire

import "encoding/binary"

// AppendVersionNegotiation appends a Version Negotiation packet (RFC 9000
// §17.2.1): dst is the client's Source Connection ID, src its Destination
// Connection ID, of up to 255 bytes each, whatever the client's version allows.
func AppendVersionNegotiation(b, dst, src []byte, versions []uint32) []byte {
	// The unused bits are arbitrary; with 0x40 set the packet can be told from
	// other protocols on the same port.
	b = append(b, headerFormBit|fixedBit)
	b = appendInvariants(b, 0, dst, src)
	for _, v := range versions {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// ParseVersionNegotiation reads a Version Negotiation packet, which fills its
// datagram. dst and src alias b; versions is a new slice. The error is
// ErrInvalidHeader: the packet must be ignored.
func ParseVersionNegotiation(b []byte) (dst, src []byte, versions []uint32, err error) {
	h, err := ParseLong(b)
	if err != nil || h.Type != VersionNegotiation {
		return nil, nil, nil, ErrInvalidHeader
	}
	// RFC 8999 §6: no version, or a truncated one, makes the packet void.
	list := b[h.PNOffset:]
	if len(list) == 0 || len(list)%4 != 0 {
		return nil, nil, nil, ErrInvalidHeader
	}
	versions = make([]uint32, 0, len(list)/4)
	for ; len(list) > 0; list = list[4:] {
		versions = append(versions, binary.BigEndian.Uint32(list))
	}
	return h.Dst, h.Src, versions, nil
}
