//go:build !linux && !darwin && !freebsd && !windows

package udp

func setDontFragment(uintptr) {}
