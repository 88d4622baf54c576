package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// A check looks at the trace of a case, as the runner looks at its pcaps.
type check func(*trace) error

// always are the checks of every case.
var always = []check{opened, amplification, closedWell}

// opened wants the keys to fit: else the other checks see nothing. Some packets may stay
// sealed, as one that came before the packet with its keys, and more where handshakes are
// disturbed: those of an attempt that the server began and the client never heard of.
func opened(t *trace) error {
	n, part := 0, 20
	for _, c := range t.conns {
		n += len(c.packets)
	}
	if len(t.conns) > 2 {
		part = 5
	}
	if n == 0 || t.sealed*part > n {
		return fmt.Errorf("%d of %d packets cannot be opened", t.sealed, n)
	}
	return nil
}

// handshakes wants that many connections, told by the IDs that servers chose.
func handshakes(want int) check {
	return func(t *trace) error {
		ids := map[string]bool{}
		for _, c := range t.conns {
			for _, p := range c.packets {
				if p.typ == wire.Initial && !p.up && !p.sealed {
					ids[string(p.src)] = true
				}
			}
		}
		if len(ids) != want {
			return fmt.Errorf("%d handshakes, not %d", len(ids), want)
		}
		return nil
	}
}

// onlyVersion wants servers to speak nothing but a version.
func onlyVersion(version uint32) check {
	return func(t *trace) error {
		for _, c := range t.conns {
			for _, p := range c.packets {
				if !p.up && p.typ != wire.OneRTT && p.fate != damaged && p.version != version && p.version != 0 {
					return fmt.Errorf("the server used version %#x", p.version)
				}
			}
		}
		return nil
	}
}

func noRetry(t *trace) error {
	for _, c := range t.conns {
		for _, p := range c.packets {
			if p.typ == wire.Retry {
				return errors.New("there was a Retry")
			}
		}
	}
	return nil
}

// closedWell wants no connection to end with an error.
func closedWell(t *trace) (err error) {
	for _, c := range t.conns {
		for _, up := range []bool{true, false} {
			frames(c, up, func(p *packet, f wire.ConnectionClose) {
				ok := f.Code == 0 || f.App && f.Code == h3NoError
				if p.typ != wire.OneRTT && !f.App && f.Code == uint64(wire.ApplicationError) {
					ok = true // what stands for an application's code there (RFC 9000 §10.2.3)
				}
				if !ok {
					who := "the server"
					if up {
						who = "the client"
					}
					err = fmt.Errorf("%s closed with %v", who, f)
				}
			})
		}
	}
	return err
}

// amplification wants a server to send at no instant more than three times what it has
// got from an address, until that address is validated (RFC 9000 §8.1, §9.3). An address
// whose port alone is new is none that RFC 9000 wants limited. The runner looks at the
// case amplificationlimit only, and lets four times pass; so do peers here.
func amplification(t *trace) error {
	factor := 4
	if t.server == volleyName {
		factor = 3
	}
	for _, c := range t.conns {
		type address struct {
			got, sent int
			valid     bool
		}
		byAddr := map[netip.AddrPort]*address{}
		validIP := map[netip.Addr]bool{}
		packets := map[int][]*packet{} // by the datagram's in
		for i := range c.packets {
			p := &c.packets[i]
			packets[p.in] = append(packets[p.in], p)
		}
		type event struct {
			n int
			d *datagram
		}
		var events []event
		for _, d := range c.datagrams {
			if !d.up {
				events = append(events, event{d.in, d})
			} else if d.out > 0 {
				events = append(events, event{d.out, d})
			}
		}
		slices.SortFunc(events, func(a, b event) int { return a.n - b.n })
		for _, e := range events {
			d := e.d
			a := byAddr[d.path]
			if a == nil {
				a = &address{}
				byAddr[d.path] = a
			}
			if !d.up {
				a.sent += len(d.data)
				if t.server != volleyName && len(byAddr) > 1 {
					continue // what peers do after a migration the runner does not look at
				}
				if !a.valid && !validIP[d.path.Addr()] && a.sent > factor*a.got {
					return fmt.Errorf("the server had sent %d bytes when it had got %d, from an address that it had not validated", a.sent, a.got)
				}
				continue
			}
			a.got += len(d.data)
			for _, p := range packets[d.in] {
				// A Handshake packet shows that the client has the server's (§8.1), a
				// token from a Retry or a connection before that it was there. In a
				// damaged datagram it may be another packet that is damaged.
				valid := p.typ == wire.Handshake && !p.sealed || p.typ == wire.Initial && len(p.token) > 0
				for _, f := range p.frames {
					if _, ok := f.(wire.PathResponse); ok {
						valid = true
					}
				}
				if valid {
					a.valid = true
					validIP[d.path.Addr()] = true
				}
			}
		}
	}
	return nil
}

// longChain wants the server to have used its long certificate chain.
func longChain(t *trace) error {
	for _, c := range t.conns {
		if n := len(c.serverFlight.data); n < 7500 {
			return fmt.Errorf("the server's handshake has %d bytes only", n)
		}
	}
	return nil
}

