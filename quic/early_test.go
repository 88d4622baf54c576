package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// echoOf sends text on a stream and wants it back.
func echoOf(t *testing.T, ctx context.Context, open func() (io.ReadWriteCloser, error), text string) {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(s)
	if err != nil || string(b) != text {
		t.Fatalf("echo of %q is %q, %v", text, b, err)
	}
}

// ticketCache tells when a ticket has come: the stream's answer may be there before.
type ticketCache struct {
	tls.ClientSessionCache
	put chan struct{}
}

func newTicketCache() *ticketCache {
	return &ticketCache{tls.NewLRUClientSessionCache(10), make(chan struct{}, 100)}
}

func (c *ticketCache) Put(key string, s *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, s)
	if s != nil {
		c.put <- struct{}{}
	}
}

// echoStreams answers every stream of a connection with what it brings.
func echoStreams(ctx context.Context, accept func(context.Context) (io.ReadWriteCloser, error)) {
	for {
		s, err := accept(ctx)
		if err != nil {
			return
		}
		go func() {
			io.Copy(s, s)
			s.Close()
		}()
	}
}

// deafSocket is a socket on which nothing arrives before hear is called: what is done until
// then is done before the server's first answer.
type deafSocket struct {
	net.PacketConn // alone, so that nobody reads from the socket behind it
	hears          chan struct{}
	hear           func()
}

func newDeafSocket(t *testing.T) *deafSocket {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hears := make(chan struct{})
	s := &deafSocket{pc, hears, sync.OnceFunc(func() { close(hears) })}
	t.Cleanup(func() {
		s.hear()
		pc.Close()
	})
	return s
}

func (s *deafSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	<-s.hears
	return s.PacketConn.ReadFrom(p)
}

// dialDeaf is DialAddrEarly from a socket that hears nothing yet.
func dialDeaf(t *testing.T, ctx context.Context, addr string, tlsConf *tls.Config) (*Conn, *deafSocket) {
	t.Helper()
	socket := newDeafSocket(t)
	tr := &Transport{Conn: socket}
	t.Cleanup(func() {
		socket.hear()
		tr.Close()
	})
	to, err := net.ResolveUDPAddr("udp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tr.DialEarly(ctx, to, tlsConf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, socket
}

func acceptOf(c *Conn) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) { return c.AcceptStream(ctx) }
}

// The second connection's first request leaves before the handshake is complete.
func TestZeroRTT(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	st, ct := testTLS(t)
	type dialed struct {
		open  func() (io.ReadWriteCloser, error)
		used  func() bool
		close func()
		done  <-chan struct{}
	}
	volleyClient := func(addr string, _ bool) dialed {
		c, err := DialAddrEarly(ctx, addr, ct, nil)
		if err != nil {
			t.Fatal(err)
		}
		return dialed{
			func() (io.ReadWriteCloser, error) { return c.OpenStream() },
			func() bool { return c.ConnectionState().Used0RTT },
			func() { c.CloseWithError(0, "") },
			c.HandshakeComplete(),
		}
	}
	// quic-go reads what it remembers of the server where a stream is opened, and replaces
	// it when the server's parameters come, with no lock around either: the race detector
	// would find that now and then. So its client hears nothing before its first stream is
	// open.
	quicgoClient := func(addr string, resumes bool) dialed {
		socket := newDeafSocket(t)
		tr := &quicgo.Transport{Conn: socket}
		t.Cleanup(func() {
			socket.hear()
			tr.Close()
		})
		if !resumes {
			socket.hear() // for want of what to remember, the client waits for the handshake
		}
		to, err := net.ResolveUDPAddr("udp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tr.DialEarly(ctx, to, ct, nil)
		if err != nil {
			t.Fatal(err)
		}
		return dialed{
			func() (io.ReadWriteCloser, error) {
				defer socket.hear()
				return c.OpenStream()
			},
			func() bool { return c.ConnectionState().Used0RTT },
			func() { c.CloseWithError(0, "") },
			c.HandshakeComplete(),
		}
	}
	volleyServer := func() string {
		ln, err := ListenAddrEarly("127.0.0.1:0", st, &Config{Allow0RTT: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				go echoStreams(ctx, acceptOf(c))
			}
		}()
		return ln.Addr().String()
	}
	quicgoServer := func() string {
		ln, err := quicgo.ListenAddrEarly("127.0.0.1:0", st, &quicgo.Config{Allow0RTT: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				go echoStreams(ctx, func(ctx context.Context) (io.ReadWriteCloser, error) { return c.AcceptStream(ctx) })
			}
		}()
		return ln.Addr().String()
	}

	for _, tt := range []struct {
		name   string
		client func(addr string, resumes bool) dialed
		server func() string
	}{
		{"Volley to Volley", volleyClient, volleyServer},
		{"Volley to quic-go", volleyClient, quicgoServer},
		{"quic-go to Volley", quicgoClient, volleyServer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cache := newTicketCache()
			ct.ClientSessionCache = cache
			addr := tt.server()
			for i, resumes := range []bool{false, true, true} {
				c := tt.client(addr, resumes)
				echoOf(t, ctx, c.open, "first")
				<-c.done
				echoOf(t, ctx, c.open, "second")
				if got := c.used(); got != resumes {
					t.Errorf("connection %d: Used0RTT is %v, want %v", i, got, resumes)
				}
				<-cache.put
				c.close()
			}
		})
	}
}

// A server that has changed its mind rejects 0-RTT data: streams fail, and the connection
// is usable after NextConnection.
func TestZeroRTTRejected(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	st, ct := testTLS(t)
	serve := func(conf *Config) (addr string) {
		ln, err := ListenAddrEarly("127.0.0.1:0", st, conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				go echoStreams(ctx, acceptOf(c))
			}
		}()
		return ln.Addr().String()
	}
	for name, conf := range map[string]*Config{
		"not allowed":     {},
		"window reduced":  {Allow0RTT: true, InitialStreamReceiveWindow: 1000},
		"streams reduced": {Allow0RTT: true, MaxIncomingStreams: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newTicketCache()
			ct.ClientSessionCache = cache
			c, err := DialAddrEarly(ctx, serve(&Config{Allow0RTT: true}), ct, nil)
			if err != nil {
				t.Fatal(err)
			}
			echoOf(t, ctx, func() (io.ReadWriteCloser, error) { return c.OpenStream() }, "hello")
			<-cache.put
			c.CloseWithError(0, "")

			c, socket := dialDeaf(t, ctx, serve(conf), ct)
			defer c.CloseWithError(0, "")
			s, err := c.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte("lost"))
			socket.hear()
			if _, err := io.ReadAll(s); !errors.Is(err, Err0RTTRejected) {
				t.Fatalf("reading from a stream of 0-RTT: %v, want Err0RTTRejected", err)
			}
			if _, err := c.OpenStream(); !errors.Is(err, Err0RTTRejected) {
				t.Fatalf("opening a stream: %v, want Err0RTTRejected", err)
			}
			next, err := c.NextConnection(ctx)
			if err != nil {
				t.Fatal(err)
			}
			echoOf(t, ctx, func() (io.ReadWriteCloser, error) { return next.OpenStream() }, "again")
			if next.ConnectionState().Used0RTT {
				t.Error("Used0RTT is true")
			}
		})
	}
}
