package quic

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
)

const (
	// maxPaths bounds the paths that are known at a time, and with them what an attacker
	// gains who sends copies of packets from many addresses.
	maxPaths = 4

	// pathIdle is how long a path that is not in use is remembered after the last packet
	// from there.
	pathIdle = 5 * time.Second
)

// A path is a way to the peer: a socket of ours and an address of the peer's, and at a server
// that has a preferred address, also at which of ours its packets arrive.
type path struct {
	transport *Transport
	local     netip.Addr     // see paths.locals
	remote    netip.AddrPort // the zero value if the socket's addresses are no UDP addresses
	addr      net.Addr
	route     udp.Route // whoever holds the sender's token sends by it
	tuple     int       // its number in the qlog; 0: it has none yet

	known bool         // it is one of paths.all
	seq   int64        // number of the peer's connection ID that is used here; -1: none yet
	ours  ConnectionID // of our connection IDs the one that the peer uses here, as last seen
	seen  time.Time    // when a packet came from here, if not in use

	validated bool          // the peer answers there (RFC 9000 §8.2)
	full      bool          // … and datagrams of 1200 bytes get through
	rtt       time.Duration // how long an answer took; 0: unknown
	trial     trial
	in, out   int   // bytes so far, while it is neither validated nor in use
	firstPN   int64 // packets from here on left by it, if it was taken into use unvalidated

	// Of a server.
	moved int64 // the largest packet with which the client moved here, where we do not follow yet; -1: none

	// Of a client.
	preferred bool            // the server wishes to be used there
	handles   int             // of Path
	waiting   []chan struct{} // closed by the next answer
}

// paths are a connection's paths. Nearly always there is one, and all that a packet costs
// is a comparison of its address, once per message of the socket.
type paths struct {
	active   *path
	home     *path // the first one
	last     *path // to go back to while the active one is not known to work; nil: it is
	measured *path // what the window, the RTT and the MTU are about
	all      []*path

	from     *path // where the packet that is looked at came from
	highest  int64 // largest number of a packet that follows the peer: one that does not just probe
	stranger *path // the latest sender of a message that is not known: the connection's goroutine only
	answers  []pathAnswer
	answered time.Time // when the latest answer left
	mtu      *mtuState // of measured, while datagrams are small on another path
	mtus     int64     // searches for an MTU so far

	locals bool // paths differ, too, by the address of ours at which packets arrive
	asked  bool // the client has sent a challenge to an address of ours that is not the first one

	transports []*Transport // that our connection IDs are registered with
}

// pathAddrs are the addresses of the active path.
type pathAddrs struct{ local, remote net.Addr }

func (c *Conn) initPaths(p connParams) {
	q := &path{
		transport: p.transport, remote: p.route.Remote, addr: p.remote, route: p.route,
		known: true, validated: c.validated, full: true, // Initials have at least 1200 bytes
	}
	c.paths = paths{
		active: q, home: q, measured: q, all: []*path{q}, highest: -1,
		transports: []*Transport{p.transport},
	}
	c.addrs.Store(&pathAddrs{p.transport.Conn.LocalAddr(), p.remote})
}

// pathOf finds the path that a message came by, which is not the active one: maybe one
// that was not known before, and is a candidate only until a packet proves authentic.
// At a client it is nil then, and the message is to be dropped (RFC 9000 §9).
func (c *Conn) pathOf(p *packet) *path {
	q := c.knownSender(p)
	switch s := c.paths.stranger; {
	case q != nil || c.isClient:
	case s != nil && c.isFrom(s, p):
		q = s
	default:
		q = &path{transport: p.via, remote: p.remote, addr: p.addr(), route: p.reply(), seq: -1, moved: -1}
		if c.paths.locals {
			q.local = p.local.Addr
		}
		c.paths.stranger = q
	}
	if q != nil && q != c.paths.active {
		if dst, ok := wire.DstConnID(p.data, c.transport.connIDLen); ok && len(dst) <= maxConnIDLen {
			q.ours = ConnectionIDFromBytes(dst)
		}
	}
	return q
}

