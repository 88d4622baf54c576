package recovery

import (
	"math/rand/v2"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

func TestSkipsAgainstASet(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var s skips
		set := map[int64]bool{}
		for range 60 {
			lo := rng.Int64N(200)
			hi := lo
			s.add(lo, hi)
			set[lo] = true
		}
		for i, r := range s {
			if r.Lo > r.Hi || i > 0 && r.Lo <= s[i-1].Hi+1 {
				t.Fatalf("seed %d: %v is not in order and joined", seed, s)
			}
		}
		n := 0
		for _, r := range s {
			n += int(r.Hi - r.Lo + 1)
		}
		if n != len(set) {
			t.Fatalf("seed %d: %d numbers in %v, want %d", seed, n, s, len(set))
		}
		for range 50 {
			b := rng.Int64N(200)
			a := b - rng.Int64N(b+1)
			d := a - 2 - rng.Int64N(10)
			ranges := []wire.AckRange{{Lo: a, Hi: b}, {Lo: d - 3, Hi: d}}
			want := false
			for _, r := range ranges {
				for i := r.Lo; i <= r.Hi; i++ {
					want = want || set[i]
				}
			}
			if got := s.named(ranges); got != want {
				t.Fatalf("seed %d: %v names one of %v: %v", seed, ranges, s, got)
			}
			if set[b] {
				continue // an acknowledged number was sent
			}
			limit := b
			for left := 3; left > 0; {
				if limit--; !set[limit] {
					left--
				}
			}
			if got := s.back(b, 3); got != limit {
				t.Fatalf("seed %d: three packets before %d is %d, want %d (%v)", seed, b, got, limit, s)
			}
		}
	}
}

func TestSkipsAreBounded(t *testing.T) {
	var s skips
	for i := range int64(100000) {
		s.add(2*i, 2*i)
	}
	if len(s) > maxSkips || cap(s) > 2*maxSkips {
		t.Fatalf("%d runs in room for %d", len(s), cap(s))
	}
	if !s.named([]wire.AckRange{{Lo: 199998, Hi: 199998}}) {
		t.Fatal("the latest was forgotten")
	}
}
