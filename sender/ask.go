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
	sent   bool              // step may have sent something
	bufs   [emit.MaxDatagrams][]byte

	seed   maphash.Seed
	mode   emit.Mode // as chosen: never Auto
	reread bool      // bytes from from on are not kept, lost ones are asked for again
	from   int64
	pos    int64 // stream offset of the next byte to ask for
	end    int64 // stream offset at which the source ends; math.MaxInt64 up to EOF
	parked bool  // the source said ErrNotReady
	deaf   bool  // … when it was asked for lost bytes again
	done   bool  // nothing more is asked for: EOF or err
	fin    bool  // FIN follows the last byte
	broken bool  // bytes that were lost cannot be had again
	err    error

	at     int  // index in Sender.askers
	idle   bool // its goroutine waits
	turn   bool // in place: it may be the stream's turn
	queued bool // in line for the token …
	next   *asker

	told   int64 // offset that OnAcked has heard of
	over   bool  // its goroutine is done with it …
	result error // … so
}

// errNoReturn is how SendFrom ended if its source called runtime.Goexit.
var errNoReturn = errors.New("quic: the source did not return")

// SendFrom sends n bytes of src from offset off on, all up to EOF if n < 0. See
// quic.SendStream.SendFrom for its rules. It is called without the mutex.
func (st *Stream) SendFrom(ctx context.Context, src io.ReaderAt, off, n int64, o emit.Options) (int64, error) {
	a := &asker{st: st, src: src, opts: o}
	var err error
	switch {
	case src == nil:
		err = errors.New("quic: SendFrom with a nil source")
	case off < 0:
		err = fmt.Errorf("quic: SendFrom at negative offset %d", off)
	case n > math.MaxInt64-off:
		err = fmt.Errorf("quic: SendFrom of %d bytes at offset %d overflows", n, off)
	}
	a.lender, _ = src.(emit.Lender)
	a.vector, _ = src.(emit.VectorSource)
	return a.start(ctx, off, n, err)
}

// ReadFrom sends what r gives up to EOF. It is called without the mutex.
func (st *Stream) ReadFrom(ctx context.Context, r io.Reader) (int64, error) {
	var err error
	if r == nil {
		err = errors.New("quic: ReadFrom with a nil reader")
	}
	a := &asker{st: st, reader: r}
	return a.start(ctx, 0, -1, err)
}

// start runs the asker, in a goroutine of its own if it is detached; if err is nil.
func (a *asker) start(ctx context.Context, off, n int64, err error) (sent int64, _ error) {
	if err == nil {
		err = a.st.send.BeginSource(ctx)
	}
	if err != nil {
		a.opts.OnAcked = nil
		a.release(err)
		return 0, err
	}
	a.begin(off, n)
	if a.opts.Detach {
		go func() {
			err := errNoReturn
			defer func() {
				// A detached source has no caller to panic in: OnRelease hears of it.
				if v := recover(); v != nil {
					err = fmt.Errorf("quic: the source panicked: %v", v)
				}
				a.release(err)
			}()
			_, err = a.run(ctx)
		}()
		return 0, nil
	}
	err = errNoReturn
	defer func() { a.release(err) }()
	sent, err = a.run(ctx)
	return sent, err
}

// begin makes the asker its stream's, which lets no other source nor Write in.
func (a *asker) begin(off, n int64) {
	x, s := a.st.x, a.st.send
	x.host.Lock()
	defer x.host.Unlock()
	a.pos = s.NewOffset()
	a.base = off - a.pos
	a.end = math.MaxInt64
	if n >= 0 {
		a.end = a.pos + min(n, math.MaxInt64-1-a.pos)
	}
	a.turn = true
	a.choose()
	if t, _ := a.st.tuning.For(a.src); t.Reread {
		a.forget()
	}
	a.ready = func() bool {
		ok := a.canGoOn()
		if a.idle = !ok; a.idle {
			x.passOn(a)
		}
		return ok
	}
	a.st.asker = a
	a.at = len(x.askers)
	x.askers = append(x.askers, a)
	a.watch()
	if a.ended() { // nothing is asked for
		a.finish()
		x.host.Wake()
	}
}

// choose turns the tuning's mode into one that the source can serve.
func (a *asker) choose() {
	st := a.st
	t, fallback := st.tuning.For(a.src)
	if fallback != "" {
		st.stats.Fallbacks++
		st.stats.FallbackReason = fallback
	}
	a.mode = t.Mode
	if a.mode != emit.Scatter {
		a.forget()
	}
}

// forget keeps no more bytes from here on: those that are lost are asked for again.
func (a *asker) forget() {
	if !a.reread {
		a.reread, a.from = true, a.st.send.NewOffset()
		a.seed = maphash.MakeSeed()
	}
}

