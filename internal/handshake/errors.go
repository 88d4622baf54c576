package handshake

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/volley-quic/volley/internal/wire"
)

// alertError gives an error of crypto/tls the code to close the connection with
// (RFC 9001 §4.8).
func alertError(err error) error {
	var alert tls.AlertError
	if !errors.As(err, &alert) {
		return &wire.Error{Code: wire.InternalError, Reason: err.Error(), Err: err}
	}
	// The code says enough: the reason would tell the peer, who has not shown who it is,
	// what is wrong with it or with us.
	return &wire.Error{Code: wire.CryptoError(uint8(alert)), Err: err}
}

func cryptoError(code wire.ErrorCode, format string, args ...any) error {
	return &wire.Error{Code: code, FrameType: wire.FrameCrypto, Reason: fmt.Sprintf(format, args...)}
}

func violation(format string, args ...any) error {
	return cryptoError(wire.ProtocolViolation, format, args...)
}
