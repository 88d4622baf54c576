package protect

import "github.com/volley-quic/volley/internal/wire"

// OneRTT is the protection of 1-RTT packets, both directions, with their key
// phases (RFC 9001 §6).
//
// Two parties use it in parallel. The connection's goroutine opens packets and
// holds no lock for it; whoever holds the send token seals flights, with a Sealer
// that it took while it held the connection's mutex (the monitor). So the state is
// in two halves: recvPhase belongs to the connection's goroutine and sendPhase to
// the monitor, and they meet only in Received and Acked, which that goroutine
// calls with the monitor held.
//
// Both halves count generations of keys: generation 0 is the handshake's, the Key
// Phase bit is the generation's lowest bit. Receiving needs not know whose idea an
// update was: a packet that opens with the next key is the peer's move to the next
// generation. If sending is there already it was the answer to our update, and if
// not, Received makes sending follow.
type OneRTT struct {
	suiteID uint16
	version uint32
	suite   *suite // nil if unknown: then no secret can be set
	labels  labels
	recv    recvPhase
	send    sendPhase
}

// NewOneRTT returns a OneRTT without keys. suite is the TLS 1.3 cipher suite.
func NewOneRTT(suite uint16, version uint32) *OneRTT {
	k := &OneRTT{suiteID: suite, version: version, labels: labelsOf(version)}
	if s := suites[suite]; s != nil {
		k.suite = s
		k.recv.init(s.openLimit)
		k.send.init(s.sealLimit)
	}
	return k
}

// next derives the secret of the next generation and its key (RFC 9001 §6.1).
func (k *OneRTT) next(secret []byte) ([]byte, *packetKey, error) {
	secret, err := expandLabel(k.suite.hash, secret, k.labels.ku, len(secret))
	if err != nil {
		return nil, nil, err
	}
	key, err := newPacketKey(k.suite, k.labels, secret)
	return secret, key, err
}

func keyUpdateError(reason string) error {
	return &wire.Error{Code: wire.KeyUpdateError, Reason: reason}
}
