//go:build !linux

package udp

import "net"

// enlargeBuffers asks for less until the system agrees: some refuse what is above
// their limit instead of giving the limit.
func enlargeBuffers(pc net.PacketConn) {
	if s, ok := pc.(interface{ SetReadBuffer(int) error }); ok {
		for n := socketBuffer; n >= 256<<10 && s.SetReadBuffer(n) != nil; n /= 2 {
		}
	}
	if s, ok := pc.(interface{ SetWriteBuffer(int) error }); ok {
		for n := socketBuffer; n >= 256<<10 && s.SetWriteBuffer(n) != nil; n /= 2 {
		}
	}
}
