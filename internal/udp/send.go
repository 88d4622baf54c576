package udp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

const (
	maxSegments = 64    // the kernel's UDP_MAX_SEGMENTS
	maxMessage  = 65507 // bytes of UDP payload in the largest IPv4 packet
)

var (
	// ErrBlocked: the kernel has no room now (EAGAIN, ENOBUFS). What was not sent
	// can be sent again as it is, after WaitWritable.
	ErrBlocked = errors.New("udp: the socket takes no more for now")
	// ErrTooLarge: the datagram is larger than the path or the system allows (EMSGSIZE).
	ErrTooLarge = errors.New("udp: datagram too large")
)

// Route is one connection's view of where its datagrams go. The caller fills the
// exported fields and may change them between calls of Send. Not safe for
// concurrent use; a copy is a Route of its own.
type Route struct {
	Remote     netip.AddrPort
	RemoteAddr net.Addr // what a plain PacketConn sends to; nil: Remote. The fast path looks at Remote only
	Local      Local    // source of the datagrams; the zero value leaves it to the kernel

	noGSO  bool // a segmented send failed here where single ones did not
	worked bool // the kernel took a datagram
	addr   addrCache
}

// addrCache keeps what is costly to make from a Route's address.
type addrCache struct {
	of      netip.AddrPort // what udp was made of
	udp     net.Addr
	zone    string // what scopeID was looked up for
	scopeID uint32
}

// GSO reports whether the next Send on r may use segmentation, given that the
// Conn can.
func (r *Route) GSO() bool { return !r.noGSO }

// Send hands b to the kernel as datagrams of segment bytes each, the last of
// which may be shorter (segment 0: b is one datagram), in as few system calls as
// it can. It never waits, and the kernel has copied what it took when Send returns.
//
// sent is the number of datagrams the kernel took: the first ones. The error is
// about the datagram after them: ErrBlocked, ErrTooLarge, net.ErrClosed, or what
// else the system said (no route to host, for example), which the caller best
// treats as the loss of that datagram.
//
// Where the kernel accepts segmentation and the network card does not (EIO, or
// EINVAL), the same bytes leave one by one within the call. Segmentation then
// stays off for this Route, if it was to blame.
func (c *Conn) Send(r *Route, b []byte, segment int, ecn ECN) (sent int, err error) {
	if segment <= 0 || segment > len(b) {
		segment = len(b)
	}
	if !c.can.ecn {
		ecn = NotECT
	}
	for len(b) > 0 {
		n := segment
		if c.can.gso && !r.noGSO {
			n *= max(1, min(maxSegments, maxMessage/segment))
		}
		n = min(n, len(b))
		k, err := c.call(r, b[:n], segment, ecn)
		if k == 0 && n > segment && (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL)) {
			k, err = c.singly(r, b[:n], segment, ecn)
		}
		sent += k
		if err != nil {
			return sent, c.refusal(err)
		}
		b = b[n:]
	}
	return sent, nil
}

// singly sends again what a segmented call refused. Only if this goes better was
// segmentation at fault: EINVAL also means a segment above the path's MTU or a
// source address that is gone, EIO a device that is.
func (c *Conn) singly(r *Route, b []byte, segment int, ecn ECN) (sent int, err error) {
	for len(b) > 0 {
		n := min(segment, len(b))
		if _, err = c.call(r, b[:n], n, ecn); err != nil {
			break
		}
		sent++
		b = b[n:]
	}
	if sent > 0 && (err == nil || isFull(err)) {
		r.noGSO = true
	}
	return sent, err
}

// call makes one system call and counts it.
func (c *Conn) call(r *Route, b []byte, segment int, ecn ECN) (sent int, err error) {
	sent, err = c.attempt(r, b, segment, ecn)
	if err != nil && sent == 0 && isOld(err, r) {
		sent, err = c.attempt(r, b, segment, ecn)
	}
	if sent > 0 {
		r.worked = true
		c.stats.sent(sent)
		c.unblocked()
	}
	return sent, err
}

// isOld reports errors that say nothing about the datagram at hand. A connected
// socket reports the ICMP answer to an earlier one; and on Linux the first
// datagram of a new socket meets EPERM now and then (golang/go#63322).
func isOld(err error, r *Route) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || !r.worked && errors.Is(err, syscall.EPERM)
}

func (c *Conn) attempt(r *Route, b []byte, segment int, ecn ECN) (sent int, err error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	var v Verdict
	if h := c.hook.Load(); h != nil && h.Send != nil {
		v = h.Send(Sending{B: b, Segment: segment, ECN: ecn, Remote: r.Remote})
		if v.Err != nil {
			b = b[:min(len(b), v.Take*segment)]
		}
	}
	if len(b) > 0 && !v.Lose {
		if err := c.sock.send(r, b, segment, ecn); err != nil {
			return 0, err
		}
	}
	return (len(b) + segment - 1) / segment, v.Err
}

// refusal turns the system's words into ours.
func (c *Conn) refusal(err error) error {
	switch {
	case isFull(err):
		c.blocked(err)
		return ErrBlocked
	case isTooLarge(err):
		return ErrTooLarge
	case errors.Is(err, net.ErrClosed):
		return net.ErrClosed
	}
	return err
}

func isFull(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.ENOBUFS)
}
