package udp

import "golang.org/x/sys/unix"

// PROBE, not DO: the kernel then keeps no path MTU for the socket, which anyone
// could shrink below 1200 bytes with a forged ICMP message (RFC 9000 §14.2.1).
func setDontFragment(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
}
