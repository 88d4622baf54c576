package quicgo_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/quic/quicgo"
)

// An application that stays on quic-go sends a file in volleys.
func ExampleWrap() {
	conn, received := connect() // two ends of quic-go's
	str, err := conn.OpenUniStream()
	if err != nil {
		log.Fatal(err)
	}
	s := quicgo.Wrap(str)
	file := strings.NewReader(strings.Repeat("volley ", 10000))
	n, err := s.SendFrom(context.Background(), file, 0, -1, emit.End())
	fmt.Println("sent:", n, err)
	fmt.Println("calls of the source:", s.EmissionStats().Calls)
	fmt.Println("received:", <-received)
	conn.CloseWithError(0, "")
	// Output:
	// sent: 70000 <nil>
	// calls of the source: 5
	// received: 70000
}

// connect returns a connection, and how many bytes its first stream brought.
func connect() (*quic.Conn, <-chan int) {
	l, err := quic.ListenAddr("127.0.0.1:0", serverTLS(), nil)
	if err != nil {
		log.Fatal(err)
	}
	received := make(chan int)
	go func() {
		defer l.Close()
		conn, err := l.Accept(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		str, err := conn.AcceptUniStream(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		b, err := io.ReadAll(str)
		if err != nil {
			log.Fatal(err)
		}
		received <- len(b)
	}()
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"example"}}
	conn, err := quic.DialAddr(context.Background(), l.Addr().String(), conf, nil)
	if err != nil {
		log.Fatal(err)
	}
	return conn, received
}

func serverTLS() *tls.Config {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		log.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, tmpl, tmpl, public, private)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		NextProtos:   []string{"example"},
	}
}

// An application tries Volley with the Config that it has.
func ExampleConfigToVolley() {
	c := &quic.Config{MaxIncomingStreams: 1000, EnableDatagrams: true}
	v, err := quicgo.ConfigToVolley(c)
	fmt.Println(v.MaxIncomingStreams, v.EnableDatagrams, err)

	c.TokenStore = quic.NewLRUTokenStore(10, 4)
	_, err = quicgo.ConfigToVolley(c)
	fmt.Println(err)
	// Output:
	// 1000 true <nil>
	// quicgo: Config.TokenStore has no counterpart: unsupported operation
}
