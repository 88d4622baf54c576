package quic

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/quic-go/quic-go/qlogwriter"
)

// ConnectionState is what is known of a connection.
type ConnectionState struct {
	// TLS is the state of the handshake.
	TLS tls.ConnectionState
	// SupportsDatagrams says which side takes DATAGRAM frames (RFC 9221).
	SupportsDatagrams struct{ Remote, Local bool }
	// SupportsStreamResetPartialDelivery says which side takes RESET_STREAM_AT frames.
	SupportsStreamResetPartialDelivery struct{ Remote, Local bool }
	// RequireStreamCreditRelease is Config.RequireStreamCreditRelease.
	RequireStreamCreditRelease bool
	// Used0RTT says whether 0-RTT data was accepted.
	Used0RTT bool
	// Version is the QUIC version in use.
	Version Version
	// GSO says whether several datagrams may leave in one system call.
	GSO bool
}

// ConnectionStats are counters and measures of a connection. Sizes are bytes of UDP
// payload.
type ConnectionStats struct {
	MinRTT        time.Duration // the smallest round-trip time seen
	LatestRTT     time.Duration // the latest sample
	SmoothedRTT   time.Duration // RFC 9002 §5.3
	MeanDeviation time.Duration // RFC 9002 §5.3, rttvar

	CongestionWindow uint64

	BytesSent       uint64
	PacketsSent     uint64
	BytesReceived   uint64
	PacketsReceived uint64
	BytesLost       uint64 // declared lost; what arrives late counts all the same
	PacketsLost     uint64

	// Flights is how many system calls carried 1-RTT packets, and FlightDatagrams
	// their datagrams. Not in quic-go.
	Flights, FlightDatagrams uint64
}

// ConnectionState returns the connection's state. Before the handshake is complete its
// TLS part has what is known so far.
func (c *Conn) ConnectionState() ConnectionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := ConnectionState{
		TLS:                        c.tlsState,
		RequireStreamCreditRelease: c.config.RequireStreamCreditRelease,
		Version:                    c.version,
		Used0RTT:                   c.complete && (c.zeroRTT.offered && !c.zeroRTT.rejected || c.zeroRTT.opener != nil),
		GSO:                        c.paths.active.transport.udpConn().CanGSO() && c.paths.active.route.GSO(),
	}
	s.SupportsDatagrams.Local = c.config.EnableDatagrams
	s.SupportsStreamResetPartialDelivery.Local = c.config.EnableStreamResetPartialDelivery
	if c.params != nil {
		s.SupportsDatagrams.Remote = c.params.MaxDatagramFrame > 0
		s.SupportsStreamResetPartialDelivery.Remote = c.params.ResetStreamAt
	}
	return s
}

// ConnectionStats returns the counters as they stand.
func (c *Conn) ConnectionStats() ConnectionStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	if rtt := c.rec.RTT(); rtt.Has {
		s.MinRTT, s.LatestRTT, s.SmoothedRTT, s.MeanDeviation = rtt.Min, rtt.Latest, rtt.Smoothed, rtt.Var
	}
	s.CongestionWindow = uint64(c.cc.Window())
	r, x := c.rec.Stats(), c.snd.Stats()
	s.BytesLost, s.PacketsLost = r.BytesLost, r.PacketsLost
	s.BytesSent += x.Bytes
	s.PacketsSent += x.Datagrams
	s.Flights, s.FlightDatagrams = x.Flights, x.Datagrams
	return s
}

// Context ends when the connection is over; its cause says why.
func (c *Conn) Context() context.Context { return c.ctx }

// HandshakeComplete returns a channel that is closed when the handshake is complete,
// or has failed: then [Conn.Context] is done as well.
func (c *Conn) HandshakeComplete() <-chan struct{} { return c.handshakeDone }

// LocalAddr returns the address of the socket in use.
func (c *Conn) LocalAddr() net.Addr { return c.addrs.Load().local }

// RemoteAddr returns the peer's address: the one that is in use now, as clients move.
func (c *Conn) RemoteAddr() net.Addr { return c.addrs.Load().remote }

// QlogTrace returns the trace that [Config.Tracer] made for the connection, nil if there is
// none. The connection's own events come from a producer of its own, which it closes when
// it is over.
func (c *Conn) QlogTrace() qlogwriter.Trace {
	if c.qlog == nil {
		return nil
	}
	return c.qlog.trace
}

// SocketStats counts what went through the connection's socket, which it may share with
// other connections of its [Transport].
type SocketStats struct {
	Sends             uint64 // system calls that sent
	SentDatagrams     uint64
	SegmentedSends    uint64 // of Sends, those with more than one datagram (GSO)
	Reads             uint64 // messages received
	ReceivedDatagrams uint64
	CoalescedReads    uint64 // of Reads, those with more than one datagram (GRO)
}

// SocketStats returns the counters of the connection's socket. Not in quic-go.
func (c *Conn) SocketStats() SocketStats {
	c.mu.Lock()
	u := c.paths.active.transport.udpConn()
	c.mu.Unlock()
	s := u.Stats()
	return SocketStats{
		Sends: s.Sends, SentDatagrams: s.SentDatagrams, SegmentedSends: s.SegmentedSends,
		Reads: s.Reads, ReceivedDatagrams: s.ReceivedDatagrams, CoalescedReads: s.CoalescedReads,
	}
}
