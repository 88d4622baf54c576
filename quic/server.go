package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

const (
	// maxAcceptQueue bounds the connections that wait for Accept. The next one is
	// refused: nobody would serve it.
	maxAcceptQueue = 128

	// What waits to be looked at by the server's goroutine, in datagrams and bytes.
	maxServerQueue      = 1024
	maxServerQueueBytes = 4 << 20
)

// A server makes connections of the packets that belong to none. It has one
// goroutine, which runs the application's callbacks: they hold up new
// connections, but not the reader of the socket and with it all connections.
type server struct {
	t      *Transport
	tls    *tls.Config
	config *Config // populated
	early  bool
	tokens *handshake.Tokens

	in     chan packet // single datagrams
	queued atomic.Int64
	quit   chan struct{} // closed by close

	negotiations limiter // of run

	mu          sync.Mutex
	accepted    chan *Conn // sent to with mu held
	handshaking map[*Conn]struct{}
	closeErr    error // not nil: closed
}

// newServer starts a server. conf is populated.
func newServer(t *Transport, tlsConf *tls.Config, conf *Config, early bool) *server {
	s := &server{
		t:            t,
		tls:          tlsConf,
		config:       conf,
		early:        early,
		tokens:       handshake.NewTokens(t.tokenKey),
		in:           make(chan packet, maxServerQueue),
		quit:         make(chan struct{}),
		negotiations: limiter{rate: 1000, burst: 100},
		accepted:     make(chan *Conn, maxAcceptQueue),
		handshaking:  make(map[*Conn]struct{}),
	}
	// A Retry is answered at once, or the handshake fails anyway.
	s.tokens.MaxRetryAge = conf.handshakeTimeout()
	s.tokens.MaxAge = defaultMaxTokenAge
	if t.MaxTokenAge != 0 {
		s.tokens.MaxAge = t.MaxTokenAge
	}
	go s.run()
	return s
}

// accept waits for a connection. After close it empties the queue first.
func (s *server) accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.quit:
	}
	select {
	case c := <-s.accepted:
		return c, nil
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.closeErr
	}
}

// close refuses the connections that are not established, and all further ones.
// With all, connections that wait for accept are forgotten, too: the caller
// destroys them.
func (s *server) close(err error, all bool) {
	s.mu.Lock()
	if s.closeErr != nil {
		s.mu.Unlock()
		return
	}
	s.closeErr = err
	refused := s.handshaking
	s.handshaking = nil
	if all {
		for len(s.accepted) > 0 {
			<-s.accepted
		}
	}
	s.mu.Unlock()
	close(s.quit)

	if all {
		return
	}
	for c := range refused {
		c.refuse()
	}
	s.t.listenerClosed(s)
}

// enqueue takes p over, cut into datagrams, each with memory of its own size: a
// coalesced message is 64 KiB, too much to keep for somebody unknown. What does
// not fit is dropped. It does not block: the reader of the socket calls it.
func (s *server) enqueue(p packet) {
	if len(p.buf.Bytes()) == len(p.datagram()) {
		s.enqueueDatagram(p)
		return
	}
	for b := p.data; len(b) > 0; {
		q := p
		n := min(p.segment, len(b))
		q.buf = udp.CopyBuffer(b[:n])
		q.data, q.segment = q.buf.Bytes(), n
		s.enqueueDatagram(q)
		b = b[n:]
	}
	p.buf.Release()
}

func (s *server) enqueueDatagram(p packet) {
	n := pinned(p)
	if s.queued.Add(n) <= maxServerQueueBytes {
		select {
		case s.in <- p:
			return
		default:
		}
	}
	s.queued.Add(-n)
	s.t.drop(p, qlog.PacketDropDOSPrevention)
}

// pinned is how much memory a datagram keeps: udp's buffers come in two sizes.
func pinned(p packet) int64 {
	if len(p.data) <= 2<<10 {
		return 2 << 10
	}
	return 64 << 10
}

func (s *server) run() {
	for {
		select {
		case <-s.quit:
			return
		case p := <-s.in:
			s.queued.Add(-pinned(p))
			s.handle(p)
		}
	}
}

