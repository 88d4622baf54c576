package main

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/net/quic"
)

// xnetStack is golang.org/x/net/quic. It has fixed windows, given their largest size
// here, datagrams of 1200 bytes, and no GSO; it does not enlarge socket buffers.
type xnetStack struct{}

func xnetConfig(o options, t *tls.Config) *quic.Config {
	return &quic.Config{
		TLSConfig:                t,
		MaxBidiRemoteStreams:     o.maxStreams(),
		MaxStreamReadBufferSize:  maxStreamWindow,
		MaxStreamWriteBufferSize: maxStreamWindow,
		MaxConnReadBufferSize:    maxConnWindow,
		MaxIdleTimeout:           o.idle(),
	}
}

type xnetEndpoint struct {
	o options
	e *quic.Endpoint
}

func newXnetEndpoint(o options, conf *quic.Config) (*xnetEndpoint, error) {
	pc, own, err := o.socket()
	if err != nil {
		return nil, err
	}
	if own {
		enlargeBuffers(pc.(*net.UDPConn))
	}
	e, err := quic.NewEndpoint(pc, conf)
	if err != nil {
		return nil, err
	}
	return &xnetEndpoint{o, e}, nil
}

func (xnetStack) listen(o options) (listener, error) {
	return newXnetEndpoint(o, xnetConfig(o, o.server))
}

func (xnetStack) client(o options) (dialer, error) { return newXnetEndpoint(o, nil) }

func (e *xnetEndpoint) Addr() net.Addr { return net.UDPAddrFromAddrPort(e.e.LocalAddr()) }

func (e *xnetEndpoint) accept(ctx context.Context) (conn, error) {
	c, err := e.e.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return xnetConn{c}, nil
}

func (e *xnetEndpoint) dial(ctx context.Context, addr string) (conn, error) {
	c, err := e.e.Dial(ctx, "udp", addr, xnetConfig(e.o, e.o.client))
	if err != nil {
		return nil, err
	}
	return xnetConn{c}, nil
}

func (e *xnetEndpoint) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	e.e.Close(ctx)
}

type xnetConn struct{ *quic.Conn }

func (c xnetConn) open(ctx context.Context) (stream, error) {
	s, err := c.NewStream(ctx)
	if err != nil {
		return nil, err
	}
	return xnetStream{s}, nil
}

func (c xnetConn) accept(ctx context.Context) (stream, error) {
	s, err := c.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return xnetStream{s}, nil
}

func (c xnetConn) tls() tls.ConnectionState { return c.ConnectionState() }
func (c xnetConn) traffic() traffic         { return traffic{} }
func (c xnetConn) close()                   { c.Abort(nil) }

// xnetStream leaves the flushing of small writes to the application.
type xnetStream struct{ *quic.Stream }

func (s xnetStream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	if len(p) < writeSize {
		s.Flush()
	}
	return n, err
}

func (s xnetStream) Close() error {
	s.CloseWrite()
	return nil
}
