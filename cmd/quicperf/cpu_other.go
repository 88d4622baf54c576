//go:build !unix && !windows

package main

// cpuSeconds: this system does not say.
func cpuSeconds() (float64, bool) { return 0, false }