// handle deals with one datagram that belonged to no connection when it came.
// It takes p over.
func (s *server) handle(p packet) {
	h, err := wire.ParseLong(p.data)
	switch {
	case err != nil:
		s.t.drop(p, qlog.PacketDropHeaderParseError)
		return
	case h.Type == wire.VersionNegotiation:
		// RFC 9000 §6.1: never answered.
		s.t.drop(p, qlog.PacketDropUnexpectedPacket)
		return
	case !slices.Contains(s.config.Versions, Version(h.Version)):
		s.negotiateVersion(p, h)
		return
	}

	// Its connection may have been made of a packet that came just before it.
	dst := ConnectionIDFromBytes(h.Dst)
	if c, _ := s.t.find(dst); c != nil {
		c.deliver([]packet{p})
		return
	}
	// RFC 9287 §3.1: who has no token of ours cannot know that this is welcome.
	if h.Greased && len(h.Token) == 0 {
		s.t.drop(p, qlog.PacketDropHeaderParseError)
		return
	}
	// RFC 9000 §5.2.2: 0-RTT packets that overtake their Initial may be dropped.
	// This is the place to keep them for a while once 0-RTT is offered.
	//
	// RFC 9000 §14.1: "A server MUST discard an Initial packet that is carried in
	// a UDP datagram with a payload that is smaller than the smallest allowed
	// maximum datagram size of 1200 bytes."
	if h.Type != wire.Initial || len(p.data) < minPacketSize {
		s.t.drop(p, qlog.PacketDropUnexpectedPacket)
		return
	}

	first := firstPacket{packet: p, header: h, dst: dst, origDst: dst}
	switch s.checkToken(&first) {
	case tokenBad:
		s.rejectToken(first)
		return
	case tokenNone:
		// RFC 9000 §7.2: the client's first choice must be hard to guess. After a
		// Retry it is ours.
		if len(h.Dst) < 8 {
			s.t.drop(p, qlog.PacketDropUnexpectedPacket)
			return
		}
		if verify := s.t.VerifySourceAddress; verify != nil && !first.validated && verify(p.addr()) {
			s.retry(first)
			return
		}
	}
	s.connect(first)
}

// firstPacket is an Initial that may begin a connection.
type firstPacket struct {
	packet
	header    wire.LongHeader
	dst       ConnectionID  // what it is addressed to
	origDst   ConnectionID  // what the client's very first Initial was addressed to
	retrySrc  *ConnectionID // after a Retry: the ID we took in it; equals dst
	validated bool          // the client has proved its address
}

type tokenVerdict uint8

const (
	tokenNone  tokenVerdict = iota // go on as if the Initial had none; or as validated, if NEW_TOKEN proves it
	tokenRetry                     // the client comes back from a Retry
	tokenBad                       // the client can never come back from its Retry
)

// checkToken looks at the token of f, and fills in what it says (RFC 9000 §8.1).
func (s *server) checkToken(f *firstPacket) tokenVerdict {
	if len(f.header.Token) == 0 {
		return tokenNone
	}
	tok, err := s.tokens.Open(f.header.Token, f.addr())
	if !tok.IsRetry || errors.Is(err, handshake.ErrToken) {
		// RFC 9000 §8.1.3: a token that is no good is like none at all.
		f.validated = err == nil
		return tokenNone
	}
	// RFC 9000 §8.1.2: a client follows one Retry only, so there is no use in
	// another. A token that comes with another connection ID than that of its Retry
	// would fail the check of transport parameters (§7.3).
	if err != nil || string(tok.RetrySrc) != string(f.header.Dst) || len(tok.OrigDst) > maxConnIDLen {
		return tokenBad
	}
	f.origDst = ConnectionIDFromBytes(tok.OrigDst)
	src := f.dst // the connection keeps it, and not all of f
	f.retrySrc = &src
	f.validated = true
	return tokenRetry
}

