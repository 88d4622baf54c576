package quic

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
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/volley-quic/volley/internal/wire"
)

// These tests run whole connections between endpoints. What happens inside of a
// connection is tested elsewhere.

var endpointTLS = sync.OnceValue(func() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{hereAddr.IP, net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), // virtual time begins in 2000
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"volley"},
	}
})

func endpointClientTLS() *tls.Config {
	cert, err := x509.ParseCertificate(endpointTLS().Certificates[0].Certificate[0])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, NextProtos: []string{"volley"}}
}

// net2 is two transports with a wire of 10 ms between them.
type net2 struct {
	*testing.T
	client, server *Transport
	router         *wireRouter
}

// wireRouter delivers packets after 10 ms, or not at all.
type wireRouter struct {
	simnet.PerfectRouter
	mu   sync.Mutex
	drop func(simnet.Packet) bool
	sent map[string]int // packets by sender
}

func (r *wireRouter) SendPacket(p simnet.Packet) error {
	r.mu.Lock()
	r.sent[p.From.String()]++
	drop := r.drop != nil && r.drop(p)
	r.mu.Unlock()
	if !drop {
		time.AfterFunc(10*time.Millisecond, func() { r.PerfectRouter.SendPacket(p) })
	}
	return nil
}

func (r *wireRouter) setDrop(drop func(simnet.Packet) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop = drop
}

func (r *wireRouter) count(from net.Addr) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[from.String()]
}

// inNet runs f with both transports, whose sockets it sets, in virtual time. It ends
// only when every goroutine has.
func inNet(t *testing.T, client, server *Transport, f func(t *testing.T, n *net2)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &wireRouter{sent: map[string]int{}}
		server.Conn = simnet.NewSimConn(hereAddr, r)
		client.Conn = simnet.NewSimConn(thereAddr, r)
		f(t, &net2{t, client, server, r})
		client.Close()
		server.Close()
		time.Sleep(time.Minute) // what is still on the wire
	})
}

func (n *net2) listen(conf *Config) *Listener {
	n.Helper()
	l, err := n.server.Listen(endpointTLS(), conf)
	if err != nil {
		n.Fatal(err)
	}
	return l
}

func (n *net2) dial(conf *Config) *Conn {
	n.Helper()
	c, err := n.client.Dial(n.Context(), hereAddr, endpointClientTLS(), conf)
	if err != nil {
		n.Fatal(err)
	}
	return c
}

func (n *net2) accept(l interface {
	Accept(context.Context) (*Conn, error)
}) *Conn {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	c, err := l.Accept(ctx)
	if err != nil {
		n.Fatal(err)
	}
	return c
}

// echo sees that data goes both ways.
func echo(t *testing.T, a, b *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		s, err := b.AcceptStream(ctx)
		if err == nil {
			_, err = io.Copy(s, s)
			s.Close()
		}
		done <- err
	}()
	s, err := a.OpenStreamSync(ctx)
	if err != nil {
		t.Fatalf("opening a stream: %v", err)
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatalf("writing: %v", err)
	}
	s.Close()
	if got, err := io.ReadAll(s); err != nil || string(got) != "hello" {
		t.Fatalf("reading: %q, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Fatalf("the other side: %v", err)
	}
}

// forgotten waits until a transport has no connection left.
func (n *net2) forgotten(tr *Transport) {
	n.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	tr.mu.RLock()
	defer tr.mu.RUnlock()
	if len(tr.ids) > 0 || len(tr.held) > 0 || len(tr.byToken) > 0 {
		n.Errorf("a transport keeps %d IDs, %d held ones and %d tokens", len(tr.ids), len(tr.held), len(tr.byToken))
	}
}

// over waits for the end of a connection, and returns why.
func over(c *Conn) error {
	<-c.Context().Done()
	return context.Cause(c.Context())
}

func TestConnect(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		c := n.dial(nil)
		s := n.accept(l)
		echo(t, c, s)
		echo(t, s, c)
		if a := s.RemoteAddr().String(); a != thereAddr.String() {
			t.Errorf("the client is at %s", a)
		}
		if name := s.ConnectionState().TLS.ServerName; name != "" { // an IP address is no server name
			t.Errorf("server name %q", name)
		}
		c.CloseWithError(7, "bye")
		if err := over(s); !errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 7}) {
			t.Errorf("the server's connection ends with %v", err)
		}
		n.forgotten(n.client)
		n.forgotten(n.server)
	})
}

