package proc

import (
	"syscall"
	"time"
)

// CPU is the user and system time that this process has used.
func CPU() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var created, exited, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	var d time.Duration
	for _, f := range [...]syscall.Filetime{kernel, user} {
		// A duration in units of 100 ns; Filetime's own method takes it for a date.
		d += time.Duration(uint64(f.HighDateTime)<<32|uint64(f.LowDateTime)) * 100
	}
	return d
}

// MaxRSS is not known here.
func MaxRSS() int64 { return 0 }
