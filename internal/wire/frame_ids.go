package wire

import "fmt"

// NewConnectionID is a NEW_CONNECTION_ID frame (RFC 9000 §19.15).
type NewConnectionID struct {
	Seq           int64
	RetirePriorTo int64  // at most Seq
	ID            []byte // 1 to 20 bytes
	ResetToken    [16]byte
}

// ParseNewConnectionID reads a NEW_CONNECTION_ID frame. ID aliases b.
func ParseNewConnectionID(b []byte) (NewConnectionID, int, error) {
	c := body(b, FrameNewConnectionID)
	f := NewConnectionID{Seq: c.int63(), RetirePriorTo: c.int63()}
	idLen := c.byte()
	f.ID = c.bytes(uint64(idLen))
	copy(f.ResetToken[:], c.bytes(uint64(len(f.ResetToken))))
	n, err := c.end(FrameNewConnectionID)
	if err == nil && (idLen < 1 || idLen > MaxConnIDLen) {
		return NewConnectionID{}, 0, encodingError(FrameNewConnectionID, "connection ID length out of range")
	}
	if err == nil && f.RetirePriorTo > f.Seq {
		return NewConnectionID{}, 0, encodingError(FrameNewConnectionID, "retires a connection ID newer than its own")
	}
	return f, n, err
}

// Append appends the frame.
func (f NewConnectionID) Append(b []byte) []byte {
	b = append(b, byte(FrameNewConnectionID))
	b = appendInt(b, f.Seq)
	b = appendInt(b, f.RetirePriorTo)
	b = append(b, byte(len(f.ID)))
	b = append(b, f.ID...)
	return append(b, f.ResetToken[:]...)
}

// Len is the frame's length in bytes.
func (f NewConnectionID) Len() int {
	return 1 + varintLen(f.Seq) + varintLen(f.RetirePriorTo) + 1 + len(f.ID) + len(f.ResetToken)
}

// String leaves the reset token out: whoever knows it can end the connection.
func (f NewConnectionID) String() string {
	return fmt.Sprintf("NEW_CONNECTION_ID{seq %d, retire prior to %d, id %x}", f.Seq, f.RetirePriorTo, f.ID)
}

// RetireConnectionID is a RETIRE_CONNECTION_ID frame (RFC 9000 §19.16).
type RetireConnectionID struct{ Seq int64 }

// ParseRetireConnectionID reads a RETIRE_CONNECTION_ID frame.
func ParseRetireConnectionID(b []byte) (RetireConnectionID, int, error) {
	c := body(b, FrameRetireConnectionID)
	f := RetireConnectionID{Seq: c.int63()}
	n, err := c.end(FrameRetireConnectionID)
	return f, n, err
}

// Append appends the frame.
func (f RetireConnectionID) Append(b []byte) []byte {
	return appendInt(append(b, byte(FrameRetireConnectionID)), f.Seq)
}

// Len is the frame's length in bytes.
func (f RetireConnectionID) Len() int { return 1 + varintLen(f.Seq) }

func (f RetireConnectionID) String() string {
	return fmt.Sprintf("RETIRE_CONNECTION_ID{seq %d}", f.Seq)
}
