package stream

import (
	"context"
	"net"
	"time"
)

// Send is the sending half of a stream.
type Send struct {
	id int64
	h  Host
}

// NewSend makes the sending half of stream id. credit is the peer's initial
// MAX_STREAM_DATA.
func NewSend(id int64, h Host, credit int64) *Send { return &Send{id: id, h: h} }

// ID returns the stream's ID.
func (s *Send) ID() int64 { return s.id }

func (s *Send) Write(p []byte) (int, error)                      { panic("todo") }
func (s *Send) WriteBuffers(b *net.Buffers) (int64, error)       { panic("todo") }
func (s *Send) WriteOwned(p []byte, release func()) (int, error) { panic("todo") }
func (s *Send) TryWriteAll(p []byte) error                       { panic("todo") }
func (s *Send) Close() error                                     { panic("todo") }
func (s *Send) CloseWith(p []byte) (int, error)                  { panic("todo") }
func (s *Send) Cancel(code uint64)                               { panic("todo") }
func (s *Send) SetDeadline(t time.Time)                          { panic("todo") }
func (s *Send) SetWriteBuffer(low, high int) error               { panic("todo") }
func (s *Send) Writable() <-chan struct{}                        { panic("todo") }
func (s *Send) Cork()                                            { panic("todo") }
func (s *Send) Uncork()                                          { panic("todo") }
func (s *Send) Context() context.Context                         { panic("todo") }

// Next: monitor held.
func (s *Send) Next(max int) (off int64, n int, fin, lost, ok bool) { panic("todo") }

// Probe: monitor held. The first range at hand that is in flight, for a PTO
// probe; then Copy and Packed as usual.
func (s *Send) Probe(max int) (off int64, n int, fin, ok bool) { panic("todo") }

// Copy: monitor held.
func (s *Send) Copy(dst []byte, off int64) { panic("todo") }

// Packed: monitor held. Returns the number of NEW bytes (connection credit),
// or -1 if the range was refused (reset, closed, taken back) and must not leave.
func (s *Send) Packed(off int64, n int, fin bool) int { panic("todo") }

func (s *Send) OnAcked(off int64, n int, fin bool)                { panic("todo") } // monitor held
func (s *Send) OnLost(off int64, n int, fin bool)                 { panic("todo") } // monitor held
func (s *Send) SetCredit(max int64) bool                          { panic("todo") } // monitor held; true if it grew
func (s *Send) Credit() int64                                     { panic("todo") } // monitor held
func (s *Send) Blocked() bool                                     { panic("todo") } // monitor held; STREAM_DATA_BLOCKED at Credit() is due
func (s *Send) BlockedSent()                                      { panic("todo") } // monitor held
func (s *Send) BlockedLost(limit int64)                           { panic("todo") } // monitor held
func (s *Send) StopSending(code uint64)                           { panic("todo") } // monitor held
func (s *Send) ResetDue() (code uint64, finalSize int64, ok bool) { panic("todo") } // monitor held
func (s *Send) ResetSent()                                        { panic("todo") } // monitor held
func (s *Send) ResetAcked()                                       { panic("todo") } // monitor held
func (s *Send) ResetLost()                                        { panic("todo") } // monitor held
func (s *Send) HasPending() bool                                  { panic("todo") } // monitor held
func (s *Send) ConnClosed(err error)                              { panic("todo") } // monitor held
func (s *Send) Unsent() int                                       { panic("todo") } // monitor held
func (s *Send) Wake()                                             { panic("todo") } // monitor held
func (s *Send) Err() error                                        { panic("todo") } // monitor held; why nothing can be added any more, or nil

func (s *Send) BeginSource(ctx context.Context) error { panic("todo") }
func (s *Send) EndSource()                            { panic("todo") }
func (s *Send) WaitSource(ctx context.Context, ready func() bool) error {
	panic("todo")
}

// AppendBlock: monitor held. Takes b over in any case; an error says that the
// stream takes nothing any more (b is released then).
func (s *Send) AppendBlock(b *Block, n int) error { panic("todo") }

// PackedSource: monitor held. Number of new bytes, or -1 if refused.
func (s *Send) PackedSource(off int64, lens []uint16, hashes []uint64, fin bool) int {
	panic("todo")
}

// LostSource: monitor held. The slices are valid until the next call.
func (s *Send) LostSource() (off int64, lens []uint16, hashes []uint64, ok bool) {
	panic("todo")
}

func (s *Send) Refill(off int64, b *Block, n int) { panic("todo") } // monitor held; takes b over
func (s *Send) NewOffset() int64                  { panic("todo") } // monitor held
func (s *Send) NewCredit() int64                  { panic("todo") } // monitor held
func (s *Send) FinishSource()                     { panic("todo") } // monitor held
func (s *Send) AllAcked(off int64) bool           { panic("todo") } // monitor held
func (s *Send) OnAckedFunc(f func(off int64))     { panic("todo") } // monitor held
