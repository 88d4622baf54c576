package quic

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volley-quic/volley/internal/experiment"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/stream"
)

const (
	// messagesPerRead bounds one batch. With GRO, that is up to 1 MiB.
	messagesPerRead = 16

	// brief is how soon a caller is back who may be waited for.
	brief = 200 * time.Microsecond

	// mayStandIn is how often in a row a caller was back so soon, and little arrived for
	// its connection alone, before it may stand in for the reader. Each time that this was
	// a mistake doubles it, up to neverStandIn.
	mayStandIn   = 16
	neverStandIn = 4096

	// littleBytes is what anybody takes in at a time who stands in for the reader. More is
	// opened on another processor, while the application works on what came before, unless
	// that is next to no work (see prompt.mostlyWaits).
	littleBytes = 8 << 10

	// roomy is how many bytes the socket must hold before anybody takes in more: what a
	// fast peer sends until the reader is back.
	roomy = 2 << 20

	// mayNap is how many batches in a row bring more than a little before whoever stands in
	// lets more gather, each time that nothing is there.
	mayNap = 64

	// seldom times as many visits as are required make up for a mistake: the system may have
	// had something else to run.
	seldom = 64

	// See patience.
	readerPatience = time.Millisecond
	bulkPatience   = 4 * time.Millisecond

	// fewWait is how many calls may wait while one that sends in bulk looks for what arrives.
	// Where more do, no processor sleeps that a hand-over would have to wake.
	fewWait = 8

	// lookEvery is how long it does not look again: some flights where the path is fast.
	lookEvery = 100 * time.Microsecond

	// manyLooks is how often in a row a caller that sends in bulk has come by to look before
	// the poller need not watch the socket any more.
	manyLooks = 8
)

// reading is the right to read a Transport's socket: one goroutine has it at a time.
//
// As a rule that is the reader, the transport's goroutine, and what arrives goes from it
// to the connection's goroutine and on to the application's: at each change a processor may
// have to be woken, which costs more than a short message, or an ACK, does. So while one
// connection has the socket for itself, its callers stand in for the reader: a call that waits
// for the peer waits in the socket, and one that sends in bulk looks between flights. They do
// the connection's work themselves, too. Where much arrives at a time they do so only if the
// application does little with it: else the two are better done side by side.
//
// Nobody has the right while the application does something else between two such calls.
// That is brief, as they have shown; where it is not after all the reader takes over within
// twice its patience.
type reading struct {
	t    *Transport
	sock readSocket
	able bool // the socket can be read without waiting: else only the reader reads
	room bool // and holds much, and there are processors for others

	state    atomic.Int32
	asked    atomic.Bool                 // the reader is to step aside
	nudge    chan struct{}               // capacity 1: the reader, which has stepped aside, is to look
	watching atomic.Bool                 // it looks by itself, too
	visits   atomic.Uint32               // of stand-ins
	required atomic.Int32                // mayStandIn, but for mistakes
	heir     atomic.Pointer[stream.Wake] // who asked, and waits to be woken when the right is free
	bulk     atomic.Bool                 // it was a caller that sends in bulk who read last, and will again
	reserved atomic.Bool                 // and there is a thread for it
	stays    atomic.Bool                 // which it has
	last     atomic.Pointer[Conn]        // for which all of the latest batch was
	alone    atomic.Pointer[Conn]        // last, if it has had the socket for itself for a while
	much     atomic.Bool                 // of the latest batches, one was more than little
	owing    atomic.Pointer[Conn]        // for which something is left to do
	granting atomic.Pointer[Conn]        // the same, where it is only credit that is left

	recall func() // brings back who waits in the socket

	// Every call that waits changes it, on whatever processor: what the others only look at
	// is in cache lines of its own.
	_       [64]byte
	waiting atomic.Int32 // calls that wait for what the peer sends
	_       [64]byte

	gone   sync.Mutex // a leaf
	isGone bool       // nobody reads the socket any more, and its deadline is the application's

	// mu is held from the kernel to the connections, so that what arrives is handed over in
	// order: while the reader waits it has the right, but not the mutex (see help).
	mu     sync.Mutex
	demux  demux
	ms     []udp.Message
	same   int32 // batches in a row that were all for last
	little int32 // and that brought little

	start time.Time
	at    atomic.Int64 // when somebody has read, or begun to help, by clock

	// Whoever has the right.
	mistake   uint32        // number of visits at the latest mistake
	unwatched bool          // the poller does not look at the socket
	plenty    int           // batches in a row that were more than little, and nothing sent meanwhile
	spoken    int64         // bytes that streams had sent by then
	looks     int           // visits in a row of a caller that sends
	looked    time.Duration // when it has looked into the socket, by clock
}

