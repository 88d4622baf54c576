package sender

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/stream"
)

// peer opens every datagram and holds what it finds against what the streams' sources hold,
// and against what was found before.
type peer struct {
	t      testing.TB
	mu     sync.Mutex
	mute   bool // it looks at nothing
	setup  setup
	id     []byte // its connection ID
	reads  *protect.OneRTT
	writes *protect.OneRTT

	largest int64
	cipher  map[int64][]byte // every packet that was ever sealed, by number
	got     map[int64]bool   // … that arrived
	packets []packet         // in the order in which they arrived
	flights []int            // datagrams of each call
	streams map[int64]*arrival
	unacked []int64
	arrived func(pns []int64) // told of what came in one call
	credit  int64             // of the connection: what all streams may send
	used    int64
	content func(id, off int64) byte
}

type packet struct {
	pn     int64
	size   int
	frames []wire.Frame
}

func (p packet) String() string { return fmt.Sprintf("%d (%d bytes): %v", p.pn, p.size, p.frames) }

// arrival is what came of one stream.
type arrival struct {
	from     int64  // where it begins
	data     []byte // from there on
	has      []bool
	bytes    int   // of has
	final    int64 // size, -1 while unknown
	limit    int64 // what it may send up to; 0: all
	fins     int
	reliable int64 // what arrives though it was reset
	reset    bool
}

func newPeer(t testing.TB, s setup) *peer {
	return &peer{
		t: t, setup: s, id: bytes.Repeat([]byte{0xd5}, s.dst), largest: -1,
		cipher: make(map[int64][]byte), got: make(map[int64]bool), streams: make(map[int64]*arrival),
		content: at, credit: s.credit,
	}
}

// keys makes the sender's keys, and the peer's for the same secret.
func (p *peer) keys() *protect.OneRTT {
	secret := bytes.Repeat([]byte{7}, 32)
	if p.setup.suite == tls.TLS_AES_256_GCM_SHA384 {
		secret = bytes.Repeat([]byte{7}, 48)
	}
	var ks [2]*protect.OneRTT
	for i := range ks {
		ks[i] = protect.NewOneRTT(p.setup.suite, wire.Version1)
		if err := ks[i].SetReadSecret(secret); err != nil {
			p.t.Fatal(err)
		}
		if err := ks[i].SetWriteSecret(secret); err != nil {
			p.t.Fatal(err)
		}
		ks[i].SetHandshakeConfirmed()
	}
	p.writes, p.reads = ks[0], ks[1]
	return p.writes
}

// sealed looks at one system call.
func (p *peer) sealed(s udp.Sending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := s.Datagrams(); n > maxSegments || len(s.B) > maxFlightBytes {
		p.t.Errorf("%d datagrams, %d bytes in one call", n, len(s.B))
	}
	p.flights = append(p.flights, s.Datagrams())
}

// receive takes in the first n datagrams of one call.
func (p *peer) receive(s udp.Sending, n int) {
	p.mu.Lock()
	if p.mute {
		p.mu.Unlock()
		return
	}
	var pns []int64
	for b := s.B; len(b) > 0; n-- {
		d := bytes.Clone(b[:min(len(b), s.Segment)])
		b = b[len(d):]
		pn, ok := p.open(d, n > 0)
		if ok && n > 0 {
			pns = append(pns, pn)
		}
	}
	p.unacked = append(p.unacked, pns...)
	f := p.arrived
	p.mu.Unlock()
	if f != nil && len(pns) > 0 {
		f(pns)
	}
}

// open unseals one datagram and looks into it, if it arrives.
func (p *peer) open(d []byte, arrives bool) (pn int64, ok bool) {
	cipher, size := bytes.Clone(d), len(d)
	pn, payload, err := p.reads.Open(d, 1+len(p.id), p.largest)
	if err != nil {
		p.t.Errorf("datagram of %d bytes does not open: %v", size, err)
		return 0, false
	}
	if err := p.reads.Received(time.Now(), time.Second); err != nil {
		p.t.Error(err)
	}
	if old := p.cipher[pn]; old != nil && !bytes.Equal(old, cipher) {
		p.t.Errorf("packet number %d was sealed twice", pn)
	}
	p.cipher[pn] = cipher
	if !arrives {
		return pn, true
	}
	if p.got[pn] {
		p.t.Errorf("packet %d was sent twice", pn)
	}
	p.got[pn] = true
	if pn <= p.largest {
		p.t.Errorf("packet %d after %d", pn, p.largest)
	}
	p.largest = pn
	pk := packet{pn: pn, size: size, frames: parse(p.t, payload)}
	for _, f := range pk.frames {
		p.frame(f)
	}
	p.packets = append(p.packets, pk)
	return pn, true
}

