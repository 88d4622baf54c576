// Package udp is the library's only way to the network: it sends and receives
// whole flights of datagrams with as few system calls as the system allows.
//
// On Linux, a *net.UDPConn is driven by sendmsg with UDP_SEGMENT (GSO) and
// recvmmsg with UDP_GRO, with ECN marks, Don't Fragment and the local address
// by control message. Everywhere else, and for every other net.PacketConn, the
// same methods move plain datagrams. A type that merely embeds *net.UDPConn is
// such another PacketConn: what it puts into ReadFrom and WriteTo must not be
// bypassed.
//
// The environment switches the extras off: VOLLEY_DISABLE_GSO (or
// QUIC_GO_DISABLE_GSO), VOLLEY_DISABLE_GRO, VOLLEY_DISABLE_ECN (or
// QUIC_GO_DISABLE_ECN), read by New.
package udp

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// socketBuffer is the size wanted for the kernel's send and receive buffers: at
// 5 Gbit/s the reader may be away for 10 ms.
const socketBuffer = 7 << 20

// socket is what differs between the fast path and the plain one. Errors are
// as the system gave them; Send and ReadBatch make the rules.
type socket interface {
	// send hands b to the kernel in one call and never waits. b is one datagram,
	// or several of segment bytes if the socket can segment.
	send(r *Route, b []byte, segment int, ecn ECN) error
	// read waits for a message and takes what else is there, up to len(ms). It
	// may return 0, nil if all that came was of no use. If it returns messages it has
	// locked l before it took them from the kernel, and else l is not locked.
	read(ms []Message, stats *counters, l sync.Locker) (int, error)
	// readNow is read, but 0, nil if nothing is there, and locks nothing; for those that
	// are able to.
	readNow(ms []Message, stats *counters) (int, error)
	// nap lets a moment pass, as Nap says.
	nap()
	// writable reports whether the kernel has room now. ok is false if it cannot say.
	writable() (now, ok bool)
	// awaitWritable blocks until the kernel has room or the socket is closed.
	awaitWritable() error
	// detach undoes what would surprise another reader of the same socket.
	detach()
}

// abilities says what a socket can do beyond plain datagrams.
type abilities struct {
	gso, gro, ecn, local, now bool

	room int // see Room
}

// Conn wraps a net.PacketConn. Many goroutines may send at once, each on a Route
// of its own; one at a time may read, if SetReadLock does not say otherwise.
type Conn struct {
	pc     net.PacketConn
	sock   socket
	can    abilities
	lock   sync.Locker
	stats  counters
	hook   atomic.Pointer[Hook]
	closed chan struct{}
	once   sync.Once

	blockage
}

// New takes pc over. It sets socket options, on a best-effort basis: a socket
// that refuses them still works.
func New(pc net.PacketConn) (*Conn, error) {
	if pc == nil {
		return nil, errors.New("udp: no PacketConn")
	}
	want := abilities{
		gso: !switchedOff("VOLLEY_DISABLE_GSO", "QUIC_GO_DISABLE_GSO"),
		gro: !switchedOff("VOLLEY_DISABLE_GRO"),
		ecn: !switchedOff("VOLLEY_DISABLE_ECN", "QUIC_GO_DISABLE_ECN"),
	}
	enlargeBuffers(pc)
	forbidFragments(pc)
	c := &Conn{pc: pc, lock: noLock{}, closed: make(chan struct{})}
	var err error
	if c.sock, c.can, err = newSocket(pc, want); err != nil {
		return nil, err
	}
	return c, nil
}

func switchedOff(names ...string) bool {
	for _, name := range names {
		if off, err := strconv.ParseBool(os.Getenv(name)); err == nil && off {
			return true
		}
	}
	return false
}

// LocalAddr returns the PacketConn's address.
func (c *Conn) LocalAddr() net.Addr { return c.pc.LocalAddr() }

// SetReadDeadline makes ReadBatch return os.ErrDeadlineExceeded from t on; the
// zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.pc.SetReadDeadline(t) }

// CanGSO reports whether a Route begins with several datagrams per system call.
func (c *Conn) CanGSO() bool { return c.can.gso }

// CanReadNow reports whether ReadNow works.
func (c *Conn) CanReadNow() bool { return c.can.now }

// Room is about how many bytes that have arrived the socket holds until they are read. What
// is not the system's own socket counts as holding any number.
func (c *Conn) Room() int { return c.can.room }

// CanECN reports whether marks are sent and received.
func (c *Conn) CanECN() bool { return c.can.ecn }

// SaysLocal reports whether messages tell at which of the host's addresses they arrived,
// and Send heeds a Route's.
func (c *Conn) SaysLocal() bool { return c.can.local }

// Close closes the PacketConn. Blocked calls return net.ErrClosed.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.pc.Close()
}

// Detach ends the Conn's use without closing the PacketConn, which may then be
// read by somebody else. ReadBatch must have returned before.
func (c *Conn) Detach() {
	c.once.Do(func() {
		close(c.closed)
		c.sock.detach()
	})
}

func (c *Conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
