package quic

import (
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

const (
	// mtuProbes is how often a size is tried before it counts as too large
	// (MAX_PROBES, RFC 8899 §5.1.2).
	mtuProbes = 3

	// mtuStep is how near the search comes to the largest size that works, in bytes.
	mtuStep = 20

	// mtuRaise is how long after a search another one looks for more
	// (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
	mtuRaise = 10 * time.Minute

	// mtuBlackHole is how many probe timeouts in a row, with nothing acknowledged
	// between, make a larger size than the first suspect (RFC 8899 §4.3).
	mtuBlackHole = 3
)

// mtuState finds the largest datagram that the path carries (RFC 8899 for QUIC:
// RFC 9000 §14.3). The largest size allowed is tried first, as most paths carry it, and
// then the search goes by halves. Probes are packets of their own, in datagrams of their
// own: a PING and PADDING. Their loss says nothing of congestion.
type mtuState struct {
	c       *Conn
	enabled bool
	base    int // what every datagram may have, whatever happens
	ceiling int // the largest size to try
	low     int // the largest that worked
	high    int // the smallest that did not, or ceiling+1
	probing int // size of the probe in flight; 0: none
	lost    int // probes of this size that were lost
	due     time.Time
	waiting bool // the probe that is due waits for ACKs to make room for it
	ptos    int  // probe timeouts in a row

	epoch int64 // tells the probes of this path from those of others
}

func (m *mtuState) init(c *Conn) {
	m.c = c
	m.base = c.snd.DatagramSize()
	m.low = m.base
	m.ceiling = int(c.config.MaxPacketSize)
	m.enabled = !c.config.DisablePathMTUDiscovery
}

// begin forgets what was found, for another path. The search is not started.
func (m *mtuState) begin() {
	m.c.paths.mtus++
	base := min(m.c.config.initialPacketSize(), m.ceiling)
	*m = mtuState{c: m.c, enabled: m.enabled, ceiling: m.ceiling, base: base, low: base, epoch: m.c.paths.mtus}
	m.c.snd.SetDatagramSize(base)
}

// setPeerLimit keeps to what the peer takes (max_udp_payload_size, RFC 9000 §18.2).
func (m *mtuState) setPeerLimit(p *wire.TransportParams) {
	n := int(min(p.MaxUDPPayload, maxPacketSize))
	m.ceiling = min(int(m.c.config.MaxPacketSize), n)
	if m.base > n {
		m.base, m.low = n, n
		m.c.snd.SetDatagramSize(n)
	}
}

// start begins the search once the handshake is confirmed, a few round trips later: most
// short connections are over by then.
func (m *mtuState) start(now time.Time) {
	if m.enabled {
		m.search(now)
	}
}

func (m *mtuState) search(now time.Time) {
	m.high = m.ceiling + 1
	m.lost = 0
	m.later(now)
}

// later makes the next probe due in a few round trips.
func (m *mtuState) later(now time.Time) {
	m.due, m.waiting = now.Add(max(5*m.c.rec.RTT().Smoothed, time.Millisecond)), false
}

// next is the size to try, 0 if the search is over.
func (m *mtuState) next() int {
	switch {
	case m.high > m.ceiling && m.low < m.ceiling:
		return m.ceiling
	case m.high-m.low > mtuStep:
		return (m.low + m.high) / 2
	}
	return 0
}

// found reports whether the search is over, or there is none.
func (m *mtuState) found() bool { return !m.enabled || m.high > 0 && m.next() == 0 }

func (m *mtuState) timer() time.Time {
	if m.probing != 0 || m.waiting {
		return time.Time{}
	}
	return m.due
}

// probe is the size of the probe that is due now, 0 if there is none.
func (m *mtuState) probe(now time.Time) int {
	if m.due.IsZero() || m.probing != 0 || now.Before(m.due) {
		return 0
	}
	n := m.next()
	if n == 0 { // nothing to find, or time to look for more
		if m.low < m.ceiling && m.high <= m.ceiling {
			m.search(now)
		} else {
			m.due = time.Time{}
		}
	}
	return n
}

func (m *mtuState) sent(size int) { m.probing, m.waiting = size, false }

// acked notes that a probe arrived.
func (m *mtuState) acked(size int, now time.Time) {
	if size <= m.low || size >= m.high {
		return // late, of a search that is over
	}
	m.low, m.lost = size, 0
	m.c.snd.SetDatagramSize(size)
	m.done(now)
}

// failed notes that a probe did not arrive.
func (m *mtuState) failed(size int, now time.Time) {
	if size != m.probing {
		return
	}
	if m.lost++; m.lost >= mtuProbes {
		m.high, m.lost = size, 0
	}
	m.done(now)
}

func (m *mtuState) done(now time.Time) {
	m.probing = 0
	m.later(now)
	if m.next() == 0 {
		m.due = now.Add(mtuRaise)
	}
}

// tooLarge notes that the kernel refused datagrams of size bytes. A forged ICMP
// message may be behind that, so that the size goes no lower than 1200 (RFC 9000 §14.2.1).
func (m *mtuState) tooLarge(size int, now time.Time) {
	if size == m.probing {
		m.lost = mtuProbes - 1
		m.failed(size, now)
		return
	}
	m.shrink(now)
}

// shrink goes back to the size to begin with, or to 1200 bytes if that is in use.
func (m *mtuState) shrink(now time.Time) {
	size := m.c.snd.DatagramSize()
	if size <= minPacketSize {
		return
	}
	if size <= m.base {
		m.base = minPacketSize
	}
	m.low, m.high = m.base, size
	m.lost, m.ptos = 0, 0
	m.c.snd.SetDatagramSize(m.base)
	if m.enabled && !m.due.IsZero() {
		m.later(now)
	}
}

// timedOut notes a probe timeout. Several in a row, while datagrams are larger than they
// must be, look like a path that swallows them. No path may swallow 1200 bytes, but a
// size that the application has set stays.
func (m *mtuState) timedOut(now time.Time) {
	size := m.c.snd.DatagramSize()
	if m.ptos++; m.ptos >= mtuBlackHole && (size > m.base || m.c.config.InitialPacketSize == 0) {
		m.shrink(now)
		m.high = m.ceiling + 1 // if the path was gone for a while, large ones pass again
	}
}

// sendApart sends what goes in datagrams of its own, if any is due.
func (c *Conn) sendApart(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendPaths(now)
	c.sendProbe(now)
}

// sendProbe sends a path MTU probe if one is due.
func (c *Conn) sendProbe(now time.Time) {
	if n := c.mtu.probe(now); n > 0 && c.confirmed && c.validated && c.phase == phaseOpen {
		if c.snd.Probe(n, now, recovery.Frame{Kind: frameMTUProbe, A: int64(n), B: c.mtu.epoch}, func() { c.mtu.sent(n) }) {
			return
		}
		if c.mtu.waiting = c.snd.ProbeWaits(); !c.mtu.waiting {
			c.mtu.later(now) // the token is taken, or the window too small: soon again
		}
	}
}
