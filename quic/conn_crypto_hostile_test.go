package quic

import (
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// Handshake bytes may come in any order, 4096 of them at least (RFC 9000 §7.5); but a peer
// that sends every second one, the last first, is not given a search through all of them
// for each.
func TestCryptoGaps(t *testing.T) {
	push := func(below int64) (n int, err error) {
		var r cryptoRecv
		for off := below - 1; off > 0 && err == nil; off -= 2 {
			err = r.push(wire.Crypto{Off: off, Data: []byte{1}})
			n++
		}
		return n, err
	}
	if _, err := push(4096); err != nil {
		t.Errorf("4096 bytes out of order: %v", err)
	}
	n, err := push(maxCryptoBuffer)
	if w, ok := err.(*wire.Error); !ok || w.Code != wire.CryptoBufferExceeded || n > 3000 {
		t.Errorf("after %d frames with a gap behind each: %v", n, err)
	}
}
