package protect

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/volley-quic/volley/internal/wire"
)

const (
	tagLen   = 16 // every suite of TLS 1.3 that QUIC may use (§5.3)
	nonceLen = 12
)

// suite is what QUIC needs to know of a TLS 1.3 cipher suite.
type suite struct {
	hash    func() hash.Hash
	keyLen  int // of the AEAD and of header protection alike (§5.1)
	newAEAD func(key []byte, iv [nonceLen]byte) (cipher.AEAD, error)
	newMask func(key []byte) (masker, error)
	// The usage limits of §6.6. sealLimit is the number of packets one key may
	// protect, 0 if there is none to be reached; openLimit the number of packets
	// that may fail authentication within a connection.
	sealLimit, openLimit uint64
}

var suites = map[uint16]*suite{
	tls.TLS_AES_128_GCM_SHA256:       {sha256.New, 16, newGCM, newAESMask, 1 << 23, 1 << 52},
	tls.TLS_AES_256_GCM_SHA384:       {sha512.New384, 32, newGCM, newAESMask, 1 << 23, 1 << 52},
	tls.TLS_CHACHA20_POLY1305_SHA256: {sha256.New, chacha20poly1305.KeySize, newChaCha, newChaChaMask, 0, 1 << 36},
}

func suiteByID(id uint16) (*suite, error) {
	if s := suites[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("protect: no packet protection for cipher suite %#04x", id)
}

func newGCM(key []byte, iv [nonceLen]byte) (cipher.AEAD, error) {
	if fips140.Enabled() {
		return newFIPSGCM(key, iv), nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func newChaCha(key []byte, _ [nonceLen]byte) (cipher.AEAD, error) { return chacha20poly1305.New(key) }

// labels are the HKDF labels that a version uses (RFC 9001 §5.1, §6.1; RFC 9369 §3.3.2).
type labels struct{ key, iv, hp, ku string }

func labelsOf(version uint32) labels {
	if version == wire.Version2 {
		return labels{"quicv2 key", "quicv2 iv", "quicv2 hp", "quicv2 ku"}
	}
	return labels{"quic key", "quic iv", "quic hp", "quic ku"}
}

// expandLabel is HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
func expandLabel(h func() hash.Hash, secret []byte, label string, n int) ([]byte, error) {
	info := binary.BigEndian.AppendUint16(make([]byte, 0, 32), uint16(n))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(info, "tls13 "...)
	info = append(info, label...)
	info = append(info, 0)
	return hkdf.Expand(h, secret, string(info), n)
}

// packetKey is the AEAD and the IV that one secret yields. It does not change.
type packetKey struct {
	aead cipher.AEAD
	iv   [nonceLen]byte
}

func newPacketKey(s *suite, l labels, secret []byte) (*packetKey, error) {
	key, err := expandLabel(s.hash, secret, l.key, s.keyLen)
	if err != nil {
		return nil, err
	}
	b, err := expandLabel(s.hash, secret, l.iv, nonceLen)
	if err != nil {
		return nil, err
	}
	iv := [nonceLen]byte(b)
	aead, err := s.newAEAD(key, iv)
	if err != nil {
		return nil, err
	}
	return &packetKey{aead, iv}, nil
}

// nonce writes the nonce of packet pn: the IV exclusive-or the number (§5.3).
func (k *packetKey) nonce(dst *[nonceLen]byte, pn int64) {
	copy(dst[:4], k.iv[:4])
	binary.BigEndian.PutUint64(dst[4:], binary.BigEndian.Uint64(k.iv[4:])^uint64(pn))
}

// newHeaderKey derives the header protection key, which key updates leave alone (§5.4, §6.1).
func newHeaderKey(s *suite, l labels, secret []byte) (masker, error) {
	key, err := expandLabel(s.hash, secret, l.hp, s.keyLen)
	if err != nil {
		return masker{}, err
	}
	return s.newMask(key)
}
