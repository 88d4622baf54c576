package quic

import (
	"crypto/tls"
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// activeConnIDLimit is how many of the peer's connection IDs we keep.
const activeConnIDLimit = 4

// setInitialKeys derives the keys of Initial packets from the client's Destination
// Connection ID (RFC 9001 §5.2).
func (c *Conn) setInitialKeys(dst ConnectionID) error {
	client, server := protect.InitialSecrets(uint32(c.version), connIDBytes(&dst))
	read, write := server, client
	if !c.isClient {
		read, write = client, server
	}
	s := c.spaces[recovery.Initial]
	var err error
	if s.opener, err = protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, read, uint32(c.version)); err != nil {
		return err
	}
	s.sealer, err = protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, write, uint32(c.version))
	if c.qlog != nil {
		c.qlog.newKeys(levelInitial, true)
		c.qlog.newKeys(levelInitial, false)
	}
	return err
}

// newTLS prepares the handshake, with our transport parameters in it.
func (c *Conn) newTLS(conf *tls.Config) *handshake.TLS {
	p := c.ownParams()
	if !c.isClient {
		p.OriginalDst = connIDBytes(&c.origDst)
		if c.retry != nil {
			p.RetrySrc = connIDBytes(c.retry)
		}
		token := c.transport.resetTokenFor(c.ids.local[0].id)
		p.StatelessResetToken = &token
		p.PreferredAddress = c.offerPreferred()
	}
	if c.qlog != nil {
		c.qlog.parameters(p, true)
	}
	if c.isClient {
		return handshake.NewClient(conf, p.Append(nil))
	}
	return handshake.NewServer(conf, p.Append(nil))
}

// ownParams are our transport parameters, those that only a server has excepted.
func (c *Conn) ownParams() *wire.TransportParams {
	cf := c.config
	datagrams := int64(0)
	if cf.EnableDatagrams {
		datagrams = maxDatagramFrame
	}
	p := &wire.TransportParams{
		InitialSrc:                     connIDBytes(&c.ids.local[0].id),
		MaxIdleTimeout:                 cf.MaxIdleTimeout,
		MaxUDPPayload:                  maxPacketSize,
		InitialMaxData:                 int64(cf.InitialConnectionReceiveWindow),
		InitialMaxStreamDataBidiLocal:  int64(cf.InitialStreamReceiveWindow),
		InitialMaxStreamDataBidiRemote: int64(cf.InitialStreamReceiveWindow),
		InitialMaxStreamDataUni:        int64(cf.InitialStreamReceiveWindow),
		InitialMaxStreamsBidi:          cf.MaxIncomingStreams,
		InitialMaxStreamsUni:           cf.MaxIncomingUniStreams,
		AckDelayExponent:               ackDelayExponent,
		MaxAckDelay:                    maxAckDelay,
		ActiveConnIDLimit:              activeConnIDLimit,
		MaxDatagramFrame:               datagrams,
		ResetStreamAt:                  cf.EnableStreamResetPartialDelivery,
		GreaseQUICBit:                  c.greases,
	}
	if c.obeysAsks {
		d := minAckDelay
		p.MinAckDelay = &d
	}
	return p
}

// startTLS begins the handshake.
func (c *Conn) startTLS() error {
	c.tls.SetAddrs(c.LocalAddr(), c.RemoteAddr())
	evs, err := c.tls.Start(c.ctx)
	if err != nil {
		return err
	}
	return c.onTLS(evs)
}

// driveTLS hands the handshake bytes that are in order to crypto/tls, which may run
// callbacks of the application: no lock is held.
func (c *Conn) driveTLS() {
	for {
		if c.tls == nil {
			// TLS had nothing to hear any more (RFC 9001 §6: a KeyUpdate message is as
			// unexpected as any other).
			c.fail(&wire.Error{Code: wire.CryptoError(10), FrameType: wire.FrameCrypto, Reason: "handshake message after the handshake"})
			return
		}
		level := c.tls.ReadLevel()
		c.mu.Lock()
		var p []byte
		var left bool
		if c.phase == phaseOpen {
			p = c.spaces[spaceOfLevel(level)].recv.pop()
			for sp := range spaceOfLevel(level) {
				left = left || c.spaces[sp] != nil && len(c.spaces[sp].recv.got) > 0
			}
		}
		c.mu.Unlock()
		if left {
			c.fail(violation(wire.FrameCrypto, "handshake data at an encryption level that is done with")) // RFC 9001 §4.1.3
			return
		}
		if p == nil {
			return
		}
		complete := c.complete
		evs, err := c.tls.HandleData(level, p)
		if err == nil {
			err = c.onTLS(evs)
		}
		if err == nil && !c.isClient && c.complete && !complete {
			err = c.sendTicket()
			if len(c.spaces[recovery.App].recv.got) == 0 {
				// A client that keeps to the rules sends TLS nothing more, and what
				// crypto/tls keeps is a good part of an idle connection.
				c.tls.Close()
				c.tls = nil
				return
			}
		}
		if err != nil {
			// Alerts that TLS wrote go along with the close, not before it.
			c.fail(err)
			return
		}
	}
}

