package udp

import (
	"bytes"
	"testing"
)

func TestBuffersComeInTwoSizes(t *testing.T) {
	for _, n := range []int{0, 1, smallSize - 1, smallSize, smallSize + 1, bigSize} {
		p := train(3, n, 100)
		b := CopyBuffer(p)
		if !bytes.Equal(b.Bytes(), p) {
			t.Errorf("%d bytes: wrong content", n)
		}
		if small := len(b.mem) == smallSize; small != (n <= smallSize) {
			t.Errorf("%d bytes in a buffer of %d", n, len(b.mem))
		}
		if full := append(b.Bytes(), 1); n < len(b.mem) && &full[0] == &b.mem[0] {
			t.Errorf("%d bytes: appending writes into the buffer", n)
		}
		b.Release()
	}
}

func TestBuffersAreReleasedOnce(t *testing.T) {
	mustPanic := func(what string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	b := &Buffer{mem: make([]byte, 10)} // not from the pool, to which it must not go broken
	b.refs.Store(2)
	b.Retain()
	b.Release()
	b.Release()
	if got := b.refs.Load(); got != 1 {
		t.Fatalf("%d references", got)
	}
	b.refs.Store(0)
	mustPanic("second release", b.Release)
	b.refs.Store(0)
	mustPanic("retain of a released buffer", b.Retain)
	mustPanic("more than a message", func() { CopyBuffer(make([]byte, bigSize+1)) })
}
