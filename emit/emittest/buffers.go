package emittest

import (
	"bytes"
	"math/rand/v2"

	"github.com/volley-quic/volley/emit"
)

// guard is how many bytes beside each dst are watched.
const guard = 64

// Every buffer holds the first pattern before a call, so that what the source
// wrote shows, and the second after it, so that it shows if the source reads or
// writes it later.
var before, after = pattern(1), pattern(2)

func pattern(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, pass+(emit.MaxDatagrams+1)*guard)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// buffers makes what a source is given to fill, and keeps the latest few to see
// that they are left alone.
type buffers struct {
	calls int
	used  [8][]byte
}

// split returns a fresh buffer of size bytes, cut in dsts of the given lengths
// with a guard around each. Volley leaves a dst no capacity beyond its length;
// here every other one has some, so that a source that appends shows.
func (b *buffers) split(lens ...int) (buf []byte, dsts [][]byte) {
	size := guard
	for _, n := range lens {
		size += n + guard
	}
	buf = bytes.Clone(before[:size])
	at := guard
	for _, n := range lens {
		dst := buf[at : at+n]
		if b.calls%2 == 0 {
			dst = dst[:n:n]
		}
		dsts = append(dsts, dst)
		at += n + guard
	}
	b.calls++
	return buf, dsts
}

// check says whether everything in buf but the first n bytes of its dsts is as it
// was.
func (b *buffers) check(buf []byte, dsts [][]byte, n int) error {
	at := 0
	for _, dst := range dsts {
		m := min(n, len(dst))
		n -= m
		from := at + guard
		if !bytes.Equal(buf[at:from], before[at:from]) {
			return wrongf("bytes outside dst were written")
		}
		if !bytes.Equal(dst[m:], before[from+m:from+len(dst)]) {
			return wrongf("bytes of dst beyond the count were written")
		}
		at = from + len(dst)
	}
	if !bytes.Equal(buf[at:], before[at:len(buf)]) {
		return wrongf("bytes outside dst were written")
	}
	return nil
}

// done keeps buf under watch in place of an older one.
func (b *buffers) done(buf []byte) error {
	copy(buf, after)
	i := b.calls % len(b.used)
	old := b.used[i]
	b.used[i] = buf
	if !bytes.Equal(old, after[:len(old)]) {
		return wrongf("a dst was written after the call that it was for")
	}
	return nil
}

// left says whether all buffers under watch are as they were left.
func (b *buffers) left() error {
	for _, buf := range b.used {
		if !bytes.Equal(buf, after[:len(buf)]) {
			return wrongf("a dst was written after the call that it was for")
		}
	}
	return nil
}