// connect makes a connection, if the application wants it.
func (s *server) connect(f firstPacket) {
	info := &ClientInfo{RemoteAddr: f.addr(), AddrVerified: f.validated}
	conf := s.config
	if get := conf.GetConfigForClient; get != nil {
		c, err := get(info)
		if err == nil {
			err = c.validate()
		}
		if err == nil {
			err = s.t.checkPreferred(c)
		}
		if err != nil {
			s.reject(f, ConnectionRefused)
			return
		}
		conf = c.populate()
	}
	ctx, cancel := context.Background(), func(error) {}
	if mk := s.t.ConnContext; mk != nil {
		ctx, cancel = context.WithCancelCause(ctx) // the connection's own begins with what mk makes of it
		c, err := mk(ctx, info)
		if err != nil {
			cancel(err)
			s.reject(f, ConnectionRefused)
			return
		}
		if c == nil {
			panic("quic: ConnContext returned nil")
		}
		ctx = c
	}
	if err := s.start(f, conf, ctx, cancel); err != nil {
		cancel(err)
		s.reject(f, ConnectionRefused)
	}
}

// start makes a connection, registers it, and gives it its first packet, which
// it takes over unless it fails.
func (s *server) start(f firstPacket, conf *Config, ctx context.Context, cancel context.CancelCauseFunc) error {
	src, err := s.t.newConnID()
	if err != nil {
		return err
	}
	dst := f.dst // all of f would be kept as long as the connection
	c, err := newConn(connParams{
		transport:     s.t,
		config:        conf,
		tls:           s.tls,
		version:       Version(f.header.Version),
		remote:        f.addr(),
		route:         f.reply(),
		srcID:         src,
		destID:        ConnectionIDFromBytes(f.header.Src),
		origDst:       f.origDst,
		retrySrc:      f.retrySrc,
		addrValidated: f.validated,
		ctx:           withVersion(ctx, Version(f.header.Version)),
		early:         s.early,
		ready:         s.ready,
		done: func(c *Conn, err error) {
			// It has given back the IDs it chose. This one the client chose, or the
			// Retry, and by now it may be another connection's.
			s.t.removeIDOf(dst, c)
			s.forget(c)
			cancel(err)
		},
	})
	if err != nil {
		return err
	}
	// It does nothing before its first packet, so it cannot be over yet.
	s.mu.Lock()
	closed := s.closeErr != nil
	if !closed {
		s.handshaking[c] = struct{}{}
	}
	s.mu.Unlock()

	// The client goes on to use f.dst until it hears of src, and its repeated
	// Initials must not make further connections.
	if closed || !s.t.addID(src, c) || !s.t.addID(f.dst, c) {
		s.forget(c)
		s.t.removeID(src)
		c.destroy(ErrServerClosed)
		return ErrServerClosed
	}
	c.deliver([]packet{f.packet})
	return nil
}

// ready is called by a connection that may be accepted.
func (s *server) ready(c *Conn) {
	s.mu.Lock()
	delete(s.handshaking, c)
	full := false
	if s.closeErr == nil {
		select {
		case s.accepted <- c:
		default:
			full = true
		}
	}
	s.mu.Unlock()
	if full {
		c.refuse()
	}
}

// forget is called by a connection that is over.
func (s *server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.handshaking, c)
	s.mu.Unlock()
}

// negotiateVersion tells a client which versions we speak (RFC 9000 §6.1). It
// takes p over.
func (s *server) negotiateVersion(p packet, h wire.LongHeader) {
	// RFC 9000 §5.2.2: only for packets that are large enough to begin a
	// connection, so that the answer is the smaller one.
	if s.t.DisableVersionNegotiationPackets || len(p.data) < minPacketSize || !s.negotiations.allow(p.at) {
		s.t.drop(p, qlog.PacketDropUnexpectedVersion)
		return
	}
	versions := make([]uint32, 0, len(s.config.Versions)+1)
	for _, v := range s.config.Versions {
		versions = append(versions, uint32(v))
	}
	versions = slices.Insert(versions, rand.IntN(len(versions)+1), reservedVersion(rand.Uint32(), h.Version))
	b := wire.AppendVersionNegotiation(nil, h.Src, h.Dst, versions)
	s.t.record(qlog.VersionNegotiationSent{
		Header:            qlog.PacketHeaderVersionNegotiation{SrcConnectionID: slices.Clone(h.Dst), DestConnectionID: slices.Clone(h.Src)},
		SupportedVersions: s.config.Versions,
	})
	s.send(p, b)
	p.buf.Release()
}