func (c *Conn) knownSender(p *packet) *path {
	for _, q := range c.paths.all {
		if c.isFrom(q, p) {
			return q
		}
	}
	return nil
}

// isFrom reports whether p came by q. A client that dialed the unspecified address knows
// no better one.
func (c *Conn) isFrom(q *path, p *packet) bool {
	if q.transport != p.via || c.paths.locals && q.local != p.local.Addr {
		return false
	}
	a, b := q.remote, p.remote
	if !a.IsValid() || !b.IsValid() {
		return q.addr.String() == p.addr().String()
	}
	return a.Port() == b.Port() && (a.Addr().WithZone("") == b.Addr().WithZone("") || a.Addr().IsUnspecified())
}

// sameHost reports whether the ways differ by the peer's port at most, as when a NAT has
// changed its mind.
func (q *path) sameHost(o *path) bool {
	return q.sameEnd(o) && q.remote.IsValid() && q.remote.Addr() == o.remote.Addr()
}

// sameEnd reports whether both begin at the same address of ours.
func (q *path) sameEnd(o *path) bool { return q.transport == o.transport && q.local == o.local }

// noteOurID remembers, once per batch, which of our connection IDs a client uses: if it
// changes together with the address then the client has moved on purpose.
func (c *Conn) noteOurID(ps []packet) {
	if c.isClient || len(ps) == 0 {
		return
	}
	if p := &ps[len(ps)-1]; p.by == c.paths.active && !wire.IsLong(p.data[0]) && len(p.data) > c.transport.connIDLen {
		p.by.ours = ConnectionIDFromBytes(p.data[1 : 1+c.transport.connIDLen])
	}
}

// meet returns q, or the path that is known by the same addresses, and makes it known. It
// returns nil if too many are. follows says that the peer has moved there; otherwise a path
// from which packets came lately is not given up for it. The mutex is held.
func (c *Conn) meet(q *path, follows bool, now time.Time) *path {
	if q.known {
		return q
	}
	for _, o := range c.paths.all {
		if o.sameEnd(q) && o.remote == q.remote && (q.remote.IsValid() || o.addr.String() == q.addr.String()) {
			o.in += q.in
			q.in = 0
			return o
		}
	}
	if c.isClient {
		return nil // it was forgotten meanwhile
	}
	q.seen = now
	return c.addPath(q, follows, now)
}

func (c *Conn) addPath(q *path, follows bool, now time.Time) *path {
	if len(c.paths.all) >= maxPaths {
		var oldest *path
		for _, o := range c.paths.all {
			if o != c.paths.active && o != c.paths.last && o.handles == 0 && (oldest == nil || o.seen.Before(oldest.seen)) {
				oldest = o
			}
		}
		if oldest == nil || !follows && now.Before(oldest.seen.Add(pathIdle)) {
			return nil
		}
		c.forgetPath(oldest)
	}
	q.known = true
	c.paths.all = append(c.paths.all, q)
	return q
}

// forgetPath forgets a path that is not in use, and gives its connection ID back.
func (c *Conn) forgetPath(q *path) {
	if !q.known {
		return
	}
	q.known = false
	q.trial = trial{}
	c.paths.all = slices.DeleteFunc(c.paths.all, func(o *path) bool { return o == q })
	c.paths.answers = slices.DeleteFunc(c.paths.answers, func(a pathAnswer) bool { return a.path == q })
	c.releaseID(q)
}

// receivedElsewhere acts on an authentic packet that did not come by the active path: the
// peer has moved, or tries whether it could (RFC 9000 §9.3). The mutex is held.
func (c *Conn) receivedElsewhere(p *openedPacket, now time.Time) {
	if c.isClient || c.phase != phaseOpen {
		return // servers do not move
	}
	// A server looks at 1-RTT packets when its handshake is complete, and so confirmed
	// (RFC 9000 §9, RFC 9001 §4.1.2).
	q := p.by
	probes := onlyProbes(p.payload())
	follows := !probes && p.pn > c.paths.highest
	if !probes && !follows {
		q.seen = now // it was overtaken by one that came by the active path
		return
	}
	if q = c.meet(q, follows, now); q == nil {
		return
	}
	q.seen = now
	switch {
	case q == c.paths.active:
		c.paths.highest = max(c.paths.highest, p.pn)
	case follows && !c.mayFollow(q):
		q.moved = p.pn
		if !q.validated || !q.full {
			c.try(q, now)
		}
	case follows:
		if c.follow(q, now) {
			c.paths.highest = p.pn
		}
	case !q.validated:
		c.try(q, now) // RFC 9000 §9.6.3
	}
}

