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

// A tap is a client's socket that writes down what it sends and gets, for the case in
// which the server's preferred address leads past the relay. What the client sends to
// each address is a flow of its own.
type tap struct {
	*net.UDPConn
	capture *capture

	mu      sync.Mutex
	servers []string
}

func (t *tap) note(up bool, b []byte, server net.Addr) {
	t.mu.Lock()
	flow := slices.Index(t.servers, server.String())
	if flow < 0 {
		flow = len(t.servers)
		t.servers = append(t.servers, server.String())
	}
	t.mu.Unlock()
	d := &datagram{up: up, at: time.Now(), flow: flow, data: bytes.Clone(b)}
	t.capture.arrived(d)
	t.capture.leaves(d, addrPort(t.LocalAddr()))
}

func (t *tap) WriteTo(b []byte, to net.Addr) (int, error) {
	t.note(true, b, to)
	return t.UDPConn.WriteTo(b, to)
}

func (t *tap) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := t.UDPConn.ReadFrom(b)
	if err == nil {
		t.note(false, b[:n], from)
	}
	return n, from, err
}
