package handshake

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// The errors of [Tokens.Open].
var (
	ErrToken        = errors.New("handshake: not a token of this server")
	ErrTokenAddress = errors.New("handshake: token of another address")
	ErrTokenExpired = errors.New("handshake: token has expired")
)

// Token is what a valid token says.
type Token struct {
	IsRetry  bool // from a Retry packet; else from a NEW_TOKEN frame
	IssuedAt time.Time
	// Of a Retry token: the Destination Connection ID of the client's first Initial,
	// and the Source Connection ID of the Retry (RFC 9000 §7.3).
	OrigDst, RetrySrc []byte
}

// Tokens makes and checks the tokens with which a server validates addresses
// (RFC 9000 §8.1). Every token is sealed with a key of its own, so that any number
// of them, from any number of servers with the same key, stay unforgeable. Safe
// for concurrent use.
type Tokens struct {
	key [32]byte
	// Ages beyond which a token is not accepted; set before use. The defaults are 10
	// seconds for a Retry, to which the client answers at once (RFC 9000 §8.1.3), and
	// 24 hours for NEW_TOKEN.
	MaxRetryAge, MaxAge time.Duration
}

// NewTokens returns a Tokens with the given secret.
func NewTokens(key [32]byte) *Tokens {
	return &Tokens{key: key, MaxRetryAge: 10 * time.Second, MaxAge: 24 * time.Hour}
}

const (
	saltLen = 16
	tagLen  = 16

	kindRetry, kindNewToken = 1, 2
)

// NewRetry makes the token of a Retry packet sent to addr. The connection IDs are
// at most 255 bytes long.
func (t *Tokens) NewRetry(addr net.Addr, origDst, retrySrc []byte) []byte {
	return t.seal(kindRetry, addr, origDst, retrySrc)
}

// NewToken makes the token of a NEW_TOKEN frame sent to addr.
func (t *Tokens) NewToken(addr net.Addr) []byte {
	return t.seal(kindNewToken, addr, nil, nil)
}

// Open checks a token that came from addr. Whatever the error, the client's address
// is not validated. With ErrTokenAddress and ErrTokenExpired the Token is filled in:
// a Retry token that fails may be answered with INVALID_TOKEN (RFC 9000 §8.1.2).
func (t *Tokens) Open(b []byte, addr net.Addr) (Token, error) {
	if len(b) < saltLen+tagLen {
		return Token{}, ErrToken
	}
	plain, err := t.aead(b[:saltLen]).Open(nil, nil, b[saltLen:], nil)
	if err != nil {
		return Token{}, ErrToken
	}
	s := cryptobyte.String(plain)
	var kind uint8
	var issued uint64
	var origDst, retrySrc cryptobyte.String
	ok := s.ReadUint8(&kind) && s.ReadUint64(&issued) &&
		s.ReadUint8LengthPrefixed(&origDst) && s.ReadUint8LengthPrefixed(&retrySrc)
	if !ok {
		return Token{}, ErrToken
	}
	tok := Token{IsRetry: kind == kindRetry, IssuedAt: time.Unix(0, int64(issued)), OrigDst: origDst, RetrySrc: retrySrc}
	if !bytes.Equal(s, tokenAddr(kind, addr)) {
		return tok, ErrTokenAddress
	}
	maxAge := t.MaxAge
	if tok.IsRetry {
		maxAge = t.MaxRetryAge
	}
	// A token from the future (another server's clock) counts as new.
	if time.Since(tok.IssuedAt) > maxAge {
		return tok, ErrTokenExpired
	}
	return tok, nil
}

func (t *Tokens) seal(kind uint8, addr net.Addr, origDst, retrySrc []byte) []byte {
	salt := make([]byte, saltLen, 128)
	rand.Read(salt)
	b := cryptobyte.NewBuilder(nil)
	b.AddUint8(kind)
	b.AddUint64(uint64(time.Now().UnixNano()))
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(origDst) })
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(retrySrc) })
	b.AddBytes(tokenAddr(kind, addr))
	return t.aead(salt).Seal(salt, nil, b.BytesOrPanic(), nil)
}

// aead makes the AEAD that belongs to a token's salt. It sees to the nonce itself, which
// goes in front of the ciphertext: FIPS 140 wants it so.
func (t *Tokens) aead(salt []byte) cipher.AEAD {
	var aead cipher.AEAD
	key, err := hkdf.Key(sha256.New, t.key[:], salt, "volley address validation token", 32)
	if err == nil {
		var block cipher.Block
		if block, err = aes.NewCipher(key); err == nil {
			aead, err = cipher.NewGCMWithRandomNonce(block)
		}
	}
	if err != nil {
		panic("handshake: " + err.Error()) // for lengths that are not used here
	}
	return aead
}

// tokenAddr is the part of an address that a token is bound to. A NAT may give a
// returning client another port, but not between a Retry and its answer
// (RFC 9000 §8.1.4).
func tokenAddr(kind uint8, addr net.Addr) []byte {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return []byte(addr.Network() + "\x00" + addr.String())
	}
	ap := udp.AddrPort()
	ip := ap.Addr().Unmap().AsSlice()
	if kind == kindRetry {
		ip = append(ip, byte(ap.Port()>>8), byte(ap.Port()))
	}
	return ip
}
