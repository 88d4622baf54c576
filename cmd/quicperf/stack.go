package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"
)

// A stack is a transport under test. It is all of this program that differs
// between contestants, so that a comparison compares the stacks.
type stack interface {
	Listen(addr string, conf *tls.Config, n netOptions) (listener, error)
	Dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, n netOptions) (conn, error)
}

// listener accepts connections until it is closed, which ends them too.
type listener interface {
	Addr() net.Addr
	Accept(ctx context.Context) (conn, error)
	Close() error
}

// conn is a connection; its methods may be called from several goroutines.
type conn interface {
	OpenStream(ctx context.Context) (stream, error)
	AcceptStream(ctx context.Context) (stream, error)
	TLS() tls.ConnectionState
	RemoteAddr() net.Addr
	Done() <-chan struct{} // closed when the connection is over
	Counters() counters
	CloseWithError(code uint64, reason string) error
}

// stream is a bidirectional stream. CloseWrite ends the sending half.
type stream interface {
	io.Reader
	io.Writer
	CloseWrite() error
}

// emitter is a stream that asks a source for the bytes to send.
type emitter interface {
	// Emit sends n bytes of src from off on, and ends the sending half.
	Emit(ctx context.Context, src io.ReaderAt, off, n int64, e emission) error
	// EmissionStats may be called at any time.
	EmissionStats() emissionStats
}

// emission is how a stream asks.
type emission struct {
	mode         string // one of emissions
	maxDatagrams int
}

// emissionStats count what a stream asked its source; sums over streams.
type emissionStats struct {
	Mode           string `json:"mode"`
	Calls          uint64 `json:"calls"`
	Datagrams      uint64 `json:"datagrams"` // slots that were filled
	Bytes          uint64 `json:"bytes"`
	Fallbacks      uint64 `json:"fallbacks"`
	FallbackReason string `json:"fallback_reason,omitempty"`
}

func (s *emissionStats) add(o emissionStats) {
	s.Mode = o.Mode
	s.Calls += o.Calls
	s.Datagrams += o.Datagrams
	s.Bytes += o.Bytes
	s.Fallbacks += o.Fallbacks
	if o.FallbackReason != "" {
		s.FallbackReason = o.FallbackReason
	}
}

// socketStats count what a connection's UDP socket did.
type socketStats struct {
	Sends          uint64 `json:"sends"`           // sendmsg calls
	Datagrams      uint64 `json:"datagrams"`       // datagrams they carried
	SegmentedSends uint64 `json:"segmented_sends"` // those with more than one
	CoalescedReads uint64 `json:"coalesced_reads"` // reads that gave more than one
}

// counters only grow; nil where a stack does not count.
type counters struct {
	socket *socketStats
	lost   *uint64 // bytes declared lost and sent again
}

// since returns how much c grew after start.
func (c counters) since(start counters) counters {
	var d counters
	if c.socket != nil && start.socket != nil {
		a, b := c.socket, start.socket
		d.socket = &socketStats{
			Sends:          a.Sends - b.Sends,
			Datagrams:      a.Datagrams - b.Datagrams,
			SegmentedSends: a.SegmentedSends - b.SegmentedSends,
			CoalescedReads: a.CoalescedReads - b.CoalescedReads,
		}
	}
	if c.lost != nil && start.lost != nil {
		// A loss can turn out to be none, so the count may also have shrunk.
		n := uint64(max(0, int64(*c.lost-*start.lost)))
		d.lost = &n
	}
	return d
}

// netOptions are for the stacks that can use them.
type netOptions struct {
	maxPacketSize int // bytes of UDP payload; 0: the stack's own default
}

// The same for every stack, so that none has an advantage. The kernel sizes
// TCP's windows itself and has its own maximum (net.ipv4.tcp_rmem and
// tcp_wmem on Linux); the QUIC stacks ask for socket buffers themselves, both
// for the same 7 MiB. The cipher is crypto/tls's choice for TLS 1.3, the same
// for all on the same machines, and the result names it.
const (
	initialWindow    = 4 << 20  // of streams and connections, bytes
	maxStreamWindow  = 16 << 20 // bytes
	maxConnWindow    = 32 << 20 // bytes
	writeSize        = 64 << 10 // bytes of one Write
	keepAlivePeriod  = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)

// stacks by name. A stack adds itself in its file's init.
var stacks = make(map[string]stack)

func stackNames() []string { return slices.Sorted(maps.Keys(stacks)) }

// Failures every stack has, for which quicperf has its own words.
var (
	errNoAnswer = errors.New("no answer")
	errRefused  = errors.New("nothing listens on that TCP port: is a quicperf server running there, with -stack tcp?")
)

// tlsError means that the handshake was refused by either side.
type tlsError struct {
	remote bool
	noALPN bool // no protocol in common
	text   string
}

func (e *tlsError) Error() string {
	if e.noALPN {
		return "TLS refused: no protocol in common, so this is no quicperf server"
	}
	if e.remote {
		return "TLS refused by the other side: " + e.text
	}
	return "TLS refused: " + e.text
}

// alertNoALPN is TLS's no_application_protocol (RFC 7301 §3.2).
const alertNoALPN = 120

// closedError means that the other side ended the connection on purpose.
type closedError struct{ reason string }

func (e *closedError) Error() string {
	if e.reason == "" {
		return "the other side ended the connection"
	}
	return fmt.Sprintf("the other side ended the connection: %s", e.reason)
}
