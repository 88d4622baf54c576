package quic

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// readLoop reads the socket until stopReader or until the socket fails.
func (t *Transport) readLoop() {
	defer close(t.done)
	defer func() {
		// What others read from now on is the application's.
		t.reading.mu.Lock()
		defer t.reading.mu.Unlock()
		if t.createdConn {
			t.udp.Close()
			return
		}
		// The socket goes back to the application as it was.
		t.reading.end()
		t.udp.Detach()
	}()

	t.reading.read()
}

// endRead decides what an error of ReadBatch means.
func (t *Transport) endRead(err error) (ended bool) {
	t.mu.Lock()
	if t.stopping {
		t.mu.Unlock()
		return true
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		// A deadline, and not ours. Left as it is, it would make this loop spin.
		t.udp.SetReadDeadline(time.Time{})
		t.mu.Unlock()
		return false
	}
	t.mu.Unlock()
	t.shutdown(err)
	return true
}

// demux sorts one batch after the other by connection. It belongs to whoever reads.
type demux struct {
	t       *Transport
	deliver func(*Conn, []packet) // (*Conn).deliver, but for tests
	groups  []group               // of this batch; memory is kept
	resets  limiter

	// The answer to the last look-up, within one batch.
	lastID   ConnectionID
	lastConn *Conn
}

// group is what a batch brought for one connection, in order of arrival.
type group struct {
	c  *Conn
	ps []packet
}

// batch hands the messages over, by one call per connection. It takes over their
// buffers. only is the connection that all of it was for, nil if there is no such; size
// is how many bytes there were.
func (d *demux) batch(ms []udp.Message, now time.Time) (only *Conn, size int) {
	for i := range ms {
		size += len(ms[i].Data)
		d.message(&ms[i], now)
		ms[i] = udp.Message{}
	}
	routed := 0
	for i := range d.groups {
		g := &d.groups[i]
		for j := range g.ps {
			routed += len(g.ps[j].data)
		}
		if len(d.groups) == 1 && routed == size {
			only = g.c
		}
		d.deliver(g.c, g.ps)
		// The connection has the buffers now.
		clear(g.ps)
		g.c, g.ps = nil, g.ps[:0]
	}
	d.groups = d.groups[:0]
	d.lastConn = nil
	return only, size
}

// message cuts a message into runs of datagrams with the same connection ID:
// almost always, that is one run.
func (d *demux) message(m *udp.Message, now time.Time) {
	for rest := m.Data; len(rest) > 0; {
		n, dst, kind := d.nextRun(rest, m.Segment)
		p := packet{
			buf:        m.Buf,
			data:       rest[:n:n],
			segment:    m.Segment,
			remote:     m.Remote,
			remoteAddr: m.RemoteAddr,
			local:      m.Local,
			ecn:        m.ECN,
			at:         now,
			via:        d.t,
		}
		if rest = rest[n:]; len(rest) > 0 {
			m.Buf.Retain() // each packet owns one reference
		}
		switch kind {
		case quicDatagram:
			d.route(p, dst)
		case otherDatagram:
			d.t.deliverNonQUIC(p)
		case garbage:
			d.t.drop(p, qlog.PacketDropHeaderParseError)
		}
	}
}

type datagramKind uint8

const (
	quicDatagram datagramKind = iota
	otherDatagram
	garbage // too short to say
)

// nextRun finds how many bytes at the beginning of b are datagrams for one
// connection ID, which it returns. A coalesced datagram goes where its first
// packet goes: the others must have the same ID (RFC 9000 §12.2).
func (d *demux) nextRun(b []byte, segment int) (n int, dst []byte, kind datagramKind) {
	n = min(segment, len(b))
	dst, ok := wire.DstConnID(b[:n], d.t.connIDLen)
	greased := looksForeign(b[0])
	if greased && (!ok || !d.greases(dst)) {
		return n, nil, otherDatagram
	}
	if !ok {
		return n, nil, garbage
	}
	for n < len(b) {
		next := b[n:min(n+segment, len(b))]
		id, ok := wire.DstConnID(next, d.t.connIDLen)
		if !ok || !bytes.Equal(id, dst) {
			break
		}
		if !greased && looksForeign(next[0]) {
			if greased = d.greases(dst); !greased {
				break
			}
		}
		n += len(next)
	}
	return n, dst, quicDatagram
}

// looksForeign reports whether a datagram that begins with b belongs to another
// protocol, or to a connection that greases: it has neither a long header nor the QUIC
// bit. To take all of them for foreign is what quic-go does, and stricter than RFC 9443.
func looksForeign(b byte) bool { return b&(0x80|wire.QUICBit) == 0 }

