package sender

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"slices"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/stream"
)

// An asker is one SendFrom or ReadFrom under way. Its fields are guarded by the
// connection's mutex, but for those that only its own goroutine uses.
type asker struct {
	st   *Stream
	opts emit.Options

	// Own goroutine only.
	reader io.Reader         // ReadFrom
	src    io.ReaderAt       // SendFrom
	lender emit.Lender       // src, if it is one
	vector emit.VectorSource // src, if it is one
	base   int64             // offset in the source of the stream's byte 0
	zeroes int               // answers of (0, nil) in a row
	ready  func() bool       // what it waits for, made once

	seed   maphash.Seed
	mode   emit.Mode // as chosen: never Auto
	reread bool      // nothing is retained; lost bytes are asked for again
	pos    int64     // stream offset of the next byte to ask for
	end    int64     // stream offset at which the source ends; math.MaxInt64 up to EOF
	parked bool      // the source said ErrNotReady
	done   bool      // nothing more is asked for: end, EOF or err
	fin    bool      // FIN follows the last byte
	err    error
	turn   bool // the scheduler named the stream while somebody else held the token
	queued bool // in Sender.callers

	scratch []byte // Reread with Scatter: bytes asked for and not packed, from pos on
}

// SendFrom sends n bytes of src from offset off on, all up to EOF if n < 0. See
// quic.SendStream.SendFrom for its rules. It is called without the mutex.
func (st *Stream) SendFrom(ctx context.Context, src io.ReaderAt, off, n int64, o emit.Options) (int64, error) {
	switch {
	case src == nil:
		return 0, errors.New("quic: SendFrom with a nil source")
	case off < 0:
		return 0, fmt.Errorf("quic: SendFrom at negative offset %d", off)
	case n > math.MaxInt64-off:
		return 0, fmt.Errorf("quic: SendFrom of %d bytes at offset %d overflows", n, off)
	}
	a := &asker{st: st, src: src, opts: o}
	a.lender, _ = src.(emit.Lender)
	a.vector, _ = src.(emit.VectorSource)
	return a.start(ctx, off, n)
}

// ReadFrom sends what r gives up to EOF. It is called without the mutex.
func (st *Stream) ReadFrom(ctx context.Context, r io.Reader) (int64, error) {
	if r == nil {
		return 0, errors.New("quic: ReadFrom with a nil reader")
	}
	a := &asker{st: st, reader: r}
	return a.start(ctx, 0, -1)
}

func (a *asker) start(ctx context.Context, off, n int64) (int64, error) {
	st := a.st
	if err := st.send.BeginSource(ctx); err != nil {
		a.released(err)
		return 0, err
	}
	x := st.x
	x.host.Lock()
	a.pos = st.send.NewOffset()
	a.base = off - a.pos
	a.end = math.MaxInt64
	if n >= 0 {
		a.end = a.pos + n
	}
	a.reread = a.reader == nil && (st.tuning.Reread || st.tuning.Mode == emit.Single || st.tuning.Mode == emit.Vector)
	if a.reread {
		a.seed = maphash.MakeSeed()
	}
	a.choose()
	a.ready = a.canGoOn
	a.turn = true
	st.asker = a
	x.askers = append(x.askers, a)
	if a.reread {
		x.Ready(st)
	}
	if a.opts.OnAcked != nil {
		st.send.OnAckedFunc(a.opts.OnAcked)
	}
	x.host.Unlock()

	if a.opts.Detach {
		go func() {
			defer func() {
				// A detached source has no caller to panic in: OnRelease hears of it.
				if v := recover(); v != nil {
					a.released(fmt.Errorf("quic: source panicked: %v", v))
				}
			}()
			_, err := a.run(ctx)
			a.released(err)
		}()
		return 0, nil
	}
	sent, err := a.run(ctx)
	a.released(err)
	return sent, err
}

