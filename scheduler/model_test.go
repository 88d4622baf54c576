package scheduler

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the scheduler as the package comment tells it, in slices and without
// any thought for speed. It knows streams by their index.
type model struct {
	quantum int
	s       []mstream
	// turns holds, for each urgency, whoever takes turns: a stream, or line.
	turns   [8][]int
	line    [8]int // datagrams used of the line's turn
	skipped []int
}

type mstream struct {
	ready, skipped, incremental bool
	urgency, used               int
}

const line = -1

func newModel(n, quantum int) *model {
	m := &model{quantum: quantum}
	for u := range m.turns {
		m.turns[u] = []int{line}
	}
	for range n {
		m.s = append(m.s, mstream{urgency: 3, incremental: true})
	}
	return m
}

// head returns the stream of the lowest ID in the line of urgency u, or -1. IDs
// ascend with the index.
func (m *model) head(u int) int {
	return slices.IndexFunc(m.s, func(s mstream) bool {
		return s.ready && !s.skipped && !s.incremental && s.urgency == u
	})
}

func (m *model) next() (i, quantum int) {
	for u := range 8 {
		var who []int
		for _, i := range m.turns[u] {
			if i != line || m.head(u) >= 0 {
				who = append(who, i)
			}
		}
		if len(who) == 0 {
			continue
		}
		used := &m.line[u]
		if who[0] != line {
			used = &m.s[who[0]].used
		}
		if len(who) == 1 {
			*used = 0
		}
		if who[0] == line {
			return m.head(u), m.quantum - *used
		}
		return who[0], m.quantum - *used
	}
	return -1, 0
}

func (m *model) leave(i int) {
	s := &m.s[i]
	is := func(j int) bool { return i == j }
	m.turns[s.urgency] = slices.DeleteFunc(m.turns[s.urgency], is)
	m.skipped = slices.DeleteFunc(m.skipped, is)
	s.ready, s.skipped, s.used = false, false, 0
}

func (m *model) enter(i int) {
	s := &m.s[i]
	if s.ready {
		return
	}
	s.ready = true
	if s.incremental {
		m.turns[s.urgency] = append(m.turns[s.urgency], i)
	}
}

func (m *model) sent(i, n int, more bool) {
	s := &m.s[i]
	t := &m.turns[s.urgency]
	switch {
	case n == 0:
	case !s.incremental:
		if m.line[s.urgency] += n; m.line[s.urgency] >= m.quantum {
			m.line[s.urgency] = 0
			*t = append(slices.DeleteFunc(*t, func(j int) bool { return j == line }), line)
		}
	case s.ready:
		if s.used += n; s.used >= m.quantum {
			m.leave(i)
			m.enter(i)
		}
	}
	switch {
	case !s.ready:
	case !more:
		m.leave(i)
	case n == 0 && !s.skipped:
		used := s.used
		m.leave(i)
		s.ready, s.skipped, s.used = true, true, used
		m.skipped = append(m.skipped, i)
	}
}

func (m *model) flightEnd() {
	var first [8][]int
	for _, i := range m.skipped {
		m.s[i].skipped = false
		if s := m.s[i]; s.incremental {
			first[s.urgency] = append(first[s.urgency], i)
		}
	}
	for u := range first {
		m.turns[u] = append(first[u], m.turns[u]...)
	}
	m.skipped = nil
}

func (m *model) setPriority(i, urgency int, incremental bool) {
	s := &m.s[i]
	urgency = min(max(urgency, 0), 7)
	if s.urgency == urgency && s.incremental == incremental {
		return
	}
	in := s.ready
	m.leave(i)
	s.urgency, s.incremental = urgency, incremental
	if in {
		m.enter(i)
	}
}

