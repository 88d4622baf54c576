//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuSeconds is the user and system time of this process so far, in seconds;
// false if the system does not say.
func cpuSeconds() (float64, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), true
}
