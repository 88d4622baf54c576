package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// preadvFile reads into several buffers with one preadv.
type preadvFile struct {
	*os.File
	fd int // valid as long as File is not closed
}

func vectorFile(f *os.File) io.ReaderAt { return &preadvFile{f, int(f.Fd())} }

// ReadVecAt implements emit.VectorSource.
func (f *preadvFile) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	for {
		n, err := unix.Preadv(f.fd, bufs, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, &os.PathError{Op: "preadv", Path: f.Name(), Err: err}
		case n == 0 && len(bufs) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
