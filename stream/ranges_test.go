package stream

import (
	"testing"
)

func TestRangesAreASetOfBytes(t *testing.T) {
	r := newRandom(t, 0)
	for range 200 {
		const size = 300
		var set ranges
		var naive [size]bool
		for range 150 {
			lo := r.IntN(size)
			hi := min(size, lo+r.IntN(20))
			if r.IntN(4) == 0 && !set.empty() { // often from the front, as the sender does
				lo = int(set.spans()[0].lo)
				hi = min(size, lo+r.IntN(30))
			}
			in := r.IntN(3) > 0
			if in {
				set.add(int64(lo), int64(hi))
			} else {
				set.remove(int64(lo), int64(hi))
			}
			for i := lo; i < hi; i++ {
				naive[i] = in
			}
			checkSet(t, &set, naive[:])
			a := r.IntN(size)
			b := a + 1 + r.IntN(size-a)
			any, g := false, a
			for i := a; i < b; i++ {
				any = any || naive[i]
			}
			for g < b && naive[g] {
				g++
			}
			e := g
			for e < b && !naive[e] {
				e++
			}
			if set.overlaps(int64(a), int64(b)) != any {
				t.Fatalf("overlaps(%d, %d) is not %v: %v", a, b, any, set.spans())
			}
			if lo, hi := set.gap(int64(a), int64(b)); lo != int64(g) || hi != int64(e) {
				t.Fatalf("gap(%d, %d) = %d, %d, want %d, %d: %v", a, b, lo, hi, g, e, set.spans())
			}
		}
	}
}

func checkSet(t *testing.T, set *ranges, naive []bool) {
	t.Helper()
	last := int64(-1)
	n := 0
	for _, s := range set.spans() {
		if s.lo >= s.hi || s.lo <= last {
			t.Fatalf("spans overlap, touch or are empty: %v", set.spans())
		}
		last = s.hi
		for i := s.lo; i < s.hi; i++ {
			if !naive[i] {
				t.Fatalf("byte %d is in %v", i, set.spans())
			}
			n++
		}
	}
	for _, in := range naive {
		if in {
			n--
		}
	}
	if n != 0 {
		t.Fatalf("bytes are missing in %v", set.spans())
	}
}

func TestRangesDoNotAllocateWhenTheyHaveGrown(t *testing.T) {
	var set ranges
	cycle := func() {
		for i := range int64(100) {
			set.add(i*10, i*10+5)
		}
		for i := range int64(100) {
			set.remove(i*10, i*10+5)
			set.add(1000+i*10, 1000+i*10+5)
		}
		set.remove(0, 1<<40)
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A queue that gets at its end and loses at its front must not move what
// stays: 10⁵ spans would take half a minute otherwise.
func BenchmarkRangesAsAQueue(b *testing.B) {
	var set ranges
	for i := range int64(100_000) {
		set.add(i*10, i*10+5)
	}
	lo, hi := int64(0), int64(1_000_000)
	for b.Loop() {
		set.remove(lo, lo+5)
		set.add(hi, hi+5)
		lo, hi = lo+10, hi+10
	}
}
