package quicgo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/testutils/simnet"
)

var serverTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // virtual time begins in 2000
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"bridge"},
	}
})

// pair is a connection of quic-go's with itself, over a path of 5 ms.
type pair struct {
	*testing.T
	client, server *quic.Conn
	sent           *sentFrames
}

// sentFrames is a qlog trace that notes the length of the largest STREAM frame.
type sentFrames struct{ largest atomic.Int64 }

func (s *sentFrames) AddProducer() qlogwriter.Recorder { return s }
func (s *sentFrames) Close() error                     { return nil }
func (s *sentFrames) RecordEvent(e qlogwriter.Event) {
	if e, ok := e.(qlog.PacketSent); ok {
		for _, f := range e.Frames {
			if f, ok := f.Frame.(*qlog.StreamFrame); ok {
				s.largest.Store(max(s.largest.Load(), f.Length))
			}
		}
	}
}

// inPair runs f in virtual time. It ends only when every goroutine has. The server's
// streams take window bytes before somebody reads; 0: the default.
func inPair(t *testing.T, window uint64, f func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		router := &slowRouter{}
		sa := &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 1}
		ca := &net.UDPAddr{IP: net.IPv4(1, 0, 0, 2), Port: 2}
		server := &quic.Transport{Conn: simnet.NewSimConn(sa, router)}
		client := &quic.Transport{Conn: simnet.NewSimConn(ca, router)}
		conf := &quic.Config{InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window}
		l, err := server.Listen(serverTLS(), conf)
		if err != nil {
			t.Fatal(err)
		}
		sent := &sentFrames{}
		cc, err := client.Dial(t.Context(), sa, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"bridge"}}, &quic.Config{
			Tracer: func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return sent },
		})
		if err != nil {
			t.Fatal(err)
		}
		sc, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			cc.CloseWithError(0, "")
			<-sc.Context().Done()
			client.Close()
			server.Close()
			time.Sleep(time.Minute) // what is still on the wire
		}()
		f(t, &pair{t, cc, sc, sent})
	})
}

// slowRouter delivers after 5 ms.
type slowRouter struct{ simnet.PerfectRouter }

func (r *slowRouter) SendPacket(p simnet.Packet) error {
	time.AfterFunc(5*time.Millisecond, func() { r.PerfectRouter.SendPacket(p) })
	return nil
}

// open opens a stream and wraps it.
func (p *pair) open() *SendStream {
	p.Helper()
	str, err := p.client.OpenUniStream()
	if err != nil {
		p.Fatal(err)
	}
	return Wrap(str)
}

func (p *pair) accept() *quic.ReceiveStream {
	p.Helper()
	r, err := p.server.AcceptUniStream(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return r
}

// received reads the peer's next stream to its end, in the background.
func (p *pair) received() func() []byte {
	var b []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := p.server.AcceptUniStream(p.Context())
		if err == nil {
			b, err = io.ReadAll(r)
		}
		if err != nil {
			p.Error(err)
		}
	}()
	return func() []byte { <-done; return b }
}
