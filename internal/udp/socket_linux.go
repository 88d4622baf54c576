package udp

import "net"

func newSocket(pc net.PacketConn, want abilities) (socket, abilities, error) {
	return newPlainSocket(pc), abilities{}, nil
}