// readSocket is what reading needs of a *udp.Conn.
type readSocket interface {
	ReadBatch([]udp.Message) (int, error)
	ReadNow([]udp.Message) int
	CanReadNow() bool
	Room() int
	Nap()
	SetReadLock(sync.Locker)
	Watch(bool)
	SetReadDeadline(time.Time) error
}

const (
	atReader  int32 = iota // the reader has the right
	atNobody               // it has stepped aside
	atStandIn              // and somebody stands in
)

var longAgo = time.Unix(1, 0)

func (r *reading) init(t *Transport, sock readSocket) {
	r.t, r.sock = t, sock
	r.nudge = make(chan struct{}, 1)
	r.required.Store(mayStandIn)
	r.recall = func() {
		r.gone.Lock()
		defer r.gone.Unlock()
		if !r.isGone {
			sock.SetReadDeadline(longAgo)
		}
	}
	r.demux = demux{t: t, deliver: (*Conn).deliver, resets: limiter{rate: 1000, burst: 100}}
	r.ms = make([]udp.Message, messagesPerRead)
	r.start = time.Now()
	r.able = sock.CanReadNow()
	// Who takes in much waits for nothing as long as more comes: on an only processor, no
	// timer and no other socket would have its turn.
	r.room = sock.Room() >= roomy && runtime.GOMAXPROCS(0) > 1
	sock.SetReadLock(&r.mu)
}

// letCallersRead lets the connection's callers stand in for the reader, if the socket is
// able to and nothing is the application's of what they would call: it does not expect that
// in a call that reads, and if it recovers from a panic there, nobody else does the work. The
// mutex is held.
func (c *Conn) letCallersRead() {
	t := c.transport
	if t.reading.able && len(c.paths.transports) == 1 &&
		c.qlog == nil && t.Tracer == nil && c.config.AllowConnectionWindowIncrease == nil &&
		c.config.Scheduler == nil && t.ConnectionIDGenerator == nil {
		c.reads.Store(&t.reading)
	}
}

// await waits for w, or for the end of ctx if it is not nil.
func (c *Conn) await(w *stream.Wake, ctx context.Context) {
	if r := c.reads.Load(); r != nil {
		r.await(c, w, ctx)
	} else {
		w.Wait(ctx)
	}
}

// elsewhere says that a call waits for what the peer sends, but not by await, until
// notElsewhere.
func (c *Conn) elsewhere() *reading {
	r := c.reads.Load()
	if r != nil {
		r.waiting.Add(1)
		r.callReader()
	}
	return r
}

func (r *reading) notElsewhere() {
	if r != nil {
		r.waiting.Add(-1)
	}
}

// clock is the time since the Transport began.
func (r *reading) clock() time.Duration { return time.Since(r.start) }

// forget drops a connection that is over.
func (r *reading) forget(c *Conn) {
	r.last.CompareAndSwap(c, nil)
	r.alone.CompareAndSwap(c, nil)
	r.owing.CompareAndSwap(c, nil)
	r.granting.CompareAndSwap(c, nil)
}

// batch hands over what a read brought, and takes note of for whom that was. It reports
// whether a caller of c's may take in the next one. r.mu is held.
func (r *reading) batch(n int, c *Conn) bool {
	now := time.Now()
	only, size := r.demux.batch(r.ms[:n], now)
	r.at.Store(int64(now.Sub(r.start)))
	if only == nil || only != r.last.Load() {
		r.same = 0
		r.last.Store(only)
		r.alone.Store(nil)
	} else if r.same++; r.same == mayStandIn {
		r.alone.Store(only)
	}
	if size > littleBytes {
		r.little = 0
	} else {
		r.little++
	}
	if much := r.little < mayStandIn; much != r.much.Load() {
		r.much.Store(much)
	}
	return only != nil && only == c && (size <= littleBytes || r.forCallers(c))
}

