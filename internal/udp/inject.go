package udp

import "net/netip"

// Hook lets a test stand between a Conn and the kernel. Either function may be nil.
type Hook struct {
	// Send is asked before every system call that sends, in the sender's goroutine
	// (several at once if several send).
	Send func(Sending) Verdict
	// Read is asked before every system call that reads, by several at once if several
	// read; an error (a syscall.Errno, say) is what the call reports, and nothing is read.
	Read func() error
}

// Sending is one system call's worth of datagrams.
type Sending struct {
	B       []byte // must not be kept
	Segment int    // bytes of each datagram but the last; len(B) if there is one
	ECN     ECN
	Remote  netip.AddrPort
}

// Datagrams returns how many there are.
func (s Sending) Datagrams() int { return (len(s.B) + s.Segment - 1) / s.Segment }

// Verdict is a Hook's answer. The zero value lets the call through.
type Verdict struct {
	Err  error // reported as the call's error, a syscall.Errno for example
	Take int   // with Err: that many datagrams of the call go out first
	Lose bool  // what would go out is reported as sent, but does not leave
}

// Inject puts h between c and the kernel, nil takes it out. It may be called at
// any time. It is meant for tests.
func Inject(c *Conn, h *Hook) { c.hook.Store(h) }
