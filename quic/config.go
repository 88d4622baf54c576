package quic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/volley-quic/volley/scheduler"
)

// The defaults of Config, and its limits.
const (
	defaultHandshakeIdleTimeout = 5 * time.Second
	defaultMaxIdleTimeout       = 30 * time.Second

	defaultInitialStreamWindow     = 512 << 10
	defaultMaxStreamWindow         = 6 << 20
	defaultInitialConnectionWindow = 768 << 10
	defaultMaxConnectionWindow     = 15 << 20

	defaultIncomingStreams = 100
	maxIncomingStreams     = 1 << 60 // RFC 9000 §4.6

	minPacketSize            = 1200 // RFC 9000 §14.1
	defaultInitialPacketSize = 1280
	defaultMaxPacketSize     = 1452  // what 1500 bytes of Ethernet leave below IPv6 and UDP
	maxPacketSize            = 65507 // the largest UDP payload over IPv4
)

// CongestionControl names a congestion controller.
type CongestionControl uint8

// The congestion controllers.
const (
	CongestionCubic   CongestionControl = iota // CUBIC (RFC 9438) with HyStart++ (RFC 9406): the default
	CongestionNewReno                          // NewReno (RFC 9002 §7)
)

// Config tunes the connections of a client or a server. Its zero value, and nil,
// are the defaults. A Config must not be changed while it is in use; sizes are in
// bytes of UDP payload or stream data.
type Config struct {
	// GetConfigForClient, if set, chooses the Config for each incoming connection;
	// a nil Config means the defaults. An error refuses the connection. The
	// listener handles one new connection at a time, so it should be quick:
	// established connections do not wait for it, new ones do.
	GetConfigForClient func(info *ClientInfo) (*Config, error)

	// Versions are the QUIC versions that may be used, the preferred one first. A
	// client begins with the first. Default: [SupportedVersions].
	Versions []Version

	// HandshakeIdleTimeout is how long the peer may keep silent during the
	// handshake. The whole handshake may take twice as long. Default: 5 s.
	HandshakeIdleTimeout time.Duration

	// MaxIdleTimeout is how long the peer may keep silent after the handshake; the
	// smaller of both sides' values counts (RFC 9000 §10.1). Default: 30 s.
	MaxIdleTimeout time.Duration

	// TokenStore, if set, keeps address validation tokens for a client's next
	// connections. The key is the server's name in the tls.Config.
	TokenStore TokenStore

	// InitialStreamReceiveWindow is how far the peer may send ahead on a stream at
	// first. It grows with need, up to MaxStreamReceiveWindow. Default: 512 KiB.
	InitialStreamReceiveWindow uint64

	// MaxStreamReceiveWindow bounds a stream's receive window. Default: 6 MiB.
	MaxStreamReceiveWindow uint64

	// InitialConnectionReceiveWindow is how far the peer may send ahead on all
	// streams together at first. It grows with need, up to
	// MaxConnectionReceiveWindow. Default: 768 KiB.
	InitialConnectionReceiveWindow uint64

	// MaxConnectionReceiveWindow bounds the connection's receive window.
	// Default: 15 MiB.
	MaxConnectionReceiveWindow uint64

	// AllowConnectionWindowIncrease, if set, is asked before a connection's receive
	// window grows by delta bytes, and may say no. It must not block and must not
	// call methods of the connection or its streams.
	AllowConnectionWindowIncrease func(conn *Conn, delta uint64) bool

	// MaxIncomingStreams is how many bidirectional streams the peer may have open
	// at a time. Default: 100; negative: none. A stream that the application has read to
	// its end, and whose last byte to the peer has left, does not count any more, unless as
	// many already wait to be acknowledged.
	MaxIncomingStreams int64

	// MaxIncomingUniStreams is how many unidirectional streams the peer may have
	// open at a time. Default: 100; negative: none.
	MaxIncomingUniStreams int64

	// RequireStreamCreditRelease makes a stream of the peer count until
	// ReleaseStreamCredit was called on it, and not only until it is over.
	RequireStreamCreditRelease bool

	// KeepAlivePeriod is after how much silence a PING is sent to keep the
	// connection from timing out; it is at most half the idle timeout. 0: never.
	KeepAlivePeriod time.Duration

	// InitialPacketSize is the size of packets before path MTU discovery, and the
	// least size it falls back to: at least 1200. Default: 1280, or 1200 where the
	// system says that 1280 is too much. A path that does not carry a size set here
	// lets the handshake fail.
	InitialPacketSize uint16

	// MaxPacketSize is the largest packet that path MTU discovery tries. More than
	// the default pays on loopback and with jumbo frames: 16376 lets the kernel
	// send four packets to the call. Default: 1452; at most 65507. Not in quic-go,
	// where it is always 1452.
	MaxPacketSize uint16

	// DisablePathMTUDiscovery keeps packets at InitialPacketSize (RFC 8899). It is
	// off anyway where the don't-fragment bit cannot be set.
	DisablePathMTUDiscovery bool

	// DisableQUICBitGreasing keeps the second bit of every packet at 1. By default, a peer
	// that knows RFC 9287, as Volley does, is told that it may be 0 as well, and is sent
	// both at random if it says the same, so that nothing on the way comes to rely on
	// it: set this where something does. (See also [Transport.ReadNonQUICPacket].) Not
	// in quic-go.
	DisableQUICBitGreasing bool

	// Allow0RTT lets a server accept 0-RTT data, and give out tickets for it. Such data
	// may be a replay (RFC 9001 §9.2). A client attempts 0-RTT with DialEarly, given a
	// tls.Config with a ClientSessionCache.
	Allow0RTT bool

	// PreferredAddresses are where the server would rather be reached than at the address
	// to which clients connect, at most one address of each family. Clients may move there
	// when the handshake is done (RFC 9000 §9.6): from an anycast address, for instance,
	// to the unicast address of the host that has answered. Connection IDs of no bytes do
	// not go with it. Of servers only. Not in quic-go, whose clients stay where they are.
	PreferredAddresses []PreferredAddress

	// EnableDatagrams offers unreliable datagrams to the peer (RFC 9221).
	EnableDatagrams bool

	// EnableStreamResetPartialDelivery offers the peer that it may reset streams with
	// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset): then Read returns the
	// bytes that the peer has marked before the [StreamError]. It is the peer's offer,
	// not this one, that lets [SendStream.SetReliableBoundary] have an effect.
	EnableStreamResetPartialDelivery bool

	// Scheduler, if set, makes the scheduler of each connection: it decides which
	// stream sends next. Default: [scheduler.New], RFC 9218. Not in quic-go.
	Scheduler func() scheduler.Scheduler

	// CongestionControl is the congestion controller. Default: CUBIC, which here gains
	// at least one datagram a round trip, as quic-go's controller does: RFC 9438 §4.3
	// would have it regain the first losses at half that pace. Not in quic-go.
	CongestionControl CongestionControl

	// Tracer, if set, makes the qlog trace of each connection; it may return nil.
	// qlog.DefaultConnectionTracer writes files to the directory that QLOGDIR names.
	// connID is the Destination Connection ID of the client's first packet, and ctx
	// what the connection's context is derived from. To the events of package qlog
	// come those of [QlogEventSchema].
	//
	// RecordEvent is called with the connection locked, so it must not call methods
	// of the connection or its streams, and while it takes its time the connection
	// waits. The recorder is closed before the connection's end is told, or, if this
	// side ends it, when the peer has been told.
	Tracer func(ctx context.Context, isClient bool, connID ConnectionID) qlogwriter.Trace
}

