package protect

import (
	"bytes"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// Whatever comes from the network, opening it neither panics nor succeeds.
func FuzzOpen(f *testing.F) {
	want := samples(f)
	f.Add(want("client_packet"), uint16(18), int64(-1))
	f.Add(want("server_packet"), uint16(18), int64(1<<62-1))
	f.Add(want("chacha_packet"), uint16(1), int64(654360563))
	f.Add([]byte{}, uint16(0), int64(0))
	f.Fuzz(func(t *testing.T, pkt []byte, pnOff uint16, largest int64) {
		if largest < -1 || largest >= 1<<62 {
			return // no caller has received such a number
		}
		for id := range suiteNames {
			secret := bytes.Repeat([]byte{0xa5}, 48)
			o, err := NewOpener(id, secret, wire.Version1)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := o.Open(bytes.Clone(pkt), int(pnOff), largest); !errors.Is(err, ErrDecrypt) {
				t.Fatalf("Opener: %v", err)
			}
		}
		// In all states of keys: first phase, and within and after an update.
		a, b, _ := newEnds(t, tls.TLS_AES_128_GCM_SHA256, 1)
		try := func() {
			if _, _, err := b.Open(bytes.Clone(pkt), int(pnOff), largest); !errors.Is(err, ErrDecrypt) {
				t.Fatalf("OneRTT: %v", err)
			}
		}
		try()
		b.gets(a.seal())
		a.gets(b.seal())
		a.updates()
		b.Open(a.seal().bytes, 5, b.largest)
		try()
		b.gets(a.seal())
		try()
	})
}
