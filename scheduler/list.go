package scheduler

// list is a ring of entries, linked through the entries themselves. The last
// one is first.prev; setting first to another member turns the ring.
type list struct {
	first *Entry
	n     int
}

func (l *list) pushBack(e *Entry) {
	if l.first == nil {
		l.first, e.prev, e.next = e, e, e
	} else {
		last := l.first.prev
		e.prev, e.next = last, l.first
		last.next, l.first.prev = e, e
	}
	l.n++
}

func (l *list) remove(e *Entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	if l.n--; l.n == 0 {
		l.first = nil
	} else if l.first == e {
		l.first = e.next
	}
	e.prev, e.next = nil, nil
}
