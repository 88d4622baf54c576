package quic

import (
	"errors"
	"net"
	"time"
	"unicode/utf8"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// closing is the end of a connection: immediate close, closing and draining
// (RFC 9000 §10.2).
type closing struct {
	frame   wire.ConnectionClose
	due     bool // the frame is to be sent, again
	sent    bool // it was, or need not be
	end     time.Time
	packets int // received since
	next    int // packets after which the frame is sent again
}

// received counts packets that arrive while closing. Each power of two is answered
// with the close once more: often enough for a peer that missed it, too seldom for
// an attack to gain anything (RFC 9000 §10.2.1).
func (cl *closing) received(n int) {
	cl.packets += n
	if cl.packets >= cl.next {
		cl.due = true
		cl.next = max(1, 2*cl.packets)
	}
}

// CloseWithError ends the connection. The peer's application gets code and desc in an
// [ApplicationError], and ours, from every call that is under way or follows, the same
// with Remote false. Data that was written and not delivered is lost: let the peer's
// application say that it has everything before.
//
// When it returns, the peer has been told. If the connection is over already, nothing
// happens. It never waits for a source of SendFrom or ReadFrom, and may be called from
// within one. The error is always nil.
func (c *Conn) CloseWithError(code ApplicationErrorCode, desc string) error {
	c.mu.Lock()
	c.close(&ApplicationError{ErrorCode: code, ErrorMessage: desc}, wire.ConnectionClose{
		App: true, Code: uint64(code), Reason: []byte(desc),
	})
	c.mu.Unlock()
	c.wakeUp()
	<-c.closeSent
	return nil
}

// refuse ends a server's connection that is not accepted (RFC 9000 §20.1).
func (c *Conn) refuse() {
	c.fail(&wire.Error{Code: wire.ConnectionRefused})
}

// fail ends the connection because of an error found on this side.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	c.failLocked(err)
	c.mu.Unlock()
}

// failLocked is fail with the mutex held.
func (c *Conn) failLocked(err error) {
	var w *wire.Error
	frame := wire.ConnectionClose{Code: uint64(wire.InternalError)}
	if errors.As(err, &w) {
		frame.Code, frame.FrameType, frame.Reason = uint64(w.Code), w.FrameType, []byte(w.Reason)
	}
	c.close(transportError(err), frame)
	c.wakeUp()
}

// maxCloseReason bounds the reason phrase: the frame must fit into the smallest packet.
const maxCloseReason = 512

// close begins the closing phase. The mutex is held.
func (c *Conn) close(err error, frame wire.ConnectionClose) {
	if c.phase != phaseOpen {
		return
	}
	if n := maxCloseReason; len(frame.Reason) > n {
		for n > maxCloseReason-utf8.UTFMax && !utf8.RuneStart(frame.Reason[n]) {
			n-- // it should stay UTF-8 (RFC 9000 §19.19)
		}
		frame.Reason = frame.Reason[:n]
	}
	c.phase = phaseClosing
	c.closing.frame = frame
	c.closing.due = true
	c.closing.next = 1
	c.closing.end = time.Now().Add(3 * c.rec.PTO(recovery.App)) // RFC 9000 §10.2
	c.over(err)
}

// abandon ends the connection without a word: the peer is gone, or must not be
// answered. The mutex is held.
func (c *Conn) abandon(err error) {
	if c.phase != phaseOpen {
		return
	}
	c.phase = phaseOver
	c.over(err)
	c.markCloseSent()
	c.wakeUp()
}

// destroy ends the connection at once, as the socket is gone.
func (c *Conn) destroy(err error) {
	c.mu.Lock()
	open := c.phase == phaseOpen
	c.phase = phaseOver
	if open {
		c.over(err)
	}
	c.markCloseSent()
	c.mu.Unlock()
	c.wakeUp()
}

// onClose takes in CONNECTION_CLOSE: the connection drains (RFC 9000 §10.2.2).
func (c *Conn) onClose(f wire.ConnectionClose, now time.Time) {
	var err error
	if f.App {
		err = &ApplicationError{Remote: true, ErrorCode: ApplicationErrorCode(f.Code), ErrorMessage: string(f.Reason)}
	} else {
		err = &TransportError{Remote: true, FrameType: f.FrameType, ErrorCode: TransportErrorCode(f.Code), ErrorMessage: string(f.Reason)}
	}
	c.drain(err, now)
}

// drain begins the draining phase. The mutex is held.
func (c *Conn) drain(err error, now time.Time) {
	if c.phase != phaseOpen {
		return
	}
	c.phase = phaseDraining
	c.closing.end = now.Add(3 * c.rec.PTO(recovery.App)) // RFC 9000 §10.2
	c.over(err)
	c.markCloseSent()
}

// over tells everybody that the connection is over. The mutex is held.
func (c *Conn) over(err error) {
	c.closeErr = err
	if c.qlog != nil {
		c.qlog.closed(err)
		if c.phase != phaseClosing {
			c.qlog.end() // before anybody hears that the connection is over: then the trace is complete
		}
	}
	c.snd.Stop()
	c.streams.closeAll(err)
	c.datagrams.over()
	c.cancel(err)
	if !c.complete {
		close(c.handshakeDone)
	}
	c.control = controlQueue{}
}

func (c *Conn) markCloseSent() {
	if !c.closing.sent {
		c.closing.sent = true
		if c.qlog != nil {
			c.qlog.end()
		}
		close(c.closeSent)
	}
}

// sendFailed looks at an error of the socket. Most are the network's, which may
// recover: what was not sent is as good as lost. The mutex is held.
func (c *Conn) sendFailed(err error) {
	if errors.Is(err, net.ErrClosed) && c.phase == phaseOpen {
		c.abandon(&errTransportClosed{err})
	}
}

