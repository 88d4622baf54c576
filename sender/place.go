package sender

import (
	"hash/maphash"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/stream"
)

// passInPlace is a pass over a source that fills packets itself (Single, Vector) or lends
// memory that is copied into them (Lend), so that nobody keeps its bytes. It is called by
// the source's own asker.
//
// The mutex is held on entry and exit, and let go while the source is called.
func (x *Sender) passInPlace(f *Flight, a *asker, most int) (slots int) {
	st := a.st
	calls, mode := st.stats.Calls, a.mode
	switch mode {
	case emit.Single:
		for more := true; more && slots < most && a.wants(); {
			var n int
			n, more = x.fill(f, a, 1, false)
			slots += n
		}
	case emit.Vector:
		slots, _ = x.fill(f, a, most, true)
	default:
		slots = x.borrow(f, a, most)
	}
	if st.stats.Calls > calls {
		st.stats.Passes++
		st.stats.Mode = mode
	}
	if a.ended() {
		a.finish() // after its bytes, FIN may leave in the same flight
	}
	return slots
}

// fill lets the source write up to most slots in place, in one call, and reports whether
// it filled them and may be asked for more.
func (x *Sender) fill(f *Flight, a *asker, most int, vector bool) (slots int, more bool) {
	s, off := a.st.send, a.pos+a.base
	slots, want := f.ahead(s.ID(), a.pos, a.allowance(), a.bufs[:most])
	if slots == 0 {
		return 0, false
	}
	bufs := a.bufs[:slots]
	var got int
	var err error
	x.outside(f, a, func() {
		if vector {
			got, err = a.vector.ReadVecAt(bufs, off)
		} else {
			got, err = a.src.ReadAt(bufs[0], off)
		}
	})
	got = a.answer(got, want, err)
	full := got == want && !a.done
	switch {
	case got == 0 || s.Err() != nil: // reset or closed meanwhile: nothing of this call leaves
		return 0, false
	case f.robbed:
		a.keep(bufs, got)
		return 0, false
	}
	var cuts cuts
	start := a.pos
	for slots = 0; got > 0; slots++ {
		p := bufs[slots][:min(got, len(bufs[slots]))]
		if got -= len(p); got == 0 {
			// Its frame may be laid out otherwise than a full one, over these bytes.
			x.spare = append(x.spare[:0], p...)
			p = x.spare
		}
		_, length, _ := f.plan(s.ID(), a.pos, len(p))
		x.put(f, a, p, length, got == 0, &cuts)
	}
	x.commit(f, a, start, slots, &cuts)
	return slots, full
}

// borrow lets the source lend what the next slots hold, and copies it into them. No more
// is asked for than that: what is lent is the source's again at its next call.
func (x *Sender) borrow(f *Flight, a *asker, most int) (slots int) {
	s, off := a.st.send, a.pos+a.base
	_, want := f.ahead(s.ID(), a.pos, a.allowance(), a.bufs[:most])
	if want == 0 {
		return 0
	}
	var p []byte
	var err error
	x.outside(f, a, func() { p, err = a.lender.LendAt(off, want) })
	p = p[:a.answer(len(p), want, err)]
	switch {
	case len(p) == 0 || s.Err() != nil:
		return 0
	case f.robbed:
		a.bufs[0] = p
		a.keep(a.bufs[:1], len(p))
		return 0
	}
	var cuts cuts
	start := a.pos
	for ; len(p) > 0; slots++ {
		n, length, _ := f.plan(s.ID(), a.pos, len(p)) // ahead has found room for all
		x.put(f, a, p[:n], length, n == len(p), &cuts)
		p = p[n:]
	}
	x.commit(f, a, start, slots, &cuts)
	return slots
}

// cuts is how a pass has cut bytes that nobody keeps: the lengths of the slots, and the
// hashes by which the bytes are known again, if they have to be.
type cuts struct {
	lens   [emit.MaxDatagrams]uint16
	hashes [emit.MaxDatagrams]uint64
	n      int
}

func (c *cuts) add(a *asker, p []byte) {
	c.lens[c.n] = uint16(len(p))
	if !a.opts.Unchanging {
		c.hashes[c.n] = maphash.Bytes(a.seed, p)
	}
	c.n++
}

// put writes the frame of one slot; its payload is copied from p, unless it lies where
// it belongs already. last says that the call gave no more.
func (x *Sender) put(f *Flight, a *asker, p []byte, length, last bool, cuts *cuts) {
	s, end := a.st.send, a.pos+int64(len(p))
	fin := last && a.opts.End && a.err == nil && (a.done || end == a.end)
	dst := f.stream(s.ID(), a.pos, len(p), length, fin)
	if &dst[0] != &p[0] {
		copy(dst, p)
	}
	f.slot(s, a.pos, len(p), fin)
	cuts.add(a, dst)
	a.pos = end
	a.fin = a.fin || fin
}

// commit is the stream half of the commit for bytes from start on, in the hold of the
// mutex in which the source's answer was taken in.
func (x *Sender) commit(f *Flight, a *asker, start int64, slots int, cuts *cuts) {
	st := a.st
	x.used += int64(st.send.PackedSource(start, cuts.lens[:slots], cuts.hashes[:slots], a.fin))
	st.stats.Datagrams += uint64(slots)
	st.stats.Bytes += uint64(a.pos - start)
	if x.trace != nil {
		f.passed(Pass{Stream: st.send.ID(), Off: start, Bytes: int(a.pos - start), Slots: slots, Fin: a.fin, Mode: a.mode})
	}
	x.latest = st
}

// keep takes in the n bytes of an answer whose flight left without them: they wait in the
// stream's queue, as Scatter's do.
func (a *asker) keep(bufs [][]byte, n int) {
	b := stream.Get(n)
	p := b.Bytes()[:0:n]
	for _, buf := range bufs {
		p = append(p, buf[:min(len(buf), n-len(p))]...)
	}
	_ = a.accept(b, n) // its error, that the stream is over, the asker is about to see
	if a.ended() {
		a.finish()
	}
}

// outside calls the source with the token held and the mutex let go. When it returns, the
// flight may be another's (see token): then f.robbed is set, and f still holds what the
// source wrote.
//
// If the source does not return (it panicked, or called runtime.Goexit), the flight
// leaves as it was before, for others' bytes may be in it.
func (x *Sender) outside(f *Flight, a *asker, call func()) {
	returned := false
	x.token.away, x.token.awayAt = f, time.Now()
	if f.n > 0 || x.token.first != nil || x.apart || a.othersWait() {
		x.host.SetTimer(x.token.patience()) // what is in it, in line or at hand waits no longer either
	}
	x.host.Unlock()
	defer func() {
		x.host.Lock()
		if f.robbed {
			return
		}
		x.token.away = nil
		if returned {
			return
		}
		// f's memory is not used again: who knows what still writes to it.
		if g := f.take(); g.n == 0 {
			g.release()
		} else {
			x.seal(g, time.Now())
			x.held = g
		}
		x.release()
		x.host.Wake()
	}()
	call()
	returned = true
}
