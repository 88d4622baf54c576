package main

import (
	"syscall"
	"time"
)

// cpuSeconds is the user and system time of this process so far, in seconds;
// false if the system does not say.
func cpuSeconds() (float64, bool) {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, false
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &exited, &kernel, &user); err != nil {
		return 0, false
	}
	// A FILETIME that is a duration counts 100 ns each (its Nanoseconds method
	// takes it for a date).
	ticks := func(f syscall.Filetime) time.Duration {
		return time.Duration(uint64(f.HighDateTime)<<32|uint64(f.LowDateTime)) * 100
	}
	return (ticks(kernel) + ticks(user)).Seconds(), true
}
