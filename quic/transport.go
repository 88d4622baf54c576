package quic

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/udp"
)

const (
	// defaultConnIDLen is enough to tell connections apart. It costs little in each
	// packet; what it lacks in entropy, newConnID makes up by trying again.
	defaultConnIDLen = 4

	defaultMaxTokenAge = 24 * time.Hour
)

var (
	errNoTLSConfig  = errors.New("quic: tls.Config not set")
	errHasListener  = errors.New("quic: the transport has a listener already")
	errNoFreeConnID = errors.New("quic: the connection ID generator repeats itself")
)

// A Transport sends and receives the packets of any number of connections over
// one socket, dialed and accepted ones alike; connection IDs tell them apart, not
// addresses. Its fields must be set before the first call of a method, and not
// changed after. The zero value with Conn set is ready for use.
//
// One goroutine reads the socket. It never runs application code. While one connection has
// the socket for itself, calls on it that wait, or send in bulk, may read in its place; where
// many are busy their goroutines do when it is late.
type Transport struct {
	// Conn is the socket, for this Transport alone: nobody else may read from it,
	// or send to it other than by [Transport.WriteTo].
	//
	// A *[net.UDPConn] gets all that the system offers: GSO, GRO, batched reads,
	// ECN, the don't-fragment bit, and large buffers. So does what [ListenUDP]
	// returns, for less CPU time. Any other PacketConn, a type that embeds
	// *net.UDPConn included, is used through ReadFrom and WriteTo.
	Conn net.PacketConn

	// ConnectionIDLength is the length of our connection IDs in bytes, up to 20.
	// With few bytes, IDs repeat sooner when there are many connections.
	// Default: 4.
	ConnectionIDLength int

	// ConnectionIDGenerator, if set, makes our connection IDs, and
	// ConnectionIDLength does not count. Default: random bytes.
	ConnectionIDGenerator ConnectionIDGenerator

	// StatelessResetKey lets this host end connections it no longer knows, for
	// instance after a restart with the same key (RFC 9000 §10.3). Default: none,
	// and no stateless resets are sent.
	StatelessResetKey *StatelessResetKey

	// TokenGeneratorKey encrypts address validation tokens. Servers behind one name
	// should share it (RFC 9000 §8.1.3). Default: a random key.
	TokenGeneratorKey *TokenGeneratorKey

	// MaxTokenAge is how long a token from a NEW_TOKEN frame is good for.
	// Default: 24 hours.
	MaxTokenAge time.Duration

	// DisableVersionNegotiationPackets keeps a server from answering packets of
	// versions it does not know (RFC 9000 §6).
	DisableVersionNegotiationPackets bool

	// VerifySourceAddress, if set, decides whether a client without a valid token
	// has to prove its address first, which takes one more round trip: a Retry (RFC
	// 9000 §8.1.2). The address may be forged. It is called for each new
	// connection, and should be quick.
	VerifySourceAddress func(net.Addr) bool

	// ConnContext, if set, makes the context of each accepted connection, that is
	// of [Conn.Context], of its streams, and of what crypto/tls hands to callbacks.
	// The context given is cancelled when the connection is over; the one returned
	// is usually derived from it, and must not be nil. An error refuses the
	// connection.
	ConnContext func(context.Context, *ClientInfo) (context.Context, error)

	// Tracer, if set, records events that belong to no connection. Close closes it.
	Tracer qlogwriter.Recorder

	createdConn bool // the socket was opened here, so it is closed here
	singleUse   bool // made by a package function, for one listener or one connection

	once    sync.Once
	initErr error
	// What follows is set by init, and read-only after.
	connIDLen int
	udp       *udp.Conn
	tokenKey  TokenGeneratorKey
	tokens    *handshake.Tokens // to make tokens; listeners have their own to check them
	resets    *resetKeys
	done      chan struct{} // closed when nobody reads the socket any more
	reading   reading
	share     share

	mu       sync.RWMutex
	ids      map[ConnectionID]*Conn
	held     map[ConnectionID][]packet // IDs of connections that newConn is still making
	byToken  map[[16]byte]*Conn        // keyed by resetKeys.hide(token)
	server   *server
	closed   bool
	closeErr error // what Dial and Listen return from now on
	draining bool  // closes with the last connection
	stopping bool  // the reader is told to end

	nonQUIC        chan nonQUICPacket
	readingNonQUIC atomic.Bool

	traceMu    sync.Mutex
	traceEnded bool
}

// Listen accepts connections on the socket, each once its handshake is complete.
// A Transport has one listener at a time. conf may be nil; tlsConf must have a
// certificate and NextProtos.
func (t *Transport) Listen(tlsConf *tls.Config, conf *Config) (*Listener, error) {
	s, err := t.listen(tlsConf, conf, false)
	if err != nil {
		return nil, err
	}
	return &Listener{s}, nil
}

// ListenEarly is Listen, but connections are accepted before their handshake is
// complete: see [EarlyListener].
func (t *Transport) ListenEarly(tlsConf *tls.Config, conf *Config) (*EarlyListener, error) {
	s, err := t.listen(tlsConf, conf, true)
	if err != nil {
		return nil, err
	}
	return &EarlyListener{s}, nil
}

