package sender

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/scheduler"
)

const (
	fullPass = emit.MaxDatagrams

	// lateAfter bounds how long bytes wait for more of a bulk writer's: a writer that
	// has just filled a flight leaves a rest of less than a pass behind, and nearly
	// always comes back with more within microseconds.
	lateAfter = 500 * time.Microsecond
)

// Host is the connection as its sender sees it. It is called with the connection's
// mutex held, Lock and Wake excepted.
type Host interface {
	Lock()
	Unlock()

	// Wake makes the connection's goroutine run.
	Wake()

	// Due reports what is due outside the streams: control frames (limited by
	// congestion control) and an acknowledgement (not limited).
	Due(now time.Time) (control, ack bool)

	// AppendControl writes what is due to the flight's first datagrams, an ACK frame
	// first. With ackOnly, nothing but the ACK.
	AppendControl(f *Flight, now time.Time, ackOnly bool)

	// SetTimer makes the connection's goroutine run at t at the latest.
	SetTimer(t time.Time)

	// Flushed reports that a flight is about to leave, and whether it will be
	// acknowledged.
	Flushed(now time.Time, eliciting bool)

	// AntiAmplification is how many bytes may go to a peer whose address is not
	// validated yet (RFC 9000 §8.1), -1 if there is no limit.
	AntiAmplification() int

	// SendFailed reports an error of the socket that sending again will not cure.
	SendFailed(err error)

	// KeysExhausted reports that the key may seal no more packets and cannot be
	// updated: the connection must close with err.
	KeysExhausted(err error)

	// DatagramTooLarge reports that the kernel refused datagrams of this size.
	DatagramTooLarge(size int)
}

// Sender sends one connection's 1-RTT packets. Unless a method says otherwise, it is
// called with the connection's mutex held.
type Sender struct {
	host  Host
	rec   *recovery.Recovery
	cc    congestion.Controller
	pacer *congestion.Pacer
	sched scheduler.Scheduler
	keys  *protect.OneRTT
	early *earlyKey // while packets are 0-RTT
	udp   *udp.Conn

	// What a flight freezes.
	route *udp.Route
	dst   []byte // destination connection ID
	size  int    // datagram size

	credit, used int64 // connection flow control: the peer's MAX_DATA and the bytes sent

	unsent  int       // bytes that all streams hold and have not packed
	late    time.Time // bytes of less than a pass may wait for more until then
	taken   bool      // the token
	away    bool      // … and its holder is in a source, neither sealing nor sending
	bulk    bool      // the last flight had a full pass: a writer that fills flights is at work
	ready   bool      // keys are there and the connection is neither closing nor over
	paused  time.Time // the pacer lets go again then; zero when it is not what holds back
	held    *Flight   // sealed, and refused by a full socket buffer
	waiting bool      // a goroutine waits for that buffer to drain
	askers  []*asker  // every SendFrom and ReadFrom under way
	callers []*asker  // in-place askers whose turn it is, to be woken when the token is free

	spare  []byte // a slot's bytes while they are moved
	skipIn int    // packets until a number is skipped

	stats Stats
}

// Stats counts what a sender did.
type Stats struct {
	Flights, Datagrams uint64 // system calls that carried something, and their datagrams
	Bytes              uint64 // UDP payload
}

// Config is what a [Sender] works with. All of it belongs to one connection.
type Config struct {
	Host         Host
	Recovery     *recovery.Recovery
	Controller   congestion.Controller
	Pacer        *congestion.Pacer
	Scheduler    scheduler.Scheduler
	UDP          *udp.Conn
	Route        *udp.Route
	DatagramSize int
}

// New returns a sender that is idle until [Sender.Start].
func New(c Config) *Sender {
	return &Sender{
		host: c.Host, rec: c.Recovery, cc: c.Controller, pacer: c.Pacer, sched: c.Scheduler,
		udp: c.UDP, route: c.Route, size: c.DatagramSize, skipIn: firstSkip,
	}
}

// Start lets flights leave, protected by keys and addressed to connection ID dst.
func (x *Sender) Start(keys *protect.OneRTT, dst []byte) {
	x.keys, x.dst, x.ready = keys, dst, true
	x.early = nil
}

// StartEarly lets a client's flights leave as 0-RTT packets, until Start: protected by
// sealer, with long headers (RFC 9000 §17.2.3).
func (x *Sender) StartEarly(sealer *protect.Sealer, version uint32, dst, src []byte) {
	x.early = &earlyKey{sealer, version, src}
	x.dst, x.ready = dst, true
}

// StopEarly forgets what was sent in 0-RTT packets, which the peer rejected.
func (x *Sender) StopEarly() {
	if x.early == nil {
		return
	}
	x.early, x.ready = nil, false
	x.credit, x.used, x.unsent = 0, 0, 0
}

type earlyKey struct {
	sealer  *protect.Sealer
	version uint32
	src     []byte
}

// Stop ends sending. A flight that is on its way to the kernel still arrives there.
func (x *Sender) Stop() {
	x.ready = false
	if x.held != nil && !x.taken {
		x.held.release()
		x.held = nil
	}
}

