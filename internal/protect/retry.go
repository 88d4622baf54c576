package protect

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"

	"github.com/volley-quic/volley/internal/wire"
)

// A retrySealer is the fixed key and nonce of a version's Retry packets.
type retrySealer struct {
	aead  cipher.AEAD
	nonce [nonceLen]byte
}

func newRetrySealer(key [16]byte, nonce [nonceLen]byte) retrySealer {
	block, err := aes.NewCipher(key[:])
	var aead cipher.AEAD
	if err == nil {
		// The key is in the RFC, so that nothing is kept secret by it.
		fips140.WithoutEnforcement(func() { aead, err = cipher.NewGCM(block) })
	}
	if err != nil {
		panic("protect: " + err.Error())
	}
	return retrySealer{aead, nonce}
}

var (
	// RFC 9001 §5.8.
	retry1 = newRetrySealer(
		[16]byte{0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e},
		[nonceLen]byte{0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb},
	)
	// RFC 9369 §3.3.3.
	retry2 = newRetrySealer(
		[16]byte{0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92},
		[nonceLen]byte{0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a},
	)
)

// RetryTag is the integrity tag that ends a Retry packet (RFC 9001 §5.8). origDst
// is the Destination Connection ID of the Initial that the Retry answers, at most
// 255 bytes. Safe for concurrent use.
func RetryTag(version uint32, origDst, retryWithoutTag []byte) [16]byte {
	r := &retry1
	if version == wire.Version2 {
		r = &retry2
	}
	pseudo := make([]byte, 0, 1+len(origDst)+len(retryWithoutTag))
	pseudo = append(pseudo, byte(len(origDst)))
	pseudo = append(pseudo, origDst...)
	pseudo = append(pseudo, retryWithoutTag...)
	return [16]byte(r.aead.Seal(nil, r.nonce[:], nil, pseudo))
}
