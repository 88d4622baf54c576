package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/volley-quic/volley/emit"
)

// costlyCall is what a call of a costly source takes, in CPU time.
const costlyCall = 2 * time.Microsecond

// fileSize is how long the file of a file source is: a longer transfer sends it again.
const fileSize = 128 * ringSize

// source makes the source that an emission names, of stream 0's content.
//
//	memory   the ring, by ReadAt
//	file     a file in the page cache, by pread (preadv)
//	costly   the ring, after costlyCall
func source(e emission, file *os.File) (io.ReaderAt, error) {
	var src io.ReaderAt
	switch e.Source {
	case "memory":
		src = ringSource{}
	case "costly":
		src = ringSource{cost: costlyCall}
	case "file":
		if e.Mode == "vector" {
			return vectorFile(file), nil
		}
		return file, nil
	default:
		return nil, fmt.Errorf("no source is called %q", e.Source)
	}
	switch e.Mode {
	case "lend":
		return lender{src.(ringSource)}, nil
	case "vector":
		return vector{src.(ringSource)}, nil
	}
	return src, nil
}

// ringSource gives the ring's bytes, each call taking cost.
type ringSource struct{ cost time.Duration }

func (s ringSource) spend() {
	if s.cost > 0 {
		for start := time.Now(); time.Since(start) < s.cost; {
		}
	}
}

// ReadAt implements io.ReaderAt.
func (s ringSource) ReadAt(dst []byte, off int64) (int, error) {
	s.spend()
	fill(dst, off)
	return len(dst), nil
}

func fill(dst []byte, off int64) {
	for len(dst) > 0 {
		n := copy(dst, content(0, off, min(len(dst), writeSize)))
		dst, off = dst[n:], off+int64(n)
	}
}

// lender lends the ring.
type lender struct{ ringSource }

// LendAt implements emit.Lender.
func (s lender) LendAt(off int64, n int) ([]byte, error) {
	s.spend()
	return content(0, off, min(n, writeSize)), nil
}

// vector fills several buffers in one call.
type vector struct{ ringSource }

// ReadVecAt implements emit.VectorSource.
func (s vector) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	s.spend()
	for _, b := range bufs {
		fill(b, off+int64(n))
		n += len(b)
	}
	return n, nil
}

var (
	_ emit.Lender       = lender{}
	_ emit.VectorSource = vector{}
)

// writeContentFile makes the file of a file source.
func writeContentFile(f *os.File) error {
	for off := int64(0); off < fileSize; off += ringSize {
		if _, err := f.Write(ring[:ringSize]); err != nil {
			return err
		}
	}
	return nil
}
