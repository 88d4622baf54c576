package emittest_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/emit/emittest"
)

func random(n int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// memory is a good source of every kind. The tests below spoil it.
type memory []byte

func (m memory) ReadAt(dst []byte, off int64) (int, error) {
	return bytes.NewReader(m).ReadAt(dst, off)
}

func (m memory) LendAt(off int64, n int) ([]byte, error) {
	if off >= int64(len(m)) {
		return nil, io.EOF
	}
	return m[off:min(off+int64(n), int64(len(m)))], nil
}

func (m memory) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	for _, b := range bufs {
		k, err := m.ReadAt(b, off+int64(n))
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

var sizes = []int{0, 1, 2, 1451, 1452, 1453, 14520, 100_000}

func TestGoodSources(t *testing.T) {
	for _, size := range sizes {
		content := random(size)
		name := filepath.Join(t.TempDir(), "content")
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		m := memory(content)

		for what, src := range map[string]io.ReaderAt{
			"file":           file,
			"section":        io.NewSectionReader(memory(append([]byte("before"), content...)), 6, int64(size)),
			"memory":         m,
			"lender only":    struct{ lends }{lends{m}},
			"vectors only":   struct{ vectors }{vectors{m}},
			"ends with nil":  emit.OnEmit(func(dst []byte, off int64) (int, error) { return eofAlone(m, dst, off) }),
			"bit by bit":     emit.OnEmit(func(dst []byte, off int64) (int, error) { return eofAlone(m, dst[:min(len(dst), 1000)], off) }),
			"empty at times": &everyOther{m: m},
		} {
			if err := emittest.TestSource(src, content, emittest.Concurrent()); err != nil {
				t.Errorf("%s of %d bytes: %v", what, size, err)
			}
		}
	}
}

// lends and vectors hide one of memory's methods.
type lends struct{ m memory }

func (l lends) ReadAt(dst []byte, off int64) (int, error)     { return l.m.ReadAt(dst, off) }
func (l lends) LendAt(off int64, n int) (b []byte, err error) { return l.m.LendAt(off, n) }

type vectors struct{ m memory }

func (v vectors) ReadAt(dst []byte, off int64) (int, error) { return v.m.ReadAt(dst, off) }
func (v vectors) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	return v.m.ReadVecAt(bufs, off)
}

// eofAlone gives what it can with nil, and io.EOF only when there is nothing.
func eofAlone(m memory, dst []byte, off int64) (int, error) {
	n, err := m.ReadAt(dst, off)
	if n > 0 {
		err = nil
	}
	return n, err
}

// everyOther answers each new question with nothing at all, once.
type everyOther struct {
	m     memory
	asked sync.Map
}

func (e *everyOther) ReadAt(dst []byte, off int64) (int, error) {
	type question struct {
		off int64
		n   int
	}
	q := question{off, len(dst)}
	if _, again := e.asked.LoadOrStore(q, true); !again {
		return 0, nil
	}
	return e.m.ReadAt(dst, off)
}

func TestNotReady(t *testing.T) {
	content := random(50_000)
	waits, there := 0, 0
	src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		n, err := memory(content[:there]).ReadAt(dst, min(off, int64(there)))
		if there < len(content) && err == io.EOF {
			err = emit.ErrNotReady
		}
		return n, err
	})
	err := emittest.TestSource(src, content, emittest.OnNotReady(func() {
		waits++
		there = min(there+700, len(content))
	}))
	if err != nil || waits < 50_000/700 {
		t.Fatalf("waited %d times, %v", waits, err)
	}

	// Little by little is progress, however often it was not ready.
	drops := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		n, err := memory(content).ReadAt(dst[:1], off)
		if err == nil {
			err = emit.ErrNotReady
		}
		return n, err
	})
	if err := emittest.TestSource(drops, content, emittest.Sequential()); err != nil {
		t.Fatal(err)
	}

	there = 700
	err = emittest.TestSource(src, content)
	if !errors.Is(err, emit.ErrNotReady) {
		t.Fatalf("a source that is never ready: %v", err)
	}
}

func TestSequential(t *testing.T) {
	content := random(50_000)
	cursor := func() io.ReaderAt {
		r := bytes.NewReader(content)
		return emit.OnEmit(func(dst []byte, _ int64) (int, error) { return r.Read(dst) })
	}
	if err := emittest.TestSource(cursor(), content, emittest.Sequential(), emittest.Concurrent(), nil); err != nil {
		t.Errorf("as what it is: %v", err)
	}
	if err := emittest.TestSource(cursor(), content); err == nil || !strings.Contains(err.Error(), "again") {
		t.Errorf("as a source that can be asked again: %v", err)
	}
}

