package quic

import (
	"net"
	"time"
)

// tryPreferred has a client try the address at which the server would rather be reached,
// if there is one of the family that is in use (RFC 9000 §9.6). The mutex is held.
func (c *Conn) tryPreferred(now time.Time) {
	p, from := c.params.PreferredAddress, c.paths.active
	if !c.isClient || p == nil || !from.remote.IsValid() {
		return
	}
	to := p.IPv4
	if from.remote.Addr().Is6() {
		to = p.IPv6
	}
	if !to.IsValid() || to == from.remote {
		return
	}
	addr := net.UDPAddrFromAddrPort(to)
	q := &path{
		transport: from.transport, remote: to, addr: addr, route: routeTo(addr),
		seq: -1, seen: now, preferred: true,
	}
	if c.addPath(q, false, now) != nil {
		c.try(q, now)
	}
}

// usePreferred moves a client to the server's preferred address, which has answered, unless
// the application has moved elsewhere meanwhile.
func (c *Conn) usePreferred(q *path, now time.Time) {
	if q.transport == c.paths.active.transport {
		c.moveTo(q, now)
	}
}
