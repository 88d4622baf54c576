package stream

import (
	"bytes"
	"runtime"
	"testing"
	"weak"
)

// A block that is put back may reach over the places of several that are gone, and bytes
// that span two such blocks lie together.
func TestQueueInsertOverEmptyEntries(t *testing.T) {
	var q queue
	block := func(off int64, n int) *Block {
		b := Get(n)
		b.off, b.n, b.live = off, n, n
		for i := range n {
			b.buf[i] = byte(off) + byte(i)
		}
		return b
	}
	for i := range int64(6) {
		q.push(block(i*10, 10))
	}
	for i := 1; i < 5; i++ {
		q.at(i).b.Release()
		q.drop(i)
	}
	q.insert(block(15, 20)) // over the places of 20 and 30
	q.insert(block(10, 5))
	q.insert(block(35, 15)) // over that of 40

	want := make([]byte, 60)
	for i := range want {
		want[i] = byte(i)
	}
	for lo := range 60 {
		for hi := lo + 1; hi <= 60; hi++ {
			got := make([]byte, hi-lo)
			if !q.copyOut(got, int64(lo)) || !bytes.Equal(got, want[lo:hi]) {
				t.Fatalf("bytes %d to %d are %v", lo, hi, got)
			}
		}
	}
}

// A block whose memory has to be made costs little more than that.
func TestGetAllocates(t *testing.T) {
	const blocks = 160
	var all []*Block
	n := testing.AllocsPerRun(5, func() {
		for range blocks {
			all = append(all, Get(1<<10))
		}
	})
	if n > blocks*5/4 && !raceEnabled {
		t.Errorf("%v allocations for %d blocks", n, blocks)
	}
	for _, b := range all {
		b.Release()
	}
}

// A block that is in use keeps nobody else's memory alive.
func TestBlockInUseKeepsItsOwnMemoryOnly(t *testing.T) {
	var all [64]*Block
	for i := range all {
		all[i] = Get(256 << 10)
	}
	var gone []weak.Pointer[byte]
	for i, b := range all {
		if i%16 > 0 {
			gone = append(gone, weak.Make(&b.Bytes()[0]))
			b.Release()
		}
	}
	for range 3 { // what is in a pool outlives two
		runtime.GC()
	}
	for _, p := range gone {
		if p.Value() != nil {
			t.Fatal("memory that was given back is still there")
		}
	}
	for i := 0; i < len(all); i += 16 {
		all[i].Release()
	}
}
