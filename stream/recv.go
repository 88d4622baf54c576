package stream

import "time"

// Recv is the receiving half of a stream.
type Recv struct {
	id int64
	h  Host
}

// NewRecv makes the receiving half of stream id. window is the credit the
// peer has already, maxWindow what auto-tuning may reach, both in bytes.
func NewRecv(id int64, h Host, window, maxWindow int64) *Recv { return &Recv{id: id, h: h} }

// ID returns the stream's ID.
func (r *Recv) ID() int64 { return r.id }

// Push: monitor held.
func (r *Recv) Push(off int64, data []byte, fin bool) (newBytes int64, err error) { panic("todo") }

// Reset: monitor held.
func (r *Recv) Reset(code uint64, finalSize int64) (newBytes int64, err error) { panic("todo") }

func (r *Recv) Read(p []byte) (int, error)         { panic("todo") }
func (r *Recv) Peek(p []byte) (int, error)         { panic("todo") }
func (r *Recv) Cancel(code uint64)                 { panic("todo") }
func (r *Recv) SetDeadline(t time.Time)            { panic("todo") }
func (r *Recv) SetFinalSizeCallback(f func(int64)) { panic("todo") }

func (r *Recv) MaxDataDue() (max int64, ok bool)       { panic("todo") } // monitor held
func (r *Recv) MaxDataSent(max int64)                  { panic("todo") } // monitor held
func (r *Recv) MaxDataLost()                           { panic("todo") } // monitor held
func (r *Recv) StopSendingDue() (code uint64, ok bool) { panic("todo") } // monitor held
func (r *Recv) StopSendingSent()                       { panic("todo") } // monitor held
func (r *Recv) StopSendingLost()                       { panic("todo") } // monitor held
func (r *Recv) StopSendingAcked()                      { panic("todo") } // monitor held
func (r *Recv) ConnClosed(err error)                   { panic("todo") } // monitor held