// SetDst changes the destination connection ID from the next flight on.
func (x *Sender) SetDst(id []byte) { x.dst = id }

// SetDatagramSize changes the size of datagrams from the next flight on.
func (x *Sender) SetDatagramSize(n int) {
	x.size = n
	x.cc.SetDatagramSize(n)
	x.pacer.SetDatagramSize(n)
}

// DatagramSize is the size of a full datagram in bytes of UDP payload.
func (x *Sender) DatagramSize() int { return x.size }

// SetCredit raises the connection's flow control limit (RFC 9000 §4.1, MAX_DATA) and
// reports whether it rose.
func (x *Sender) SetCredit(limit int64) bool {
	if limit <= x.credit {
		return false
	}
	x.credit = limit
	return true
}

// Credit is the peer's MAX_DATA, and whether bytes wait for more of it: then
// DATA_BLOCKED is due (RFC 9000 §4.1).
func (x *Sender) Credit() (limit int64, blocked bool) {
	return x.credit, x.used >= x.credit && x.unsent > 0
}

// Stats returns a copy of the counters.
func (x *Sender) Stats() Stats { return x.stats }

// Buffered adds delta to the bytes that streams hold and have not packed.
func (x *Sender) Buffered(delta int) { x.unsent += delta }

// Unsent is how many bytes all streams hold and have not packed.
func (x *Sender) Unsent() int { return x.unsent }

// Quiet reports that nothing is in flight or on its way: a small write may leave in
// its caller's goroutine at once.
func (x *Sender) Quiet() bool {
	return x.ready && !x.taken && x.held == nil && x.rec.BytesInFlight() == 0
}

// Held reports that a flight waits for the socket. No loss timer runs meanwhile for
// what the kernel never took.
func (x *Sender) Held() bool { return x.held != nil }

// Timer is when the sender wants to run again of its own accord, zero for never.
func (x *Sender) Timer() time.Time {
	t := x.paused
	if !x.late.IsZero() && x.unsent > 0 && (t.IsZero() || x.late.Before(t)) {
		t = x.late
	}
	return t
}

// Run takes the token, sends up to most flights while there is something to send,
// and gives the token back. It reports whether more is due. If somebody else holds
// the token that one does the work: Run returns false at once.
//
// Run is called WITHOUT the connection's mutex.
func (x *Sender) Run(most int) (more bool) {
	x.host.Lock()
	more = x.run(most, nil)
	x.host.Unlock()
	return more
}

// run is Run with the mutex held on entry and exit, and let go in between. self is
// the asker that calls, whose source may be called in place; nil otherwise.
//
// No wake-up is lost: whoever finds the token taken has changed the state under the
// mutex before, and the holder looks at the state under the mutex before it lets go.
func (x *Sender) run(most int, self *asker) (more bool) {
	if x.taken || !x.ready {
		return false
	}
	x.taken = true
	if x.held != nil && !x.waiting {
		f := x.held
		x.held = nil
		x.transmit(f)
	}
	for range most {
		if !x.ready || x.held != nil {
			break
		}
		f := x.build(time.Now(), self)
		if f == nil {
			x.release()
			return false
		}
		x.host.Unlock()
		f.seal()
		x.host.Lock()
		x.transmit(f)
	}
	x.release()
	return x.ready && x.held == nil
}

// release gives the token back.
func (x *Sender) release() {
	x.taken = false
	x.wakeCallers()
	if !x.ready {
		x.host.Wake() // who closes the connection waits for the token
	}
}

// MayClose reports whether nobody is sealing or sending: then the keys may be used for
// the CONNECTION_CLOSE. After [Sender.Stop] that stays so once it is.
func (x *Sender) MayClose() bool { return !x.taken || x.away }

// Push sends what a writer has added to a stream, in the writer's goroutine if the
// connection is quiet or a flight is full. Otherwise small writes gather: Push reports
// that the connection's goroutine should run, or sees to it that it will soon. It is
// called WITHOUT the connection's mutex.
func (x *Sender) Push() (wake bool) {
	x.host.Lock()
	defer x.host.Unlock()
	switch {
	case !x.ready:
		return false
	case x.unsent >= x.flightBytes() || x.Quiet():
		wake = x.run(1, nil)
		if x.unsent > 0 && x.unsent < x.passBytes() && x.bulk {
			x.Later()
			return false
		}
		return wake
	case x.bulk && x.unsent < x.passBytes():
		// The rest of what a bulk writer wrote: it comes back with more.
		x.Later()
		return false
	}
	return true
}

