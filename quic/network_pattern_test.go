package quic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// pattern is content whose every byte tells where it belongs: byte at offset off of
// stream id on connection conn is a keyed function of all three, so that bytes that were
// moved, doubled or taken from another stream show.
type pattern struct{ key uint64 }

func patternOf(conn, id uint64) pattern {
	return pattern{mix(mix(conn+0x9e3779b97f4a7c15) ^ id)}
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes the bytes from off on to b.
func (p pattern) fill(b []byte, off int64) {
	var w [8]byte
	if r := off & 7; r != 0 && len(b) > 0 {
		binary.LittleEndian.PutUint64(w[:], mix(p.key+uint64(off>>3)*0x9e3779b97f4a7c15))
		n := copy(b, w[r:])
		b = b[n:]
		off += int64(n)
	}
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, mix(p.key+uint64(off>>3)*0x9e3779b97f4a7c15))
		off += 8
	}
	if len(b) > 0 {
		binary.LittleEndian.PutUint64(w[:], mix(p.key+uint64(off>>3)*0x9e3779b97f4a7c15))
		copy(b, w[:])
	}
}

// bytes returns the first n bytes.
func (p pattern) bytes(n int) []byte {
	b := make([]byte, n)
	p.fill(b, 0)
	return b
}

// patternSource is size bytes of a pattern as an application has them: to be read
// (io.ReaderAt), lent (emit.Lender) or read into vectors (emit.VectorSource).
type patternSource struct {
	pattern
	size  int64
	calls int
	lent  []byte
}

func (p pattern) source(size int64) *patternSource { return &patternSource{pattern: p, size: size} }

func (s *patternSource) clip(n int, off int64) (int, error) {
	s.calls++
	if left := max(s.size-off, 0); int64(n) > left {
		return int(left), io.EOF
	}
	return n, nil
}

func (s *patternSource) ReadAt(b []byte, off int64) (int, error) {
	n, err := s.clip(len(b), off)
	s.fill(b[:n], off)
	return n, err
}

// lender is a patternSource that lends. The memory of the last loan is overwritten at
// the next call: who keeps it beyond sends rubbish.
type lender struct{ patternSource }

func (s *lender) LendAt(off int64, n int) ([]byte, error) {
	n, err := s.clip(n, off)
	for i := range s.lent {
		s.lent[i] = 0xee
	}
	s.lent = make([]byte, n)
	s.fill(s.lent, off)
	return s.lent, err
}

// vectors is a patternSource that fills several buffers in one call.
type vectors struct{ patternSource }

func (s *vectors) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	n, err := s.clip(total, off)
	for left, i := n, 0; left > 0; i++ {
		k := min(left, len(bufs[i]))
		s.fill(bufs[i][:k], off)
		off += int64(k)
		left -= k
	}
	return n, err
}

// reader reads size bytes of the pattern from the beginning.
func (p pattern) reader(size int64) io.Reader { return io.NewSectionReader(p.source(size), 0, size) }

// checker is a writer that takes nothing but the pattern, from the beginning on.
type checker struct {
	pattern
	n    int64 // bytes so far
	want []byte
}

func (p pattern) checker() *checker { return &checker{pattern: p} }

func (c *checker) Write(b []byte) (int, error) {
	c.want = slices.Grow(c.want[:0], len(b))[:len(b)]
	c.fill(c.want, c.n)
	if !bytes.Equal(b, c.want) {
		i := 0
		for b[i] == c.want[i] {
			i++
		}
		return i, fmt.Errorf("byte %d is %#x, not %#x", c.n+int64(i), b[i], c.want[i])
	}
	c.n += int64(len(b))
	return len(b), nil
}

// check reads r to its end, which must come after size bytes of the pattern.
func (p pattern) check(r io.Reader, size int64) error {
	c := p.checker()
	if _, err := io.Copy(c, readOnly{r}); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", c.n, size, err)
	}
	if c.n != size {
		return fmt.Errorf("%d bytes arrived, not %d", c.n, size)
	}
	return nil
}

// readOnly and writeOnly hide everything else, so that io.Copy takes no short cut.
type readOnly struct{ io.Reader }
type writeOnly struct{ io.Writer }
