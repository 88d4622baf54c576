package protect

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"golang.org/x/crypto/chacha20"

	"github.com/volley-quic/volley/internal/wire"
)

const (
	sampleOff = 4 // from the start of the packet number, however long that is (§5.4.2)
	sampleLen = 16
)

// mask is header protection's mask; five bytes of it are used.
type mask [aes.BlockSize]byte

// masker makes header protection masks (§5.4). It does not change, so that
// sealers and openers of several key phases share it.
type masker struct {
	block  cipher.Block            // AES (§5.4.3), or
	chacha *[chacha20.KeySize]byte // ChaCha20 (§5.4.4)
}

func newAESMask(key []byte) (masker, error) {
	block, err := aes.NewCipher(key)
	return masker{block: block}, err
}

func newChaChaMask(key []byte) (masker, error) {
	k := [chacha20.KeySize]byte(key)
	return masker{chacha: &k}, nil
}

func (m *masker) mask(dst *mask, sample []byte) {
	if m.block != nil {
		m.block.Encrypt(dst[:], sample)
		return
	}
	// The lengths are right, so there is no error. The cipher lives on the stack.
	c, _ := chacha20.NewUnauthenticatedCipher(m.chacha[:], sample[4:sampleLen])
	c.SetCounter(binary.LittleEndian.Uint32(sample))
	clear(dst[:5])
	c.XORKeyStream(dst[:5], dst[:5])
}

// firstByteMask says which bits of the first byte are protected (§5.4.1).
func firstByteMask(b0 byte) byte {
	if wire.IsLong(b0) {
		return 0x0f
	}
	return 0x1f
}

// protect masks the first byte and the packet number of a packet whose payload
// is encrypted.
func (m *masker) protect(scratch *mask, pkt []byte, pnOff, pnLen int) {
	m.mask(scratch, pkt[pnOff+sampleOff:pnOff+sampleOff+sampleLen])
	pkt[0] ^= scratch[0] & firstByteMask(pkt[0])
	for i := range pnLen {
		pkt[pnOff+i] ^= scratch[1+i]
	}
}

// unprotect is the inverse: it finds the length of the header and the full
// packet number. The packet holds a sample.
func (m *masker) unprotect(scratch *mask, pkt []byte, pnOff int, largest int64) (pn int64, headerLen int) {
	m.mask(scratch, pkt[pnOff+sampleOff:pnOff+sampleOff+sampleLen])
	pkt[0] ^= scratch[0] & firstByteMask(pkt[0])
	pnLen := int(pkt[0]&0x03) + 1
	var truncated int64
	for i := range pnLen {
		pkt[pnOff+i] ^= scratch[1+i]
		truncated = truncated<<8 | int64(pkt[pnOff+i])
	}
	return wire.DecodePN(largest, truncated, pnLen), pnOff + pnLen
}

// checkReserved enforces that the reserved bits are zero. It comes after both
// protections are removed, or it would tell an attacker about the mask
// (RFC 9000 §17.2, §17.3.1).
func checkReserved(b0 byte) error {
	bits := byte(0x18)
	if wire.IsLong(b0) {
		bits = 0x0c
	}
	if b0&bits != 0 {
		return &wire.Error{Code: wire.ProtocolViolation, Reason: "reserved bits of a packet header are not zero"}
	}
	return nil
}
