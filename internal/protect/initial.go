package protect

import (
	"crypto/fips140"
	"crypto/hkdf"
	"crypto/sha256"

	"github.com/volley-quic/volley/internal/wire"
)

var (
	// RFC 9001 §5.2.
	initialSalt1 = []byte{
		0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
		0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
	}
	// RFC 9369 §3.3.1.
	initialSalt2 = []byte{
		0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93,
		0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
	}
)

// InitialSecrets derives the two secrets of the Initial packets from the
// Destination Connection ID of the client's first Initial, or of its first after
// a Retry (RFC 9001 §5.2). Their suite is TLS_AES_128_GCM_SHA256.
func InitialSecrets(version uint32, dst []byte) (client, server []byte) {
	salt := initialSalt1
	if version == wire.Version2 {
		salt = initialSalt2
	}
	// Whoever sees the packet can do the same: FIPS 140 has no say in it, and would find
	// the connection ID too short for a key.
	fips140.WithoutEnforcement(func() {
		prk, err := hkdf.Extract(sha256.New, dst, salt)
		if err == nil {
			client, err = expandLabel(sha256.New, prk, "client in", sha256.Size)
		}
		if err == nil {
			server, err = expandLabel(sha256.New, prk, "server in", sha256.Size)
		}
		if err != nil {
			panic("protect: " + err.Error()) // for lengths that are not used here
		}
	})
	return client, server
}