func (a *asker) released(err error) {
	if f := a.opts.OnRelease; f != nil {
		a.opts.OnRelease = nil
		f(err)
	}
}

// choose turns the tuning's mode into one that the source can serve.
func (a *asker) choose() {
	st := a.st
	want := st.tuning.Mode
	mode := want
	switch {
	case a.reader != nil:
		mode = emit.Scatter
	case want == emit.Auto && a.lender != nil:
		mode = emit.Lend
	case want == emit.Auto,
		want == emit.Lend && a.lender == nil,
		want == emit.Vector && a.vector == nil:
		mode = emit.Scatter
	}
	// Single, Vector and Lend keep no copy to send again. An emission that began
	// with retained bytes promised to let go of its source on return: only lent
	// memory, which OnRelease gives back, can be taken up in mid-stream.
	if !a.reread && (mode == emit.Single || mode == emit.Vector || mode == emit.Lend) && a.reader == nil {
		a.reread = true
		a.seed = maphash.MakeSeed()
	}
	if want != emit.Auto && mode != want {
		st.stats.Fallbacks++
		st.stats.FallbackReason = fmt.Sprintf("the source cannot serve %v", want)
	}
	a.mode = mode
	st.stats.Mode = mode
}

// run asks until the source is at its end, and with Reread until its bytes are
// acknowledged. If the source panics or calls runtime.Goexit the stream is reset, and
// the panic goes on to the caller.
func (a *asker) run(ctx context.Context) (n int64, err error) {
	x, s := a.st.x, a.st.send
	begin := a.pos
	finished := false
	defer func() {
		x.host.Lock()
		a.st.asker = nil
		x.askers = slices.DeleteFunc(x.askers, func(o *asker) bool { return o == a })
		// Bytes that nobody keeps cannot be sent again once the source is gone.
		stuck := a.reread && !s.AllAcked(a.pos)
		x.host.Unlock()
		s.EndSource()
		if !finished || stuck {
			s.Cancel(0)
		}
	}()
	for {
		if err = s.WaitSource(ctx, a.ready); err != nil {
			break
		}
		if more, e := a.step(); e != nil || !more {
			err = e
			break
		}
	}
	finished = true
	x.host.Lock()
	n = a.pos - begin
	x.host.Unlock()
	x.host.Wake()
	return n, err
}

// canGoOn reports whether step has something to do. The mutex is held.
func (a *asker) canGoOn() bool {
	st, s := a.st, a.st.send
	if a.parked {
		if !st.armed {
			return false
		}
		st.armed, a.parked = false, false
		if a.reread {
			a.turn = true
			st.x.Ready(st)
		}
	}
	switch {
	case a.lost():
		return true
	case a.ended():
		// With Reread the source is needed until the last byte is acknowledged.
		return !a.reread || s.AllAcked(a.pos)
	case a.placesNow():
		return a.turnDue()
	default:
		return a.allowance() > 0 && s.Unsent()+st.x.passBytes() <= st.x.flightBytes()
	}
}

// lost reports whether bytes that nobody has kept must be asked for again.
func (a *asker) lost() bool {
	if !a.reread {
		return false
	}
	_, _, _, ok := a.st.send.LostSource()
	return ok
}

// ended reports whether every byte was taken from the source and, if it is not
// retained, packed.
func (a *asker) ended() bool { return (a.done || a.pos == a.end) && len(a.scratch) == 0 }

// placesNow reports whether the next bytes go into packets with the token held.
func (a *asker) placesNow() bool {
	return a.reread && (a.mode != emit.Scatter || len(a.scratch) > 0)
}

// turnDue reports whether an in-place asker should take the token, and sees to it
// that it hears when the token is free.
func (a *asker) turnDue() bool {
	if a.turn && a.st.x.taken {
		a.st.x.queue(a)
	}
	return a.turn && !a.st.x.taken
}

// wants reports whether an in-place asker has bytes to send now.
func (a *asker) wants() bool {
	return !a.parked && !a.ended() && (len(a.scratch) > 0 || a.allowance() > 0)
}

