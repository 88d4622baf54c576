// # Coming from quic-go
//
// An application that is written for github.com/quic-go/quic-go v0.65.0 changes the
// import path and is built again:
//
//	import "github.com/volley-quic/volley/quic" // was "github.com/quic-go/quic-go"
//
// A test compares every exported name and its type with quic-go's. Another one builds
// the same applications on both stacks with only that line changed, and lets clients and
// servers of both kinds talk to each other. What a compiler may stumble over:
//
//   - [Config] and [ConnectionStats] have more fields, so that a literal needs keys.
//   - Types of the two packages are different types, except [ConnectionID], [Version],
//     [StreamID], [TransportErrorCode] and [ApplicationErrorCode], which are the ones that
//     quic-go's package qlog exports. A function that takes a *quic.Conn takes that of one
//     package. Errors are looked for with errors.As and the types of this package.
//   - Packages qlog, qlogwriter and quicvarint of quic-go are used as before.
//
// # What cannot move yet
//
// Code that uses quic-go's package http3 stays on quic-go, and so does what is built on
// http3, such as webtransport-go. http3 takes and returns quic-go's own Conn, Stream,
// Transport and Config, and Volley's are other types. It would have to be compiled
// against this package: by a copy of http3 with its import changed, or by a build that
// replaces the module quic-go as a whole. Neither is provided yet. Such code can have
// emission in volleys on quic-go's streams: see package quic/quicgo, which also converts
// between the two packages' Config.
//
// # What behaves differently
//
// A program in testdata/swap/behaviour asks some eighty things of both stacks: when
// calls return and with what, which error of which type and text, what the peer sees,
// what the defaults are. These are the rows whose answers differ. A test holds that
// there are no others.
//
//   - "write returns": quic-go's Write returns when at most one packet of it is unsent.
//     Volley's returns when what is unsent fits the write buffer of 64 KiB, so that the
//     next flight is there when the last one has left. SetWriteBuffer(0, 0) gives
//     quic-go's rule.
//   - "write deadline, n": as a consequence, n may count up to 64 KiB more when a
//     deadline strikes. On both stacks bytes that are counted go, and byte n and later
//     never do: p[n:] can be written again. With SetWriteBuffer(0, 0), n is the same.
//   - "WriteWithLimit, calls of the limiter": quic-go asks the limiter for every packet,
//     with its flow control locked. Volley asks once for a pass of up to ten packets, in
//     the goroutine of the caller and with nothing locked, so that the limiter may call
//     methods. What it granted stays granted, also if the pass is dropped or lost.
//   - "Close after CancelWrite": on both stacks an error. Volley's is the [StreamError],
//     each time; quic-go's has no type, and a second Close returns nil.
//   - "the text of a deadline's error": errors.Is(err, os.ErrDeadlineExceeded) and
//     Timeout() are true on both. Volley returns os.ErrDeadlineExceeded itself, whose
//     text is "i/o timeout"; quic-go's text is "deadline exceeded".
//   - "Peek beyond the window": Peek of more bytes than the peer has credit for waits for
//     ever on quic-go. Volley gives the peer credit for them, up to
//     Config.MaxStreamReceiveWindow.
//   - "reset after all bytes have arrived, unread": Volley delivers the bytes and io.EOF,
//     as RFC 9000 §3.2 allows; quic-go drops them and returns the [StreamError].
//   - "the largest datagram": at the same packet size some bytes more fit, as Volley
//     reckons with the connection ID in use and not with the longest one.
//   - "Accept's queue": connections that nobody accepts yet are refused from the 33rd on by
//     quic-go, from the 129th on by Volley.
//   - "ReadNonQUICPacket after Close" returns [ErrTransportClosed], as all other methods of
//     the [Transport] do; quic-go's error has no type.
//
// # What is the same, though one might ask
//
//   - CloseWithError does not wait for bytes that are unsent or unacknowledged: the peer's
//     streams end with an [ApplicationError]. Calls that wait return it, too.
//   - CancelWrite drops what is unsent, but for what [SendStream.SetReliableBoundary] has
//     marked, if the peer offers RESET_STREAM_AT. The final size is what was sent once.
//   - The cause of a stream's context is [ErrStreamClosed] after Close, the [StreamError]
//     after CancelWrite or a STOP_SENDING of the peer, and else the connection's error;
//     what came first counts.
//   - Close after Close returns nil. Close while a Write waits lets the Write finish.
//   - TryWriteAll takes all or nothing, against the peer's credit for the stream and the
//     connection, and no matter how much is unsent; unless a high watermark was set with
//     SetWriteBuffer, which counts as well.
//   - A stream that the peer has stopped counts until the application has heard of it:
//     MaxIncomingStreams bounds the handlers that work at a time.
//   - Default limits, windows and timeouts.
//   - [Transport.ReadNonQUICPacket] gets what has neither of the first two bits. With peers
//     that know RFC 9287 Volley does without the second, though, unless the method was
//     called before the connection was made: where it is in use, call it first.
//   - GODEBUG=fips140=on and fips140=only: as with quic-go, packets are protected by the
//     AES-GCM of the FIPS 140-3 module, and ChaCha20 is not used.
//
// # What is new
//
// For the sender of much data:
//
//   - [SendStream.SendFrom] and [SendStream.ReadFrom] take the bytes from a source, one
//     call for up to ten packets; io.Copy to a stream comes to ReadFrom by itself.
//     [SendStream.SetEmission], [SendStream.EmissionStats] and [SendStream.Ready] go with
//     them, and package emit tells the rules.
//   - [SendStream.WriteBuffers] writes many pieces without joining them, and
//     [SendStream.WriteOwned] one piece without copying it.
//   - [SendStream.SetWriteBuffer] and [SendStream.Writable] are for writers that want to
//     know how far ahead of the network they are.
//   - [ListenUDP] opens the socket of a Transport so that bulk costs less on Linux.
//
// For the sender of little:
//
//   - [SendStream.CloseWith] sends the last bytes and the end in one frame.
//   - [SendStream.Cork] and [SendStream.Uncork] let small writes leave together.
//
// For a server behind an address that many share:
//
//   - Config.PreferredAddresses asks clients to go on at another one, a [PreferredAddress].
//     Clients of Volley's do so of their own accord, without any setting.
//
// For whoever tunes and measures:
//
//   - Config.MaxPacketSize lets path MTU discovery go beyond 1452 bytes.
//   - Config.CongestionControl chooses [CongestionCubic], the default, or
//     [CongestionNewReno], which quic-go has (the type is [CongestionControl]), and
//     Config.Scheduler who sends next.
//   - qlog is quic-go's, with events of Volley's own beside it: [QlogPassPacked],
//     [QlogSourceCalled], [QlogFlightSent] and [QlogPacketsRefused], of the schema
//     [QlogEventSchema].
//   - [Conn.SocketStats], a [SocketStats], counts system calls and what they carried;
//     ConnectionStats has Flights and FlightDatagrams.
//
// On the wire, with peers that know it, and for the application to leave alone:
//
//   - The second bit of packets is random (RFC 9287); Config.DisableQUICBitGreasing is for
//     networks that rely on that bit.
//   - Where a round trip takes 5 ms or more the peer is asked to acknowledge bulk less
//     often, and Volley acknowledges as it is asked (draft-ietf-quic-ack-frequency).
package quic
