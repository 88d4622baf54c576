package stream

import (
	"errors"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/volley-quic/volley/emit"
)

// sendModel runs a send side beside a naive map from byte to state.
type sendModel struct {
	t testing.TB
	chooser
	h *testHost
	s *Send

	state  []byteState // one per accepted byte
	credit int64
	next   int64
	sent   []packet // ever packed, some acked or lost long ago

	fin      bool // queued
	finState byteState
	finLeft  int // 1: for the first time
	source   bool
	reset    bool
	dead     bool
	owned    int // pieces lent
	released int

	resetAt    bool // the peer takes RESET_STREAM_AT
	boundary   int64
	spared     bool    // reset, but for the bytes below boundary: the others count as acked
	resets     []int64 // reliable sizes of those in flight
	resetAcked bool    // the last of them
}

type byteState struct {
	packed, acked, lost bool
	away                bool // not at hand
	value               byte // what was seen on the wire
	seen                bool
}

func (m *sendModel) run() {
	for !m.over() && !m.t.Failed() {
		m.step()
		m.check()
	}
	m.finish()
}

func (m *sendModel) step() {
	c := m.choose(21)
	if m.acc() > 30_000 && (c < 2 || c == 6 || c == 7) {
		return // check looks at every byte
	}
	switch c {
	case 0, 1:
		m.write()
	case 2:
		m.h.do(func() {
			m.credit += int64(m.choose(3000))
			m.s.SetCredit(m.credit)
			m.s.SetCredit(m.credit / 2) // an old frame, late
		})
	case 3:
		if m.choose(30) == 0 {
			m.close()
		}
	case 4:
		if m.choose(100) == 0 || m.resetAt && m.choose(8) == 0 {
			m.cancel()
		}
	case 5:
		m.beginOrEndSource()
	case 6:
		m.appendBlock()
	case 7:
		m.packSource()
	case 8:
		m.readAgain()
	case 9, 10, 11, 12, 13:
		m.pack()
	case 14, 15, 16, 17:
		m.ackOrLose(m.choose(3) > 0)
	case 18:
		m.ackOrLose(false)
	case 19:
		m.probe()
	case 20:
		if m.choose(2) == 0 {
			m.mark()
		}
	}
	m.h.later()
}

func (m *sendModel) acc() int64   { return int64(len(m.state)) }
func (m *sendModel) closed() bool { return m.fin || m.dead || m.spared }

func (m *sendModel) accept(n int, away bool) {
	for range n {
		m.state = append(m.state, byteState{away: away, packed: away})
	}
}

func (m *sendModel) write() {
	n := m.choose(3000)
	if m.choose(3) > 0 {
		n %= 50
	}
	p := pattern(m.acc(), n)
	var got int
	var err error
	switch m.choose(4) {
	case 0:
		got, err = m.s.Write(p)
	case 1:
		cut := m.choose(n + 1)
		b := net.Buffers{p[:cut], nil, p[cut:]}
		var k int64
		k, err = m.s.WriteBuffers(&b)
		got = int(k)
	case 2:
		m.owned++
		got, err = m.s.WriteOwned(p, func() {
			m.released++
			clear(p)
		})
	case 3:
		if m.acc()+int64(n) > m.credit {
			return
		}
		if err = m.s.TryWriteAll(p); err == nil {
			got = n
		}
		if n == 0 && !m.closed() {
			return // even beside a source
		}
	}
	switch {
	case m.closed():
		if err == nil {
			m.t.Fatal("a closed stream takes bytes")
		}
	case m.source:
		if !errors.Is(err, emit.ErrBusy) {
			m.t.Fatalf("write beside a source: %v", err)
		}
	case err != nil || got != n:
		m.t.Fatalf("write: %d of %d, %v", got, n, err)
	default:
		m.accept(n, false)
	}
}

func (m *sendModel) close() {
	if m.source || m.dead || m.spared {
		return
	}
	if m.choose(2) == 0 {
		n := m.choose(100)
		_, err := m.s.CloseWith(pattern(m.acc(), n))
		if (err != nil) != m.fin {
			m.t.Fatalf("CloseWith: %v", err)
		}
		if !m.fin {
			m.accept(n, false)
		}
	} else if err := m.s.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.fin = true
}