// run asks until the source is at its end, and with Reread until its bytes are
// acknowledged. If the source panics or calls runtime.Goexit the stream is reset, and
// the panic goes on to the caller.
func (a *asker) run(ctx context.Context) (n int64, err error) {
	begin := a.pos
	returned := false
	defer func() { a.leave(!returned) }()
	for more := true; more && err == nil; {
		if err = a.st.send.WaitSource(ctx, a.ready); err == nil {
			more, err = a.step()
		}
		if a.sent {
			a.sent = false
			a.st.x.host.Between()
		}
	}
	returned = true
	return a.pos - begin, err
}

// leave ends what begin began. The stream is reset if the source broke down, or if bytes
// that were lost cannot be had from it.
func (a *asker) leave(broken bool) {
	x, s := a.st.x, a.st.send
	x.host.Lock()
	broken = broken || a.broken
	a.st.asker = nil
	a.idle = false
	x.passOn(a)
	last := len(x.askers) - 1
	x.askers[a.at] = x.askers[last]
	x.askers[a.at].at = a.at
	x.askers[last] = nil
	x.askers = x.askers[:last]
	x.host.Unlock()
	s.EndSource()
	if broken {
		s.Cancel(0)
	}
	x.host.Wake()
}

// canGoOn reports whether step has something to do. The mutex is held.
func (a *asker) canGoOn() bool {
	if st := a.st; st.armed && (a.parked || a.deaf) {
		st.armed, a.parked, a.deaf = false, false, false
		a.turn = true
	}
	switch {
	case a.lost():
		return true
	case a.ended():
		// With Reread the source is needed until the last byte is acknowledged.
		return !a.reread || a.st.send.AllAcked(a.pos)
	case !a.wants():
		return false
	case a.inPlace():
		return a.turnDue()
	}
	return a.st.send.Room() > 0
}

// lost reports whether bytes that nobody has kept must be asked for again.
func (a *asker) lost() bool {
	if !a.reread || a.deaf {
		return false
	}
	_, _, _, ok := a.st.send.LostSource()
	return ok
}

// ended reports whether every byte was taken from the source.
func (a *asker) ended() bool { return a.done || a.pos == a.end }

// inPlace reports whether the source fills packets, or lends memory for them, while its
// asker holds the token.
func (a *asker) inPlace() bool { return a.mode != emit.Scatter }

// wants reports whether the source may be asked for more now.
func (a *asker) wants() bool {
	return !a.parked && !a.ended() && a.st.send.Err() == nil && a.allowance() > 0
}

// turnDue reports whether an in-place asker should take the token, and sees to it
// that it hears when the token is free.
func (a *asker) turnDue() bool {
	x := a.st.x
	if a.turn && !x.free(a) {
		x.queue(a)
		return false
	}
	return a.turn
}

// allowance is how many bytes flow control lets the source be asked for.
func (a *asker) allowance() int64 {
	x, s := a.st.x, a.st.send
	own := min(s.Credit()-a.pos, a.end-a.pos)
	all := x.credit - x.used - int64(s.Unsent())
	if all <= 0 && own > 0 {
		x.starved = true
	}
	return min(own, all)
}

// WakeAskers makes every source that waits for credit look again: the connection's
// rose.
func (x *Sender) WakeAskers() {
	if !x.starved {
		return
	}
	x.starved = false
	for _, a := range x.askers {
		a.st.CreditRose()
	}
}

// step does one thing that the asker can do and reports whether there is more.
func (a *asker) step() (more bool, err error) {
	x := a.st.x
	x.host.Lock()
	defer x.host.Unlock()
	if err := a.st.send.Err(); err != nil {
		return false, err // reset or closed meanwhile
	}
	placing := a.inPlace() && !a.lost() && !a.ended()
	if !placing {
		x.passOn(a)
	}
	switch {
	case a.lost():
		return true, a.askAgain()
	case a.ended():
		return false, a.err
	case placing:
		a.place()
		return true, nil
	}
	return true, a.askPass()
}

// place sends a flight, in which the source may fill packets in place.
func (a *asker) place() {
	x, st := a.st.x, a.st
	if !a.turnDue() {
		return
	}
	// If the source was not asked it is not its turn, or the window is full: the
	// scheduler names the stream again when that changes.
	calls := st.stats.Calls
	a.turn = false
	x.Ready(st)
	a.sent = true
	more := x.run(1, a)
	a.turn = a.turn || st.stats.Calls != calls
	if more && (!a.alone() || x.othersDue()) {
		x.host.Wake()
	}
}

// alone reports whether an in-place asker comes back at once, and no other stream waits.
func (a *asker) alone() bool { return a.turn && a.wants() && !a.othersWait() }

// othersWait reports whether other streams have something that might have to wait for an
// in-place asker's source: if that is slow while the flight is empty, nobody else would look.
func (a *asker) othersWait() bool {
	x := a.st.x
	pressing := x.pressing
	if a.st.presses {
		pressing--
	}
	return pressing > 0 || x.unsent > a.st.send.Unsent()
}