func TestPrefix(t *testing.T) {
	endless := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		for i := range dst {
			dst[i] = byte((off + int64(i)) * 31)
		}
		return len(dst), nil
	})
	content := make([]byte, 30_000)
	endless.ReadAt(content, 0)
	if err := emittest.TestSource(endless, content, emittest.Prefix(), emittest.Concurrent()); err != nil {
		t.Errorf("as what it is: %v", err)
	}
	if err := emittest.TestSource(endless, content); err == nil || !strings.Contains(err.Error(), "the end is at 30000") {
		t.Errorf("as a source that ends: %v", err)
	}
	if err := emittest.TestSource(memory(content[:29_999]), content, emittest.Prefix()); err == nil {
		t.Error("a source that is too short is right")
	}
}

// spoiled is memory with methods to replace.
type spoiled struct {
	memory
	read func(dst []byte, off int64) (int, error)
	lend func(off int64, n int) ([]byte, error)
	vec  func(bufs [][]byte, off int64) (int, error)
}

func (s *spoiled) ReadAt(dst []byte, off int64) (int, error) {
	if s.read != nil {
		return s.read(dst, off)
	}
	return s.memory.ReadAt(dst, off)
}

func (s *spoiled) LendAt(off int64, n int) ([]byte, error) {
	if s.lend != nil {
		return s.lend(off, n)
	}
	return s.memory.LendAt(off, n)
}

func (s *spoiled) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	if s.vec != nil {
		return s.vec(bufs, off)
	}
	return s.memory.ReadVecAt(bufs, off)
}

