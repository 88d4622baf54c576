package quic

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

const (
	// maxInbox bounds the messages that wait for a connection's goroutine. Beyond, the
	// network is faster than we are, and what more arrives is dropped.
	maxInbox = 512

	// maxLater bounds the datagrams kept that no key opens yet, as when 1-RTT packets
	// overtake the end of the handshake (RFC 9000 §5.2.1, RFC 9001 §5.7).
	maxLater = 16

	// maxOpened is how many packets are opened before the mutex is taken for them.
	maxOpened = 128
)

// packet is one message from the socket: one datagram, or several of one sender
// that the kernel joined, all with the same destination connection ID.
type packet struct {
	buf        *udp.Buffer
	data       []byte
	segment    int // bytes of every datagram but the last
	remote     netip.AddrPort
	remoteAddr net.Addr
	local      udp.Local
	ecn        udp.ECN
	at         time.Time
	held       *heldBuffer // set while the connection looks at it, if streams may keep data in buf
	via        *Transport
	by         *path // found by the connection
}

// openedPacket is a 1-RTT packet whose frames wait to be looked at.
type openedPacket struct {
	pn     int64
	b      []byte // the whole packet, decrypted in place
	header uint8  // how long its header is
	ecn    udp.ECN
	at     time.Time
	held   *heldBuffer
	by     *path
}

func (p *openedPacket) payload() []byte { return p.b[p.header : len(p.b)-sealTag] }

// deliver hands packets to the connection. It takes over one reference of each
// buffer, never blocks, and is called by whoever reads the socket.
func (c *Conn) deliver(ps []packet) {
	c.inboxMu.Lock()
	n := len(ps)
	if c.inboxEnd {
		n = 0
	} else if room := maxInbox - len(c.inbox); n > room {
		n = max(room, 0)
	}
	c.inbox = append(c.inbox, ps[:n]...)
	c.inboxMu.Unlock()
	if n < len(ps) && c.qlog != nil {
		c.qlog.messagesDropped(ps[n:], qlog.PacketDropDOSPrevention)
	}
	for _, p := range ps[n:] {
		p.buf.Release()
	}
	c.wakeUp()
}

// receive takes in what has arrived.
func (c *Conn) receive() {
	c.inboxMu.Lock()
	ps := c.inbox
	c.inbox = c.spare[:0]
	c.inboxMu.Unlock()
	for i := range ps {
		c.message(&ps[i])
	}
	c.takeOpened()
	c.mu.Lock()
	c.noteOurID(ps)
	for i := range ps {
		if h := ps[i].held; h != nil {
			h.Release()
		} else {
			ps[i].buf.Release()
		}
	}
	c.mu.Unlock()
	clear(ps)
	c.spare = ps[:0]
}

// message takes in one message's datagrams.
func (c *Conn) message(p *packet) {
	c.mu.Lock()
	phase := c.phase
	n := (len(p.data) + p.segment - 1) / p.segment
	c.stats.BytesReceived += uint64(len(p.data))
	c.stats.PacketsReceived += uint64(n)
	p.by = c.paths.active
	if p.remote != p.by.remote || p.via != p.by.transport || !p.remote.IsValid() ||
		c.paths.locals && p.local.Addr != p.by.local {
		p.by = c.pathOf(p)
	}
	if p.by == nil { // it is of nobody we know
		c.mu.Unlock()
		if c.qlog != nil {
			c.qlog.messagesDropped([]packet{*p}, qlog.PacketDropUnexpectedPacket)
		}
		return
	}
	if phase == phaseOpen {
		c.hold(p)
	}
	switch {
	case p.by != c.paths.active:
		p.by.in += len(p.data)
	case !c.validated:
		c.bytesIn += len(p.data)
		c.rec.SetAmplificationLimited(false)
	}
	if phase == phaseClosing {
		c.closing.received(n)
	}
	c.mu.Unlock()
	if phase != phaseOpen {
		if phase == phaseClosing {
			c.watchForClose(p)
		}
		return
	}
	for rest := p.data; len(rest) > 0; {
		n := min(p.segment, len(rest))
		c.datagram(p, rest[:n:n])
		rest = rest[n:]
	}
}

// datagram takes in the packets of one datagram (RFC 9000 §12.2).
func (c *Conn) datagram(p *packet, b []byte) {
	size := len(b)
	var dst []byte // what the first packet is addressed to
	for len(b) > 0 {
		if !wire.IsLong(b[0]) {
			// A short header packet runs to the end of the datagram. Nearly always it
			// is the first, which the transport has looked at.
			if id := b[1:min(1+c.transport.connIDLen, len(b))]; dst == nil || string(id) == string(dst) && (c.greases || b[0]&wire.QUICBit != 0) {
				c.shortPacket(p, b)
			} else {
				c.dropped(b, qlog.PacketDropUnknownConnectionID)
			}
			return
		}
		h, err := wire.ParseLong(b)
		if err != nil || h.Greased && !c.greases {
			c.dropped(b, qlog.PacketDropHeaderParseError)
			return
		}
		// All go to one connection ID.
		if h.Type != wire.VersionNegotiation && !c.isOurID(h.Dst) || dst != nil && string(h.Dst) != string(dst) {
			c.dropped(b, qlog.PacketDropUnknownConnectionID)
			return
		}
		dst = h.Dst
		n := min(h.Len, len(b))
		if h.Type == wire.VersionNegotiation || h.Type == wire.Retry {
			n = len(b)
		}
		// RFC 9000 §14.1: a server discards an Initial in a datagram that is too small.
		if h.Type != wire.Initial || c.isClient || size >= minPacketSize {
			c.longPacket(p, h, b[:n:n])
		} else {
			c.dropped(b[:n], qlog.PacketDropUnexpectedPacket)
		}
		b = b[n:]
	}
}

func (c *Conn) isOurID(dst []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids.isLocal(dst) || !c.isClient && string(dst) == string(connIDBytes(&c.keyID))
}

// shortPacket opens one 1-RTT packet; its frames are looked at with those of the
// batch, in one hold of the mutex.
func (c *Conn) shortPacket(p *packet, b []byte) {
	if c.oneRTT == nil || !c.tlsComplete() {
		c.keep(p, b)
		return
	}
	pnOff := 1 + c.transport.connIDLen
	if len(b) < pnOff+4+16 {
		c.openFailed(protect.ErrDecrypt, b) // a stateless reset may be that short
		return
	}
	pn, payload, err := c.oneRTT.Open(b, pnOff, c.largest1RTT())
	if err != nil {
		c.openFailed(err, b)
		return
	}
	c.opened = append(c.opened, openedPacket{pn, b, uint8(len(b) - sealTag - len(payload)), p.ecn, p.at, p.held, p.by})
	if len(c.opened) == maxOpened {
		c.takeOpened()
	}
}

// largest1RTT is the largest 1-RTT number so far, those not looked at included.
func (c *Conn) largest1RTT() int64 {
	if n := len(c.opened); n > 0 && c.opened[n-1].pn > c.spaces[recovery.App].acks.largest {
		return c.opened[n-1].pn
	}
	// Only this goroutine changes it, so it may be read without the mutex.
	return c.spaces[recovery.App].acks.largest
}

// tlsComplete reports whether 1-RTT packets may be opened (RFC 9001 §5.7). Only this
// goroutine changes c.complete.
func (c *Conn) tlsComplete() bool { return c.complete }

// openFailed handles a packet that did not open: it is dropped, unless the error must
// close the connection, or it was a stateless reset (RFC 9000 §10.3.1).
func (c *Conn) openFailed(err error, b []byte) {
	if errors.Is(err, protect.ErrDecrypt) {
		if c.isReset(b) {
			c.statelessReset()
		} else {
			c.dropped(b, qlog.PacketDropPayloadDecryptError)
		}
		return
	}
	c.fail(err)
}

func (c *Conn) isReset(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.paths.transports, func(t *Transport) bool { return t.findByToken(b) == c })
}

// keep puts a datagram aside until there are keys for it.
func (c *Conn) keep(p *packet, b []byte) {
	if len(c.later) >= maxLater {
		c.dropped(b, qlog.PacketDropDOSPrevention)
		return
	}
	if c.qlog != nil {
		c.qlog.buffered(b)
	}
	q := *p
	q.buf, q.held = udp.CopyBuffer(b), nil
	q.data = q.buf.Bytes()
	q.segment = len(q.data)
	c.later = append(c.later, q)
}