// parse returns the frames of a payload.
func parse(t testing.TB, payload []byte) (frames []wire.Frame) {
	for len(payload) > 0 {
		f, n, err := wire.ParseFrame(payload)
		if err != nil {
			t.Errorf("bad frame: %v in % x", err, payload[:min(len(payload), 40)])
			break
		}
		payload = payload[n:]
		frames = append(frames, f)
	}
	if len(frames) == 0 {
		t.Error("a packet without a frame") // RFC 9000 §12.4
	}
	return frames
}

func (p *peer) frame(f wire.Frame) {
	switch f := f.(type) {
	case wire.ResetStream:
		a := p.stream(f.ID)
		if end := a.from + int64(len(a.data)); end != f.FinalSize {
			p.t.Errorf("stream %d was reset at %d, but %d bytes came", f.ID, f.FinalSize, end)
		}
		a.reset, a.reliable = true, 0
	case wire.ResetStreamAt:
		a := p.stream(f.ID)
		if end := a.from + int64(len(a.data)); end > f.FinalSize || f.ReliableSize > f.FinalSize || a.reset && f.ReliableSize > a.reliable {
			p.t.Errorf("%v, but %d bytes came, and %d were reliable", f, end, a.reliable)
		}
		a.reset, a.reliable = true, f.ReliableSize
	case wire.Stream:
		p.data(f)
	}
}

func (p *peer) stream(id int64) *arrival {
	if p.streams[id] == nil {
		p.streams[id] = &arrival{final: -1}
	}
	return p.streams[id]
}

// skip says that stream id begins at off.
func (p *peer) skip(id, off int64) {
	p.mu.Lock()
	p.stream(id).from = off
	p.mu.Unlock()
}

func (p *peer) data(f wire.Stream) {
	a := p.stream(f.ID)
	if a.reset && f.Off+int64(len(f.Data)) > a.reliable || a.reset && f.Fin {
		p.t.Errorf("stream %d: bytes at %d after its reset", f.ID, f.Off) // RFC 9000 §3.1
	}
	if len(f.Data) == 0 && !f.Fin {
		p.t.Errorf("stream %d: an empty frame at %d", f.ID, f.Off)
	}
	end := f.Off + int64(len(f.Data))
	if f.Off < a.from {
		p.t.Errorf("stream %d: bytes at %d", f.ID, f.Off)
		return
	}
	if n := int(end - a.from); n > len(a.data) {
		if p.used += int64(n - len(a.data)); p.used > p.credit || a.limit > 0 && end > a.limit {
			p.t.Errorf("stream %d: bytes up to %d of %d, of all %d of %d", f.ID, end, a.limit, p.used, p.credit) // RFC 9000 §4.1
		}
		a.data = append(a.data, make([]byte, n-len(a.data))...)
		a.has = append(a.has, make([]bool, n-len(a.has))...)
	}
	if a.final >= 0 && end > a.final || f.Fin && a.final >= 0 && end != a.final || f.Fin && end < a.from+int64(len(a.data)) {
		p.t.Errorf("stream %d: bytes up to %d, fin %v, of %d", f.ID, end, f.Fin, a.final) // RFC 9000 §4.5
	}
	if f.Fin {
		a.final = end
		a.fins++
	}
	for i, b := range f.Data {
		j := int(f.Off-a.from) + i
		if a.has[j] && a.data[j] != b {
			p.t.Errorf("stream %d: offset %d has two values", f.ID, f.Off+int64(i))
		}
		if p.content != nil && b != p.content(f.ID, f.Off+int64(i)) {
			p.t.Errorf("stream %d: offset %d has a wrong value, in a frame %v", f.ID, f.Off+int64(i), f)
			return
		}
		if !a.has[j] {
			a.bytes++
		}
		a.data[j], a.has[j] = b, true
	}
}

// whole fails the test if not all of a stream's first n bytes came, or something beyond.
func (p *peer) whole(id, n int64, fin bool) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.stream(id)
	if int64(a.bytes) != n || int64(len(a.data)) != n {
		p.t.Errorf("stream %d: %d bytes of %d arrived, up to %d", id, a.bytes, n, len(a.data))
	}
	if fin != (a.final >= 0) {
		p.t.Errorf("stream %d: final size %d, fin %v", id, a.final, fin)
	}
}

func (p *peer) wasReset(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream(id).reset
}

// sealings is how many packets were sealed.
func (p *peer) sealings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.cipher)
}

func (p *peer) fins(id int64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream(id).fins
}

// take returns what came since it was last called.
func (p *peer) take() []packet {
	p.mu.Lock()
	defer p.mu.Unlock()
	ps := p.packets
	p.packets = nil
	return ps
}

// pns returns the numbers of what came since it was last called.
func (p *peer) pns() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ns := p.unacked
	p.unacked = nil
	return ns
}

