package sender

import (
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/experiment"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/scheduler"
)

const (
	fullPass = emit.MaxDatagrams

	// lateAfter bounds how long bytes wait for more of a bulk writer's: a writer that
	// has just filled a flight leaves a rest of less than a pass behind, and nearly
	// always comes back with more within microseconds. Each time that it is over, the
	// connection's goroutine is woken, so a writer that has come back for long is given an
	// eighth of that time, up to mostLate.
	lateAfter = 500 * time.Microsecond
	mostLate  = 4 * time.Millisecond
)

// Host is the connection as its sender sees it. It is called with the connection's
// mutex held, Lock, Wake and Between excepted.
type Host interface {
	Lock()
	Unlock()

	// Wake makes the connection's goroutine run.
	Wake()

	// Between comes after flights in the goroutine of a call that is about to send more,
	// without the mutex: time to take in what has arrived, and to let others have their turn.
	Between()

	// Due reports what is due outside the streams: control frames (limited by
	// congestion control) and an acknowledgement (not limited).
	Due(now time.Time) (control, ack bool)

	// AppendControl writes what is due to the flight's first datagrams, an ACK frame
	// first. With ackOnly, nothing but the ACK.
	AppendControl(f *Flight, now time.Time, ackOnly bool)

	// SetTimer makes the connection's goroutine run at t at the latest.
	SetTimer(t time.Time)

	// Flushed reports that a flight is about to leave, and whether it will be
	// acknowledged. Timers have changed with it, and nobody wakes the connection's
	// goroutine for that.
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
	turns scheduler.Turner // sched, if it is one
	keys  *protect.OneRTT
	early *earlyKey // while packets are 0-RTT
	udp   *udp.Conn

	// What a flight freezes.
	route *udp.Route
	dst   []byte // destination connection ID
	size  int    // datagram size

	probeRoom int // bytes of the window that are kept for a path MTU probe

	grease bool // the QUIC bit of packets is random

	hastens bool // the peer knows the IMMEDIATE_ACK frame …
	sparse  bool // … and was asked for few ACKs

	credit, used int64 // connection flow control: the peer's MAX_DATA and the bytes sent
	starved      bool  // a source waits for more of it

	token    token
	ready    bool      // keys are there and the connection is neither closing nor over
	unsent   int       // bytes that all streams hold and have not packed
	bulk     *Stream   // filled a whole pass of the latest flight: its writer will come with more
	late     time.Time // what is due of streams waits for more of bulk's until then; zero: it does not
	pressing int       // streams that do not wait
	steady   *Stream   // more of its writer's came before that
	returns  int       // … so often in a row
	since    time.Time // … and for so long
	waited   time.Time // a rest began to wait for more then
	paused   time.Time // the pacer lets go again then; zero when it is not what holds back
	latest   *Stream   // whose bytes left last
	held     *Flight   // sealed, and refused by a full socket buffer
	waiting  *udp.Conn // whose buffer a goroutine waits for
	apart    bool      // the token is kept for SendApart when it is free again
	askers   []*asker  // every SendFrom and ReadFrom under way

	spare  []byte // a slot's bytes while they are moved
	skipIn int    // packets until a number is skipped

	stats Stats
	trace Trace // nil: nobody listens
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
	Trace        Trace // nil: nobody listens
}

// New returns a sender that is idle until [Sender.Start].
func New(c Config) *Sender {
	x := &Sender{
		host: c.Host, rec: c.Recovery, cc: c.Controller, pacer: c.Pacer, sched: c.Scheduler,
		udp: c.UDP, route: c.Route, size: c.DatagramSize, skipIn: firstSkip, trace: c.Trace,
	}
	x.turns, _ = c.Scheduler.(scheduler.Turner)
	return x
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
	x.early = nil
	x.Stop()
	x.credit, x.used, x.unsent = 0, 0, 0
}

type earlyKey struct {
	sealer  *protect.Sealer
	version uint32
	src     []byte
}

// Stop ends sending. A flight that is on its way to the kernel still arrives there; one
// that is being built, or waits for the socket, does not.
func (x *Sender) Stop() {
	x.ready = false
	if x.token.away != nil {
		if f := x.rob(); f != nil {
			f.release()
		}
		x.release()
	}
	if x.held != nil && !x.token.taken {
		x.held.release()
		x.held = nil
	}
}

// SetDst changes the destination connection ID from the next flight on.
func (x *Sender) SetDst(id []byte) { x.dst = id }

// SetGrease says whether the peer takes packets without the QUIC bit: from the next flight
// on each one then has it or not, at random (RFC 9287 §3.1).
func (x *Sender) SetGrease(on bool) { x.grease = on }

// SetDatagramSize changes the size of datagrams from the next flight on.
func (x *Sender) SetDatagramSize(n int) {
	x.size, x.probeRoom = n, 0
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
	return x.credit, x.used >= x.credit && (x.unsent > 0 || x.starved)
}

// Used is how many bytes streams have sent, each counted once.
func (x *Sender) Used() int64 { return x.used }

// CreditLeft is how many bytes may be added to the connection's streams and be sent
// without more credit from the peer. The mutex is held.
func (x *Sender) CreditLeft() int64 { return x.credit - x.used - int64(x.unsent) }

