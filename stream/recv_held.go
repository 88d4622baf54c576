package stream

// Memory is where a frame's bytes lie while they wait to be read. Hold and Release
// count the frames; the memory is kept until the last of them. Monitor held.
type Memory interface {
	Hold()
	Release()
}

// heldMin is the least length in bytes of a frame that is held rather than copied: for
// less, the record of it costs more than the copy.
const heldMin = 1024

// run is a frame's bytes, which lie where the packet was decrypted.
type run struct {
	off  int64
	data []byte
	mem  Memory
}

func (n *run) end() int64 { return n.off + int64(len(n.data)) }

// heldRuns are a stream's runs by offset. What came in order when nothing was missing is
// in runs, anything else in pages, so that the two never overlap.
type heldRuns struct {
	q    []run
	head int
}

func (h *heldRuns) push(n run) {
	if h.head > 0 && len(h.q) == cap(h.q) {
		k := copy(h.q, h.q[h.head:])
		clear(h.q[k:])
		h.q, h.head = h.q[:k], 0
	}
	h.q = append(h.q, n)
}

// release lets go of the runs that end at or below off.
func (h *heldRuns) release(off int64) {
	for h.head < len(h.q) && h.q[h.head].end() <= off {
		h.q[h.head].mem.Release()
		h.q[h.head] = run{}
		h.head++
	}
	if h.head == len(h.q) {
		h.q, h.head = h.q[:0], 0
	}
}

// cut lets go of what lies at off and above.
func (h *heldRuns) cut(off int64) {
	i := len(h.q)
	for ; i > h.head && h.q[i-1].off >= off; i-- {
		h.q[i-1].mem.Release()
		h.q[i-1] = run{}
	}
	h.q = h.q[:i]
	if i > h.head && h.q[i-1].end() > off {
		n := &h.q[i-1]
		n.data = n.data[:off-n.off]
	}
}

// find is the index of the first run that ends above off.
func (h *heldRuns) find(off int64) int {
	lo, hi := h.head, len(h.q)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); h.q[m].end() > off {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo
}

// parts fills parts with up to max bytes of the runs from off on, which are contiguous,
// and returns how many parts and bytes that is.
func (h *heldRuns) parts(parts [][]byte, off int64, max int) (k, n int) {
	for i := h.find(off); i < len(h.q) && k < len(parts) && n < max; i++ {
		r := &h.q[i]
		at := off + int64(n)
		if r.off > at {
			break // what lies between is in pages
		}
		d := r.data[at-r.off:]
		d = d[:min(len(d), max-n)]
		parts[k] = d
		k++
		n += len(d)
	}
	return k, n
}

// next is where the first run above off begins, or limit if that is less.
func (h *heldRuns) next(off, limit int64) int64 {
	if i := h.find(off); i < len(h.q) {
		return min(h.q[i].off, limit)
	}
	return limit
}
