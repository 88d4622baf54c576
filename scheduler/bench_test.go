package scheduler

import (
	"fmt"
	"testing"
)

// BenchmarkTurn is what one pass costs: Next and Sent, and FlightEnd for each
// fourth, with one in eight passes sending nothing.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		for _, kind := range []string{"incremental", "line", "mixed"} {
			b.Run(fmt.Sprintf("%s-%d", kind, n), func(b *testing.B) {
				s := New()
				fill(s, n, kind)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					turn(s, i)
				}
			})
		}
	}
}

// BenchmarkComeAndGo is a stream that becomes ready, sends its last bytes and
// leaves, while others stay.
func BenchmarkComeAndGo(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		for _, kind := range []string{"incremental", "line"} {
			b.Run(fmt.Sprintf("%s-%d", kind, n), func(b *testing.B) {
				s := New()
				es := fill(s, n, kind)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					e := es[i*7919%n] // not in the order of IDs
					s.Idle(e)
					s.Ready(e)
					s.Next()
				}
			})
		}
	}
}

func fill(s Scheduler, n int, kind string) []*Entry {
	var es []*Entry
	for i := range n {
		e := NewEntry(int64(4*i), nil)
		s.SetPriority(e, DefaultUrgency, kind == "incremental" || kind == "mixed" && i%2 == 0)
		s.Ready(e)
		es = append(es, e)
	}
	return es
}

func turn(s Scheduler, i int) {
	if e, q := s.Next(); e != nil {
		if i%8 == 0 {
			q = 0
		}
		s.Sent(e, q, true)
	}
	if i%4 == 3 {
		s.FlightEnd()
	}
}

// Of a connection's memory the scheduler takes what the urgencies in use need.
func TestLevels(t *testing.T) {
	s := New().(*rfc9218)
	levels := func() (n int) {
		for _, l := range s.levels {
			if l != nil {
				n++
			}
		}
		return n
	}
	if n := levels(); n != 0 {
		t.Errorf("%d levels without streams", n)
	}
	for i := range int64(10) {
		e := &Entry{ID: i}
		s.SetPriority(e, int8(i%2), i%3 == 0)
		s.Ready(e)
	}
	if n := levels(); n != 2 {
		t.Errorf("%d levels for streams of two urgencies", n)
	}
}

func TestNoAllocation(t *testing.T) {
	s := New()
	es := fill(s, 100, "mixed")
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		turn(s, i)
		e := es[i*31%len(es)]
		s.SetPriority(e, int8(i%8), i%3 == 0)
		s.Idle(e)
		s.Ready(e)
		i++
	}); n != 0 {
		t.Fatalf("%v allocations a turn", n)
	}
}
