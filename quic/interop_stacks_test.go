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
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"
	xquic "golang.org/x/net/quic"
)

// The tests in interop_*_test.go run Volley against other stacks over real UDP on
// loopback. They see every stack through the same few methods.

// A stack is a QUIC library.
type stack struct {
	name   string
	listen func(*testing.T, *tls.Config, stackConfig) (addr string, accept func(context.Context) (stackConn, error))
	dial   func(t *testing.T, ctx context.Context, addr string, conf *tls.Config, sc stackConfig) (stackConn, error)
}

// stackConfig is what these tests want of a stack's configuration. Zero values are
// the stack's defaults.
type stackConfig struct {
	streamWindow, connWindow int64 // fixed, not only initial, where the stack can grow them
	bidi, uni                int64
	idle                     time.Duration
	retry                    bool // server: every client must prove its address
	network                  string
	// Volley and quic-go only:
	noIDs    bool // connection IDs have no bytes
	versions []Version
	// quic-go only, and Volley only:
	trace, ourTrace func(context.Context, bool, ConnectionID) qlogwriter.Trace
	// both:
	datagrams bool
}

// noIDs makes connection IDs of no bytes: a socket with one connection needs none.
type noIDs struct{}

func (noIDs) GenerateConnectionID() (ConnectionID, error) { return ConnectionID{}, nil }
func (noIDs) ConnectionIDLen() int                        { return 0 }

type stackConn interface {
	open(context.Context) (stackStream, error)
	openUni(context.Context) (stackStream, error)
	accept(context.Context) (stackStream, error)
	acceptUni(context.Context) (stackStream, error)
	// closeWith closes with an application's error.
	closeWith(code uint64, reason string)
	// wait waits for the end and says how it came.
	wait(context.Context) ending
}

type stackStream interface {
	io.Reader
	io.Writer
	closeWrite() error
	reset(code uint64) // RESET_STREAM
	stop(code uint64)  // STOP_SENDING
	// release says that the stream was read to its end. x/net/quic wants to be told.
	release()
}

// ending is how a connection ended: with a CONNECTION_CLOSE, or by a timeout.
type ending struct {
	app     bool
	remote  bool
	code    uint64
	reason  string
	timeout bool
	err     error
}

// streamCode returns the code with which the peer ended a stream's direction.
func streamCode(err error) (code uint64, ok bool) {
	var v *StreamError
	var q *quicgo.StreamError
	var x xquic.StreamError
	switch {
	case errors.As(err, &v):
		return uint64(v.ErrorCode), v.Remote
	case errors.As(err, &q):
		return uint64(q.ErrorCode), q.Remote
	case errors.As(err, &x):
		return uint64(x), true
	}
	return 0, false
}

// each runs f with Volley as client and as server of every other stack.
func eachStack(t *testing.T, f func(t *testing.T, client, server *stack)) {
	for _, other := range []*stack{quicGoStack, xNetStack} {
		t.Run("volley to "+other.name, func(t *testing.T) { f(t, volleyStack, other) })
		t.Run(other.name+" to volley", func(t *testing.T) { f(t, other, volleyStack) })
	}
}

// interopLimit ends what hangs. Nothing here should come near it.
const interopLimit = 60 * time.Second

func interopContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), interopLimit)
	t.Cleanup(cancel)
	return ctx
}

// connectStacks connects client to server.
func connectStacks(t *testing.T, client, server *stack, clientConf, serverConf stackConfig) (c, s stackConn) {
	t.Helper()
	st, ct := peerTLS()
	return connectStacksTLS(t, client, server, st, ct, clientConf, serverConf)
}

func connectStacksTLS(t *testing.T, client, server *stack, st, ct *tls.Config, clientConf, serverConf stackConfig) (c, s stackConn) {
	t.Helper()
	ctx := interopContext(t)
	addr, accept := server.listen(t, st, serverConf)
	accepted := make(chan stackConn, 1)
	go func() {
		s, err := accept(ctx)
		if err != nil {
			t.Errorf("accepting: %v", err)
		}
		accepted <- s
	}()
	c, err := client.dial(t, ctx, addr, ct, clientConf)
	if err != nil {
		t.Fatalf("dialing: %v", err)
	}
	if s = <-accepted; s == nil {
		t.FailNow()
	}
	return c, s
}