// allowance is how many bytes flow control lets the source be asked for.
func (a *asker) allowance() int64 {
	x, s := a.st.x, a.st.send
	// Within a pass in place, a.pos is ahead of what the stream knows of.
	ahead := a.pos - s.NewOffset()
	return min(s.Credit()-a.pos, x.credit-x.used-int64(x.unsent)-ahead, a.end-a.pos)
}

// queue makes the token's holder wake a when it lets go.
func (x *Sender) queue(a *asker) {
	a.turn = true
	if !a.queued {
		a.queued = true
		x.callers = append(x.callers, a)
	}
}

// wakeCallers tells in-place askers that the token is free. The first to run gets it.
func (x *Sender) wakeCallers() {
	for i, a := range x.callers {
		a.queued = false
		if a.st.asker == a {
			a.st.send.Wake()
		}
		x.callers[i] = nil
	}
	x.callers = x.callers[:0]
}

// WakeAskers makes every source that waits for credit look again: the connection's
// rose.
func (x *Sender) WakeAskers() {
	for _, a := range x.askers {
		x.creditRose(a)
	}
}

func (x *Sender) creditRose(a *asker) {
	if a.placesNow() && a.wants() {
		a.turn = true
		x.Ready(a.st)
	}
	a.st.send.Wake()
}

// CreditRose makes the stream's source look at its credit again.
func (st *Stream) CreditRose() {
	if st.asker != nil {
		st.x.creditRose(st.asker)
	}
}

// flightBytes is about what a flight carries.
func (x *Sender) flightBytes() int { return segments(x.size) * (x.size - 24) }

// passSize is exactly what the next pass of a stream carries from offset off on, in
// slots datagrams of their own, given that limit bytes may be sent.
func (x *Sender) passSize(id, off int64, slots int, limit int64) int {
	pnLen := wire.PNLen(x.rec.NextPN(recovery.App)+maxSegments, x.rec.LargestAcked(recovery.App))
	payload := x.size - x.headerLen(pnLen) - overhead
	n := 0
	for range slots {
		n += payload - wire.StreamHeaderLen(id, off+int64(n), -1)
	}
	return int(min(int64(n), limit))
}

// step does one thing that the asker can do and reports whether there is more.
func (a *asker) step() (more bool, err error) {
	x, st, s := a.st.x, a.st, a.st.send
	x.host.Lock()
	defer x.host.Unlock()
	switch {
	case a.lost():
		return true, a.askAgain()
	case a.ended():
		a.finish()
		return false, a.err
	case a.placesNow():
		if !a.turnDue() {
			return true, nil
		}
		before := a.pos
		if x.run(1, a) {
			x.host.Wake()
		}
		// Without progress it is not this stream's turn, or the window is full:
		// the scheduler names it again when that changes.
		a.turn = a.pos != before
		return true, nil
	}

	n := x.passSize(s.ID(), s.NewOffset(), st.tuning.MaxDatagrams, a.allowance())
	if n <= 0 {
		return true, nil
	}
	off := a.pos + a.base
	b := stream.Get(n)
	got, err := a.ask(b.Bytes()[:n:n], off)
	got = a.answer(got, n, err)
	if a.reread {
		a.scratch = append(a.scratch[:0], b.Bytes()[:got]...)
		b.Release()
		if got > 0 {
			a.turn = true
			x.Ready(st)
		}
		return true, nil
	}
	st.stats.Passes++
	a.pos += int64(got)
	st.sourced = a.pos
	if got == 0 {
		b.Release()
	} else if err := s.AppendBlock(b, got); err != nil {
		return false, err
	}
	if a.ended() {
		a.finish() // in the same hold as the last bytes, so that FIN rides on them
	}
	a.push()
	return true, nil
}