// Both sides listen and dial on the same sockets.
func TestConnectBothWays(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		l2, err := n.client.Listen(endpointTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		conf := endpointClientTLS()
		conf.ServerName = "localhost"
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				c := n.dial(nil)
				echo(t, c, n.accept(l))
			})
			wg.Go(func() {
				c, err := n.server.Dial(t.Context(), thereAddr, conf, nil)
				if err != nil {
					t.Error(err)
					return
				}
				echo(t, c, n.accept(l2))
			})
		}
		wg.Wait()
	})
}

func TestConnectAfterRetry(t *testing.T) {
	for _, version := range SupportedVersions() {
		var infos []*ClientInfo
		server := &Transport{VerifySourceAddress: func(net.Addr) bool { return true }}
		inNet(t, new(Transport), server, func(t *testing.T, n *net2) {
			l := n.listen(&Config{GetConfigForClient: func(i *ClientInfo) (*Config, error) {
				infos = append(infos, i)
				return nil, nil
			}})
			c := n.dial(&Config{Versions: []Version{version}})
			s := n.accept(l)
			echo(t, c, s)
			if len(infos) != 1 || !infos[0].AddrVerified {
				t.Errorf("the application was told %v", infos)
			}
			c.CloseWithError(0, "")
			n.forgotten(n.client)
			n.forgotten(n.server)
		})
	}
}

// A client that was here before does not need a Retry.
func TestConnectWithToken(t *testing.T) {
	asked := 0
	server := &Transport{VerifySourceAddress: func(net.Addr) bool { asked++; return true }}
	inNet(t, new(Transport), server, func(t *testing.T, n *net2) {
		l := n.listen(nil)
		store := NewLRUTokenStore(1, 1)
		visit := func() (retries int) {
			before := asked
			c := n.dial(&Config{TokenStore: store})
			echo(t, c, n.accept(l))
			c.CloseWithError(0, "")
			time.Sleep(time.Second)
			return asked - before
		}
		if visit() == 0 { // one for each datagram of the ClientHello
			t.Error("the first visit goes without a Retry")
		}
		for range 3 { // each brings the token for the next
			if n := visit(); n != 0 {
				t.Errorf("the next visit takes %d Retries", n)
			}
		}
	})
}

func TestConnectVersions(t *testing.T) {
	tests := []struct {
		client, server []Version
		want           Version // 0: none
	}{
		{nil, nil, Version1},
		{[]Version{Version2}, nil, Version2},
		{[]Version{Version2, Version1}, []Version{Version1}, Version1},
		{[]Version{Version1, Version2}, []Version{Version2}, Version2},
		{[]Version{Version2}, []Version{Version1}, 0},
	}
	for _, tt := range tests {
		for _, singleUse := range []bool{false, true} { // with connection IDs, and without
			inNet(t, &Transport{singleUse: singleUse}, new(Transport), func(t *testing.T, n *net2) {
				l := n.listen(&Config{Versions: tt.server})
				c, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), &Config{Versions: tt.client})
				if tt.want == 0 {
					var e *VersionNegotiationError
					if !errors.As(err, &e) || len(e.Ours) != 1 || e.Ours[0] != Version2 {
						t.Errorf("Dial returned %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				s := n.accept(l)
				echo(t, c, s)
				if a, b := c.ConnectionState().Version, s.ConnectionState().Version; a != tt.want || b != tt.want {
					t.Errorf("versions %v and %v, want %v", a, b, tt.want)
				}
			})
		}
	}
}

// A server that always wants the other version is no server.
func TestDialFickleServer(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		var answers atomic.Int32
		go func() {
			b := make([]byte, 2000)
			for {
				k, from, err := n.server.Conn.ReadFrom(b)
				if err != nil {
					return
				}
				h, err := wire.ParseLong(b[:k])
				if err != nil {
					continue
				}
				other := wire.Version1 + wire.Version2 - h.Version
				n.server.Conn.WriteTo(wire.AppendVersionNegotiation(nil, h.Src, h.Dst, []uint32{other}), from)
				answers.Add(1)
			}
		}()
		_, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Dial returned %v", err)
		}
		if n := answers.Load(); n < 2 {
			t.Errorf("%d answers", n)
		}
		n.forgotten(n.client)
		n.server.Conn.Close()
	})
}

func TestDialNobody(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		begin := time.Now()
		_, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), &Config{HandshakeIdleTimeout: 3 * time.Second})
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Dial returned %v", err)
		}
		if d := time.Since(begin); d < 3*time.Second || d > 7*time.Second {
			t.Errorf("after %v", d)
		}
		n.forgotten(n.client)
	})
}

func TestDialCancelled(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(io.ErrNoProgress) })
		begin := time.Now()
		_, err := n.client.Dial(ctx, hereAddr, endpointClientTLS(), nil)
		if err != io.ErrNoProgress || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("Dial returned %v after %v", err, time.Since(begin))
		}
		n.forgotten(n.client)
	})
}