// Stats returns a copy of the counters.
func (x *Sender) Stats() Stats { return x.stats }

// Buffered adds delta to the bytes that streams hold and have not packed.
func (x *Sender) Buffered(delta int) { x.unsent += delta }

// Unsent is how many bytes all streams hold and have not packed.
func (x *Sender) Unsent() int { return x.unsent }

// Held reports that a flight waits for the socket: nothing else can leave before it.
func (x *Sender) Held() bool { return x.held != nil }

// Timer is when the sender wants to run again of its own accord, zero for never. What is
// overdue while nobody can send is the business of whoever, or whatever, holds that up.
func (x *Sender) Timer() (first time.Time) {
	now, busy := time.Now(), x.held != nil || !x.free(nil)
	for _, t := range [...]time.Time{x.paused, x.late, x.token.patience()} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) && (!busy || t.After(now)) {
			first = t
		}
	}
	return first
}

// quiet reports that nothing is in flight or on its way: a small write may leave in
// its caller's goroutine at once.
func (x *Sender) quiet() bool {
	return x.ready && x.free(nil) && x.held == nil && x.rec.BytesInFlight() == 0
}

// PushUnlock sends what a writer has added to st, in the writer's goroutine if the connection
// is quiet or a flight is full. Otherwise small writes gather: it reports that the
// connection's goroutine should run, or sees to it that it will soon. The mutex is held,
// and not any more when it returns.
func (x *Sender) PushUnlock(st *Stream) (wake bool) {
	wake, bulk := x.push(st)
	if bulk {
		x.host.Between()
	}
	return wake
}

// push is PushUnlock, but for what comes after, and reports whether it has sent in bulk.
func (x *Sender) push(st *Stream) (wake, bulk bool) {
	defer x.host.Unlock() // also if the application's scheduler panics
	flights := x.stats.Flights
	wake = x.pushed(st)
	return wake, x.stats.Flights != flights && x.bulk == st
}

// pushed is push with the mutex held until it returns, and longer.
func (x *Sender) pushed(st *Stream) (wake bool) {
	if !x.ready {
		return false
	}
	if st == x.bulk && !x.late.IsZero() {
		if x.steady != st || x.returns == 0 {
			x.steady, x.returns, x.since = st, 0, time.Now()
		}
		x.returns++
	}
	if full := x.unsent / x.flightBytes(); (full > 0 || x.quiet()) && !experiment.HandOver.Load() {
		if !x.run(max(full, 1), nil) {
			return false
		}
		if e, _ := x.sched.Next(); e == nil {
			return x.othersDue()
		}
	}
	return !x.mayWait(st) || x.othersDue()
}

// othersDue reports whether something is due that waits for no stream. While this goroutine
// had the token, nobody else could send it.
func (x *Sender) othersDue() bool {
	control, ack := x.host.Due(time.Now())
	return control || ack || x.rec.Probes(recovery.App) > 0
}

// mayWait reports whether what is due of the streams waits for more of st: if that is the
// rest, not enough yet, of what a bulk writer wrote. What ends or repairs a stream does
// not wait, and neither does another stream's.
func (x *Sender) mayWait(st *Stream) bool {
	if st != x.bulk || x.unsent >= x.enough() {
		x.late = time.Time{}
		return false
	}
	return x.wait()
}

// trusted is how often a bulk writer has to come back in time to be expected to do so again.
const trusted = 4

// enough is how many bytes are not left to wait for more of a bulk writer's: a pass, or a
// flight if the writer has come back in time again and again. Each time that the rest of a
// write leaves by itself costs a system call, and a wake-up of the connection's goroutine.
func (x *Sender) enough() int {
	if x.steady == x.bulk && x.returns >= trusted {
		return x.flightBytes()
	}
	return x.passBytes()
}

// patience is how long bytes wait for more of a bulk writer's at most.
func (x *Sender) patience(now time.Time) time.Duration {
	if x.steady != x.bulk || x.returns < trusted {
		return lateAfter
	}
	return min(max(now.Sub(x.since)/8, lateAfter), mostLate)
}

// wait lets what is due of the streams wait for more, as long as patience allows. It
// reports false if that is over, or one of the streams does not wait.
func (x *Sender) wait() bool {
	if x.pressing > 0 {
		x.late = time.Time{}
		return false
	}
	now := time.Now()
	if x.late.IsZero() {
		if now.Sub(x.waited) > mostLate {
			x.returns = 0 // its writer was away, though others have taken the rest along
		}
		x.waited = now
		x.late = now.Add(x.patience(now))
		x.host.SetTimer(x.late)
		return true
	}
	return now.Before(x.late)
}

// Hasten says that no more is to be expected of a bulk writer: the rest, if it reports that
// there is one, is due. The mutex is held.
func (x *Sender) Hasten() bool {
	if x.late.IsZero() {
		return false
	}
	x.late = x.late.Add(-mostLate)
	return true
}

// passSlots is how many datagrams a full pass has, and passBytes about what it carries.
func (x *Sender) passSlots() int { return min(fullPass, segments(x.size)) }
func (x *Sender) passBytes() int { return x.passSlots() * (x.size - 48) }

// flightBytes is about what a flight carries.
func (x *Sender) flightBytes() int { return segments(x.size) * (x.size - 24) }
