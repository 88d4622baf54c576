package sender

import (
	"hash/maphash"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// passInPlace is a pass over a source whose bytes nobody retains: it fills packets
// itself (Single, Vector), or what it lends or gave is copied into them (Lend, and
// Scatter with Reread). Only the source's own asker may call it; for anybody else
// the stream's turn is noted and the asker woken when the token is free.
//
// The mutex is held on entry and exit, and let go while the source is called.
func (x *Sender) passInPlace(f *Flight, st *Stream, most int, self *asker) (slots int) {
	a := st.asker
	if !a.wants() {
		return 0
	}
	if a != self {
		x.queue(a)
		return 0
	}
	s := st.send
	start := a.pos
	var p placed
	switch {
	case len(a.scratch) > 0:
		x.lay(f, a, most, &p)
	case a.mode == emit.Single:
		for p.n < most && a.wants() {
			if !x.fill(f, a, 1, &p) {
				break
			}
		}
	case a.mode == emit.Vector:
		x.fill(f, a, most, &p)
	default:
		x.lay(f, a, most, &p)
	}
	if p.n == 0 {
		return 0
	}
	x.used += int64(s.PackedSource(start, p.lens[:p.n], p.hashes[:p.n], p.fin))
	st.stats.Passes++
	st.stats.Datagrams += uint64(p.n)
	st.stats.Bytes += uint64(a.pos - start)
	return p.n
}

// placed is what a pass in place has put into packets.
type placed struct {
	lens   [emit.MaxDatagrams]uint16
	hashes [emit.MaxDatagrams]uint64
	n      int
	fin    bool
}

// put writes the frame of one slot; its payload is copied from p, unless it lies where
// it belongs already. last says that p are the source's last bytes.
func (x *Sender) put(f *Flight, a *asker, p []byte, length, last bool, out *placed) {
	fin := last && a.opts.End && a.err == nil
	dst := f.stream(a.st.send.ID(), a.pos, len(p), length, fin)
	if &dst[0] != &p[0] {
		copy(dst, p)
	}
	f.slot(a.st.send, a.pos, len(p), fin)
	out.lens[out.n] = uint16(len(p))
	out.hashes[out.n] = maphash.Bytes(a.seed, dst)
	out.n++
	if fin {
		out.fin, a.fin = true, true
	}
	a.pos += int64(len(p))
}

// lay copies what the source lends, or gave into the scratch, into the flight.
func (x *Sender) lay(f *Flight, a *asker, most int, out *placed) {
	p := a.scratch
	lent := len(p) == 0
	if lent {
		// No more is asked for than this pass holds: what is lent is the source's
		// again at its next call.
		room := x.roomFor(f, a, most)
		if room <= 0 {
			return
		}
		p = x.borrow(f, a, room)
		if a.st.send.Err() != nil {
			return // reset or closed meanwhile: nothing of this call leaves
		}
	}
	for len(p) > 0 && out.n < most {
		n, length, ok := f.plan(a.st.send.ID(), a.pos, len(p))
		if !ok {
			break
		}
		last := n == len(p) && (a.done || a.pos+int64(n) == a.end)
		x.put(f, a, p[:n], length, last, out)
		p = p[n:]
	}
	if lent && len(p) > 0 {
		p = append([]byte(nil), p...) // ours until the next pass
	}
	a.scratch = p
}

// roomFor is how many bytes the next most slots of the flight hold, within the
// stream's allowance.
func (x *Sender) roomFor(f *Flight, a *asker, most int) int {
	id, off, n := a.st.send.ID(), a.pos, 0
	if h := wire.StreamHeaderLen(id, off, -1); f.Room() > max(h, tinyTail) {
		n += f.Room() - h
		most--
	}
	for i := f.n; most > 0 && i < f.max; i++ {
		n += f.size - f.hdr - overhead - wire.StreamHeaderLen(id, off+int64(n), -1)
		most--
	}
	return int(min(int64(n), a.allowance()))
}

// borrow calls the lender for n bytes, without the mutex.
func (x *Sender) borrow(f *Flight, a *asker, n int) (p []byte) {
	off := a.pos + a.base
	var err error
	x.outside(f, func() { p, err = a.lender.LendAt(off, n) })
	return p[:a.answer(len(p), n, err)]
}

// outside calls the source with the token held and the mutex let go. If the source
// does not return (it panicked, or called runtime.Goexit), the token is given back
// and the flight as well: what other streams have put into it becomes pending again.
func (x *Sender) outside(f *Flight, call func()) {
	returned := false
	x.away = true
	x.host.Unlock()
	defer func() {
		x.host.Lock()
		x.away = false
		if returned {
			return
		}
		f.dropEmpty()
		if f.n > 0 {
			x.flush(f, time.Now())
			x.rec.OnUnsent(recovery.App, f.first, f.first+int64(f.n-1))
		}
		f.release()
		x.release()
	}()
	call()
	returned = true
}

// fill lets the source write up to k slots in place, in one call, and reports whether
// it took part: a short answer ends the pass.
func (x *Sender) fill(f *Flight, a *asker, k int, out *placed) (more bool) {
	var bufs [emit.MaxDatagrams][]byte
	id, off, left := a.st.send.ID(), a.pos, a.allowance()
	// Where the slots will be, given that the source fills them: what plan says of
	// them one by one. The first may use the room of the open datagram.
	want, n := 0, 0
	for i := f.n; n < k && left > 0; n++ {
		h := wire.StreamHeaderLen(id, off, -1)
		at, end := f.w, f.limit
		if n > 0 || f.Room() <= max(h, tinyTail) {
			if i == f.max {
				break
			}
			at, end = i*f.size+f.hdr, (i+1)*f.size-overhead
			i++
		}
		m := int(min(int64(end-at-h), left))
		bufs[n] = f.buf[at+h : at+h+m : at+h+m]
		off += int64(m)
		left -= int64(m)
		want += m
	}
	if n == 0 {
		return false
	}
	var got int
	var err error
	src := a.pos + a.base
	x.outside(f, func() {
		if k == 1 {
			got, err = a.src.ReadAt(bufs[0], src)
		} else {
			got, err = a.vector.ReadVecAt(bufs[:n], src)
		}
	})
	got = a.answer(got, want, err)
	if a.st.send.Err() != nil {
		return false // reset or closed meanwhile: nothing of this call leaves
	}
	full := got == want
	for i := 0; got > 0; i++ {
		p := bufs[i][:min(got, len(bufs[i]))]
		got -= len(p)
		if len(p) < len(bufs[i]) || i == n-1 {
			// Its frame may be laid out otherwise than a full one, over these bytes.
			x.spare = append(x.spare[:0], p...)
			p = x.spare
		}
		_, length, _ := f.plan(id, a.pos, len(p))
		last := got == 0 && (a.done || a.pos+int64(len(p)) == a.end)
		x.put(f, a, p, length, last, out)
	}
	return full && !a.done
}

// dropEmpty takes back a datagram that was opened and got no frame.
func (f *Flight) dropEmpty() {
	if f.n > 0 && f.open && !f.framed {
		f.n--
		f.open = false
		f.w = f.n*f.size - overhead
		f.limit = f.w
	}
}