// drive reads decisions from choose, which answers with a number below n, and
// holds the scheduler against the model after each.
func drive(t *testing.T, steps int, choose func(n int) int) {
	streams, quantum := 1+choose(24), 1+choose(10)
	s := New(Quantum(quantum))
	m := newModel(streams, quantum)
	var es []*Entry
	for i := range streams {
		es = append(es, NewEntry(int64(4*i), i))
	}
	// Few levels at a time, so that streams meet.
	levels := 1 + choose(4)
	named := -1
	for step := range steps {
		i := choose(streams)
		switch op := choose(16); {
		case op < 4:
			s.Ready(es[i])
			m.enter(i)
		case op < 5:
			s.Idle(es[i])
			m.leave(i)
		case op < 6:
			u, inc := choose(levels+1)-1, choose(2) == 0
			s.SetPriority(es[i], int8(u), inc)
			m.setPriority(i, u, inc)
		case op < 7:
			s.FlightEnd()
			m.flightEnd()
		case op < 8: // a late report, about whomever
			n, more := choose(quantum+1), choose(2) == 0
			s.Sent(es[i], n, more)
			m.sent(i, n, more)
		default:
			if named >= 0 {
				n, more := 0, choose(4) > 0
				switch choose(4) {
				case 0:
				case 1:
					n = choose(quantum + 1)
				default:
					n = quantum
				}
				s.Sent(es[named], n, more)
				m.sent(named, n, more)
				named = -1
				break
			}
			var want int
			named, want = m.next()
			e, q := s.Next()
			got := -1
			if e != nil {
				got = e.Value.(int)
			}
			if got != named || q != want {
				t.Fatalf("step %d: stream %d may send %d, want stream %d and %d", step, got, q, named, want)
			}
		}
		check(t, s.(*rfc9218))
	}
}

// check walks every list and compares it with what the entries say.
func check(t *testing.T, s *rfc9218) {
	t.Helper()
	walk := func(name string, l *list, ok func(*Entry) bool) {
		n := 0
		for e := l.first; e != nil; {
			if e.next.prev != e || e.prev.next != e || !ok(e) {
				t.Fatalf("%s: wrong entry %+v", name, *e)
			}
			n++
			if e = e.next; e == l.first {
				break
			}
		}
		if n != l.n {
			t.Fatalf("%s holds %d entries and says %d", name, n, l.n)
		}
	}
	for u := range s.levels {
		l := s.levels[u]
		if l == nil {
			if s.busy>>u&1 != 0 {
				t.Fatalf("urgency %d is busy, and is not there", u)
			}
			continue
		}
		lines := 0
		walk("ring", &l.ring, func(e *Entry) bool {
			if e == &l.line {
				lines++
				return true
			}
			return e.state == ready && e.incremental && int(e.urgency) == u && e.used < s.quantum
		})
		if lines != 1 {
			t.Fatalf("urgency %d: the line stands %d times in the ring", u, lines)
		}
		var down func(e, prev *Entry, least int64)
		down = func(e, prev *Entry, least int64) {
			for ; e != nil; e, prev = e.next, e {
				if e.prev != prev || e.ID < least || e.state != ready || e.incremental || int(e.urgency) != u {
					t.Fatalf("urgency %d: wrong entry in the heap: %+v", u, *e)
				}
				down(e.child, e, e.ID)
			}
		}
		down(l.heap.min, nil, 0)
		if l.heap.min != nil && l.heap.min.next != nil {
			t.Fatalf("urgency %d: the heap has two roots", u)
		}
		if busy := l.ring.n > 1 || l.heap.min != nil; busy != (s.busy>>u&1 == 1) {
			t.Fatalf("urgency %d: busy is %v, its bit is not", u, busy)
		}
	}
	walk("skipped", &s.skipped, func(e *Entry) bool { return e.state == skipped })
}

func TestAgainstTheModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		drive(t, 500, r.IntN)
	}
}

func FuzzAgainstTheModel(f *testing.F) {
	f.Add([]byte("a few decisions to begin with"))
	f.Fuzz(func(t *testing.T, b []byte) {
		drive(t, len(b), func(n int) int {
			if len(b) == 0 {
				return 0
			}
			c := b[0]
			b = b[1:]
			return int(c) % n
		})
	})
}

func TestHeapSorts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		var h heap
		var all []*Entry
		for range 1 + r.IntN(200) {
			e := &Entry{ID: r.Int64N(100)}
			all = append(all, e)
			h.push(e)
		}
		for range r.IntN(len(all)) { // from anywhere
			i := r.IntN(len(all))
			h.remove(all[i])
			all = slices.Delete(all, i, i+1)
		}
		slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(a.ID, b.ID) })
		for _, want := range all {
			if h.min == nil || h.min.ID != want.ID {
				t.Fatalf("the heap says %+v, want ID %d", h.min, want.ID)
			}
			h.remove(h.min)
		}
		if h.min != nil {
			t.Fatal("something is left in the heap")
		}
	}
}
