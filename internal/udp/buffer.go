package udp

import (
	"sync"
	"sync/atomic"
)

const (
	bigSize   = 64 << 10 // no UDP message, coalesced or not, is longer
	smallSize = 2 << 10  // one datagram on an ordinary path
)

// Buffer is pooled memory that holds one Message's bytes. It begins with one
// reference. Retain and Release may be called from any goroutine; whoever holds
// a reference may write to the bytes if nobody else looks at them.
type Buffer struct {
	mem  []byte
	n    int
	refs atomic.Int32
}

var (
	bigBuffers   = sync.Pool{New: func() any { return &Buffer{mem: make([]byte, bigSize)} }}
	smallBuffers = sync.Pool{New: func() any { return &Buffer{mem: make([]byte, smallSize)} }}
)

func newBuffer(pool *sync.Pool) *Buffer {
	b := pool.Get().(*Buffer)
	b.n = 0
	b.refs.Store(1)
	return b
}

// CopyBuffer returns a pooled buffer that holds a copy of p. p must not be
// longer than 64 KiB.
func CopyBuffer(p []byte) *Buffer {
	pool := &smallBuffers
	if len(p) > smallSize {
		pool = &bigBuffers
	}
	b := newBuffer(pool)
	if len(p) > len(b.mem) {
		panic("udp: more bytes than a UDP message can have")
	}
	b.n = copy(b.mem, p)
	return b
}

// Bytes returns the whole message.
func (b *Buffer) Bytes() []byte { return b.mem[:b.n:b.n] }

// Retain adds a reference.
func (b *Buffer) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("udp: Retain of a released buffer")
	}
}

// Release gives a reference back. With the last one the memory returns to the
// pool, and nothing that was sliced from it may be touched any more.
func (b *Buffer) Release() {
	switch refs := b.refs.Add(-1); {
	case refs > 0:
	case refs < 0:
		panic("udp: buffer released twice")
	case len(b.mem) == smallSize:
		smallBuffers.Put(b)
	default:
		bigBuffers.Put(b)
	}
}
