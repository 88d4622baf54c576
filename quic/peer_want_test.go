package quic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// What an actor hears, and expects to hear.

// said is a frame of Volley's.
type said struct {
	f   wire.Frame
	pkt *sentPacket
}

// sentPacket is a packet of Volley's.
type sentPacket struct {
	typ      wire.PacketType
	pn       int64
	size     int
	greased  bool // the QUIC bit is 0
	dst, src []byte
	token    []byte
	frames   []wire.Frame
	dg       *sentDatagram
}

// sentDatagram is a datagram of Volley's.
type sentDatagram struct {
	at      time.Time
	from    net.Addr
	to      net.Addr
	size    int
	packets []*sentPacket
}

func (d *sentDatagram) String() string {
	var s []string
	for _, pkt := range d.packets {
		s = append(s, describe(pkt.typ, pkt.pn, pkt.frames))
	}
	return fmt.Sprintf("%d bytes: %s", d.size, strings.Join(s, " ‖ "))
}

// What comes without frames is queued as if it were one.
type (
	versionsFrame struct{ versions []uint32 } // a Version Negotiation packet
	retryFrame    struct{ token []byte }      // a Retry packet
	garbageFrame  struct{ b []byte }          // a datagram that no key opens
)

func (f versionsFrame) Append(b []byte) []byte { return append(b, fmt.Sprint(f.versions)...) }
func (f versionsFrame) Len() int               { return 0 }
func (f versionsFrame) String() string         { return fmt.Sprintf("versions %x", f.versions) }
func (f versionsFrame) pseudoType() uint64     { return 1 << 60 }
func (f retryFrame) Append(b []byte) []byte    { return append(b, f.token...) }
func (f retryFrame) Len() int                  { return 0 }
func (f retryFrame) String() string            { return fmt.Sprintf("token %x", f.token) }
func (f retryFrame) pseudoType() uint64        { return 1<<60 + 1 }
func (f garbageFrame) Append(b []byte) []byte  { return append(b, f.b...) }
func (f garbageFrame) Len() int                { return len(f.b) }
func (f garbageFrame) String() string          { return fmt.Sprintf("garbage %.64x", f.b) }
func (f garbageFrame) pseudoType() uint64      { return 1<<60 + 2 }

// collect takes in what Volley has sent by now.
func (p *actor) collect() {
	p.Helper()
	synctest.Wait()
	for {
		ds := p.sock.take()
		if len(ds) == 0 {
			break
		}
		for _, d := range ds {
			p.hear(d)
		}
	}
	if p.c == nil && p.transport.ids != nil {
		p.transport.mu.Lock()
		for _, c := range p.transport.ids {
			p.c = c
		}
		p.transport.mu.Unlock()
	}
}

// hear opens a datagram.
func (p *actor) hear(d sent) {
	p.Helper()
	dg := &sentDatagram{at: d.at, from: d.from, to: d.to, size: len(d.b)}
	for b := d.b; len(b) > 0; {
		pkt, n := p.openPacket(b)
		pkt.dg = dg
		dg.packets = append(dg.packets, pkt)
		p.packets = append(p.packets, pkt)
		for _, f := range pkt.frames {
			p.queue = append(p.queue, said{f, pkt})
		}
		p.watching.packet(pkt)
		b = b[n:]
		p.driveTLS()
	}
	p.logf(d.at, "← %v", dg)
	p.watching.datagram(dg)
}

// openPacket opens the packet at the beginning of b, and says how long it is.
func (p *actor) openPacket(b []byte) (*sentPacket, int) {
	p.Helper()
	if !wire.IsLong(b[0]) {
		return p.openShort(b), len(b)
	}
	h, err := wire.ParseLong(b)
	if err != nil {
		p.Fatalf("Volley sent a packet with a bad header: %x", b)
	}
	pkt := &sentPacket{typ: h.Type, pn: -1, size: h.Len, greased: h.Greased, dst: bytes.Clone(h.Dst), src: bytes.Clone(h.Src), token: bytes.Clone(h.Token)}
	switch h.Type {
	case wire.VersionNegotiation:
		_, _, versions, err := wire.ParseVersionNegotiation(b)
		if err != nil {
			p.Fatal(err)
		}
		pkt.frames = []wire.Frame{versionsFrame{versions}}
		return pkt, len(b)
	case wire.Retry:
		pkt.frames = []wire.Frame{retryFrame{pkt.token}}
		return pkt, len(b)
	case wire.Initial:
		if p.volley == asClient && p.origDst == nil {
			p.version = h.Version
			p.origDst = pkt.dst
			p.setInitialKeys(pkt.dst)
		}
	case wire.Handshake:
	default:
		p.Fatalf("Volley sent a %v packet", h.Type)
	}
	if h.Version != p.version {
		p.Errorf("Volley sent version %x, want %x", h.Version, p.version)
	}
	sp := spaceOf(h.Type)
	if p.keys[sp].open == nil {
		p.Fatalf("Volley sent a %v packet before there are keys", h.Type)
	}
	raw := bytes.Clone(b[:h.Len])
	pn, payload, err := p.keys[sp].open.Open(raw, h.PNOffset, p.largest[sp])
	if err != nil {
		p.Fatalf("%v packet of Volley's: %v", h.Type, err)
	}
	pkt.pn = pn
	p.dcid = pkt.src
	p.payload(pkt, payload)
	if h.Type == wire.Initial && p.volley == asClient && p.tls == nil {
		p.startTLS()
	}
	return pkt, h.Len
}

