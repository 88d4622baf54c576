package quic

import (
	"bytes"
	"net"
	"slices"
	"sync"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// watch holds every packet of Volley's against the rules that no packet may break,
// whatever the test is about:
//   - packet numbers only go up, so that no key ever seals two packets with one number,
//   - an offset of a stream has one value, and nothing follows a final size or a reset,
//   - flow control and stream limits are kept, as the actor has given them,
//   - frames are in packets where they are allowed, and no packet is empty,
//   - what is acknowledged was sent,
//   - limits never fall,
//   - the QUIC bit is set unless the actor has said that it need not be (RFC 9287),
//   - datagrams have the size they must have (RFC 9000 §14), and a server sends no more
//     than three times what it got before it knows the address (§8.1).
type watch struct {
	p       *actor
	streams map[int64]*watched
	total   int64 // sum of the streams' highest offsets
	next    [recovery.NumSpaces]int64

	// What Volley may send.
	maxData    int64
	maxStreams [2]int64
	streamData map[int64]int64
	params     *wire.TransportParams

	// What it has allowed.
	saidMaxData    int64
	saidMaxStreams [2]int64

	tokenGreases bool // Volley's Initials have a token that came with grease_quic_bit

	loose bool // data may be what it likes: the script broke the rules itself

	mu        sync.Mutex
	validated bool
	in, out   int // bytes, before validation
	others    map[string]*watchedAddr
}

type watched struct {
	tape    tape
	highest int64
	final   int64 // -1: unknown
	reset   bool
	code    uint64
	spared  int64 // bytes that may follow a reset: RESET_STREAM_AT
}

func (w *watch) init(p *actor) {
	w.p = p
	w.streams = map[int64]*watched{}
	w.streamData = map[int64]int64{}
	w.validated = p.volley == asClient
	p.sock.check = w.sendingOut
}

func (w *watch) setParams(params *wire.TransportParams) {
	w.params = params
	w.maxData = params.InitialMaxData
	w.maxStreams = [2]int64{params.InitialMaxStreamsBidi, params.InitialMaxStreamsUni}
}

// said notes what the actor has said.
func (w *watch) said(f wire.Frame) {
	switch f := f.(type) {
	case wire.MaxData:
		w.maxData = max(w.maxData, f.Max)
	case wire.MaxStreamData:
		w.streamData[f.ID] = max(w.streamData[f.ID], f.Max)
	case wire.MaxStreams:
		k := kindOf(f.Uni)
		w.maxStreams[k] = max(w.maxStreams[k], f.Max)
	case wire.NewConnectionID:
		w.p.ids[f.Seq] = f.ID
	case wire.PathResponse:
		for _, pkt := range w.p.packets {
			for _, ch := range pkt.frames {
				if ch, ok := ch.(wire.PathChallenge); ok && ch.Data == f.Data && pkt.dg.to.String() != w.p.sock.far.String() {
					w.mu.Lock()
					w.elsewhere(pkt.dg.to).validated = true
					w.mu.Unlock()
				}
			}
		}
	}
}

// sending notes the type of a packet that the actor is about to send.
func (w *watch) sending(typ wire.PacketType) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// RFC 9000 §8.1: a packet that is protected with Handshake keys proves the address.
	if typ == wire.Handshake || len(w.p.token) > 0 {
		w.validated = true
	}
}

func (w *watch) delivering(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.p; p.from != nil {
		w.elsewhere(p.from).in += n
		return
	}
	w.in += n
}

// sendingOut sees datagrams as they leave, so that the limit is checked at every instant.
func (w *watch) sendingOut(n int, to net.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to.String() != w.p.sock.far.String() {
		o := w.elsewhere(to)
		if o.out += n; w.p.volley == asServer && !o.validated && o.out > 3*o.in {
			w.p.Errorf("amplification: %d bytes sent to %v for %d bytes received", o.out, to, o.in)
		}
		return
	}
	if w.out += n; !w.validated && w.out > 3*w.in {
		w.p.Errorf("amplification: %d bytes sent for %d bytes received", w.out, w.in)
	}
}

