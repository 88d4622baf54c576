package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/quic"
)

func init() { stacks["volley"] = volleyStack{} }

// volleyStack is Volley. Its file differs from stack_quicgo.go by the import and
// by what only Volley has: ListenUDP, MaxPacketSize, emission, and counters of the socket.
type volleyStack struct{}

func volleyConfig(n netOptions) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		InitialStreamReceiveWindow:     initialWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             maxStreams + 1,
		KeepAlivePeriod:                keepAlivePeriod,
		MaxPacketSize:                  uint16(n.maxPacketSize),
	}
}

// newVolleyTransport opens a UDP socket.
func newVolleyTransport(addr *net.UDPAddr) (*quic.Transport, error) {
	udp, err := quic.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: udp}, nil
}

func closeVolleyTransport(t *quic.Transport) error {
	err := t.Close()
	t.Conn.Close()
	return err
}

func (volleyStack) Listen(addr string, conf *tls.Config, n netOptions) (listener, error) {
	udpAddr, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	t, err := newVolleyTransport(udpAddr)
	if err != nil {
		return nil, err
	}
	l, err := t.Listen(conf, volleyConfig(n))
	if err != nil {
		closeVolleyTransport(t)
		return nil, err
	}
	return &volleyListener{t, l}, nil
}

func (volleyStack) Dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, n netOptions) (conn, error) {
	t, err := newVolleyTransport(nil)
	if err != nil {
		return nil, err
	}
	c, err := t.Dial(ctx, addr, conf, volleyConfig(n))
	if err != nil {
		closeVolleyTransport(t)
		return nil, volleyError(err)
	}
	return &volleyConn{c, t}, nil
}

type volleyListener struct {
	t *quic.Transport
	l *quic.Listener
}

func (l *volleyListener) Addr() net.Addr { return l.l.Addr() }

func (l *volleyListener) Accept(ctx context.Context) (conn, error) {
	c, err := l.l.Accept(ctx)
	if err != nil {
		return nil, volleyError(err)
	}
	return &volleyConn{c, nil}, nil
}

func (l *volleyListener) Close() error {
	l.l.Close()
	return closeVolleyTransport(l.t)
}

type volleyConn struct {
	c *quic.Conn
	t *quic.Transport // the client's own; nil on a server
}

func (c *volleyConn) OpenStream(ctx context.Context) (stream, error) {
	s, err := c.c.OpenStreamSync(ctx)
	if err != nil {
		return nil, volleyError(err)
	}
	return &volleyStream{s}, nil
}

func (c *volleyConn) AcceptStream(ctx context.Context) (stream, error) {
	s, err := c.c.AcceptStream(ctx)
	if err != nil {
		return nil, volleyError(err)
	}
	return &volleyStream{s}, nil
}

func (c *volleyConn) TLS() tls.ConnectionState { return c.c.ConnectionState().TLS }
func (c *volleyConn) RemoteAddr() net.Addr     { return c.c.RemoteAddr() }
func (c *volleyConn) Done() <-chan struct{}    { return c.c.Context().Done() }

func (c *volleyConn) Counters() counters {
	lost := c.c.ConnectionStats().BytesLost
	s := c.c.SocketStats()
	return counters{
		lost: &lost,
		socket: &socketStats{
			Sends: s.Sends, Datagrams: s.SentDatagrams,
			SegmentedSends: s.SegmentedSends, CoalescedReads: s.CoalescedReads,
		},
	}
}

func (c *volleyConn) CloseWithError(code uint64, reason string) error {
	err := c.c.CloseWithError(quic.ApplicationErrorCode(code), reason)
	if c.t != nil {
		closeVolleyTransport(c.t)
	}
	return err
}

type volleyStream struct{ s *quic.Stream }

func (s *volleyStream) Read(p []byte) (int, error) {
	n, err := s.s.Read(p)
	return n, volleyError(err)
}

func (s *volleyStream) Write(p []byte) (int, error) {
	n, err := s.s.Write(p)
	return n, volleyError(err)
}

func (s *volleyStream) CloseWrite() error { return volleyError(s.s.Close()) }

// Emit lets the stream ask src for what its packets carry.
func (s *volleyStream) Emit(ctx context.Context, src io.ReaderAt, off, n int64, e emission) error {
	mode, err := emit.ParseMode(e.mode)
	if err != nil {
		return err
	}
	s.s.SetEmission(emit.Tuning{Mode: mode, MaxDatagrams: e.maxDatagrams})
	_, err = s.s.SendFrom(ctx, src, off, n, emit.End())
	return volleyError(err)
}

func (s *volleyStream) EmissionStats() emissionStats {
	st := s.s.EmissionStats()
	return emissionStats{
		Mode: st.Mode.String(), Calls: st.Calls, Datagrams: st.Datagrams, Bytes: st.Bytes,
		Fallbacks: st.Fallbacks, FallbackReason: st.FallbackReason,
	}
}

// volleyError says in quicperf's words what Volley's errors mean.
func volleyError(err error) error {
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