func TestBadSources(t *testing.T) {
	content := random(60_000)
	own := errors.New("the disk is on fire")
	for _, c := range []struct {
		name  string
		spoil func(s *spoiled)
		want  string
	}{
		{"other bytes", func(s *spoiled) {
			s.memory = bytes.Clone(s.memory)
			s.memory[59_999]++
		}, "the byte at offset 59999 is"},
		{"too short", func(s *spoiled) { s.memory = s.memory[:59_999] }, "io.EOF, but the end is at offset 60000"},
		{"too long", func(s *spoiled) { s.memory = append(bytes.Clone(s.memory), 1) }, "but the end is at 60000"},
		{"no end", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				n, _ := s.memory.ReadAt(dst, off)
				return n, nil
			}
		}, "no bytes and no error, twice"},
		{"io.EOF with the bytes of the middle", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				n, _ := s.memory.ReadAt(dst, off)
				return n, io.EOF
			}
		}, "io.EOF, but"},
		{"an error of its own", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				if off > 40_000 {
					return 0, own
				}
				return s.memory.ReadAt(dst, off)
			}
		}, own.Error()},
		{"a negative count", func(s *spoiled) {
			s.read = func([]byte, int64) (int, error) { return -1, nil }
		}, "a count of -1"},
		{"a count beyond dst", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				_, err := s.memory.ReadAt(dst, off)
				return len(dst) + 1, err
			}
		}, "a count of"},
		{"a count too small", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				n, err := s.memory.ReadAt(dst, off)
				if n > 1000 && err == nil {
					n -= 10
				}
				return n, err
			}
		}, "beyond the count were written"},
		{"a count too large", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				n, err := s.memory.ReadAt(dst[:len(dst)-len(dst)/2], off)
				return min(2*n, len(dst)), err
			}
		}, "the byte at offset"},
		{"appends beyond dst", func(s *spoiled) {
			s.read = func(dst []byte, off int64) (int, error) {
				n, err := s.memory.ReadAt(dst, off)
				_ = append(dst, 0, 0, 0, 0)
				return n, err
			}
		}, "outside dst"},
		{"a cursor", func(s *spoiled) {
			at := int64(0)
			s.read = func(dst []byte, off int64) (int, error) {
				n, err := s.memory.ReadAt(dst, at)
				at += int64(n)
				return n, err
			}
		}, "asked again from the beginning, ReadAt"},
		{"a cursor that can rewind", func(s *spoiled) {
			at := int64(0)
			s.read = func(dst []byte, off int64) (int, error) {
				if off == 0 {
					at = 0
				}
				n, err := s.memory.ReadAt(dst, at)
				at += int64(n)
				return n, err
			}
		}, "asked again backwards, ReadAt"},
		{"writes into the dst of an earlier call", func(s *spoiled) {
			var kept []byte
			s.read = func(dst []byte, off int64) (int, error) {
				if kept != nil {
					kept[0] ^= 0x55
				}
				kept = dst
				return s.memory.ReadAt(dst, off)
			}
		}, "after the call that it was for"},
		{"writes into the dst of its last call", func(s *spoiled) {
			var kept []byte
			s.read = func(dst []byte, off int64) (int, error) {
				kept = dst
				return s.memory.ReadAt(dst, off)
			}
			lends := 0
			s.lend = func(off int64, n int) ([]byte, error) {
				if lends++; lends == 10 {
					kept[0] ^= 0x55
				}
				return s.memory.LendAt(off, n)
			}
		}, "after the call that it was for"},
		{"reads a dst of an earlier call", func(s *spoiled) {
			var cached []byte
			var at int64 = -1
			s.read = func(dst []byte, off int64) (int, error) {
				if off >= at && at >= 0 && off+int64(len(dst)) <= at+int64(len(cached)) {
					return copy(dst, cached[off-at:]), nil
				}
				n, err := s.memory.ReadAt(dst, off)
				cached, at = dst[:n], off
				return n, err
			}
		}, "the byte at offset"},
		{"lends too much", func(s *spoiled) {
			s.lend = func(off int64, n int) ([]byte, error) { return s.memory.LendAt(off, n+1) }
		}, "bytes were lent"},
		{"lends other bytes", func(s *spoiled) {
			s.lend = func(off int64, n int) ([]byte, error) { return s.memory.LendAt(off^1, n) }
		}, "in order, LendAt"},
		{"lends only in order", func(s *spoiled) {
			at := int64(0)
			s.lend = func(off int64, n int) ([]byte, error) {
				b, err := s.memory.LendAt(at, n)
				at += int64(len(b))
				return b, err
			}
		}, "asked again from the beginning, LendAt"},
		{"vectors of other bytes", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				n, err := s.memory.ReadVecAt(bufs, off)
				if len(bufs) > 3 {
					bufs[2][0]++
				}
				return n, err
			}
		}, "ReadVecAt of"},
		{"vectors with a wrong count", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				n, err := s.memory.ReadVecAt(bufs, off)
				return n - 1, err
			}
		}, "ReadVecAt of"},
		{"fills only the first buffer and does not say so", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				_, err := s.memory.ReadVecAt(bufs[:1], off)
				n := 0
				for _, b := range bufs {
					n += len(b)
				}
				return n, err
			}
		}, "the byte at offset"},
		{"consumes the slice of buffers", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				n, err := s.memory.ReadVecAt(bufs, off)
				bufs[0] = bufs[0][len(bufs[0]):]
				return n, err
			}
		}, "the slice of buffers was changed"},
		{"swaps buffers", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				n, err := s.memory.ReadVecAt(bufs, off)
				bufs[0] = bytes.Clone(bufs[0])
				return n, err
			}
		}, "the slice of buffers was changed"},
		{"appends beyond a buffer", func(s *spoiled) {
			s.vec = func(bufs [][]byte, off int64) (int, error) {
				n, err := s.memory.ReadVecAt(bufs, off)
				_ = append(bufs[0], 0, 0, 0)
				return n, err
			}
		}, "outside dst"},
		{"does not bear company", func(s *spoiled) {
			var inside atomic.Int32
			s.read = func(dst []byte, off int64) (int, error) {
				defer inside.Add(-1)
				if inside.Add(1) > 1 {
					return 0, own
				}
				runtime.Gosched()
				return s.memory.ReadAt(dst, off)
			}
		}, "several goroutines"},
	} {
		s := &spoiled{memory: content}
		c.spoil(s)
		err := emittest.TestSource(s, content, emittest.Concurrent())
		if err == nil {
			t.Errorf("%s: nothing was found", c.name)
		} else if !strings.HasPrefix(err.Error(), "emittest: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
	}
}

func TestLentBytesThatChange(t *testing.T) {
	content := random(5000)
	scratch := make([]byte, 20_000)
	s := &spoiled{memory: content}
	s.lend = func(off int64, n int) ([]byte, error) {
		k, err := s.memory.ReadAt(scratch[:n], off)
		if k > 1 {
			return scratch[:k-1], emit.ErrNotReady
		}
		return scratch[:k], err
	}
	if err := emittest.TestSource(s, content); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	err := emittest.TestSource(s, content, emittest.OnNotReady(func() { scratch[0]++ }))
	if err == nil || !strings.Contains(err.Error(), "lent at offset 0 changed") {
		t.Errorf("changed: %v", err)
	}
}

func TestWriteIntoAnEarlierDstInTheLastCall(t *testing.T) {
	content := random(10)
	var first []byte
	src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		if off == 0 {
			first = dst
		} else {
			first[0]++
		}
		return memory(content).ReadAt(dst, off)
	})
	err := emittest.TestSource(src, content, emittest.Sequential())
	if err == nil || !strings.Contains(err.Error(), "after the call") {
		t.Fatal(err)
	}
}
