package sender

import (
	"io"

	"github.com/volley-quic/volley/emit"
)

// at is the byte at an offset of a stream: what every source of the tests holds.
func at(id, off int64) byte {
	v := uint64(off>>3)*0x9e3779b97f4a7c15 + uint64(id+1)*0xbf58476d1ce4e5b9
	v ^= v >> 29
	v *= 0x94d049bb133111eb
	return byte(v >> (off & 7 * 8))
}

func fill(id, off int64, p []byte) {
	for i := range p {
		p[i] = at(id, off+int64(i))
	}
}

func bytesOf(id, off int64, n int) []byte {
	p := make([]byte, n)
	fill(id, off, p)
	return p
}

// call is one call of a source.
type call struct {
	off    int64
	n      int // bytes asked for
	slices int // 0: ReadAt, -1: LendAt, else ReadVecAt of so many
}

// source holds the bytes of stream id. answer, if there is one, says what it gives to a
// call; the default is everything there is.
type source struct {
	c      *conn
	id     int64
	size   int64 // offset of its end
	shift  int64 // its offset of the stream's first byte
	calls  []call
	answer func(call) (int, error)
	lent   []byte
}

func (c *conn) source(s *testStream, size int64) *source {
	return &source{c: c, id: s.ID(), size: size}
}

// asked takes a call in and returns what it is answered.
func (s *source) asked(k call) (int, error) {
	s.c.outside("a source")
	s.spoilLent()
	s.calls = append(s.calls, k)
	if s.answer != nil {
		return s.answer(k)
	}
	return s.all(k)
}

// all is the answer of a source that gives whatever it has.
func (s *source) all(k call) (int, error) {
	if left := s.size - k.off; int64(k.n) >= left {
		return int(max(left, 0)), io.EOF
	}
	return k.n, nil
}

// spoilLent ends a loan: at the next call the memory is the source's again.
func (s *source) spoilLent() {
	for i := range s.lent {
		s.lent[i] ^= 0xff
	}
	s.lent = nil
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if cap(p) != len(p) {
		s.c.t.Errorf("a buffer of %d bytes with room for %d", len(p), cap(p))
	}
	n, err := s.asked(call{off: off, n: len(p)})
	if n > 0 && n <= len(p) {
		fill(s.id, off-s.shift, p[:n])
	}
	return n, err
}

// total is how many bytes were asked for.
func (s *source) total() (n int64) {
	for _, k := range s.calls {
		n += int64(k.n)
	}
	return n
}

// lender is a source that lends.
type lender struct{ *source }

func (l lender) LendAt(off int64, n int) ([]byte, error) {
	m, err := l.asked(call{off: off, n: n, slices: -1})
	if m < 0 {
		return nil, err
	}
	l.lent = bytesOf(l.id, off-l.shift, m)
	return l.lent, err
}

// reader is a source that can only be read on.
type reader struct {
	*source
	at int64
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadAt(p, r.at)
	r.at += int64(max(n, 0))
	return n, err
}

// vector is a source that fills many buffers in one call.
type vector struct{ *source }

func (v vector) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	m, err := v.asked(call{off: off, n: n, slices: len(bufs)})
	for left := m; left > 0 && len(bufs) > 0; bufs = bufs[1:] {
		b := bufs[0][:min(left, len(bufs[0]))]
		fill(v.id, off-v.shift, b)
		off += int64(len(b))
		left -= len(b)
	}
	return m, err
}

var (
	_ emit.Lender       = lender{}
	_ emit.VectorSource = vector{}
)
