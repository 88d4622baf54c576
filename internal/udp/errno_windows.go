package udp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// Sockets report Winsock's numbers; package syscall's are invented ones.
func isTooLarge(err error) bool {
	return errors.Is(err, windows.WSAEMSGSIZE) || errors.Is(err, syscall.EMSGSIZE)
}