// ask calls the source once. The mutex is held on entry and exit, also when the source
// panics; the source is called with neither mutex nor token held. dst is not reused
// after a panic: who knows what still writes to it.
func (a *asker) ask(dst []byte, off int64) (int, error) {
	host := a.st.x.host
	host.Unlock()
	defer host.Lock()
	if a.reader != nil {
		return a.reader.Read(dst)
	}
	return a.src.ReadAt(dst, off)
}

// answer takes in what a source said to a call for want bytes, and returns how many
// bytes count. The mutex is held.
func (a *asker) answer(got, want int, err error) int {
	st := a.st
	st.stats.Calls++
	st.stats.Asked += uint64(want)
	if got < 0 || got > want {
		a.fail(fmt.Errorf("quic: the source returned a count of %d from a call for %d bytes", got, want))
		return 0
	}
	if got > 0 {
		a.zeroes = 0
	}
	switch {
	case err == nil && got == 0 && want > 0:
		if a.zeroes++; a.zeroes > 1 {
			a.fail(io.ErrNoProgress)
		}
	case err == nil:
	case errors.Is(err, emit.ErrNotReady):
		st.stats.NotReady++
		a.parked = true
	case err == io.EOF && got == want:
		// Full, and at the end: what else is to come the next call will say,
		// unless nothing else was promised.
		if a.end == math.MaxInt64 {
			a.done = true
		}
	case err == io.EOF && a.end == math.MaxInt64:
		a.done = true
	case err == io.EOF:
		a.fail(io.ErrUnexpectedEOF)
	default:
		a.fail(err)
	}
	return got
}

func (a *asker) fail(err error) {
	if a.err == nil {
		a.err = err
	}
	a.done = true
}

// finish makes FIN due if the caller asked for it and the source did not fail.
func (a *asker) finish() {
	if a.opts.End && a.err == nil && !a.fin {
		a.fin = true
		a.st.send.FinishSource()
	}
}

// push sends what is at hand, or leaves it for a short while if the source is about
// to give more and something is in flight: passes gather into a flight.
func (a *asker) push() {
	x := a.st.x
	if !a.parked && !a.ended() && !x.Quiet() && a.canGoOn() {
		x.Later()
		return
	}
	if x.run(1, nil) {
		x.host.Wake()
	}
}

// Later lets the bytes at hand wait for more, for half a millisecond at most.
func (x *Sender) Later() {
	if x.late.IsZero() {
		x.late = time.Now().Add(lateAfter)
		x.host.SetTimer(x.late)
	}
}

// askAgain asks for lost bytes once more. Only bytes that hash to what was sent
// before may leave: data at an offset must not change (RFC 9000 §2.2). The mutex is
// held on entry and exit.
func (a *asker) askAgain() error {
	x, st, s := a.st.x, a.st, a.st.send
	off, lens, hashes, _ := s.LostSource()
	n := 0
	for _, l := range lens {
		n += int(l)
	}
	lens, hashes = slices.Clone(lens), slices.Clone(hashes)
	b := stream.Get(n)
	p := b.Bytes()[:n:n]
	var got int
	var err error
	for got < n && err == nil {
		var m int
		m, err = a.ask(p[got:], off+a.base+int64(got))
		if m < 0 || m > n-got || m == 0 && err == nil {
			m, err = 0, io.ErrNoProgress
		}
		got += m
	}
	same := got == n
	for i, q := 0, p; same && i < len(lens); i++ {
		same = maphash.Bytes(a.seed, q[:lens[i]]) == hashes[i]
		q = q[lens[i]:]
	}

	st.stats.Calls++
	st.stats.Reread += uint64(got)
	switch {
	case same:
		s.Refill(off, b, n)
		if x.run(1, nil) {
			x.host.Wake()
		}
		return nil
	case errors.Is(err, emit.ErrNotReady):
		b.Release()
		a.parked = true
		return nil
	default:
		b.Release()
		a.fail(emit.ErrSourceChanged)
		return emit.ErrSourceChanged
	}
}
