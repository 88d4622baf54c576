//go:build !linux

package udp

import "net"

// Listen is net.ListenUDP.
func Listen(network string, addr *net.UDPAddr) (net.PacketConn, error) {
	u, err := net.ListenUDP(network, addr)
	if err != nil {
		return nil, err
	}
	return u, nil
}