// elsewhere is what is known of another address of the actor's.
func (w *watch) elsewhere(a net.Addr) *watchedAddr {
	if w.others == nil {
		w.others = map[string]*watchedAddr{}
	}
	if w.others[a.String()] == nil {
		w.others[a.String()] = &watchedAddr{}
	}
	return w.others[a.String()]
}

type watchedAddr struct {
	validated bool // a challenge that was sent there is answered
	in, out   int
}

// datagram checks a datagram's size.
func (w *watch) datagram(d *sentDatagram) {
	p := w.p
	p.Helper()
	initial, eliciting := false, false
	for _, pkt := range d.packets {
		if pkt.typ == wire.Initial && pkt.pn >= 0 {
			initial = true
			for _, f := range pkt.frames {
				eliciting = eliciting || wire.IsAckEliciting(frameType(f))
			}
		}
	}
	if initial && d.size < 1200 && (p.volley == asClient || eliciting) {
		p.Errorf("datagram with an Initial is too short: %v", d) // §14.1
	}
	if most := int64(p.config.populate().MaxPacketSize); int64(d.size) > most || w.params.MaxUDPPayload > 0 && p.done && int64(d.size) > w.params.MaxUDPPayload {
		p.Errorf("datagram is too long: %v", d)
	}
	for _, pkt := range d.packets[1:] {
		if !bytes.Equal(pkt.dst, d.packets[0].dst) {
			p.Errorf("coalesced packets have different connection IDs: %v", d) // §12.2
		}
	}
}

// packet checks a packet's number and frames.
func (w *watch) packet(pkt *sentPacket) {
	p := w.p
	p.Helper()
	if pkt.greased && (pkt.pn < 0 || !w.mayGrease()) {
		p.Errorf("%v packet %d lacks the QUIC bit", pkt.typ, pkt.pn)
	}
	if pkt.pn < 0 {
		return // Retry and the like
	}
	sp := spaceOf(pkt.typ)
	if pkt.pn < w.next[sp] {
		p.Errorf("%v packet number %d follows %d", pkt.typ, pkt.pn, w.next[sp]-1)
	}
	w.next[sp] = pkt.pn + 1
	if len(pkt.frames) == 0 {
		p.Errorf("%v packet %d is empty", pkt.typ, pkt.pn)
	}
	w.connID(pkt)
	for _, f := range pkt.frames {
		if typ := frameType(f); !wire.AllowedIn(typ, pkt.typ) {
			p.Errorf("%v is not allowed in %v packets", f, pkt.typ)
		}
		w.frame(sp, pkt, f)
	}
}

// mayGrease reports whether Volley knows that the actor takes packets without the QUIC bit:
// from its transport parameters, which a server's Handshake packets bring, or with a token.
func (w *watch) mayGrease() bool {
	p := w.p
	if p.config.DisableQUICBitGreasing {
		return false
	}
	told := p.volley == asServer || p.out[recovery.Handshake].sent > 0
	return told && w.params.GreaseQUICBit || w.tokenGreases
}

// connID checks that the packet goes to a connection ID of the actor's, or one that
// the client made up.
func (w *watch) connID(pkt *sentPacket) {
	p := w.p
	p.Helper()
	for _, id := range p.ids {
		if bytes.Equal(id, pkt.dst) {
			return
		}
	}
	if pkt.typ == wire.Initial && p.volley == asClient && (bytes.Equal(pkt.dst, p.origDst) || bytes.Equal(pkt.dst, p.keyDst)) {
		return
	}
	if !w.loose {
		p.Errorf("%v packet %d is sent to %x, which is not in use", pkt.typ, pkt.pn, pkt.dst)
	}
}