func (m *sendModel) mark() {
	m.s.SetReliableBoundary()
	if !m.dead && !m.spared {
		m.boundary = m.acc()
	}
}

func (m *sendModel) cancel() {
	if m.choose(4) == 0 {
		m.mark()
	}
	done := m.h.done > 0
	if m.choose(3) > 0 {
		slots := m.slotsNow()
		m.s.Cancel(7)
		switch {
		case done || m.dead || m.spared:
		case m.resetAt && m.boundary > 0:
			reliable := m.boundary
			for _, l := range slots {
				if l.lost { // nobody will be asked for it again
					reliable = min(reliable, m.firstUnacked(l))
				}
			}
			m.spare(reliable)
		default:
			m.dead, m.reset = true, true
		}
		return
	}
	m.h.do(func() { m.s.StopSending(8) })
	if !done {
		m.dead, m.reset, m.spared = true, true, false
	}
}

// spare is what a reset does that spares the bytes below reliable, or fewer than before.
func (m *sendModel) spare(reliable int64) {
	m.reset, m.resetAcked = true, false
	m.boundary = reliable
	if reliable == 0 {
		m.dead, m.spared = true, false
		return
	}
	m.spared = true
	m.fin, m.finState = false, byteState{}
	m.state = m.state[:max(m.next, reliable)]
	for i := reliable; i < m.acc(); i++ {
		m.state[i].acked, m.state[i].lost = true, false
	}
}

func (m *sendModel) slotsNow() (slots []slot) {
	m.h.do(func() { slots = append(slots, m.s.slotsForTest()...) })
	return slots
}

func (m *sendModel) firstUnacked(l slot) int64 {
	for i := l.off; i < l.end(); i++ {
		if !m.state[i].acked {
			return i
		}
	}
	return l.end()
}

// lower takes out of what was spared the slots that a loss of [off, off+n) concerns.
func (m *sendModel) lower(slots []slot, off int64, n int) {
	for _, l := range slots {
		for i := max(off, l.off); i < min(off+int64(n), l.end()) && m.spared; i++ {
			if !m.state[i].acked {
				m.spare(m.firstUnacked(l))
				return
			}
		}
	}
}

func (m *sendModel) beginOrEndSource() {
	if m.source {
		// What a source leaves behind must not get lost: the model's have it
		// all acknowledged.
		for _, b := range m.state {
			if b.away && !b.acked && !m.dead && !m.spared {
				return
			}
		}
		m.s.EndSource()
		m.source = false
		return
	}
	err := m.s.BeginSource(m.t.Context())
	if (err != nil) != m.closed() {
		m.t.Fatalf("BeginSource: %v", err)
	}
	m.source = err == nil
}

func (m *sendModel) appendBlock() {
	if !m.source {
		return
	}
	n := m.choose(5000)
	b := Get(n + m.choose(100))
	copy(b.Bytes(), pattern(m.acc(), n))
	m.h.do(func() {
		err := m.s.AppendBlock(b, n)
		if (err != nil) != m.closed() {
			m.t.Fatalf("AppendBlock: %v", err)
		}
		if err == nil {
			m.accept(n, false)
			if m.choose(50) == 0 {
				m.s.FinishSource()
				m.fin = true
			}
		}
	})
}

// slots cuts n bytes.
func (m *sendModel) slots(n int) (lens []uint16, hashes []uint64) {
	for n > 0 && len(lens) < 9 {
		k := 1 + m.choose(n)
		lens, n = append(lens, uint16(k)), n-k
	}
	if n > 0 {
		lens = append(lens, uint16(n))
	}
	for range lens {
		hashes = append(hashes, 42)
	}
	return lens, hashes
}

