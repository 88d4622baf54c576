package main

import (
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// linkConfig is a simulated link, the same in both directions.
type linkConfig struct {
	Rate  float64       // bits per second
	Delay time.Duration // one way
	Loss  float64       // of datagrams, at random
	Queue int           // bytes that wait at most; what comes on top is dropped
}

// maxOnLink is the largest datagram a link carries: 1500 bytes less IPv4 and UDP headers.
const maxOnLink = 1472

// onWire is what IPv4 and UDP add to a datagram.
const onWire = 28

// link is one direction. It needs no goroutine for each datagram, so it is good for
// simulated time.
type link struct {
	conf linkConfig
	to   *linkConn

	mu     sync.Mutex
	loss   *rand.Rand
	free   time.Time // when the wire is free
	ways   chan enRoute
	closed chan struct{}

	Sent, Lost, Dropped int // guarded by mu
}

type enRoute struct {
	at time.Time
	p  []byte
}

// linkConn is a PacketConn with a link to another.
type linkConn struct {
	addr, peer *net.UDPAddr
	out        *link

	in     chan []byte
	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex
	deadline time.Time
	changed  chan struct{} // closed when the deadline changes
}

// newPath connects two PacketConns. The same seed loses the same datagrams: the n-th of
// each direction.
func newPath(conf linkConfig, seed uint64) (a, b *linkConn) {
	a = newLinkConn(1)
	b = newLinkConn(2)
	a.peer, b.peer = b.addr, a.addr
	a.out = newLink(conf, b, rand.New(rand.NewPCG(seed, 1)))
	b.out = newLink(conf, a, rand.New(rand.NewPCG(seed, 2)))
	return a, b
}

func newLinkConn(host byte) *linkConn {
	return &linkConn{
		addr: &net.UDPAddr{IP: net.IPv4(10, 0, 0, host), Port: 4433},
		in:   make(chan []byte, 1<<14), closed: make(chan struct{}), changed: make(chan struct{}),
	}
}

func newLink(conf linkConfig, to *linkConn, loss *rand.Rand) *link {
	l := &link{conf: conf, to: to, loss: loss, ways: make(chan enRoute, 1<<14), closed: make(chan struct{})}
	go l.run()
	return l
}

// run delivers datagrams when their time has come.
func (l *link) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var e enRoute
		select {
		case e = <-l.ways:
		case <-l.closed:
			return
		}
		if d := time.Until(e.at); d > 0 {
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-l.closed:
				return
			}
		}
		select {
		case l.to.in <- e.p:
		default: // nobody reads
		}
	}
}

// send puts a datagram on the way.
func (l *link) send(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Sent++
	lost := l.loss.Float64() < l.conf.Loss
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	waiting := l.free.Sub(now).Seconds() * l.conf.Rate / 8
	if len(p) > maxOnLink || waiting+float64(len(p)+onWire) > float64(l.conf.Queue) {
		l.Dropped++
		return
	}
	l.free = l.free.Add(time.Duration(float64(len(p)+onWire) * 8 / l.conf.Rate * 1e9))
	if lost {
		l.Lost++
		return
	}
	select {
	case l.ways <- enRoute{l.free.Add(l.conf.Delay), append([]byte(nil), p...)}:
	default:
		l.Dropped++
	}
}

// ReadFrom implements net.PacketConn.
func (c *linkConn) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		c.mu.Lock()
		deadline, changed := c.deadline, c.changed
		c.mu.Unlock()
		var late <-chan time.Time
		if !deadline.IsZero() {
			d := time.Until(deadline)
			if d <= 0 {
				return 0, nil, os.ErrDeadlineExceeded
			}
			t := time.NewTimer(d)
			defer t.Stop()
			late = t.C
		}
		select {
		case q := <-c.in:
			return copy(p, q), c.peer, nil
		case <-c.closed:
			return 0, nil, net.ErrClosed
		case <-late:
			return 0, nil, os.ErrDeadlineExceeded
		case <-changed:
		}
	}
}

// WriteTo implements net.PacketConn.
func (c *linkConn) WriteTo(p []byte, _ net.Addr) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	c.out.send(p)
	return len(p), nil
}

// Close implements net.PacketConn.
func (c *linkConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		close(c.out.closed)
	})
	return nil
}

// LocalAddr implements net.PacketConn.
func (c *linkConn) LocalAddr() net.Addr { return c.addr }

// SetReadDeadline implements net.PacketConn.
func (c *linkConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

// SetDeadline implements net.PacketConn.
func (c *linkConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.PacketConn: writes never wait.
func (c *linkConn) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer and SetWriteBuffer are there because stacks ask for them.
func (c *linkConn) SetReadBuffer(int) error  { return nil }
func (c *linkConn) SetWriteBuffer(int) error { return nil }