// The connection outlives the context it was dialed with.
func TestDialContextEnds(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		c, err := n.client.Dial(ctx, hereAddr, endpointClientTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		echo(t, c, n.accept(l))
		if c.Context().Value(key{}) != "value" {
			t.Error("the context's values are lost")
		}
	})
}

func TestDialWrongCertificate(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		n.listen(nil)
		_, err := n.client.Dial(t.Context(), hereAddr, &tls.Config{NextProtos: []string{"volley"}, RootCAs: x509.NewCertPool()}, nil)
		var te *TransportError
		if !errors.As(err, &te) || te.Remote || te.ErrorCode < 0x100 || !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("Dial returned %#v", err)
		}
		n.forgotten(n.client)
		n.forgotten(n.server)
	})
}

func TestAcceptQueue(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		var conns []*Conn
		for range maxAcceptQueue {
			conns = append(conns, n.dial(nil))
		}
		time.Sleep(time.Second)
		c, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
		if err == nil {
			err = over(c)
		}
		if !errors.Is(err, &TransportError{Remote: true, ErrorCode: ConnectionRefused}) {
			t.Errorf("one too many: %v", err)
		}
		for _, c := range conns {
			echo(t, c, n.accept(l))
		}
		c = n.dial(nil)
		echo(t, c, n.accept(l))
	})
}

// Closing a listener refuses who is not through yet, and nobody else.
func TestListenerCloseRefuses(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		accepted := n.dial(nil)
		s := n.accept(l)
		waiting := n.dial(nil)
		time.Sleep(time.Second)

		result := make(chan error)
		go func() {
			c, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
			if err == nil { // the client's side of the handshake was complete already
				err = over(c)
			}
			result <- err
		}()
		time.Sleep(15 * time.Millisecond) // its Initial is there, its Finished is not
		l.Close()
		begin := time.Now()
		if err := <-result; !errors.Is(err, &TransportError{Remote: true, ErrorCode: ConnectionRefused}) || time.Since(begin) > time.Second {
			t.Errorf("a handshake ends with %v after %v", err, time.Since(begin))
		}
		echo(t, accepted, s)
		echo(t, waiting, n.accept(l))
		if _, err := l.Accept(t.Context()); !errors.Is(err, ErrServerClosed) {
			t.Errorf("Accept returned %v", err)
		}

		// The transport may listen again, and has forgotten nothing.
		l = n.listen(nil)
		c := n.dial(nil)
		echo(t, c, n.accept(l))
		echo(t, accepted, s)
	})
}

func TestTransportCloseEndsConnections(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(nil)
		c := n.dial(&Config{MaxIdleTimeout: 10 * time.Second})
		s := n.accept(l)
		waiting := n.dial(&Config{MaxIdleTimeout: 10 * time.Second})
		time.Sleep(time.Second)
		sent := n.router.count(hereAddr)
		n.server.Close()
		if err := over(s); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("the connection ends with %v", err)
		}
		if _, err := s.OpenStream(); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("OpenStream returns %v", err)
		}
		if _, err := l.Accept(t.Context()); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("Accept returns %v", err)
		}
		// The clients are not told.
		for _, c := range []*Conn{c, waiting} {
			if err := over(c); !errors.Is(err, &IdleTimeoutError{}) {
				t.Errorf("a client's connection ends with %v", err)
			}
		}
		if n := n.router.count(hereAddr); n != sent {
			t.Errorf("%d packets were sent by Close", n-sent)
		}
	})
}

func TestTransportCloseEndsDial(t *testing.T) {
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		time.AfterFunc(time.Second, func() { n.client.Close() })
		begin := time.Now()
		_, err := n.client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
		if !errors.Is(err, ErrTransportClosed) || time.Since(begin) != time.Second {
			t.Errorf("Dial returned %v after %v", err, time.Since(begin))
		}
	})
}

// A server that was restarted with the same key ends connections it does not know.
func TestRestartedServer(t *testing.T) {
	for _, singleUse := range []bool{false, true} { // with connection IDs, and without
		key := &StatelessResetKey{1, 2, 3}
		inNet(t, &Transport{singleUse: singleUse}, &Transport{StatelessResetKey: key}, func(t *testing.T, n *net2) {
			l := n.listen(nil)
			c := n.dial(nil)
			echo(t, c, n.accept(l))
			n.server.Close()
			again := &Transport{Conn: n.server.Conn, StatelessResetKey: key}
			if _, err := again.Listen(endpointTLS(), nil); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			s, err := c.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			s.Write(make([]byte, 100))
			if err := over(c); !errors.Is(err, &StatelessResetError{}) || time.Since(begin) > time.Second {
				t.Errorf("the connection ends with %v after %v", err, time.Since(begin))
			}
			again.Close()
		})
	}
}