func (m *sendModel) packSource() {
	if !m.source || m.fin && m.next == m.acc() {
		return
	}
	n := 1 + m.choose(2000)
	lens, hashes := m.slots(n)
	if m.next < m.acc() && m.choose(4) > 0 && !m.spared {
		m.shed()
		return
	}
	m.h.do(func() {
		off := m.acc()
		want := n
		if m.closed() || m.next != off || off+int64(n) > m.credit {
			want = -1
		}
		if got := m.s.PackedSource(off, lens, hashes, false); got != want {
			m.t.Fatalf("PackedSource: %d, want %d", got, want)
		}
		if want < 0 {
			return
		}
		m.accept(n, true)
		m.next += int64(n)
		m.packets(off, lens)
	})
}

// shed packs unsent bytes that are not kept.
func (m *sendModel) shed() {
	m.h.do(func() {
		off, n, fin, _, ok := m.s.Next(3000)
		if !ok || off != m.next || n == 0 || off < m.s.src.from || m.s.q.at(m.s.q.find(off)).off != off {
			return // nothing, or not the source's, or the rest of a block that is kept
		}
		if k := 1 + m.choose(n); k < n {
			n, fin = k, false
		}
		buf := make([]byte, n)
		m.s.Copy(buf, off)
		checkPattern(m.t, buf, off)
		lens, hashes := m.slots(n)
		if got := m.s.PackedSource(off, lens, hashes, fin); got != n {
			m.t.Fatalf("PackedSource of unsent bytes: %d, want %d", got, n)
		}
		for i := range n {
			b := &m.state[off+int64(i)]
			b.packed, b.away = true, true
		}
		m.next += int64(n)
		if fin {
			m.finState.packed, m.finState.lost, m.finLeft = true, false, 1
			m.onWire(packet{m.acc(), 0, true}, nil)
		}
		m.packets(off, lens)
	})
}

func (m *sendModel) packets(off int64, lens []uint16) {
	for _, k := range lens {
		m.onWire(packet{off, int(k), false}, pattern(off, int(k)))
		off += int64(k)
	}
}

func (m *sendModel) onWire(p packet, data []byte) {
	for i, c := range data {
		b := &m.state[p.off+int64(i)]
		if b.seen && b.value != c || c != at(p.off+int64(i)) {
			m.t.Fatalf("offset %d has another value now", p.off+int64(i))
		}
		b.seen, b.value = true, c
	}
	m.sent = append(m.sent, p)
}

func (m *sendModel) readAgain() {
	if !m.source {
		return
	}
	var off int64
	var lens []uint16
	ok := false
	m.h.do(func() { off, lens, _, ok = m.s.LostSource() })
	if !ok {
		return
	}
	if m.choose(2) == 0 {
		m.ackOrLose(true) // while it is being read
	}
	n := 0
	k := 1 + m.choose(len(lens))
	for _, l := range lens[:k] {
		n += int(l)
	}
	if m.choose(2) == 0 {
		b := Get(n)
		copy(b.Bytes(), pattern(off, n))
		m.h.do(func() { m.s.Refill(off, b, n) })
		for i := range n {
			m.state[off+int64(i)].away = false
		}
		return
	}
	lens, hashes := m.slots(n)
	m.h.do(func() {
		got := m.s.PackedSource(off, lens, hashes, false)
		if m.dead || got < 0 {
			return // acknowledged meanwhile
		}
		for i := range n {
			m.state[off+int64(i)].lost = false
		}
		m.packets(off, lens)
	})
}

// want is what Next must give.
func (m *sendModel) want(max int) (off int64, n int, fin, ok bool) {
	finDue := m.fin && (!m.finState.packed || m.finState.lost)
	for i := range m.next {
		if b := m.state[i]; b.lost && !b.away {
			n := int64(0)
			for i+n < m.next && m.state[i+n].lost && !m.state[i+n].away {
				n++
			}
			return i, int(n), finDue && i+n == m.acc(), true
		}
	}
	if k := min(m.acc()-m.next, m.credit-m.next, int64(max)); k > 0 {
		return m.next, int(k), finDue && m.next+k == m.acc(), true
	}
	if finDue && m.next == m.acc() {
		return m.acc(), 0, true, true
	}
	return 0, 0, false, false
}

