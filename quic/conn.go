package quic

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/experiment"
	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/scheduler"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

// A Conn is a QUIC connection. Its methods may be called from any number of
// goroutines.
//
// Calls on a connection and on its streams return, once it is over:
//   - [ApplicationError] if one of the applications closed it,
//   - [TransportError] if one side found the other to break the protocol,
//   - [IdleTimeoutError] if the peer fell silent, [HandshakeTimeoutError] if it was too
//     slow during the handshake,
//   - [StatelessResetError] if the peer has forgotten the connection,
//   - [VersionNegotiationError] if there is no common version,
//   - [ErrTransportClosed] if the Transport was closed under it.
type Conn struct {
	transport *Transport
	config    *Config
	isClient  bool
	early     bool
	greases   bool // the peer is told that packets without the QUIC bit are welcome (RFC 9287)
	readyFunc func(*Conn)
	doneFunc  func(*Conn, error)

	ctx           context.Context
	cancel        context.CancelCauseFunc
	handshakeDone chan struct{} // closed when the handshake is complete or has failed
	closeSent     chan struct{} // closed when CONNECTION_CLOSE left, or never will

	written  atomic.Bool   // a small write waits for the goroutine
	awaiting atomic.Bool   // awaitSocket waits
	wake     chan struct{} // capacity 1: the goroutine has something to do
	quiet    atomic.Bool   // nothing has happened for so long that the connection may rest …
	resting  atomic.Bool   // … and it does: there is no goroutine
	turn     turn
	prompt   prompt
	myShare  myShare                 // of the processors
	reads    atomic.Pointer[reading] // for which this connection's callers may stand in; nil: for none

	// The way in: filled by the transport's read loop.
	inboxMu  sync.Mutex
	inbox    []packet
	inboxEnd bool // nobody looks at it any more

	// Whoever has the turn. That is the connection's goroutine, but for what comes in after
	// the handshake.
	tls        *handshake.TLS
	spare      []packet
	opened     []openedPacket
	later      []packet      // that no key opens yet
	heldLong   *longDatagram // sealed, and refused by a full socket
	hsRoute    udp.Route
	timer      *time.Timer
	retried    bool         // a Retry was followed
	negotiated bool         // this is the second try, after Version Negotiation
	visited    bool         // the turn is not the goroutine's
	tlsDue     bool         // driveTLS was left to the goroutine
	hasty      int          // rounds in a row after which something was due and nothing sent
	rounds     atomic.Int32 // of run: tests look whether it spins
	hastySent  uint64       // what had been sent by then
	gotFirst   bool         // an authentic packet arrived: no Retry or Version Negotiation any more
	oneRTT     *protect.OneRTT
	ackIn      []wire.AckRange

	// mu is the connection's monitor: it guards what follows, streams included. It
	// is held for short: never across sealing, opening, a system call, a source or any
	// callback of the application.
	mu sync.Mutex

	phase    phase
	closeErr error // why it is over
	version  Version
	params   *wire.TransportParams // the peer's; nil until they arrived
	tlsState tls.ConnectionState
	grease   bool // the peer takes packets without the QUIC bit

	origDst  ConnectionID
	keyID    ConnectionID  // what the Initial keys come from: the client's first DCID, after a Retry its next
	retry    *ConnectionID // SCID of the Retry, sent or followed
	token    []byte
	tokenKey string // for the TokenStore
	ids      connIDs

	spaces [recovery.NumSpaces]*space // nil: its keys are thrown away
	rec    *recovery.Recovery
	cc     congestion.Controller
	pacer  *congestion.Pacer
	snd    *sender.Sender
	paths  paths
	addrs  atomic.Pointer[pathAddrs]

	ackRanges  []wire.AckRange
	bufferFull bool          // the streams' unsent bytes have reached maxConnBuffer
	held       int           // buffers that streams keep data in
	heldFree   []*heldBuffer // for reuse
	control    controlQueue
	asking     ackAsking // what the peer is asked of its ACKs
	obeysAsks  bool      // we do as the peer asks of ours
	askedSeq   int64     // of the latest ACK_FREQUENCY frame; -1: none
	blockedAt  int64     // limit of the last DATA_BLOCKED; -1: none
	streams    streams
	takingIn   bool           // packets …
	roused     []*stream.Wake // … and these are signalled behind them
	flow       connFlow

	complete  bool // the handshake is complete (RFC 9001 §4.1.1)
	confirmed bool // … and confirmed (§4.1.2)

	// Anti-amplification, server only (RFC 9000 §8.1).
	validated    bool
	bytesIn      int
	bytesOut     int
	createdAt    time.Time
	lastReceived time.Time // of an authentic packet
	idleFrom     time.Time // when the idle timer was restarted (RFC 9000 §10.1)
	sentSince    bool      // an ack-eliciting packet left since something arrived
	pinged       bool      // a keep-alive is on its way

	timerAt  time.Time
	rotateAt int64 // packet number from which on the peer's next connection ID is used
	closing  closing

	after        []func() // callbacks of the application, to be run without the lock
	afterRunning bool

	mtu       mtuState
	zeroRTT   early
	datagrams datagrams

	stats ConnectionStats
	qlog  *connTrace // nil: not traced; never changes
}

