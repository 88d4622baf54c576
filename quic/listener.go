package quic

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/volley-quic/volley/internal/udp"
)

// A Listener accepts connections whose handshake is complete.
type Listener struct{ s *server }

// Accept waits for a connection. When ctx ends, the error is ctx.Err(). After Close
// it returns the connections that are waiting, then [ErrServerClosed].
//
// A connection waits for Accept with 127 others at most; further ones are refused.
// It may be closed by the time it is accepted.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) { return l.s.accept(ctx) }

// Close stops accepting. Connections whose handshake is not complete are refused;
// established ones go on, whether they were accepted or wait for Accept. A socket
// that was opened by [ListenAddr] is closed when the last one is over.
func (l *Listener) Close() error {
	l.s.close(ErrServerClosed, false)
	return nil
}

// Addr returns the socket's address.
func (l *Listener) Addr() net.Addr { return l.s.t.Conn.LocalAddr() }

// An EarlyListener accepts connections before their handshake is complete, as soon
// as the server can send. What it sends then is encrypted, but it is not known yet
// who reads it: a client certificate, for one, has not been checked. Conn's
// HandshakeComplete tells when it is.
//
// With Config.Allow0RTT such a connection also receives data, which may be a replay.
type EarlyListener struct{ s *server }

// Accept is [Listener.Accept].
func (l *EarlyListener) Accept(ctx context.Context) (*Conn, error) { return l.s.accept(ctx) }

// Close is [Listener.Close], except that connections that are accepted or wait for
// Accept go on even if their handshake is not complete.
func (l *EarlyListener) Close() error {
	l.s.close(ErrServerClosed, false)
	return nil
}

// Addr returns the socket's address.
func (l *EarlyListener) Addr() net.Addr { return l.s.t.Conn.LocalAddr() }

// ListenAddr opens a UDP socket on addr ("host:port", ":port") and listens on it.
// The socket is closed after the listener, when the last connection is over.
// tlsConf must have a certificate and NextProtos; conf may be nil.
//
// A [Transport] can do the same with a socket of yours, and dial from it, too.
func ListenAddr(addr string, tlsConf *tls.Config, conf *Config) (*Listener, error) {
	t, err := transportOn(addr)
	if err != nil {
		return nil, err
	}
	l, err := t.Listen(tlsConf, conf)
	if err != nil {
		t.Close()
		return nil, err
	}
	return l, nil
}

// ListenAddrEarly is [ListenAddr] with [Transport.ListenEarly].
func ListenAddrEarly(addr string, tlsConf *tls.Config, conf *Config) (*EarlyListener, error) {
	t, err := transportOn(addr)
	if err != nil {
		return nil, err
	}
	l, err := t.ListenEarly(tlsConf, conf)
	if err != nil {
		t.Close()
		return nil, err
	}
	return l, nil
}

// ListenUDP is net.ListenUDP for the Conn of a [Transport]. On Linux, Go's poller watches a
// *net.UDPConn for room to send as well as for datagrams, and as every datagram that has left
// makes room, it keeps waking a processor that has nothing to do. The socket of ListenUDP is watched for datagrams only. Elsewhere there is no
// difference. [ListenAddr] and [DialAddr] open their sockets so. It is not in quic-go.
func ListenUDP(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
	return udp.Listen(network, laddr)
}

// transportOn opens a socket for a listener.
func transportOn(addr string) (*Transport, error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	pc, err := ListenUDP("udp", a)
	if err != nil {
		return nil, err
	}
	return &Transport{Conn: pc, createdConn: true, singleUse: true}, nil
}

// Listen listens on pc, as [ListenAddr] does on a socket of its own. pc is read
// until the listener is closed and the last connection is over; it is not closed.
func Listen(pc net.PacketConn, tlsConf *tls.Config, conf *Config) (*Listener, error) {
	return (&Transport{Conn: pc, singleUse: true}).Listen(tlsConf, conf)
}

// ListenEarly is [Listen] with [Transport.ListenEarly].
func ListenEarly(pc net.PacketConn, tlsConf *tls.Config, conf *Config) (*EarlyListener, error) {
	return (&Transport{Conn: pc, singleUse: true}).ListenEarly(tlsConf, conf)
}
