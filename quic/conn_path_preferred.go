package quic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// The address at which a server would rather be reached (RFC 9000 §9.6). A server makes the
// offer with its transport parameters, and finds a client that takes it up at another address
// of its own: that is a path like any other, but for the rules in mayFollow and leftBehind.

var (
	errPreferredNoIDs = errors.New("quic: a preferred address needs connection IDs, and the transport's have no bytes (RFC 9000 §18.2)")
	errPreferredIDLen = errors.New("quic: the connection IDs of a preferred address's transport have another length than the listener's")
	errPreferredDeaf  = errors.New("quic: a preferred address needs a Transport of its own, as the listener's socket does not tell at which address packets arrive")
)

// checkPreferred reports why a listener of t cannot offer conf's preferred addresses. conf may
// be nil. It prepares the transports that they need.
func (t *Transport) checkPreferred(conf *Config) error {
	if conf == nil {
		return nil
	}
	var seen [2]bool
	for _, a := range conf.PreferredAddresses {
		ip := a.Addr.Addr().Unmap()
		if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" || a.Addr.Port() == 0 {
			return fmt.Errorf("quic: clients could not send to the preferred address %v", a.Addr)
		}
		family := 0
		if ip.Is6() {
			family = 1
		}
		if seen[family] {
			return fmt.Errorf("quic: %v is the second preferred address of its family", a.Addr)
		}
		seen[family] = true
		if t.connIDLen == 0 {
			return errPreferredNoIDs
		}
		if a.Transport == nil || a.Transport == t {
			if !t.udp.SaysLocal() {
				return errPreferredDeaf
			}
			continue
		}
		if err := a.Transport.init(false); err != nil {
			return err
		}
		if a.Transport.connIDLen != t.connIDLen {
			return errPreferredIDLen
		}
	}
	return nil
}

// offerPreferred is what a server's transport parameters say of its preferred addresses, nil
// for nothing. A client does without those at which its packets would not arrive now: whose
// Transport is closed, or has another connection with the same ID.
func (c *Conn) offerPreferred() *wire.PreferredAddress {
	p := &wire.PreferredAddress{}
	for _, a := range c.config.PreferredAddresses {
		if t := a.Transport; t != nil && c.register(t) != nil {
			continue
		}
		addr := netip.AddrPortFrom(a.Addr.Addr().Unmap(), a.Addr.Port())
		if addr.Addr().Is4() {
			p.IPv4 = addr
		} else {
			p.IPv6 = addr
		}
	}
	if !p.IPv4.IsValid() && !p.IPv6.IsValid() {
		return nil
	}
	id, err := c.transport.newConnID()
	if err != nil || !c.addID(id) {
		return nil
	}
	// It is number 1, and counts as told (RFC 9000 §5.1.1).
	c.ids.local = append(c.ids.local, localID{1, id})
	c.ids.nextLocal, c.ids.told = 2, 1
	c.paths.locals = true
	c.paths.home.local = c.paths.home.route.Local.Addr
	p.ConnID, p.ResetToken = connIDBytes(&id), c.transport.resetTokenFor(id)
	return p
}

// mayFollow reports whether a server may send by q now, where the client has moved. To where
// the client has another address it follows at once. By another address of ours nothing but
// probes leaves before the client has answered there, in full size (RFC 9000 §9.6.2). And it
// has asked: the client must before it moves, so that who has not did not move, and somebody
// sends us copies of its packets.
func (c *Conn) mayFollow(q *path) bool {
	return q.sameEnd(c.paths.active) || c.paths.asked && q.validated && q.full
}

// followLate follows a client to where it went before that was possible, unless it was heard
// of elsewhere since.
func (c *Conn) followLate(q *path, now time.Time) {
	if c.isClient || q == c.paths.active || q.moved <= c.paths.highest || !c.mayFollow(q) {
		return
	}
	if c.follow(q, now) {
		c.paths.highest = q.moved
	}
}

// leftBehind reports whether a packet came to the address that the client has left for the
// preferred one, and was sent after that: it is dropped (RFC 9000 §9.6.2). What was sent
// before counts.
func (c *Conn) leftBehind(p *openedPacket) bool {
	home := c.paths.home
	return !c.isClient && !c.paths.active.sameEnd(home) && p.by.sameEnd(home) && p.pn > c.paths.highest
}

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