// calls returns how many datagrams each call carried since it was last called.
func (p *peer) calls() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.flights
	p.flights = nil
	return n
}

// ackOf makes an ACK frame of exactly these packets.
func ackOf(pns []int64) wire.Ack {
	pns = slices.Clone(pns)
	slices.Sort(pns)
	var ack wire.Ack
	for i := len(pns) - 1; i >= 0; i-- {
		if n := len(ack.Ranges); n > 0 && ack.Ranges[n-1].Lo <= pns[i]+1 {
			ack.Ranges[n-1].Lo = min(ack.Ranges[n-1].Lo, pns[i])
			continue
		}
		ack.Ranges = append(ack.Ranges, wire.AckRange{Lo: pns[i], Hi: pns[i]})
	}
	return ack
}

// Flight implements Trace: it holds a flight that is committed, and not sealed yet, against
// its trains and passes.
func (c *conn) Flight(f *Flight) {
	c.t.Helper()
	(*host)(c).inside()
	if c.look != nil {
		c.look(f)
	}
	type slot struct {
		id, off int64
		n       int
		fin     bool
	}
	var trains [][]slot // per packet
	var sizes []int
	var eliciting, inFlight []bool
	for _, t := range f.trains {
		if t.N < 1 || t.N > 16 {
			c.t.Errorf("a train of %d packets", t.N)
		}
		at, off, end := len(trains), t.Off, t.Off
		for _, n := range t.Lens {
			end += int64(n)
		}
		for i := range t.N {
			var slots []slot
			if n := int(t.Lens[i]); n > 0 {
				slots = append(slots, slot{t.Data.(*stream.Send).ID(), off, n, t.Fin && off+int64(n) == end})
				off += int64(n)
			}
			trains = append(trains, slots)
			sizes = append(sizes, int(t.Sizes[i]))
			eliciting = append(eliciting, t.Eliciting>>i&1 != 0)
			inFlight = append(inFlight, t.InFlight>>i&1 != 0)
		}
		for _, e := range t.Extra {
			if s, ok := e.Data.(*stream.Send); ok {
				trains[at+int(e.I)] = append(trains[at+int(e.I)], slot{s.ID(), e.Off, e.Len, e.Fin})
			}
		}
	}
	if len(trains) != f.n {
		c.t.Errorf("%d datagrams, %d packets in trains", f.n, len(trains))
		return
	}
	frames, passed := 0, 0
	for _, p := range f.passes {
		frames -= p.Slots
		passed -= p.Bytes
	}
	for i := range f.n {
		start, end := i*f.size, min((i+1)*f.size, f.total)
		if i < f.n-1 && end-start != f.size || end-start > f.size || sizes[i] != end-start {
			c.t.Errorf("datagram %d of %d has %d bytes of %d; its train says %d", i, f.n, end-start, f.size, sizes[i])
		}
		var slots []slot
		elicits, padded := false, false
		for _, fr := range parse(c.t, f.buf[start+f.hdr:end-overhead]) {
			switch fr := fr.(type) {
			case wire.Stream:
				slots = append(slots, slot{fr.ID, fr.Off, len(fr.Data), fr.Fin})
				frames++
				passed += len(fr.Data)
				elicits = true
			case wire.Padding:
				padded = true
			case wire.Ack:
			default:
				elicits = true
			}
		}
		for _, s := range [][]slot{slots, trains[i]} {
			slices.SortFunc(s, func(a, b slot) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.off, b.off)) })
		}
		if !slices.Equal(slots, trains[i]) {
			c.t.Errorf("datagram %d holds %v, its train says %v", i, slots, trains[i])
		}
		// RFC 9002 §2: what is ack-eliciting or holds PADDING is in flight; but by another
		// path than the one in use, nothing is (RFC 9000 §9.4).
		if f.apart {
			elicits, padded = false, false
		}
		if eliciting[i] != elicits || inFlight[i] != (elicits || padded) {
			c.t.Errorf("datagram %d: eliciting %v, in flight %v, but its train says %v, %v", i, elicits, elicits || padded, eliciting[i], inFlight[i])
		}
	}
	if frames != 0 || passed != 0 {
		c.t.Errorf("%d frames and %d bytes more than the passes %+v", frames, passed, f.passes)
	}
}

// SourceCall implements Trace.
func (c *conn) SourceCall(k SourceCall) {
	(*host)(c).inside()
	if k.Asked <= 0 || k.Got < 0 || k.Got > k.Asked {
		c.t.Errorf("a call %+v", k)
	}
}

// Refused implements Trace.
func (c *conn) Refused(first, last int64) {
	(*host)(c).inside()
	for pn := first; pn <= last; pn++ {
		if c.peer.got[pn] {
			c.t.Errorf("packet %d arrived, and is said to have been refused", pn)
		}
	}
}
