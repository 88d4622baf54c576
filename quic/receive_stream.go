package quic

import (
	"time"

	"github.com/volley-quic/volley/stream"
)

// A ReceiveStream is the receiving side of a stream. Its methods may be called from
// several goroutines.
type ReceiveStream struct {
	conn   *Conn
	credit *streamCredit // nil: no release is required
	recv   stream.Recv
}

// StreamID returns the stream's ID.
func (s *ReceiveStream) StreamID() StreamID { return StreamID(s.recv.ID()) }

// Read reads what has arrived, in order, and waits if there is nothing. At the end of
// the stream it returns io.EOF, after CancelRead or if the peer cancelled a
// [StreamError]. What the peer has marked as reliable ([SendStream.SetReliableBoundary])
// comes before that.
func (s *ReceiveStream) Read(p []byte) (int, error) { return s.recv.Read(p) }

// Peek copies the next len(p) bytes without consuming them, and waits until they are
// there. If the stream ends before, it returns what there is and io.EOF, or the
// [StreamError] if the peer has cancelled it behind bytes that it has marked as reliable.
func (s *ReceiveStream) Peek(p []byte) (int, error) { return s.recv.Peek(p) }

// CancelRead tells the peer to stop (STOP_SENDING), unless it has cancelled the stream
// itself, and discards what arrives. Blocked and later reads fail with a [StreamError].
// After the end of the stream it does nothing.
func (s *ReceiveStream) CancelRead(code StreamErrorCode) { s.recv.Cancel(uint64(code)) }

// SetReadDeadline makes reads, also those under way, fail with os.ErrDeadlineExceeded
// from t on. The zero time means never.
func (s *ReceiveStream) SetReadDeadline(t time.Time) error {
	s.recv.SetDeadline(t)
	return nil
}

// SetReceiveFinalSizeCallback sets a function that is called when the stream's final
// size is known, from FIN or RESET_STREAM; at once if it is known already. It is not
// called if the connection ends before. nil removes it.
//
// Other than quic-go's, it runs in a goroutine of its own, not in the connection's.
func (s *ReceiveStream) SetReceiveFinalSizeCallback(f func(int64)) {
	s.recv.SetFinalSizeCallback(f)
}

// ReleaseStreamCredit lets the peer open a stream in place of this one once it is over,
// if Config.RequireStreamCreditRelease is set; otherwise, and for our own streams, it does
// nothing. It may come before or after the stream's end, and more than once.
func (s *ReceiveStream) ReleaseStreamCredit() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.credit != nil && s.credit.release() {
		s.conn.streams.uncount(s.recv.ID())
	}
}