// A PreferredAddress is an address of a server's to which it asks clients to move, see
// [Config].
type PreferredAddress struct {
	// Addr is the address and port as clients see them.
	Addr netip.AddrPort

	// Transport is the one at whose socket packets to Addr arrive, if it is not the
	// listener's own. It may have a listener of its own or none, must have connection IDs
	// of the same length, and should have the same StatelessResetKey. Connections that have
	// moved there are its own from then on: they end when it is closed, and go on when the
	// listener's is.
	//
	// Without one, the listener's socket has to be bound to no particular address and to
	// tell at which one a packet arrived: a *[net.UDPConn] does, on Linux.
	Transport *Transport
}

// Clone returns a copy. What its fields point to is shared.
func (c *Config) Clone() *Config {
	d := *c
	return &d
}

// validate reports what populate cannot put right. c may be nil.
func (c *Config) validate() error {
	if c == nil {
		return nil
	}
	for _, v := range c.Versions {
		if !slices.Contains(supportedVersions, v) {
			return fmt.Errorf("invalid QUIC version: %s", v)
		}
	}
	if c.CongestionControl > CongestionNewReno {
		return fmt.Errorf("quic: no congestion controller has the number %d", c.CongestionControl)
	}
	return nil
}

// populate returns a copy with defaults for what is not set, and every value
// within its limits. c may be nil. InitialPacketSize stays 0 if not set, which
// tells a size that may be reduced to 1200 from one that may not; read it with
// initialPacketSize.
func (c *Config) populate() *Config {
	p := &Config{}
	if c != nil {
		p = c.Clone()
	}
	if len(p.Versions) == 0 {
		p.Versions = supportedVersions
	}
	setDefault(&p.HandshakeIdleTimeout, defaultHandshakeIdleTimeout)
	setDefault(&p.MaxIdleTimeout, defaultMaxIdleTimeout)

	setDefault(&p.InitialStreamReceiveWindow, defaultInitialStreamWindow)
	setDefault(&p.MaxStreamReceiveWindow, defaultMaxStreamWindow)
	setDefault(&p.InitialConnectionReceiveWindow, defaultInitialConnectionWindow)
	setDefault(&p.MaxConnectionReceiveWindow, defaultMaxConnectionWindow)
	// Flow control values travel as varints (RFC 9000 §16).
	p.MaxStreamReceiveWindow = min(p.MaxStreamReceiveWindow, quicvarint.Max)
	p.MaxConnectionReceiveWindow = min(p.MaxConnectionReceiveWindow, quicvarint.Max)
	p.InitialStreamReceiveWindow = min(p.InitialStreamReceiveWindow, quicvarint.Max)
	p.InitialConnectionReceiveWindow = min(p.InitialConnectionReceiveWindow, quicvarint.Max)

	setDefault(&p.MaxIncomingStreams, defaultIncomingStreams)
	setDefault(&p.MaxIncomingUniStreams, defaultIncomingStreams)
	p.MaxIncomingStreams = min(max(p.MaxIncomingStreams, 0), maxIncomingStreams)
	p.MaxIncomingUniStreams = min(max(p.MaxIncomingUniStreams, 0), maxIncomingStreams)

	setDefault(&p.MaxPacketSize, defaultMaxPacketSize)
	p.MaxPacketSize = min(max(p.MaxPacketSize, minPacketSize), maxPacketSize)
	if p.InitialPacketSize != 0 {
		p.InitialPacketSize = min(max(p.InitialPacketSize, minPacketSize), p.MaxPacketSize)
	}
	return p
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// initialPacketSize is the packet size to begin with, in bytes.
func (c *Config) initialPacketSize() int {
	if c.InitialPacketSize == 0 {
		return min(defaultInitialPacketSize, int(c.MaxPacketSize))
	}
	return int(c.InitialPacketSize)
}

// handshakeTimeout is how long the handshake may take as a whole. A Retry token
// is good for as long.
func (c *Config) handshakeTimeout() time.Duration { return 2 * c.HandshakeIdleTimeout }
