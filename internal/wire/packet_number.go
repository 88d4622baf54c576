package wire

import "math/bits"

// PNLen is the number of bytes, 1 to 4, that packet number pn needs when
// largestAcked (-1: none) is the largest one acknowledged (RFC 9000 §17.1, A.2).
// A sender that numbers packets ahead of their sealing passes the highest number
// it may reach.
func PNLen(pn, largestAcked int64) int {
	// §17.1: the encoding must represent more than twice as large a range as
	// the distance. Strictly more: A.2's pseudocode would send a distance of
	// 128 in one byte. With nothing acknowledged the distance is pn+1, which
	// includes the full number as §17.1 demands.
	switch n := bits.Len64(uint64(pn-largestAcked)) + 1; {
	case n <= 8:
		return 1
	case n <= 16:
		return 2
	case n <= 24:
		return 3
	}
	return 4
}

// AppendPN appends the pnLen (1 to 4) low bytes of pn.
func AppendPN(b []byte, pn int64, pnLen int) []byte {
	switch pnLen {
	case 1:
		return append(b, byte(pn))
	case 2:
		return append(b, byte(pn>>8), byte(pn))
	case 3:
		return append(b, byte(pn>>16), byte(pn>>8), byte(pn))
	case 4:
		return append(b, byte(pn>>24), byte(pn>>16), byte(pn>>8), byte(pn))
	}
	panic("wire: packet number length out of range")
}

// DecodePN completes a packet number of which the low pnLen bytes, truncated,
// were received (RFC 9000 §17.1, A.3). largest is the largest number that was
// authenticated in this packet number space, -1 if none.
func DecodePN(largest, truncated int64, pnLen int) int64 {
	expected := largest + 1
	win := int64(1) << (8 * pnLen)
	pn := expected&^(win-1) | truncated
	// The candidate is within one window of what is expected; take the
	// neighbour if that is closer, but never one outside 0..2^62-1.
	if pn <= expected-win/2 && pn < 1<<62-win {
		return pn + win
	}
	if pn > expected+win/2 && pn >= win {
		return pn - win
	}
	return pn
}