func (m *sendModel) pack() {
	m.h.do(func() {
		if m.reset {
			m.packReset()
		}
		if m.dead {
			return
		}
		max := m.choose(4000)
		wantOff, wantN, wantFin, wantOK := m.want(max)
		off, n, fin, lost, ok := m.s.Next(max)
		if off != wantOff || n != wantN || fin != wantFin || ok != wantOK {
			m.t.Fatalf("Next(%d) = %d, %d, %v, %v, want %d, %d, %v, %v", max, off, n, fin, ok, wantOff, wantN, wantFin, wantOK)
		}
		if !ok {
			return
		}
		if n > 0 && lost != (off < m.next) {
			m.t.Fatalf("lost is %v at %d, new bytes begin at %d", lost, off, m.next)
		}
		if n > 0 && m.choose(2) == 0 {
			if k := 1 + m.choose(n); k < n {
				n, fin = k, false
			}
		}
		buf := make([]byte, n)
		if !m.s.Copy(buf, off) {
			m.t.Fatalf("%d bytes at %d are not at hand", n, off)
		}
		if m.choose(5) == 0 {
			return // no room for it after all
		}
		m.packed(off, n, fin, buf)
	})
}

func (m *sendModel) packed(off int64, n int, fin bool, buf []byte) {
	fresh := int(max(0, off+int64(n)-m.next))
	if got := m.s.Packed(off, n, fin); got != fresh {
		m.t.Fatalf("Packed(%d, %d) = %d, want %d", off, n, got, fresh)
	}
	for i := range n {
		b := &m.state[off+int64(i)]
		b.packed, b.lost = true, false
	}
	m.next += int64(fresh)
	if fin {
		m.finState.packed, m.finState.lost, m.finLeft = true, false, 1
	}
	m.onWire(packet{off, n, fin}, buf)
}

func (m *sendModel) packReset() {
	reliable := int64(0)
	if m.spared {
		reliable = m.boundary
	}
	code, size, ok := m.s.ResetDue()
	if got := m.s.ReliableSize(); got != reliable {
		m.t.Fatalf("reliable size %d, want %d", got, reliable)
	}
	if ok {
		if size != m.next || size < reliable || m.spared && code != 7 {
			m.t.Fatalf("final size %d, code %d, want %d", size, code, m.next)
		}
		m.s.ResetSent()
		m.resets = append(m.resets, reliable)
	}
	if len(m.resets) == 0 {
		return
	}
	i := m.choose(len(m.resets))
	sent := m.resets[i]
	switch m.choose(3) {
	case 0:
		m.s.ResetLost(sent)
	case 1:
		m.s.ResetAcked(sent)
		m.s.ResetAcked(sent)
		m.s.ResetLost(sent)
		m.resetAcked = m.resetAcked || sent == reliable
	}
	if m.choose(2) == 0 {
		m.resets = append(m.resets[:i], m.resets[i+1:]...)
	}
}

func (m *sendModel) probe() {
	m.h.do(func() {
		off, n, fin, ok := m.s.Probe(1 + m.choose(1500))
		if !ok {
			return
		}
		for i := range n {
			if b := m.state[off+int64(i)]; !b.packed || b.acked || b.away {
				m.t.Fatalf("Probe names byte %d, which is %+v", off+int64(i), b)
			}
		}
		buf := make([]byte, n)
		if !m.s.Copy(buf, off) {
			m.t.Fatal("Probe names bytes that are not at hand")
		}
		m.packed(off, n, fin, buf)
	})
}

