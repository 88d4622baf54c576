package main

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// A relay stands between clients and a server like the runner's simulator: it is a link
// with a delay, a rate and a queue, does what its scenario says, is the NAT in front of
// the clients, and writes down every datagram. ECN marks pass through it.
type relay struct {
	scenario scenario
	capture  capture
	server   netip.AddrPort
	front    *udp.Conn // where clients send to
	up, down *link
	damage   *rand.Rand // of the goroutine of up, and of nobody else
	damageDn *rand.Rand // of down

	mu         sync.Mutex
	fates      [2]*fates // up, down
	begin      time.Time
	flows      map[netip.AddrPort]*flow
	rebindNext time.Time // zero before the first 1-RTT packet
	rebound    int       // how often the clients got new addresses
	err        error     // the first error of opening a socket
	closed     bool
}

// A flow is what comes from one socket of a client.
type flow struct {
	number int
	client udp.Route
	hops   []*hop // the last one is the client's address now
}

// A hop is a socket that stands for a client towards the server.
type hop struct {
	flow  *flow
	conn  *udp.Conn
	addr  netip.AddrPort
	route udp.Route // to the server, for the goroutine of up
}

// newRelay begins to relay between clients and server.
func newRelay(server netip.AddrPort, s scenario, seed uint64) (*relay, error) {
	r := &relay{
		scenario: s, server: server, up: newLink(s), down: newLink(s),
		damage:   rand.New(rand.NewPCG(seed, 1)),
		damageDn: rand.New(rand.NewPCG(seed, 2)),
		flows:    map[netip.AddrPort]*flow{},
	}
	for i := range r.fates {
		r.fates[i] = newFates(&r.scenario, i == 0, rand.New(rand.NewPCG(seed, 3+uint64(i))))
	}
	var err error
	if r.front, err = listenUDP(server.Addr()); err != nil {
		r.up.close()
		r.down.close()
		return nil, err
	}
	go r.read(r.front, func(m *udp.Message, b []byte) { r.fromClient(m.Remote, m.ECN, b) })
	return r, nil
}

func listenUDP(addr netip.Addr) (*udp.Conn, error) {
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return nil, err
	}
	c, err := udp.New(pc)
	if err != nil {
		pc.Close()
		return nil, err
	}
	return c, nil
}

// addr is where clients find the server.
func (r *relay) addr() *net.UDPAddr { return r.front.LocalAddr().(*net.UDPAddr) }

// close ends the relay, and returns what went wrong with it.
func (r *relay) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	r.up.close()
	r.down.close()
	r.front.Close()
	for _, f := range r.flows {
		for _, h := range f.hops {
			h.conn.Close()
		}
	}
	return r.err
}

// read hands over each datagram that comes to c, until c is closed.
func (r *relay) read(c *udp.Conn, datagram func(m *udp.Message, b []byte)) {
	ms := make([]udp.Message, 16)
	for {
		n, err := c.ReadBatch(ms)
		if err != nil {
			return
		}
		for i := range ms[:n] {
			m := &ms[i]
			for b := m.Data; len(b) > 0; {
				k := min(m.Segment, len(b))
				datagram(m, b[:k])
				b = b[k:]
			}
			m.Buf.Release()
		}
	}
}

func (r *relay) fromClient(client netip.AddrPort, ecn udp.ECN, b []byte) {
	r.mu.Lock()
	f := r.flows[client]
	if f == nil {
		f = &flow{number: len(r.flows), client: udp.Route{Remote: client}}
		if !r.bind(f) {
			r.mu.Unlock()
			return
		}
		r.flows[client] = f
	}
	if r.scenario.firstRebind > 0 && r.rebindNext.IsZero() && !wire.IsLong(b[0]) {
		r.rebindNext = time.Now().Add(r.scenario.firstRebind)
	}
	r.mu.Unlock()

	d := &datagram{up: true, at: time.Now(), flow: f.number, ecn: ecn, data: bytes.Clone(b)}
	r.relay(r.up, 0, d, func() {
		r.mu.Lock()
		r.rebind()
		h := f.hops[len(f.hops)-1]
		r.mu.Unlock()
		r.capture.leaves(d, h.addr)
		h.conn.Send(&h.route, r.spoil(d, r.damage), 0, d.ecn)
	})
}

func (r *relay) fromServer(h *hop, ecn udp.ECN, b []byte) {
	d := &datagram{at: time.Now(), flow: h.flow.number, path: h.addr, ecn: ecn, data: bytes.Clone(b)}
	r.relay(r.down, 1, d, func() {
		r.capture.leaves(d, h.addr)
		r.front.Send(&h.flow.client, r.spoil(d, r.damageDn), 0, d.ecn)
	})
}

// relay writes d down and sends it on its way, on which its fate meets it.
func (r *relay) relay(l *link, way int, d *datagram, deliver func()) {
	r.capture.arrived(d)
	r.mu.Lock()
	if r.begin.IsZero() {
		r.begin = d.at
	}
	f := r.fates[way].next(d.flow, d.at.Sub(r.begin))
	if !d.up && d.path != r.current(d.flow) {
		f = stale
	}
	r.mu.Unlock()
	r.capture.ends(d, f)
	if f != lost && f != stale && !l.send(len(d.data), deliver) {
		r.capture.ends(d, crowded)
	}
}

// current is the address of a flow's client now. The lock is held.
func (r *relay) current(number int) netip.AddrPort {
	for _, f := range r.flows {
		if f.number == number {
			return f.hops[len(f.hops)-1].addr
		}
	}
	return netip.AddrPort{}
}

// spoil returns d's bytes, with one bit flipped if that is d's fate. A token is spared: a
// server may close a connection for a wrong one (RFC 9000 §8.1.3), which no client can help.
func (r *relay) spoil(d *datagram, rnd *rand.Rand) []byte {
	if d.fate != damaged {
		return d.data
	}
	from := 0
	if h, err := wire.ParseLong(d.data); err == nil && h.Type == wire.Initial && len(h.Token) > 0 {
		from = h.PNOffset
	}
	b := bytes.Clone(d.data)
	b[from+rnd.IntN(len(b)-from)] ^= 1 << rnd.IntN(8)
	return b
}

// bind gives f's client a new address. The lock is held.
func (r *relay) bind(f *flow) bool {
	ip := r.server.Addr()
	if r.scenario.rebindAddr && r.rebound > 0 {
		// All of 127.0.0.0/8 is loopback on Linux.
		a := ip.As4()
		a[3] += byte(r.rebound)
		ip = netip.AddrFrom4(a)
	}
	c, err := listenUDP(ip)
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return false
	}
	if r.closed {
		c.Close()
		return false
	}
	h := &hop{flow: f, conn: c, addr: addrPort(c.LocalAddr()), route: udp.Route{Remote: r.server}}
	f.hops = append(f.hops, h)
	go r.read(c, func(m *udp.Message, b []byte) { r.fromServer(h, m.ECN, b) })
	return true
}

// rebind gives every client a new address if it is time to. As it is called when a client
// sends, the server hears of the new address: a client that waits for data and has nothing
// to say would else never get any. The lock is held.
func (r *relay) rebind() {
	now := time.Now()
	if r.rebindNext.IsZero() || now.Before(r.rebindNext) {
		return
	}
	r.rebindNext = now.Add(r.scenario.rebindEvery)
	r.rebound++
	for _, f := range r.flows {
		r.bind(f)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