// phase is how far a connection's life is.
type phase uint8

const (
	phaseOpen     phase = iota // handshake or later
	phaseClosing               // we sent CONNECTION_CLOSE (RFC 9000 §10.2.1)
	phaseDraining              // the peer did, or nothing may be sent (§10.2.2)
	phaseOver
)

// space is one packet number space. The 1-RTT keys are not here: see Conn.oneRTT.
type space struct {
	opener *protect.Opener
	sealer *protect.Sealer
	acks   ackState
	send   cryptoSend
	recv   cryptoRecv
}

// connParams is what a connection begins with.
type connParams struct {
	transport     *Transport
	isClient      bool
	config        *Config // populated
	tls           *tls.Config
	version       Version
	remote        net.Addr
	route         udp.Route
	srcID         ConnectionID  // ours, registered with the transport
	destID        ConnectionID  // the peer's; at a client a random one
	origDst       ConnectionID  // DCID of the client's first Initial
	retrySrc      *ConnectionID // server: SCID of the Retry that it sent
	addrValidated bool          // server: a token proved the address
	token         []byte        // client: for its first Initial
	greased       bool          // client: with the token came that the server takes packets without the QUIC bit
	nextPN        int64         // client, after Version Negotiation: first packet number
	negotiated    bool          // client: no further Version Negotiation is followed
	ctx           context.Context
	early         bool               // usable before the handshake is complete
	ready         func(*Conn)        // server: called once the connection may be accepted
	done          func(*Conn, error) // called once it is over
}

// newConn starts a connection's goroutine.
func newConn(p connParams) (*Conn, error) {
	c := &Conn{
		transport: p.transport, config: p.config, isClient: p.isClient, early: p.early,
		greases:   !p.config.DisableQUICBitGreasing && p.transport.mayGrease(),
		readyFunc: p.ready, doneFunc: p.done,
		handshakeDone: make(chan struct{}),
		closeSent:     make(chan struct{}),
		wake:          make(chan struct{}, 1),
		version:       p.version,
		hsRoute:       p.route,
		origDst:       p.origDst, retry: p.retrySrc, token: p.token, negotiated: p.negotiated,
		validated: p.isClient || p.addrValidated,
		createdAt: time.Now(),
		blockedAt: -1, askedSeq: -1,
		obeysAsks: !experiment.AckFrequencyOff.Load(),
	}
	c.lastReceived, c.idleFrom = c.createdAt, c.createdAt
	c.ctx, c.cancel = context.WithCancelCause(p.ctx)
	c.ids.init(p.srcID, p.destID)
	c.initPaths(p)
	size := p.config.initialPacketSize()
	c.startTrace(&p)
	var packetTrace recovery.Trace
	var flightTrace sender.Trace
	if q := c.qlog; q != nil {
		packetTrace, flightTrace = q, q
	}
	c.cc = c.newController(size)
	c.pacer = congestion.NewPacer(size)
	c.rec = recovery.New(recovery.Config{IsClient: p.isClient, Owner: (*monitor)(c), Controller: c.cc, Trace: packetTrace})
	sched := scheduler.New()
	if p.config.Scheduler != nil {
		sched = p.config.Scheduler()
	}
	c.snd = sender.New(sender.Config{
		Host: (*monitor)(c), Recovery: c.rec, Controller: c.cc, Pacer: c.pacer,
		Scheduler: sched, UDP: p.transport.udpConn(), Route: &c.paths.active.route, DatagramSize: size, Trace: flightTrace,
	})
	c.setGrease(p.greased)
	for i := range c.spaces {
		c.spaces[i] = &space{acks: newAckState()}
	}
	c.spaces[recovery.App].send.ready = func() { c.control.crypto = true }
	c.flow.init(p.config)
	c.streams.init(c)
	c.datagrams.init()
	c.mtu.init(c)
	c.keyID = p.origDst
	if p.retrySrc != nil {
		c.keyID = *p.retrySrc
	}
	if c.qlog != nil {
		c.qlog.recoveryParameters()
	}
	if err := c.setInitialKeys(c.keyID); err != nil {
		if c.qlog != nil {
			c.qlog.end()
		}
		return nil, err
	}
	c.rec.SetAmplificationLimited(!c.validated)
	for c.rec.NextPN(recovery.Initial) < p.nextPN {
		c.rec.Skip(recovery.Initial)
	}
	c.tokenKey = tokenStoreKey(p.tls, p.remote)
	c.zeroRTT.ready = make(chan struct{})
	c.tls = c.newTLS(p.tls)
	c.sessionHooks()
	c.timer = time.AfterFunc(time.Hour, c.timeUp)
	go c.run()
	return c, nil
}

