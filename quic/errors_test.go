package quic

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

func TestErrorMessages(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{&TransportError{ErrorCode: FlowControlError}, "FLOW_CONTROL_ERROR (local)"},
		{&TransportError{ErrorCode: FlowControlError, Remote: true, ErrorMessage: "too much"}, "FLOW_CONTROL_ERROR (remote): too much"},
		{&TransportError{ErrorCode: StreamStateError, FrameType: 0x1337}, "STREAM_STATE_ERROR (local) (frame type: 0x1337)"},
		{&TransportError{ErrorCode: 0x100 + 42, Remote: true}, "CRYPTO_ERROR 0x12a (remote): tls: bad certificate"},
		{&TransportError{ErrorCode: 0x100 + 42, err: errors.New("not that one")}, "CRYPTO_ERROR 0x12a (local): not that one"},
		{&TransportError{ErrorCode: NoViablePathError}, "NO_VIABLE_PATH (local)"},
		{&ApplicationError{ErrorCode: 0x42}, "Application error 0x42 (local)"},
		{&ApplicationError{ErrorCode: 0x42, Remote: true, ErrorMessage: "bye"}, "Application error 0x42 (remote): bye"},
		{&StreamError{StreamID: 42, ErrorCode: 123}, "stream 42 canceled by local with error code 123"},
		{&StreamError{StreamID: 42, ErrorCode: 123, Remote: true}, "stream 42 canceled by remote with error code 123"},
		{&IdleTimeoutError{}, "timeout: no recent network activity"},
		{&HandshakeTimeoutError{}, "timeout: handshake did not complete in time"},
		{&StatelessResetError{}, "received a stateless reset"},
		{
			&VersionNegotiationError{Ours: []Version{Version1, Version2}, Theirs: []Version{0xff00001d}},
			"no compatible QUIC version found (we support [v1 v2], server offered [draft-29])",
		},
		{StreamLimitReachedError{}, "too many open streams"},
		{&DatagramTooLargeError{MaxDatagramPayloadSize: 10}, "DATAGRAM frame too large"},
		{ErrServerClosed, "quic: server closed"},
		{ErrTransportClosed, "quic: transport closed"},
		{&errTransportClosed{io.ErrClosedPipe}, "quic: transport closed: io: read/write on closed pipe"},
		{Err0RTTRejected, "0-RTT rejected"},
		{ErrStreamClosed, "stream closed"},
		{ErrWouldBlock, "operation would block"},
		{ErrWriteLimitReached, "write limit reached"},
		{ErrPathClosed, "path closed"},
		{ErrPathNotValidated, "path not yet validated"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%T says %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestErrorsIs(t *testing.T) {
	is := func(err, target error) {
		t.Helper()
		if !errors.Is(fmt.Errorf("wrapped: %w", err), target) {
			t.Errorf("%#v is not %#v", err, target)
		}
	}
	isNot := func(err, target error) {
		t.Helper()
		if errors.Is(err, target) {
			t.Errorf("%#v is %#v", err, target)
		}
	}

	// Whatever ends a connection is net.ErrClosed, as with package net.
	for _, err := range []error{
		&TransportError{}, &ApplicationError{}, &IdleTimeoutError{}, &HandshakeTimeoutError{},
		&StatelessResetError{}, &VersionNegotiationError{}, ErrServerClosed, ErrTransportClosed,
	} {
		is(err, net.ErrClosed)
		isNot(err, context.Canceled)
	}
	isNot(&StreamError{}, net.ErrClosed)

	// Codes and sides count, words do not.
	is(&TransportError{ErrorCode: 1, ErrorMessage: "a"}, &TransportError{ErrorCode: 1, ErrorMessage: "b"})
	isNot(&TransportError{ErrorCode: 1}, &TransportError{ErrorCode: 2})
	isNot(&TransportError{FrameType: 1}, &TransportError{FrameType: 2})
	isNot(&TransportError{Remote: true}, &TransportError{})
	is(&ApplicationError{ErrorCode: 1, ErrorMessage: "a"}, &ApplicationError{ErrorCode: 1})
	isNot(&ApplicationError{ErrorCode: 1}, &ApplicationError{ErrorCode: 2})
	isNot(&ApplicationError{Remote: true}, &ApplicationError{})
	isNot(&ApplicationError{}, &TransportError{})
	is(&StreamError{StreamID: 4, ErrorCode: 1, Remote: true}, &StreamError{StreamID: 4, ErrorCode: 1, Remote: true})
	isNot(&StreamError{StreamID: 4}, &StreamError{StreamID: 8})
	is(&IdleTimeoutError{}, &IdleTimeoutError{})
	is(&HandshakeTimeoutError{}, &HandshakeTimeoutError{})
	is(&StatelessResetError{}, &StatelessResetError{})
	isNot(&IdleTimeoutError{}, &HandshakeTimeoutError{})
	is(&DatagramTooLargeError{5}, &DatagramTooLargeError{5})
	isNot(&DatagramTooLargeError{5}, &DatagramTooLargeError{6})

	// A socket that failed is a closed transport, and says why.
	failed := &errTransportClosed{os.ErrPermission}
	is(failed, ErrTransportClosed)
	is(failed, net.ErrClosed)
	is(failed, os.ErrPermission)
	isNot(ErrTransportClosed, os.ErrPermission)
	isNot(ErrServerClosed, ErrTransportClosed)

	var nerr net.Error
	for err, timeout := range map[error]bool{&IdleTimeoutError{}: true, &HandshakeTimeoutError{}: true, &StatelessResetError{}: false} {
		if !errors.As(err, &nerr) || nerr.Timeout() != timeout {
			t.Errorf("%T: is a net.Error: %v; timeout should be %v", err, nerr != nil, timeout)
		}
	}
}

func TestTransportErrorFromInside(t *testing.T) {
	cause := x509.UnknownAuthorityError{}
	err := transportError(fmt.Errorf("x: %w", &wire.Error{Code: wire.CryptoError(48), FrameType: 6, Reason: "unknown CA", Err: cause}))
	want := &TransportError{ErrorCode: 0x100 + 48, FrameType: 6}
	if !errors.Is(err, want) || err.ErrorMessage != "unknown CA" {
		t.Errorf("got %#v", err)
	}
	if !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Error("the error of crypto/x509 is lost")
	}
	if again := transportError(err); again != err {
		t.Errorf("converted twice: %v", again)
	}
	if err := transportError(io.ErrNoProgress); err.ErrorCode != InternalError || !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("an error without a code became %v", err)
	}
}