// forCallers reports whether more than a little that arrives for c is for its callers, too.
func (r *reading) forCallers(c *Conn) bool { return r.room && c.prompt.mostlyWaits() }

// read is the reader's part: it reads until the socket fails or is not to be read any more.
func (r *reading) read() {
	for {
		if err := r.once(); err != nil && r.t.endRead(err) {
			return
		}
		if r.asked.Load() {
			r.stepAside()
		}
	}
}

// once waits for a batch and hands it over.
func (r *reading) once() error {
	n, err := r.sock.ReadBatch(r.ms)
	if err != nil {
		return err
	}
	r.batch(n, nil)
	r.mu.Unlock()
	return nil
}

// stepAside leaves the right to others, and returns when the reader has it again.
func (r *reading) stepAside() {
	r.asked.Store(false)
	if r.t.clearDeadline() {
		return // the transport is stopping
	}
	r.watching.Store(true)
	r.state.Store(atNobody)
	if w := r.heir.Swap(nil); w != nil {
		w.Signal() // for no reason, but that the next wait can be in the socket
	}
	look := time.NewTimer(readerPatience)
	defer look.Stop()
	for visits := r.visits.Load(); r.state.Load() != atReader; {
		select {
		case <-r.nudge:
			if r.t.isStopping() && r.state.CompareAndSwap(atNobody, atReader) {
				r.collect() // of a connection that has moved, and goes on
				break
			}
			if r.watching.Load() {
				look.Reset(r.patience())
			}
		case <-look.C:
			if v := r.visits.Load(); v != visits {
				visits = v
				look.Reset(r.patience())
				break
			}
			if r.state.CompareAndSwap(atNobody, atReader) {
				r.mistaken()
				break
			}
			// A stand-in waits in the socket. When it leaves, it nudges, unless it has left
			// since and found us watching.
			r.watching.Store(false)
			if r.state.Load() == atNobody && !r.watching.Swap(true) {
				look.Reset(r.patience())
			}
		}
	}
	r.bulk.Store(false)
	r.unreserve()
	r.watch(true)
}

// mistaken is what the reader does when it has taken over: if something was waiting, who
// stood in stayed away too long.
func (r *reading) mistaken() {
	left := r.collect()
	r.mu.Lock()
	n := r.sock.ReadNow(r.ms)
	if n > 0 || left {
		r.batch(n, nil)
		r.alone.Store(nil)
		r.same = 0
	}
	r.mu.Unlock()
	if n == 0 && !left {
		return
	}
	visits, required := r.visits.Load(), r.required.Load()
	if visits-r.mistake >= seldom*uint32(required) {
		required = max(required/2, mayStandIn)
	} else {
		required = min(2*required, neverStandIn)
	}
	r.mistake = visits
	r.required.Store(required)
}

// patience is how long the reader leaves the socket alone without anybody else looking,
// before it reads itself again. What a bulk sender is sent can wait longer.
func (r *reading) patience() time.Duration {
	if r.bulk.Load() {
		return bulkPatience
	}
	return readerPatience
}

// watch says whether the poller is to look at the socket.
func (r *reading) watch(on bool) {
	r.looks = 0
	if r.unwatched == on {
		r.unwatched = !on
		r.sock.Watch(on)
	}
}

// collect has done what was left to callers who did not come back. It reports whether
// there was anything that was not to wait for the reader.
func (r *reading) collect() (owed bool) {
	settle(&r.granting, nil)
	return settle(&r.owing, nil) != nil
}

// settle ends a debt and returns whose it was, nil if there was none. Unless it is c, which is
// at work, that connection is woken.
func settle(debt *atomic.Pointer[Conn], c *Conn) (whose *Conn) {
	if debt.Load() == nil {
		return nil
	}
	if whose = debt.Swap(nil); whose != nil && whose != c {
		whose.wakeUp()
	}
	return whose
}

// end says that nobody reads the socket any more. Who is called back as of now is not there.
func (r *reading) end() {
	r.gone.Lock()
	defer r.gone.Unlock()
	r.isGone = true
	r.sock.SetReadDeadline(time.Time{})
}

// leaveTo leaves what c has to do to its callers, if they may be expected back at once. It
// reports false if somebody else must do it.
func (r *reading) leaveTo(c *Conn) bool {
	return !r.bulk.Load() && !r.much.Load() && r.owe(&r.owing, c)
}

