package quic

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"sync"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/udp"
)

const (
	resetTokenLen = 16

	// No packet with a short header is shorter than this (RFC 9000 §10.3), and so
	// is no stateless reset.
	minShortPacket = 21

	// resetLen is how long a stateless reset is if what it answers allows it. From
	// 41 bytes on, an observer cannot tell it from a packet (§10.3.3).
	resetLen = 42
)

// resetKeys derives the stateless reset tokens that we give out, and hides the
// ones that we got.
type resetKeys struct {
	send bool // stateless resets are to be sent

	mu  sync.Mutex // a leaf; guards what follows
	mac hash.Hash  // keyed
	buf []byte     // what mac and blind read and write: it would be allocated each time

	// blind is a block cipher with a random key. Tokens are stored and looked up
	// encrypted, so that the time a look-up takes says nothing about them (RFC 9000
	// §10.3.1).
	blind cipher.Block
}

// newResetKeys takes key, or a random one: then tokens cannot be known to anyone,
// and stateless resets are not sent.
func newResetKeys(key *StatelessResetKey) *resetKeys {
	k := &resetKeys{send: key != nil}
	var secret [32]byte
	if key != nil {
		secret = *key
	} else {
		rand.Read(secret[:])
	}
	k.mac = hmac.New(sha256.New, secret[:])
	rand.Read(secret[:])
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	k.blind = block
	return k
}

// token is what proves that we are the one who gave out id (RFC 9000 §10.3.2).
func (k *resetKeys) token(id ConnectionID) (tok [resetTokenLen]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.buf = append(k.buf[:0], connIDBytes(&id)...)
	k.mac.Reset()
	k.mac.Write(k.buf)
	k.buf = k.mac.Sum(k.buf[:0])
	copy(tok[:], k.buf)
	return tok
}

func (k *resetKeys) hide(tok []byte) (hidden [resetTokenLen]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.buf = append(k.buf[:0], tok...)
	k.blind.Encrypt(k.buf, k.buf)
	copy(hidden[:], k.buf)
	return hidden
}

// resetTokenFor returns the stateless reset token to send along with id.
func (t *Transport) resetTokenFor(id ConnectionID) [16]byte { return t.resets.token(id) }

// addResetToken makes datagrams that end in tok, and belong to no connection,
// reset c. A token is to be added when the peer's connection ID comes into use,
// and removed with it (RFC 9000 §10.3.1).
func (t *Transport) addResetToken(tok [16]byte, c *Conn) {
	hidden := t.resets.hide(tok[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byToken[hidden] = c
}

// removeResetToken undoes addResetToken.
func (t *Transport) removeResetToken(tok [16]byte) {
	hidden := t.resets.hide(tok[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byToken, hidden)
}

// findByToken returns the connection that datagram b resets, or nil.
func (t *Transport) findByToken(b []byte) *Conn {
	if len(b) < minShortPacket {
		return nil
	}
	hidden := t.resets.hide(b[len(b)-resetTokenLen:])
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byToken[hidden]
}

// sendStatelessReset answers p, sent to a connection ID that nobody has: either
// we forgot the connection, or the peer did not hear that it is over.
func (t *Transport) sendStatelessReset(l *limiter, p packet, id ConnectionID) {
	// RFC 9000 §10.3.3: the answer is shorter than its cause, so that two
	// endpoints without state do not go on for ever.
	n := min(resetLen, len(p.datagram())-1)
	if !t.resets.send || n < minShortPacket || !l.allow(p.at) {
		return
	}
	b := make([]byte, n)
	rand.Read(b[:n-resetTokenLen])
	b[0] = b[0]&0x3f | 0x40 // a short header with the fixed bit
	tok := t.resets.token(id)
	copy(b[n-resetTokenLen:], tok[:])
	t.record(qlog.PacketSent{
		Header: qlog.PacketHeader{PacketType: qlog.PacketTypeStatelessReset},
		Raw:    qlog.RawInfo{Length: n, PayloadLength: qlog.OmitLength},
	})
	way := p.reply()
	t.udp.Send(&way, b, n, udp.NotECT) // best effort
}
