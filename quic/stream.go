package quic

import "time"

// A Stream is a bidirectional stream: what [SendStream] and [ReceiveStream] have, each
// side with its own end.
type Stream struct {
	*SendStream
	*ReceiveStream
}

// StreamID returns the stream's ID.
func (s *Stream) StreamID() StreamID { return s.SendStream.StreamID() }

// SetDeadline sets the deadlines of reads and writes.
func (s *Stream) SetDeadline(t time.Time) error {
	s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}
