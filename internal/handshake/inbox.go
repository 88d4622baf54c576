package handshake

import (
	"crypto/tls"

	"github.com/volley-quic/volley/internal/wire"
)

const (
	msgHeaderLen = 4 // type, and length in three bytes (RFC 8446 §4)

	// The same bounds as in crypto/tls.
	maxMessage     = 64 << 10
	maxCertificate = 256 << 10
)

// inbox cuts the CRYPTO streams into handshake messages. crypto/tls gets whole
// messages only: it never waits in the middle of one, a change of keys falls
// between two calls, and sizes are bounded before anything is kept.
type inbox struct {
	level tls.QUICEncryptionLevel // that TLS reads now
	part  []byte                  // the beginning of a message
}

// next returns the next message, nil if it is not there yet, and what follows it.
func (in *inbox) next(data []byte) (msg, rest []byte, err error) {
	if len(in.part) == 0 {
		n, err := in.messageLen(data)
		if err != nil {
			return nil, nil, err
		}
		if n > 0 && n <= len(data) {
			return data[:n], data[n:], nil
		}
	}
	if take := msgHeaderLen - len(in.part); take > 0 {
		take = min(take, len(data))
		in.part, data = append(in.part, data[:take]...), data[take:]
	}
	n, err := in.messageLen(in.part)
	if err != nil || n == 0 {
		return nil, nil, err
	}
	take := min(n-len(in.part), len(data))
	in.part, data = append(in.part, data[:take]...), data[take:]
	if len(in.part) < n {
		return nil, nil, nil
	}
	msg, in.part = in.part, nil
	return msg, data, nil
}

// messageLen is the length of the message that b begins with, 0 if its header is
// not complete.
func (in *inbox) messageLen(b []byte) (int, error) {
	if len(b) < msgHeaderLen {
		return 0, nil
	}
	n, limit := int(b[1])<<16|int(b[2])<<8|int(b[3]), maxMessage
	if b[0] == typeCertificate && in.level == tls.QUICEncryptionLevelHandshake {
		limit = maxCertificate
	}
	if n > limit {
		return 0, cryptoError(wire.CryptoBufferExceeded, "TLS message of %d bytes", n)
	}
	return msgHeaderLen + n, nil
}
