//go:build !windows

package udp

import (
	"errors"
	"syscall"
)

func isTooLarge(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }
