package quic

import (
	"context"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// longDatagram is a datagram of Initial and Handshake packets being built. The last
// packet stays unsealed until it is known whether it must be padded.
type longDatagram struct {
	buf     []byte
	packets [2]longPacket
	n       int
}

type longPacket struct {
	sp      recovery.Space
	start   int // in buf
	pnOff   int // from start
	pn      int64
	payload int // from start; where frames begin
	end     int // in buf, without the tag
	train   *recovery.Train
	sealer  *protect.Sealer // the space's keys may be gone when the packet is sealed
}

const (
	longPNLen = 4 // so that no packet is too short for header protection's sample
	sealTag   = 16
)

// sendLong sends what is due in Initial and Handshake packets.
func (c *Conn) sendLong(now time.Time) {
	if c.heldLong != nil && !c.transmitLong(c.heldLong) {
		return
	}
	for c.sendLongDatagram(now) {
	}
}

// sendLongDatagram sends one datagram of coalesced packets (RFC 9000 §12.2) and
// reports whether it did.
func (c *Conn) sendLongDatagram(now time.Time) bool {
	c.mu.Lock()
	if c.phase != phaseOpen {
		c.mu.Unlock()
		return false
	}
	if c.spaces[recovery.Initial] == nil && c.spaces[recovery.Handshake] == nil {
		c.mu.Unlock()
		return false
	}
	size := c.snd.DatagramSize()
	if limit := (*monitor)(c).AntiAmplification(); limit >= 0 && limit < size {
		// A server answers with less, or waits (RFC 9000 §8.1).
		if limit < minPacketSize {
			due := false
			for sp := recovery.Initial; sp <= recovery.Handshake; sp++ {
				due = due || c.longDue(sp, now)
			}
			c.rec.SetAmplificationLimited(due)
			c.mu.Unlock()
			return false
		}
		size = limit
	}
	d := &longDatagram{buf: make([]byte, 0, size)}
	initial, eliciting := false, false
	for sp := recovery.Initial; sp <= recovery.Handshake; sp++ {
		if c.longDue(sp, now) && c.appendLong(d, sp, size, now) {
			p := &d.packets[d.n-1]
			initial = initial || sp == recovery.Initial
			eliciting = eliciting || p.train.Eliciting != 0
		}
	}
	if d.n == 0 {
		c.mu.Unlock()
		return false
	}
	// All datagrams of a client with Initial packets, and a server's with
	// ack-eliciting ones, are at least 1200 bytes long (RFC 9000 §14.1).
	if initial && (c.isClient || eliciting) {
		d.pad(size)
	}
	sealed := d.finish(c, now)
	if c.qlog != nil {
		c.qlog.sentLong(d)
		c.qlog.update()
	}
	c.bytesOut += len(sealed)
	c.stats.BytesSent += uint64(len(sealed))
	c.stats.PacketsSent += uint64(d.n)
	if eliciting {
		c.sentEliciting(now)
	}
	// A client throws its Initial keys away with its first Handshake packet
	// (RFC 9001 §4.9.1).
	if c.isClient && d.packets[d.n-1].sp == recovery.Handshake {
		c.discard(recovery.Initial, now)
	}
	c.mu.Unlock()

	for i := range d.n {
		p := &d.packets[i]
		p.sealer.Seal(sealed[p.start:p.end+sealTag], p.pnOff, longPNLen, p.pn)
	}
	return c.transmitLong(d)
}

// transmitLong hands a sealed datagram to the kernel. If the socket is full it reports
// false: the same bytes go out when there is room, before anything else, as a packet
// number is sealed once only.
func (c *Conn) transmitLong(d *longDatagram) bool {
	if c.awaiting.Load() {
		return false
	}
	resumed := c.heldLong != nil
	_, err := c.transport.udpConn().Send(&c.hsRoute, d.buf, len(d.buf), udp.NotECT)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == udp.ErrBlocked {
		c.heldLong = d
		c.rec.SetSendBlocked(true)
		c.awaitSocket(c.transport.udpConn())
		return false
	}
	if resumed {
		c.heldLong = nil
		c.rec.SetSendBlocked(c.snd.Held())
		for _, p := range d.packets[:d.n] {
			c.rec.Restamp(p.sp, p.pn, p.pn, time.Now())
		}
	}
	switch {
	case err == nil:
	case err == udp.ErrTooLarge && len(d.buf) > minPacketSize:
		// It was never sent, and goes again smaller. (What is too large at 1200 bytes is
		// as good as lost: its probe timeout keeps this from going round and round.)
		if c.qlog != nil {
			c.qlog.refusedLong(d)
		}
		for _, p := range d.packets[:d.n] {
			c.rec.OnUnsent(p.sp, p.pn, p.pn)
			if s := c.spaces[p.sp]; s != nil && len(s.acks.got) > 0 {
				s.acks.at = true
			}
		}
		c.mtu.tooLarge(len(d.buf), time.Now())
	default:
		// The rest is the network's, and as good as lost.
		c.sendFailed(err)
	}
	return true
}

// awaitSocket wakes the goroutine when the socket, which was full, takes more.
func (c *Conn) awaitSocket(u *udp.Conn) {
	if c.awaiting.Swap(true) {
		return
	}
	go func() {
		u.WaitWritable(context.Background()) // ends with the socket, too
		c.awaiting.Store(false)
		c.wakeUp()
	}()
}

// longDue reports whether a space has something to send now.
func (c *Conn) longDue(sp recovery.Space, now time.Time) bool {
	s := c.spaces[sp]
	if s == nil || s.sealer == nil {
		return false
	}
	if s.acks.due(now) || c.rec.Probes(sp) > 0 {
		return true
	}
	return s.send.pending() && c.rec.BytesInFlight() < c.cc.Window()
}

// appendLong appends one packet of a space, with an ACK, handshake bytes, and a PING
// if a probe has nothing else.
func (c *Conn) appendLong(d *longDatagram, sp recovery.Space, size int, now time.Time) bool {
	s := c.spaces[sp]
	typ := wire.Initial
	var token []byte
	if sp == recovery.Handshake {
		typ = wire.Handshake
	} else if c.isClient {
		token = c.token
	}
	dst, src := c.ids.dst(), connIDBytes(&c.ids.local[0].id)
	p := &d.packets[d.n]
	*p = longPacket{sp: sp, start: len(d.buf), sealer: s.sealer}
	hdr := wire.LongHeaderLen(typ, len(dst), len(src), len(token), longPNLen)
	const least = 32 // not worth a packet below
	if size-len(d.buf) < hdr+least+sealTag {
		return false
	}
	p.pn = c.rec.NextPN(sp)
	d.buf = wire.AppendLong(d.buf, typ, uint32(c.version), dst, src, token, 0, p.pn, longPNLen)
	d.buf[p.start] ^= c.greaseBit()
	p.payload = len(d.buf) - p.start
	p.pnOff = p.payload - longPNLen
	t := c.rec.NewTrain()
	t.First, t.N = p.pn, 1
	p.train = t

	room := func() int { return size - len(d.buf) - sealTag }
	// An ACK goes along with everything, not only when it is due: the one before may be
	// lost, and a peer that does not know what is missing probes with all it has, a
	// little at a time.
	if len(s.acks.got) > 0 {
		f, ok := s.acks.frame(now, c.ackRanges, room())
		c.ackRanges = f.Ranges
		if ok {
			d.buf = f.Append(d.buf)
			s.acks.sent()
		}
	}
	crypto := func(off int64, b []byte) (n int) {
		n = min(len(b), room()-wire.CryptoHeaderLen(off, len(b)))
		if n > 0 {
			d.buf = wire.Crypto{Off: off, Data: b[:n]}.Append(d.buf)
			t.Extra = append(t.Extra, recovery.Extra{Data: &s.send, Off: off, Len: n})
			t.Eliciting, t.InFlight = 1, 1
		}
		return n
	}
	for s.send.pending() {
		off, b := s.send.next()
		n := crypto(off, b)
		if n <= 0 {
			break
		}
		s.send.packed(off, n)
	}
	probe := c.rec.Probes(sp) > 0 && t.Eliciting == 0
	if probe {
		off, b := s.send.probe()
		if n := crypto(off, b); n > 0 {
			s.send.probed = off + int64(n)
		}
	}
	if probe && t.Eliciting == 0 {
		d.buf = wire.Ping{}.Append(d.buf)
		t.Eliciting, t.InFlight = 1, 1
	}
	p.end = len(d.buf)
	d.buf = d.buf[:len(d.buf)+sealTag]
	d.n++
	return true
}

// pad brings the datagram to size bytes with PADDING at the end of its last packet.
func (d *longDatagram) pad(size int) {
	n := size - len(d.buf)
	if n <= 0 {
		return
	}
	p := &d.packets[d.n-1]
	d.buf = d.buf[:size]
	clear(d.buf[p.end:])
	p.end += n
	p.train.InFlight = 1
}

// finish writes the packets' lengths and notes them as sent. It returns the datagram,
// to be sealed.
func (d *longDatagram) finish(c *Conn, now time.Time) []byte {
	for i := range d.n {
		p := &d.packets[i]
		// The two bytes before the packet number are the Length field (§17.2).
		n := p.end + sealTag - p.start - p.pnOff
		at := p.start + p.pnOff - 2
		d.buf[at], d.buf[at+1] = 0x40|byte(n>>8), byte(n)
		p.train.Sizes[0] = uint16(p.end + sealTag - p.start)
		c.rec.OnSent(p.sp, []*recovery.Train{p.train}, now)
	}
	return d.buf
}
