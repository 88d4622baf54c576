package scheduler_test

import (
	"fmt"

	"github.com/volley-quic/volley/scheduler"
)

// What a sender does: it asks whose turn it is, sends, and says what left.
func Example() {
	s := scheduler.New(scheduler.Quantum(4))
	page := scheduler.NewEntry(0, "page")
	video := scheduler.NewEntry(4, "video")
	audio := scheduler.NewEntry(8, "audio")
	s.SetPriority(page, 1, false)

	left := map[*scheduler.Entry]int{page: 6, video: 9, audio: 5} // datagrams
	s.Ready(video)
	s.Ready(audio)
	s.Ready(page)
	for {
		e, quantum := s.Next()
		if e == nil {
			break
		}
		n := min(quantum, left[e])
		left[e] -= n
		fmt.Println(e.Value, n)
		s.Sent(e, n, left[e] > 0)
	}
	s.FlightEnd()
	// Output:
	// page 4
	// page 2
	// video 4
	// audio 4
	// video 4
	// audio 1
	// video 1
}

// fifo sends one stream after another, in the order in which they became ready,
// and knows no priorities.
type fifo struct {
	ready  []*scheduler.Entry
	passed int // so many at the front sent nothing in this flight
}

func (f *fifo) find(e *scheduler.Entry) int {
	for i := range f.ready {
		if f.ready[i] == e {
			return i
		}
	}
	return -1
}

func (f *fifo) Ready(e *scheduler.Entry) {
	if f.find(e) < 0 {
		f.ready = append(f.ready, e)
	}
}

func (f *fifo) Next() (*scheduler.Entry, int) {
	if f.passed == len(f.ready) {
		return nil, 0
	}
	return f.ready[f.passed], 0 // 0: as much as one pass takes
}

func (f *fifo) Sent(e *scheduler.Entry, datagrams int, more bool) {
	switch i := f.find(e); {
	case i < 0: // it left while it was named
	case !more:
		f.Idle(e)
	case datagrams == 0 && i == f.passed:
		f.passed++
	}
}

func (f *fifo) Idle(e *scheduler.Entry) {
	if i := f.find(e); i >= 0 {
		f.ready = append(f.ready[:i], f.ready[i+1:]...)
		if i < f.passed {
			f.passed--
		}
	}
}

func (f *fifo) FlightEnd() { f.passed = 0 }

func (f *fifo) SetPriority(*scheduler.Entry, int8, bool) {}

// An application can bring its own order.
func ExampleScheduler() {
	var s scheduler.Scheduler = new(fifo)
	first, second := scheduler.NewEntry(4, "first"), scheduler.NewEntry(0, "second")
	s.Ready(first)
	s.Ready(second)

	e, _ := s.Next()
	fmt.Println(e.Value, "has nothing to send yet")
	s.Sent(e, 0, true)
	e, _ = s.Next()
	fmt.Println(e.Value, "is not held up")
	s.Sent(e, 10, true)
	s.FlightEnd()
	e, _ = s.Next()
	fmt.Println(e.Value, "comes before it again")
	// Output:
	// first has nothing to send yet
	// second is not held up
	// first comes before it again
}
