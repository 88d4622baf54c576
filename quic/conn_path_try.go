package quic

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
)

const (
	// maxPathAnswers bounds the PATH_RESPONSE frames that wait: who floods us with
	// challenges gets the answers to the last few (RFC 9000 §21.9).
	maxPathAnswers = 8

	// maxChallenges bounds the challenges to which an answer still counts.
	maxChallenges = 8
)

// A trial is the validation of a path (RFC 9000 §8.2).
type trial struct {
	on    bool
	sent  []challenge
	next  time.Time     // when the next challenge is due
	wait  time.Duration // from then to the one after
	until time.Time     // when it has failed; zero: it goes on until it is called off
}

type challenge struct {
	data [8]byte
	at   time.Time
	full bool // in a datagram of 1200 bytes
}

// pathAnswer is a PATH_RESPONSE that is due.
type pathAnswer struct {
	path *path
	data [8]byte
}

// try begins to validate a path, unless that is under way. The mutex is held.
func (c *Conn) try(q *path, now time.Time) {
	if q.trial.on {
		return
	}
	q.trial = trial{on: true, next: now, wait: c.tryWait(q)}
	if q.handles == 0 {
		q.trial.until = now.Add(3 * max(c.rec.PTO(recovery.App), c.rec.InitialPTO())) // RFC 9000 §8.2.4
	}
}

// tryWait is the time between the first two challenges. It is as long as between two
// Initials, unless we know how far the peer is (RFC 9000 §8.2.1, §9.4).
func (c *Conn) tryWait(q *path) time.Duration {
	if q.sameHost(c.paths.measured) {
		return c.rec.PTO(recovery.App)
	}
	return c.rec.InitialPTO()
}

// onPathChallenge makes the answer due, by the path that the challenge came by.
func (c *Conn) onPathChallenge(data [8]byte, now time.Time) {
	q := c.paths.from
	if q == nil {
		q = c.paths.active
	}
	if q = c.meet(q, false, now); q == nil {
		return
	}
	c.paths.asked = c.paths.asked || !q.sameEnd(c.paths.home)
	if len(c.paths.answers) == maxPathAnswers {
		c.paths.answers = slices.Delete(c.paths.answers, 0, 1)
	}
	c.paths.answers = append(c.paths.answers, pathAnswer{q, data})
}

// onPathResponse takes in an answer. It counts for the path that the challenge was sent
// by, whichever it came by (RFC 9000 §8.2.3); and if it belongs to no challenge, for none.
func (c *Conn) onPathResponse(data [8]byte, now time.Time) {
	for _, q := range c.paths.all {
		for _, ch := range q.trial.sent {
			if ch.data == data {
				c.tryWorked(q, ch, now)
				return
			}
		}
	}
}

// tryWorked notes that the peer has answered on q.
func (c *Conn) tryWorked(q *path, ch challenge, now time.Time) {
	first := !q.validated
	q.validated = true
	q.full = q.full || ch.full
	q.rtt = now.Sub(ch.at)
	q.trial = trial{}
	for _, w := range q.waiting {
		close(w)
	}
	q.waiting = nil
	if q == c.paths.active && !c.isClient {
		if first {
			c.validate()
			c.measure(q, q.firstPN, now)
			c.control.add(frameNewToken, 0) // RFC 9000 §9.3: for the new address
		}
		if q.full {
			c.paths.last = nil
		}
	}
	if !q.full {
		c.try(q, now) // the peer is there, but what size gets through? (§8.2.3)
	}
	if q.preferred {
		c.usePreferred(q, now)
	}
	c.followLate(q, now)
}

// tryFailed notes that the peer does not answer on q.
func (c *Conn) tryFailed(q *path, now time.Time) {
	q.trial = trial{}
	switch {
	case q == c.paths.active && c.paths.last != nil:
		c.goBack(now)
	case q != c.paths.active && q != c.paths.last:
		c.forgetPath(q)
	}
}

// maySend reports whether the peer may be sent a packet on q: it has a connection ID for
// that, and has sent enough from there if it is not known to be there.
func (c *Conn) maySend(q *path) bool {
	return c.takeID(q) && c.pathRoom(q) >= c.leastOn(q)
}