// certificate makes a self-signed one that is good for every name used in tests and
// in any year, virtual time beginning in 2000. ballast makes it that much larger.
func certificate(ballast int) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA:         true, BasicConstraintsValid: true,
	}
	for i := 0; ballast > 0; i++ {
		name := fmt.Sprintf("host-%04d.ballast.example.com", i)
		tmpl.DNSNames = append(tmpl.DNSNames, name)
		ballast -= len(name) + 2
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

type tlsPair struct{ server, client *tls.Config }

func newTLSPair(ballast int) tlsPair {
	cert, pool := certificate(ballast)
	return tlsPair{
		&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"volley-test"}, MinVersion: tls.VersionTLS13},
		&tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"volley-test"}, MinVersion: tls.VersionTLS13},
	}
}

var (
	smallTLSPair = sync.OnceValue(func() tlsPair { return newTLSPair(0) })
	// largeTLSPair's server needs several flights of an unvalidated client's allowance.
	largeTLSPair = sync.OnceValue(func() tlsPair { return newTLSPair(8 << 10) })
)

// peerTLS returns copies of the configurations of a server and of a client that trusts it.
func peerTLS() (server, client *tls.Config) {
	p := smallTLSPair()
	return p.server.Clone(), p.client.Clone()
}

// loopbackSocket opens a socket on loopback that is closed when the test is over.
func loopbackSocket(t *testing.T, network string) *net.UDPConn {
	t.Helper()
	ip := net.IPv4(127, 0, 0, 1)
	if network == "udp6" {
		ip = net.IPv6loopback
	} else {
		network = "udp4"
	}
	pc, err := net.ListenUDP(network, &net.UDPAddr{IP: ip})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	return pc
}

func udpAddr(t *testing.T, addr string) *net.UDPAddr {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ---- Volley

var volleyStack = &stack{name: "volley",
	listen: func(t *testing.T, conf *tls.Config, sc stackConfig) (string, func(context.Context) (stackConn, error)) {
		tr := &Transport{Conn: loopbackSocket(t, sc.network)}
		if sc.noIDs {
			tr.ConnectionIDGenerator = noIDs{}
		}
		if sc.retry {
			tr.VerifySourceAddress = func(net.Addr) bool { return true }
		}
		t.Cleanup(func() { tr.Close() })
		l, err := tr.Listen(conf, sc.volley())
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr().String(), func(ctx context.Context) (stackConn, error) {
			c, err := l.Accept(ctx)
			if err != nil {
				return nil, err
			}
			return volleyConn{c}, nil
		}
	},
	dial: func(t *testing.T, ctx context.Context, addr string, conf *tls.Config, sc stackConfig) (stackConn, error) {
		tr := &Transport{Conn: loopbackSocket(t, sc.network)}
		if sc.noIDs {
			tr.ConnectionIDGenerator = noIDs{}
		}
		t.Cleanup(func() { tr.Close() })
		c, err := tr.Dial(ctx, udpAddr(t, addr), conf, sc.volley())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.CloseWithError(0, "") })
		return volleyConn{c}, nil
	},
}

func (sc stackConfig) volley() *Config {
	return &Config{
		InitialStreamReceiveWindow: uint64(sc.streamWindow), MaxStreamReceiveWindow: uint64(sc.streamWindow),
		InitialConnectionReceiveWindow: uint64(sc.connWindow), MaxConnectionReceiveWindow: uint64(sc.connWindow),
		MaxIncomingStreams: sc.bidi, MaxIncomingUniStreams: sc.uni, MaxIdleTimeout: sc.idle,
		Versions: sc.versions, Tracer: sc.ourTrace, EnableDatagrams: sc.datagrams,
	}
}

type volleyConn struct{ *Conn }

func (c volleyConn) open(ctx context.Context) (stackStream, error) {
	s, err := c.OpenStreamSync(ctx)
	return volleyStream{s.sendHalf(), s.recvHalf()}, err
}

func (c volleyConn) openUni(ctx context.Context) (stackStream, error) {
	s, err := c.OpenUniStreamSync(ctx)
	return volleyStream{s, nil}, err
}

func (c volleyConn) accept(ctx context.Context) (stackStream, error) {
	s, err := c.AcceptStream(ctx)
	return volleyStream{s.sendHalf(), s.recvHalf()}, err
}

func (c volleyConn) acceptUni(ctx context.Context) (stackStream, error) {
	s, err := c.AcceptUniStream(ctx)
	return volleyStream{nil, s}, err
}

func (s *Stream) sendHalf() *SendStream {
	if s == nil {
		return nil
	}
	return s.SendStream
}

func (s *Stream) recvHalf() *ReceiveStream {
	if s == nil {
		return nil
	}
	return s.ReceiveStream
}

func (c volleyConn) closeWith(code uint64, reason string) {
	c.CloseWithError(ApplicationErrorCode(code), reason)
}

func (c volleyConn) wait(ctx context.Context) ending {
	select {
	case <-c.Context().Done():
		return endingOf(context.Cause(c.Context()))
	case <-ctx.Done():
		return ending{err: fmt.Errorf("still open: %w", ctx.Err())}
	}
}

