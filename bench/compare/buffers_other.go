//go:build !linux

package main

import "net"

// enlargeBuffers does for a stack what the others do for themselves.
func enlargeBuffers(c *net.UDPConn) {
	c.SetReadBuffer(socketBuffer)
	c.SetWriteBuffer(socketBuffer)
}
