package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// ringSize is prime, so that a block at a wrong place shows, whatever the power of
// two by which it is off.
const ringSize = 1048573

// ring is what is transferred, again and again, with enough behind it that a slice of
// writeSize bytes can be had anywhere.
var ring = func() []byte {
	b := make([]byte, ringSize+writeSize)
	r := rand.NewChaCha8([32]byte{'c', 'o', 'n', 't', 'e', 'n', 't'})
	r.Read(b[:ringSize])
	copy(b[ringSize:], b)
	return b
}()

// content returns n ≤ writeSize bytes of stream number i from off on: every stream
// begins elsewhere in the ring.
func content(i int, off int64, n int) []byte {
	at := (off + int64(i)*7919) % ringSize
	return ring[at : at+int64(n)]
}

// contentIs reports whether p is what content says.
func contentIs(p []byte, i int, off int64) bool {
	for len(p) > 0 {
		n := min(len(p), writeSize)
		if !bytes.Equal(p[:n], content(i, off, n)) {
			return false
		}
		p, off = p[n:], off+int64(n)
	}
	return true
}

// A sampler notes bytes while the clock runs, at next to no cost, to be looked at when
// it does not: a few from every 16th of a MiB or so.
type sampler struct {
	stream int
	every  int64
	next   int64
	seen   []sample
}

type sample struct {
	off   int64
	n     uint8
	bytes [16]byte
}

func newSampler(stream int, size int64) *sampler {
	const most = 1 << 14
	every := max(size/most, 1)
	return &sampler{stream: stream, every: every, seen: make([]sample, 0, size/every+1)}
}

// note looks at p, which was read at off.
func (s *sampler) note(p []byte, off int64) {
	if off < s.next || len(s.seen) == cap(s.seen) {
		return
	}
	x := sample{off: off}
	x.n = uint8(copy(x.bytes[:], p))
	s.seen = append(s.seen, x)
	s.next = off + s.every
}

// check compares what was noted.
func (s *sampler) check() error {
	for _, x := range s.seen {
		if !contentIs(x.bytes[:x.n], s.stream, x.off) {
			return fmt.Errorf("stream %d has wrong bytes at offset %d", s.stream, x.off)
		}
	}
	return nil
}
