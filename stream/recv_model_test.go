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
	spared   int64 // reliable size; -1: none
	ended    error // reset or cancelled
	charged  int64 // what the connection was charged
	finished bool  // told how it ended
	orderly  bool  // most frames come in order
	held     int   // frames whose memory is held
}

func newRecvModel(t testing.TB, c chooser) *recvModel {
	h := newHost(t)
	return &recvModel{t: t, chooser: c, h: h, r: NewRecv(3, h, 20_000, 40_000), limit: 20_000, final: -1, spared: -1, have: make([]bool, 1<<20), orderly: c.choose(3) == 0}
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
	c := m.choose(16)
	if m.orderly && c < 6 {
		c = 6
	}
	switch c {
	case 0, 1, 2, 3, 4, 5:
		m.push(m.near(), m.size(), m.choose(60) == 0)
	case 6: // in order
		m.push(m.ready(), m.size(), false)
	case 7:
		if m.choose(10) == 0 && m.final >= 0 { // all of it
			m.push(m.read, int(m.final-m.read), true)
		}
	case 8:
		if m.choose(30) == 0 || m.spared >= 0 && m.choose(4) == 0 {
			size := m.high + int64(m.choose(10)) - 3
			if m.final >= 0 && m.choose(4) > 0 {
				size = m.final
			}
			m.reset(size)
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
		if m.spared >= 0 {
			end = min(end, m.spared)
		}
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
	code, reliable := uint64(5), int64(0)
	if m.choose(3) > 0 {
		reliable = min(max(0, m.read-10+int64(m.choose(6000))), size)
	}
	if m.choose(20) == 0 {
		code = 4
	}
	want := wire.NoError
	switch {
	case m.final >= 0 && size != m.final, size < m.high:
		want = wire.FinalSizeError
	case size > m.limit:
		want = wire.FlowControlError
	case m.spared >= 0 && code != 5:
		want = wire.StreamStateError
	default:
		code = 5
	}
	complete := m.final >= 0 && m.ready() == m.final && m.ended == nil
	m.h.do(func() {
		fresh, err := m.r.ResetAt(code, size, reliable)
		if m.code(err) != want {
			m.t.Fatalf("ResetAt(%d, %d, %d): %v, want %v", code, size, reliable, err, want)
		}
		m.grow(fresh, size, true, err)
	})
	switch {
	case want != wire.NoError || complete || m.ended != nil || m.h.recvDone > 0:
	case reliable <= m.read:
		m.ended = testReset{5, true}
	case m.spared < 0 || reliable < m.spared:
		m.spared = reliable
		clear(m.have[reliable:])
	}
}

// last is where reading ends, and ending what it ends with.
func (m *recvModel) last() (last int64, ending error) {
	if m.spared >= 0 {
		return m.spared, testReset{5, true}
	}
	return m.final, io.EOF
}

func (m *recvModel) cancel() {
	last, _ := m.last()
	eof := last >= 0 && m.read == last
	m.r.Cancel(6)
	if m.ended == nil && !(eof && m.finished) && !(eof && last > 0) {
		m.ended = testReset{6, false}
		if m.spared >= 0 {
			m.ended = testReset{5, true}
		}
	}
	m.h.do(func() {
		if _, due := m.r.StopSendingDue(); due && (m.spared >= 0 || m.ended == testReset{5, true}) {
			m.t.Fatal("STOP_SENDING for a stream that was reset")
		}
	})
	m.finished = true
}

// blocks reports whether a call for n bytes would wait.
func (m *recvModel) blocks(n int) bool {
	r := m.ready()
	last, _ := m.last()
	return m.ended == nil && r-m.read < int64(n) && r != last
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
	last, ending := m.last()
	eof := m.read == last
	if eof != (err == ending) || err != nil && !eof {
		m.t.Fatalf("Read at %d: %v, want %v at %d", m.read, err, ending, last)
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
	last, ending := m.last()
	if n != want || (want < len(p)) != (err == ending) {
		m.t.Fatalf("Peek: %d, %v, want %d", n, err, want)
	}
	if m.read == last {
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
		switch {
		case m.ended != nil:
			want = m.high
		case m.spared >= 0: // what is not to be read is given back at once
			want += m.final - m.spared
		}
		if m.h.consumed != want || m.charged != m.high {
			m.t.Fatalf("credit for %d bytes, want %d; charged %d of %d", m.h.consumed, want, m.charged, m.high)
		}
		last, _ := m.last()
		done := m.final >= 0 && (m.ended != nil && m.finished || m.ended == nil && m.read == last && (m.finished || last > 0))
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
		if m.ended != nil || m.high == m.read || m.read == last {
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
