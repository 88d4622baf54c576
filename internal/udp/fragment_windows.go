package udp

import "golang.org/x/sys/windows"

// Not in golang.org/x/sys/windows: from ws2ipdef.h.
const (
	ipDontFragment = 14
	ipv6DontFrag   = 14
)

func setDontFragment(fd uintptr) {
	_ = windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IP, ipDontFragment, 1)
	_ = windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IPV6, ipv6DontFrag, 1)
}