// reservedVersion returns one of the versions that nobody speaks, so that clients
// get used to seeing some they do not know (RFC 9000 §6.3). It is not the client's,
// or the client would take the packet for a forgery (§6.2).
func reservedVersion(random, clients uint32) uint32 {
	v := random&0xf0f0f0f0 | 0x0a0a0a0a
	if v == clients {
		v ^= 0x10
	}
	return v
}

// retry asks a client to come back with a token (RFC 9000 §8.1.2). It takes f
// over.
func (s *server) retry(f firstPacket) {
	defer f.buf.Release()
	src, err := s.t.newConnID()
	if err != nil {
		return
	}
	h := f.header
	token := s.tokens.NewRetry(f.addr(), h.Dst, connIDBytes(&src))
	b := wire.AppendRetry(nil, h.Version, h.Src, connIDBytes(&src), token)
	tag := protect.RetryTag(h.Version, h.Dst, b)
	b = append(b, tag[:]...)
	s.t.record(qlog.PacketSent{
		Header: qlog.PacketHeader{
			PacketType:       qlog.PacketTypeRetry,
			SrcConnectionID:  src,
			DestConnectionID: ConnectionIDFromBytes(h.Src),
			Version:          Version(h.Version),
			Token:            &qlog.Token{Raw: token},
		},
		Raw: qlog.RawInfo{Length: len(b), PayloadLength: qlog.OmitLength},
	})
	s.send(f.packet, b)
}

// rejectToken closes the connection that f wants with INVALID_TOKEN. Only an
// authentic packet is worth it: in a damaged one the token may be, too. It takes f
// over.
func (s *server) rejectToken(f firstPacket) {
	client, _ := protect.InitialSecrets(f.header.Version, f.header.Dst)
	o, err := protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, client, f.header.Version)
	if err == nil {
		// In place: from here on, only the header is of use.
		_, _, err = o.Open(f.data[:f.header.Len], f.header.PNOffset, -1)
	}
	if err != nil {
		s.t.drop(f.packet, qlog.PacketDropPayloadDecryptError)
		return
	}
	s.reject(f, InvalidToken)
}

// reject answers f with a CONNECTION_CLOSE, and keeps nothing. It takes f over.
func (s *server) reject(f firstPacket, code TransportErrorCode) {
	defer f.buf.Release()
	h := f.header
	_, secret := protect.InitialSecrets(h.Version, h.Dst)
	sealer, err := protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, secret, h.Version)
	if err != nil {
		return
	}
	const pnLen = 4
	frame := wire.ConnectionClose{Code: uint64(code)}
	n := pnLen + frame.Len() + sealer.Overhead()
	// Not padded: nothing in it elicits an acknowledgment (RFC 9000 §14.1).
	b := wire.AppendLong(nil, wire.Initial, h.Version, h.Src, h.Dst, nil, n, 0, pnLen)
	pnOff := len(b) - pnLen
	b = frame.Append(b)
	b = append(b, make([]byte, sealer.Overhead())...)
	sealer.Seal(b, pnOff, pnLen, 0)
	s.t.record(qlog.PacketSent{
		Header: qlog.PacketHeader{
			PacketType:       qlog.PacketTypeInitial,
			SrcConnectionID:  f.dst,
			DestConnectionID: ConnectionIDFromBytes(h.Src),
			Version:          Version(h.Version),
		},
		Raw:    qlog.RawInfo{Length: len(b), PayloadLength: n},
		Frames: []qlog.Frame{{Frame: &qlog.ConnectionCloseFrame{ErrorCode: uint64(code)}}},
	})
	s.send(f.packet, b)
}

// send sends b to where p came from. If the kernel is busy, it is lost: the client
// asks again.
func (s *server) send(p packet, b []byte) {
	way := p.reply()
	s.t.udp.Send(&way, b, len(b), udp.NotECT)
}
