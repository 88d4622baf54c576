package main

import (
	"runtime"
	"time"
)

// meter measures one side of one transfer: time, CPU of the process, and what
// the connection counts.
type meter struct {
	conn  conn
	start time.Time
	cpu   float64
	cpuOK bool
	base  counters
}

func startMeter(c conn) *meter {
	// Garbage of the preparations is nobody's fault.
	runtime.GC()
	m := &meter{conn: c, base: c.Counters()}
	m.cpu, m.cpuOK = cpuSeconds()
	m.start = time.Now()
	return m
}

// stop returns a report without what only the caller knows.
func (m *meter) stop() *report {
	r := &report{Seconds: time.Since(m.start).Seconds()}
	if cpu, ok := cpuSeconds(); ok && m.cpuOK {
		used := cpu - m.cpu
		r.CPUSeconds = &used
	}
	d := m.conn.Counters().since(m.base)
	r.Socket, r.LostBytes = d.socket, d.lost
	return r
}
