package emit

import "io"

// OnEmit is a function used as a source: it puts bytes that begin at off into
// dst and says how many. What it may answer, and when it is called, is told in
// the package comment: unlike io.ReaderAt asks, fewer bytes than len(dst) with a
// nil error are right. It need not be safe for concurrent use, unless the
// application sends from it on several streams.
type OnEmit func(dst []byte, off int64) (n int, err error)

var _ io.ReaderAt = OnEmit(nil)

// ReadAt calls f.
func (f OnEmit) ReadAt(dst []byte, off int64) (n int, err error) { return f(dst, off) }

// Lender is a source that has its bytes in memory and can show them, so that they
// are copied once, into the packet. It serves the mode Lend; the source's ReadAt
// gives the same bytes.
type Lender interface {
	// LendAt returns at most n > 0 bytes that begin at off, and answers
	// otherwise as ReadAt does, the length of the slice being the count.
	// Volley reads the slice and never writes to it. The bytes must stay as
	// they are until the next call of the same stream to the source, or until
	// SendFrom has returned. LendAt is called while the connection is being
	// served and must not block.
	LendAt(off int64, n int) ([]byte, error)
}

// VectorSource is a source that fills several buffers in one call, as preadv(2)
// does: each is one datagram's share, in place. It serves the mode Vector; the
// source's ReadAt gives the same bytes.
type VectorSource interface {
	// ReadVecAt fills bufs one after another with the bytes that begin at off,
	// and answers as ReadAt does, n counting over all of them. The buffers, and
	// the slice that holds them, are only lent: it must not keep or change bufs.
	// ReadVecAt is called while the connection is being served and must not
	// block for long.
	ReadVecAt(bufs [][]byte, off int64) (n int, err error)
}
