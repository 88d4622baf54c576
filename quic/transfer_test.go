package quic

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// testTLS makes the configurations of a server and of a client that trusts it.
func testTLS(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"test"}}
	client = &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"test"}}
	return server, client
}

// pair connects a client and a server over loopback.
func pair(t testing.TB, conf *Config) (client, server *Conn) {
	t.Helper()
	st, ct := testTLS(t)
	ln, err := ListenAddr("127.0.0.1:0", st, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err = DialAddr(ctx, ln.Addr().String(), ct, conf)
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.CloseWithError(0, ""); server.CloseWithError(0, "") })
	return client, server
}

func TestTransfer(t *testing.T) {
	data := make([]byte, 32<<20)
	rand.Read(data)
	want := sha256.Sum256(data)
	for name, send := range map[string]func(*SendStream) error{
		"write": func(s *SendStream) error {
			for p := data; len(p) > 0; {
				n := min(len(p), 64<<10)
				if _, err := s.Write(p[:n]); err != nil {
					return err
				}
				p = p[n:]
			}
			return s.Close()
		},
		"scatter": func(s *SendStream) error {
			_, err := s.SendFrom(context.Background(), bytes.NewReader(data), 0, int64(len(data)), emit.End())
			return err
		},
		"single": func(s *SendStream) error {
			s.SetEmission(emit.Tuning{Mode: emit.Single})
			_, err := s.SendFrom(context.Background(), bytes.NewReader(data), 0, int64(len(data)), emit.End())
			return err
		},
		"reread": func(s *SendStream) error {
			s.SetEmission(emit.Tuning{Mode: emit.Scatter, Reread: true})
			_, err := s.SendFrom(context.Background(), bytes.NewReader(data), 0, int64(len(data)), emit.End())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, nil)
			s, err := server.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			errc := make(chan error, 1)
			start := time.Now()
			go func() { errc <- send(s) }()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			r, err := client.AcceptUniStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			r.SetReadDeadline(time.Now().Add(20 * time.Second))
			h := sha256.New()
			n, err := io.Copy(h, r)
			t.Logf("%d bytes in %v; %+v; %+v", n, time.Since(start), s.EmissionStats(), server.ConnectionStats())
			if err != nil {
				t.Fatal(err)
			}
			if got := [32]byte(h.Sum(nil)); got != want {
				t.Fatalf("%d bytes arrived, with another hash", n)
			}
			if err := <-errc; err != nil {
				t.Fatal(err)
			}
		})
	}
}