func TestConnContext(t *testing.T) {
	type key struct{}
	var given context.Context
	server := &Transport{ConnContext: func(ctx context.Context, info *ClientInfo) (context.Context, error) {
		given = ctx
		return context.WithValue(ctx, key{}, info.RemoteAddr.String()), nil
	}}
	inNet(t, new(Transport), server, func(t *testing.T, n *net2) {
		var inTLS context.Context
		conf := endpointTLS().Clone()
		conf.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			inTLS = info.Context()
			return nil, nil
		}
		l, err := n.server.Listen(conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := n.dial(nil)
		s := n.accept(l)
		if s.Context().Value(key{}) != thereAddr.String() || inTLS.Value(key{}) != thereAddr.String() {
			t.Errorf("contexts %v and %v", s.Context(), inTLS)
		}
		if v := inTLS.Value(QUICVersionContextKey); v != Version1 {
			t.Errorf("crypto/tls is told version %v", v)
		}
		if given.Err() != nil {
			t.Error("the context is over")
		}
		c.CloseWithError(0, "")
		over(s)
		time.Sleep(time.Minute)
		if given.Err() == nil {
			t.Error("the context is not over")
		}
	})
}

// Clients repeat their Initials, and large ones are two to begin with.
func TestRepeatedInitials(t *testing.T) {
	asked := 0
	inNet(t, new(Transport), new(Transport), func(t *testing.T, n *net2) {
		l := n.listen(&Config{GetConfigForClient: func(*ClientInfo) (*Config, error) { asked++; return nil, nil }})
		n.router.setDrop(func(p simnet.Packet) bool { // for the first seconds, nobody answers
			return p.From.String() == hereAddr.String() && n.router.sent[p.From.String()] < 6
		})
		conf := endpointClientTLS()
		for i := range 100 {
			conf.NextProtos = append(conf.NextProtos, fmt.Sprintf("another protocol, number %d", i))
		}
		c, err := n.client.Dial(t.Context(), hereAddr, conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		echo(t, c, n.accept(l))
		if asked != 1 {
			t.Errorf("%d connections were made", asked)
		}
		c.CloseWithError(0, "")
		n.forgotten(n.server)
	})
}

func TestListenAndDialAddr(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := ListenAddr("localhost:0", endpointTLS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	c, err := DialAddr(ctx, net.JoinHostPort("localhost", port), endpointClientTLS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if name := s.ConnectionState().TLS.ServerName; name != "localhost" {
		t.Errorf("server name %q", name)
	}
	// The listener's end is not the connection's.
	l.Close()
	echo(t, c, s)
	c.CloseWithError(0, "")
	over(s)
	for _, tr := range []*Transport{c.transport, s.transport} {
		<-tr.done
		if _, err := tr.Conn.WriteTo([]byte("x"), l.Addr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a socket is still open: %v", err)
		}
	}
}

func TestDialAddrFails(t *testing.T) {
	before := runtime.NumGoroutine()
	for addr, conf := range map[string]*tls.Config{
		"no address":     endpointClientTLS(),
		"127.0.0.1:what": endpointClientTLS(),
		"127.0.0.1:1":    nil,
	} {
		if _, err := DialAddr(t.Context(), addr, conf, nil); err == nil {
			t.Errorf("dialed %q", addr)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	if _, err := DialAddr(ctx, "127.0.0.1:1", endpointClientTLS(), nil); err != io.ErrNoProgress {
		t.Errorf("a context that is over: %v", err)
	}
	ctx, cancel2 := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel2()
	if _, err := DialAddr(ctx, "127.0.0.1:1", endpointClientTLS(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a context that ends: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left", runtime.NumGoroutine()-before)
		}
	}
}

func TestServerName(t *testing.T) {
	udpAddr := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	for _, tt := range []struct {
		name string
		addr net.Addr
		host string
		want string
	}{
		{"set", udpAddr, "example.com:443", "set"},
		{"", udpAddr, "example.com:443", "example.com"},
		{"", udpAddr, "[2001:db8::1]:443", "2001:db8::1"},
		{"", udpAddr, "example.com", "example.com"},
		{"", udpAddr, "", "192.0.2.1"},
		{"", &net.UnixAddr{}, "", ""},
	} {
		conf := &tls.Config{ServerName: tt.name}
		if got := withServerName(conf, tt.addr, tt.host).ServerName; got != tt.want {
			t.Errorf("%+v gives %q", tt, got)
		}
		if conf.ServerName != tt.name {
			t.Error("the application's tls.Config was changed")
		}
	}
}
