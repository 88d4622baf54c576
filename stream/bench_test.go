package stream

import (
	"fmt"
	"testing"
)

// slotSize is the payload of a datagram, passSlots datagrams make a pass.
const (
	slotSize  = 1420
	passSlots = 10
	passSize  = slotSize * passSlots
)

// passOut packs one pass, as the sender does.
func passOut(h *testHost, s *Send, dst []byte) int {
	h.mu.Lock()
	off, n, fin, _, _ := s.Next(passSize)
	for k := 0; k < n; k += slotSize {
		s.Copy(dst[:min(slotSize, n-k)], off+int64(k))
	}
	s.Packed(off, n, fin)
	h.mu.Unlock()
	return n
}

func ackTo(h *testHost, s *Send, off int64, n int) {
	h.mu.Lock()
	s.OnAcked(off, n, false)
	h.mu.Unlock()
}

// writeToAck is the way of a pass's bytes through the send side, with one
// pass always in flight, and every tenth lost.
func writeToAck(h *testHost, s *Send, p, dst []byte, i int) {
	off := s.acc
	s.Write(p)
	passOut(h, s, dst)
	if i%10 == 0 {
		h.mu.Lock()
		s.OnLost(off, slotSize, false)
		s.OnLost(off+3*slotSize, slotSize, false)
		h.mu.Unlock()
		passOut(h, s, dst)
		passOut(h, s, dst)
	}
	if off > 0 {
		ackTo(h, s, off-passSize, passSize)
	}
}

func pushToRead(h *testHost, r *Recv, data, p []byte, off int64) {
	h.mu.Lock()
	for i := range int64(passSlots) {
		r.Push(off+(i^1)*slotSize, data, false) // each pair in reverse
	}
	if v, ok := r.MaxDataDue(); ok {
		r.MaxDataSent(v)
	}
	h.mu.Unlock()
	for n := 0; n < passSize; {
		k, err := r.Read(p)
		if err != nil {
			panic(err)
		}
		n += k
	}
}

// The steady state allocates nothing, in either direction.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	h := newHost(t)
	s, r := NewSend(0, h, plenty), NewRecv(0, h, 1<<20, 1<<20)
	p, dst := make([]byte, passSize), make([]byte, slotSize)
	i := 0
	send := func() {
		writeToAck(h, s, p, dst, i)
		i++
	}
	off := int64(0)
	recv := func() {
		pushToRead(h, r, dst, p, off)
		off += passSize
	}
	c := int64(0)
	small := NewSend(4, h, plenty)
	tiny := func() {
		for range 10 {
			small.Write(dst[:20])
		}
		passOut(h, small, dst)
		ackTo(h, small, c, 200)
		c += 200
	}
	slots := NewSend(8, h, plenty)
	slots.BeginSource(t.Context())
	lens, hashes := []uint16{slotSize, slotSize, slotSize}, []uint64{1, 2, 3}
	reread := func() {
		h.mu.Lock()
		off := slots.NewOffset()
		slots.PackedSource(off, lens, hashes, false)
		slots.OnLost(off, slotSize, false)
		at, l, x, _ := slots.LostSource()
		slots.PackedSource(at, l, x, false)
		if off > 0 {
			slots.OnAcked(off-3*slotSize, 3*slotSize, false)
		}
		h.mu.Unlock()
	}
	for name, f := range map[string]func(){"send": send, "small writes": tiny, "source": reread, "receive": recv} {
		for range 20 {
			f()
		}
		// The garbage collector empties the pools now and then: one
		// allocation in ten rounds is not the steady state's.
		if n := testing.AllocsPerRun(1000, f); n > 0.1 && !raceEnabled {
			t.Errorf("%s: %v allocations a round", name, n)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	h := newHost(b)
	s := NewSend(0, h, 1<<60)
	p, dst := make([]byte, passSize), make([]byte, slotSize)
	b.SetBytes(passSize)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		writeToAck(h, s, p, dst, i)
	}
}

func BenchmarkSmallWrites(b *testing.B) {
	h := newHost(b)
	s := NewSend(0, h, 1<<60)
	p, dst := make([]byte, 20), make([]byte, slotSize)
	b.SetBytes(20)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Write(p)
		if i%70 == 69 {
			off := s.next
			ackTo(h, s, off, passOut(h, s, dst))
		}
	}
}

func BenchmarkReceive(b *testing.B) {
	h := newHost(b)
	r := NewRecv(0, h, 1<<20, 1<<20)
	data, p := make([]byte, slotSize), make([]byte, passSize)
	b.SetBytes(passSize)
	b.ReportAllocs()
	for off := int64(0); b.Loop(); off += passSize {
		h.mu.Lock()
		for i := range int64(passSlots) {
			r.Push(off+i*slotSize, data, false)
		}
		if v, ok := r.MaxDataDue(); ok {
			r.MaxDataSent(v)
		}
		h.mu.Unlock()
		for n := 0; n < passSize; {
			k, _ := r.Read(p)
			n += k
		}
	}
}

func BenchmarkReceiveReordered(b *testing.B) {
	h := newHost(b)
	r := NewRecv(0, h, 1<<20, 1<<20)
	data, p := make([]byte, slotSize), make([]byte, passSize)
	b.SetBytes(passSize)
	b.ReportAllocs()
	for off := int64(0); b.Loop(); off += passSize {
		pushToRead(h, r, data, p, off)
	}
}

// BenchmarkReceiveTinyFrames: a byte every other byte, backwards.
func BenchmarkReceiveTinyFrames(b *testing.B) {
	for _, window := range []int64{1 << 16, 1 << 18, 1 << 20} {
		b.Run(fmt.Sprint(window), func(b *testing.B) {
			h := newHost(b)
			one := []byte{1}
			b.SetBytes(window / 2)
			for b.Loop() {
				r := NewRecv(0, h, window, window)
				h.mu.Lock()
				for off := window - 1; off > 0; off -= 2 {
					r.Push(off, one, false)
				}
				r.ConnClosed(errs.Closed)
				h.mu.Unlock()
			}
		})
	}
}

// BenchmarkFillDrain fills a stream in chunks and then drains it: the cost of
// a byte must not depend on how many are queued.
func BenchmarkFillDrain(b *testing.B) {
	for _, chunk := range []int{1 << 10, 10 << 10, 100 << 10} {
		for _, total := range []int{25 << 20, 100 << 20, 400 << 20} {
			b.Run(fmt.Sprintf("chunk=%dK/total=%dM", chunk>>10, total>>20), func(b *testing.B) {
				h := newHost(b)
				p, dst := make([]byte, chunk), make([]byte, slotSize)
				b.SetBytes(int64(total))
				for b.Loop() {
					s := NewSend(0, h, plenty)
					s.SetWriteBuffer(plenty, plenty)
					for n := 0; n < total; n += chunk {
						s.Write(p)
					}
					for off := int64(0); off < s.acc; {
						n := passOut(h, s, dst)
						ackTo(h, s, off, n)
						off += int64(n)
					}
				}
			})
		}
	}
}

// What a write of 64 KiB costs to copy, into an aligned block from aligned and unaligned
// memory: in steps, as writes do, and at once.
func BenchmarkCopyIn(b *testing.B) {
	const size = 64 << 10
	block, src := Get(size), make([]byte, size+8)
	for name, from := range map[string][]byte{"aligned": src[:size], "unaligned": src[5 : size+5]} {
		b.Run(name+"/steps", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				c := pieces{p: from}
				c.copyTo(block.buf)
			}
		})
		b.Run(name+"/at once", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				copy(block.buf, from)
			}
		})
	}
}
