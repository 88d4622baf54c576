package recovery

import "github.com/volley-quic/volley/internal/wire"

// skips are numbers that were never sent although higher ones were: skipped on
// purpose (RFC 9000 §21.4), or burnt because the kernel refused the packet.
// Ascending, disjoint, neighbours joined.
type skips []wire.AckRange

// maxSkips bounds the list. When it is full the older half is forgotten: a
// peer that guesses acknowledges what is in flight, not what is long past.
const maxSkips = 256

func (s *skips) add(lo, hi int64) {
	l := *s
	// Nearly always the new run goes at the end.
	i := len(l)
	for i > 0 && l[i-1].Lo > hi {
		i--
	}
	if i > 0 && l[i-1].Hi >= lo-1 { // touches the run before
		l[i-1].Lo = min(l[i-1].Lo, lo)
		l[i-1].Hi = max(l[i-1].Hi, hi)
		i--
	} else {
		if len(l) == maxSkips {
			if i <= maxSkips/2 {
				return // older than what is about to be forgotten
			}
			n := copy(l, l[maxSkips/2:])
			l, i = l[:n], i-maxSkips/2
		}
		l = append(l, wire.AckRange{})
		copy(l[i+1:], l[i:])
		l[i] = wire.AckRange{Lo: lo, Hi: hi}
	}
	if i+1 < len(l) && l[i].Hi >= l[i+1].Lo-1 { // touches the run after
		l[i].Hi = max(l[i].Hi, l[i+1].Hi)
		l = append(l[:i+1], l[i+2:]...)
	}
	*s = l
}

// named reports whether any of the ranges, which descend, names a number that
// was never sent.
func (s skips) named(ranges []wire.AckRange) bool {
	i := len(s) - 1
	for _, r := range ranges {
		for i >= 0 && s[i].Lo > r.Hi {
			i--
		}
		if i < 0 {
			return false
		}
		if s[i].Hi >= r.Lo {
			return true
		}
	}
	return false
}

// back is the number that lies n sent packets before pn.
func (s skips) back(pn, n int64) int64 {
	limit := pn - n
	for i := len(s) - 1; i >= 0 && s[i].Hi >= limit; i-- {
		if s[i].Hi < pn {
			limit -= s[i].Hi - s[i].Lo + 1
		}
	}
	return limit
}

// between is how many numbers of lo..hi were never sent.
func (s skips) between(lo, hi int64) (n int64) {
	for _, r := range s {
		n += max(0, min(r.Hi, hi)-max(r.Lo, lo)+1)
	}
	return n
}
