package main

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/volley-quic/volley/internal/udp"
)

// A datagram is one that came to the relay.
type datagram struct {
	up   bool // from the client to the server
	at   time.Time
	flow int            // number of the client's socket, in the order in which they appeared
	path netip.AddrPort // the client's address as the server sees it; zero if it was not to see this one
	ecn  udp.ECN
	data []byte // as it came
	fate fate

	// in and out are its places in the order of everything that came to the relay and
	// left it. A datagram to the server leaves before the server can know of it, and
	// one from the server comes after the server sent it: what the server sends in
	// answer to a datagram has a larger in than that one's out. out is 0 if it never left.
	in, out int
}

// A capture is all that came to a relay, in order.
type capture struct {
	mu   sync.Mutex
	n    int
	list []*datagram
	ways []string // of taps: each is a flow of its own
}

func (c *capture) arrived(d *datagram) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	d.in = c.n
	c.list = append(c.list, d)
}

func (c *capture) leaves(d *datagram, path netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	d.out, d.path = c.n, path
}

func (c *capture) ends(d *datagram, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.fate = f
}

// datagrams returns what came so far, as copies that no longer change.
func (c *capture) datagrams() []*datagram {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*datagram, len(c.list))
	for i, d := range c.list {
		copied := *d
		list[i] = &copied
	}
	return list
}

// flowOf numbers the ways that taps see.
func (c *capture) flowOf(way string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	flow := slices.Index(c.ways, way)
	if flow < 0 {
		flow = len(c.ways)
		c.ways = append(c.ways, way)
	}
	return flow
}

// A tap is Volley's socket that writes down what it sends and gets, for the case in which
// the server's preferred address leads past the relay. What goes between it and each address
// is a flow of its own.
type tap struct {
	*net.UDPConn
	capture *capture
	server  bool // it is a server's socket
}

func (t *tap) note(up bool, b []byte, far net.Addr) {
	d := &datagram{
		up: up, at: time.Now(), data: bytes.Clone(b),
		flow: t.capture.flowOf(t.LocalAddr().String() + " " + far.String()),
	}
	client := t.LocalAddr()
	if t.server {
		client = far
	}
	t.capture.arrived(d)
	t.capture.leaves(d, addrPort(client))
}

func (t *tap) WriteTo(b []byte, to net.Addr) (int, error) {
	t.note(!t.server, b, to)
	return t.UDPConn.WriteTo(b, to)
}

func (t *tap) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := t.UDPConn.ReadFrom(b)
	if err == nil {
		t.note(t.server, b[:n], from)
	}
	return n, from, err
}