// greases reports whether packets to dst are QUIC's though they look foreign. On a socket
// that is for QUIC alone those to unknown IDs are, too: they may be for a connection that
// we have forgotten.
func (d *demux) greases(dst []byte) bool {
	id := ConnectionIDFromBytes(dst)
	if d.lastConn == nil || d.lastID != id {
		c, _ := d.t.find(id)
		if c == nil {
			return d.t.mayGrease()
		}
		d.lastID, d.lastConn = id, c
	}
	return d.lastConn.greases
}

// route puts p into its connection's group.
func (d *demux) route(p packet, dst []byte) {
	if len(dst) > maxConnIDLen {
		// No ID of ours, but possibly of a version that we do not know.
		d.t.offer(p)
		return
	}
	id := ConnectionIDFromBytes(dst)
	for d.lastConn == nil || d.lastID != id {
		c, held := d.t.find(id)
		switch {
		case c != nil:
			d.lastID, d.lastConn = id, c
		case !held:
			d.orphan(p, id)
			return
		case d.t.keep(id, p):
			return
		}
		// Held a moment ago and no more: look again.
	}
	for i := range d.groups {
		if d.groups[i].c == d.lastConn {
			d.groups[i].ps = append(d.groups[i].ps, p)
			return
		}
	}
	if len(d.groups) < cap(d.groups) {
		d.groups = d.groups[:len(d.groups)+1]
	} else {
		d.groups = append(d.groups, group{})
	}
	g := &d.groups[len(d.groups)-1]
	g.c, g.ps = d.lastConn, append(g.ps, p)
}

// orphan deals with a packet whose connection ID belongs to nobody.
func (d *demux) orphan(p packet, id ConnectionID) {
	// RFC 9000 §10.3.1 wants the comparison for every such datagram, whatever
	// the form of its header.
	for b := p.data; len(b) > 0; b = b[min(p.segment, len(b)):] {
		if c := d.t.findByToken(b[:min(p.segment, len(b))]); c != nil {
			c.statelessReset()
			p.buf.Release()
			return
		}
	}
	if wire.IsLong(p.data[0]) {
		d.t.offer(p)
		return
	}
	d.t.sendStatelessReset(&d.resets, p, id)
	d.t.drop(p, qlog.PacketDropUnknownConnectionID)
}

// offer gives a packet with a long header to the listener, which may make a
// connection of it. It takes p over.
func (t *Transport) offer(p packet) {
	t.mu.RLock()
	s := t.server
	t.mu.RUnlock()
	if s == nil {
		t.drop(p, qlog.PacketDropUnknownConnectionID)
		return
	}
	s.enqueue(p)
}

// datagram returns the first datagram of p.
func (p *packet) datagram() []byte { return p.data[:min(p.segment, len(p.data))] }

// addr is where p came from, as the application wants to see it.
func (p *packet) addr() net.Addr {
	if p.remoteAddr != nil {
		return p.remoteAddr
	}
	return net.UDPAddrFromAddrPort(p.remote)
}

// reply is the way back to where p came from.
func (p *packet) reply() udp.Route {
	return udp.Route{Remote: p.remote, RemoteAddr: p.remoteAddr, Local: p.local}
}

// limiter is a token bucket for answers that nobody has to get. It belongs to one
// goroutine.
type limiter struct {
	rate, burst float64 // per second, and at once
	tokens      float64
	last        time.Time
}

func (l *limiter) allow(now time.Time) bool {
	if l.last.IsZero() {
		l.tokens = l.burst
	} else {
		l.tokens = min(l.burst, l.tokens+l.rate*now.Sub(l.last).Seconds())
	}
	l.last = now
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

// maxNonQUICPackets bounds what waits for ReadNonQUICPacket.
const maxNonQUICPackets = 32

type nonQUICPacket struct {
	data []byte
	addr net.Addr
}

// deliverNonQUIC takes p over.
func (t *Transport) deliverNonQUIC(p packet) {
	if t.readingNonQUIC.Load() {
		select {
		case t.nonQUIC <- nonQUICPacket{bytes.Clone(p.data), p.addr()}:
		default:
			t.drop(p, qlog.PacketDropDOSPrevention)
			return
		}
	}
	p.buf.Release()
}

// ReadNonQUICPacket waits for a datagram of another protocol on the same socket,
// one whose first two bits are zero, and copies it to b. What arrived before the
// first call is lost, and so is what arrives while 32 datagrams are waiting. When
// ctx ends, the error is ctx.Err().
//
// Call it before there are connections, even if with a context that has ended: those
// made later ask their peers for packets that always have one of the two bits (see
// Config.DisableQUICBitGreasing). To those made before, a datagram belongs that has
// one of their connection IDs in the bytes after the first.
func (t *Transport) ReadNonQUICPacket(ctx context.Context, b []byte) (int, net.Addr, error) {
	if err := t.init(false); err != nil {
		return 0, nil, err
	}
	t.readingNonQUIC.Store(true)
	select {
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	case p := <-t.nonQUIC:
		return copy(b, p.data), p.addr, nil
	case <-t.done:
		return 0, nil, ErrTransportClosed
	}
}