// helloAgain wants the client to have sent its ClientHello more than once.
func helloAgain(t *trace) error {
	n := 0
	frames(t.conns[0], true, func(p *packet, f wire.Crypto) {
		if p.typ == wire.Initial && f.Off == 0 {
			n++
		}
	})
	if n < 2 {
		return fmt.Errorf("%d ClientHello, not two or more", n)
	}
	return nil
}

// windowsGrow wants the client to have let the server send more than at first.
func windowsGrow(t *trace) error {
	var conn, streams int
	for _, c := range t.conns {
		frames(c, true, func(*packet, wire.MaxData) { conn++ })
		frames(c, true, func(*packet, wire.MaxStreamData) { streams++ })
	}
	if conn == 0 || streams == 0 {
		return fmt.Errorf("%d MAX_DATA and %d MAX_STREAM_DATA of the client", conn, streams)
	}
	return nil
}

func onlyChaCha20Offered(t *trace) error {
	for _, c := range t.conns {
		suites := helloSuites(c.clientHello.message(msgClientHello))
		if len(suites) != 1 || suites[0] != tls.TLS_CHACHA20_POLY1305_SHA256 {
			return fmt.Errorf("the client offers the cipher suites %#04x", suites)
		}
		if c.suite != tls.TLS_CHACHA20_POLY1305_SHA256 {
			return fmt.Errorf("the server chose %#04x", c.suite)
		}
	}
	return nil
}

// streamLimitGrows wants the server to allow at most 1000 streams at first, and more as
// they are used.
func streamLimitGrows(t *trace) error {
	for _, c := range t.conns {
		b := extension(c.serverFlight.message(msgEncryptedExtensions), extTransportParams)
		params, err := wire.ParseTransportParams(b, true)
		if b == nil || err != nil {
			return fmt.Errorf("the server's transport parameters: %v", err)
		}
		if n := params.InitialMaxStreamsBidi; n > 1000 {
			return fmt.Errorf("the server allows %d streams at first", n)
		}
		n := 0
		frames(c, false, func(_ *packet, f wire.MaxStreams) {
			if !f.Uni {
				n++
			}
		})
		if n == 0 {
			return errors.New("the server's MAX_STREAMS is not to be seen")
		}
	}
	return nil
}

// retried wants a Retry, and the client to come back with its token and without using a
// packet number again.
func retried(t *trace) error {
	tokens := map[string]bool{} // there may be a Retry for each Initial
	before := int64(-1)
	for _, p := range t.conns[0].packets {
		switch {
		case p.typ == wire.Retry && !p.up:
			tokens[string(p.token)] = true
		case p.typ == wire.Initial && p.up && !p.sealed && len(p.token) == 0:
			before = max(before, p.pn)
		case p.typ == wire.Initial && p.up && !p.sealed:
			if p.pn <= before {
				return fmt.Errorf("after the Retry, the client begins again with packet number %d", p.pn)
			}
			if !tokens[string(p.token)] {
				return errors.New("the client's token is none of a Retry")
			}
			return nil
		}
	}
	return errors.New("no Initial with the token of a Retry")
}

// resumed wants a certificate in the first handshake, and none in the others.
func resumed(t *trace) error {
	for i, c := range t.conns {
		has := c.serverFlight.message(msgCertificate) != nil
		if has != (i == 0) {
			return fmt.Errorf("connection %d: the server sent a certificate: %v", i+1, has)
		}
	}
	return nil
}

// zeroRTTUsed wants the requests of the second connection to travel as 0-RTT data.
func zeroRTTUsed(limit int) check {
	return func(t *trace) error {
		early, late := 0, 0
		for _, c := range t.conns {
			for _, p := range c.packets {
				switch {
				case p.typ == wire.ZeroRTT:
					early += len(p.data) // a bit more than the payload
				case p.typ == wire.OneRTT && p.up:
					late += p.size
					for _, f := range p.frames {
						if f, ok := f.(wire.Padding); ok {
							late -= f.N // of a path MTU probe
						}
					}
				}
			}
		}
		if early == 0 {
			return errors.New("the client sent no 0-RTT data")
		}
		if late > limit {
			return fmt.Errorf("the client sent %d bytes with 0-RTT, and %d without", early, late)
		}
		return nil
	}
}

// keysUpdated wants both sides to use both key phases.
func keysUpdated(t *trace) error {
	var n [2][2]int
	for _, p := range t.conns[0].packets {
		if p.typ == wire.OneRTT && !p.sealed {
			n[way(p.up)][p.phase]++
		}
	}
	if n[0][1] == 0 || n[1][1] == 0 {
		return fmt.Errorf("packets of the key phases 0 and 1: client %v, server %v", n[0], n[1])
	}
	return nil
}