func (w *watch) frame(sp recovery.Space, pkt *sentPacket, f wire.Frame) {
	p := w.p
	p.Helper()
	switch f := f.(type) {
	case wire.Ack:
		for _, r := range f.Ranges {
			if !slices.ContainsFunc(p.sentPN[sp], func(s span) bool { return s.lo <= r.Lo && r.Hi <= s.hi }) {
				p.Errorf("%v in %v packet %d acknowledges what was not sent", f, pkt.typ, pkt.pn)
			}
		}
	case wire.Crypto:
		if !p.in[sp].put(f.Off, f.Data) {
			p.Errorf("%v: other bytes than before", f)
		}
	case wire.Stream:
		w.stream(f)
	case wire.ResetStream:
		w.reset(f, wire.ResetStreamAt{ID: f.ID, Code: f.Code, FinalSize: f.FinalSize})
	case wire.ResetStreamAt:
		w.reset(f, f)
	case wire.MaxData:
		if f.Max < w.saidMaxData {
			p.Errorf("%v after %d", f, w.saidMaxData)
		}
		w.saidMaxData = f.Max
	case wire.MaxStreams:
		k := kindOf(f.Uni)
		if f.Max < w.saidMaxStreams[k] {
			p.Errorf("%v after %d", f, w.saidMaxStreams[k])
		}
		w.saidMaxStreams[k] = f.Max
	case wire.HandshakeDone, wire.NewToken:
		if p.volley == asClient {
			p.Errorf("%v from a client", f)
		}
	case wire.RetireConnectionID:
		if id, ok := p.ids[f.Seq]; ok && bytes.Equal(id, pkt.dst) && !w.loose {
			p.Errorf("%v retires the connection ID that the packet is sent to", f) // §19.16
		}
	}
}

func (w *watch) watched(id int64) *watched {
	s := w.streams[id]
	if s == nil {
		s = &watched{final: -1}
		w.streams[id] = s
	}
	return s
}

// reset checks a RESET_STREAM, which spares nothing, or a RESET_STREAM_AT.
func (w *watch) reset(said wire.Frame, f wire.ResetStreamAt) {
	p := w.p
	p.Helper()
	s := w.watched(f.ID)
	if s.reset && (s.code != f.Code || s.final != f.FinalSize || s.spared < f.ReliableSize) {
		p.Errorf("%v changes what was said before: %d, %d, %d", said, s.code, s.final, s.spared)
	}
	if s.final >= 0 && s.final != f.FinalSize || s.highest > f.FinalSize {
		p.Errorf("%v: the final size was %d, the highest offset %d", said, s.final, s.highest)
	}
	s.reset, s.code, s.final, s.spared = true, f.Code, f.FinalSize, f.ReliableSize
	w.credit(f.ID, s, f.FinalSize)
}

func (w *watch) stream(f wire.Stream) {
	p := w.p
	p.Helper()
	s := w.watched(f.ID)
	end := f.Off + int64(len(f.Data))
	switch {
	case s.reset && (f.Fin || end > s.spared):
		p.Errorf("%v after a reset that spared %d bytes", f, s.spared)
	case s.final >= 0 && end > s.final, f.Fin && s.final >= 0 && end != s.final, f.Fin && end < s.highest:
		p.Errorf("%v: the final size was %d, the highest offset %d", f, s.final, s.highest)
	case len(f.Data) == 0 && !f.Fin && f.Off > 0:
		p.Errorf("%v says nothing", f)
	}
	if f.Fin {
		s.final = end
	}
	if !s.tape.put(f.Off, f.Data) {
		p.Errorf("%v: other bytes than before", f)
	}
	w.credit(f.ID, s, end)
}

// credit checks stream limits and flow control.
func (w *watch) credit(id int64, s *watched, end int64) {
	p := w.p
	p.Helper()
	if end > s.highest {
		w.total += end - s.highest
		s.highest = end
	}
	if w.loose {
		return
	}
	ours := (id&serverBit != 0) == (p.volley == asServer) // Volley's
	k := kindOf(id&uniBit != 0)
	if ours && id>>2 >= w.maxStreams[k] {
		p.Errorf("stream %d is beyond the limit of %d", id, w.maxStreams[k])
	}
	limit := w.params.InitialMaxStreamDataBidiLocal
	switch {
	case k == uni:
		limit = w.params.InitialMaxStreamDataUni
	case ours:
		limit = w.params.InitialMaxStreamDataBidiRemote
	}
	if limit = max(limit, w.streamData[id]); end > limit {
		p.Errorf("stream %d has bytes up to %d, beyond MAX_STREAM_DATA %d", id, end, limit)
	}
	if w.total > w.maxData {
		p.Errorf("%d bytes on all streams, beyond MAX_DATA %d", w.total, w.maxData)
	}
}
