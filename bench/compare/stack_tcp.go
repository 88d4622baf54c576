package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// tcpStack is crypto/tls over TCP. A connection has one stream: itself.
type tcpStack struct{}

type tcpEndpoint struct {
	o options
	l net.Listener
}

func (tcpStack) listen(o options) (listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &tcpEndpoint{o, l}, nil
}

func (tcpStack) client(o options) (dialer, error) { return &tcpEndpoint{o, nil}, nil }

func (e *tcpEndpoint) Addr() net.Addr { return e.l.Addr() }

func (e *tcpEndpoint) accept(ctx context.Context) (conn, error) {
	c, err := e.l.Accept()
	if err != nil {
		return nil, err
	}
	t := tls.Server(c, e.o.server)
	return &tcpConn{Conn: t}, t.HandshakeContext(ctx)
}

func (e *tcpEndpoint) dial(ctx context.Context, addr string) (conn, error) {
	d := tls.Dialer{Config: e.o.client}
	c, err := d.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return nil, err
	}
	return &tcpConn{Conn: c.(*tls.Conn)}, nil
}

func (e *tcpEndpoint) close() {
	if e.l != nil {
		e.l.Close()
	}
}

type tcpConn struct {
	*tls.Conn
	used atomic.Bool
}

func (c *tcpConn) open(context.Context) (stream, error) {
	if c.used.Swap(true) {
		return nil, errors.New("a TLS connection has one stream")
	}
	return tcpStream{c.Conn}, nil
}

func (c *tcpConn) accept(ctx context.Context) (stream, error) { return c.open(ctx) }
func (c *tcpConn) tls() tls.ConnectionState                   { return c.ConnectionState() }
func (c *tcpConn) traffic() traffic                           { return traffic{} }
func (c *tcpConn) close()                                     { c.Conn.Close() }

type tcpStream struct{ *tls.Conn }

func (s tcpStream) Close() error { return s.CloseWrite() }
