package handshake

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// authority is a certificate authority of the tests, with one certificate that is
// good for server and client.
var authority = sync.OnceValue(func() (a struct {
	pool *x509.CertPool
	cert tls.Certificate
}) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		// The virtual time of testing/synctest is in the year 2000.
		NotBefore: time.Unix(0, 0), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, caKey.Public(), caKey)
	check(err)
	ca, err := x509.ParseCertificate(der)
	check(err)
	leaf := x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"volley.test"},
		NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	der, err = x509.CreateCertificate(rand.Reader, &leaf, ca, key.Public(), caKey)
	check(err)
	a.pool = x509.NewCertPool()
	a.pool.AddCert(ca)
	a.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return a
})

func clientConf() *tls.Config {
	return &tls.Config{RootCAs: authority().pool, ServerName: "volley.test", NextProtos: []string{"test"}}
}

func serverConf() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{authority().cert}, NextProtos: []string{"test"}}
}

const (
	initial   = tls.QUICEncryptionLevelInitial
	handshake = tls.QUICEncryptionLevelHandshake
	app       = tls.QUICEncryptionLevelApplication
)

// party is one end of a conversation.
type party struct {
	*TLS
	t      testing.TB
	events []Event // everything so far
	out    []Event // WriteData that the other end has not had
	err    error
}

func (p *party) add(evs []Event, err error) {
	p.events = append(p.events, evs...)
	for _, e := range evs {
		if e.Kind == WriteData {
			p.out = append(p.out, e)
		}
	}
	p.err = err
}

// first is the first event of a kind and level, which must be there.
func (p *party) first(kind Kind, level tls.QUICEncryptionLevel) Event {
	p.t.Helper()
	for _, e := range p.events {
		if e.Kind == kind && e.Level == level {
			return e
		}
	}
	p.t.Fatalf("no event of kind %d at level %v", kind, level)
	return Event{}
}

func (p *party) done() bool {
	for _, e := range p.events {
		if e.Kind == HandshakeDone {
			return true
		}
	}
	return false
}

// hand gives data to p in pieces of at most max bytes.
func (p *party) hand(level tls.QUICEncryptionLevel, data []byte, max int) {
	for len(data) > 0 && p.err == nil {
		n := 1 + mrand.IntN(min(max, len(data)))
		piece := bytes.Clone(data[:n])
		p.add(p.HandleData(level, piece))
		clear(piece) // nobody may keep it
		data = data[n:]
	}
}

func startPair(t testing.TB, client, server *tls.Config) (c, s *party) {
	return start(t, NewClient(client, []byte("client params")), NewServer(server, []byte("server params")))
}

func start(t testing.TB, client, server *TLS) (c, s *party) {
	c, s = &party{TLS: client, t: t}, &party{TLS: server, t: t}
	for _, p := range []*party{s, c} {
		p.add(p.Start(t.Context()))
		t.Cleanup(func() { p.Close() })
	}
	return c, s
}

// talk carries data to and fro until nobody says anything, or somebody fails.
func talk(c, s *party, piece int) {
	for (len(c.out) > 0 || len(s.out) > 0) && c.err == nil && s.err == nil {
		for from, to := range map[*party]*party{c: s, s: c} {
			out := from.out
			from.out = nil
			for _, e := range out {
				to.hand(e.Level, e.Data, piece)
			}
		}
	}
}

// connect makes a handshake that must succeed.
func connect(t testing.TB, client, server *tls.Config) (c, s *party) {
	t.Helper()
	c, s = startPair(t, client, server)
	talk(c, s, 1<<20)
	mustBeDone(t, c, s)
	return c, s
}

func mustBeDone(t testing.TB, c, s *party) {
	t.Helper()
	if c.err != nil || s.err != nil || !c.done() || !s.done() {
		t.Fatalf("client: %v, %v; server: %v, %v", c.done(), c.err, s.done(), s.err)
	}
}

func wantCode(t testing.TB, err error, code wire.ErrorCode) {
	t.Helper()
	var werr *wire.Error
	if !errors.As(err, &werr) || werr.Code != code {
		t.Fatalf("got error %v, want code %v", err, code)
	}
}

var background = context.Background()
