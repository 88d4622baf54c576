package stream

import (
	"errors"
	"fmt"
)

// Errors are the errors that the application sees. Package quic sets them
// once, so that this package needs not know its types.
type Errors struct {
	// Closed is returned by a write after Close, and is the cause of the
	// stream's context then.
	Closed error
	// WouldBlock is returned by TryWriteAll.
	WouldBlock error
	// Reset makes the error of a stream that was reset, by the peer
	// (RESET_STREAM, STOP_SENDING) if remote, else by Cancel.
	Reset func(id int64, code uint64, remote bool) error
}

var errs = Errors{
	Closed:     errors.New("stream: write on closed stream"),
	WouldBlock: errors.New("stream: write would block"),
	Reset: func(id int64, code uint64, remote bool) error {
		who := "locally"
		if remote {
			who = "by the peer"
		}
		return fmt.Errorf("stream %d was reset %s with code %d", id, who, code)
	},
}

// SetErrors replaces the errors that are set in e. Call it before the first
// stream is made (from an init function).
func SetErrors(e Errors) {
	if e.Closed != nil {
		errs.Closed = e.Closed
	}
	if e.WouldBlock != nil {
		errs.WouldBlock = e.WouldBlock
	}
	if e.Reset != nil {
		errs.Reset = e.Reset
	}
}
