package quic

import "time"

// restAfter is how long the idle timer must not have been restarted before a connection
// rests.
const restAfter = time.Second

// Most connections of a server with many are idle, and the stack of a goroutine that waits
// is a good part of what such a one takes. So when nothing has happened for a while, the
// connection's goroutine ends, and what traffic has left behind is given back. The next
// wakeUp, be it of a packet, a call or the timer, starts another one. That takes a few
// microseconds, and happens once a second at most.

// rest reports whether the connection rests from now on: then its goroutine, which calls
// it, must end.
func (c *Conn) rest() bool {
	if !c.quiet.Load() || !c.turn.take() {
		return false
	}
	c.shed()
	c.resting.Store(true)
	if !c.turn.giveBack() {
		c.turn.drop()
		signal(c.wake)
	}
	// Whoever was in time to find the goroutine awake has left a token. If somebody else
	// has found it resting, then there is another one by now.
	return len(c.wake) == 0 || !c.resting.CompareAndSwap(true, false)
}

// wakeUp makes the goroutine run once more, or whoever does its work.
func (c *Conn) wakeUp() {
	if c.turn.tell() {
		return
	}
	signal(c.wake)
	// In this order: rest looks for the token after it has said that it rests.
	if c.resting.Load() && c.resting.CompareAndSwap(true, false) {
		signal(c.wake) // that one may have been heard already, and the connection rest again
		go c.work()
	}
}

// restAt is when the connection may rest, zero for never or if it does so already. The
// mutex is held.
func (c *Conn) restAt() time.Time {
	if c.phase != phaseOpen || c.resting.Load() {
		return time.Time{}
	}
	return c.idleFrom.Add(restAfter)
}

// shed gives back what is only of use while there is traffic. Whoever calls it has the
// turn.
func (c *Conn) shed() {
	c.inboxMu.Lock()
	if len(c.inbox) == 0 {
		c.inbox = nil
	}
	c.inboxMu.Unlock()
	c.spare, c.opened, c.ackIn = nil, nil, nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ackRanges, c.heldFree, c.roused = nil, nil, nil
	c.control.shed()
	c.rec.Shed(time.Now())
}
