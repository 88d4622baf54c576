package main

import (
	"sync"
	"time"
)

// A link carries datagrams one way, in order: each waits until those before it are
// sent, takes as long as its size says, and arrives a delay later.
type link struct {
	mbps  float64
	queue int
	delay time.Duration

	mu     sync.Mutex
	starts []time.Time // when each datagram begins that has not begun yet
	free   time.Time   // when the last one ends
	closed bool
	due    chan departure
}

type departure struct {
	at      time.Time
	deliver func()
}

// overhead is what a datagram of the simulator carries beside its payload: the headers
// of IPv4, UDP and PPP.
const overhead = 20 + 8 + 2

func newLink(s scenario) *link {
	l := &link{mbps: s.mbps, queue: s.queue, delay: s.delay, due: make(chan departure, 4096)}
	go func() {
		for d := range l.due {
			time.Sleep(time.Until(d.at))
			d.deliver()
		}
	}()
	return l
}

// send takes a datagram of size bytes, and reports whether there was room for it.
// deliver is called when it arrives, in a goroutine that delivers nothing else meanwhile.
func (l *link) send(size int, deliver func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.starts) > 0 && !l.starts[0].After(now) {
		l.starts = l.starts[1:]
	}
	if l.closed || len(l.starts) >= l.queue {
		return false
	}
	start := now
	if l.free.After(now) {
		start = l.free
		l.starts = append(l.starts, start)
	}
	l.free = start.Add(time.Duration(float64(size+overhead) * 8 / l.mbps * float64(time.Microsecond)))
	select {
	case l.due <- departure{l.free.Add(l.delay), deliver}:
		return true
	default:
		return false
	}
}

// close lets what is under way arrive, and takes no more.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.due)
	}
}
