package stream

// span is the byte range [lo, hi).
type span struct{ lo, hi int64 }

// ranges is a set of bytes, as spans in ascending order that neither overlap
// nor touch. It grows by need and then allocates no more. Taking from the
// front moves nothing; a change elsewhere moves the spans on its shorter side.
type ranges struct {
	s    []span
	head int // s[:head] is free
}

func (r *ranges) spans() []span { return r.s[r.head:] }
func (r *ranges) empty() bool   { return r.head == len(r.s) }
func (r *ranges) clear()        { r.s, r.head = r.s[:0], 0 }

// search returns the index of the first span that ends above off.
func (r *ranges) search(off int64) int {
	v := r.spans()
	lo, hi := 0, len(v)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); v[m].hi > off {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo
}

// add puts [lo, hi) into the set.
func (r *ranges) add(lo, hi int64) {
	if lo >= hi {
		return
	}
	i := r.search(lo - 1) // a span that ends at lo touches
	v := r.spans()
	j := i
	for j < len(v) && v[j].lo <= hi {
		j++
	}
	if i == j {
		r.insert(i, span{lo, hi})
		return
	}
	v[i] = span{min(lo, v[i].lo), max(hi, v[j-1].hi)}
	r.cut(i+1, j)
}

// remove takes [lo, hi) out of the set.
func (r *ranges) remove(lo, hi int64) {
	if lo >= hi || r.empty() {
		return
	}
	v := r.spans()
	i := r.search(lo)
	if i == len(v) || v[i].lo >= hi {
		return
	}
	if v[i].lo < lo {
		if v[i].hi > hi {
			rest := span{hi, v[i].hi}
			v[i].hi = lo
			r.insert(i+1, rest)
			return
		}
		v[i].hi = lo
		i++
	}
	j := i
	for j < len(v) && v[j].hi <= hi {
		j++
	}
	if j < len(v) && v[j].lo < hi {
		v[j].lo = hi
	}
	r.cut(i, j)
}

// overlaps reports whether a byte of [lo, hi) is in the set.
func (r *ranges) overlaps(lo, hi int64) bool {
	i := r.search(lo)
	v := r.spans()
	return i < len(v) && v[i].lo < hi
}

// gap returns the first run of [lo, hi) that is not in the set; it is empty
// (lo == hi) if there is none.
func (r *ranges) gap(lo, hi int64) (int64, int64) {
	v := r.spans()
	for i := r.search(lo); i < len(v) && lo < hi; i++ {
		if v[i].lo > lo {
			return lo, min(hi, v[i].lo)
		}
		lo = v[i].hi
	}
	return min(lo, hi), hi
}

func (r *ranges) insert(i int, x span) {
	n := len(r.s) - r.head
	if r.head > 0 && i < n/2 {
		r.head--
		copy(r.s[r.head:], r.s[r.head+1:r.head+1+i])
		r.s[r.head+i] = x
		return
	}
	if len(r.s) == cap(r.s) && r.head > n/2 {
		// Moving down into the free front, not growing; not before it has
		// become large, so that this costs next to nothing on average.
		copy(r.s, r.s[r.head:])
		r.s, r.head = r.s[:n], 0
	}
	r.s = append(r.s, span{})
	v := r.spans()
	copy(v[i+1:], v[i:])
	v[i] = x
}

// cut deletes the spans i..j-1.
func (r *ranges) cut(i, j int) {
	if i == j {
		return
	}
	v := r.spans()
	if i < len(v)-j {
		copy(v[j-i:], v[:i])
		r.head += j - i
	} else {
		r.s = r.s[:r.head+i+copy(v[i:], v[j:])]
	}
	if r.empty() {
		r.clear()
	}
}