func spaceOfLevel(l tls.QUICEncryptionLevel) recovery.Space {
	switch l {
	case tls.QUICEncryptionLevelInitial:
		return recovery.Initial
	case tls.QUICEncryptionLevelHandshake:
		return recovery.Handshake
	}
	return recovery.App
}

// onTLS acts on what a step of the handshake produced.
func (c *Conn) onTLS(evs []handshake.Event) error {
	newKeys := false
	if !c.tlsComplete() {
		// Connections may be used before the handshake is complete, and are asked then
		// what protocol they speak.
		state := c.tls.ConnectionState()
		c.mu.Lock()
		c.tlsState = state
		c.mu.Unlock()
	}
	for _, ev := range evs {
		if ev.Kind == handshake.EarlyRejected {
			// It comes behind the transport parameters, which mean another thing then.
			c.mu.Lock()
			c.rejectEarly()
			c.mu.Unlock()
		}
	}
	for _, ev := range evs {
		if err := c.onTLSEvent(ev, &newKeys); err != nil {
			return err
		}
	}
	if newKeys {
		c.replay()
	}
	return nil
}

// sendTicket gives the client a ticket for its next connection, with what 0-RTT data may
// then rely on.
func (c *Conn) sendTicket() error {
	opts := tls.QUICSessionTicketOptions{EarlyData: c.config.Allow0RTT}
	if opts.EarlyData {
		opts.Extra = [][]byte{makeTicket(c.ownParams())}
	}
	evs, err := c.tls.SendSessionTicket(opts)
	if err != nil {
		return err
	}
	return c.onTLS(evs)
}

func (c *Conn) onTLSEvent(ev handshake.Event, newKeys *bool) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phaseOpen {
		return nil
	}
	now := time.Now()
	sp := spaceOfLevel(ev.Level)
	s := c.spaces[sp]
	if c.qlog != nil {
		c.qlog.tlsEvent(ev)
	}
	switch ev.Kind {
	case handshake.WriteData:
		s.send.write(ev.Data)
		if sp == recovery.App {
			c.control.crypto = true
		}
	case handshake.ReadSecret:
		*newKeys = true
		if ev.Level == tls.QUICEncryptionLevelEarly {
			c.zeroRTT.opener, err = protect.NewOpener(ev.Suite, ev.Secret, uint32(c.version))
			return err
		}
		if sp != recovery.App {
			s.opener, err = protect.NewOpener(ev.Suite, ev.Secret, uint32(c.version))
			return err
		}
		c.make1RTT(ev.Suite)
		return c.oneRTT.SetReadSecret(ev.Secret)
	case handshake.WriteSecret:
		if ev.Level == tls.QUICEncryptionLevelEarly {
			return c.startEarly(ev.Suite, ev.Secret)
		}
		if sp != recovery.App {
			c.rec.SetHandshakeKeys(true)
			s.sealer, err = protect.NewSealer(ev.Suite, ev.Secret, uint32(c.version))
			return err
		}
		c.make1RTT(ev.Suite)
		if err := c.oneRTT.SetWriteSecret(ev.Secret); err != nil {
			return err
		}
		c.snd.Start(c.oneRTT, c.ids.dst())
		if c.early && !c.isClient {
			c.becomeReady()
		}
	case handshake.PeerParams:
		return c.onParams(ev.Data)
	case handshake.HandshakeDone:
		return c.onHandshakeDone(now)
	}
	return nil
}

func (c *Conn) make1RTT(suite uint16) {
	if c.oneRTT == nil {
		c.oneRTT = protect.NewOneRTT(suite, uint32(c.version))
	}
}

