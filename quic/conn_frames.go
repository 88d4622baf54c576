package quic

import (
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/stream"
)

// frames acts on the frames of one packet, with the mutex held. mem is where the packet
// lies, if streams may keep data there, else nil. It reports whether
// the packet is ack-eliciting. The error closes the connection.
func (c *Conn) frames(b []byte, pt wire.PacketType, now time.Time, mem stream.Memory) (eliciting bool, err error) {
	if len(b) == 0 {
		// RFC 9000 §12.4: a packet without frames is a PROTOCOL_VIOLATION.
		return false, &wire.Error{Code: wire.ProtocolViolation, Reason: "packet without frames"}
	}
	sp := spaceOf(pt)
	for len(b) > 0 {
		var n int
		switch t := uint64(b[0]); {
		case t == wire.FramePadding:
			n = 1
			for n < len(b) && b[n] == 0 {
				n++
			}
			b = b[n:]
			continue
		case t >= wire.FrameStream && t < wire.FrameStream+8 && (pt == wire.OneRTT || pt == wire.ZeroRTT):
			var f wire.Stream
			if f, n, err = wire.ParseStream(b); err == nil {
				err = c.onStream(&f, mem)
			}
			eliciting = true
		case (t == wire.FrameAck || t == wire.FrameAckECN) && pt != wire.ZeroRTT:
			var f wire.Ack
			if f, n, err = wire.ParseAck(b, c.ackIn); err == nil {
				c.ackIn = f.Ranges
				err = c.onAck(sp, &f, now)
			}
		// Credit comes all the time where a stream is long, and so do connection IDs. By way
		// of an interface, as the other frames, each would be an allocation.
		case t == wire.FrameMaxData && (pt == wire.OneRTT || pt == wire.ZeroRTT):
			var f wire.MaxData
			if f, n, err = wire.ParseMaxData(b); err == nil {
				c.onMaxData(f)
			}
			eliciting = true
		case t == wire.FrameMaxStreamData && (pt == wire.OneRTT || pt == wire.ZeroRTT):
			var f wire.MaxStreamData
			if f, n, err = wire.ParseMaxStreamData(b); err == nil {
				err = c.onMaxStreamData(f)
			}
			eliciting = true
		case t == wire.FrameNewConnectionID && (pt == wire.OneRTT || pt == wire.ZeroRTT):
			var f wire.NewConnectionID
			if f, n, err = wire.ParseNewConnectionID(b); err == nil {
				err = c.onNewConnectionID(f)
			}
			eliciting = true
		default:
			var typ uint64
			if typ, _, err = wire.FrameType(b); err != nil {
				break
			}
			if err = wire.CheckFrameType(typ, pt); err != nil {
				break
			}
			var f wire.Frame
			if f, n, err = wire.ParseFrame(b); err != nil {
				break
			}
			eliciting = eliciting || wire.IsAckEliciting(typ)
			err = c.onFrame(sp, f, now)
		}
		if err != nil || c.phase != phaseOpen {
			return eliciting, err
		}
		b = b[n:]
	}
	return eliciting, nil
}

func spaceOf(pt wire.PacketType) recovery.Space {
	switch pt {
	case wire.Initial:
		return recovery.Initial
	case wire.Handshake:
		return recovery.Handshake
	}
	return recovery.App
}

// onAck takes in an ACK frame.
func (c *Conn) onAck(sp recovery.Space, f *wire.Ack, now time.Time) error {
	exponent := wire.DefaultAckDelayExponent
	if sp == recovery.App && c.params != nil {
		exponent = c.params.AckDelayExponent
	}
	delay := ackDelay(f.Delay, exponent)
	inFlight := c.rec.BytesInFlight()
	if _, err := c.rec.OnAck(sp, f, delay, now); err != nil {
		return err
	}
	switch sp {
	case recovery.Handshake:
		if c.isClient {
			c.rec.SetPeerAddressValidated() // RFC 9002 §6.2.2.1
		}
	case recovery.App:
		c.mtu.ptos = 0
		c.rec.SetPeerAddressValidated()
		c.thinAcks(inFlight, f.Largest())
		return c.oneRTT.Acked(f.Largest())
	}
	return nil
}

