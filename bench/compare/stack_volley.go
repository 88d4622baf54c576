package main

import (
	"context"
	"crypto/tls"
	"net"

	quic "github.com/volley-quic/volley/quic"
)

// volleyStack is Volley. Its file and that of quic-go are the same but for the
// import, the names, and lines that say so.
type volleyStack struct{}

// volleyConfig leaves InitialPacketSize alone, as quicgoConfig has to.
func volleyConfig(o options) *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 o.idle(),
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: connWindow,
		MaxConnectionReceiveWindow:     maxConnWindow,
		MaxIncomingStreams:             o.maxStreams(),
		MaxPacketSize:                  uint16(max(o.maxPacket, datagramSize)), // Volley only
		Scheduler:                      o.scheduler,                            // Volley only
	}
}

// volleyEndpoint is a listener, or where connections are dialled from.
type volleyEndpoint struct {
	o   options
	own bool            // the socket was opened here
	t   *quic.Transport // nil: each connection has a socket of its own, from package quic
	l   *quic.Listener
}

func newVolleyEndpoint(o options) (*volleyEndpoint, error) {
	if o.ownSocket() {
		return &volleyEndpoint{o: o}, nil
	}
	pc, own, err := o.socket()
	if err != nil {
		return nil, err
	}
	return &volleyEndpoint{o: o, own: own, t: &quic.Transport{Conn: pc}}, nil
}

func (volleyStack) listen(o options) (listener, error) {
	e, err := newVolleyEndpoint(o)
	if err != nil {
		return nil, err
	}
	if e.t == nil {
		e.l, err = quic.ListenAddr("127.0.0.1:0", o.server, volleyConfig(o))
	} else {
		e.l, err = e.t.Listen(o.server, volleyConfig(o))
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (volleyStack) client(o options) (dialer, error) { return newVolleyEndpoint(o) }

func (e *volleyEndpoint) Addr() net.Addr { return e.l.Addr() }

func (e *volleyEndpoint) accept(ctx context.Context) (conn, error) {
	c, err := e.l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return volleyConn{c}, nil
}

func (e *volleyEndpoint) dial(ctx context.Context, addr string) (conn, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	var c *quic.Conn
	if e.t == nil {
		c, err = quic.DialAddr(ctx, addr, e.o.client, volleyConfig(e.o))
	} else {
		c, err = e.t.Dial(ctx, to, e.o.client, volleyConfig(e.o))
	}
	if err != nil {
		return nil, err
	}
	return volleyConn{c}, nil
}

func (e *volleyEndpoint) close() {
	if e.l != nil {
		e.l.Close()
	}
	if e.t != nil {
		e.t.Close()
	}
	if e.own {
		e.t.Conn.Close()
	}
}

type volleyConn struct{ *quic.Conn }

func (c volleyConn) open(ctx context.Context) (stream, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c volleyConn) accept(ctx context.Context) (stream, error) {
	s, err := c.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c volleyConn) tls() tls.ConnectionState { return c.ConnectionState().TLS }

func (c volleyConn) traffic() traffic {
	s := c.ConnectionStats()
	return traffic{
		Sent: s.PacketsSent, Received: s.PacketsReceived, Lost: s.PacketsLost,
		Flights: s.Flights, FlightFilled: s.FlightDatagrams, // Volley only
	}
}

func (c volleyConn) close() { c.CloseWithError(0, "") }
