package udp

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlWriter builds control messages in memory that must be aligned like a uint64.
type controlWriter struct {
	buf []byte
	n   int
}

// add appends a message and returns its size bytes of data, all zero.
func (w *controlWriter) add(level, typ int32, size int) []byte {
	space := unix.CmsgSpace(size)
	b := w.buf[w.n : w.n+space]
	clear(b)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(size))
	w.n += space
	return b[unix.CmsgLen(0):][:size]
}

const (
	sizeofTOS        = 1
	sizeofClass      = 4  // int
	sizeofSegment    = 2  // u16
	sizeofInet4Info  = 12 // struct in_pktinfo { int ifindex; in_addr spec_dst, addr; }
	sizeofInet6Info  = 20 // struct in6_pktinfo { in6_addr addr; int ifindex; }
	maxSendControl   = 2*24 + 40
	roomForReceiving = 256 // ours need 120; the application may have asked for timestamps and the like
)

// segment asks for UDP_SEGMENT: the kernel cuts the message every size bytes.
func (w *controlWriter) segment(size int) {
	binary.NativeEndian.PutUint16(w.add(unix.IPPROTO_UDP, unix.UDP_SEGMENT, sizeofSegment), uint16(size))
}

// ecn marks the packets. The version that counts is that of the packets, which an
// IPv6 socket chooses by the destination.
func (w *controlWriter) ecn(v4 bool, mark ECN) {
	if v4 {
		w.add(unix.IPPROTO_IP, unix.IP_TOS, sizeofTOS)[0] = byte(mark)
	} else {
		binary.NativeEndian.PutUint32(w.add(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, sizeofClass), uint32(mark))
	}
}

// source chooses the packets' source address and interface. An address of the
// other version than the destination's cannot be a source: it is left out.
func (w *controlWriter) source(v4 bool, l Local) {
	addr := l.Addr.Unmap()
	switch {
	case v4 && addr.Is4():
		b := w.add(unix.IPPROTO_IP, unix.IP_PKTINFO, sizeofInet4Info)
		a := addr.As4()
		binary.NativeEndian.PutUint32(b, l.IfIndex)
		copy(b[4:], a[:])
	case !v4 && addr.Is6():
		b := w.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, sizeofInet6Info)
		a := addr.As16()
		copy(b, a[:])
		binary.NativeEndian.PutUint32(b[16:], l.IfIndex)
	}
}

// received is what control messages say about a message.
type received struct {
	segment int // 0: not coalesced
	ecn     ECN
	local   Local
}

// parseControl never fails: what it does not understand says nothing.
func parseControl(b []byte) (r received) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return r
		}
		b = rest
		switch h.Level {
		case unix.IPPROTO_UDP:
			if h.Type == unix.UDP_GRO {
				r.segment = segmentOf(data)
			}
		case unix.IPPROTO_IP:
			switch {
			case h.Type == unix.IP_TOS && len(data) >= sizeofTOS:
				r.ecn = ECN(data[0] & 3)
			case h.Type == unix.IP_PKTINFO && len(data) == sizeofInet4Info:
				// spec_dst is the address to answer from. It is missing when the kernel
				// found the socket without a route; then the packet's destination serves.
				addr := netip.AddrFrom4([4]byte(data[4:8]))
				if addr.IsUnspecified() {
					addr = netip.AddrFrom4([4]byte(data[8:12]))
				}
				r.local = Local{addr, binary.NativeEndian.Uint32(data)}
			}
		case unix.IPPROTO_IPV6:
			switch {
			case h.Type == unix.IPV6_TCLASS && len(data) == sizeofClass:
				r.ecn = ECN(binary.NativeEndian.Uint32(data) & 3)
			case h.Type == unix.IPV6_PKTINFO && len(data) == sizeofInet6Info:
				addr := netip.AddrFrom16([16]byte(data[:16])).Unmap()
				if addr.Is4() && r.local.Addr.IsValid() {
					break // IPv4 on an IPv6 socket: IP_PKTINFO says it better
				}
				r.local = Local{addr, binary.NativeEndian.Uint32(data[16:])}
			}
		}
	}
	return r
}

// segmentOf reads UDP_GRO's datum: an int; some kernels' headers said u16.
func segmentOf(data []byte) int {
	switch len(data) {
	case 4:
		if n := binary.NativeEndian.Uint32(data); n <= bigSize {
			return int(n)
		}
	case 2:
		return int(binary.NativeEndian.Uint16(data))
	}
	return 0
}
