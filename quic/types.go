package quic

import (
	"context"
	"net"
	"slices"
	"syscall"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/wire"
)

// A Version is a QUIC version number.
type Version = qlog.Version

// The versions Volley speaks.
const (
	Version1 Version = Version(wire.Version1) // RFC 9000
	Version2 Version = Version(wire.Version2) // RFC 9369
)

// supportedVersions is in order of preference.
var supportedVersions = []Version{Version1, Version2}

// SupportedVersions returns the versions a connection may use when
// Config.Versions is empty, the preferred one first.
func SupportedVersions() []Version { return slices.Clone(supportedVersions) }

// A StreamID is the number of a stream (RFC 9000 §2.1).
type StreamID = qlog.StreamID

// A TokenGeneratorKey encrypts the tokens with which clients prove their address
// (RFC 9000 §8.1).
type TokenGeneratorKey [32]byte

// A StatelessResetKey is what stateless reset tokens are derived from
// (RFC 9000 §10.3.2).
type StatelessResetKey [32]byte

// A ConnectionIDGenerator makes the connection IDs of a [Transport], for instance
// so that a load balancer can route by them. It is called by several goroutines
// at once.
type ConnectionIDGenerator interface {
	// GenerateConnectionID returns a new connection ID. It must differ from all
	// others in use, and must not let an observer link it to them (RFC 9000 §5.1).
	GenerateConnectionID() (ConnectionID, error)

	// ConnectionIDLen is the length of every ID generated, in bytes, 0 to 20.
	// With 0, the socket can serve one connection only.
	ConnectionIDLen() int
}

// An OOBCapablePacketConn is a [net.PacketConn] as *[net.UDPConn] implements it:
// one that lets Volley see the socket below, for GSO, GRO, ECN and the like.
type OOBCapablePacketConn interface {
	net.PacketConn
	SyscallConn() (syscall.RawConn, error)
	SetReadBuffer(int) error
	ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error)
	WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)
}

var _ OOBCapablePacketConn = (*net.UDPConn)(nil)

// ClientInfo is what a server knows of a client when its first packet arrives.
type ClientInfo struct {
	// RemoteAddr is where the packet says it comes from. Unless AddrVerified is
	// set, it may be forged.
	RemoteAddr net.Addr
	// AddrVerified says that the client proved its address with a token: after a
	// Retry, or from an earlier connection (RFC 9000 §8.1).
	AddrVerified bool
}

type contextKey struct{ name string }

func (k *contextKey) String() string { return "quic context value: " + k.name }

// QUICVersionContextKey finds the connection's [Version] in the contexts that
// crypto/tls hands to its callbacks ([tls.ClientHelloInfo.Context] and the like), and
// in those of connections and streams.
var QUICVersionContextKey any = &contextKey{"version"}

func withVersion(ctx context.Context, v Version) context.Context {
	return context.WithValue(ctx, QUICVersionContextKey, v)
}
