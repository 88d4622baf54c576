package main

import "testing"

func TestContentShowsWhatIsAtAWrongPlace(t *testing.T) {
	p := content(3, 12345, 1000)
	if !contentIs(p, 3, 12345) {
		t.Error("content is not content")
	}
	for _, wrong := range []struct {
		stream int
		off    int64
	}{{3, 12346}, {4, 12345}, {3, 12345 + 1<<20}, {3, 12345 + 64<<10}, {2, 12345}} {
		if contentIs(p, wrong.stream, wrong.off) {
			t.Errorf("stream 3's bytes at 12345 pass as those of stream %d at %d", wrong.stream, wrong.off)
		}
	}
	if !contentIs(content(0, 5*ringSize-10, writeSize), 0, 5*ringSize-10) {
		t.Error("the ring does not close")
	}
}

func TestSampler(t *testing.T) {
	const size = 4 << 20
	whole := func(change func(p []byte)) error {
		s := newSampler(1, size)
		for off := int64(0); off < size; off += 1000 {
			p := append([]byte(nil), content(1, off, 1000)...)
			change(p)
			s.note(p, off)
		}
		if len(s.seen) < 4000 {
			t.Errorf("only %d samples", len(s.seen))
		}
		return s.check()
	}
	if err := whole(func([]byte) {}); err != nil {
		t.Error(err)
	}
	n := 0
	if err := whole(func(p []byte) {
		if n++; n == 2000 {
			p[3]++
		}
	}); err == nil {
		t.Error("one wrong byte among those noted goes unseen")
	}
}