// onFrame takes in one of the frames that come seldom.
func (c *Conn) onFrame(sp recovery.Space, f wire.Frame, now time.Time) error {
	switch f := f.(type) {
	case wire.Ping, wire.Padding:
	case wire.Crypto:
		return c.spaces[sp].recv.push(f)
	case wire.NewToken:
		if !c.isClient {
			return violation(wire.FrameNewToken, "NEW_TOKEN from a client") // RFC 9000 §19.7
		}
		c.storeToken(f.Token)
	case wire.HandshakeDone:
		if !c.isClient {
			return violation(wire.FrameHandshakeDone, "HANDSHAKE_DONE from a client") // RFC 9000 §19.20
		}
		c.confirm(now)
	case wire.ResetStream:
		return c.onResetStream(f)
	case wire.ResetStreamAt:
		return c.onResetStreamAt(f)
	case wire.StopSending:
		return c.onStopSending(f)
	case wire.MaxStreams:
		c.streams.setLimit(f.Uni, f.Max)
	case wire.StreamsBlocked:
		// The peer may have opened streams that it has not used, and wait for those that
		// have ended meanwhile.
		c.streams.giveBack(kindOf(f.Uni))
	case wire.DataBlocked:
		// Credit is given as the application reads, not on demand.
	case wire.StreamDataBlocked:
		_, err := c.streams.receiver(f.ID, wire.FrameStreamDataBlocked)
		return err
	case wire.RetireConnectionID:
		return c.onRetireConnectionID(f)
	case wire.PathChallenge:
		c.onPathChallenge(f.Data, now)
	case wire.PathResponse:
		c.onPathResponse(f.Data, now)
	case wire.Datagram:
		return c.onDatagram(f)
	case wire.ConnectionClose:
		c.onClose(f, now)
	case wire.AckFrequency:
		return c.onAckFrequency(f)
	case wire.ImmediateAck:
		return c.onImmediateAck(f)
	default:
		return notNegotiated(f)
	}
	return nil
}

// notNegotiated is the error of a frame of an extension that we did not offer.
func notNegotiated(f wire.Frame) error {
	return &wire.Error{Code: wire.FrameEncodingError, Reason: "frame of an extension that was not negotiated: " + f.String()}
}

func violation(frame uint64, reason string) error {
	return &wire.Error{Code: wire.ProtocolViolation, FrameType: frame, Reason: reason}
}

// onStream takes in a STREAM frame.
func (c *Conn) onStream(f *wire.Stream, mem stream.Memory) error {
	r, err := c.streams.receiver(f.ID, wire.FrameStream)
	if r == nil || err != nil {
		return err
	}
	n, err := r.recv.PushHeld(f.Off, f.Data, f.Fin, mem)
	if err != nil {
		return err
	}
	return c.flow.received(n)
}

func (c *Conn) onResetStream(f wire.ResetStream) error {
	r, err := c.streams.receiver(f.ID, wire.FrameResetStream)
	if r == nil || err != nil {
		return err
	}
	n, err := r.recv.Reset(f.Code, f.FinalSize)
	if err != nil {
		return err
	}
	return c.flow.received(n)
}

func (c *Conn) onStopSending(f wire.StopSending) error {
	s, err := c.streams.sender(f.ID, wire.FrameStopSending)
	if s == nil || err != nil {
		return err
	}
	s.send.StopSending(f.Code)
	return nil
}

func (c *Conn) onMaxData(f wire.MaxData) {
	if c.snd.SetCredit(f.Max) {
		c.snd.WakeAskers()
	}
}

func (c *Conn) onMaxStreamData(f wire.MaxStreamData) error {
	s, err := c.streams.sender(f.ID, wire.FrameMaxStreamData)
	if s == nil || err != nil {
		return err
	}
	if s.send.SetCredit(f.Max) {
		s.st.CreditRose()
	}
	return nil
}
