package stream

import (
	"sync"
	"unsafe"
)

// The size classes of pooled blocks. 1 KiB so that a short message pins
// little, 64 KiB for bulk writes, 256 KiB for a pass of jumbo datagrams.
const (
	class1K = iota
	class4K
	class16K
	class64K
	class256K
	classes

	unpooled int8 = -1
)

var classSize = [classes]int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10}

// Blocks and their memory are pooled apart: a block that is in use keeps those alive that
// were made with it, and must not keep their memory.
var (
	blockPool sync.Pool
	memPools  [classes]sync.Pool // the first bytes
)

// audit, set by tests only, sees every block as it leaves the pool and as it
// comes back.
var audit func(b *Block, taken bool)

// Block is a contiguous run of one stream's bytes: in pooled memory ([Get]),
// or in memory lent by the application. It has one owner at a time, and goes
// back to the pool once.
type Block struct {
	buf     []byte
	off     int64  // offset in the stream of buf[0]
	n       int    // bytes of the stream in buf
	live    int    // of these, not yet acknowledged
	whole   []byte // buf with what was discarded of its front; nil: nothing was
	release func() // owned blocks: gives the memory back to the application
	class   int8
	owned   bool
}

// Get takes a block of at least n bytes from the pool. The bytes in it are
// old ones.
func Get(n int) *Block {
	c := 0
	for c < classes && classSize[c] < n {
		c++
	}
	b := newBlock()
	if c == classes {
		b.buf, b.class = make([]byte, n), unpooled
	} else if p, _ := memPools[c].Get().(*byte); p != nil {
		b.buf, b.class = unsafe.Slice(p, classSize[c]), int8(c)
	} else {
		b.buf, b.class = make([]byte, classSize[c]), int8(c)
	}
	if audit != nil {
		audit(b, true)
	}
	return b
}

// newBlock is a block without memory. They are made several at a time: there are thousands
// where much is in flight, or waits to be read.
func newBlock() *Block {
	if b, _ := blockPool.Get().(*Block); b != nil {
		return b
	}
	bs := new([16]Block)
	for i := range bs[1:] {
		blockPool.Put(&bs[1+i])
	}
	return &bs[0]
}

// own links foreign memory as a block.
func own(p []byte, release func()) *Block {
	b := newBlock()
	b.buf, b.class, b.owned, b.release = p, unpooled, true, release
	if audit != nil {
		audit(b, true)
	}
	return b
}

// Bytes returns the whole memory of the block, at least as much as was asked
// of Get.
func (b *Block) Bytes() []byte { return b.buf }

// Release gives back a block from Get that was not handed to a stream. It
// must not be used afterwards.
func (b *Block) Release() { b.free(nil) }

// free gives the block back: to its pool, or, through h.After, to the
// application.
func (b *Block) free(h Host) {
	if b.whole != nil {
		b.buf, b.whole = b.whole, nil
	}
	if audit != nil {
		audit(b, false)
	}
	if b.owned && b.release != nil {
		h.After(b.release)
	}
	if b.class != unpooled {
		memPools[b.class].Put(unsafe.SliceData(b.buf))
	}
	*b = Block{}
	blockPool.Put(b)
}

// spare is how many more bytes the block takes behind its last one.
func (b *Block) spare() int {
	if b.owned {
		return 0
	}
	return len(b.buf) - b.n
}

// queue holds a send side's blocks by offset, in a ring: draining moves
// nothing. A block freed out of order leaves an empty entry, which keeps its
// offset for the search until it reaches an end of the ring.
type queue struct {
	ring []queued // its length is a power of two
	head int
	n    int
	few  [2]queued // the first ring
}

type queued struct {
	off int64
	b   *Block
}

func (q *queue) at(i int) *queued { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

// last returns the block with the highest offset, or nil.
func (q *queue) last() *Block {
	if q.n == 0 {
		return nil
	}
	return q.at(q.n - 1).b
}

func (q *queue) push(b *Block) {
	switch {
	case q.ring == nil:
		q.ring = q.few[:]
	case q.n == len(q.ring):
		ring := make([]queued, 2*len(q.ring))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.few = [len(q.few)]queued{} // keeps no block
		q.ring, q.head = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = queued{b.off, b}
}

// insert puts b at its place by offset.
func (q *queue) insert(b *Block) {
	q.push(b)
	i := q.n - 1
	for ; i > 0 && q.at(i-1).off > b.off; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(i) = queued{b.off, b}
	// The search must not end at an empty entry within b: b may hold more than the block
	// did that began where it begins.
	end := b.off + int64(b.n)
	for i++; i < q.n && q.at(i).off < end; i++ {
		q.at(i).off = end
	}
}

// find returns the index of the last entry that begins at or below off, or -1.
func (q *queue) find(off int64) int {
	lo, hi := 0, q.n
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); q.at(m).off <= off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// drop empties entry i, whose block the caller has freed or keeps.
func (q *queue) drop(i int) {
	q.at(i).b = nil
	for q.n > 0 && q.at(0).b == nil {
		q.head = (q.head + 1) & (len(q.ring) - 1)
		q.n--
	}
	for q.n > 0 && q.at(q.n-1).b == nil {
		q.n--
	}
}

// copyOut copies the bytes from off on into dst, and reports whether all of
// them were here.
func (q *queue) copyOut(dst []byte, off int64) bool {
	for i := q.find(off); len(dst) > 0; i++ {
		if i < 0 || i >= q.n {
			return false
		}
		b := q.at(i).b
		if b == nil {
			continue
		}
		if off < b.off || off >= b.off+int64(b.n) {
			return false
		}
		k := copy(dst, b.buf[off-b.off:b.n])
		dst = dst[k:]
		off += int64(k)
	}
	return true
}

// discard lets go of [lo, hi), which begins at the first byte of a block.
func (q *queue) discard(lo, hi int64, h Host) {
	q.acked(lo, hi, h, nil)
	i := q.find(hi)
	if i < 0 || q.at(i).b == nil {
		return
	}
	if b := q.at(i).b; b.off < hi && hi < b.off+int64(b.n) {
		if b.whole == nil {
			b.whole = b.buf
		}
		k := int(hi - b.off)
		b.buf, b.off, b.n = b.buf[k:], hi, b.n-k
		q.at(i).off = hi
	}
}

// acked counts [lo, hi) as acknowledged, which it was not before, and frees
// the blocks that are thereby done, but for keep.
func (q *queue) acked(lo, hi int64, h Host, keep *Block) {
	i := max(q.find(lo), 0)
	for i < q.n && q.at(i).off < hi {
		b := q.at(i).b
		if b != nil {
			end := b.off + int64(b.n)
			if k := min(hi, end) - max(lo, b.off); k > 0 {
				b.live -= int(k)
				if b.live == 0 && b != keep {
					b.free(h)
					q.drop(i)
					if i == 0 { // the head moved on: so did the next entry
						i = -1
					}
				}
			}
		}
		i++
	}
}
