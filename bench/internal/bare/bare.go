// Package bare is the bare loop: what a machine does when nothing is left of a QUIC
// sender but "copy, seal, mask, one sendmsg with UDP_SEGMENT", and of a receiver
// but "recvmsg with UDP_GRO, unmask, open, one ACK packet per batch". There is no
// loss recovery, no congestion control and no stream: a fixed window of bytes
// that are not acknowledged is all the state. It is the roof under which a
// transport in Go can be, on the same machine at the same hour.
//
// Sender and receiver are meant to run in two processes. It needs Linux.
package bare

import (
	"crypto/tls"
	"errors"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/wire"
)

// ErrUnsupported is what Send and Listen return where there is no UDP_SEGMENT.
var ErrUnsupported = errors.New("the bare loop needs Linux")

// The layout of a datagram: a short header with a 4-byte connection ID and a
// 4-byte packet number, a STREAM frame header with an 8-byte offset and no
// length, the payload, the AEAD's tag.
const (
	pnOff    = 1 + 4
	pnLen    = 4
	headLen  = pnOff + pnLen
	frameLen = 1 + 1 + 8
	tagLen   = 16

	// Overhead is how much larger a datagram is than its payload, in bytes.
	Overhead = headLen + frameLen + tagLen
)

// Config says how to send. Its zero value is the bare loop of the comparison.
type Config struct {
	Datagrams int // per sendmsg, default 40
	Size      int // bytes of a datagram, default 1452
	Window    int // payload bytes that may be unacknowledged, default 1 MiB

	// Bare leaves out copying, sealing and opening: what is left is the kernel's part.
	Bare bool

	// Source, if set, is asked for PerCall datagrams' payload at a time, as a
	// stream's source is. If nil the payload is copied straight from memory. It
	// gives the bytes of Content.
	Source  func(dst []byte, off int64) `json:"-"`
	PerCall int                         // default 10

	// Through seals from the source's bytes where they lie, the frame header written
	// in front of each slice, instead of moving them into the packet first.
	Through bool
	// Retain is over how many bytes the blocks that a source fills rotate, as if they
	// were kept until they are acknowledged; 0: one block, always hot.
	Retain int
}

func (c Config) withDefaults() Config {
	if c.Datagrams == 0 {
		c.Datagrams = 40
	}
	if c.Size == 0 {
		c.Size = 1452
	}
	if c.Window == 0 {
		c.Window = 1 << 20
	}
	if c.PerCall == 0 {
		c.PerCall = 10
	}
	return c
}

// Validate reports what the kernel would not take.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Size < Overhead+1:
		return errors.New("datagrams are too small to carry anything")
	case c.Datagrams < 1 || c.Datagrams > 64 || c.Datagrams*c.Size > 65507:
		return errors.New("one sendmsg takes 1 to 64 datagrams, and 65507 bytes")
	case c.Window < c.Datagrams*(c.Size-Overhead):
		return errors.New("the window must hold what one sendmsg carries")
	case c.PerCall < 1 || c.PerCall > c.Datagrams:
		return errors.New("a source call must fill 1 datagram to all of a sendmsg")
	}
	return nil
}

// A Report is what one side saw between the first and the last byte of the timed
// part.
type Report struct {
	Bytes   int64         // payload
	Elapsed time.Duration // sender only
	Packets int64         // datagrams with payload
	Calls   int64         // system calls that carried them
	Failed  int64         // receiver only: datagrams that did not open, or held another byte than expected
}

// secret is any secret; both sides have it.
var secret = []byte("the bare loop has no handshake..")

func newSealer() *protect.Sealer {
	s, err := protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, secret, wire.Version1)
	if err != nil {
		panic(err) // the suite is there
	}
	return s
}

func newOpener() *protect.Opener {
	o, err := protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, secret, wire.Version1)
	if err != nil {
		panic(err)
	}
	return o
}

// Content is the byte at a payload offset: any function that is not constant will do.
func Content(off int64) byte { return byte(off % 251) }

// contentRing holds enough of Content's bytes for a slice of n to be had anywhere.
func contentRing(n int) []byte {
	b := make([]byte, 251*4096+n)
	for i := range b {
		b[i] = Content(int64(i))
	}
	return b
}

// Parts are the costs of what the sender does for one datagram, each measured alone.
type Parts struct{ Seal, Copy time.Duration }

// MeasureParts takes the CPU time of sealing (with the header protection mask) and copying of one
// datagram of size bytes, sources and packets as in the loop.
func MeasureParts(size, datagrams int) Parts {
	const rounds = 4000
	n := size - Overhead
	ring := contentRing(datagrams * n)
	buf := make([]byte, datagrams*size)
	s := newSealer()
	start := proc.CPU()
	pn := int64(0)
	for range rounds {
		for i := range datagrams {
			s.Seal(buf[i*size:(i+1)*size], pnOff, pnLen, pn)
			pn++
		}
	}
	seal := (proc.CPU() - start) / time.Duration(rounds*datagrams)
	off := 0
	start = proc.CPU()
	for range rounds {
		for i := range datagrams {
			copy(buf[i*size+headLen+frameLen:][:n], ring[off:])
			if off += n; off >= 251*4096 {
				off -= 251 * 4096
			}
		}
	}
	return Parts{Seal: seal, Copy: (proc.CPU() - start) / time.Duration(rounds*datagrams)}
}