// onParams takes in the peer's transport parameters. The connection IDs in them
// authenticate those of the packets (RFC 9000 §7.3).
func (c *Conn) onParams(b []byte) error {
	p, err := wire.ParseTransportParams(b, c.isClient)
	if err != nil {
		return err
	}
	if c.qlog != nil {
		c.qlog.parameters(p, false)
	}
	bad := func(reason string) error {
		return &wire.Error{Code: wire.TransportParameterError, Reason: reason}
	}
	if p.InitialSrc == nil || string(p.InitialSrc) != string(c.ids.dst()) {
		return bad("initial_source_connection_id does not match")
	}
	if c.isClient {
		if p.OriginalDst == nil || string(p.OriginalDst) != string(connIDBytes(&c.origDst)) {
			return bad("original_destination_connection_id does not match")
		}
		if (c.retry == nil) != (p.RetrySrc == nil) || c.retry != nil && string(p.RetrySrc) != string(connIDBytes(c.retry)) {
			return bad("retry_source_connection_id does not match")
		}
		if p.StatelessResetToken != nil {
			c.ids.setResetToken(0, *p.StatelessResetToken, c)
		}
		if a := p.PreferredAddress; a != nil {
			// Its ID counts, whether or not it is used (RFC 9000 §5.1.1).
			c.ids.remote = append(c.ids.remote, remoteID{seq: 1, id: ConnectionIDFromBytes(a.ConnID), token: a.ResetToken, hasToken: true})
		}
	}
	if err := c.checkEarlyParams(p); err != nil {
		return err
	}
	c.rec.SetMaxAckDelay(p.MaxAckDelay)
	c.asking.start(p)
	c.snd.SetImmediateAck(c.asking.on, false)
	c.setGrease(p.GreaseQUICBit)
	c.useParams(p)
	c.mtu.setPeerLimit(p)
	return nil
}

// useParams keeps to the peer's limits: those it sent, or those remembered for 0-RTT.
func (c *Conn) useParams(p *wire.TransportParams) {
	c.params = p
	c.snd.SetCredit(p.InitialMaxData)
	c.streams.setParams(p)
}

// onHandshakeDone notes that TLS has finished (RFC 9001 §4.1.1).
func (c *Conn) onHandshakeDone(now time.Time) error {
	if c.params == nil {
		return &wire.Error{Code: wire.CryptoError(109), Reason: "no transport parameters"} // missing_extension, RFC 9001 §8.2
	}
	c.complete = true
	c.tlsState = c.tls.ConnectionState()
	if c.qlog != nil {
		c.qlog.record(qlog.ALPNInformation{ChosenALPN: c.tlsState.NegotiatedProtocol})
		c.qlog.state(qlog.ConnectionStateHandshakeComplete)
	}
	c.idleFrom, c.lastReceived = now, now
	if !c.isClient {
		// The server's handshake is confirmed at once, and HANDSHAKE_DONE tells the
		// client (RFC 9001 §4.1.2).
		c.confirm(now)
		c.control.add(frameHandshakeDone, 0)
		c.control.add(frameNewToken, 0)
		c.becomeReady()
	}
	c.issueConnIDs()
	c.streams.serveAll()
	close(c.handshakeDone)
	if !c.isClient {
		c.zeroRTT.expires = now.Add(3 * c.rec.PTO(recovery.App)) // RFC 9001 §4.9.3
	}
	return nil
}

// becomeReady tells the listener that the connection may be accepted.
func (c *Conn) becomeReady() {
	if f := c.readyFunc; f != nil {
		c.readyFunc = nil
		(*monitor)(c).After(func() { f(c) })
	}
}

// confirm notes that the handshake is confirmed: Handshake keys have served
// (RFC 9001 §4.9.2).
func (c *Conn) confirm(now time.Time) {
	if c.confirmed {
		return
	}
	c.confirmed = true
	c.letCallersRead()
	c.discard(recovery.Initial, now)
	c.discard(recovery.Handshake, now)
	if c.qlog != nil {
		c.qlog.state(qlog.ConnectionStateHandshakeConfirmed)
	}
	c.rec.SetHandshakeConfirmed()
	c.oneRTT.SetHandshakeConfirmed()
	c.mtu.start(now)
	c.tryPreferred(now)
	if !c.isClient {
		// Not at once: an Initial that was repeated, and took a longer way, would begin
		// another connection.
		c.lingerID(c.keyID)
	}
}

// storeToken keeps an address validation token for the next connection to the same
// server (RFC 9000 §8.1.3).
func (c *Conn) storeToken(token []byte) {
	if c.config.TokenStore == nil {
		return
	}
	t := &ClientToken{data: append([]byte(nil), token...)}
	if c.params != nil && c.params.GreaseQUICBit {
		t.greaseUntil = time.Now().Add(greaseMemory)
	}
	key := c.tokenKey
	store := c.config.TokenStore
	(*monitor)(c).After(func() { store.Put(key, t) })
}
