// Package behaviour shows what an application sees of a QUIC stack where stacks could
// differ. It is written for quic-go; swap_test.go runs it a second time with nothing but
// the import line changed, and compares.
package behaviour

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"
)

// A row is one thing an application may rely on. What it says is compared.
type row struct {
	name string
	run  func(w *world)
}

var rows []row

// add is called by each file for its rows.
func add(r ...row) bool { rows = append(rows, r...); return true }

func TestRows(t *testing.T) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRow(t, r) })
		})
	}
}

// world is a path of 10 ms there and back, with an endpoint at each end, in virtual time.
type world struct {
	*testing.T
	name           string
	router         *router
	client, server *quic.Transport
	cleanup        []func()
}

func runRow(t *testing.T, r row) {
	w := &world{T: t, name: r.name, router: &router{}}
	w.server = &quic.Transport{Conn: simnet.NewSimConn(serverAddr, w.router)}
	w.client = &quic.Transport{Conn: simnet.NewSimConn(clientAddr, w.router)}
	defer func() {
		for _, f := range w.cleanup {
			f()
		}
		w.client.Close()
		w.server.Close()
		time.Sleep(time.Minute) // what is still on the wire
	}()
	r.run(w)
}

var (
	serverAddr = &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 443}
	clientAddr = &net.UDPAddr{IP: net.IPv4(1, 0, 0, 2), Port: 9999}
)

// router delivers after 5 ms, unless the path is cut.
type router struct {
	simnet.PerfectRouter
	mu       sync.Mutex
	cut      bool
	from, to net.Addr // whose packets seem to come from elsewhere
}

func (r *router) SendPacket(p simnet.Packet) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from != nil && p.From.String() == r.from.String() {
		p.From = r.to
	} else if r.to != nil && p.To.String() == r.to.String() {
		p.To = r.from
	}
	if !r.cut {
		time.AfterFunc(5*time.Millisecond, func() { r.PerfectRouter.SendPacket(p) })
	}
	return nil
}

// rename has the packets of one address come from another, and answers come back.
func (r *router) rename(from, to net.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from, r.to = from, to
}

func (r *router) cutPath() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
}

// say writes one line of what the row has found.
func (w *world) say(format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = tell(err)
		} else if a == nil {
			args[i] = "nil"
		}
	}
	fmt.Printf("row\t%s\t%s\n", w.name, fmt.Sprintf(format, args...))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// conns opens a connection.
func (w *world) conns(serverConf, clientConf *quic.Config) (client, server *quic.Conn) {
	w.Helper()
	l, err := w.server.Listen(serverTLS(), serverConf)
	w.must(err)
	client, err = w.client.Dial(w.Context(), serverAddr, clientTLS(), clientConf)
	w.must(err)
	server, err = l.Accept(w.Context())
	w.must(err)
	return client, server
}

// uni opens a stream from client to server, with a few bytes on it that are read.
func (w *world) uni(client, server *quic.Conn) (*quic.SendStream, *quic.ReceiveStream) {
	w.Helper()
	s, err := client.OpenUniStream()
	w.must(err)
	_, err = s.Write([]byte("hi"))
	w.must(err)
	r, err := server.AcceptUniStream(w.Context())
	w.must(err)
	_, err = io.ReadFull(r, make([]byte, 2))
	w.must(err)
	return s, r
}

// streams is a new connection with one stream.
func (w *world) streams(conf *quic.Config) (*quic.SendStream, *quic.ReceiveStream) {
	w.Helper()
	client, server := w.conns(conf, conf)
	return w.uni(client, server)
}

// settle lets everything happen that is going to.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// tell says what an error is to an application.
func tell(err error) string {
	if err == nil {
		return "nil"
	}
	var (
		application *quic.ApplicationError
		transport   *quic.TransportError
		idle        *quic.IdleTimeoutError
		handshake   *quic.HandshakeTimeoutError
		reset       *quic.StatelessResetError
		version     *quic.VersionNegotiationError
		stream      *quic.StreamError
		limit       *quic.StreamLimitReachedError
		datagram    *quic.DatagramTooLargeError
	)
	s := ""
	for _, as := range []struct {
		name string
		is   bool
	}{
		{"ApplicationError", errors.As(err, &application)},
		{"TransportError", errors.As(err, &transport)},
		{"IdleTimeoutError", errors.As(err, &idle)},
		{"HandshakeTimeoutError", errors.As(err, &handshake)},
		{"StatelessResetError", errors.As(err, &reset)},
		{"VersionNegotiationError", errors.As(err, &version)},
		{"StreamError", errors.As(err, &stream)},
		{"StreamLimitReachedError", errors.As(err, &limit)},
		{"DatagramTooLargeError", errors.As(err, &datagram)},
		{"ErrTransportClosed", errors.Is(err, quic.ErrTransportClosed)},
		{"ErrServerClosed", errors.Is(err, quic.ErrServerClosed)},
		{"ErrStreamClosed", err == quic.ErrStreamClosed},
		{"ErrWouldBlock", err == quic.ErrWouldBlock},
		{"ErrWriteLimitReached", err == quic.ErrWriteLimitReached},
		{"Err0RTTRejected", err == quic.Err0RTTRejected},
		{"net.ErrClosed", errors.Is(err, net.ErrClosed)},
		{"os.ErrDeadlineExceeded", errors.Is(err, os.ErrDeadlineExceeded)},
		{"context.Canceled", err == context.Canceled},
		{"context.DeadlineExceeded", err == context.DeadlineExceeded},
		{"io.EOF", err == io.EOF},
		{"x509.UnknownAuthorityError", errors.As(err, new(x509.UnknownAuthorityError))},
	} {
		if as.is {
			s += as.name + " "
		}
	}
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		s += "timeout "
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return s + "(a row of its own has the text)"
	}
	return fmt.Sprintf("%s%q", s, err.Error())
}

var serverTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // virtual time begins in 2000
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"swap"},
	}
})

func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"swap"}}
}
