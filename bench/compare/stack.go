package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"time"

	"github.com/volley-quic/volley/scheduler"
)

// A stack is a transport under comparison. Everything else of this program is the
// same for all of them.
type stack interface {
	// listen opens a socket on loopback, or takes o.packets, and accepts on it.
	listen(o options) (listener, error)
	// client opens a socket, or takes o.packets, to dial from.
	client(o options) (dialer, error)
}

type listener interface {
	Addr() net.Addr
	accept(ctx context.Context) (conn, error)
	close()
}

type dialer interface {
	dial(ctx context.Context, addr string) (conn, error)
	close()
}

// conn is a connection.
type conn interface {
	open(ctx context.Context) (stream, error)
	accept(ctx context.Context) (stream, error)
	tls() tls.ConnectionState
	traffic() traffic
	close()
}

// stream is a bidirectional stream. Close ends what is sent.
type stream interface {
	io.Reader
	io.Writer
	Close() error
}

// traffic counts the packets of a connection, where a stack does.
type traffic struct {
	Sent, Received, Lost  uint64
	Flights, FlightFilled uint64 // system calls that carried packets, and how many
}

func (t traffic) since(o traffic) traffic {
	return traffic{t.Sent - o.Sent, t.Received - o.Received, t.Lost - o.Lost, t.Flights - o.Flights, t.FlightFilled - o.FlightFilled}
}

// What is the same for all stacks. TCP's windows and buffers are the kernel's
// affair (net.ipv4.tcp_rmem and tcp_wmem on Linux). The cipher is crypto/tls's choice,
// the same for all on one machine.
const (
	streamWindow    = 4 << 20 // at first, and at most
	maxStreamWindow = 16 << 20
	connWindow      = 4 << 20
	maxConnWindow   = 32 << 20
	socketBuffer    = 7 << 20 // what the QUIC stacks ask for by themselves
	writeSize       = 64 << 10
	datagramSize    = 1452
)

// options are for the stacks that have them.
type options struct {
	server, client *tls.Config
	packets        net.PacketConn // nil: a UDP socket
	shared         bool           // many connections are dialled from one socket
	maxPacket      int            // bytes; 0: datagramSize. Volley only
	streams        int            // that the peer may open at a time; 0: 100
	idleTimeout    time.Duration  // 0: one minute

	scheduler func() scheduler.Scheduler // Volley only
}

func (o options) maxStreams() int64 {
	if o.streams > 0 {
		return int64(o.streams)
	}
	return 100
}

func (o options) idle() time.Duration {
	if o.idleTimeout > 0 {
		return o.idleTimeout
	}
	return time.Minute
}

// ownSocket reports whether package quic opens the socket, as for most applications:
// ListenAddr and DialAddr. Many connections of one client share one that is opened here.
func (o options) ownSocket() bool { return o.packets == nil && !o.shared }

// socket is o's PacketConn, or a fresh socket on loopback; own says which.
func (o options) socket() (pc net.PacketConn, own bool, err error) {
	if o.packets != nil {
		return o.packets, false, nil
	}
	pc, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return pc, true, err
}

// stacks by name.
var stacks = map[string]stack{
	"volley":  volleyStack{},
	"quic-go": quicgoStack{},
	"x/net":   xnetStack{},
	"tcp":     tcpStack{},
}
