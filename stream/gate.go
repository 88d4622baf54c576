package stream

import (
	"context"
	"time"
)

// Who is inside a gate.
const (
	nobody uint8 = iota
	aCall
	aSource
)

// gate serialises the application's calls of one direction, and is where
// they wait. One call at a time is inside: it has the gate's wake and
// timer, both made when first needed. Calls that come meanwhile queue, each
// with a channel of its own: a rare thing, as streams are rarely shared.
// Channels, not mutexes, so that virtual time (testing/synctest) passes while
// a call waits. All methods: monitor held.
type gate struct {
	deadline time.Time
	wake     Wake
	timer    *time.Timer
	queue    *turn
	inside   uint8
	parked   bool // whoever is inside waits on wake, and no token is in it
}

type turn struct {
	ch   chan struct{}
	next *turn
}

func (g *gate) expired() bool {
	return !g.deadline.IsZero() && !time.Now().Before(g.deadline)
}

func (g *gate) setDeadline(t time.Time) {
	g.deadline = t
	g.signalAll() // whoever waits looks again, and waits until then
}

// park waits, with the monitor released, for signal, the deadline, or the end of ctx,
// which may be nil.
// It may also return for no reason.
func (g *gate) park(h Host, ctx context.Context) {
	g.wake.init()
	g.parked = true
	g.arm(h)
	h.Unlock()
	h.Await(&g.wake, ctx)
	h.Lock()
	if !g.parked && ctx != nil {
		g.wake.Take() // both may have come: no token stays behind for the next wait
	}
	g.parked = false
	g.disarm()
}

// waitTurn waits, with the monitor released, until the call inside leaves or
// something else happens that a caller has to look at.
func (g *gate) waitTurn(h Host) {
	t := &turn{ch: make(chan struct{})}
	p := &g.queue
	for *p != nil {
		p = &(*p).next
	}
	*p = t
	g.arm(h)
	h.Unlock()
	<-t.ch
	h.Lock()
	if !g.parked {
		g.disarm()
	}
}

func (g *gate) arm(h Host) {
	if g.deadline.IsZero() {
		return
	}
	d := time.Until(g.deadline)
	if g.timer != nil {
		g.timer.Reset(d)
		return
	}
	g.timer = time.AfterFunc(d, func() {
		h.Lock()
		g.signalAll()
		h.Unlock()
	})
}

func (g *gate) disarm() {
	if g.timer != nil && g.queue == nil {
		g.timer.Stop()
	}
}

// signal wakes the call that is inside, if it waits.
func (g *gate) signal() {
	if g.parked {
		g.parked = false
		g.wake.Signal()
	}
}

// rouse is signal by way of the host, which may put it off for a moment.
func (g *gate) rouse(h Host) {
	if g.parked {
		g.parked = false
		h.Rouse(&g.wake)
	}
}

// signalAll wakes every call that waits, inside or in the queue.
func (g *gate) signalAll() {
	g.signal()
	for g.queue != nil {
		g.next()
	}
}

// next wakes the first call in the queue.
func (g *gate) next() {
	if t := g.queue; t != nil {
		g.queue = t.next
		close(t.ch)
	}
}

func (g *gate) leave() {
	g.inside = nobody
	g.next()
}
