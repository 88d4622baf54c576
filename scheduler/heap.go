package scheduler

// heap finds the entry of the lowest stream ID: a pairing heap, linked through
// the entries. A sorted list would do while streams become ready in the order of
// their IDs, but a peer that hands out flow control credit in another order
// could make every insertion walk the list.
//
// An entry's children form a list through next, starting at child. prev is the
// sibling before, or for the first child the parent; the root has neither.
type heap struct {
	min *Entry
}

func (h *heap) push(e *Entry) { h.min = meld(h.min, e) }

func (h *heap) remove(e *Entry) {
	below := combine(e.child)
	if e == h.min {
		h.min = below
	} else {
		if e.prev.child == e {
			e.prev.child = e.next
		} else {
			e.prev.next = e.next
		}
		if e.next != nil {
			e.next.prev = e.prev
		}
		h.min = meld(h.min, below)
	}
	e.prev, e.next, e.child = nil, nil, nil
}

// meld joins two roots, either of which may be nil.
func meld(a, b *Entry) *Entry {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	if b.ID < a.ID {
		a, b = b, a
	}
	if b.next = a.child; b.next != nil {
		b.next.prev = b
	}
	a.child, b.prev = b, a
	return a
}

// combine joins a list of siblings into one root: in pairs from the left, then
// the pairs from the right. This order is what makes removal logarithmic.
func combine(e *Entry) *Entry {
	var pairs *Entry // linked through next, the rightmost first
	for e != nil {
		a, b := e, e.next
		e = nil
		if b != nil {
			e = b.next
			b.prev, b.next = nil, nil
		}
		a.prev, a.next = nil, nil
		p := meld(a, b)
		p.next, pairs = pairs, p
	}
	var root *Entry
	for pairs != nil {
		p := pairs
		pairs, p.next = p.next, nil
		root = meld(root, p)
	}
	return root
}