func (m *sendModel) ackOrLose(ack bool) {
	if len(m.sent) == 0 {
		return
	}
	i := m.choose(len(m.sent))
	if m.choose(2) == 0 {
		i = m.choose(min(5, len(m.sent))) // mostly in order
	}
	p := m.sent[i]
	if m.choose(3) > 0 {
		m.sent = append(m.sent[:i], m.sent[i+1:]...) // else it is named again later
	}
	if end := p.off + int64(p.n); m.choose(4) == 0 && end < m.next {
		// Packets of one train are named together, and some of them may be acknowledged.
		p.n, p.fin = p.n+1+m.choose(int(m.next-end)), false
	}
	slots := m.slotsNow()
	m.h.do(func() {
		if ack {
			m.s.OnAcked(p.off, p.n, p.fin)
		} else {
			m.s.OnLost(p.off, p.n, p.fin)
		}
	})
	if m.spared && !ack {
		m.lower(slots, p.off, p.n)
	}
	if m.dead {
		return
	}
	for i := range p.n {
		b := &m.state[p.off+int64(i)]
		if ack {
			b.acked, b.lost = true, false
		} else if !b.acked {
			b.lost = true
		}
	}
	if p.fin && m.fin {
		if ack {
			m.finState.acked, m.finState.lost = true, false
		} else if !m.finState.acked {
			m.finState.lost = true
		}
	}
	// A slot is read again whole, also if a part of it is acknowledged.
	m.h.do(func() {
		for _, l := range m.s.slotsForTest() {
			for i := l.off; i < l.end(); i++ {
				if b := &m.state[i]; !b.acked {
					b.lost = l.lost
				}
			}
		}
	})
}

func (s *Send) slotsForTest() []slot {
	if s.src == nil {
		return nil
	}
	return s.src.slots[s.src.head:]
}

func (m *sendModel) complete() bool {
	for _, b := range m.state {
		if !b.acked {
			return false
		}
	}
	return m.fin && m.finState.acked || m.spared && m.resetAcked
}

// check compares the two.
func (m *sendModel) check() {
	m.h.do(func() {
		s := m.s
		if m.dead {
			_, _, due := s.ResetDue()
			if s.HasPending() != due || s.Unsent() != 0 || m.h.buffered != 0 {
				m.t.Fatal("a dead stream has something to send")
			}
			return
		}
		if s.acc != m.acc() || s.next != m.next || s.credit != m.credit || s.Unsent() != int(m.acc()-m.next) || m.h.buffered != s.Unsent() {
			m.t.Fatalf("acc %d next %d credit %d unsent %d buffered %d, want %d %d %d",
				s.acc, s.next, s.credit, s.Unsent(), m.h.buffered, m.acc(), m.next, m.credit)
		}
		lost := make([]bool, len(m.state))
		for _, r := range s.lost.spans() {
			for i := r.lo; i < r.hi; i++ {
				lost[i] = true
			}
		}
		nlost := 0
		for _, l := range s.slotsForTest() {
			if l.lost {
				nlost++
			}
			for i := l.off; i < l.end(); i++ {
				if m.state[i].away != true {
					m.t.Fatalf("byte %d has a slot and is at hand", i)
				}
				lost[i] = l.lost && !m.state[i].acked
			}
		}
		if s.src != nil && s.src.nlost != nlost {
			m.t.Fatalf("nlost %d, want %d", s.src.nlost, nlost)
		}
		prefix := true
		for i, b := range m.state {
			if lost[i] != b.lost {
				m.t.Fatalf("byte %d lost %v, want %+v", i, lost[i], b)
			}
			prefix = prefix && b.acked
			if i == len(m.state)/2 && s.AllAcked(int64(i)+1) != prefix {
				m.t.Fatalf("AllAcked(%d) is not %v", i+1, prefix)
			}
		}
		// Blocks are freed with their last byte, also out of order.
		for i := range s.q.n {
			b := s.q.at(i).b
			if b == nil {
				continue
			}
			live := 0
			for j := range min(int64(b.n), m.acc()-b.off) { // a reset may have cut it
				if !m.state[b.off+j].acked {
					live++
				}
			}
			if live == 0 || live != b.live {
				m.t.Fatalf("block [%d,%d) counts %d unacked bytes, want %d", b.off, b.off+int64(b.n), b.live, live)
			}
		}
		_, _, _, pending := m.want(1 << 30)
		_, _, due := s.ResetDue()
		if due && (!m.spared || m.next < m.boundary) {
			m.t.Fatalf("a reset is due at %d, reliable size %d", m.next, m.boundary)
		}
		if s.HasPending() != (pending || due) {
			m.t.Fatalf("HasPending is not %v", pending)
		}
		if m.h.sent != m.finLeft {
			m.t.Fatalf("DataSent was called %d times, want %d", m.h.sent, m.finLeft)
		}
		want := 0
		if m.complete() {
			want = 1
		}
		if m.h.done != want {
			m.t.Fatalf("SendDone was called %d times, want %d", m.h.done, want)
		}
	})
}

