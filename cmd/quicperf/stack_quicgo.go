package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"

	quic "github.com/quic-go/quic-go"
)

func init() { stacks["quic-go"] = quicgoStack{} }

// quicgoStack is quic-go, the stack to compare with. Its file differs from
// stack_volley.go by the import and by what only Volley has.
type quicgoStack struct{}

func quicgoConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		InitialStreamReceiveWindow:     initialWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             maxStreams + 1,
		KeepAlivePeriod:                keepAlivePeriod,
	}
}

// newQuicgoTransport opens a UDP socket.
func newQuicgoTransport(addr *net.UDPAddr) (*quic.Transport, error) {
	// The size of the socket buffers is no news to print among the results.
	os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	udp, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: udp}, nil
}

func closeQuicgoTransport(t *quic.Transport) error {
	err := t.Close()
	t.Conn.Close()
	return err
}

func (quicgoStack) Listen(addr string, conf *tls.Config, _ netOptions) (listener, error) {
	udpAddr, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	t, err := newQuicgoTransport(udpAddr)
	if err != nil {
		return nil, err
	}
	l, err := t.Listen(conf, quicgoConfig())
	if err != nil {
		closeQuicgoTransport(t)
		return nil, err
	}
	return &quicgoListener{t, l}, nil
}

func (quicgoStack) Dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, _ netOptions) (conn, error) {
	t, err := newQuicgoTransport(nil)
	if err != nil {
		return nil, err
	}
	c, err := t.Dial(ctx, addr, conf, quicgoConfig())
	if err != nil {
		closeQuicgoTransport(t)
		return nil, quicgoError(err)
	}
	return &quicgoConn{c, t}, nil
}

type quicgoListener struct {
	t *quic.Transport
	l *quic.Listener
}

func (l *quicgoListener) Addr() net.Addr { return l.l.Addr() }

func (l *quicgoListener) Accept(ctx context.Context) (conn, error) {
	c, err := l.l.Accept(ctx)
	if err != nil {
		return nil, quicgoError(err)
	}
	return &quicgoConn{c, nil}, nil
}

func (l *quicgoListener) Close() error {
	l.l.Close()
	return closeQuicgoTransport(l.t)
}

type quicgoConn struct {
	c *quic.Conn
	t *quic.Transport // the client's own; nil on a server
}

func (c *quicgoConn) OpenStream(ctx context.Context) (stream, error) {
	s, err := c.c.OpenStreamSync(ctx)
	if err != nil {
		return nil, quicgoError(err)
	}
	return &quicgoStream{s}, nil
}

func (c *quicgoConn) AcceptStream(ctx context.Context) (stream, error) {
	s, err := c.c.AcceptStream(ctx)
	if err != nil {
		return nil, quicgoError(err)
	}
	return &quicgoStream{s}, nil
}

func (c *quicgoConn) TLS() tls.ConnectionState { return c.c.ConnectionState().TLS }
func (c *quicgoConn) RemoteAddr() net.Addr     { return c.c.RemoteAddr() }
func (c *quicgoConn) Done() <-chan struct{}    { return c.c.Context().Done() }

func (c *quicgoConn) Counters() counters {
	lost := c.c.ConnectionStats().BytesLost
	return counters{lost: &lost}
}

func (c *quicgoConn) CloseWithError(code uint64, reason string) error {
	err := c.c.CloseWithError(quic.ApplicationErrorCode(code), reason)
	if c.t != nil {
		closeQuicgoTransport(c.t)
	}
	return err
}

type quicgoStream struct{ s *quic.Stream }

func (s *quicgoStream) Read(p []byte) (int, error) {
	n, err := s.s.Read(p)
	return n, quicgoError(err)
}

func (s *quicgoStream) Write(p []byte) (int, error) {
	n, err := s.s.Write(p)
	return n, quicgoError(err)
}

func (s *quicgoStream) CloseWrite() error { return quicgoError(s.s.Close()) }

// quicgoError says in quicperf's words what quic-go's errors mean.
func quicgoError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*tlsError](err); ok {
		return e // from our own check of the certificate
	}
	if e, ok := errors.AsType[*quic.TransportError](err); ok && e.ErrorCode.IsCryptoError() {
		return &tlsError{remote: e.Remote, noALPN: e.ErrorCode == 0x100+alertNoALPN, text: errorText(e.ErrorMessage, e)}
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote {
		return &closedError{e.ErrorMessage}
	}
	if _, ok := errors.AsType[*quic.IdleTimeoutError](err); ok {
		return errNoAnswer
	}
	if _, ok := errors.AsType[*quic.HandshakeTimeoutError](err); ok {
		return errNoAnswer
	}
	return err
}
