package stream

import "github.com/volley-quic/volley/internal/wire"

// Reset takes a RESET_STREAM frame; newBytes and err are as for Push. If all
// data has arrived it is too late, and the data is read as if nothing had
// come (RFC 9000 §3.2). Monitor held.
func (r *Recv) Reset(code uint64, finalSize int64) (newBytes int64, err error) {
	return r.reset(wire.FrameResetStream, code, finalSize, 0)
}

// ResetAt takes a RESET_STREAM_AT frame (draft-ietf-quic-reliable-stream-reset): it is Reset
// for the bytes from reliable on; those below are read before the error. A later one, or
// Reset, can make them less. Monitor held.
func (r *Recv) ResetAt(code uint64, finalSize, reliable int64) (newBytes int64, err error) {
	return r.reset(wire.FrameResetStreamAt, code, finalSize, reliable)
}

func (r *Recv) reset(frame, code uint64, finalSize, reliable int64) (newBytes int64, err error) {
	switch {
	case r.final >= 0 && finalSize != r.final:
		return 0, finalSizeError(frame, "reset with another final size")
	case r.final < 0 && finalSize < r.high:
		return 0, finalSizeError(frame, "reset below data received before")
	case r.final < 0 && finalSize > r.limit:
		return 0, flowError(frame)
	case r.cut && code != r.code:
		// §5.2 of the draft. RFC 9000 does not mind.
		return 0, &wire.Error{Code: wire.StreamStateError, FrameType: frame, Reason: "reset with another error code"}
	}
	complete := r.final >= 0 && r.ready == r.final && !r.discarded
	if !r.cut {
		newBytes = finalSize - r.high
		r.high = finalSize
	}
	r.setFinal(finalSize)
	if complete || r.done {
		return newBytes, nil
	}
	r.stopDue = false // RFC 9000 §3.5: not for a stream that was reset
	if reliable > r.read && !r.discarded {
		r.spare(code, reliable)
		return newBytes, nil
	}
	if r.err == nil {
		r.err = r.ending
		if !r.cut {
			r.err = errs.Reset(r.id, code, true)
		}
	}
	// The bytes up to the final size count, received or not (RFC 9000 §4.5):
	// they are given back to the connection here, once.
	r.discard()
	r.gate.signalAll()
	r.finish()
	return newBytes, nil
}

// spare makes reading end at the reliable size, which a frame that comes later can lower but
// not raise. From here on the stream is like one that ends there, but for what follows.
func (r *Recv) spare(code uint64, reliable int64) {
	// What a reader copies at this moment is its.
	end := max(reliable, r.copying)
	if r.cut && end >= r.last {
		return
	}
	if !r.cut {
		r.cut = true
		r.code = code
		r.ending = errs.Reset(r.id, code, true)
	}
	// The bytes above are given back to the connection here, and never again (RFC 9000
	// §4.5): they do not have to wait for the reader.
	n := r.high - end
	r.last, r.high = end, end
	r.ready = min(r.ready, end)
	r.held.cut(end)
	for i := range int64(len(r.pages)) {
		p := &r.pages[(r.head+int(i))&(len(r.pages)-1)]
		if start := (r.first + i) << pageShift; start >= end {
			r.drop(p)
		} else if end-start < pageSize {
			p.cut(int(end - start))
		}
	}
	r.h.RecvConsumed(n)
	r.gate.signalAll()
}
