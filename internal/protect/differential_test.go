package protect

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"hash"
	"math/rand/v2"
	"testing"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/volley-quic/volley/internal/wire"
)

var suiteNames = map[uint16]string{
	tls.TLS_AES_128_GCM_SHA256:       "AES128",
	tls.TLS_AES_256_GCM_SHA384:       "AES256",
	tls.TLS_CHACHA20_POLY1305_SHA256: "ChaCha20",
}

func forEachSuite[T interface {
	testing.TB
	Run(string, func(T)) bool
}](t T, f func(t T, suite uint16, secret []byte)) {
	for id, name := range suiteNames {
		secret := bytes.Repeat([]byte{byte(id), 0x5a}, suites[id].hash().Size()/2)
		t.Run(name, func(t T) { f(t, id, secret) })
	}
}

// random returns a generator whose seed a failing test prints.
func random(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// reference is RFC 9001 §5 written down again, slowly.
type reference struct {
	aead cipher.AEAD
	iv   []byte
	hp   func(sample []byte) []byte
}

func newReference(suite uint16, secret []byte, prefix string) *reference {
	h, keyLen := sha256.New, 16
	switch suite {
	case tls.TLS_AES_256_GCM_SHA384:
		h, keyLen = sha512.New384, 32
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		keyLen = 32
	}
	key, hpKey := hkdfOnce(h, secret, prefix+"key", keyLen), hkdfOnce(h, secret, prefix+"hp", keyLen)
	r := &reference{iv: hkdfOnce(h, secret, prefix+"iv", 12)}
	if suite == tls.TLS_CHACHA20_POLY1305_SHA256 {
		r.aead, _ = chacha20poly1305.New(key)
		r.hp = func(sample []byte) []byte {
			c, _ := chacha20.NewUnauthenticatedCipher(hpKey, sample[4:])
			c.SetCounter(binary.LittleEndian.Uint32(sample[:4]))
			mask := make([]byte, 5)
			c.XORKeyStream(mask, mask)
			return mask
		}
		return r
	}
	block, _ := aes.NewCipher(key)
	r.aead, _ = cipher.NewGCM(block)
	hpBlock, _ := aes.NewCipher(hpKey)
	r.hp = func(sample []byte) []byte {
		mask := make([]byte, 16)
		hpBlock.Encrypt(mask, sample)
		return mask
	}
	return r
}

// hkdfOnce is HKDF-Expand-Label for outputs that one HMAC covers (RFC 5869 §2.3).
func hkdfOnce(h func() hash.Hash, secret []byte, label string, n int) []byte {
	m := hmac.New(h, secret)
	m.Write([]byte{0, byte(n), byte(6 + len(label))})
	m.Write([]byte("tls13 " + label + "\x00\x01"))
	return m.Sum(nil)[:n]
}

func (r *reference) seal(header, payload []byte, pnLen int, pn int64) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[4:], uint64(pn))
	for i := range nonce {
		nonce[i] ^= r.iv[i]
	}
	pkt := append(bytes.Clone(header), r.aead.Seal(nil, nonce, payload, header)...)
	pnOff := len(header) - pnLen
	mask := r.hp(pkt[pnOff+4 : pnOff+20])
	if pkt[0]&0x80 != 0 {
		pkt[0] ^= mask[0] & 0x0f
	} else {
		pkt[0] ^= mask[0] & 0x1f
	}
	for i := range pnLen {
		pkt[pnOff+i] ^= mask[1+i]
	}
	return pkt
}

// randomHeader makes a header with zero reserved bits that ends in pn.
func randomHeader(r *rand.Rand, pn int64, pnLen int) []byte {
	var h []byte
	if r.IntN(2) == 0 {
		h = append(h, 0xc0|byte(r.IntN(3))<<4|byte(pnLen-1))
		h = append(h, randomBytes(r, 6+r.IntN(60))...)
	} else {
		h = append(h, 0x40|byte(r.IntN(2))<<5|byte(r.IntN(2))<<2|byte(pnLen-1))
		h = append(h, randomBytes(r, r.IntN(21))...)
	}
	return wire.AppendPN(h, pn, pnLen)
}

