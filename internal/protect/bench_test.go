package protect

import (
	"fmt"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

var benchSizes = []int{1452, 16376}

func benchPacket(s *Sealer, size int) []byte {
	pkt := wire.AppendShort(make([]byte, 0, size), make([]byte, 8), 7, 4, false)
	return pkt[:size]
}

func BenchmarkSeal(b *testing.B) {
	forEachSuite(b, func(b *testing.B, suite uint16, secret []byte) {
		for _, size := range benchSizes {
			b.Run(fmt.Sprint(size), func(b *testing.B) {
				s, err := NewSealer(suite, secret, wire.Version1)
				if err != nil {
					b.Fatal(err)
				}
				pkt := benchPacket(s, size)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					pkt[0] = 0x43
					s.Seal(pkt, 9, 4, 7)
				}
			})
		}
	})
}

// BenchmarkOpen includes a copy of the packet, since opening is in place.
func BenchmarkOpen(b *testing.B) {
	forEachSuite(b, func(b *testing.B, suite uint16, secret []byte) {
		for _, size := range benchSizes {
			b.Run(fmt.Sprint(size), func(b *testing.B) {
				s, err := NewSealer(suite, secret, wire.Version1)
				if err != nil {
					b.Fatal(err)
				}
				k := NewOneRTT(suite, wire.Version1)
				if err := k.SetReadSecret(secret); err != nil {
					b.Fatal(err)
				}
				sealed := benchPacket(s, size)
				s.Seal(sealed, 9, 4, 7)
				pkt := make([]byte, size)
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					copy(pkt, sealed)
					if _, _, err := k.Open(pkt, 9, 6); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

func BenchmarkKeyUpdate(b *testing.B) {
	forEachSuite(b, func(b *testing.B, suite uint16, secret []byte) {
		k := NewOneRTT(suite, wire.Version1)
		if err := k.SetWriteSecret(secret); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := k.updateSend(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The hot path allocates nothing, in any state of the keys.
func TestNoAllocations(t *testing.T) {
	forAllSuites(t, func(t *testing.T, suite uint16) {
		a, b, _ := newEnds(t, suite, 1)
		a.payload = make([]byte, 1200)
		b.payload = a.payload
		check := func(state string) {
			t.Helper()
			pkt := make([]byte, len(a.seal().bytes))
			s, phase := a.SealKey()
			pn := a.nextPN
			a.nextPN++
			p := a.sealWith(s, pn, phase)
			plain := make([]byte, len(a.payload))
			for what, f := range map[string]func(){
				"Seal":   func() { s.Seal(pkt, 5, 4, pn) },
				"SealTo": func() { s.SealTo(pkt, plain, 5, 4, pn) },
				"Open": func() {
					copy(pkt, p.bytes)
					if _, _, err := b.Open(pkt, 5, b.largest); err != nil {
						t.Error(err)
					}
				},
				"Open of a forged packet": func() {
					copy(pkt, p.bytes)
					pkt[20] ^= 1
					b.Open(pkt, 5, b.largest)
				},
				"SealKey, Sent and MaybeUpdate": func() {
					b.SealKey()
					b.Sent(1<<40, 1)
					b.MaybeUpdate(b.clock.now, pto)
				},
				"Acked and Received": func() {
					b.Acked(b.nextPN - 1)
					b.Received(b.clock.now, pto)
				},
			} {
				if n := testing.AllocsPerRun(100, f); n != 0 {
					t.Errorf("%s, %s: %v allocations", what, state, n)
				}
			}
		}
		check("first phase")
		b.gets(a.seal())
		a.gets(b.seal())
		a.updates()
		b.gets(a.seal())
		check("after an update")
	})
}
