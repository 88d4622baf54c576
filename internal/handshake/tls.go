// Package handshake is the cryptographic handshake (RFC 9001 §4) on crypto/tls,
// and the tokens that validate addresses (RFC 9000 §8.1).
package handshake

import (
	"context"
	"crypto/tls"
	"net"
)

// Kind says what an [Event] is.
type Kind uint8

// The kinds of events, with the fields that each one has.
const (
	WriteData     Kind = 1 + iota // Level, Data: bytes for the CRYPTO stream of Level
	ReadSecret                    // Level, Suite, Secret: packets of Level can be opened
	WriteSecret                   // Level, Suite, Secret: packets of Level can be sealed
	PeerParams                    // Data: the peer's transport parameters, authentic only after HandshakeDone
	HandshakeDone                 // the handshake is complete (RFC 9001 §4.1.1)
	EarlyRejected                 // client: the server did not take 0-RTT (RFC 9001 §4.6.2)
)

// Event is something that a step of the handshake produced. Its slices belong to
// the receiver.
type Event struct {
	Kind   Kind
	Level  tls.QUICEncryptionLevel
	Suite  uint16 // TLS 1.3 cipher suite
	Secret []byte
	Data   []byte
}

// TLS is one end of a TLS 1.3 handshake. Its methods are for one goroutine, which
// holds no lock: crypto/tls runs callbacks of the application in them. A step
// returns the events in the order in which they are to be acted upon.
//
// The error of a step is fatal for the connection: a *wire.Error with the code to
// close with, CRYPTO_ERROR for a TLS alert (RFC 9001 §4.8), which wraps the error of
// crypto/tls or of the application's callback.
type TLS struct {
	conn     *tls.QUICConn
	isClient bool
	in       inbox
	tickets  int // session tickets received
	addrs    addrConn

	resume, store func(*tls.SessionState)
}

// NewClient prepares the client's end. conf is cloned; only TLS 1.3 is spoken.
// params are the encoded transport parameters.
func NewClient(conf *tls.Config, params []byte) *TLS {
	t := &TLS{isClient: true}
	t.conn = tls.QUICClient(&tls.QUICConfig{TLSConfig: clientConfig(conf), EnableSessionEvents: true})
	t.conn.SetTransportParameters(params)
	return t
}

// NewServer prepares the server's end. conf is cloned; only TLS 1.3 is spoken.
// params are the encoded transport parameters.
func NewServer(conf *tls.Config, params []byte) *TLS {
	t := &TLS{}
	t.conn = tls.QUICServer(&tls.QUICConfig{TLSConfig: t.serverConfig(conf), EnableSessionEvents: true})
	t.conn.SetTransportParameters(params)
	return t
}

// SetAddrs sets the addresses that the server's callbacks find in
// tls.ClientHelloInfo.Conn. Before Start.
func (t *TLS) SetAddrs(local, remote net.Addr) { t.addrs = addrConn{local: local, remote: remote} }

// SetSessionHooks installs two functions, either may be nil, that see sessions as
// they are taken up and, at the client, as they come in to be stored; they may
// change Extra and EarlyData. Without resume, no session uses 0-RTT. They run
// within Start and HandleData. Before Start.
func (t *TLS) SetSessionHooks(resume, store func(*tls.SessionState)) {
	t.resume, t.store = resume, store
}

// Start begins the handshake. A client gets its first bytes to send. ctx is the
// context of the application's callbacks; once it is done, steps fail.
func (t *TLS) Start(ctx context.Context) ([]Event, error) {
	if err := t.conn.Start(ctx); err != nil {
		return nil, alertError(err)
	}
	return t.events(nil)
}

// HandleData takes the next bytes of the CRYPTO stream of a level, in order and cut
// anywhere. What TLS expects at that time is ReadLevel; bytes of another level are
// a PROTOCOL_VIOLATION (RFC 9001 §4.1.3). data is not kept.
func (t *TLS) HandleData(level tls.QUICEncryptionLevel, data []byte) (evs []Event, err error) {
	// One message at a time, so that a change of keys is seen where it happens.
	for len(data) > 0 {
		if level != t.in.level {
			return evs, violation("handshake data at encryption level %v, while %v is read", level, t.in.level)
		}
		var msg []byte
		if msg, data, err = t.in.next(data); err != nil || msg == nil {
			return evs, err
		}
		skip, err := t.check(msg)
		if err != nil {
			return evs, err
		}
		if skip {
			continue
		}
		if err := t.conn.HandleData(level, msg); err != nil {
			return evs, alertError(err)
		}
		if evs, err = t.events(evs); err != nil {
			return evs, err
		}
	}
	return evs, nil
}

// ReadLevel is the level of the CRYPTO stream that HandleData takes next. Data of
// higher levels has to wait.
func (t *TLS) ReadLevel() tls.QUICEncryptionLevel { return t.in.level }

// SendSessionTicket makes a server's session ticket, once, after the handshake. It
// makes none if the configuration disables tickets.
func (t *TLS) SendSessionTicket(opts tls.QUICSessionTicketOptions) ([]Event, error) {
	if err := t.conn.SendSessionTicket(opts); err != nil {
		return nil, alertError(err)
	}
	return t.events(nil)
}

// ConnectionState is what crypto/tls knows of the connection.
func (t *TLS) ConnectionState() tls.ConnectionState { return t.conn.ConnectionState() }

// Close ends the handshake, if it still runs, and with it its goroutine. The error
// is the one that the handshake had come to, if any.
func (t *TLS) Close() error { return t.conn.Close() }

// events collects what crypto/tls has to tell.
func (t *TLS) events(evs []Event) ([]Event, error) {
	for {
		e := t.conn.NextEvent()
		switch e.Kind {
		case tls.QUICNoEvent:
			return evs, nil
		case tls.QUICErrorEvent:
			return evs, alertError(e.Err)
		case tls.QUICWriteData:
			// All data belongs to crypto/tls again at the next event, hence the copies.
			evs = append(evs, Event{Kind: WriteData, Level: e.Level, Data: clone(e.Data)})
		case tls.QUICSetReadSecret:
			t.in.level = e.Level // after 0-RTT comes Handshake, in the same step
			evs = append(evs, Event{Kind: ReadSecret, Level: e.Level, Suite: e.Suite, Secret: clone(e.Data)})
		case tls.QUICSetWriteSecret:
			evs = append(evs, Event{Kind: WriteSecret, Level: e.Level, Suite: e.Suite, Secret: clone(e.Data)})
		case tls.QUICTransportParameters:
			evs = append(evs, Event{Kind: PeerParams, Data: clone(e.Data)})
		case tls.QUICHandshakeDone:
			evs = append(evs, Event{Kind: HandshakeDone})
		case tls.QUICRejectedEarlyData:
			evs = append(evs, Event{Kind: EarlyRejected})
		case tls.QUICResumeSession:
			if t.resume != nil {
				t.resume(e.SessionState)
			} else {
				e.SessionState.EarlyData = false
			}
		case tls.QUICStoreSession:
			if t.store != nil {
				t.store(e.SessionState)
			}
			if err := t.conn.StoreSession(e.SessionState); err != nil {
				return evs, alertError(err)
			}
		}
	}
}

// clone is never nil, unlike bytes.Clone: empty transport parameters are there.
func clone(b []byte) []byte { return append([]byte{}, b...) }