// transmit hands a sealed flight to the kernel. The mutex is held on entry and exit
// and let go during the system call.
func (x *Sender) transmit(f *Flight) {
	resumed := f.sent > 0 || f.held
	x.host.Unlock()
	n, err := x.udp.Send(x.route, f.rest(), f.size, f.ecn)
	x.host.Lock()

	if resumed && n > 0 {
		// The kernel took them only now: so says the sent time, or round-trip times
		// would include the wait for the socket.
		x.rec.Restamp(recovery.App, f.first+int64(f.sent), f.first+int64(f.sent+n-1), time.Now())
	}
	if resumed && err != udp.ErrBlocked {
		x.rec.SetSendBlocked(false)
	}
	f.sent += n
	x.stats.Flights++
	x.stats.Datagrams += uint64(n)
	switch err {
	case nil:
		f.release()
	case udp.ErrBlocked:
		x.hold(f)
	case udp.ErrTooLarge:
		// What the kernel refused for its size becomes unsent: its ranges are pending
		// again and go out smaller. Nothing was lost, so congestion control is not told.
		x.rec.OnUnsent(recovery.App, f.first+int64(f.sent), f.first+int64(f.n-1))
		x.host.DatagramTooLarge(f.size)
		f.release()
	default:
		// Anything else is treated as loss: the packets stay in flight and recovery
		// sends their content again. A socket that is gone ends the connection.
		x.host.SendFailed(err)
		f.release()
	}
}

// hold keeps a flight that a full socket buffer refused: the same ciphertext goes
// out when there is room, as a packet number is sealed once only.
func (x *Sender) hold(f *Flight) {
	f.held = true
	x.held = f
	if x.waiting {
		return
	}
	x.waiting = true
	x.rec.SetSendBlocked(true)
	go func() {
		err := x.udp.WaitWritable(context.Background())
		x.host.Lock()
		x.waiting = false
		if !x.ready && x.held != nil && !x.taken {
			x.held.release()
			x.held = nil
		}
		if err != nil {
			x.host.SendFailed(err)
		}
		x.host.Unlock()
		x.host.Wake()
	}()
}

// Skipped packet numbers catch peers that acknowledge what they did not receive
// (RFC 9000 §21.4): the first comes early, the others less often as more is sent.
const (
	firstSkip = 100
	mostSkip  = 1 << 16
)

func (x *Sender) maybeSkip(n int) {
	x.skipIn -= n
	if x.skipIn > 0 {
		return
	}
	x.rec.Skip(recovery.App)
	next := x.rec.NextPN(recovery.App)
	// Between one and two times the numbers so far, so that a guesser cannot tell.
	x.skipIn = min(int(next)+rand.IntN(int(next)+1), mostSkip)
}

// flush is the packet half of the commit: numbers, headers, trains, congestion
// window and pacer, once per flight and just before it is sealed.
func (x *Sender) flush(f *Flight, now time.Time) {
	// Header protection samples 16 bytes from 4 bytes after the start of the packet
	// number, so that number and payload need 4 bytes together (RFC 9001 §5.4.2).
	if short := f.n*f.size - f.size + f.hdr + 4 - f.pnLen - f.w; short > 0 {
		f.pad(short)
	}
	f.total = f.w + overhead
	f.first = x.rec.NextPN(recovery.App)
	x.headers(f)
	pn, left, flying := f.first, f.total, 0
	// Until validation fails every flight is marked, and the peer's counts in ACKs
	// tell whether the marks arrive (RFC 9000 §13.4.2).
	if x.udp.CanECN() && x.rec.ECNCapable() {
		f.ecn = udp.ECT0
	}
	for _, t := range f.trains {
		t.First = pn
		t.ECT0 = f.ecn == udp.ECT0
		for i := range t.N {
			size := min(left, f.size)
			left -= size
			t.Sizes[i] = uint16(size)
			if t.InFlight&(1<<i) != 0 {
				flying += size
			}
		}
		pn += int64(t.N)
	}
	x.rec.OnSent(recovery.App, f.trains, now)
	if x.early == nil {
		x.keys.Sent(f.first, f.n)
	}
	if flying > 0 {
		x.pacer.OnSent(now, flying)
	}
	x.stats.Bytes += uint64(f.total)
	x.bulk = f.n >= fullPass
	x.host.Flushed(now, f.eliciting())
	x.maybeSkip(f.n)
}

// headers writes the headers of a flight's packets and takes the key that seals them.
func (x *Sender) headers(f *Flight) {
	if e := x.early; e != nil {
		f.sealer = e.sealer
		for i := range f.n {
			start := i * f.size
			n := min(f.size, f.total-start) - f.hdr + f.pnLen
			wire.AppendLong(f.buf[start:start:start+f.hdr], wire.ZeroRTT, e.version, x.dst, e.src, nil, n, f.first+int64(i), f.pnLen)
		}
		return
	}
	var phase bool
	f.sealer, phase = x.keys.SealKey()
	for i := range f.n {
		start := i * f.size
		wire.AppendShort(f.buf[start:start:start+f.hdr], x.dst, f.first+int64(i), f.pnLen, phase)
	}
}

// headerLen is how long they are.
func (x *Sender) headerLen(pnLen int) int {
	if x.early != nil {
		return wire.LongHeaderLen(wire.ZeroRTT, len(x.dst), len(x.early.src), 0, pnLen)
	}
	return wire.ShortHeaderLen(len(x.dst), pnLen)
}
