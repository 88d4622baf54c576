// Package experiment holds switches with which bench takes one idea at a time out of the
// library, to see what it is worth. Applications cannot reach them, and nothing else sets
// them.
package experiment

import "sync/atomic"

// HandOver makes every write leave through the connection's goroutine, also on a quiet
// connection: what package sender would be without sending in the caller's.
var HandOver atomic.Bool

// AckFrequencyOff makes connections do without the ACK frequency extension: it is neither
// offered to peers nor made use of.
var AckFrequencyOff atomic.Bool