// replay looks again at what was put aside, as there are new keys.
func (c *Conn) replay() {
	ps := c.later
	c.later = nil
	for i := range ps {
		c.datagram(&ps[i], ps[i].data)
	}
	c.takeOpened()
	for i := range ps {
		ps[i].buf.Release()
	}
}

// takeOpened looks at the frames of the 1-RTT packets opened so far.
func (c *Conn) takeOpened() {
	ps := c.opened
	if len(ps) == 0 {
		return
	}
	c.opened = c.opened[:0]
	now := time.Now()
	c.mu.Lock()
	c.takingIn = true
	acks := &c.spaces[recovery.App].acks
	// Key updates come first: an ACK of these packets must not be ahead of them.
	err := c.oneRTT.Received(now, c.rec.PTO(recovery.App))
	trace := c.qlog
	if trace != nil {
		trace.receivedGeneration()
	}
	for i := range ps {
		if err != nil || c.phase != phaseOpen {
			break
		}
		p := &ps[i]
		if acks.seen(p.pn) {
			if trace != nil {
				trace.dropped(p.b, p.pn, qlog.PacketDropDuplicate)
			}
			continue
		}
		if p.by != c.paths.active && c.leftBehind(p) {
			if trace != nil {
				trace.dropped(p.b, p.pn, qlog.PacketDropUnexpectedPacket)
			}
			continue
		}
		if trace != nil {
			trace.received(p.by, p.b, int(p.header), p.pn, p.ecn)
		}
		var eliciting bool
		c.paths.from = p.by
		if eliciting, err = c.frames(p.payload(), wire.OneRTT, now, p.held.memory()); err != nil {
			break
		}
		acks.received(p.pn, p.at, eliciting, false, p.ecn)
		if p.by != c.paths.active {
			c.receivedElsewhere(p, now)
		} else if p.pn > c.paths.highest {
			c.paths.highest = p.pn
		}
	}
	c.paths.from = nil
	if err == nil {
		c.authentic(now)
	}
	crypto := len(c.spaces[recovery.App].recv.got) > 0
	c.updatePacer()
	if trace != nil {
		trace.update()
	}
	c.takingIn = false
	roused := c.roused
	c.mu.Unlock()
	for _, w := range roused {
		w.Signal()
	}
	clear(roused)
	c.roused = roused[:0] // only who has the turn takes packets in
	clear(ps)
	if err != nil {
		c.fail(err)
		return
	}
	switch {
	case !crypto:
	case c.visited:
		c.tlsDue = true // it calls the application
	default:
		c.driveTLS()
	}
}

// authentic notes that the peer is alive.
func (c *Conn) authentic(now time.Time) {
	c.gotFirst = true
	c.lastReceived, c.idleFrom = now, now
	c.sentSince, c.pinged = false, false
}

// longPacket takes in a packet with a long header.
func (c *Conn) longPacket(p *packet, h wire.LongHeader, b []byte) {
	switch h.Type {
	case wire.VersionNegotiation:
		c.versionNegotiation(b)
		return
	case wire.Retry:
		c.followRetry(h, b)
		return
	}
	if h.Version != uint32(c.version) {
		c.dropped(b, qlog.PacketDropUnexpectedVersion)
		return
	}
	if h.Type == wire.ZeroRTT {
		c.zeroPacket(p, h, b)
		return
	}
	var sp recovery.Space
	switch h.Type {
	case wire.Initial:
		sp = recovery.Initial
		if c.isClient && len(h.Token) > 0 {
			c.dropped(b, qlog.PacketDropUnexpectedPacket)
			return // RFC 9000 §17.2.2: a server's Initial has no token
		}
	case wire.Handshake:
		sp = recovery.Handshake
	default:
		c.dropped(b, qlog.PacketDropUnexpectedPacket)
		return
	}
	s := c.spaces[sp]
	if s == nil {
		c.dropped(b, qlog.PacketDropKeysUnavailable)
		return
	}
	if s.opener == nil {
		c.keep(p, b)
		return
	}
	pn, payload, err := s.opener.Open(b, h.PNOffset, s.acks.largest)
	if err != nil {
		c.openFailed(err, b)
		return
	}
	c.takeOpened() // in order
	now := time.Now()
	c.mu.Lock()
	// The packets before it may have brought the end of its keys.
	if c.phase != phaseOpen || c.spaces[sp] == nil || !c.acceptable(h, b, &s.acks, pn) {
		c.mu.Unlock()
		return
	}
	if c.qlog != nil {
		if !c.gotFirst {
			c.qlog.firstPacket()
		}
		c.qlog.received(nil, b, len(b)-sealTag-len(payload), pn, p.ecn)
	}
	if c.isClient {
		c.snd.SetDst(c.ids.dst())
	} else if sp == recovery.Handshake {
		// Who answers with Handshake keys has received our Initial: the address is
		// validated, and Initial keys have served (RFC 9000 §8.1, RFC 9001 §4.9.1).
		c.validate()
		c.discard(recovery.Initial, now)
	}
	eliciting, err := c.frames(payload, h.Type, now, nil)
	if err == nil {
		s.acks.received(pn, p.at, eliciting, true, p.ecn)
		c.authentic(now)
	}
	if c.qlog != nil {
		c.qlog.update()
	}
	c.mu.Unlock()
	if err != nil {
		c.fail(err)
		return
	}
	c.driveTLS()
}

