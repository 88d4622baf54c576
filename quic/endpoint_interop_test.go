package quic_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/volley-quic/volley/quic"
)

// Endpoints against quic-go's, where they speak without a connection: Retry, Version
// Negotiation, refusal, stateless reset, tokens.

func interopTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"volley"}}
	return server, &tls.Config{RootCAs: roots, NextProtos: []string{"volley"}}
}

func loopback(t *testing.T) net.PacketConn {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	return pc
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestQUICGoClient(t *testing.T) {
	serverTLS, clientTLS := interopTLS(t)
	ctx := testContext(t)
	var verify atomic.Bool
	verify.Store(true)
	tr := &quic.Transport{Conn: loopback(t), VerifySourceAddress: func(net.Addr) bool { return verify.Load() }}
	defer tr.Close()
	l, err := tr.Listen(serverTLS, &quic.Config{Versions: []quic.Version{quic.Version2}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				if s, err := c.AcceptStream(ctx); err == nil {
					io.Copy(s, s)
					s.Close()
				}
			}()
		}
	}()
	store := quicgo.NewLRUTokenStore(1, 10)
	visit := func() {
		t.Helper()
		// It begins with version 1, is told better, sent back for a token, and let in.
		c, err := quicgo.DialAddr(ctx, l.Addr().String(), clientTLS, &quicgo.Config{TokenStore: store})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		if v := c.ConnectionState().Version; v != quic.Version2 {
			t.Errorf("version %v", v)
		}
		s, err := c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			s.Write(make([]byte, 1<<20))
			s.Close()
		}()
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, make([]byte, 1<<20)) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
	}
	visit()
	visit()

	l.Close()
	refusing, err := tr.Listen(serverTLS, &quic.Config{GetConfigForClient: func(*quic.ClientInfo) (*quic.Config, error) {
		return nil, errors.New("closed today")
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []bool{false, true} {
		verify.Store(v)
		_, err = quicgo.DialAddr(ctx, refusing.Addr().String(), clientTLS, nil)
		var te *quicgo.TransportError
		if !errors.As(err, &te) || !te.Remote || te.ErrorCode != quicgo.ConnectionRefused {
			t.Errorf("refused with %v", err)
		}
	}
}

func TestQUICGoServer(t *testing.T) {
	serverTLS, clientTLS := interopTLS(t)
	ctx := testContext(t)
	key := quicgo.StatelessResetKey{1}
	pc := loopback(t)
	tr := &quicgo.Transport{Conn: pc, StatelessResetKey: &key, VerifySourceAddress: func(net.Addr) bool { return true }}
	defer tr.Close()
	l, err := tr.Listen(serverTLS, &quicgo.Config{Versions: []quicgo.Version{quicgo.Version2}})
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	conns := make(chan *quicgo.Conn, 10)
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return
			}
			conns <- c
			go func() {
				if s, err := c.AcceptStream(ctx); err == nil {
					io.Copy(s, s)
					s.Close()
				}
			}()
		}
	}()
	store := quic.NewLRUTokenStore(1, 10)
	var last *quic.Conn
	for range 2 {
		c, err := quic.DialAddr(ctx, addr, clientTLS, &quic.Config{TokenStore: store})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		if v := c.ConnectionState().Version; v != quic.Version2 {
			t.Errorf("version %v", v)
		}
		s, err := c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			s.Write(make([]byte, 1<<20))
			s.Close()
		}()
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, make([]byte, 1<<20)) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		last = c
	}
	if _, err := quic.DialAddr(ctx, addr, clientTLS, &quic.Config{Versions: []quic.Version{quic.Version1}}); !errors.As(err, new(*quic.VersionNegotiationError)) {
		t.Errorf("without a common version: %v", err)
	}

	// The server restarts.
	tr.Close()
	tr2 := &quicgo.Transport{Conn: pc, StatelessResetKey: &key}
	defer tr2.Close()
	l2, err := tr2.Listen(serverTLS, &quicgo.Config{GetConfigForClient: func(*quicgo.ClientInfo) (*quicgo.Config, error) {
		return nil, errors.New("closed today")
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := last.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	s.Write(make([]byte, 1000))
	select {
	case <-last.Context().Done():
	case <-ctx.Done():
	}
	if err := context.Cause(last.Context()); !errors.Is(err, &quic.StatelessResetError{}) {
		t.Errorf("after a restart, the connection ends with %v", err)
	}
	_, err = quic.DialAddr(ctx, l2.Addr().String(), clientTLS, nil)
	if !errors.Is(err, &quic.TransportError{Remote: true, ErrorCode: quic.ConnectionRefused}) {
		t.Errorf("refused with %v", err)
	}
}
