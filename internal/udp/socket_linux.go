package udp

import (
	"net"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fastSocket drives a UDP socket by sendmsg and recvmmsg.
type fastSocket struct {
	raw syscall.RawConn
	v6  bool // an AF_INET6 socket: IPv4 addresses are written v4-mapped
	in  receiver
}

func newSocket(pc net.PacketConn, want abilities) (socket, abilities, error) {
	var u syscall.Conn
	switch c := pc.(type) {
	case *net.UDPConn:
		u = c
	case *readWatched:
		u = c
	default:
		return newPlain(pc)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, abilities{}, err
	}
	s := &fastSocket{raw: raw}
	s.in.init()
	can := abilities{ecn: want.ecn, now: true}
	err = raw.Control(func(fd uintptr) {
		s.v6 = isV6(int(fd))
		// A dual-stack socket takes the options of both families and reports IPv4
		// packets by IPv4's control messages. One of one family refuses the other's.
		set := func(level, option int) bool { return unix.SetsockoptInt(int(fd), level, option, 1) == nil }
		if want.ecn {
			set(unix.IPPROTO_IP, unix.IP_RECVTOS)
			set(unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS)
		}
		if local, ok := pc.LocalAddr().(*net.UDPAddr); ok && local.IP.IsUnspecified() {
			v4, v6 := set(unix.IPPROTO_IP, unix.IP_PKTINFO), set(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO)
			can.local = v4 || v6
		}
		// Linux 4.18 and its like take UDP_SEGMENT and then hardly deliver (quic-go#4394).
		if want.gso && kernelMajor() >= 5 {
			_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
			can.gso = err == nil
		}
		// The kernel reports the double of what it was asked for: it counts its own bookkeeping.
		doubled, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		can.room = doubled / 2
		if want.gro {
			can.gro = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil
		}
	})
	if err != nil {
		return nil, abilities{}, err
	}
	return s, can, nil
}

func isV6(fd int) bool {
	domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return domain == unix.AF_INET6
}

func kernelMajor() int {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return 0
	}
	major, _, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), ".")
	n, _ := strconv.Atoi(major)
	return n
}

// detach: a reader that expects one datagram per read must get that.
func (s *fastSocket) detach() {
	_ = s.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 0)
	})
}

func (s *fastSocket) writable() (now, ok bool) {
	err := s.raw.Control(func(fd uintptr) { now = pollsWritable(fd) })
	return now, err == nil
}

// awaitWritable asks the kernel itself before it parks: the poller reports changes
// only, and room may have been made before it began to look.
func (s *fastSocket) awaitWritable() error { return s.raw.Write(pollsWritable) }

func pollsWritable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0
}
