package handshake

import (
	"crypto/tls"

	"golang.org/x/crypto/cryptobyte"

	"github.com/volley-quic/volley/internal/wire"
)

// Handshake message types (RFC 8446 §4).
const (
	typeClientHello        = 1
	typeNewSessionTicket   = 4
	typeCertificate        = 11
	typeCertificateRequest = 13
)

// TLS alerts (RFC 8446 §6).
const (
	alertUnexpectedMessage = 10
	alertDecodeError       = 50
)

// maxTickets is how many session tickets of a connection a client looks at.
// crypto/tls ends a connection that sends more than 16 messages after the
// handshake, but a server may go on for as long as it likes.
const maxTickets = 8

// check enforces what QUIC demands of TLS messages and crypto/tls leaves to its
// caller, or has no right code for. skip: crypto/tls is not to see the message.
func (t *TLS) check(msg []byte) (skip bool, err error) {
	switch {
	case t.in.level == tls.QUICEncryptionLevelInitial && !t.isClient && msg[0] == typeClientHello:
		// RFC 9001 §8.4: no middlebox compatibility. legacy_session_id comes after
		// legacy_version and random.
		if id := msgHeaderLen + 2 + 32; len(msg) > id && msg[id] != 0 {
			return false, violation("ClientHello with a legacy_session_id")
		}
	case t.in.level != tls.QUICEncryptionLevelApplication:
	case t.isClient && msg[0] == typeNewSessionTicket:
		return t.checkTicket(msg)
	case t.isClient && msg[0] == typeCertificateRequest:
		return false, violation("post-handshake client authentication") // RFC 9001 §4.4
	default:
		// RFC 9001 §6 says so of KeyUpdate. From a client nothing at all is expected.
		return false, cryptoError(wire.CryptoError(alertUnexpectedMessage), "TLS message of type %d after the handshake", msg[0])
	}
	return false, nil
}

// checkTicket looks into a NewSessionTicket (RFC 8446 §4.6.1).
func (t *TLS) checkTicket(msg []byte) (skip bool, err error) {
	body := cryptobyte.String(msg[msgHeaderLen:])
	var lifetime, ageAdd uint32
	var nonce, ticket, extensions cryptobyte.String
	ok := body.ReadUint32(&lifetime) &&
		body.ReadUint32(&ageAdd) &&
		body.ReadUint8LengthPrefixed(&nonce) &&
		body.ReadUint16LengthPrefixed(&ticket) && !ticket.Empty() &&
		body.ReadUint16LengthPrefixed(&extensions) && body.Empty()
	for ok && !extensions.Empty() {
		const earlyData = 42
		var typ uint16
		var ext cryptobyte.String
		ok = extensions.ReadUint16(&typ) && extensions.ReadUint16LengthPrefixed(&ext)
		if ok && typ == earlyData {
			var size uint32
			ok = ext.ReadUint32(&size) && ext.Empty()
			if ok && size != 0xffffffff {
				return false, violation("session ticket with max_early_data_size %#x", size) // RFC 9001 §4.6.1
			}
		}
	}
	if !ok {
		return false, cryptoError(wire.CryptoError(alertDecodeError), "malformed session ticket")
	}
	t.tickets++
	return t.tickets > maxTickets, nil
}
