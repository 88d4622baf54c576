package stream

import (
	"os"
	"time"
)

// Read reads what is there, waiting for the first byte. It returns io.EOF
// together with the last bytes if the end is known by then, the error of
// Errors.Reset after a reset or Cancel (and with the last bytes that a
// RESET_STREAM_AT has spared), and os.ErrDeadlineExceeded after the read
// deadline. Concurrent reads come one after the other.
func (r *Recv) Read(p []byte) (int, error) {
	h := r.h
	h.Lock()
	err := r.enter()
	if err != nil {
		h.Unlock()
		return 0, err
	}
	n, none := 0, len(p) == 0
	if !none {
		err = r.wait(r.read + 1)
	}
	for err == nil && n < len(p) && r.read < r.ready {
		k := r.copyOut(p[n:], r.read)
		if k == 0 {
			break // they were discarded
		}
		r.consume(int64(k))
		n += k
	}
	if err == nil {
		err = r.readErr(n, none)
	}
	r.gate.leave()
	h.Unlock()
	return n, err
}

// readErr is what Read returns beside n bytes; it may have been asked for none.
func (r *Recv) readErr(n int, none bool) error {
	switch {
	case none:
		return r.endErr()
	case r.eof():
		r.tell()
		return r.ending
	case n == 0:
		r.tell()
		return r.err
	}
	return nil
}

// Peek fills p with the next bytes and does not consume them. It waits until
// all of them are there, or for the end, which it returns with what there is. If
// need be it gives the peer credit for them, up to the largest window; more
// than that never comes.
func (r *Recv) Peek(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h := r.h
	h.Lock()
	defer h.Unlock()
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.gate.leave()
	end := r.read + int64(len(p))
	if end > r.limit && r.final < 0 && !r.discarded {
		r.window = min(max(r.window, int64(len(p))), r.maxWindow)
		if r.read+r.window > r.limit && !r.maxDue {
			r.update()
		}
	}
	if err := r.wait(end); err != nil {
		return 0, err
	}
	n, off := 0, r.read
	for n < len(p) && off < r.ready {
		k := r.copyOut(p[n:], off)
		if k == 0 {
			r.tell()
			return 0, r.err
		}
		n += k
		off += int64(k)
	}
	if n < len(p) {
		return n, r.ending
	}
	return n, nil
}

// Cancel asks the peer to stop sending, and drops what was not read: reads
// return an error from here on, the peer's if it has reset the stream. It
// does nothing after EOF.
func (r *Recv) Cancel(code uint64) {
	r.h.Lock()
	defer r.h.Unlock()
	if r.cancelled || r.done || r.eof() && r.told {
		return
	}
	r.cancelled = true
	switch {
	case r.cut && r.err == nil:
		r.err = r.ending // RFC 9000 §3.5: no STOP_SENDING for a stream that was reset
	case r.err == nil:
		r.err = errs.Reset(r.id, code, false)
		r.code = code
		// RFC 9000 §3.5: when all data is here nothing is left to stop.
		if r.stopDue = r.final < 0 || r.ready < r.final; r.stopDue {
			r.h.RecvUpdate(r)
		}
	}
	r.discard()
	r.gate.signalAll()
	r.finish()
}

// SetDeadline sets the time after which reads fail, also those that wait now.
// The zero time means never.
func (r *Recv) SetDeadline(t time.Time) {
	r.h.Lock()
	r.gate.setDeadline(t)
	r.h.Unlock()
}

// SetFinalSizeCallback has f called once with the stream's final size, when
// it is known: before this returns, or later by Host.After. A nil f takes the
// callback back. It is not called if the connection closes before.
func (r *Recv) SetFinalSizeCallback(f func(int64)) {
	r.h.Lock()
	n := r.final
	if n < 0 && !r.done {
		r.onSize = f
	}
	r.h.Unlock()
	if n >= 0 && f != nil {
		f(n)
	}
}

// eof reports whether every byte was read that is to be read.
func (r *Recv) eof() bool { return r.read == r.last && !r.discarded }

// endErr is what a read of no bytes returns.
func (r *Recv) endErr() error {
	if r.eof() {
		return r.ending
	}
	return r.err
}

// tell notes that the application knows how the stream ended.
func (r *Recv) tell() {
	r.told = true
	r.finish()
}

// enter lets a reading call in, after those before it. Monitor held, released
// while waiting.
func (r *Recv) enter() error {
	for {
		if r.gate.inside == nobody {
			r.gate.inside = aCall
			return nil
		}
		if err := r.endErr(); err != nil {
			r.tell()
			return err
		}
		if r.gate.expired() {
			return os.ErrDeadlineExceeded
		}
		r.gate.waitTurn(r.h)
	}
}

// wait parks the call inside until the bytes below want are there, or all
// that will ever be. Monitor held, released while waiting.
func (r *Recv) wait(want int64) error {
	for {
		if err := r.endErr(); err != nil {
			r.tell()
			return err
		}
		if r.gate.expired() {
			return os.ErrDeadlineExceeded
		}
		if r.ready >= want || r.ready == r.last {
			return nil
		}
		r.want = want
		r.gate.park(r.h, nil)
	}
}

// copyOut copies bytes that are ready, from off on, into p, and returns how many: 0 says
// that they were discarded meanwhile. A few are copied without letting the monitor go: to
// get it back would take longer. That takes little stack, too: whoever reads a short message
// often does so in a goroutine that was started for it, and has the least there is.
func (r *Recv) copyOut(p []byte, off int64) int {
	n := min(len(p), int(r.ready-off))
	if n > brief {
		return r.copyLong(p, off)
	}
	for k := 0; k < n; {
		k += copy(p[k:n], r.bytes(off+int64(k)))
	}
	return n
}

// bytes returns what is received from off on, as far as it lies in one piece.
func (r *Recv) bytes(off int64) []byte {
	q, i := r.held.q, r.held.find(off)
	if i < len(q) && q[i].off <= off {
		return q[i].data[off-q[i].off:]
	}
	b := r.at(off >> pageShift).b.buf[off&(pageSize-1):]
	if i < len(q) {
		b = b[:min(int64(len(b)), q[i].off-off)]
	}
	return b
}

// copyLong is copyOut with the monitor released, for at most the bytes of maxParts runs or
// pages.
func (r *Recv) copyLong(p []byte, off int64) int {
	var parts [maxParts][]byte
	k, n := r.held.parts(parts[:], off, len(p))
	if k == 0 {
		k, n = r.pageParts(parts[:], off, len(p))
	}
	r.copying = off + int64(n)
	r.h.Unlock()

	dst := p
	for _, b := range parts[:k] {
		dst = dst[copy(dst, b):]
	}

	r.h.Lock()
	r.copying = 0
	if r.stale != nil {
		r.stale.Release()
		r.stale = nil
	}
	if r.discarded {
		r.discard()
		return 0
	}
	return n
}

const maxParts = 32

// pageParts fills parts with up to most bytes of the pages from off on, and returns how
// many parts and bytes that is.
func (r *Recv) pageParts(parts [][]byte, off int64, most int) (k, n int) {
	end := r.held.next(off, min(r.ready, off+int64(most)))
	for off < end && k < len(parts) {
		lo := int(off & (pageSize - 1))
		hi := int(min(int64(pageSize), int64(lo)+end-off))
		parts[k] = r.at(off >> pageShift).b.buf[lo:hi]
		k++
		n += hi - lo
		off += int64(hi - lo)
	}
	return k, n
}
