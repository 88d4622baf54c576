package wire

// keyPhaseBit of the first byte of a short header (RFC 9000 §17.3.1).
const keyPhaseBit = 0x04

// ShortHeaderLen is the number of bytes that AppendShort appends, packet number
// included.
func ShortHeaderLen(connIDLen, pnLen int) int { return 1 + connIDLen + pnLen }

// AppendShort appends the header of a 1-RTT packet (RFC 9000 §17.3.1). pnLen is
// 1 to 4. The spin bit is left 0: it is not covered by header protection, and a
// caller that wants another value may set 0x20 in the first byte (§17.4).
func AppendShort(b, dst []byte, pn int64, pnLen int, keyPhase bool) []byte {
	b0 := fixedBit | byte(pnLen-1)
	if keyPhase {
		b0 |= keyPhaseBit
	}
	b = append(b, b0)
	b = append(b, dst...)
	return AppendPN(b, pn, pnLen)
}
