package main

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// content is what a sender sends: size bytes that can be read any number of
// times, and their hash.
type content struct {
	size   int64
	file   *os.File  // source file; nil for the others
	temp   *tempFile // file, if it is ours
	memory *pattern  // sources memory and write
	sha256 string
}

func (c *content) Close() {
	if c.temp != nil {
		c.temp.Close()
	} else if c.file != nil {
		c.file.Close()
	}
}

// maxMemory is how much of a transfer quicperf keeps in memory on either side.
const maxMemory = 1 << 30

// hashBlock is how much is read or made at a time, outside the clock.
const hashBlock = 1 << 20

// newContent makes what j asks for, from the named file if there is one. It
// sets j.Size if that is open, and hashes everything, which also brings a file
// into the page cache: what is measured is not the disk.
func newContent(ctx context.Context, j *job, name string) (_ *content, err error) {
	c := new(content)
	defer func() {
		if err != nil {
			c.Close()
		}
	}()

	if name != "" {
		if c.file, err = openFile(name, j.Size); err != nil {
			return nil, err
		}
		if j.Size == 0 {
			info, err := c.file.Stat()
			if err != nil {
				return nil, err
			}
			j.Size = info.Size()
		}
	} else if j.Size == 0 {
		j.Size = defaultSize
	}
	c.size = j.Size

	switch {
	case j.Source == "file" && name == "":
		if c.temp, err = newTempFile(); err == nil {
			c.file = c.temp.File
			err = writeRandom(ctx, c.file, c.size)
		}
	case j.Source == "file":
	case name == "":
		c.memory = randomPattern(c.size)
	case c.size > maxMemory:
		err = fmt.Errorf("source %s keeps the file in memory, at most %s of it", j.Source, byteSize(maxMemory))
	default:
		c.memory, err = filePattern(c.file, c.size)
		c.file.Close()
		c.file = nil
	}
	if err != nil {
		return nil, err
	}
	c.sha256, err = hash(ctx, c.reader(), c.size)
	return c, err
}

// openFile opens a file of which size bytes, or all if size is 0, can be sent.
func openFile(name string, size int64) (*os.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", name)
	case info.Size() == 0:
		err = fmt.Errorf("%s is empty: there is nothing to send", name)
	case size > info.Size():
		err = fmt.Errorf("%s has only %d bytes, not %d", name, info.Size(), size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkFile finds out early what openFile would find out when it is needed.
func checkFile(name string, size int64) error {
	if name == "" {
		return nil
	}
	f, err := openFile(name, size)
	if err != nil {
		return err
	}
	return f.Close()
}

// reader gives the content to anyone, whatever it is kept in.
func (c *content) reader() io.ReaderAt {
	if c.file != nil {
		return c.file
	}
	return c.memory
}

// source is what a stream with emission asks, in the form that mode is about.
func (c *content) source(mode string) io.ReaderAt {
	if c.file != nil && mode == "vector" {
		return vectorFile(c.file)
	}
	return c.reader()
}

// hash reads n bytes and returns their SHA-256 in hexadecimal.
func hash(ctx context.Context, r io.ReaderAt, n int64) (string, error) {
	h := sha256.New()
	buf := make([]byte, min(n, hashBlock))
	for off := int64(0); off < n; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		b := buf[:min(n-off, hashBlock)]
		if _, err := readFullAt(r, b, off); err != nil {
			return "", err
		}
		h.Write(b)
		off += int64(len(b))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readFullAt fills b, and says so if the source ends before.
func readFullAt(r io.ReaderAt, b []byte, off int64) (int, error) {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

func newRandom() *rand.ChaCha8 {
	var seed [32]byte
	crand.Read(seed[:])
	return rand.NewChaCha8(seed)
}

// writeRandom writes n random bytes.
func writeRandom(ctx context.Context, w io.Writer, n int64) error {
	random, buf := newRandom(), make([]byte, min(n, hashBlock))
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := buf[:min(n, hashBlock)]
		random.Read(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

// tempFile is a file that is gone when the process is, however it ends. On
// Windows an open file keeps its name until Close.
type tempFile struct {
	*os.File
	name string // still there to be removed
}

func newTempFile() (*tempFile, error) {
	f, err := os.CreateTemp("", "quicperf-*")
	if err != nil {
		return nil, err
	}
	t := &tempFile{f, f.Name()}
	if os.Remove(t.name) == nil {
		t.name = ""
	}
	return t, nil
}

func (t *tempFile) Close() error {
	err := t.File.Close()
	if t.name != "" {
		os.Remove(t.name)
	}
	return err
}

// pattern is memory that repeats without end, so that a sender of many
// gigabytes needs little of it. It has all that Volley looks for in a source:
// it can be read, read in pieces, and lent.
type pattern struct {
	mem    []byte // one period, then its beginning again, for whole slices across the end
	period int64
}

const (
	// Not a multiple of anything: a shift of the content by a power of two,
	// the likeliest one, must not go unnoticed.
	maxPeriod = 64<<20 - 59
	// maxLend is the longest slice that is always there in one piece.
	maxLend = 1 << 20
)

func randomPattern(size int64) *pattern {
	p := &pattern{period: min(size, maxPeriod)}
	p.mem = make([]byte, p.period+maxLend)
	newRandom().Read(p.mem[:p.period])
	p.repeat()
	return p
}

func filePattern(r io.ReaderAt, size int64) (*pattern, error) {
	p := &pattern{mem: make([]byte, size+maxLend), period: size}
	if _, err := readFullAt(r, p.mem[:size], 0); err != nil {
		return nil, err
	}
	p.repeat()
	return p, nil
}

func (p *pattern) repeat() {
	for i := p.period; i < int64(len(p.mem)); {
		i += int64(copy(p.mem[i:], p.mem[:p.period]))
	}
}

// LendAt returns at most n bytes of the pattern, which never change.
func (p *pattern) LendAt(off int64, n int) ([]byte, error) {
	i := off % p.period
	j := i + int64(min(n, maxLend))
	return p.mem[i:j:j], nil
}

// ReadAt copies from the pattern; it never ends.
func (p *pattern) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		lent, _ := p.LendAt(off+int64(n), len(b)-n)
		n += copy(b[n:], lent)
	}
	return n, nil
}

// ReadVecAt fills the buffers one after the other.
func (p *pattern) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	n := 0
	for _, b := range bufs {
		m, _ := p.ReadAt(b, off+int64(n))
		n += m
	}
	return n, nil
}
