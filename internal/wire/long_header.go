package wire

import (
	"encoding/binary"

	"github.com/quic-go/quic-go/quicvarint"
)

// retryTagLen is the length of the Retry Integrity Tag in bytes (RFC 9001 §5.8).
const retryTagLen = 16

// maxLongPayload is what the two-byte Length field written by AppendLong holds.
const maxLongPayload = 1<<14 - 1

// LongHeader is the readable part of a long header packet, before header
// protection is removed (RFC 9000 §17.2). The slices alias the parsed bytes.
type LongHeader struct {
	Type     PacketType
	Version  uint32
	Dst, Src []byte
	Token    []byte // Initial and Retry only
	PNOffset int    // where the packet number starts; in packets without one, where the connection IDs end
	Len      int    // bytes of the datagram that belong to this packet
	Greased  bool   // QUICBit is 0, in a version that sets it
}

// ParseLong reads the long header at the beginning of b, which may go on with
// coalesced packets (RFC 9000 §12.2). Of a version other than 1 and 2 only the
// invariants of RFC 8999 §5.1 are read: Type is VersionNegotiation for version 0
// and UnknownVersion otherwise, and the packet extends to the end of b. For a
// Retry, Token is filled and the integrity tag is the last 16 bytes of b.
//
// A packet that is Greased must be dropped, too, by whoever has not said that such ones are
// welcome (RFC 9000 §17.2, RFC 9287 §3).
//
// The error is ErrInvalidHeader: the packet, and all that follows it in the
// datagram, must be dropped.
func ParseLong(b []byte) (LongHeader, error) {
	c := cursor{b: b}
	b0 := c.byte()
	v := c.bytes(4)
	h := LongHeader{Len: len(b)}
	if v != nil {
		h.Version = binary.BigEndian.Uint32(v)
	}
	h.Dst = c.bytes(uint64(c.byte()))
	h.Src = c.bytes(uint64(c.byte()))
	if c.short || !IsLong(b0) {
		return LongHeader{}, ErrInvalidHeader
	}
	h.PNOffset = c.n
	switch h.Version {
	case 0:
		h.Type = VersionNegotiation
		return h, nil
	case Version1, Version2:
	default:
		h.Type = UnknownVersion
		return h, nil
	}

	// RFC 9000 §17.2: longer connection IDs are to be dropped.
	if len(h.Dst) > MaxConnIDLen || len(h.Src) > MaxConnIDLen {
		return LongHeader{}, ErrInvalidHeader
	}
	h.Greased = b0&fixedBit == 0
	h.Type = typeFromBits(b0, h.Version)
	if h.Type == Retry {
		// RFC 9000 §17.2.5.2: a client discards a Retry with an empty token.
		if len(b)-c.n <= retryTagLen {
			return LongHeader{}, ErrInvalidHeader
		}
		h.Token = c.bytes(uint64(len(b) - c.n - retryTagLen))
		return h, nil
	}
	if h.Type == Initial {
		h.Token = c.bytes(c.varint())
	}
	length := c.varint()
	if c.short || length > uint64(len(b)-c.n) {
		return LongHeader{}, ErrInvalidHeader
	}
	h.PNOffset = c.n
	h.Len = c.n + int(length)
	return h, nil
}

// LongHeaderLen is the number of bytes that AppendLong appends, packet number
// included.
func LongHeaderLen(typ PacketType, dstLen, srcLen, tokenLen, pnLen int) int {
	n := 1 + 4 + 1 + dstLen + 1 + srcLen + 2 + pnLen
	if typ == Initial {
		n += quicvarint.Len(uint64(tokenLen)) + tokenLen
	}
	return n
}

// AppendLong appends the header of an Initial, 0-RTT or Handshake packet of
// version 1 or 2, up to and including the packet number. payloadLen is the value
// of the Length field: the bytes of packet number, payload and AEAD tag
// together. It is always written in two bytes, so that the header's length does
// not depend on it; AppendLong panics if it exceeds 16383. token is written in
// Initial packets only. pnLen is 1 to 4.
func AppendLong(b []byte, typ PacketType, version uint32, dst, src, token []byte, payloadLen int, pn int64, pnLen int) []byte {
	if payloadLen > maxLongPayload {
		panic("wire: long header packet exceeds 16383 bytes")
	}
	b = append(b, headerFormBit|fixedBit|typeBits(typ, version)|byte(pnLen-1))
	b = appendInvariants(b, version, dst, src)
	if typ == Initial {
		b = quicvarint.Append(b, uint64(len(token)))
		b = append(b, token...)
	}
	b = append(b, 0x40|byte(payloadLen>>8), byte(payloadLen))
	return AppendPN(b, pn, pnLen)
}

// appendInvariants appends the fields that follow the first byte of a long
// header in every version (RFC 8999 §5.1).
func appendInvariants(b []byte, version uint32, dst, src []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(b, byte(len(dst)))
	b = append(b, dst...)
	b = append(b, byte(len(src)))
	return append(b, src...)
}
