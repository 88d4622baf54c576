package stream

// A stream that is reset may have a beginning that arrives all the same (RESET_STREAM_AT,
// draft-ietf-quic-reliable-stream-reset): bytes below the reliable size, which boundary is
// from then on, are sent and repaired as before. The others count as acknowledged, whether
// they have arrived or not, so that nothing else need know of them.
//
// The frame is due when the last byte below the reliable size has been packed. Until then
// the peer's credit might not cover the final size (§4 of the draft), and so nothing of the
// stream leaves for the first time behind it.

// resetState is where the RESET_STREAM, or RESET_STREAM_AT, stands (RFC 9000 §3.1, §13.3).
type resetState uint8

const (
	resetNone resetState = iota
	resetDue
	resetSent
	resetAcked
)

// AllowResetAt says that the peer takes RESET_STREAM_AT. Monitor held.
func (s *Send) AllowResetAt() { s.resetAt = true }

// SetReliableBoundary has the bytes that were added so far delivered even if Cancel follows,
// if the peer takes RESET_STREAM_AT. It may be called again, for those that were added
// since. After a reset it does nothing.
//
// Bytes of a source count from when the stream has taken them. Of those that are not kept
// nobody can send again what is lost when, or after, the stream is reset: then the boundary
// falls to the first of them.
func (s *Send) SetReliableBoundary() {
	s.h.Lock()
	if s.err == nil {
		s.boundary = s.acc
	}
	s.h.Unlock()
}

// Cancel ends the stream with a RESET_STREAM, now: bytes that were not acknowledged may
// never arrive; or, if there is a reliable boundary, with a RESET_STREAM_AT, which concerns
// only those above it. It does nothing if the stream has ended.
func (s *Send) Cancel(code uint64) {
	s.h.Lock()
	s.learn()
	if s.err != nil || s.done {
		s.h.Unlock()
		return
	}
	s.abort(code, errs.Reset(s.id, code, false), s.spared())
	s.h.PushUnlock(s)
}

// StopSending handles the peer's STOP_SENDING: the stream is reset with the
// same code (RFC 9000 §3.5), also after FIN, as nobody wants the bytes; and
// also those that were to arrive after a reset, whose code stays.
// Monitor held.
func (s *Send) StopSending(code uint64) {
	if !s.silent && !s.done {
		s.abort(code, errs.Reset(s.id, code, true), 0)
	}
}

// spared is the reliable size of a reset now.
func (s *Send) spared() int64 {
	if !s.resetAt {
		return 0
	}
	return s.boundary
}

// abort resets the stream, or lowers the reliable size of a reset, which nothing else of
// it can change (§5.2 of the draft): code and err count the first time only.
func (s *Send) abort(code uint64, err error, reliable int64) {
	if s.err == nil {
		s.resetCode = code
	}
	if s.src != nil {
		reliable = min(reliable, s.src.kept(s)) // a source is not asked any more
	}
	s.boundary = reliable
	s.reset = resetDue
	if reliable > 0 {
		s.spare(err)
	} else {
		s.end(err)
	}
	s.h.SendReady(s)
}

// spare lets go of the bytes from boundary on.
func (s *Send) spare(err error) {
	s.fail(err)
	lo, hi := max(s.boundary, s.base), s.acc
	for a := lo; a < hi; {
		g, end := s.acked.gap(a, hi)
		if g == end {
			break
		}
		s.q.acked(g, end, s.h, s.filling)
		a = end
	}
	s.lost.remove(lo, hi)
	if final := max(s.next, s.boundary); final < s.acc {
		n := s.acc - final
		s.acc = final
		s.h.Buffered(int(-n))
	}
	s.acked.add(lo, s.acc)
	s.absorb()
	if s.src != nil {
		s.src.cut(s.boundary)
	}
	// The reset says what a FIN would have said; and must arrive, also if that has: it alone
	// tells the peer which bytes never will.
	s.finQueued, s.finSent, s.finLost, s.finAcked = false, false, false, false
}

// end lets go of everything: no byte leaves or is added from here on.
func (s *Send) end(err error) {
	s.fail(err)
	s.silent = true
	for i := range s.q.n {
		// A block that a writer is copying into is its to free.
		if b := s.q.at(i).b; b != nil && b != s.filling {
			b.free(s.h)
		}
	}
	s.q = queue{}
	s.lost, s.acked = ranges{}, ranges{}
	if s.src != nil {
		s.src.slots, s.src.head, s.src.nlost = nil, 0, 0
	}
	if n := s.Unsent(); n > 0 {
		s.acc = s.next
		s.h.Buffered(-n)
	}
}

// fail tells everybody, the first time, that no byte is added from here on.
func (s *Send) fail(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	if s.cork != nil {
		s.cork.Stop()
		s.corked = false
	}
	if s.src != nil {
		s.src.last = s.base
		s.src.tellLater(s)
	}
	s.gate.signalAll()
	s.fireWritable()
	s.endContext(err)
}

// ResetDue says that RESET_STREAM is to be sent, or RESET_STREAM_AT if ReliableSize is not
// 0. The final size is the highest offset that was packed (RFC 9000 §4.5). Monitor held.
func (s *Send) ResetDue() (code uint64, finalSize int64, ok bool) {
	return s.resetCode, s.next, s.reset == resetDue && s.next >= s.boundary
}

// ReliableSize is how many bytes of the stream arrive though it was reset. It can become
// less later on. Monitor held.
func (s *Send) ReliableSize() int64 {
	if s.reset == resetNone {
		return 0
	}
	return s.boundary
}

// ResetSent says that what was due was packed. Monitor held.
func (s *Send) ResetSent() {
	if s.reset == resetDue {
		s.reset = resetSent
	}
}

// ResetLost makes the reset with this reliable size due again, unless the size is less by
// now, or it was acknowledged. Monitor held.
func (s *Send) ResetLost(reliable int64) {
	if s.reset == resetSent && reliable == s.boundary {
		s.reset = resetDue
		s.h.SendReady(s)
	}
}

// ResetAcked says that the peer has the reset with this reliable size: if it is the last
// one, and the peer has the bytes below it, the stream is done. Monitor held.
func (s *Send) ResetAcked(reliable int64) {
	if s.reset == resetNone || s.done || reliable != s.boundary {
		return
	}
	s.reset = resetAcked
	s.finishReset()
}

// learn notes that the application knows that the stream is over, or will be.
func (s *Send) learn() {
	s.told = true
	s.finishReset()
}

// finishReset ends a stream whose reset is acknowledged, and what that has spared, once the
// application has heard of it or has nothing more to send. Before, somebody still works for
// it: a peer that stops stream after stream must not be given new ones for them.
func (s *Send) finishReset() {
	if s.reset == resetAcked && !s.done && (s.told || s.closing) && (s.silent || s.base == s.acc) {
		s.done = true
		s.h.SendDone(s)
	}
}