// run is the connection's goroutine. It takes in what arrives, keeps the time, and
// sends what callers of Write and the like have not sent themselves.
func (c *Conn) run() {
	c.turn.take()
	if err := c.startTLS(); err != nil {
		c.fail(err)
	}
	c.turn.drop()
	c.wakeUp()
	c.work()
}

// work is what run does until the connection is over, or rests.
func (c *Conn) work() {
	for {
		<-c.wake
		if c.turn.takeOrTell() {
			c.serve(true)
		}
		if c.turn.over() {
			c.finish()
			return
		}
		if c.rest() {
			return
		}
	}
}

// timeUp is what the timer calls.
func (c *Conn) timeUp() {
	c.mu.Lock()
	c.timerAt = time.Time{}
	c.mu.Unlock()
	c.wakeUp()
}

// visit is how many rounds at most somebody does who has other things to do.
const visit = 2

// serve does what there is to do, for whoever has the turn, and ends the turn. own says
// that this is the connection's goroutine.
func (c *Conn) serve(own bool) {
	c.visited = !own
	for i := 0; own || i < visit; i++ {
		c.rounds.Add(1)
		c.receive()
		if own {
			if c.tlsDue {
				c.tlsDue = false
				c.driveTLS()
			}
			if c.written.Swap(false) {
				// Whoever was woken by the same packets as the writer writes soon, too: once
				// all that can run has run, their bytes leave in one call.
				runtime.Gosched()
			}
		}
		now := time.Now()
		if own {
			c.transport.reading.help(now)
		}
		if c.tick(now) {
			c.turn.end()
			c.wakeUp()
			return
		}
		c.askWindow()
		more := c.sendAll(now)
		if c.arm(more) && !c.tlsDue && c.turn.giveBack() {
			return
		}
	}
	c.turn.drop()
	c.wakeUp()
}

// arm sets the timer for the next thing to do, and reports whether there is nothing
// to do until then.
func (c *Conn) arm(more bool) bool {
	c.inboxMu.Lock()
	more = more || len(c.inbox) > 0
	c.inboxMu.Unlock()
	if more {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	rest := c.restAt()
	c.quiet.Store(!rest.IsZero() && !rest.After(now))
	t := c.nextTimer()
	if sent := c.snd.Stats().Flights + c.stats.PacketsSent; sent != c.hastySent {
		c.hasty, c.hastySent = 0, sent
	}
	if t.IsZero() || t.After(now) {
		c.hasty = 0
		c.setTimer(t)
		return true
	}
	// Something has become due in this round already. If it is due still after some
	// rounds then it cannot be done now, and what lifts the obstacle wakes us: a timer
	// that is set for "now" without progress would keep a core busy.
	if c.hasty++; c.hasty < 4 {
		return false
	}
	c.setTimer(time.Now().Add(blockedRetry))
	return true
}

// blockedRetry is when something is tried again that is due and cannot be done,
// though the event that lifts the obstacle should come first.
const blockedRetry = 20 * time.Millisecond

// setTimer makes the goroutine run at t at the latest. A timer that is set earlier
// stays: it finds nothing to do and is set again, which is cheaper than to reset it
// with every packet.
func (c *Conn) setTimer(t time.Time) {
	if t.IsZero() || !c.timerAt.IsZero() && !t.Before(c.timerAt) || c.phase == phaseOver {
		return
	}
	c.timerAt = t
	c.timer.Reset(time.Until(t))
}

// nextTimer is the earliest time at which something is to be done.
func (c *Conn) nextTimer() (t time.Time) {
	first := func(u time.Time) {
		if !u.IsZero() && (t.IsZero() || u.Before(t)) {
			t = u
		}
	}
	if c.phase != phaseOpen {
		return c.closing.end
	}
	first(c.rec.Timer())
	if !c.snd.Held() { // else the socket wakes us
		first(c.snd.Timer())
		for i := range c.spaces {
			if sp := c.spaces[i]; sp != nil {
				first(sp.acks.deadline)
			}
		}
	}
	first(c.idleDeadline())
	if !c.complete {
		first(c.createdAt.Add(c.config.handshakeTimeout()))
	}
	first(c.keepAliveAt())
	first(c.mtu.timer())
	first(c.pathTimer())
	if !c.quiet.Load() {
		first(c.restAt())
	}
	return t
}

// tick does what is due, and reports whether the connection is over.
func (c *Conn) tick(now time.Time) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.phase {
	case phaseOver:
		return true
	case phaseClosing, phaseDraining:
		if now.Before(c.closing.end) {
			return false
		}
		c.markCloseSent() // or it never will be
		return true
	}
	if !c.complete && now.Sub(c.createdAt) >= c.config.handshakeTimeout() {
		c.abandon(&HandshakeTimeoutError{})
		return c.phase == phaseOver
	}
	if t := c.idleDeadline(); !now.Before(t) {
		// Silence needs no telling: the peer's timer runs as well (RFC 9000 §10.1).
		c.abandon(&IdleTimeoutError{})
		return true
	}
	if t := c.keepAliveAt(); !t.IsZero() && !now.Before(t) {
		c.pinged = true
		c.control.add(framePing, 0)
	}
	if t := c.rec.Timer(); !t.IsZero() && !now.Before(t) {
		if c.qlog != nil {
			c.qlog.timerExpired()
		}
		if probe, sp := c.rec.OnTimer(now); probe {
			if sp != recovery.App {
				for _, s := range c.spaces[:recovery.App] {
					if s != nil {
						s.send.probed = 0
					}
				}
			} else {
				c.mtu.timedOut(now)
			}
		}
		c.updatePacer()
		if c.qlog != nil {
			c.qlog.update()
		}
	}
	c.pathTick(now)
	c.rotateID()
	return c.phase == phaseOver
}