// endingOf takes an error of Volley or quic-go apart.
func endingOf(err error) ending {
	e := ending{err: err}
	var (
		va *ApplicationError
		qa *quicgo.ApplicationError
		vt *TransportError
		qt *quicgo.TransportError
		n  net.Error
	)
	switch {
	case errors.As(err, &va):
		e.app, e.remote, e.code, e.reason = true, va.Remote, uint64(va.ErrorCode), va.ErrorMessage
	case errors.As(err, &qa):
		e.app, e.remote, e.code, e.reason = true, qa.Remote, uint64(qa.ErrorCode), qa.ErrorMessage
	case errors.As(err, &vt):
		e.remote, e.code, e.reason = vt.Remote, uint64(vt.ErrorCode), vt.ErrorMessage
	case errors.As(err, &qt):
		e.remote, e.code, e.reason = qt.Remote, uint64(qt.ErrorCode), qt.ErrorMessage
	case errors.As(err, &n) && n.Timeout():
		e.timeout = true
	}
	return e
}

type volleyStream struct {
	*SendStream
	*ReceiveStream
}

func (s volleyStream) closeWrite() error { return s.SendStream.Close() }
func (s volleyStream) reset(code uint64) { s.CancelWrite(StreamErrorCode(code)) }
func (s volleyStream) stop(code uint64)  { s.CancelRead(StreamErrorCode(code)) }
func (s volleyStream) release()          {}

// ---- quic-go

var quicGoStack = &stack{name: "quic-go",
	listen: func(t *testing.T, conf *tls.Config, sc stackConfig) (string, func(context.Context) (stackConn, error)) {
		tr := &quicgo.Transport{Conn: loopbackSocket(t, sc.network)}
		if sc.noIDs {
			tr.ConnectionIDGenerator = noIDs{}
		}
		if sc.retry {
			tr.VerifySourceAddress = func(net.Addr) bool { return true }
		}
		t.Cleanup(func() { tr.Close() })
		l, err := tr.Listen(conf, sc.quicGo())
		if err != nil {
			t.Fatal(err)
		}
		return l.Addr().String(), func(ctx context.Context) (stackConn, error) {
			c, err := l.Accept(ctx)
			if err != nil {
				return nil, err
			}
			return quicGoConn{c}, nil
		}
	},
	dial: func(t *testing.T, ctx context.Context, addr string, conf *tls.Config, sc stackConfig) (stackConn, error) {
		tr := &quicgo.Transport{Conn: loopbackSocket(t, sc.network)}
		if sc.noIDs {
			tr.ConnectionIDGenerator = noIDs{}
		}
		t.Cleanup(func() { tr.Close() })
		c, err := tr.Dial(ctx, udpAddr(t, addr), conf, sc.quicGo())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { c.CloseWithError(0, "") })
		return quicGoConn{c}, nil
	},
}

func (sc stackConfig) quicGo() *quicgo.Config {
	return &quicgo.Config{
		InitialStreamReceiveWindow: uint64(sc.streamWindow), MaxStreamReceiveWindow: uint64(sc.streamWindow),
		InitialConnectionReceiveWindow: uint64(sc.connWindow), MaxConnectionReceiveWindow: uint64(sc.connWindow),
		MaxIncomingStreams: sc.bidi, MaxIncomingUniStreams: sc.uni, MaxIdleTimeout: sc.idle,
		Versions: sc.versions, Tracer: sc.trace, EnableDatagrams: sc.datagrams,
	}
}

type quicGoConn struct{ *quicgo.Conn }

func (c quicGoConn) open(ctx context.Context) (stackStream, error) {
	s, err := c.OpenStreamSync(ctx)
	return quicGoStream{s, s, s, s}, err
}

func (c quicGoConn) openUni(ctx context.Context) (stackStream, error) {
	s, err := c.OpenUniStreamSync(ctx)
	return quicGoStream{nil, s, s, nil}, err
}

func (c quicGoConn) accept(ctx context.Context) (stackStream, error) {
	s, err := c.AcceptStream(ctx)
	return quicGoStream{s, s, s, s}, err
}

func (c quicGoConn) acceptUni(ctx context.Context) (stackStream, error) {
	s, err := c.AcceptUniStream(ctx)
	return quicGoStream{s, nil, nil, s}, err
}

func (c quicGoConn) closeWith(code uint64, reason string) {
	c.CloseWithError(quicgo.ApplicationErrorCode(code), reason)
}

