package emittest

import (
	"bytes"

	"github.com/volley-quic/volley/emit"
)

// lent is what a Lender showed last, and must not change until it is called
// again.
type lent struct {
	bytes []byte
	off   int64
}

func (t *tester) readAt(off int64, n int) (int, error) {
	if err := t.kept(); err != nil {
		return 0, err
	}
	buf, dsts := t.split(n)
	got, err := t.src.ReadAt(dsts[0], off)
	if e := t.filled(buf, dsts, off, got, n); e != nil {
		return 0, e
	}
	return got, err
}

func (t *tester) readVecAt(off int64, n int) (int, error) {
	if err := t.kept(); err != nil {
		return 0, err
	}
	// Datagrams of one size but the first, which may be half full already, and
	// the last.
	slot := max((n+emit.MaxDatagrams-2)/(emit.MaxDatagrams-1), 1+t.rand.IntN(datagram))
	var lens []int
	for left := n; left > 0; {
		m := min(left, slot)
		if len(lens) == 0 {
			m = 1 + t.rand.IntN(m)
		}
		lens = append(lens, m)
		left -= m
	}
	buf, dsts := t.split(lens...)
	bufs := append([][]byte(nil), dsts...)
	got, err := t.src.(emit.VectorSource).ReadVecAt(bufs, off)
	for i, b := range bufs {
		if len(b) != len(dsts[i]) || cap(b) != cap(dsts[i]) || &b[0] != &dsts[i][0] {
			return 0, wrongf("the slice of buffers was changed")
		}
	}
	clear(bufs) // whoever kept it will stumble
	if e := t.filled(buf, dsts, off, got, n); e != nil {
		return 0, e
	}
	return got, err
}

func (t *tester) lendAt(off int64, n int) (int, error) {
	if err := t.kept(); err != nil {
		return 0, err
	}
	b, err := t.src.(emit.Lender).LendAt(off, n)
	if len(b) > n {
		return 0, wrongf("%d bytes were lent", len(b))
	}
	if e := t.compare(b, off); e != nil {
		return 0, e
	}
	t.lent = lent{b, off}
	return len(b), err
}

// kept says whether the bytes that were lent last are as they were.
func (t *tester) kept() error {
	l := t.lent
	t.lent = lent{}
	if !bytes.Equal(l.bytes, t.content[l.off:l.off+int64(len(l.bytes))]) {
		return wrongf("bytes lent at offset %d changed before the next call", l.off)
	}
	return nil
}

// filled checks what the source did to dsts, and puts them under watch.
func (t *tester) filled(buf []byte, dsts [][]byte, off int64, got, n int) error {
	if got < 0 || got > n {
		return wrongf("a count of %d", got)
	}
	if err := t.check(buf, dsts, got); err != nil {
		return err
	}
	for left := got; left > 0; dsts = dsts[1:] {
		b := dsts[0][:min(left, len(dsts[0]))]
		if err := t.compare(b, off+int64(got-left)); err != nil {
			return err
		}
		left -= len(b)
	}
	return t.done(buf)
}