// onlyProbes reports whether a packet's frames are such that the peer has not moved where
// it came from (RFC 9000 §9.1).
func onlyProbes(b []byte) bool {
	for len(b) > 0 {
		switch typ := uint64(b[0]); typ {
		case wire.FramePadding:
			b = b[1:]
		case wire.FramePathChallenge, wire.FramePathResponse, wire.FrameNewConnectionID:
			_, n, err := wire.ParseFrame(b)
			if err != nil {
				return false
			}
			b = b[n:]
		default:
			return false
		}
	}
	return true
}

// follow sends to where the peer has moved, or seems to have: by q from now on. If the
// peer is not known to be there, sending is limited to three times what came from there
// (RFC 9000 §9.3.1) until it answers a challenge. It reports false if there is no
// connection ID to be used there.
func (c *Conn) follow(q *path, now time.Time) bool {
	if !c.takeID(q) {
		return false
	}
	from, good := c.paths.active, c.paths.last
	if good == nil {
		good = from
	}
	next := c.rec.NextPN(recovery.App)
	from.seen = now
	if from != good {
		// The peer is not where it seemed to be: what went there is lost, and its
		// validation is abandoned (§9.3.2).
		c.rec.Abandon(from.firstPN, next-1, now)
	}
	works := q.validated && q.full
	if works {
		c.paths.last = nil
	} else {
		c.paths.last = good
		q.firstPN = next
		c.try(q, now)
	}
	c.usePath(q)
	if from != good && from != q {
		c.forgetPath(from)
	}
	if good != q && good.sameEnd(q) {
		// Had somebody copied a packet of the peer's, then the peer would answer, and
		// that would bring us back (§9.3.3). Not from an address of ours that the client has
		// left: there the answer would be dropped (see leftBehind), and look lost to it.
		c.try(good, now)
	}
	if works {
		c.measure(q, next, now)
	} else if !q.sameHost(c.paths.measured) {
		c.shrinkForPath()
	}
	return true
}

// usePath makes q the active path. It has a connection ID.
func (c *Conn) usePath(q *path) {
	from := c.paths.active
	// What the sender has sent counts for the active path.
	sent := int(c.snd.Stats().Bytes)
	from.validated = c.validated
	from.in, from.out = c.bytesIn, c.bytesOut+sent
	c.bytesIn, c.bytesOut = q.in, q.out-sent
	c.validated = q.validated || c.isClient
	c.rec.SetAmplificationLimited(false)
	c.paths.active = q
	c.ids.active = q.seq
	c.snd.SetPath(c.senderPath(q))
	c.addrs.Store(&pathAddrs{q.transport.Conn.LocalAddr(), q.addr})
	if c.qlog != nil {
		c.qlog.moved(from)
	}
}

func (c *Conn) senderPath(q *path) sender.Path {
	return sender.Path{UDP: q.transport.udpConn(), Route: &q.route, Dst: c.ids.dstOf(q.seq)}
}

// measure makes what is known of the active path hold for q, by which packets from number
// first on have left. If more than the port has changed, it is nothing (RFC 9000 §9.4).
func (c *Conn) measure(q *path, first int64, now time.Time) {
	before := c.paths.measured
	c.paths.measured = q
	if before == q || before.sameHost(q) {
		if m := c.paths.mtu; m != nil {
			c.paths.mtu = nil
			c.mtu = *m
			c.snd.SetDatagramSize(c.mtu.low)
			c.mtu.start(now)
		}
		return
	}
	c.restart(q, first, now)
}

