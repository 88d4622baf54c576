// Package congestion decides how much may be in flight (a Controller: CUBIC
// or NewReno) and how fast it leaves (the Pacer).
//
// Nothing here reads a clock: every method is told the time. Nothing here
// locks: everything is called with the connection's mutex held.
package congestion
