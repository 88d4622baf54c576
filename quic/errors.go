package quic

import (
	"errors"
	"fmt"
	"net"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/wire"
)

// TransportErrorCode is a transport error code (RFC 9000 §20.1).
type TransportErrorCode = qlog.TransportErrorCode

// ApplicationErrorCode is an error code whose meaning the application defines
// (RFC 9000 §20.2). It ends a connection.
type ApplicationErrorCode = qlog.ApplicationErrorCode

// StreamErrorCode is an error code whose meaning the application defines
// (RFC 9000 §20.2). It ends one direction of a stream.
type StreamErrorCode uint64

// The transport error codes of RFC 9000 §20.1.
const (
	NoError                   TransportErrorCode = 0x00
	InternalError             TransportErrorCode = 0x01
	ConnectionRefused         TransportErrorCode = 0x02
	FlowControlError          TransportErrorCode = 0x03
	StreamLimitError          TransportErrorCode = 0x04
	StreamStateError          TransportErrorCode = 0x05
	FinalSizeError            TransportErrorCode = 0x06
	FrameEncodingError        TransportErrorCode = 0x07
	TransportParameterError   TransportErrorCode = 0x08
	ConnectionIDLimitError    TransportErrorCode = 0x09
	ProtocolViolation         TransportErrorCode = 0x0a
	InvalidToken              TransportErrorCode = 0x0b
	ApplicationErrorErrorCode TransportErrorCode = 0x0c
	CryptoBufferExceeded      TransportErrorCode = 0x0d
	KeyUpdateError            TransportErrorCode = 0x0e
	AEADLimitReached          TransportErrorCode = 0x0f
	NoViablePathError         TransportErrorCode = 0x10
)

// Err0RTTRejected is returned by calls on a connection and its streams whose
// 0-RTT the server rejected: nothing that was sent has been looked at.
// [Conn.NextConnection] makes the connection usable again.
var Err0RTTRejected = errors.New("0-RTT rejected")

// ErrStreamClosed is returned by writes that follow SendStream.Close, and is the
// cause of the stream's context then.
var ErrStreamClosed = errors.New("stream closed")

// ErrWouldBlock is returned by SendStream.TryWriteAll when it cannot take all
// bytes at once.
var ErrWouldBlock = errors.New("operation would block")

// ErrWriteLimitReached is returned by SendStream.WriteWithLimit when its limiter
// held back part of the bytes.
var ErrWriteLimitReached = errors.New("write limit reached")

// ErrPathClosed is returned by [Path.Probe] and [Path.Switch] after [Path.Close].
var ErrPathClosed = errors.New("path closed")

// ErrPathNotValidated is returned by [Path.Switch] before the path was validated
// (RFC 9000 §8.2).
var ErrPathNotValidated = errors.New("path not yet validated")

// ErrServerClosed is returned by Accept once the listener is closed and its queue
// is empty. It wraps [net.ErrClosed].
var ErrServerClosed error = errServerClosed{}

type errServerClosed struct{}

func (errServerClosed) Error() string { return "quic: server closed" }
func (errServerClosed) Unwrap() error { return net.ErrClosed }

// ErrTransportClosed is returned by a [Transport] after Transport.Close, and ends
// the connections it had. Compare with [errors.Is]: when the socket failed, the
// error returned wraps that failure too. It wraps [net.ErrClosed].
var ErrTransportClosed error = &errTransportClosed{}

type errTransportClosed struct {
	err error // what made the socket unusable; nil after Transport.Close
}

func (e *errTransportClosed) Error() string {
	if e.err == nil {
		return "quic: transport closed"
	}
	return "quic: transport closed: " + e.err.Error()
}

func (e *errTransportClosed) Unwrap() []error {
	if e.err == nil {
		return []error{net.ErrClosed}
	}
	return []error{net.ErrClosed, e.err}
}

func (e *errTransportClosed) Is(target error) bool {
	_, ok := target.(*errTransportClosed)
	return ok
}

// A TransportError ends a connection: one side broke the protocol, or refused
// (RFC 9000 §11.1). It wraps [net.ErrClosed] and, for a failed handshake, the
// error of crypto/tls.
type TransportError struct {
	Remote       bool   // the peer closed the connection
	FrameType    uint64 // the frame that was wrong; 0: none, or unknown
	ErrorCode    TransportErrorCode
	ErrorMessage string // the reason phrase; may be empty
	err          error  // the cause, if it was found here; may be nil
}

// Error says code, side, frame and reason in one line.
func (e *TransportError) Error() string {
	s := fmt.Sprintf("%s (%s)", e.ErrorCode, side(e.Remote))
	if e.FrameType != 0 {
		s += fmt.Sprintf(" (frame type: %#x)", e.FrameType)
	}
	reason := e.ErrorMessage
	if reason == "" && e.err != nil {
		reason = e.err.Error()
	}
	if reason == "" {
		reason = e.ErrorCode.Message()
	}
	if reason != "" {
		s += ": " + reason
	}
	return s
}

// Is reports whether target is a *TransportError of the same code, frame type and
// side; the reason does not matter.
func (e *TransportError) Is(target error) bool {
	t, ok := target.(*TransportError)
	return ok && e.ErrorCode == t.ErrorCode && e.FrameType == t.FrameType && e.Remote == t.Remote
}

// Unwrap returns [net.ErrClosed] and the cause.
func (e *TransportError) Unwrap() []error {
	if e.err == nil {
		return []error{net.ErrClosed}
	}
	return []error{net.ErrClosed, e.err}
}