// acceptable reports whether a packet with a long header is to be looked at: it is new, and
// comes from the peer's connection ID, which does not change during the handshake
// (RFC 9000 §7.2).
func (c *Conn) acceptable(h wire.LongHeader, b []byte, acks *ackState, pn int64) bool {
	why := qlog.PacketDropDuplicate
	if !acks.seen(pn) {
		if c.ids.checkSrc(h.Src) {
			return true
		}
		why = qlog.PacketDropUnexpectedSourceConnectionID
	}
	if c.qlog != nil {
		c.qlog.dropped(b, pn, why)
	}
	return false
}

// zeroPacket takes in a 0-RTT packet: the server has keys for it only if it accepts
// 0-RTT data.
func (c *Conn) zeroPacket(p *packet, h wire.LongHeader, b []byte) {
	z := &c.zeroRTT
	if c.isClient {
		c.dropped(b, qlog.PacketDropUnexpectedPacket)
		return
	}
	if !z.expires.IsZero() && p.at.After(z.expires) {
		c.dropped(b, qlog.PacketDropKeysUnavailable)
		return
	}
	if z.opener == nil {
		if hs := c.spaces[recovery.Handshake]; hs == nil || hs.sealer == nil {
			c.keep(p, b) // it came before the client's Initial was looked at
		} else {
			c.dropped(b, qlog.PacketDropKeysUnavailable)
		}
		return
	}
	c.takeOpened()
	acks := &c.spaces[recovery.App].acks
	pn, payload, err := z.opener.Open(b, h.PNOffset, acks.largest)
	if err != nil {
		c.openFailed(err, b)
		return
	}
	now := time.Now()
	c.mu.Lock()
	if c.phase == phaseOpen && c.acceptable(h, b, acks, pn) {
		if c.qlog != nil {
			c.qlog.received(nil, b, len(b)-sealTag-len(payload), pn, p.ecn)
		}
		var eliciting bool
		if eliciting, err = c.frames(payload, wire.ZeroRTT, now, nil); err == nil {
			acks.received(pn, p.at, eliciting, false, p.ecn)
			c.authentic(now)
		}
	}
	c.mu.Unlock()
	if err != nil {
		c.fail(err)
	}
}

// validate lifts the anti-amplification limit.
func (c *Conn) validate() {
	if !c.validated {
		c.validated, c.paths.active.validated = true, true
		c.rec.SetAmplificationLimited(false)
	}
}

// discard throws a space's keys away (RFC 9001 §4.9).
func (c *Conn) discard(sp recovery.Space, now time.Time) {
	if c.spaces[sp] == nil {
		return
	}
	c.spaces[sp] = nil
	c.rec.Discard(sp, now)
	if c.qlog != nil {
		c.qlog.discardedKeys(sp)
	}
}

// statelessReset ends the connection as the peer does not know it any more. It drains,
// so that what is still on its way is not answered (RFC 9000 §10.3.1).
func (c *Conn) statelessReset() {
	c.mu.Lock()
	c.drain(&StatelessResetError{}, time.Now())
	c.mu.Unlock()
	c.wakeUp()
}
