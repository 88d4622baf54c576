package quic

import (
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset): what it means for a stream is in
// package stream.

func (c *Conn) onResetStreamAt(f wire.ResetStreamAt) error {
	if !c.config.EnableStreamResetPartialDelivery {
		return notNegotiated(f)
	}
	r, err := c.streams.receiver(f.ID, wire.FrameResetStreamAt)
	if r == nil || err != nil {
		return err
	}
	n, err := r.recv.ResetAt(f.Code, f.FinalSize, f.ReliableSize)
	if err != nil {
		return err
	}
	return c.flow.received(n)
}

// appendResetAt is appendFrame for a RESET_STREAM_AT. Its reliable size is on record: the
// peer may acknowledge it after it has been lowered.
func (c *Conn) appendResetAt(f *sender.Flight, q recovery.Frame, s *stream.Send, fr wire.ResetStreamAt) bool {
	b := f.Tail(fr.Len())
	if b == nil {
		return false
	}
	q.A = fr.ReliableSize
	f.Wrote(len(fr.Append(b)), true, q)
	s.ResetSent()
	return true
}
