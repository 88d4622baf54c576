package udp

import (
	"net"

	"golang.org/x/sys/unix"
)

// enlargeBuffers raises the socket's buffers: beyond the system's limit where we
// may, up to it where not.
func enlargeBuffers(pc net.PacketConn) {
	control(pc, func(fd uintptr) {
		raise(int(fd), unix.SO_RCVBUF, unix.SO_RCVBUFFORCE)
		raise(int(fd), unix.SO_SNDBUF, unix.SO_SNDBUFFORCE)
	})
}

func raise(fd, plain, force int) {
	// The kernel doubles what is set, for its own bookkeeping, and reports that.
	if have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain); err == nil && have >= 2*socketBuffer {
		return
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, socketBuffer)
	}
}