// sendClose sends the CONNECTION_CLOSE that is due, in every space whose keys the
// peer may have (RFC 9000 §10.2.3).
func (c *Conn) sendClose(now time.Time) {
	c.mu.Lock()
	if c.phase != phaseClosing || !c.closing.due || c.awaiting.Load() {
		c.mu.Unlock()
		return
	}
	if !c.snd.MayClose() {
		// A flight is being sealed with the same key. Its sender wakes us.
		c.mu.Unlock()
		return
	}
	c.closing.due = false
	b, packets := c.closePackets()
	if limit := (*monitor)(c).AntiAmplification(); limit >= 0 && len(b) > limit {
		b, packets = nil, nil
	}
	if c.qlog != nil {
		for _, p := range packets {
			c.qlog.sent(qlog.PacketSent{}, b[p.start:p.end], p.pnOff+longPNLen, p.pn)
		}
	}
	c.bytesOut += len(b)
	c.stats.BytesSent += uint64(len(b))
	q := c.paths.active
	way := udp.Route{Remote: q.route.Remote, RemoteAddr: q.route.RemoteAddr, Local: q.route.Local}
	c.mu.Unlock()
	for _, p := range packets {
		p.sealer.Seal(b[p.start:p.end], p.pnOff, longPNLen, p.pn)
	}
	var err error
	if len(b) > 0 {
		_, err = q.transport.udpConn().Send(&way, b, len(b), udp.NotECT)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == udp.ErrBlocked {
		// Nobody else would tell the peer.
		c.closing.due = true
		c.awaitSocket(q.transport.udpConn())
		return
	}
	c.markCloseSent()
}

// closePackets makes one datagram with a CONNECTION_CLOSE for every space, and says what
// in it is to be sealed. The mutex is held; nobody else seals any more.
func (c *Conn) closePackets() (b []byte, packets []longPacket) {
	b = make([]byte, 0, minPacketSize+sealTag)
	src, dst := connIDBytes(&c.ids.local[0].id), c.ids.dst()
	for sp := recovery.Initial; sp <= recovery.App; sp++ {
		sealer, phase := c.closeKey(sp)
		if sealer == nil {
			continue
		}
		frame := c.closing.frame
		if sp != recovery.App && frame.App {
			// The peer is not authenticated yet: nothing of the application's is
			// told (RFC 9000 §10.2.3).
			frame = wire.ConnectionClose{Code: uint64(wire.ApplicationError)}
		}
		p := longPacket{sp: sp, start: len(b), pn: c.rec.NextPN(sp), sealer: sealer}
		switch sp {
		case recovery.App:
			b = wire.AppendShort(b, dst, p.pn, longPNLen, phase)
		case recovery.Handshake:
			b = wire.AppendLong(b, wire.Handshake, uint32(c.version), dst, src, nil, longPNLen+frame.Len()+sealTag, p.pn, longPNLen)
		default:
			var token []byte
			if c.isClient {
				token = c.token
			}
			b = wire.AppendLong(b, wire.Initial, uint32(c.version), dst, src, token, longPNLen+frame.Len()+sealTag, p.pn, longPNLen)
		}
		b[p.start] ^= c.greaseBit()
		p.pnOff = len(b) - p.start - longPNLen
		b = frame.Append(b)
		if sp == recovery.Initial && c.isClient {
			// RFC 9000 §14.1. The Length field has to follow.
			b = append(b, make([]byte, max(minPacketSize-sealTag-len(b), 0))...)
			n, at := len(b)+sealTag-p.start-p.pnOff, p.start+p.pnOff-2
			b[at], b[at+1] = 0x40|byte(n>>8), byte(n)
		}
		b = append(b, make([]byte, sealTag)...)
		p.end = len(b)
		packets = append(packets, p)
		t := c.rec.NewTrain()
		t.First, t.N = p.pn, 1
		t.Sizes[0] = uint16(p.end - p.start)
		c.rec.OnSent(sp, []*recovery.Train{t}, time.Now())
	}
	return b, packets
}

// closeKey is what seals the CONNECTION_CLOSE of a space; nil: it gets none. A server
// does not know which keys the client has, and sends it in every space that is left.
func (c *Conn) closeKey(sp recovery.Space) (sealer *protect.Sealer, phase bool) {
	if sp == recovery.App {
		if c.oneRTT == nil {
			return nil, false
		}
		return c.oneRTT.SealKey()
	}
	s := c.spaces[sp]
	if s == nil || sp == recovery.Initial && c.isClient && c.spaces[recovery.Handshake].sealer != nil {
		return nil, false // a client knows that the server has Handshake keys
	}
	return s.sealer, false
}

// watchForClose looks, while we close, for the peer's close: then there is nothing left
// to answer.
func (c *Conn) watchForClose(p *packet) {
	if c.oneRTT == nil || !c.tlsComplete() {
		return
	}
	pnOff := 1 + c.transport.connIDLen
	b := p.data[:min(p.segment, len(p.data))]
	if wire.IsLong(b[0]) || len(b) < pnOff+4+sealTag {
		return
	}
	_, payload, err := c.oneRTT.Open(b, pnOff, c.largest1RTT())
	if err != nil {
		return
	}
	for len(payload) > 0 {
		f, n, err := wire.ParseFrame(payload)
		if err != nil {
			return
		}
		if _, ok := f.(wire.ConnectionClose); ok {
			c.mu.Lock()
			c.phase = phaseDraining
			c.markCloseSent()
			c.mu.Unlock()
			return
		}
		payload = payload[n:]
	}
}
