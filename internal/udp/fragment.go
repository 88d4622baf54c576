package udp

import (
	"net"
	"syscall"
)

// control runs f on pc's file descriptor, if pc has one and lets it be seen.
func control(pc net.PacketConn, f func(fd uintptr)) {
	if sc, ok := pc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(f)
		}
	}
}

// forbidFragments sets Don't Fragment on what pc sends (RFC 9000 §14). A socket
// knows one address family or both: the option of the other one fails.
func forbidFragments(pc net.PacketConn) {
	control(pc, setDontFragment)
}