// restart forgets what was measured, for a new path.
func (c *Conn) restart(q *path, first int64, now time.Time) {
	c.paths.measured, c.paths.mtu = q, nil
	c.mtu.begin()
	c.cc = c.newController(c.snd.DatagramSize())
	c.rec.Restart(c.cc, first, q.rtt, now)
	c.asking.unask() // what was asked for was right for another path
	c.snd.SetController(c.cc)
	c.updatePacer()
	c.mtu.start(now)
	if c.qlog != nil {
		c.qlog.recoveryParameters()
	}
}

func (c *Conn) newController(size int) (cc congestion.Controller) {
	if c.config.CongestionControl == CongestionNewReno {
		cc = congestion.NewReno(size)
	} else {
		cc = congestion.NewCubic(size)
	}
	if c.qlog != nil {
		cc = c.qlog.watch(cc)
	}
	return cc
}

// shrinkForPath sends small datagrams as long as the path is not known to work.
func (c *Conn) shrinkForPath() {
	if c.paths.mtu == nil {
		m := c.mtu
		m.probing = 0 // whatever becomes of the probe, it is not waited for
		c.paths.mtu = &m
	}
	c.mtu.begin()
}

// goBack returns to the last path that worked, as the active one does not (RFC 9000
// §9.3.2).
func (c *Conn) goBack(now time.Time) {
	q, good := c.paths.active, c.paths.last
	next := c.rec.NextPN(recovery.App)
	c.rec.Abandon(q.firstPN, next-1, now)
	c.paths.last = nil
	good.seen = now
	if !c.takeID(good) {
		good.seq = q.seq // there is no other: the peer has retired what was used there
	}
	c.usePath(good)
	c.forgetPath(q)
	c.measure(good, next, now)
}

// pathTick does what is due on paths.
func (c *Conn) pathTick(now time.Time) {
	for i := 0; i < len(c.paths.all); i++ {
		q := c.paths.all[i]
		if t := q.trial.until; !t.IsZero() && !now.Before(t) {
			c.tryFailed(q, now)
			i = -1 // the list has changed, maybe
		} else if t := c.idleAt(q); !t.IsZero() && !now.Before(t) {
			if q.handles > 0 {
				c.releaseID(q)
			} else {
				c.forgetPath(q)
			}
			i = -1
		}
	}
	c.ids.expire(c, now)
}

// idleAt is when a path is forgotten, or gives back its connection ID; zero: never.
func (c *Conn) idleAt(q *path) time.Time {
	if q == c.paths.active || q == c.paths.last || q.trial.on || q.handles > 0 && q.seq < 0 {
		return time.Time{}
	}
	return q.seen.Add(pathIdle)
}

// pathTimer is when pathTick or sendPaths has something to do; zero: never.
func (c *Conn) pathTimer() (t time.Time) {
	first := func(u time.Time) {
		if !u.IsZero() && (t.IsZero() || u.Before(t)) {
			t = u
		}
	}
	for _, q := range c.paths.all {
		first(q.trial.until)
		first(c.idleAt(q))
		if c.confirmed && !q.trial.next.IsZero() && c.maySend(q) {
			first(q.trial.next)
		}
	}
	for _, a := range c.paths.answers {
		if a.path == c.paths.active {
			first(c.answerAt())
		}
	}
	first(c.ids.expiry())
	return t
}

// transportClosed takes note that a transport is no more. If packets left by it, or would
// again if the active path proved not to work, the connection is over.
func (c *Conn) transportClosed(t *Transport, err error) {
	c.mu.Lock()
	if c.phase != phaseOpen || c.paths.active.transport == t || c.paths.last != nil && c.paths.last.transport == t {
		c.mu.Unlock()
		c.destroy(err)
		return
	}
	c.paths.transports = slices.DeleteFunc(c.paths.transports, func(o *Transport) bool { return o == t })
	for _, q := range slices.Clone(c.paths.all) {
		if q.transport == t {
			c.forgetPath(q)
		}
	}
	c.mu.Unlock()
}