// ecnUsed wants both sides to mark packets, and to tell of the marks that came.
func ecnUsed(t *trace) error {
	for _, up := range []bool{true, false} {
		who := "the server"
		if up {
			who = "the client"
		}
		marks := map[udp.ECN]int{}
		told := 0
		for _, c := range t.conns {
			for _, d := range c.datagrams {
				if d.up == up {
					marks[d.ecn]++
				}
			}
			frames(c, up, func(_ *packet, f wire.Ack) {
				if f.ECN {
					told++
				}
			})
		}
		switch {
		case marks[udp.ECT0]+marks[udp.ECT1] == 0:
			return fmt.Errorf("%s marks no packet", who)
		case marks[udp.CE] > 0:
			return fmt.Errorf("%s sends packets marked CE", who)
		case told == 0:
			return fmt.Errorf("%s does not tell of the marks that it sees", who)
		}
	}
	return nil
}

// rebound wants the server to have seen the client at several addresses, with other IPs
// if ips is set, to have challenged each new one in its first packet there, and the
// client to have answered.
func rebound(ips bool) check {
	return func(t *trace) error {
		challenges := map[[8]byte]bool{}
		paths := map[netip.AddrPort]bool{}
		seen := map[netip.Addr]bool{}
		for _, c := range t.conns {
			// What comes when the client is about to close need not be answered.
			end := c.packets[len(c.packets)-1].at
			frames(c, true, func(p *packet, _ wire.ConnectionClose) {
				if p.at.Before(end) {
					end = p.at
				}
			})
			end = end.Add(-200 * time.Millisecond)
			for i := range c.packets {
				p := &c.packets[i]
				if p.up || paths[p.path] || p.at.After(end) {
					continue
				}
				first := len(paths) == 0
				challenged := false
				// A datagram holds one 1-RTT packet.
				for _, f := range p.frames {
					if f, ok := f.(wire.PathChallenge); ok {
						challenged = true
						if p.out > 0 {
							challenges[f.Data] = true
						}
					}
				}
				if !challenged && !first && t.server == ngtcp2Name {
					continue // it may send an ACK before
				}
				paths[p.path], seen[p.path.Addr()] = true, true
				if !challenged && !first {
					return fmt.Errorf("the server's first packet to the new address %v has no PATH_CHALLENGE: %v", p.path, p)
				}
			}
			frames(c, true, func(_ *packet, f wire.PathResponse) { delete(challenges, f.Data) })
		}
		switch {
		case len(paths) < 2:
			return errors.New("the server sent to one address only")
		case ips && len(seen) < 2:
			return errors.New("the server sent to one IP address only")
		case len(challenges) > 0:
			return fmt.Errorf("%d PATH_CHALLENGE without a PATH_RESPONSE", len(challenges))
		}
		return nil
	}
}

// newIDs wants each socket of the client to use connection IDs that no other one used
// (RFC 9000 §9.5).
func newIDs(t *trace) error {
	for _, c := range t.conns {
		byID := map[string]int{}
		for _, p := range c.packets {
			if !p.up || p.sealed || p.typ != wire.OneRTT {
				continue
			}
			if flow, ok := byID[string(p.dst)]; ok && flow != p.flow {
				return fmt.Errorf("the client uses the connection ID %x from two addresses", p.dst)
			}
			byID[string(p.dst)] = p.flow
		}
		if len(c.flows) < 2 {
			return errors.New("the client did not move")
		}
	}
	return nil
}

// moved wants the server to have followed the client to another of its sockets.
func moved(t *trace) error {
	for _, c := range t.conns {
		byFlow := map[int]int{}
		frames(c, false, func(p *packet, f wire.Stream) { byFlow[p.flow] += len(f.Data) })
		if len(byFlow) < 2 {
			return errors.New("the server sent data to one address of the client only")
		}
	}
	return nil
}

// pathsProved wants a PATH_RESPONSE from the server on each path but the first: the
// client asked for it, and got it.
func pathsProved(t *trace) error {
	for _, c := range t.conns {
		proved := map[int]bool{}
		frames(c, false, func(p *packet, _ wire.PathResponse) { proved[p.flow] = true })
		first := c.packets[0].flow
		for flow := range c.flows {
			if flow != first && !proved[flow] {
				return fmt.Errorf("the server answered no PATH_CHALLENGE from flow %d of the client", flow)
			}
		}
	}
	return nil
}

// compatible wants a client that begins with version 1 and a server that goes on with
// version 2 (RFC 9368).
func compatible(t *trace) error {
	c := t.conns[0]
	for _, p := range c.packets {
		switch {
		case p.up && p.typ == wire.Initial && p.pn == 0 && p.version != wire.Version1:
			return fmt.Errorf("the client begins with version %#x", p.version)
		case p.typ == wire.Handshake && p.version != wire.Version2:
			return fmt.Errorf("a Handshake packet of version %#x", p.version)
		}
	}
	return nil
}

// befell wants the relay to have lost, or damaged, what it was to.
func befell(f fate) check {
	return func(t *trace) error {
		for _, d := range t.datagrams {
			if d.fate == f {
				return nil
			}
		}
		return fmt.Errorf("no datagram was %v", f)
	}
}
