package udp

import (
	"math"
	"net"
	"net/netip"
	"sync"
)

// plainSocket moves single datagrams through the methods of any PacketConn.
type plainSocket struct {
	pc    net.PacketConn
	udp   *net.UDPConn // pc, if it is one: its AddrPort methods do not allocate
	buf   *Buffer      // for the next read …
	spare *Buffer      // … and for one that does not wait, while another one does

	// Built once: a method value for each read would be an allocation for each.
	from, fromNow func(b []byte) (int, net.Addr, error) // fromNow may be nil
}

func newPlainSocket(pc net.PacketConn) *plainSocket {
	s := &plainSocket{pc: pc, from: pc.ReadFrom}
	s.udp, _ = pc.(*net.UDPConn)
	if r, ok := pc.(nowReader); ok {
		s.fromNow = r.ReadFromNow
	}
	return s
}

// newPlain is newSocket for what is driven by the methods of net.PacketConn.
func newPlain(pc net.PacketConn) (socket, abilities, error) {
	s := newPlainSocket(pc)
	return s, abilities{now: s.fromNow != nil, room: math.MaxInt}, nil
}

func (s *plainSocket) send(r *Route, b []byte, _ int, _ ECN) (err error) {
	switch {
	case s.udp != nil && r.Remote.IsValid():
		_, err = s.udp.WriteToUDPAddrPort(b, unmapped(r.Remote))
	case r.RemoteAddr != nil:
		_, err = s.pc.WriteTo(b, r.RemoteAddr)
	default:
		if r.addr.udp == nil || r.addr.of != r.Remote {
			r.addr.of, r.addr.udp = r.Remote, net.UDPAddrFromAddrPort(unmapped(r.Remote))
		}
		_, err = s.pc.WriteTo(b, r.addr.udp)
	}
	return err
}

func (s *plainSocket) read(ms []Message, stats *counters, l sync.Locker) (int, error) {
	return s.readBy(s.from, &s.buf, ms, stats, l)
}

// readBy reads into buf by one of the ways to read.
func (s *plainSocket) readBy(from func([]byte) (int, net.Addr, error), buf **Buffer, ms []Message, stats *counters, l sync.Locker) (int, error) {
	if *buf == nil {
		*buf = newBuffer(&bigBuffers)
	}
	var (
		m   = Message{}
		n   int
		err error
	)
	if s.udp != nil {
		n, m.Remote, err = s.udp.ReadFromUDPAddrPort((*buf).mem)
		m.Remote = unmapped(m.Remote)
	} else if n, m.RemoteAddr, err = from((*buf).mem); err == nil {
		m.Remote = addrPortOf(m.RemoteAddr)
	}
	if err != nil || n <= 0 || n > len((*buf).mem) {
		return 0, err
	}
	l.Lock()
	*buf, m.Buf = handOver(*buf, n)
	m.Data, m.Segment = m.Buf.Bytes(), n
	ms[0] = m
	stats.received(1, 1, 0)
	return 1, nil
}

// handOver splits what a read left in buf into the buffer for the caller and the
// one for the next read, nil if there has to be a new one. Small messages move,
// so that the large buffer stays.
func handOver(buf *Buffer, n int) (next, out *Buffer) {
	if n <= smallSize {
		return buf, CopyBuffer(buf.mem[:n])
	}
	buf.n = n
	return nil, buf
}

func addrPortOf(a net.Addr) netip.AddrPort {
	if u, ok := a.(*net.UDPAddr); ok && u != nil {
		return unmapped(u.AddrPort())
	}
	return netip.AddrPort{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// nowReader is what tests' sockets are to be read without waiting: the error is
// os.ErrDeadlineExceeded if nothing is there.
type nowReader interface {
	ReadFromNow(b []byte) (int, net.Addr, error)
}

func (s *plainSocket) nap() {}

func (s *plainSocket) readNow(ms []Message, stats *counters) (int, error) {
	if s.fromNow == nil {
		return 0, nil
	}
	return s.readBy(s.fromNow, &s.spare, ms, stats, noLock{})
}

func (s *plainSocket) writable() (now, ok bool) { return false, false }
func (s *plainSocket) awaitWritable() error     { return nil }
func (s *plainSocket) detach()                  {}
