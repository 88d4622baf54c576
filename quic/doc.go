// Package quic is Volley's QUIC (RFC 9000): the same names, with the same
// meaning, as the root package of github.com/quic-go/quic-go v0.65.0, on a send
// engine that works in volleys (package emit says what that means for a sender).
//
// An application moves by changing one import path:
//
//	import quic "github.com/volley-quic/volley/quic"
//
// # Endpoints
//
// A [Transport] is one UDP socket that carries any number of connections, dialed
// and accepted, told apart by connection ID. [ListenAddr] and [DialAddr] are the
// short way: they open a socket, and close it when nobody needs it any more.
// [Config] tunes connections; nil is a good one.
//
// # What it speaks
//
// QUIC versions 1 and 2 (RFC 9000, RFC 9369) with TLS 1.3 (RFC 9001), loss recovery (RFC
// 9002) with CUBIC or NewReno (Config.CongestionControl), datagrams (RFC 9221), streams
// that are reset but for their beginning (RESET_STREAM_AT, see
// [SendStream.SetReliableBoundary]), preferred addresses (Config.PreferredAddresses),
// greasing of the QUIC bit (RFC 9287), and ACK frequency (draft-ietf-quic-ack-frequency).
// It does not have compatible version negotiation (RFC 9368) and HTTP/3.
//
// # Errors
//
// What ends a connection is one of [ApplicationError], [TransportError],
// [IdleTimeoutError], [HandshakeTimeoutError], [StatelessResetError],
// [VersionNegotiationError] and [ErrTransportClosed]; every blocked call on it
// returns that error, and errors.Is(err, net.ErrClosed) holds for all of them.
// A [StreamError] ends one stream only.
//
// # Concurrency
//
// Everything may be called from any goroutine at any time, unless its comment
// says otherwise. Callbacks are never run by the goroutine that reads the socket.
package quic
