package handshake

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"

	"github.com/volley-quic/volley/internal/wire"
)

func TestHandshake(t *testing.T) {
	for _, piece := range []int{1 << 20, 500, 1} {
		c, s := startPair(t, clientConf(), serverConf())
		talk(c, s, piece)
		mustBeDone(t, c, s)
		for _, level := range []tls.QUICEncryptionLevel{handshake, app} {
			for _, dir := range [][2]*party{{c, s}, {s, c}} {
				w, r := dir[0].first(WriteSecret, level), dir[1].first(ReadSecret, level)
				if len(w.Secret) < 32 || !bytes.Equal(w.Secret, r.Secret) || w.Suite != r.Suite || w.Suite == 0 {
					t.Errorf("secrets at level %v: %x and %x, suites %#x and %#x", level, w.Secret, r.Secret, w.Suite, r.Suite)
				}
			}
		}
		if got := c.first(PeerParams, 0).Data; string(got) != "server params" {
			t.Errorf("the client got params %q", got)
		}
		if got := s.first(PeerParams, 0).Data; string(got) != "client params" {
			t.Errorf("the server got params %q", got)
		}
		for _, p := range []*party{c, s} {
			if cs := p.ConnectionState(); cs.NegotiatedProtocol != "test" || cs.Version != tls.VersionTLS13 || !cs.HandshakeComplete {
				t.Errorf("connection state %+v", cs)
			}
			if p.ReadLevel() != app {
				t.Errorf("read level %v", p.ReadLevel())
			}
			order := -1
			for i, e := range p.events {
				switch {
				case e.Kind == HandshakeDone:
					order = i
				case e.Kind == ReadSecret && e.Level == app && order < 0:
					t.Error("1-RTT can be read before the handshake is done") // RFC 9001 §5.7
				}
			}
		}
	}
}

// Every piece of data follows the secret that protects it.
func TestEventsAreInOrder(t *testing.T) {
	c, s := connect(t, clientConf(), serverConf())
	for _, p := range []*party{c, s} {
		have := map[tls.QUICEncryptionLevel]bool{initial: true}
		for _, e := range p.events {
			switch e.Kind {
			case WriteSecret:
				have[e.Level] = true
			case WriteData:
				if !have[e.Level] {
					t.Errorf("data at level %v before its secret", e.Level)
				}
			}
		}
	}
}

func TestEmptyParams(t *testing.T) {
	c, s := start(t, NewClient(clientConf(), nil), NewServer(serverConf(), []byte{}))
	talk(c, s, 1<<20)
	mustBeDone(t, c, s)
	if c.first(PeerParams, 0).Data == nil || s.first(PeerParams, 0).Data == nil {
		t.Error("empty parameters are nil")
	}
}

func TestHelloRetryRequest(t *testing.T) {
	client, server := clientConf(), serverConf()
	client.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256}
	server.CurvePreferences = []tls.CurveID{tls.CurveP256}
	for _, piece := range []int{1 << 20, 7} {
		c, s := startPair(t, client, server)
		talk(c, s, piece)
		mustBeDone(t, c, s)
		if !c.ConnectionState().HelloRetryRequest {
			t.Error("there was no HelloRetryRequest")
		}
	}
}

func TestMutualTLS(t *testing.T) {
	server := serverConf()
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, authority().pool
	client := clientConf()
	client.Certificates = []tls.Certificate{authority().cert}
	_, s := connect(t, client, server)
	if len(s.ConnectionState().VerifiedChains) == 0 {
		t.Error("the client's certificate was not verified")
	}

	c, s := startPair(t, clientConf(), server)
	talk(c, s, 1<<20)
	wantCode(t, s.err, 0x174) // certificate_required
}

func TestUnknownAuthority(t *testing.T) {
	client := clientConf()
	client.RootCAs = x509.NewCertPool()
	c, s := startPair(t, client, serverConf())
	talk(c, s, 1<<20)
	wantCode(t, c.err, 0x12a) // bad_certificate
	var unknown x509.UnknownAuthorityError
	if !errors.As(c.err, &unknown) {
		t.Errorf("%v does not wrap the error of crypto/x509", c.err)
	}
	var alert tls.AlertError
	if !errors.As(c.err, &alert) || alert != 42 {
		t.Errorf("%v does not wrap the alert", c.err)
	}
	if s.done() {
		t.Error("the server thinks that all is well")
	}
}

func TestCallbackError(t *testing.T) {
	mine := errors.New("mine")
	client := clientConf()
	client.VerifyConnection = func(tls.ConnectionState) error { return mine }
	c, s := startPair(t, client, serverConf())
	talk(c, s, 1<<20)
	if !errors.Is(c.err, mine) {
		t.Errorf("%v does not wrap the callback's error", c.err)
	}
	if _, err := c.HandleData(c.ReadLevel(), []byte{1, 2, 3, 4}); err == nil {
		t.Error("a failed handshake goes on")
	}
}

// RFC 9001 §8.1: no_application_protocol, from whoever sees it.
func TestALPNMismatch(t *testing.T) {
	server := serverConf()
	server.NextProtos = []string{"other"}
	c, s := startPair(t, clientConf(), server)
	talk(c, s, 1<<20)
	wantCode(t, s.err, 0x178)

	server.NextProtos = nil // a server that does not care
	c, s = startPair(t, clientConf(), server)
	talk(c, s, 1<<20)
	wantCode(t, c.err, 0x178)
}