// transportError turns an error found on our side into the one the application
// sees. A *wire.Error keeps its code; anything else is our own fault.
func transportError(err error) *TransportError {
	var t *TransportError
	if errors.As(err, &t) {
		return t
	}
	var w *wire.Error
	if !errors.As(err, &w) {
		return &TransportError{ErrorCode: InternalError, ErrorMessage: err.Error(), err: err}
	}
	return &TransportError{
		FrameType:    w.FrameType,
		ErrorCode:    TransportErrorCode(w.Code),
		ErrorMessage: w.Reason,
		err:          w.Err,
	}
}

// An ApplicationError ends a connection: one of the applications called
// Conn.CloseWithError (RFC 9000 §10.2). It wraps [net.ErrClosed].
type ApplicationError struct {
	Remote       bool // the peer closed the connection
	ErrorCode    ApplicationErrorCode
	ErrorMessage string // may be empty
}

// Error says code, side and message in one line.
func (e *ApplicationError) Error() string {
	s := fmt.Sprintf("Application error %#x (%s)", uint64(e.ErrorCode), side(e.Remote))
	if e.ErrorMessage != "" {
		s += ": " + e.ErrorMessage
	}
	return s
}

// Is reports whether target is an *ApplicationError of the same code and side.
func (e *ApplicationError) Is(target error) bool {
	t, ok := target.(*ApplicationError)
	return ok && e.ErrorCode == t.ErrorCode && e.Remote == t.Remote
}

// Unwrap returns [net.ErrClosed].
func (e *ApplicationError) Unwrap() error { return net.ErrClosed }

// An IdleTimeoutError ends a connection on which nothing arrived for too long
// (RFC 9000 §10.1). It is a [net.Error] whose Timeout is true.
type IdleTimeoutError struct{}

func (*IdleTimeoutError) Error() string   { return "timeout: no recent network activity" }
func (*IdleTimeoutError) Timeout() bool   { return true }
func (*IdleTimeoutError) Temporary() bool { return false }

// Is reports whether target is an *IdleTimeoutError.
func (*IdleTimeoutError) Is(target error) bool {
	_, ok := target.(*IdleTimeoutError)
	return ok
}

// Unwrap returns [net.ErrClosed].
func (*IdleTimeoutError) Unwrap() error { return net.ErrClosed }

// A HandshakeTimeoutError ends a connection whose handshake took too long. It is
// a [net.Error] whose Timeout is true.
type HandshakeTimeoutError struct{}

func (*HandshakeTimeoutError) Error() string {
	return "timeout: handshake did not complete in time"
}
func (*HandshakeTimeoutError) Timeout() bool   { return true }
func (*HandshakeTimeoutError) Temporary() bool { return false }

// Is reports whether target is a *HandshakeTimeoutError.
func (*HandshakeTimeoutError) Is(target error) bool {
	_, ok := target.(*HandshakeTimeoutError)
	return ok
}

// Unwrap returns [net.ErrClosed].
func (*HandshakeTimeoutError) Unwrap() error { return net.ErrClosed }

// A StatelessResetError ends a connection that the peer no longer knows, because
// it was restarted or because packets take another way (RFC 9000 §10.3). It is a
// [net.Error], no timeout, but temporary: dialing again may well succeed.
type StatelessResetError struct{}

func (*StatelessResetError) Error() string   { return "received a stateless reset" }
func (*StatelessResetError) Timeout() bool   { return false }
func (*StatelessResetError) Temporary() bool { return true }

// Is reports whether target is a *StatelessResetError.
func (*StatelessResetError) Is(target error) bool {
	_, ok := target.(*StatelessResetError)
	return ok
}

// Unwrap returns [net.ErrClosed].
func (*StatelessResetError) Unwrap() error { return net.ErrClosed }

// A VersionNegotiationError says that client and server have no QUIC version in
// common (RFC 9000 §6.2). Only clients see it.
type VersionNegotiationError struct {
	Ours   []Version
	Theirs []Version
}

// Error lists both sides' versions.
func (e *VersionNegotiationError) Error() string {
	return fmt.Sprintf("no compatible QUIC version found (we support %s, server offered %s)", e.Ours, e.Theirs)
}

// Unwrap returns [net.ErrClosed].
func (e *VersionNegotiationError) Unwrap() error { return net.ErrClosed }

// A StreamError says that one direction of a stream was cancelled: reading by
// CancelRead here or CancelWrite there, writing the other way round.
type StreamError struct {
	StreamID  StreamID
	ErrorCode StreamErrorCode
	Remote    bool // the peer cancelled it
}

// Error says stream, side and code in one line.
func (e *StreamError) Error() string {
	return fmt.Sprintf("stream %d canceled by %s with error code %d", e.StreamID, side(e.Remote), e.ErrorCode)
}

// Is reports whether target is a *StreamError with the same fields.
func (e *StreamError) Is(target error) bool {
	t, ok := target.(*StreamError)
	return ok && *e == *t
}

// A *StreamLimitReachedError is returned by OpenStream and OpenUniStream while the
// peer allows no further stream (RFC 9000 §4.6); the Sync variants wait instead.
type StreamLimitReachedError struct{}

func (StreamLimitReachedError) Error() string { return "too many open streams" }

// errStreamLimit is a pointer, as in quic-go: that is what applications look for.
var errStreamLimit error = &StreamLimitReachedError{}

// A DatagramTooLargeError is returned by SendDatagram for a payload that does not
// fit into a packet, or that the peer does not take (RFC 9221 §3, §5).
type DatagramTooLargeError struct {
	MaxDatagramPayloadSize int64 // bytes that would fit now
}

func (*DatagramTooLargeError) Error() string { return "DATAGRAM frame too large" }

// Is reports whether target is a *DatagramTooLargeError with the same limit.
func (e *DatagramTooLargeError) Is(target error) bool {
	t, ok := target.(*DatagramTooLargeError)
	return ok && *e == *t
}

func side(remote bool) string {
	if remote {
		return "remote"
	}
	return "local"
}
