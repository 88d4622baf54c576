package quic

import "slices"

// spans is a set of non-negative integers, as disjoint, non-adjacent, ascending
// ranges. The common case, growth at the end, costs nothing.
type spans []span

// A span is the range lo to hi, hi included.
type span struct{ lo, hi int64 }

// add puts lo to hi into the set.
func (s *spans) add(lo, hi int64) {
	r := *s
	// Nearly everything comes in order, so the search starts at the end.
	i := len(r) // first range that lies wholly above
	for i > 0 && r[i-1].lo > hi+1 {
		i--
	}
	j := i // first range that is not wholly below
	for j > 0 && r[j-1].hi >= lo-1 {
		j--
	}
	if j == i {
		*s = slices.Insert(r, i, span{lo, hi})
		return
	}
	r[j] = span{min(lo, r[j].lo), max(hi, r[i-1].hi)}
	*s = slices.Delete(r, j+1, i)
}

// remove takes lo to hi out of the set.
func (s *spans) remove(lo, hi int64) {
	for i := 0; i < len(*s); i++ {
		r := (*s)[i]
		switch {
		case r.hi < lo:
		case r.lo > hi:
			return
		case r.lo < lo && r.hi > hi:
			(*s)[i].hi = lo - 1
			*s = slices.Insert(*s, i+1, span{hi + 1, r.hi})
			return
		case r.lo < lo:
			(*s)[i].hi = lo - 1
		case r.hi > hi:
			(*s)[i].lo = hi + 1
		default:
			*s = slices.Delete(*s, i, i+1)
			i--
		}
	}
}

// contains reports whether v is in the set.
func (s spans) contains(v int64) bool {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].lo <= v {
			return v <= s[i].hi
		}
	}
	return false
}