func TestBadConfigs(t *testing.T) {
	c := NewClient(&tls.Config{NextProtos: []string{"test"}}, nil) // no ServerName
	if _, err := c.Start(background); err == nil {
		t.Error("a client without ServerName starts")
	}
	c.Close()
	client := clientConf()
	client.MaxVersion = tls.VersionTLS12
	c = NewClient(client, nil)
	if _, err := c.Start(background); err == nil {
		t.Error("a client of TLS 1.2 starts")
	}
	c.Close()
	_, s := startPair(t, clientConf(), &tls.Config{NextProtos: []string{"test"}}) // no certificate
	c2, _ := startPair(t, clientConf(), serverConf())
	talk(c2, s, 1<<20)
	if s.err == nil {
		t.Error("a server without a certificate works")
	}
}

func TestConfigsAreCloned(t *testing.T) {
	client, server := clientConf(), serverConf()
	connect(t, client, server)
	if client.MinVersion != 0 || server.MinVersion != 0 {
		t.Error("the application's configuration was changed")
	}
}

func TestServerCallbacks(t *testing.T) {
	local, remote := &net.UDPAddr{Port: 1}, &net.UDPAddr{Port: 2}
	var seen []string
	look := func(name string, info *tls.ClientHelloInfo) {
		if info.Conn.LocalAddr() != local || info.Conn.RemoteAddr() != remote {
			t.Errorf("%s: addresses %v, %v", name, info.Conn.LocalAddr(), info.Conn.RemoteAddr())
		}
		if _, err := info.Conn.Write(nil); err == nil {
			t.Errorf("%s: the Conn can be written to", name)
		}
		seen = append(seen, name)
	}
	inner := &tls.Config{NextProtos: []string{"test"}, MinVersion: tls.VersionTLS12}
	inner.GetCertificate = func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
		look("certificate", info)
		cert := authority().cert
		return &cert, nil
	}
	outer := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		look("config", info)
		return inner, nil
	}}
	server := NewServer(outer, nil)
	server.SetAddrs(local, remote)
	c, s := start(t, NewClient(clientConf(), nil), server)
	talk(c, s, 1<<20)
	mustBeDone(t, c, s)
	if len(seen) != 2 {
		t.Errorf("callbacks: %v", seen)
	}
}

// Close ends the goroutine of crypto/tls, whatever the handshake was at.
func TestClose(t *testing.T) {
	clientHello := func() []byte {
		c := NewClient(clientConf(), nil)
		evs, err := c.Start(background)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		return evs[0].Data
	}
	for name, until := range map[string]func(*TLS){
		"never started": func(*TLS) {},
		"started":       func(s *TLS) { s.Start(background) },
		"half a message": func(s *TLS) {
			s.Start(background)
			s.HandleData(initial, clientHello()[:10])
		},
		"waiting for Finished": func(s *TLS) {
			s.Start(background)
			if _, err := s.HandleData(initial, clientHello()); err != nil {
				t.Fatal(err)
			}
		},
		"failed": func(s *TLS) {
			s.Start(background)
			s.HandleData(initial, []byte{1, 0, 0, 0})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
				s := NewServer(serverConf(), nil)
				until(s)
				s.Close()
				s.Close()
			})
		})
	}
	c, s := connect(t, clientConf(), serverConf())
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Errorf("Close after a handshake: %v", err)
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	c, _ := startPair(t, clientConf(), serverConf())
	s := &party{TLS: NewServer(serverConf(), nil), t: t}
	s.add(s.Start(ctx))
	cancel()
	talk(c, s, 1<<20)
	if s.err == nil {
		t.Error("the handshake went on with a context that is done")
	}
	s.Close()
}

// RFC 9001 §4.1.3.
func TestDataAtTheWrongLevel(t *testing.T) {
	_, s := connect(t, clientConf(), serverConf())
	for _, level := range []tls.QUICEncryptionLevel{initial, handshake} {
		_, err := s.HandleData(level, []byte{1})
		wantCode(t, err, wire.ProtocolViolation)
	}
	c, _ := startPair(t, clientConf(), serverConf())
	_, err := c.HandleData(app, []byte{1})
	wantCode(t, err, wire.ProtocolViolation)
}

// RFC 9001 §4.1.3: "if there is data from a previous encryption level that TLS has
// not consumed, this MUST be treated as a connection error".
func TestDataLeftOverWhenKeysChange(t *testing.T) {
	for _, extra := range [][]byte{{11}, {11, 0, 0, 0}, make([]byte, 100)} {
		c, s := startPair(t, clientConf(), serverConf())
		s.hand(initial, c.out[0].Data, 1<<20)
		c.add(c.HandleData(initial, append(s.out[0].Data, extra...)))
		wantCode(t, c.err, wire.ProtocolViolation)
	}
}

// RFC 9001 §8.4.
func TestLegacySessionID(t *testing.T) {
	c, s := startPair(t, clientConf(), serverConf())
	hello := c.out[0].Data
	const id = 4 + 2 + 32
	hello = append(hello[:id:id], append([]byte{2, 7, 7}, hello[id+1:]...)...)
	n := len(hello) - 4
	hello[1], hello[2], hello[3] = byte(n>>16), byte(n>>8), byte(n)
	_, err := s.HandleData(initial, hello)
	wantCode(t, err, wire.ProtocolViolation)
}

// A damaged ClientHello is an error, or waits for more, but nothing worse.
func TestDamagedClientHello(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c, _ := startPair(t, clientConf(), serverConf())
	hello := c.out[0].Data
	for range 300 {
		data := bytes.Clone(hello)
		for range 1 + r.IntN(4) {
			data[r.IntN(len(data))] = byte(r.Uint32())
		}
		data = data[:len(data)-r.IntN(2)*r.IntN(len(data))]
		s := NewServer(serverConf(), nil)
		if _, err := s.Start(background); err != nil {
			t.Fatal(err)
		}
		var werr *wire.Error
		if _, err := s.HandleData(initial, data); err != nil && !errors.As(err, &werr) {
			t.Errorf("%x: error %v has no code", data, err)
		}
		s.Close()
	}
}
