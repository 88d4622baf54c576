package stream

import (
	"errors"
	"io"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// recvModel runs a receiving half beside a naive map of the bytes that came.
type recvModel struct {
	t testing.TB
	chooser
	h *testHost
	r *Recv

	have     []bool // received, by offset
	read     int64
	high     int64
	final    int64
	limit    int64
	ended    error // reset or cancelled
	charged  int64 // what the connection was charged
	finished bool  // told how it ended
	held     int   // frames whose memory is held
}

func newRecvModel(t testing.TB, c chooser) *recvModel {
	h := newHost(t)
	return &recvModel{t: t, chooser: c, h: h, r: NewRecv(3, h, 20_000, 40_000), limit: 20_000, final: -1, have: make([]bool, 1<<20)}
}

func (m *recvModel) run() {
	for !m.over() && !m.t.Failed() {
		m.step()
		m.check()
	}
	m.h.do(func() { m.r.ConnClosed(io.ErrClosedPipe) })
	if m.held != 0 {
		m.t.Fatalf("%d frames are held by a stream that is over", m.held)
	}
}

// frameMemory is memory that nobody may look at once it is let go.
type frameMemory struct {
	m     *recvModel
	p     []byte
	holds int
}

func (f *frameMemory) Hold() { f.holds++; f.m.held++ }
func (f *frameMemory) Release() {
	f.holds--
	f.m.held--
	if f.holds < 0 {
		f.m.t.Fatal("memory was let go twice")
	}
	clear(f.p)
}

func (m *recvModel) ready() int64 {
	i := m.read
	for m.have[i] {
		i++
	}
	return i
}

func (m *recvModel) step() {
	switch m.choose(16) {
	case 0, 1, 2, 3, 4, 5:
		m.push(m.near(), m.size(), m.choose(60) == 0)
	case 6: // in order
		m.push(m.ready(), m.size(), false)
	case 7:
		if m.choose(10) == 0 && m.final >= 0 { // all of it
			m.push(m.read, int(m.final-m.read), true)
		}
	case 8:
		if m.choose(30) == 0 {
			m.reset(m.high + int64(m.choose(10)) - 3)
		}
	case 9, 10, 11:
		m.doRead()
	case 12:
		m.doPeek()
	case 13:
		m.credit()
	case 14:
		if m.choose(60) == 0 {
			m.cancel()
		}
	case 15:
		if m.choose(10) == 0 {
			m.push(m.limit-5, 3+m.choose(5), false) // about the limit
		}
	}
}

func (m *recvModel) near() int64 { return max(0, m.ready()-500+int64(m.choose(6000))) }
func (m *recvModel) size() int {
	if m.choose(2) == 0 {
		return m.choose(4)
	}
	return m.choose(1500)
}

func (m *recvModel) code(err error) wire.ErrorCode {
	if err == nil {
		return wire.NoError
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		m.t.Fatalf("error %v", err)
	}
	return e.Code
}

func (m *recvModel) push(off int64, n int, fin bool) {
	end := off + int64(n)
	want := wire.NoError
	switch {
	case m.final >= 0 && (end > m.final || fin && end != m.final), fin && end < m.high:
		want = wire.FinalSizeError
	case end > m.limit:
		want = wire.FlowControlError
	}
	m.h.do(func() {
		p := pattern(off, n)
		mem := &frameMemory{m: m, p: p}
		var fresh int64
		var err error
		if m.choose(2) == 0 {
			fresh, err = m.r.Push(off, p, fin)
		} else {
			fresh, err = m.r.PushHeld(off, p, fin, mem)
		}
		if mem.holds == 0 {
			clear(p) // it was copied
		}
		if m.code(err) != want {
			m.t.Fatalf("Push(%d, %d, %v): %v, want %v", off, n, fin, err, want)
		}
		m.grow(fresh, end, fin, err)
	})
	if want == wire.NoError && m.ended == nil {
		for i := off; i < end; i++ {
			m.have[i] = true
		}
	}
}

func (m *recvModel) grow(fresh, end int64, fin bool, err error) {
	if err != nil {
		if fresh != 0 {
			m.t.Fatalf("an error, and %d new bytes", fresh)
		}
		return
	}
	if want := max(0, end-m.high); fresh != want {
		m.t.Fatalf("%d new bytes, want %d", fresh, want)
	}
	m.high = max(m.high, end)
	m.charged += fresh
	if fin {
		m.final = end
	}
}

func (m *recvModel) reset(size int64) {
	if size < 0 {
		return
	}
	want := wire.NoError
	switch {
	case m.final >= 0 && size != m.final, size < m.high:
		want = wire.FinalSizeError
	case size > m.limit:
		want = wire.FlowControlError
	}
	complete := m.final >= 0 && m.ready() == m.final && m.ended == nil
	m.h.do(func() {
		fresh, err := m.r.Reset(5, size)
		if m.code(err) != want {
			m.t.Fatalf("Reset(%d): %v, want %v", size, err, want)
		}
		m.grow(fresh, size, true, err)
	})
	if want == wire.NoError && !complete && m.ended == nil {
		m.ended = testReset{5, true}
	}
}

func (m *recvModel) cancel() {
	eof := m.final >= 0 && m.read == m.final
	m.r.Cancel(6)
	if m.ended == nil && !(eof && m.finished) && !(eof && m.final > 0) {
		m.ended = testReset{6, false}
	}
	m.finished = true
}

// blocks reports whether a call for n bytes would wait.
func (m *recvModel) blocks(n int) bool {
	r := m.ready()
	return m.ended == nil && r-m.read < int64(n) && r != m.final
}

func (m *recvModel) doRead() {
	if m.blocks(1) {
		return
	}
	p := make([]byte, 1+m.choose(3000))
	if m.choose(5) == 0 {
		p = make([]byte, 100_000)
	}
	n, err := m.r.Read(p)
	if m.ended != nil {
		if n != 0 || err != m.ended {
			m.t.Fatalf("Read: %d, %v, want %v", n, err, m.ended)
		}
		m.finished = true
		return
	}
	want := min(int64(len(p)), m.ready()-m.read)
	if int64(n) != want {
		m.t.Fatalf("Read: %d bytes, want %d", n, want)
	}
	checkPattern(m.t, p[:n], m.read)
	m.read += want
	eof := m.read == m.final
	if eof != (err == io.EOF) || err != nil && !eof {
		m.t.Fatalf("Read at %d: %v, final size %d", m.read, err, m.final)
	}
	m.finished = m.finished || eof
}

func (m *recvModel) doPeek() {
	p := make([]byte, 1+m.choose(300))
	if m.blocks(len(p)) {
		return
	}
	n, err := m.r.Peek(p)
	if m.ended != nil {
		if n != 0 || err != m.ended {
			m.t.Fatalf("Peek: %d, %v, want %v", n, err, m.ended)
		}
		m.finished = true
		return
	}
	want := min(len(p), int(m.ready()-m.read))
	if n != want || (want < len(p)) != (err == io.EOF) {
		m.t.Fatalf("Peek: %d, %v, want %d", n, err, want)
	}
	if m.read == m.final {
		m.finished = true
	}
	checkPattern(m.t, p[:n], m.read)
}

func (m *recvModel) credit() {
	m.h.do(func() {
		v, ok := m.r.MaxDataDue()
		if !ok {
			return
		}
		if m.final >= 0 || m.ended != nil || v < m.limit {
			m.t.Fatalf("MAX_STREAM_DATA %d is due: limit %d, final size %d, %v", v, m.limit, m.final, m.ended)
		}
		m.r.MaxDataSent(v)
		m.limit = v
		if m.choose(2) == 0 {
			m.r.MaxDataLost()
			if again, ok := m.r.MaxDataDue(); !ok || again < v {
				m.t.Fatalf("a lost MAX_STREAM_DATA %d comes again as %d, %v", v, again, ok)
			}
		}
	})
}

func (m *recvModel) check() {
	m.h.do(func() {
		r := m.r
		// A10: what was charged is given back once, read or not.
		want := m.read
		if m.ended != nil {
			want = m.high
		}
		if m.h.consumed != want || m.charged != m.high {
			m.t.Fatalf("credit for %d bytes, want %d; charged %d of %d", m.h.consumed, want, m.charged, m.high)
		}
		done := m.final >= 0 && (m.ended != nil && m.finished || m.ended == nil && m.read == m.final && (m.finished || m.final > 0))
		if (m.h.recvDone == 1) != done || m.h.recvDone > 1 {
			m.t.Fatalf("RecvDone was called %d times, want %v", m.h.recvDone, done)
		}
		if m.ended == nil && r.ready != m.ready() {
			m.t.Fatalf("ready up to %d, want %d", r.ready, m.ready())
		}
		// Memory is what the window spans, whatever came.
		blocks := 0
		for _, p := range r.pages {
			if p.b != nil {
				blocks++
			}
		}
		span := int((m.high-m.read)>>pageShift) + 2
		if m.ended != nil || m.high == m.read {
			span = 0
		}
		if m.ended != nil && m.held > 0 || m.held > 0 && m.high == m.read {
			m.t.Fatalf("%d frames are held that nobody can read", m.held)
		}
		if blocks > span {
			m.t.Fatalf("%d blocks for [%d, %d)", blocks, m.read, m.high)
		}
	})
}

func TestRecvIsLikeANaiveMap(t *testing.T) {
	watchBlocks(t)
	useTestErrors(t)
	r := newRandom(t, 0)
	for range 300 {
		r.left = 400
		newRecvModel(t, r).run()
	}
}

func FuzzRecv(f *testing.F) {
	f.Add([]byte("a stream of choices \x00\x01\x02\x09\x09\x0e\x0e\x0e\x05\x07\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		useTestErrors(t)
		if len(b) > 2000 {
			return
		}
		newRecvModel(t, &fuzzChoice{b}).run()
	})
}
