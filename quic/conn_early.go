package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// ticketPrefix begins what we add to a session: the transport parameters that 0-RTT
// depends on (RFC 9000 §7.4.1). At the server they go into the ticket, at the client
// into its ClientSessionCache.
var ticketPrefix = []byte("volley 0-RTT 1:")

// early is a connection's 0-RTT (RFC 9001 §4.6).
type early struct {
	// client
	ready      chan struct{}         // closed when 0-RTT data may be sent
	remembered *wire.TransportParams // of the session before; nil: no 0-RTT
	offered    bool
	rejected   bool

	// server
	opener  *protect.Opener
	expires time.Time // when the opener is of no use any more; zero: not yet known
}

// sessionHooks has crypto/tls show us sessions: what it stores, and what it takes up.
func (c *Conn) sessionHooks() {
	if !c.isClient {
		c.tls.SetSessionHooks(func(s *tls.SessionState) {
			s.EarlyData = s.EarlyData && c.config.Allow0RTT && c.mayResume(findTicket(s.Extra))
		}, nil)
		return
	}
	c.tls.SetSessionHooks(func(s *tls.SessionState) {
		p := findTicket(s.Extra)
		if s.EarlyData = s.EarlyData && c.early && p != nil; s.EarlyData {
			c.zeroRTT.remembered = p
		}
	}, func(s *tls.SessionState) {
		if s.EarlyData {
			c.mu.Lock()
			s.Extra = append(s.Extra, makeTicket(c.params))
			c.mu.Unlock()
		}
	})
}

// makeTicket encodes what of the server's parameters is to be remembered.
func makeTicket(p *wire.TransportParams) []byte {
	q := wire.TransportParams{
		OriginalDst:                    []byte{}, // required of a server's parameters
		InitialSrc:                     []byte{},
		MaxIdleTimeout:                 p.MaxIdleTimeout,
		MaxUDPPayload:                  p.MaxUDPPayload,
		InitialMaxData:                 p.InitialMaxData,
		InitialMaxStreamDataBidiLocal:  p.InitialMaxStreamDataBidiLocal,
		InitialMaxStreamDataBidiRemote: p.InitialMaxStreamDataBidiRemote,
		InitialMaxStreamDataUni:        p.InitialMaxStreamDataUni,
		InitialMaxStreamsBidi:          p.InitialMaxStreamsBidi,
		InitialMaxStreamsUni:           p.InitialMaxStreamsUni,
		ActiveConnIDLimit:              p.ActiveConnIDLimit,
		AckDelayExponent:               wire.DefaultAckDelayExponent, // never remembered
		MaxAckDelay:                    wire.DefaultMaxAckDelay,
		DisableActiveMigration:         p.DisableActiveMigration,
		MaxDatagramFrame:               p.MaxDatagramFrame,
		ResetStreamAt:                  p.ResetStreamAt,
	}
	return q.Append(bytes.Clone(ticketPrefix))
}

func findTicket(extra [][]byte) *wire.TransportParams {
	for _, b := range extra {
		if rest, ok := bytes.CutPrefix(b, ticketPrefix); ok {
			if p, err := wire.ParseTransportParams(rest, true); err == nil {
				return p
			}
		}
	}
	return nil
}

// mayResume reports whether a client that remembers p may send 0-RTT data: nothing that
// it relies on has become less (RFC 9000 §7.4.1).
func (c *Conn) mayResume(p *wire.TransportParams) bool {
	return p != nil && !reduced(p, c.ownParams())
}

// reduced reports whether a limit of now is below what before promised.
func reduced(before, now *wire.TransportParams) bool {
	return now.InitialMaxData < before.InitialMaxData ||
		now.InitialMaxStreamDataBidiLocal < before.InitialMaxStreamDataBidiLocal ||
		now.InitialMaxStreamDataBidiRemote < before.InitialMaxStreamDataBidiRemote ||
		now.InitialMaxStreamDataUni < before.InitialMaxStreamDataUni ||
		now.InitialMaxStreamsBidi < before.InitialMaxStreamsBidi ||
		now.InitialMaxStreamsUni < before.InitialMaxStreamsUni ||
		now.ActiveConnIDLimit < before.ActiveConnIDLimit ||
		now.MaxDatagramFrame < before.MaxDatagramFrame ||
		before.ResetStreamAt && !now.ResetStreamAt
}

// startEarly lets a client send 0-RTT data, within the limits it remembers. The mutex is
// held.
func (c *Conn) startEarly(suite uint16, secret []byte) error {
	sealer, err := protect.NewSealer(suite, secret, uint32(c.version))
	if err != nil {
		return err
	}
	z := &c.zeroRTT
	z.offered = true
	if c.qlog != nil {
		c.qlog.restored(z.remembered)
	}
	c.useParams(z.remembered)
	c.mtu.setPeerLimit(z.remembered)
	c.snd.StartEarly(sealer, uint32(c.version), c.ids.dst(), connIDBytes(&c.ids.local[0].id))
	close(z.ready)
	return nil
}

// rejectEarly takes back what was sent as 0-RTT: the server has not looked at it, and the
// streams are no more (RFC 9001 §4.6.2). The mutex is held.
func (c *Conn) rejectEarly() {
	z := &c.zeroRTT
	if !z.offered || z.rejected {
		return
	}
	z.rejected = true
	if c.qlog != nil {
		c.qlog.discarded0RTT()
	}
	c.streams.closeAll(Err0RTTRejected)
	c.streams.forget()
	c.control = controlQueue{}
	c.snd.StopEarly()
	c.flow.init(c.config)
	// The server has no keys for these packets, so it cannot acknowledge them.
	if last := c.rec.NextPN(recovery.App) - 1; last >= 0 {
		c.rec.OnUnsent(recovery.App, 0, last)
	}
}

// earlyParams compares the server's parameters with those it was remembered for.
func (c *Conn) checkEarlyParams(p *wire.TransportParams) error {
	if z := &c.zeroRTT; z.offered && !z.rejected && reduced(z.remembered, p) {
		return violation(0, "transport parameters are below those that 0-RTT data relied on") // RFC 9000 §7.4.1
	}
	return nil
}

// NextConnection waits for the handshake and makes the connection usable again after the
// server rejected its 0-RTT data, which calls told by [Err0RTTRejected]. What was sent is
// lost; streams are opened anew. It returns the connection itself.
func (c *Conn) NextConnection(ctx context.Context) (*Conn, error) {
	select {
	case <-c.handshakeDone:
	case <-c.ctx.Done():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := context.Cause(c.ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams.closeErr == Err0RTTRejected {
		c.streams.closeErr = nil
	}
	return c, nil
}
