package scheduler

import (
	"math/rand/v2"
	"testing"
)

// flights serves flights of the size that room gives until more says stop. At
// the end of each flight whoever is named finds no room and sends nothing, as
// when the datagram that is open cannot hold one more frame header.
func flights(s Scheduler, room func() int, sent func(e *Entry, n int) (more bool), stop func() bool) {
	for !stop() {
		left := room()
		for left > 0 {
			e, q := s.Next()
			if e == nil {
				return // all is sent
			}
			n := min(q, left)
			s.Sent(e, n, sent(e, n))
			left -= n
		}
		if e, _ := s.Next(); e != nil {
			s.Sent(e, 0, true)
		}
		s.FlightEnd()
	}
}

// Whatever the sizes of the flights, streams that always have something to send
// are never further apart than a turn, counted at any moment.
func TestSharesAreEqualWhateverTheFlights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		quantum := 1 + r.IntN(10)
		s := New(Quantum(quantum))
		// The line is one of those who share, if it has anybody.
		shares := make([]int, 2+r.IntN(6))
		for i := range shares {
			e := NewEntry(int64(4*i), i)
			if i == 0 && r.IntN(2) == 0 {
				s.SetPriority(e, DefaultUrgency, false)
				more := NewEntry(1000, -1)
				s.SetPriority(more, DefaultUrgency, false)
				s.Ready(more)
			}
			s.Ready(e)
		}
		room := func() int { return 1 + r.IntN(64) }
		if r.IntN(2) == 0 {
			always := room()
			room = func() int { return always }
		}
		total := 0
		flights(s, room, func(e *Entry, n int) bool {
			i := e.Value.(int)
			if i < 0 {
				t.Fatal("the second of the line sent before the first was done")
			}
			shares[i] += n
			total += n
			lo, hi := shares[0], shares[0]
			for _, n := range shares {
				lo, hi = min(lo, n), max(hi, n)
			}
			if hi-lo > quantum {
				t.Fatalf("quantum %d, after %d datagrams: %v", quantum, total, shares)
			}
			return true
		}, func() bool { return total > 2000 })
	}
}

// Streams that come and go never wait longer than all others' turns.
func TestNobodyStarves(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		s := New()
		streams := 2 + r.IntN(20)
		es := make([]*Entry, streams)
		waited := make([]int, streams)
		in := make([]bool, streams)
		var first *Entry // of the line, the one that must go on
		for i := range es {
			es[i] = NewEntry(int64(4*i), i)
			s.SetPriority(es[i], DefaultUrgency, i%3 > 0)
		}
		for range 3000 {
			if i := r.IntN(streams); !in[i] {
				in[i], waited[i] = true, 0
				s.Ready(es[i])
			}
			e, q := s.Next()
			i, n := e.Value.(int), 1+r.IntN(q)
			more := r.IntN(4) > 0
			s.Sent(e, n, more)
			in[i] = more
			first = nil
			for j := range es {
				if !in[j] || j == i {
					waited[j] = 0
					continue
				}
				if j%3 == 0 { // only the first of the line has a claim
					if first != nil || es[j].ID > e.ID && i%3 == 0 {
						waited[j] = 0
						continue
					}
					first = es[j]
				}
				// Each of the others at most one turn, of at most ten parts.
				if waited[j] += n; waited[j] > 10*streams {
					t.Fatalf("stream %d waits since %d datagrams; %d streams", es[j].ID, waited[j], streams)
				}
			}
		}
	}
}

// Field report A20: a round robin moved a stream behind its equals although it
// had put no byte into the packet, and one of two equal streams starved.
func TestA20(t *testing.T) {
	const payload = 1200
	const flight = 43 // datagrams: never a whole number of turns
	s := New()
	a, b := NewEntry(0, nil), NewEntry(4, nil)
	left := map[*Entry]int{a: 20_000_000 / payload, b: 20_000_000 / payload}
	bytes := map[*Entry]int{}
	var last *Entry
	run, sharing := 0, true
	send := func(e *Entry, n int) bool {
		if e != last {
			last, run = e, 0
		}
		run += n
		if sharing && run > 10 {
			t.Fatalf("stream %d sent %d datagrams in a row", e.ID, run)
		}
		bytes[e] += n * payload
		left[e] -= n
		return left[e] > 0
	}
	until := func(n int) func() bool {
		return func() bool { return bytes[a]+bytes[b] >= n }
	}
	full := func() int { return flight }
	s.Ready(a)
	s.Ready(b)
	flights(s, full, send, until(5e6))
	for e, n := range bytes {
		if share := float64(n) / float64(bytes[a]+bytes[b]); share < 0.4 || share > 0.6 {
			t.Errorf("after 5 MB stream %d has a share of %.2f", e.ID, share)
		}
	}

	// Urgency 0 made ready in the middle of a flight is the next that is named.
	e, q := s.Next()
	urgent := NewEntry(8, nil)
	s.SetPriority(urgent, 0, true)
	s.Ready(urgent)
	s.Sent(e, q, send(e, q))
	if e, _ = s.Next(); e != urgent {
		t.Fatalf("stream %d was named, want the urgent one", e.ID)
	}
	s.Sent(urgent, 1, false)
	flights(s, full, send, until(10e6))

	sharing = false

	// Two non-incremental streams, the first without flow control credit for a
	// while: the second goes on meanwhile, and only meanwhile.
	s.SetPriority(a, 3, false)
	s.SetPriority(b, 3, false)
	for range 100 { // flights
		named, _ := s.Next()
		if named != a {
			t.Fatalf("stream %d was named, want the lower ID first", named.ID)
		}
		s.Sent(a, 0, true)
		for range 4 {
			e, q := s.Next()
			if e != b {
				t.Fatal("a blocked stream holds up the next")
			}
			s.Sent(b, q, send(b, q))
		}
		s.FlightEnd()
	}
	was := bytes[b]
	flights(s, full, send, func() bool { return left[a] <= 0 })
	// The last flight had room for both.
	if n := bytes[b] - was; n > flight*payload {
		t.Fatalf("the second sent %d bytes before the first was done", n)
	}
	flights(s, full, send, func() bool { return left[b] <= 0 })
	if e, _ := s.Next(); e != nil {
		t.Fatalf("all is sent and stream %d is named", e.ID)
	}
}
