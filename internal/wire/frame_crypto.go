package wire

import (
	"fmt"

	"github.com/quic-go/quic-go/quicvarint"
)

// Crypto is a CRYPTO frame (RFC 9000 §19.6).
type Crypto struct {
	Off  int64
	Data []byte
}

// ParseCrypto reads a CRYPTO frame. Data aliases b.
func ParseCrypto(b []byte) (Crypto, int, error) {
	c := body(b, FrameCrypto)
	f := Crypto{Off: c.int63(), Data: c.bytes(c.varint())}
	n, err := c.end(FrameCrypto)
	// §19.6: FRAME_ENCODING_ERROR or CRYPTO_BUFFER_EXCEEDED.
	if err == nil && f.Off+int64(len(f.Data)) > MaxVarint {
		return Crypto{}, 0, encodingError(FrameCrypto, "data beyond 2^62-1")
	}
	return f, n, err
}

// CryptoHeaderLen is the length of a CRYPTO frame without its data.
func CryptoHeaderLen(off int64, dataLen int) int {
	return 1 + varintLen(off) + quicvarint.Len(uint64(dataLen))
}

// Append appends the frame.
func (f Crypto) Append(b []byte) []byte {
	b = append(b, byte(FrameCrypto))
	b = appendInt(b, f.Off)
	b = quicvarint.Append(b, uint64(len(f.Data)))
	return append(b, f.Data...)
}

// Len is the frame's length in bytes.
func (f Crypto) Len() int { return CryptoHeaderLen(f.Off, len(f.Data)) + len(f.Data) }

func (f Crypto) String() string {
	return fmt.Sprintf("CRYPTO{off %d, %d bytes}", f.Off, len(f.Data))
}