func (t *Transport) listen(tlsConf *tls.Config, conf *Config, early bool) (*server, error) {
	if tlsConf == nil {
		return nil, errNoTLSConfig
	}
	if err := conf.validate(); err != nil {
		return nil, err
	}
	if err := t.init(false); err != nil {
		return nil, err
	}
	if err := t.checkPreferred(conf); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closeErr != nil:
		return nil, t.closeErr
	case t.server != nil:
		return nil, errHasListener
	}
	t.server = newServer(t, tlsConf, conf.populate(), early)
	return t.server, nil
}

// listenerClosed is called by a server that stops.
func (t *Transport) listenerClosed(s *server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.server == s {
		t.server = nil
	}
	if t.singleUse {
		t.draining = true
		if t.closeErr == nil {
			t.closeErr = ErrServerClosed
		}
		t.maybeDrained()
	}
}

// Dial opens a connection to addr and waits for the handshake. When ctx ends
// before, the error is its cause. conf may be nil.
func (t *Transport) Dial(ctx context.Context, addr net.Addr, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return t.dial(ctx, addr, "", tlsConf, conf, false)
}

// DialEarly is Dial, but returns as soon as data can be sent. With a session ticket of
// the server's in tlsConf.ClientSessionCache that allows 0-RTT, that is at once: what is
// sent before the handshake is complete may be replayed by an attacker, and the server may
// reject it (see [Err0RTTRejected] and [Conn.NextConnection]).
func (t *Transport) DialEarly(ctx context.Context, addr net.Addr, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return t.dial(ctx, addr, "", tlsConf, conf, true)
}

// WriteTo sends b to addr as a datagram of its own, past all connections. It is
// for other protocols on the same socket, see [Transport.ReadNonQUICPacket].
func (t *Transport) WriteTo(b []byte, addr net.Addr) (int, error) {
	if err := t.init(false); err != nil {
		return 0, err
	}
	return t.Conn.WriteTo(b, addr)
}

// Close ends all connections at once, with [ErrTransportClosed], and without
// telling their peers: close connections that should end properly before. Connections
// that have moved to another Transport go on (see [Conn.AddPath]). It
// closes the listener and waits until nobody reads the socket any more, but leaves
// the socket open. The Transport is of no use after.
func (t *Transport) Close() error {
	// A call of init that is under way has ended then.
	if err := t.init(false); err != nil {
		if t.createdConn {
			return t.Conn.Close()
		}
		return nil
	}
	t.shutdown(nil)
	<-t.done
	return nil
}

// shutdown is Close, but does not wait for the reader. cause is what went wrong
// with the socket, if anything.
func (t *Transport) shutdown(cause error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.closed = true
	err := &errTransportClosed{cause}
	t.closeErr = err
	s := t.server
	t.server = nil
	conns := make(map[*Conn]struct{})
	for _, c := range t.ids {
		conns[c] = struct{}{}
	}
	t.mu.Unlock()

	if s != nil {
		s.close(err, true)
	}
	for c := range conns {
		c.transportClosed(t, err)
	}

	t.mu.Lock()
	t.stopReader()
	t.mu.Unlock()
	t.endTrace()
}

// stopReader makes readLoop return. t.mu is held.
func (t *Transport) stopReader() {
	if !t.stopping {
		t.stopping = true
		t.udp.SetReadDeadline(longAgo)
		signal(t.reading.nudge)
	}
}

func (t *Transport) isStopping() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.stopping
}

// clearDeadline takes back the read deadline by which a reader was called away. It reports
// true if it has to stay, as nobody is to read any more.
func (t *Transport) clearDeadline() (stopping bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopping {
		t.udp.SetReadDeadline(time.Time{})
	}
	return t.stopping
}

// maybeDrained ends a transport that only waits for its last connection. t.mu is
// held.
func (t *Transport) maybeDrained() {
	if t.draining && len(t.ids) == 0 && len(t.held) == 0 {
		t.stopReader()
	}
}

// init runs once, whoever comes first. With emptyIDs, connection IDs have no
// bytes unless the application asked for some: one connection alone on its socket
// needs none.
func (t *Transport) init(emptyIDs bool) error {
	t.once.Do(func() { t.initErr = t.start(emptyIDs) })
	return t.initErr
}

func (t *Transport) start(emptyIDs bool) error {
	if t.Conn == nil {
		return errors.New("quic: Transport.Conn not set")
	}
	t.connIDLen = t.ConnectionIDLength
	if t.ConnectionIDGenerator != nil {
		t.connIDLen = t.ConnectionIDGenerator.ConnectionIDLen()
	} else if t.connIDLen == 0 && !emptyIDs {
		t.connIDLen = defaultConnIDLen
	}
	if t.connIDLen < 0 || t.connIDLen > maxConnIDLen {
		return fmt.Errorf("quic: connection IDs of %d bytes", t.connIDLen)
	}
	u, err := udp.New(t.Conn)
	if err != nil {
		return err
	}
	if t.TokenGeneratorKey != nil {
		t.tokenKey = *t.TokenGeneratorKey
	} else {
		rand.Read(t.tokenKey[:])
	}
	t.udp = u
	t.tokens = handshake.NewTokens(t.tokenKey)
	t.resets = newResetKeys(t.StatelessResetKey)
	t.done = make(chan struct{})
	t.ids = make(map[ConnectionID]*Conn)
	t.held = make(map[ConnectionID][]packet)
	t.byToken = make(map[[16]byte]*Conn)
	t.nonQUIC = make(chan nonQUICPacket, maxNonQUICPackets)
	t.reading.init(t, u)
	go t.readLoop()
	return nil
}