func (p *actor) openShort(b []byte) *sentPacket {
	p.Helper()
	pkt := &sentPacket{typ: wire.OneRTT, pn: -1, size: len(b), greased: b[0]&wire.QUICBit == 0}
	pnOff := 1 + len(p.scid)
	for _, id := range p.ids {
		if bytes.HasPrefix(b[1:], id) {
			pnOff = 1 + len(id)
		}
	}
	if p.oneRTT == nil || len(b) < pnOff {
		pkt.frames = []wire.Frame{garbageFrame{b}}
		return pkt
	}
	pkt.dst = bytes.Clone(b[1:pnOff])
	// RFC 9000 §17.1: the number is to be read by a peer that has received nothing
	// beyond what it has acknowledged.
	pn, payload, err := p.oneRTT.Open(bytes.Clone(b), pnOff, p.acked)
	if err != nil {
		pkt.frames = []wire.Frame{garbageFrame{b}}
		return pkt
	}
	if err := p.oneRTT.Received(time.Now(), time.Second); err != nil {
		p.Errorf("keys: %v", err)
	}
	pkt.pn = pn
	p.payload(pkt, payload)
	return pkt
}

// payload reads the frames of a packet.
func (p *actor) payload(pkt *sentPacket, b []byte) {
	p.Helper()
	sp := spaceOf(pkt.typ)
	p.largest[sp] = max(p.largest[sp], pkt.pn)
	p.got[sp].add(pkt.pn, pkt.pn)
	eliciting := false
	for len(b) > 0 {
		f, n, err := wire.ParseFrame(b)
		if err != nil {
			p.Fatalf("%v packet %d of Volley's: %v", pkt.typ, pkt.pn, err)
		}
		pkt.frames = append(pkt.frames, f)
		eliciting = eliciting || wire.IsAckEliciting(frameType(f))
		if f, ok := f.(wire.Crypto); ok {
			p.in[sp].put(f.Off, f.Data)
		}
		b = b[n:]
	}
	if eliciting {
		p.unacked[sp]++
	}
}

// ignore makes expectations pass over frames of these types.
func (p *actor) ignore(types ...uint64) {
	for _, t := range types {
		p.ignored[t] = true
	}
}

// next takes the next frame that is not ignored, nil if there is none.
func (p *actor) next() *said {
	p.Helper()
	p.collect()
	for len(p.queue) > 0 {
		s := p.queue[0]
		p.queue = p.queue[1:]
		if !p.ignored[frameType(s.f)] {
			return &s
		}
	}
	return nil
}

// wantFrame expects a frame to come next. expect says what is expected, and why, in
// words.
func (p *actor) wantFrame(expect string, typ wire.PacketType, want wire.Frame) *sentPacket {
	p.Helper()
	s := p.next()
	if s == nil {
		p.Fatalf("%s:\nwant %v %v\n got nothing", expect, typ, want)
	}
	if s.pkt.typ != typ || !sameFrame(s.f, want) {
		p.Fatalf("%s:\nwant %v %v\n got %v %v", expect, typ, want, s.pkt.typ, s.f)
	}
	return s.pkt
}

// wantA expects a frame of type F to come next, and returns it.
func wantA[F wire.Frame](p *actor, expect string, typ wire.PacketType) F {
	p.Helper()
	s := p.next()
	if s == nil {
		p.Fatalf("%s:\nwant %T in %v\n got nothing", expect, *new(F), typ)
	}
	f, ok := s.f.(F)
	if s.pkt.typ != typ || !ok {
		p.Fatalf("%s:\nwant %T in %v\n got %v %v", expect, *new(F), typ, s.pkt.typ, s.f)
	}
	return f
}