func (c quicGoConn) wait(ctx context.Context) ending {
	select {
	case <-c.Context().Done():
		return endingOf(context.Cause(c.Context()))
	case <-ctx.Done():
		return ending{err: fmt.Errorf("still open: %w", ctx.Err())}
	}
}

type quicGoStream struct {
	io.Reader
	io.Writer
	send interface {
		Close() error
		CancelWrite(quicgo.StreamErrorCode)
	}
	recv interface {
		CancelRead(quicgo.StreamErrorCode)
	}
}

func (s quicGoStream) closeWrite() error { return s.send.Close() }
func (s quicGoStream) reset(code uint64) { s.send.CancelWrite(quicgo.StreamErrorCode(code)) }
func (s quicGoStream) stop(code uint64)  { s.recv.CancelRead(quicgo.StreamErrorCode(code)) }
func (s quicGoStream) release()          {}

// ---- golang.org/x/net/quic

var xNetStack = &stack{name: "x/net/quic",
	listen: func(t *testing.T, conf *tls.Config, sc stackConfig) (string, func(context.Context) (stackConn, error)) {
		e, err := xquic.NewEndpoint(loopbackSocket(t, sc.network), sc.xNet(conf))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeXNet(e) })
		return e.LocalAddr().String(), func(ctx context.Context) (stackConn, error) {
			c, err := e.Accept(ctx)
			if err != nil {
				return nil, err
			}
			return newXNetConn(c), nil
		}
	},
	dial: func(t *testing.T, ctx context.Context, addr string, conf *tls.Config, sc stackConfig) (stackConn, error) {
		e, err := xquic.NewEndpoint(loopbackSocket(t, sc.network), nil)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { closeXNet(e) })
		c, err := e.Dial(ctx, "udp", addr, sc.xNet(conf))
		if err != nil {
			return nil, err
		}
		return newXNetConn(c), nil
	},
}

// closeXNet closes an endpoint without waiting for its connections to drain.
func closeXNet(e *xquic.Endpoint) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e.Close(ctx)
}

func (sc stackConfig) xNet(conf *tls.Config) *xquic.Config {
	return &xquic.Config{
		TLSConfig:               conf,
		MaxStreamReadBufferSize: sc.streamWindow, MaxConnReadBufferSize: sc.connWindow,
		MaxBidiRemoteStreams: sc.bidi, MaxUniRemoteStreams: sc.uni,
		MaxIdleTimeout: sc.idle, RequireAddressValidation: sc.retry,
	}
}

// xNetConn sorts the streams that its Conn accepts by kind.
type xNetConn struct {
	*xquic.Conn
	bidi, uni chan *xquic.Stream
}

func newXNetConn(c *xquic.Conn) xNetConn {
	x := xNetConn{c, make(chan *xquic.Stream, 10000), make(chan *xquic.Stream, 10000)}
	go func() {
		for {
			s, err := c.AcceptStream(context.Background())
			if err != nil {
				close(x.bidi)
				close(x.uni)
				return
			}
			if s.IsReadOnly() {
				x.uni <- s
			} else {
				x.bidi <- s
			}
		}
	}()
	return x
}

func (c xNetConn) open(ctx context.Context) (stackStream, error) {
	s, err := c.NewStream(ctx)
	return xNetStream{s}, err
}

func (c xNetConn) openUni(ctx context.Context) (stackStream, error) {
	s, err := c.NewSendOnlyStream(ctx)
	return xNetStream{s}, err
}

func (c xNetConn) accept(ctx context.Context) (stackStream, error)    { return xNetNext(ctx, c.bidi) }
func (c xNetConn) acceptUni(ctx context.Context) (stackStream, error) { return xNetNext(ctx, c.uni) }

func xNetNext(ctx context.Context, ch chan *xquic.Stream) (stackStream, error) {
	select {
	case s := <-ch:
		if s == nil {
			return nil, net.ErrClosed
		}
		return xNetStream{s}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c xNetConn) closeWith(code uint64, reason string) {
	c.Abort(&xquic.ConnectionCloseError{Code: code, Reason: reason})
}

func (c xNetConn) wait(ctx context.Context) ending {
	err := c.Wait(ctx)
	e := ending{err: err}
	var a *xquic.ConnectionCloseError
	if errors.As(err, &a) {
		e.app, e.remote, e.code, e.reason = true, true, a.Code, a.Reason
	} else if err != nil && err.Error() == "idle timeout" {
		e.timeout = true
	}
	return e
}

type xNetStream struct{ *xquic.Stream }

func (s xNetStream) closeWrite() error { s.CloseWrite(); return nil }
func (s xNetStream) reset(code uint64) { s.Reset(code) }
func (s xNetStream) stop(code uint64)  { s.StopSending(code) }
func (s xNetStream) release()          { s.CloseRead() }
