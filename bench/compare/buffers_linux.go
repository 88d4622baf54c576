package main

import (
	"net"

	"golang.org/x/sys/unix"
)

// enlargeBuffers does for a stack what the others do for themselves.
func enlargeBuffers(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		for force, plain := range map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF} {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, force, socketBuffer) != nil {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, plain, socketBuffer)
			}
		}
	})
}
