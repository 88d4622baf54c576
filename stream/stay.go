package stream

import "runtime"

// Every 10 ms, and whenever it had to wait for the monitor, the runtime lets a goroutine that
// works without a pause go on in another thread as likely as not. The system may have that one
// run on another processor: the caches there know nothing of what the goroutine works on, and
// somebody else may be at work, who is then as late as the goroutine is. A call that writes in
// bulk spends its time on sealing and copying and is hit hard by that. So it stays where it is.
//
// It does not while it waits: to wake a goroutine that has its thread for itself takes the
// runtime another thread.

// stay keeps the call inside on its thread, if it writes total bytes and the host agrees. It
// reports whether unstay is due at the end. Monitor held.
func (s *Send) stay(total int) bool {
	s.stays = total > brief && s.h.Stay()
	if s.stays {
		runtime.LockOSThread()
	}
	return s.stays
}

// unstay undoes stay, for a call that may be inside no more.
func (s *Send) unstay() {
	runtime.UnlockOSThread()
	s.h.Unstay()
}

// park is gate.park for the call inside, which need not come back on the same thread.
func (s *Send) park() {
	if s.stays {
		runtime.UnlockOSThread()
		defer runtime.LockOSThread()
	}
	s.gate.park(s.h, nil)
}