// leaveCredit is leaveTo for credit that the peer does not need yet: if c's callers are not
// back at once the reader will be in time.
func (r *reading) leaveCredit(c *Conn) bool { return r.owe(&r.granting, c) }

func (r *reading) owe(debt *atomic.Pointer[Conn], c *Conn) bool {
	if experiment.HandOver.Load() || r.alone.Load() != c || r.state.Load() != atNobody || c.prompt.times.Load() < r.required.Load() {
		return false
	}
	if other := debt.Swap(c); other != nil && other != c {
		other.wakeUp()
	}
	// Who changes the state looks at the debts after that.
	return r.state.Load() == atNobody || !debt.CompareAndSwap(c, nil)
}

// ask asks the reader to step aside.
func (r *reading) ask() {
	if r.asked.CompareAndSwap(false, true) {
		r.recall()
	}
}

// take takes the right if nobody has it.
func (r *reading) take() bool { return r.state.CompareAndSwap(atNobody, atStandIn) }

// leave gives the right up: to nobody for a moment, but to the reader if somebody else
// waits.
func (r *reading) leave(waiters int32) {
	r.visits.Add(1)
	r.state.Store(atNobody)
	// Who waits since before that saw the right taken, and relies on us.
	if r.waiting.Load() > waiters {
		r.callReader()
	} else if !r.watching.Swap(true) {
		signal(r.nudge)
	}
}

// callReader gives the right back to the reader, if nobody has it.
func (r *reading) callReader() {
	if r.state.Load() == atNobody && r.state.CompareAndSwap(atNobody, atReader) {
		signal(r.nudge)
		r.collect()
	}
}

// giveBack is callReader for who has the right.
func (r *reading) giveBack() {
	r.state.Store(atReader)
	signal(r.nudge)
}

// serve is the stand-in's part: it hands over what a read brought, and does c's work. It
// reports whether it may go on. r.mu is held, and not any more when it returns.
func (r *reading) serve(c *Conn, n int) bool {
	turn := c.turn.take()
	ok := r.batch(n, c)
	if r.little > 0 {
		r.plenty = 0
	} else {
		r.plenty++
	}
	r.mu.Unlock()
	if turn {
		c.serve(false)
	}
	return ok
}

// await waits for w, or the end of ctx if it is not nil: in the socket, if c's callers may.
func (r *reading) await(c *Conn, w *stream.Wake, ctx context.Context) {
	n := r.waiting.Add(1)
	defer r.waiting.Add(-1)
	switch bulk := r.bulk.Load(); {
	case bulk && !w.ForRoom:
		c.prompt.reset() // it may be the last we see of who sent in bulk
	case n > 1 && !bulk || r.alone.Load() != c:
		// What comes is for others as well, and they may be slow.
	default:
		defer func() { c.prompt.leaves(r.clock()) }()
		if r.awaitAlone(c, w, ctx, n) {
			return
		}
	}
	r.callReader()
	w.Wait(ctx)
}

// awaitAlone is await where what comes is for c. It reports false if the wait is not over,
// but to be had elsewhere.
func (r *reading) awaitAlone(c *Conn, w *stream.Wake, ctx context.Context, waiters int32) (over bool) {
	trusted := c.prompt.back(r.clock()) >= r.required.Load()
	switch {
	case !trusted || r.much.Load() && !r.forCallers(c):
	case r.take():
		return r.standIn(c, w, ctx, waiters)
	case r.state.Load() == atReader:
		r.heir.Store(w)
		r.ask()
	}
	return false
}

