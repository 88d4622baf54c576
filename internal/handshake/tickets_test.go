package handshake

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// message is a handshake message of a type and a length, with so much of a body.
func message(typ byte, n int, body []byte) []byte {
	return append([]byte{typ, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// ticket takes a session ticket from a server.
func ticket(t *testing.T, s *party) []byte {
	t.Helper()
	evs, err := s.SendSessionTicket(tls.QUICSessionTicketOptions{})
	if err != nil || len(evs) != 1 || evs[0].Kind != WriteData || evs[0].Level != app {
		t.Fatalf("SendSessionTicket: %v, %v", evs, err)
	}
	return evs[0].Data
}

// golang/go#62266: a ticket that comes in pieces. The next connection resumes, at
// another server with the same configuration.
func TestResumption(t *testing.T) {
	client, server := clientConf(), serverConf()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for _, piece := range []int{1 << 20, 60, 1} {
		c, s := connect(t, client, server)
		data := ticket(t, s)
		for i := 0; i < len(data); i += piece {
			c.add(c.HandleData(app, data[i:min(i+piece, len(data))]))
			if c.err != nil {
				t.Fatal(c.err)
			}
		}
		c, s = connect(t, client, server)
		if !c.ConnectionState().DidResume || !s.ConnectionState().DidResume {
			t.Errorf("not resumed, with a ticket in pieces of %d", piece)
		}
	}
}

func TestSessionHooks(t *testing.T) {
	client, server := clientConf(), serverConf()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	extra := []byte("remember")
	cl := NewClient(client, nil)
	cl.SetSessionHooks(nil, func(s *tls.SessionState) { s.Extra = append(s.Extra, extra) })
	c, s := start(t, cl, NewServer(server, nil))
	talk(c, s, 1<<20)
	mustBeDone(t, c, s)
	c.hand(app, ticket(t, s), 1<<20)

	var got [][]byte
	cl = NewClient(client, nil)
	cl.SetSessionHooks(func(s *tls.SessionState) { got = s.Extra }, nil)
	c, s = start(t, cl, NewServer(server, nil))
	talk(c, s, 1<<20)
	mustBeDone(t, c, s)
	if len(got) != 1 || !bytes.Equal(got[0], extra) {
		t.Errorf("the session came back with %q", got)
	}
}

// A server that allows 0-RTT, and a client that does not know of it, get on.
func TestEarlyDataIsDeclined(t *testing.T) {
	client, server := clientConf(), serverConf()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	c, s := connect(t, client, server)
	if err := s.conn.SendSessionTicket(tls.QUICSessionTicketOptions{EarlyData: true}); err != nil {
		t.Fatal(err)
	}
	s.add(s.TLS.events(nil))
	talk(c, s, 1<<20)
	c, s = connect(t, client, server)
	if !c.ConnectionState().DidResume {
		t.Error("not resumed")
	}
	for _, e := range append(c.events, s.events...) {
		if e.Level == tls.QUICEncryptionLevelEarly {
			t.Error("0-RTT keys that nobody asked for")
		}
	}
}

// With hooks at both ends that leave the session as it is, there is 0-RTT.
func TestEarlyData(t *testing.T) {
	early := func(client, server *tls.Config) (c, s *party) {
		cl, sv := NewClient(client, nil), NewServer(server, nil)
		cl.SetSessionHooks(func(*tls.SessionState) {}, nil)
		sv.SetSessionHooks(func(*tls.SessionState) {}, nil)
		c, s = start(t, cl, sv)
		talk(c, s, 100)
		mustBeDone(t, c, s)
		return c, s
	}
	client, server := clientConf(), serverConf()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	c, s := early(client, server)
	if err := s.conn.SendSessionTicket(tls.QUICSessionTicketOptions{EarlyData: true}); err != nil {
		t.Fatal(err)
	}
	s.add(s.TLS.events(nil))
	talk(c, s, 1<<20)

	c, s = early(client, server)
	w := c.first(WriteSecret, tls.QUICEncryptionLevelEarly)
	r := s.first(ReadSecret, tls.QUICEncryptionLevelEarly)
	if !bytes.Equal(w.Secret, r.Secret) {
		t.Errorf("0-RTT secrets %x and %x", w.Secret, r.Secret)
	}

	// A server that has forgotten refuses 0-RTT.
	c, _ = early(client, serverConf())
	c.first(EarlyRejected, 0)
}

func TestTicketsDisabled(t *testing.T) {
	server := serverConf()
	server.SessionTicketsDisabled = true
	_, s := connect(t, clientConf(), server)
	if evs, err := s.SendSessionTicket(tls.QUICSessionTicketOptions{}); len(evs) != 0 || err != nil {
		t.Errorf("%v, %v", evs, err)
	}
}

// A server may send tickets as long as it likes. crypto/tls ends the connection at
// the seventeenth.
func TestManyTickets(t *testing.T) {
	client := clientConf()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	c, s := connect(t, client, serverConf())
	data := ticket(t, s)
	for range 100 {
		c.hand(app, data, 40)
	}
	if c.err != nil {
		t.Fatal(c.err)
	}
}

// CVE-2023-39322: a message without end is refused at its header.
func TestEndlessMessage(t *testing.T) {
	c, s := connect(t, clientConf(), serverConf())
	_, err := c.HandleData(app, message(typeNewSessionTicket, 1<<24-1, nil))
	wantCode(t, err, wire.CryptoBufferExceeded)
	_, err = s.HandleData(app, message(typeNewSessionTicket, maxMessage+1, nil))
	wantCode(t, err, wire.CryptoBufferExceeded)

	c, s = startPair(t, clientConf(), serverConf())
	s.hand(initial, c.out[0].Data, 1<<20)
	c.hand(initial, s.out[0].Data, 1<<20)
	if _, err := c.HandleData(handshake, message(typeCertificate, maxCertificate, nil)); err != nil {
		t.Errorf("a large certificate: %v", err)
	}
	_, s = startPair(t, clientConf(), serverConf())
	_, err = s.HandleData(initial, message(typeCertificate, maxCertificate, nil))
	wantCode(t, err, wire.CryptoBufferExceeded)
}

func TestAfterTheHandshake(t *testing.T) {
	ticketWith := func(ext []byte) []byte {
		body := make([]byte, 4+4)
		body = append(body, 1, 0)           // nonce
		body = append(body, 0, 2, 'i', 'd') // ticket
		body = binary.BigEndian.AppendUint16(body, uint16(len(ext)))
		body = append(body, ext...)
		return message(typeNewSessionTicket, len(body), body)
	}
	const keyUpdate = 24
	for _, test := range []struct {
		name     string
		toClient bool
		msg      []byte
		code     wire.ErrorCode
	}{
		{"KeyUpdate", true, message(keyUpdate, 1, []byte{0}), 0x10a}, // RFC 9001 §6
		{"KeyUpdate", false, message(keyUpdate, 1, []byte{0}), 0x10a},
		{"ticket from a client", false, ticketWith(nil), 0x10a},
		{"CertificateRequest", true, message(typeCertificateRequest, 3, []byte{0, 0, 0}), wire.ProtocolViolation}, // RFC 9001 §4.4
		{"Finished", true, message(20, 1, []byte{0}), 0x10a},
		{"early data of 1 byte", true, ticketWith([]byte{0, 42, 0, 4, 0, 0, 0, 1}), wire.ProtocolViolation}, // RFC 9001 §4.6.1
		{"early data", true, ticketWith([]byte{0, 42, 0, 4, 255, 255, 255, 255}), wire.NoError},
		{"unknown extension", true, ticketWith([]byte{9, 9, 0, 1, 1}), wire.NoError},
		{"broken extension", true, ticketWith([]byte{9, 9, 0, 2, 1}), 0x132}, // decode_error
		{"empty ticket", true, message(typeNewSessionTicket, 0, nil), 0x132},
	} {
		for _, piece := range []int{1 << 20, 1} {
			c, s := connect(t, clientConf(), serverConf())
			to := s
			if test.toClient {
				to = c
			}
			to.hand(app, test.msg, piece)
			if test.code == wire.NoError {
				if to.err != nil {
					t.Errorf("%s: %v", test.name, to.err)
				}
				continue
			}
			t.Run(test.name, func(t *testing.T) { wantCode(t, to.err, test.code) })
		}
	}
}