// pathRoom is how many bytes may leave on q.
func (c *Conn) pathRoom(q *path) int {
	switch {
	case q == c.paths.active:
		if n := (*monitor)(c).AntiAmplification(); n >= 0 {
			return n
		}
	case !q.validated && !c.isClient:
		return max(3*q.in-q.out, 0)
	}
	return minPacketSize
}

// leastOn is the size of a datagram that carries a challenge or an answer.
func (c *Conn) leastOn(q *path) int {
	return wire.ShortHeaderLen(len(c.ids.dstOf(q.seq)), longPNLen) + wire.PathChallenge{}.Len() + sealTag
}

// sendPaths sends the challenges and answers that are due. They go in datagrams of their
// own, of 1200 bytes if the peer may be sent that many (RFC 9000 §8.2.1, §8.2.2). The mutex
// is held, and let go meanwhile.
func (c *Conn) sendPaths(now time.Time) {
	for c.complete && c.phase == phaseOpen {
		q := c.pathDue(now)
		if q == nil || !c.sendOnPath(q, now) {
			return
		}
	}
}

// pathDue is a path on which something is to be sent now.
func (c *Conn) pathDue(now time.Time) *path {
	for _, q := range c.paths.all {
		if c.challengeDue(q, now) && c.maySend(q) {
			return q
		}
	}
	for _, a := range c.paths.answers {
		if (a.path != c.paths.active || !now.Before(c.answerAt())) && c.maySend(a.path) {
			return a.path
		}
	}
	return nil
}

// answerAt is when an answer may leave by the active path. Answers obey its congestion
// window (RFC 9000 §8.2.2), but like probes, a few go when it is full: until the peer has
// one, it may acknowledge nothing of what fills the window.
func (c *Conn) answerAt() (t time.Time) {
	if c.rec.BytesInFlight()+minPacketSize > c.cc.Window() {
		t = c.paths.answered.Add(c.rec.PTO(recovery.App))
	}
	return t
}

// challengeDue: no path is tried before the handshake is confirmed (RFC 9000 §9).
func (c *Conn) challengeDue(q *path, now time.Time) bool {
	return c.confirmed && !q.trial.next.IsZero() && !now.Before(q.trial.next)
}

// sendOnPath sends one datagram on q, and reports false if that is not possible now.
func (c *Conn) sendOnPath(q *path, now time.Time) bool {
	size := min(c.pathRoom(q), minPacketSize)
	challenges := c.challengeDue(q, now)
	return c.snd.SendApart(c.senderPath(q), size, now, func(f *sender.Flight) {
		if q != c.paths.active {
			q.out += size
			c.bytesOut -= size // the sender counts it for the active path
		}
		if challenges {
			ch := challenge{at: now, full: size == minPacketSize}
			rand.Read(ch.data[:])
			writePath(f, wire.PathChallenge{Data: ch.data})
			t := &q.trial
			if len(t.sent) == maxChallenges {
				t.sent = slices.Delete(t.sent, 0, 1)
			}
			t.sent = append(t.sent, ch)
			t.next = now.Add(t.wait)
			t.wait = min(2*t.wait, time.Minute)
		}
		// Each challenge is answered once, and what does not fit now comes too late.
		c.paths.answers = slices.DeleteFunc(c.paths.answers, func(a pathAnswer) bool {
			if a.path == q {
				writePath(f, wire.PathResponse{Data: a.data})
				c.paths.answered = now
			}
			return a.path == q
		})
		// On the active path the packet is to be more than a probe, so that it brings the
		// peer back who was led astray (RFC 9000 §9.3.3).
		if acks := &c.spaces[recovery.App].acks; q == c.paths.active && acks.pending() {
			c.appendAck(f, acks, now)
		}
	})
}

// writePath appends a frame that is never sent again (RFC 9000 §13.3).
func writePath(f *sender.Flight, fr wire.Frame) {
	if b := f.Tail(fr.Len()); b != nil {
		f.Wrote(len(fr.Append(b)), true, recovery.Frame{})
	}
}