// finish lets everything arrive, or ends the connection.
func (m *sendModel) finish() {
	if m.t.Failed() {
		return
	}
	if m.choose(2) == 0 && !m.dead {
		m.chooser = &randomChoice{rand.New(rand.NewPCG(1, 2)), 0} // a fuzzer's bytes may be used up
		for range 10_000 {
			for i := 0; m.source; i++ {
				if i > 10_000 {
					m.t.Fatal("the source does not end")
				}
				m.beginOrEndSource()
				if !m.source {
					break
				}
				m.readAgain()
				if len(m.sent) > 0 {
					m.ackOrLose(true)
				} else {
					m.h.do(func() { // all that is away is in flight: let it arrive
						for i := range m.state {
							if m.state[i].packed && !m.state[i].acked && m.state[i].away {
								m.s.OnAcked(int64(i), 1, false)
								m.state[i].acked, m.state[i].lost = true, false
							}
						}
					})
				}
				m.h.later()
			}
			if !m.fin && !m.spared {
				if m.s.Close() != nil {
					m.t.Fatal("cannot close")
				}
				m.fin = true
			}
			m.credit = max(m.credit, m.acc())
			m.h.do(func() { m.s.SetCredit(m.credit) })
			m.pack()
			m.ackOrLose(true)
			if len(m.sent) == 0 && !m.s.HasPending() && !m.complete() {
				// Acknowledged packets were forgotten by ackOrLose; the rest
				// counts as lost now.
				slots := m.slotsNow()
				m.h.do(func() {
					m.s.OnLost(0, int(m.next), m.finState.packed)
					if m.spared {
						m.s.ResetLost(m.boundary)
					}
				})
				if m.lower(slots, 0, int(m.next)); m.dead {
					break
				}
				for i := range m.state {
					m.state[i].lost = !m.state[i].acked
				}
				m.finState.lost = !m.finState.acked
			}
			m.check()
			m.h.later()
			if m.complete() {
				break
			}
		}
		if m.h.done != 1 && !m.dead {
			m.t.Fatal("the stream does not complete")
		}
	}
	m.h.do(func() { m.s.ConnClosed(errors.New("gone")) })
	if m.source {
		m.s.EndSource()
	}
	m.h.later()
	if m.owned != m.released {
		m.t.Fatalf("%d pieces lent, %d released", m.owned, m.released)
	}
	if m.h.buffered != 0 {
		m.t.Fatalf("%d bytes still count as unsent", m.h.buffered)
	}
}

func newSendModel(t testing.TB, c chooser) *sendModel {
	h := newHost(t)
	s := NewSend(4, h, 2000)
	if err := s.SetWriteBuffer(1<<29, 1<<30); err != nil {
		t.Fatal(err)
	}
	m := &sendModel{t: t, chooser: c, h: h, s: s, credit: 2000, resetAt: c.choose(2) == 0}
	if m.resetAt {
		h.do(s.AllowResetAt)
	}
	return m
}

func TestSendIsLikeANaiveMap(t *testing.T) {
	watchBlocks(t)
	r := newRandom(t, 0)
	for range 40 {
		r.left = 300
		newSendModel(t, r).run()
	}
}

func FuzzSend(f *testing.F) {
	f.Add([]byte("a stream of choices \x00\x01\x02\x09\x09\x0e\x0e\x0e\x05\x07\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 500 {
			return
		}
		newSendModel(t, &fuzzChoice{b}).run()
	})
}