// idleDeadline is when the connection times out (RFC 9000 §10.1): the smaller of
// both sides' limits, but three PTOs at least.
func (c *Conn) idleDeadline() time.Time {
	if !c.complete {
		return c.idleFrom.Add(c.config.HandshakeIdleTimeout)
	}
	d := c.config.MaxIdleTimeout
	if c.params != nil && c.params.MaxIdleTimeout > 0 {
		d = min(d, c.params.MaxIdleTimeout)
	}
	return c.idleFrom.Add(max(d, 3*c.rec.PTO(recovery.App)))
}

// keepAliveAt is when a PING is due to keep the connection alive, zero for never.
func (c *Conn) keepAliveAt() time.Time {
	if c.config.KeepAlivePeriod <= 0 || !c.complete || c.pinged {
		return time.Time{}
	}
	d := c.config.MaxIdleTimeout
	if c.params != nil && c.params.MaxIdleTimeout > 0 {
		d = min(d, c.params.MaxIdleTimeout)
	}
	return c.lastReceived.Add(min(c.config.KeepAlivePeriod, d/2))
}

// sentEliciting restarts the idle timer when an ack-eliciting packet leaves for the
// first time since something arrived (RFC 9000 §10.1).
func (c *Conn) sentEliciting(now time.Time) {
	if !c.sentSince {
		c.sentSince = true
		c.idleFrom = now
	}
}

// updatePacer follows the congestion window and the round-trip time.
func (c *Conn) updatePacer() {
	srtt := time.Duration(0)
	if rtt := c.rec.RTT(); rtt.Has {
		srtt = rtt.Smoothed
	}
	c.pacer.SetRate(c.cc.Window(), srtt, c.cc.InSlowStart())
}

// sendAll sends what is due and reports whether there is more.
func (c *Conn) sendAll(now time.Time) (more bool) {
	c.mu.Lock()
	open := c.phase == phaseOpen
	c.mu.Unlock()
	if !open {
		c.sendClose(now)
		return false
	}
	c.sendLong(now)
	c.sendApart(now)
	// A few flights, then what arrived is looked at: a sender must not starve ACKs.
	return c.snd.Run(flightsPerRound)
}

const flightsPerRound = 2

// finish is the end of the connection's goroutine.
func (c *Conn) finish() {
	if c.tls != nil {
		c.tls.Close()
	}
	c.mu.Lock()
	c.phase = phaseOver
	c.timer.Stop()
	err := c.closeErr
	ids := c.ids.all()
	tokens := c.ids.resetTokens()
	transports := c.paths.transports
	c.snd.Stop()
	c.mu.Unlock()
	for _, t := range transports {
		for _, id := range ids {
			t.removeIDOf(id, c)
		}
		for _, tok := range tokens {
			t.removeResetToken(tok)
		}
		t.reading.forget(c)
	}
	c.inboxMu.Lock()
	for _, p := range c.inbox {
		p.buf.Release()
	}
	c.inbox, c.inboxEnd = nil, true
	c.inboxMu.Unlock()
	for _, p := range c.later {
		p.buf.Release()
	}
	c.later = nil
	if c.doneFunc != nil {
		c.doneFunc(c, err)
	}
}
