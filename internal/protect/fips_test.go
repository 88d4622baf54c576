package protect

import (
	"bytes"
	"crypto/rand"
	"testing"
)

// The AEAD of FIPS 140 mode is the same AES-GCM, whichever number a key begins with.
func TestFIPSGCMIsGCM(t *testing.T) {
	for _, keyLen := range []int{16, 32} {
		for _, first := range []int64{0, 1, 1000, 1 << 40} {
			var b [44]byte
			rand.Read(b[:])
			key, iv := b[:keyLen], [nonceLen]byte(b[32:])
			plain, err := newGCM(key, iv)
			if err != nil {
				t.Fatal(err)
			}
			want := packetKey{plain, iv}
			got := packetKey{newFIPSGCM(key, iv), iv}
			opener := packetKey{newFIPSGCM(key, iv), iv}
			var nonce [nonceLen]byte
			for _, pn := range []int64{first, first + 1, first + 7, first + 1<<20} {
				header, payload := []byte{1, 2, 3}, bytes.Repeat([]byte{byte(pn)}, 100)
				want.nonce(&nonce, pn)
				sealed := want.aead.Seal(nil, nonce[:], payload, header)
				if again := got.aead.Seal(nil, nonce[:], payload, header); !bytes.Equal(again, sealed) {
					t.Fatalf("packet %d is sealed differently", pn)
				}
				opened, err := opener.aead.Open(nil, nonce[:], sealed, header)
				if err != nil || !bytes.Equal(opened, payload) {
					t.Fatalf("packet %d does not open: %v", pn, err)
				}
			}
		}
	}
}
