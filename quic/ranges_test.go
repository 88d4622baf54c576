package quic

import (
	"math/rand/v2"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// spans against a set that is nothing but a set.
func TestSpans(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		var s spans
		set := map[int64]bool{}
		for step := range 200 {
			lo := rng.Int64N(60)
			hi := lo + rng.Int64N(8)
			add := rng.IntN(3) > 0
			if add {
				s.add(lo, hi)
			} else {
				s.remove(lo, hi)
			}
			for v := lo; v <= hi; v++ {
				if add {
					set[v] = true
				} else {
					delete(set, v)
				}
			}
			for v := range int64(70) {
				if s.contains(v) != set[v] {
					t.Fatalf("seed %d, step %d: %v contains %d: %t", seed, step, s, v, !set[v])
				}
			}
			for i, r := range s {
				if r.lo > r.hi || i > 0 && r.lo <= s[i-1].hi+1 {
					t.Fatalf("seed %d, step %d: %v is not in order", seed, step, s)
				}
			}
		}
	}
}

// Bytes of the handshake against a plain buffer: whatever order they come in, TLS gets
// them once and in order.
func TestCryptoStreams(t *testing.T) {
	for range 100 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, rng.IntN(5000)+1)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var send cryptoSend
		var recv cryptoRecv
		var got []byte
		rest := data
		type packet struct {
			off int64
			n   int
		}
		var flying []packet
		for len(got) < len(data) {
			if n := min(rng.IntN(500), len(rest)); n > 0 {
				send.write(rest[:n])
				rest = rest[n:]
			}
			if send.pending() {
				off, p := send.next()
				n := min(len(p), rng.IntN(300)+1)
				send.packed(off, n)
				flying = append(flying, packet{off, n})
			} else if off, p := send.probe(); len(p) > 0 {
				n := min(len(p), 300)
				send.probed = off + int64(n)
				flying = append(flying, packet{off, n})
			}
			if len(flying) > 0 && rng.IntN(2) == 0 {
				i := rng.IntN(len(flying))
				f := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				if rng.IntN(3) == 0 {
					send.OnLost(f.off, f.n, false)
					continue
				}
				if err := recv.push(wire.Crypto{Off: f.off, Data: data[f.off : f.off+int64(f.n)]}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				send.OnAcked(f.off, f.n, false)
				got = append(got, recv.pop()...)
			}
		}
		if string(got) != string(data) {
			t.Fatalf("seed %d: other bytes came out", seed)
		}
		for len(flying) > 0 { // late news of what is done with
			send.OnLost(flying[0].off, flying[0].n, false)
			flying = flying[1:]
		}
		if send.pending() && len(rest) == 0 {
			off, p := send.next()
			t.Fatalf("seed %d: everything has arrived, and %d bytes at %d are to be sent", seed, len(p), off)
		}
	}
}
