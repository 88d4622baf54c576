// Apps are applications as people write them for quic-go: an echo, a file server, requests
// on many streams, datagrams, a client that uses 0-RTT, and one that looks at errors.
// swap_test.go builds them a second time with nothing but the import line changed, and
// lets clients and servers of both kinds talk to each other.
//
//	apps serve             listens, prints its address, and serves until stdin is closed
//	apps dial ADDR APP     prints what the client APP sees
package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// An app is a protocol with its two sides.
type app struct {
	name   string
	server func(ctx context.Context, conn *quic.Conn) error
	client func(ctx context.Context, addr string) error
}

func apps() []app {
	return []app{
		{"echo", echoServer, echoClient},
		{"files", filesServer, filesClient},
		{"requests", requestsServer, requestsClient},
		{"datagrams", datagramsServer, datagramsClient},
		{"early", earlyServer, earlyClient},
		{"errors", errorsServer, errorsClient},
	}
}

func find(name string) (app, bool) {
	for _, a := range apps() {
		if a.name == name {
			return a, true
		}
	}
	return app{}, false
}

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve(ctx)
	case len(os.Args) == 4 && os.Args[1] == "dial":
		a, ok := find(os.Args[3])
		if !ok {
			log.Fatalf("no app %q", os.Args[3])
		}
		if err := a.client(ctx, os.Args[2]); err != nil {
			log.Fatalf("%s: %v", a.name, err)
		}
	default:
		log.Fatal("usage: apps serve | apps dial ADDR APP")
	}
}

// serve prints two addresses: of a server, and of one that takes the same session tickets
// but no 0-RTT data. When it is told to stop, it prints how its connections ended.
func serve(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	conf := serverTLS()
	// Two listeners of one program share what makes their tickets.
	conf.SetSessionTicketKeys([][32]byte{{1, 2, 3}})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var ends []string
	for _, early := range []bool{true, false} {
		l, err := quic.ListenAddrEarly("127.0.0.1:0", conf, &quic.Config{
			Allow0RTT: early, EnableDatagrams: true, MaxIncomingStreams: 10,
		})
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close()
		fmt.Println(l.Addr())
		go func() {
			for {
				conn, err := l.Accept(ctx)
				if err != nil {
					return
				}
				wg.Go(func() {
					end := handle(ctx, conn)
					mu.Lock()
					defer mu.Unlock()
					ends = append(ends, end)
				})
			}
		}()
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	wg.Wait()
	slices.Sort(ends)
	for _, end := range ends {
		fmt.Println(end)
	}
}

func handle(ctx context.Context, conn *quic.Conn) string {
	name := conn.ConnectionState().TLS.NegotiatedProtocol
	a, ok := find(name)
	if !ok {
		return "no app " + name
	}
	err := a.server(ctx, conn)
	<-conn.Context().Done()
	return fmt.Sprintf("%s: %v, %v", name, err, context.Cause(conn.Context()))
}

func clientTLS(name string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{name}}
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
	conf := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	for _, a := range apps() {
		conf.NextProtos = append(conf.NextProtos, a.name)
	}
	return conf
}
