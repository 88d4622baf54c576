// Package wire reads and writes what QUIC puts on the wire: packet headers
// (RFC 9000 §17, RFC 8999, RFC 9369 §3.2), frames (§19), transport parameters
// (§18) and the transport error codes (§20.1).
//
// The package keeps no state. Every function may be called from any goroutine;
// parsed values alias the bytes they were parsed from, unless it is said that
// they are copied.
//
// Two kinds of errors come out of the parsers. The frame and transport
// parameter parsers see authenticated bytes, so what they find wrong ends the
// connection: they return an *Error with the code to put into CONNECTION_CLOSE.
// The header parsers see bytes that anybody can have sent, so what they find
// wrong is dropped in silence: they return ErrInvalidHeader.
//
// What can only be judged with the connection's state (stream states, limits,
// the sender's role, extensions that were not negotiated) is left to the caller.
package wire
