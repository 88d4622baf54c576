package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// sink is where a receiver keeps what comes, to hash it when the clock has
// stopped. Parts may be received at the same time.
type sink struct {
	size   int64
	kind   string // "memory" or "file", and one of:
	memory []byte
	file   *tempFile
}

// newSink has everything ready that would otherwise happen within the clock.
func newSink(ctx context.Context, j *job) (*sink, error) {
	s := &sink{size: j.Size, kind: j.Sink}
	if s.kind == "auto" {
		s.kind = "memory"
		if j.Source == "file" || s.size > maxMemory {
			s.kind = "file"
		}
	}
	if s.kind == "memory" {
		if s.size > maxMemory {
			return nil, fmt.Errorf("sink memory takes %s at most", byteSize(maxMemory))
		}
		s.memory = make([]byte, s.size)
		// The kernel finds pages when they are first written: let that be now,
		// not within the clock.
		for i := 0; i < len(s.memory); i += 4096 {
			s.memory[i] = 1
		}
		return s, nil
	}
	var err error
	if s.file, err = newTempFile(); err != nil {
		return nil, err
	}
	// The same for the file's pages in the cache.
	if err := s.touchFile(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *sink) touchFile(ctx context.Context) error {
	zeros := make([]byte, min(s.size, hashBlock))
	for off := int64(0); off < s.size; off += hashBlock {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(zeros[:min(s.size-off, hashBlock)], off); err != nil {
			return err
		}
	}
	return nil
}

func (s *sink) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// ReadAt reads what was received.
func (s *sink) ReadAt(b []byte, off int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(b, off)
	}
	return copy(b, s.memory[off:]), nil
}

func (s *sink) hash(ctx context.Context) (string, error) { return hash(ctx, s, s.size) }

// readSize is how much a receiver reads at most at a time. A file is written
// in pieces of this size, for every stack.
const readSize = 64 << 10

// receive takes exactly p from r, whose end must be p's end. It adds to moved
// as bytes come.
func (s *sink) receive(r io.Reader, p part, moved *atomic.Int64) error {
	var err error
	if s.file == nil {
		err = s.receiveMemory(r, p, moved)
	} else {
		err = s.receiveFile(r, p, moved)
	}
	if err != nil {
		return err
	}
	var one [1]byte
	switch n, err := io.ReadFull(r, one[:]); {
	case n > 0:
		return errors.New("the other side sent more than it said")
	case err != io.EOF:
		return err
	}
	return nil
}

func (s *sink) receiveMemory(r io.Reader, p part, moved *atomic.Int64) error {
	rest := s.memory[p.off : p.off+p.n]
	for len(rest) > 0 {
		n, err := r.Read(rest[:min(len(rest), readSize)])
		rest = rest[n:]
		moved.Add(int64(n))
		if err == io.EOF && len(rest) > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

func (s *sink) receiveFile(r io.Reader, p part, moved *atomic.Int64) error {
	buf := make([]byte, min(p.n, readSize))
	for p.n > 0 {
		b := buf[:min(p.n, readSize)]
		n, err := io.ReadFull(r, b)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if _, err := s.file.WriteAt(b, p.off); err != nil {
			return err
		}
		p.off += int64(n)
		p.n -= int64(n)
		moved.Add(int64(n))
	}
	return nil
}