// askPass asks for what the next pass carries, into a block of the stream's.
func (a *asker) askPass() error {
	x, st := a.st.x, a.st
	n := x.passSize(st.send.ID(), a.pos, st.slots, a.allowance())
	if n <= 0 || a.parked {
		return nil
	}
	st.stats.Passes++
	st.stats.Mode = emit.Scatter
	b := stream.Get(n)
	got, err := a.ask(b.Bytes()[:n:n], a.pos+a.base)
	if err := a.accept(b, a.answer(got, n, err)); err != nil {
		return err
	}
	if a.ended() {
		a.finish() // in the same hold as the last bytes, so that FIN rides on them
	}
	a.push()
	return nil
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
		a.called(a.pos, want, 0, false)
		return 0
	}
	a.called(a.pos, want, got, false)
	if got > 0 {
		a.zeroes = 0
	}
	switch {
	case err == nil && got == 0:
		if a.zeroes++; a.zeroes > 1 {
			a.fail(io.ErrNoProgress)
		}
	case err == nil:
	case errors.Is(err, emit.ErrNotReady):
		st.stats.NotReady++
		a.parked = true
	case err == io.EOF && a.end == math.MaxInt64:
		a.done = true
	case err == io.EOF && got == want:
		// What else was promised the next call will find missing.
	case err == io.EOF:
		a.fail(io.ErrUnexpectedEOF)
	default:
		a.fail(err)
	}
	return got
}

// fail ends the source with an error. Bytes taken before still go.
func (a *asker) fail(err error) {
	a.err = err
	a.done = true
}

// accept makes the first n bytes of b the stream's next. The error says that the stream
// is over.
func (a *asker) accept(b *stream.Block, n int) error {
	if n == 0 {
		b.Release()
		return nil
	}
	if err := a.st.send.AppendBlock(b, n); err != nil {
		return err
	}
	a.pos += int64(n)
	a.st.sourced = a.pos
	return nil
}

// finish makes FIN due if the caller asked for it and the source did not fail.
func (a *asker) finish() {
	if a.opts.End && a.err == nil && !a.fin {
		a.fin = true
		a.st.send.FinishSource()
	}
}

// push sends the flights that what is at hand fills. Less than one waits for more, a
// short while, if the source is about to give it: passes gather into a flight.
func (a *asker) push() {
	if a.gathers() {
		return
	}
	x := a.st.x
	x.late = time.Time{}
	a.sent = true
	if !x.run(max(x.unsent/x.flightBytes(), 1), nil) {
		return
	}
	// The rest waits as well, and then there is nothing to wake the connection's
	// goroutine for.
	if e, _ := x.sched.Next(); e != nil && !a.gathers() || x.othersDue() {
		x.host.Wake()
	}
}

// gathers reports whether what is at hand, and fills no flight, waits for what the source
// gives next.
func (a *asker) gathers() bool {
	x := a.st.x
	return x.unsent < x.flightBytes() && !x.quiet() && a.canGoOn() && !a.ended() && x.wait()
}

// askAgain asks for lost bytes once more. Only bytes that hash to what was sent
// before may leave, unless the application answers for them: data at an offset must not
// change (RFC 9000 §2.2). The mutex is held on entry and exit.
func (a *asker) askAgain() error {
	x, st, s := a.st.x, a.st, a.st.send
	off, l, h, _ := s.LostSource()
	lens, hashes := slices.Clone(l), slices.Clone(h)
	n := 0
	for _, l := range lens {
		n += int(l)
	}
	b := stream.Get(n)
	p := b.Bytes()[:n:n]
	var err error
	got := 0
	for got < n && err == nil && s.Err() == nil {
		var m int
		m, err = a.ask(p[got:], off+a.base+int64(got))
		st.stats.Calls++
		switch {
		case m < 0 || m > n-got:
			m, err = 0, fmt.Errorf("quic: the source returned a count of %d from a call for %d bytes", m, n-got)
		case m > 0:
			a.zeroes = 0
		case err == nil:
			if a.zeroes++; a.zeroes > 1 {
				err = io.ErrNoProgress
			}
		}
		a.called(off+int64(got), n-got, m, true)
		got += m
	}
	st.stats.Reread += uint64(got)
	if err := s.Err(); err != nil {
		b.Release()
		return err
	}
	same := got == n
	for q := p; same && !a.opts.Unchanging && len(lens) > 0; lens, hashes = lens[1:], hashes[1:] {
		same = maphash.Bytes(a.seed, q[:lens[0]]) == hashes[0]
		q = q[lens[0]:]
	}
	switch {
	case same:
		s.Refill(off, b, n)
		if x.run(1, nil) {
			x.host.Wake()
		}
		return nil
	case got < n && errors.Is(err, emit.ErrNotReady):
		b.Release()
		st.stats.NotReady++
		a.deaf = true
		return nil
	}
	b.Release()
	a.broken = true
	if got == n || err == io.EOF {
		err = emit.ErrSourceChanged
	}
	return err
}
