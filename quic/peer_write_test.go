package quic

import (
	"fmt"
	"strings"
	"time"

	"github.com/quic-go/quic-go/quicvarint"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// What an actor says.

// rawFrame are bytes that go into a packet as they are.
type rawFrame []byte

func (f rawFrame) Append(b []byte) []byte { return append(b, f...) }
func (f rawFrame) Len() int               { return len(f) }
func (f rawFrame) String() string         { return fmt.Sprintf("raw %x", []byte(f)) }

// packetSpec is a packet of the actor's before it is sealed. A test may change every
// part of it.
type packetSpec struct {
	typ      wire.PacketType
	frames   []wire.Frame
	pn       int64
	pnLen    int
	bits     byte // set in the first byte, on top of what belongs there
	greased  bool // the QUIC bit is 0
	dst, src []byte
	token    []byte
	version  uint32
	sealer   *protect.Sealer
	phase    bool
	unpadded bool // a datagram with an Initial is left as short as it is
}

// packet is the next packet of its type. Frames that are nil are left out.
func (p *actor) packet(typ wire.PacketType, frames ...wire.Frame) *packetSpec {
	p.Helper()
	sp := spaceOf(typ)
	s := &packetSpec{
		typ: typ, pn: p.nextPN[sp], pnLen: 4,
		dst: p.dcid, src: p.scid, version: p.version, greased: p.greased,
	}
	for _, f := range frames {
		if f != nil {
			s.frames = append(s.frames, f)
		}
	}
	p.nextPN[sp]++
	switch {
	case sp != recovery.App:
		s.sealer = p.keys[sp].seal
		if typ == wire.Initial && p.volley == asServer {
			s.token = p.token
		}
	case p.sealKey != nil:
		s.sealer, s.phase = p.sealKey, p.phase
	case p.oneRTT != nil:
		s.sealer, s.phase = p.oneRTT.SealKey()
	}
	if s.sealer == nil {
		p.Fatalf("the actor has no keys for %v packets", typ)
	}
	return s
}

// seal makes the packet. keep says that it will be sent, and so may be acknowledged.
func (p *actor) seal(s *packetSpec, keep bool) []byte {
	p.Helper()
	var b []byte
	payload := payloadOf(s.frames)
	if s.typ == wire.OneRTT {
		b = wire.AppendShort(b, s.dst, s.pn, s.pnLen, s.phase)
	} else {
		b = wire.AppendLong(b, s.typ, s.version, s.dst, s.src, s.token, s.pnLen+len(payload)+sealTag, s.pn, s.pnLen)
	}
	b[0] |= s.bits
	if s.greased {
		b[0] &^= wire.QUICBit
	}
	pnOff := len(b) - s.pnLen
	b = append(b, payload...)
	b = append(b, make([]byte, sealTag)...)
	s.sealer.Seal(b, pnOff, s.pnLen, s.pn)
	if keep {
		sp := spaceOf(s.typ)
		p.sentPN[sp].add(s.pn, s.pn)
		if sp == recovery.App && p.sealKey == nil {
			p.oneRTT.Sent(s.pn, 1)
		}
		for _, f := range s.frames {
			p.watching.said(f)
			if f, ok := f.(wire.Ack); ok && sp == recovery.App {
				p.acked = max(p.acked, min(f.Largest(), p.largest[sp]))
			}
		}
	}
	return b
}

func payloadOf(frames []wire.Frame) (b []byte) {
	for _, f := range frames {
		b = f.Append(b)
	}
	return b
}

// send sends packets in one datagram, padded to 1200 bytes if there is an Initial.
func (p *actor) send(specs ...*packetSpec) {
	p.Helper()
	size := 0
	for _, s := range specs {
		size += len(p.seal(s, false))
	}
	for _, s := range specs {
		if s.typ == wire.Initial && size < 1200 && !s.unpadded {
			s.frames = append(s.frames, wire.Padding{N: 1200 - size})
			size = 1200
		}
	}
	var b []byte
	var log []string
	for _, s := range specs {
		b = append(b, p.seal(s, true)...)
		log = append(log, describe(s.typ, s.pn, s.frames))
		p.watching.sending(s.typ)
	}
	p.deliver(b, log...)
}

// deliver hands Volley a datagram, and waits until it is digested.
func (p *actor) deliver(b []byte, log ...string) {
	p.Helper()
	if p.rtt > 0 {
		time.Sleep(p.rtt)
	}
	p.collect() // in order with what Volley has sent before
	if log == nil {
		log = []string{fmt.Sprintf("%x", b[:min(len(b), 32)])}
	}
	p.logf(time.Now(), "→ %d bytes: %s", len(b), strings.Join(log, " ‖ "))
	p.watching.delivering(len(b))
	sock, from := p.sock, p.sock.far
	if p.into != nil {
		sock = p.into
	}
	if p.from != nil {
		from = p.from
	}
	sock.in <- letter{b, from}
	p.collect()
}

func describe(typ wire.PacketType, pn int64, frames []wire.Frame) string {
	s := fmt.Sprintf("%v %d", typ, pn)
	for _, f := range frames {
		s += " " + f.String()
	}
	return s
}

// writeFrames sends one packet in a datagram of its own.
func (p *actor) writeFrames(typ wire.PacketType, frames ...wire.Frame) {
	p.Helper()
	p.send(p.packet(typ, frames...))
}

// cryptoFrame is a CRYPTO frame with all handshake bytes of the level that were not
// sent yet, nil if there are none.
func (p *actor) cryptoFrame(typ wire.PacketType) wire.Frame {
	return p.cryptoFrameOf(typ, 1<<20)
}

// cryptoFrameOf is cryptoFrame with n bytes at most.
func (p *actor) cryptoFrameOf(typ wire.PacketType, n int) wire.Frame {
	o := &p.out[spaceOf(typ)]
	data := o.data[o.sent:]
	data = data[:min(len(data), n)]
	if len(data) == 0 {
		return nil
	}
	f := wire.Crypto{Off: int64(o.sent), Data: data}
	o.sent += len(data)
	return f
}

// writeCrypto sends the handshake bytes of a level in as many datagrams as it takes.
func (p *actor) writeCrypto(typ wire.PacketType) {
	p.Helper()
	for {
		f := p.cryptoFrameOf(typ, 1000)
		if f == nil {
			return
		}
		p.writeFrames(typ, f)
	}
}

// ackFrame acknowledges all packets of Volley's of that type so far, nil if there are
// none.
func (p *actor) ackFrame(typ wire.PacketType) wire.Frame {
	p.Helper()
	p.collect()
	sp := spaceOf(typ)
	f := wire.Ack{}
	for i := len(p.got[sp]) - 1; i >= 0; i-- {
		f.Ranges = append(f.Ranges, wire.AckRange{Lo: p.got[sp][i].lo, Hi: p.got[sp][i].hi})
	}
	if f.Ranges == nil {
		return nil
	}
	p.unacked[sp] = 0
	return f
}

// ackAll acknowledges everything that waits for it.
func (p *actor) ackAll() {
	p.Helper()
	p.collect()
	for _, typ := range []wire.PacketType{wire.Initial, wire.Handshake, wire.OneRTT} {
		if p.unacked[spaceOf(typ)] > 0 {
			p.writeFrames(typ, p.ackFrame(typ))
		}
	}
}

// ackUntil acknowledges everything, every millisecond, until done says that it is
// enough.
func (p *actor) ackUntil(done func() bool) {
	p.Helper()
	for n := 0; !done(); n++ {
		if n == 10000 {
			p.Fatal("it does not come to an end")
		}
		p.advance(time.Millisecond)
		p.ackAll()
	}
}

// ack acknowledges single packets of the 1-RTT space.
func ack(pns ...int64) wire.Ack {
	var s spans
	for _, pn := range pns {
		s.add(pn, pn)
	}
	f := wire.Ack{}
	for i := len(s) - 1; i >= 0; i-- {
		f.Ranges = append(f.Ranges, wire.AckRange{Lo: s[i].lo, Hi: s[i].hi})
	}
	return f
}

// stream is a STREAM frame.
func stream0(id, off int64, data string, fin bool) wire.Stream {
	return wire.Stream{ID: id, Off: off, Data: []byte(data), Fin: fin, HasLen: true}
}

// frameType is the type of a frame.
func frameType(f wire.Frame) uint64 {
	if g, ok := f.(interface{ pseudoType() uint64 }); ok {
		return g.pseudoType()
	}
	t, _, err := quicvarint.Parse(f.Append(nil))
	if err != nil {
		panic(err)
	}
	return t
}
