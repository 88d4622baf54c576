//go:build !linux

package udp

import "net"

func newSocket(pc net.PacketConn, _ abilities) (socket, abilities, error) {
	return newPlain(pc)
}