// heard takes everything that was said so far, and returns the frames of type F in it.
func heard[F wire.Frame](p *actor) (fs []F) {
	p.Helper()
	p.collect()
	for _, s := range p.queue {
		if f, ok := s.f.(F); ok {
			fs = append(fs, f)
		}
	}
	p.queue = nil
	return fs
}

// sameFrame compares frames. Whether a STREAM frame has a Length field, and the delay of
// an ACK, do not count.
func sameFrame(a, b wire.Frame) bool {
	norm := func(f wire.Frame) []byte {
		switch f := f.(type) {
		case wire.Stream:
			f.HasLen = true
			return f.Append(nil)
		case wire.Ack:
			f.Delay = 0
			return f.Append(nil)
		}
		return f.Append(nil)
	}
	return frameType(a) == frameType(b) && bytes.Equal(norm(a), norm(b)) ||
		isStreamFrame(a) && isStreamFrame(b) && bytes.Equal(norm(a), norm(b))
}

func isStreamFrame(f wire.Frame) bool { _, ok := f.(wire.Stream); return ok }

// wantDatagram takes the next datagram whole, ignored frames included.
func (p *actor) wantDatagram(expect string) *sentDatagram {
	p.Helper()
	p.collect()
	if len(p.queue) == 0 {
		p.Fatalf("%s:\nwant a datagram\n got nothing", expect)
	}
	dg := p.queue[0].pkt.dg
	for len(p.queue) > 0 && p.queue[0].pkt.dg == dg {
		p.queue = p.queue[1:]
	}
	return dg
}

// wantDatagrams takes all datagrams there are; they must be n.
func (p *actor) wantDatagrams(expect string, n int) (ds []*sentDatagram) {
	p.Helper()
	p.collect()
	for len(p.queue) > 0 {
		ds = append(ds, p.wantDatagram(expect))
	}
	if len(ds) != n {
		p.Fatalf("%s:\nwant %d datagrams\n got %d: %v", expect, n, len(ds), ds)
	}
	return ds
}

// wantIdle expects Volley to have nothing to say.
func (p *actor) wantIdle(expect string) {
	p.Helper()
	if s := p.next(); s != nil {
		p.Fatalf("%s:\nwant silence\n got %v %v", expect, s.pkt.typ, s.f)
	}
}

// wantClosed expects Volley to have closed the connection with a transport error: what
// it sends says so, and so do its calls.
func (p *actor) wantClosed(expect string, code wire.ErrorCode) wire.ConnectionClose {
	p.Helper()
	f := p.wantClose(expect)
	if f.App || wire.ErrorCode(f.Code) != code {
		p.Fatalf("%s:\nwant CONNECTION_CLOSE with %v\n got %v", expect, code, f)
	}
	if p.c == nil {
		return f
	}
	var err *TransportError
	if cause := context.Cause(p.c.Context()); !errors.As(cause, &err) || err.Remote || err.ErrorCode != TransportErrorCode(code) {
		p.Fatalf("%s:\nwant a local %v\n got %v", expect, code, cause)
	}
	return f
}

// wantClose expects CONNECTION_CLOSE, whatever else is said before it.
func (p *actor) wantClose(expect string) (f wire.ConnectionClose) {
	p.Helper()
	for {
		s := p.next()
		if s == nil {
			p.Fatalf("%s:\nwant CONNECTION_CLOSE\n got nothing (%v)", expect, p.cause())
		}
		if f, ok := s.f.(wire.ConnectionClose); ok {
			p.queue = nil
			return f
		}
	}
}

// cause is why Volley's connection is over, nil if it is not.
func (p *actor) cause() error {
	if p.c == nil {
		return nil
	}
	return context.Cause(p.c.Context())
}

// wantAlive expects Volley's connection not to be over.
func (p *actor) wantAlive(expect string) {
	p.Helper()
	p.collect()
	if err := p.cause(); err != nil {
		p.Fatalf("%s:\nwant the connection to go on\n got %v", expect, err)
	}
}

// advance lets d pass.
func (p *actor) advance(d time.Duration) {
	p.Helper()
	p.collect()
	time.Sleep(d)
	p.collect()
}

// advanceToSend lets time pass until Volley says something, an hour at most, and
// returns how long that took.
func (p *actor) advanceToSend() time.Duration {
	p.Helper()
	p.collect()
	begin := time.Now()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	select {
	case <-p.sock.wrote:
		signal(p.sock.wrote)
	case <-t.C:
		p.Fatal("Volley has nothing to say for an hour")
	}
	d := time.Since(begin)
	p.collect()
	return d
}