func (t *Transport) udpConn() *udp.Conn { return t.udp }

// newToken returns a token for a NEW_TOKEN frame.
func (t *Transport) newToken(remote net.Addr) []byte { return t.tokens.NewToken(remote) }

// newConnID returns a connection ID that is not in use. With random IDs of 4
// bytes, every second host with 80,000 IDs sees one twice.
func (t *Transport) newConnID() (ConnectionID, error) {
	for range 10 {
		id := randomConnID(t.connIDLen)
		if g := t.ConnectionIDGenerator; g != nil {
			var err error
			if id, err = g.GenerateConnectionID(); err != nil {
				return ConnectionID{}, err
			}
			if !id.Valid() {
				id = ConnectionIDFromBytes(nil)
			}
			if id.Len() != t.connIDLen {
				return ConnectionID{}, fmt.Errorf("quic: the connection ID generator promised %d bytes and made %d", t.connIDLen, id.Len())
			}
		}
		t.mu.RLock()
		used := t.ids[id] != nil
		t.mu.RUnlock()
		if !used {
			return id, nil
		}
	}
	return ConnectionID{}, errNoFreeConnID
}

// addID makes packets to id go to c. It returns false if they go elsewhere
// already, or the transport is closed.
func (t *Transport) addID(id ConnectionID, c *Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, held := t.held[id]; held || t.closed || t.ids[id] != nil {
		return false
	}
	t.ids[id] = c
	return true
}

// removeID undoes addID.
func (t *Transport) removeID(id ConnectionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ids, id)
	t.maybeDrained()
}

// removeIDOf is removeID, but leaves an ID that belongs to another connection.
func (t *Transport) removeIDOf(id ConnectionID, c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids[id] == c {
		delete(t.ids, id)
		t.maybeDrained()
	}
}

// maxHeld bounds the packets kept for a connection that is being made.
const maxHeld = 16

// hold reserves id for a connection that is about to be made, and keeps what
// arrives for it: a fast peer answers before newConn has returned.
func (t *Transport) hold(id ConnectionID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closeErr != nil {
		return t.closeErr
	}
	if _, held := t.held[id]; held || t.ids[id] != nil {
		return errNoFreeConnID
	}
	t.held[id] = nil
	return nil
}

// settle ends hold: id belongs to c now, or to nobody if c is nil. It returns
// false if the transport was closed meanwhile.
func (t *Transport) settle(id ConnectionID, c *Conn) bool {
	t.mu.Lock()
	ps := t.held[id]
	delete(t.held, id)
	if t.closed {
		c = nil
	}
	if c != nil {
		t.ids[id] = c
	}
	closed := t.closed
	t.mu.Unlock()

	if c != nil && len(ps) > 0 {
		c.deliver(ps)
	} else {
		for _, p := range ps {
			p.buf.Release()
		}
	}
	return !closed
}

// keep takes p over if id is held.
func (t *Transport) keep(id ConnectionID, p packet) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ps, held := t.held[id]
	switch {
	case !held:
		return false
	case len(ps) == maxHeld:
		p.buf.Release()
	default:
		t.held[id] = append(ps, p)
	}
	return true
}

// find returns the connection that id belongs to. held says that it is being made.
func (t *Transport) find(id ConnectionID) (c *Conn, held bool) {
	t.mu.RLock()
	c = t.ids[id]
	if c == nil && len(t.held) > 0 {
		_, held = t.held[id]
	}
	t.mu.RUnlock()
	return c, held
}

// record hands an event to the tracer, if there is one.
func (t *Transport) record(e qlogwriter.Event) {
	if t.Tracer == nil {
		return
	}
	t.traceMu.Lock()
	defer t.traceMu.Unlock()
	if !t.traceEnded {
		t.Tracer.RecordEvent(e)
	}
}

func (t *Transport) endTrace() {
	if t.Tracer == nil {
		return
	}
	t.traceMu.Lock()
	defer t.traceMu.Unlock()
	if !t.traceEnded {
		t.traceEnded = true
		t.Tracer.Close()
	}
}

// drop records that a packet was dropped, and why, and releases it.
func (t *Transport) drop(p packet, why qlog.PacketDropReason) {
	if t.Tracer != nil {
		t.record(qlog.PacketDropped{
			Raw:     qlog.RawInfo{Length: len(p.data), PayloadLength: qlog.OmitLength},
			Trigger: why,
		})
	}
	p.buf.Release()
}