func TestAgainstReference(t *testing.T) {
	for version, prefix := range map[uint32]string{wire.Version1: "quic ", wire.Version2: "quicv2 "} {
		forEachSuite(t, func(t *testing.T, suite uint16, secret []byte) {
			r := random(t)
			ref := newReference(suite, secret, prefix)
			sealer, err := NewSealer(suite, secret, version)
			if err != nil {
				t.Fatal(err)
			}
			opener, err := NewOpener(suite, secret, version)
			if err != nil {
				t.Fatal(err)
			}
			for range 2000 {
				pnLen := 1 + r.IntN(4)
				// A packet ahead of the largest by less than half of what pnLen can say.
				largest := r.Int64N(1<<r.IntN(61)+1) - 1
				pn := largest + 1 + r.Int64N(1<<(8*pnLen-1)-1)
				header := randomHeader(r, pn, pnLen)
				payload := randomBytes(r, 4-pnLen+r.IntN(1+r.IntN(1500)))
				pnOff := len(header) - pnLen
				want := ref.seal(header, payload, pnLen, pn)

				pkt := append(append(bytes.Clone(header), payload...), make([]byte, 16)...)
				sealer.Seal(pkt, pnOff, pnLen, pn)
				if !bytes.Equal(pkt, want) {
					t.Fatalf("Seal(%x, pn %d, %d bytes):\n got %x\nwant %x", header, pn, len(payload), pkt, want)
				}
				pkt = append(bytes.Clone(header), make([]byte, len(payload)+16)...)
				sealer.SealTo(pkt, payload, pnOff, pnLen, pn)
				if !bytes.Equal(pkt, want) {
					t.Fatalf("SealTo(%x, pn %d, %d bytes):\n got %x\nwant %x", header, pn, len(payload), pkt, want)
				}

				bad := bytes.Clone(want)
				bit := r.IntN(8 * len(bad))
				if bit == 7 {
					bit = 6 // the header form is the caller's business
				}
				bad[bit/8] ^= 1 << (bit % 8)
				tail := bytes.Clone(bad[len(bad)-16:])
				if _, _, err := opener.Open(bad, pnOff, largest); !errors.Is(err, ErrDecrypt) {
					t.Fatalf("Open(%x) with bit %d flipped: %v", want, bit, err)
				}
				if !bytes.Equal(bad[len(bad)-16:], tail) {
					t.Fatal("a failed Open touched the last 16 bytes")
				}

				gotPN, got, err := opener.Open(pkt, pnOff, largest)
				if err != nil || gotPN != pn || !bytes.Equal(got, payload) {
					t.Fatalf("Open(%x, largest %d): pn %d %x, %v; want %d %x", want, largest, gotPN, got, err, pn, payload)
				}
				if !bytes.Equal(pkt[:len(header)], header) {
					t.Fatalf("header after Open: %x, want %x", pkt[:len(header)], header)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	forEachSuite(t, func(t *testing.T, suite uint16, secret []byte) {
		seal := func(header []byte, payload int) []byte {
			s, err := NewSealer(suite, secret, wire.Version1)
			if err != nil {
				t.Fatal(err)
			}
			pkt := append(header, make([]byte, payload+s.Overhead())...)
			s.Seal(pkt, len(header)-4, 4, 0)
			return pkt
		}
		o, err := NewOpener(suite, secret, wire.Version1)
		if err != nil {
			t.Fatal(err)
		}
		var werr *wire.Error
		for _, b0 := range []byte{0xc3 | 0x04, 0xc3 | 0x08, 0x43 | 0x08, 0x43 | 0x10} {
			_, _, err := o.Open(seal([]byte{b0, 1, 2, 0, 0, 0, 0}, 5), 3, -1)
			if !errors.As(err, &werr) || werr.Code != wire.ProtocolViolation {
				t.Errorf("first byte %#x with a reserved bit: %v, want PROTOCOL_VIOLATION", b0, err)
			}
		}
		// The shortest packet has a sample and nothing more. Anything less is dropped.
		shortest := seal([]byte{0x43, 0, 0, 0, 0}, 0)
		for n := range len(shortest) {
			if _, _, err := o.Open(shortest[:n], 1, -1); !errors.Is(err, ErrDecrypt) {
				t.Errorf("%d of %d bytes: %v", n, len(shortest), err)
			}
		}
		if _, _, err := o.Open(shortest, 1, -1); err != nil {
			t.Errorf("the shortest packet: %v", err)
		}
	})
}

// A packet that does not have the right length is the caller's mistake; it must not
// leave as garbage.
func TestSealToChecksLength(t *testing.T) {
	s, err := NewSealer(tls.TLS_AES_128_GCM_SHA256, make([]byte, 32), wire.Version1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.SealTo(make([]byte, 100, 200), make([]byte, 100), 1, 4, 0)
}

func TestUnknownSuite(t *testing.T) {
	const none = 0x1304 // TLS_AES_128_CCM_SHA256
	if _, err := NewSealer(none, make([]byte, 32), wire.Version1); err == nil {
		t.Error("NewSealer: no error")
	}
	if _, err := NewOpener(none, make([]byte, 32), wire.Version1); err == nil {
		t.Error("NewOpener: no error")
	}
	k := NewOneRTT(none, wire.Version1)
	if k.SetReadSecret(make([]byte, 32)) == nil || k.SetWriteSecret(make([]byte, 32)) == nil {
		t.Error("OneRTT: no error")
	}
}

func TestIntegrityLimit(t *testing.T) {
	o, err := NewOpener(tls.TLS_CHACHA20_POLY1305_SHA256, make([]byte, 32), wire.Version1)
	if err != nil {
		t.Fatal(err)
	}
	if o.failures.limit != 1<<36 {
		t.Errorf("limit %d, want 2^36", o.failures.limit)
	}
	o.failures.limit = 3
	forged := func() error {
		_, _, err := o.Open(make([]byte, 50), 1, -1)
		return err
	}
	for range 3 {
		if err := forged(); !errors.Is(err, ErrDecrypt) {
			t.Fatalf("within the limit: %v", err)
		}
	}
	for range 2 { // and no more packets are processed then
		var werr *wire.Error
		if err := forged(); !errors.As(err, &werr) || werr.Code != wire.AEADLimitReached {
			t.Fatalf("beyond the limit: %v", err)
		}
	}
}