// standIn waits for w, or the end of ctx, in the socket. It reports false if the wait is
// not over, but the reader is back.
func (r *reading) standIn(c *Conn, w *stream.Wake, ctx context.Context, waiters int32) (over bool) {
	if ctx != nil && ctx.Done() != nil {
		defer context.AfterFunc(ctx, r.recall)()
	}
	due, spoken := c.hasten(w)
	if spoken != r.spoken {
		r.spoken, r.plenty = spoken, 0 // a conversation: who naps is late with the answer
	}
	if owing, granting := settle(&r.owing, c), settle(&r.granting, c); owing == c || granting == c {
		due = true
	}
	if due && c.turn.takeOrTell() {
		c.serve(false)
	}
	for {
		w.Away(&r.recall)
		if w.Take() || ctx != nil && ctx.Err() != nil {
			w.Away(nil)
			r.leave(waiters)
			return true
		}
		n, err := r.wait()
		w.Away(nil)
		switch {
		case err == nil && r.serve(c, n):
			r.watch(!r.much.Load()) // where much came, there may be more
		case errors.Is(err, os.ErrDeadlineExceeded) && !r.t.clearDeadline():
			// Somebody wants us back.
		default: // of an error, the reader has to hear itself
			r.giveBack()
			return false
		}
	}
}

// hasten lets go what waits for more of a bulk writer's: who waits for an answer has written
// all of the question. It reports whether there is something, and how many bytes streams have
// sent.
func (c *Conn) hasten(w *stream.Wake) (due bool, spoken int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !w.ForRoom && c.snd.Hasten(), c.snd.Used()
}

// wait waits for a batch, as ReadBatch does. In a socket that the poller does not look at
// something is expected: if not at once, then after a nap.
func (r *reading) wait() (n int, err error) {
	if r.unwatched {
		if n := r.now(); n > 0 {
			return n, nil
		}
		if r.plenty >= mayNap {
			r.sock.Nap()
			if n := r.now(); n > 0 {
				return n, nil
			}
			r.plenty = 0
		}
		r.watch(true)
	}
	return r.sock.ReadBatch(r.ms)
}

// now is wait without waiting: it returns 0 if nothing is there.
func (r *reading) now() int {
	r.mu.Lock()
	n := r.sock.ReadNow(r.ms)
	if n == 0 {
		r.mu.Unlock()
	}
	return n
}

// look takes in what has arrived, without waiting, if c's callers may. It is for a caller
// that sends in bulk, between its flights.
func (r *reading) look(c *Conn, at time.Duration) {
	if r.waiting.Load() > fewWait {
		c.prompt.reset()
		r.callReader()
		return
	}
	trusted := c.prompt.back(at) >= r.required.Load()
	c.prompt.leaves(at)
	switch {
	case !trusted && !r.bulk.Load() || r.alone.Load() != c || r.much.Load():
	case r.take():
		r.collect()
		r.looks++
		// The peer acknowledges less often than we send.
		if at-r.looked >= lookEvery {
			r.looked = at
			if n := r.now(); n > 0 && (!r.serve(c, n) || r.much.Load()) {
				c.prompt.reset()
				r.giveBack()
				return
			}
		}
		if r.looks == manyLooks {
			r.watch(false)
			r.bulk.Store(true)
			r.reserve()
		}
		r.leave(r.waiting.Load())
	case trusted && r.state.Load() == atReader:
		r.ask()
	}
}

// prompt knows how soon a connection's callers come back, and what they do meanwhile. Where
// several call at once it is a guess.
type prompt struct {
	came  atomic.Int64 // when the latest one came back, by reading.clock
	left  atomic.Int64 // when the latest one went
	times atomic.Int32 // in a row that one came back soon

	waits, works atomic.Int64 // smoothed nanoseconds from came to left, and from left to came
}

// back says that a caller is back, and returns how often in a row that was soon.
func (p *prompt) back(at time.Duration) int32 {
	p.came.Store(int64(at))
	away := int64(at) - p.left.Load()
	smooth(&p.works, away)
	if away < int64(brief) {
		return p.times.Add(1)
	}
	p.times.Store(0)
	return 0
}

// leaves says that a caller goes back to the application.
func (p *prompt) leaves(at time.Duration) {
	smooth(&p.waits, int64(at)-p.came.Load())
	p.left.Store(int64(at))
}

// mostlyWaits reports that the application does little with what it reads, compared with what
// it takes to receive that: it waits, or is at work for the connection, two thirds of the time.
func (p *prompt) mostlyWaits() bool { return 2*p.works.Load() <= p.waits.Load() }

// smooth takes a new value into the average. One that is out of the ordinary counts as ten
// times brief: it says nothing of the ordinary.
func smooth(average *atomic.Int64, v int64) {
	old := average.Load()
	average.Store(old + (min(v, int64(10*brief))-old)/8)
}

func (p *prompt) reset() { p.times.Store(0) }
