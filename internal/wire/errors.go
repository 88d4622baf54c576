package wire

import (
	"errors"
	"fmt"
)

// ErrorCode is a transport error code (RFC 9000 §20.1).
type ErrorCode uint64

// The transport error codes of RFC 9000 §20.1 and RFC 9368 §10.2.
const (
	NoError                 ErrorCode = 0x00
	InternalError           ErrorCode = 0x01
	ConnectionRefused       ErrorCode = 0x02
	FlowControlError        ErrorCode = 0x03
	StreamLimitError        ErrorCode = 0x04
	StreamStateError        ErrorCode = 0x05
	FinalSizeError          ErrorCode = 0x06
	FrameEncodingError      ErrorCode = 0x07
	TransportParameterError ErrorCode = 0x08
	ConnectionIDLimitError  ErrorCode = 0x09
	ProtocolViolation       ErrorCode = 0x0a
	InvalidToken            ErrorCode = 0x0b
	ApplicationError        ErrorCode = 0x0c
	CryptoBufferExceeded    ErrorCode = 0x0d
	KeyUpdateError          ErrorCode = 0x0e
	AEADLimitReached        ErrorCode = 0x0f
	NoViablePath            ErrorCode = 0x10
	VersionNegotiationError ErrorCode = 0x11
)

// CryptoError is the code for a TLS alert: 0x0100 plus the alert's number
// (RFC 9001 §4.8).
func CryptoError(alert uint8) ErrorCode { return 0x100 + ErrorCode(alert) }

// IsCrypto reports whether c stands for a TLS alert.
func (c ErrorCode) IsCrypto() bool { return c >= 0x100 && c <= 0x1ff }

var errorCodeNames = [...]string{
	NoError:                 "NO_ERROR",
	InternalError:           "INTERNAL_ERROR",
	ConnectionRefused:       "CONNECTION_REFUSED",
	FlowControlError:        "FLOW_CONTROL_ERROR",
	StreamLimitError:        "STREAM_LIMIT_ERROR",
	StreamStateError:        "STREAM_STATE_ERROR",
	FinalSizeError:          "FINAL_SIZE_ERROR",
	FrameEncodingError:      "FRAME_ENCODING_ERROR",
	TransportParameterError: "TRANSPORT_PARAMETER_ERROR",
	ConnectionIDLimitError:  "CONNECTION_ID_LIMIT_ERROR",
	ProtocolViolation:       "PROTOCOL_VIOLATION",
	InvalidToken:            "INVALID_TOKEN",
	ApplicationError:        "APPLICATION_ERROR",
	CryptoBufferExceeded:    "CRYPTO_BUFFER_EXCEEDED",
	KeyUpdateError:          "KEY_UPDATE_ERROR",
	AEADLimitReached:        "AEAD_LIMIT_REACHED",
	NoViablePath:            "NO_VIABLE_PATH",
	VersionNegotiationError: "VERSION_NEGOTIATION_ERROR",
}

// String is the code's name as the RFC spells it.
func (c ErrorCode) String() string {
	switch {
	case c < ErrorCode(len(errorCodeNames)):
		return errorCodeNames[c]
	case c.IsCrypto():
		return fmt.Sprintf("CRYPTO_ERROR 0x%x", uint64(c))
	}
	return fmt.Sprintf("error code 0x%x", uint64(c))
}

// Error is a connection error: its fields are those of the CONNECTION_CLOSE
// frame that answers it (RFC 9000 §11.1, §19.19).
type Error struct {
	Code      ErrorCode
	FrameType uint64 // type of the frame that caused it; 0: none or unknown
	Reason    string
	Err       error // the cause, if another package found it; may be nil
}

// Error says code, frame and reason in one line.
func (e *Error) Error() string {
	s := e.Code.String()
	if e.FrameType != 0 {
		s += " (" + FrameName(e.FrameType) + ")"
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrInvalidHeader is what the header parsers return for a packet that is to be
// dropped without an answer.
var ErrInvalidHeader = errors.New("wire: invalid packet header")

// encodingError is the answer to a frame whose bytes make no sense.
func encodingError(typ uint64, reason string) *Error {
	return &Error{Code: FrameEncodingError, FrameType: typ, Reason: reason}
}

// truncated is the answer to a frame that is longer than the packet: frames
// cannot span packets (RFC 9000 §12.4).
func truncated(typ uint64) *Error { return encodingError(typ, "truncated") }
