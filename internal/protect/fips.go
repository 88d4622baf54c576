package protect

import (
	"crypto/cipher"
	"encoding/binary"
	_ "unsafe" // for go:linkname
)

// tlsGCM is AES-GCM as TLS 1.3 uses it, which sees to it that nonces are a counter: the
// only GCM with nonces of the caller's that FIPS 140 mode approves of. The standard
// library has a constructor for QUIC, too, and exports neither (go.dev/issue/79219).
//
//go:linkname tlsGCM crypto/tls.aeadAESGCMTLS13
func tlsGCM(key, nonceMask []byte) cipher.AEAD

// fipsGCM is tlsGCM with whole nonces. A key seals in ascending packet-number order only,
// or it panics.
type fipsGCM struct {
	cipher.AEAD
	iv     [nonceLen]byte
	primed bool
}

func newFIPSGCM(key []byte, iv [nonceLen]byte) cipher.AEAD {
	// tlsGCM's nonces are the last 8 bytes, which it adds to a mask of 12.
	var mask [nonceLen]byte
	copy(mask[:], iv[:nonceLen-8])
	return &fipsGCM{AEAD: tlsGCM(key, mask[:]), iv: iv}
}

func (g *fipsGCM) NonceSize() int { return nonceLen }

func (g *fipsGCM) Seal(dst, nonce, plaintext, data []byte) []byte {
	nonce = nonce[nonceLen-8:]
	if !g.primed {
		g.primed = true
		// It takes the first nonce for that of number 0, and counts from there. A key may
		// begin with another one (RFC 9001 §6); number 0 is used under it or never will be.
		if zero := g.iv[nonceLen-8:]; binary.BigEndian.Uint64(zero) != binary.BigEndian.Uint64(nonce) {
			g.AEAD.Seal(nil, zero, nil, nil)
		}
	}
	return g.AEAD.Seal(dst, nonce, plaintext, data)
}

func (g *fipsGCM) Open(dst, nonce, ciphertext, data []byte) ([]byte, error) {
	return g.AEAD.Open(dst, nonce[nonceLen-8:], ciphertext, data)
}
