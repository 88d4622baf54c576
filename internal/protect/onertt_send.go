package protect

import (
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// sendPhase is the sending half of OneRTT. It belongs to the monitor.
type sendPhase struct {
	sealer    *Sealer
	secret    []byte // of generation gen
	gen       uint64
	confirmed bool // the handshake is

	first   int64     // the first number sent in generation gen, -1 if none yet
	count   uint64    // packets sent in it
	acked   bool      // one of them was acknowledged
	ackedAt time.Time // and when Received learnt of it

	limit    uint64 // packets that one key may protect; 0: no limit
	interval uint64 // packets after which we update; 0: never
}

// limitReserve keeps some packets below the confidentiality limit for the
// CONNECTION_CLOSE that reports it.
const limitReserve = 4096

// DefaultUpdateInterval is, if not 0, the update interval of every OneRTT that is made
// from then on: see [OneRTT.SetUpdateInterval]. It is for a program that has to show key
// updates, and must be set before there are connections.
var DefaultUpdateInterval uint64

func (s *sendPhase) init(limit uint64) {
	s.first, s.limit, s.interval = -1, limit, limit/2
	if DefaultUpdateInterval > 0 {
		s.interval = DefaultUpdateInterval
	}
}

// SetWriteSecret installs our own first 1-RTT secret. Monitor held. It fails for an
// unknown suite.
func (k *OneRTT) SetWriteSecret(secret []byte) (err error) {
	s := &k.send
	if s.sealer, err = NewSealer(k.suiteID, secret, k.version); err != nil {
		return err
	}
	s.secret = secret
	return nil
}

// SetHandshakeConfirmed allows updates of our own (RFC 9001 §6.1). Monitor held.
func (k *OneRTT) SetHandshakeConfirmed() { k.send.confirmed = true }

// SetUpdateInterval sets the number of packets after which MaybeUpdate finds an
// update due, 0 for never; for tests. By default it is half of what the suite's
// confidentiality limit allows. Monitor held.
func (k *OneRTT) SetUpdateInterval(packets uint64) { k.send.interval = packets }

// SealKey is the key of the next flight, and its Key Phase bit. The sealer stays
// good for that flight whatever happens meanwhile; the next flight asks again.
// Monitor held, in the same hold as the flight's Sent. It is nil before
// SetWriteSecret.
func (k *OneRTT) SealKey() (*Sealer, bool) { return k.send.sealer, k.send.gen&1 == 1 }

// Sent notes that a flight of n packets, numbered from first on, uses the key of
// SealKey. Monitor held.
func (k *OneRTT) Sent(first int64, n int) {
	s := &k.send
	if s.first < 0 {
		s.first = first
	}
	s.count += uint64(n)
}

// SendLimit is nil as long as the key of SealKey may protect another flight. Its
// error, AEAD_LIMIT_REACHED, must close the connection (RFC 9001 §6.6). Ask after
// MaybeUpdate. Monitor held.
func (k *OneRTT) SendLimit() error {
	if s := &k.send; s.limit != 0 && s.count+limitReserve > s.limit {
		return &wire.Error{Code: wire.AEADLimitReached, Reason: "no key update before the confidentiality limit"}
	}
	return nil
}

// Acked notes that the peer acknowledged largest, the highest number of an ACK
// frame of the 1-RTT space. Connection's goroutine, monitor held; before or after
// the batch's Received. The error, KEY_UPDATE_ERROR, must close the connection.
func (k *OneRTT) Acked(largest int64) error {
	s := &k.send
	if s.acked || s.first < 0 || largest < s.first {
		return nil
	}
	// §6.2: the peer acknowledged a packet of this generation, so it must have
	// updated before that, and the ACK's own packet would have shown it.
	if k.recv.gen < s.gen {
		return keyUpdateError("key update acknowledged with old keys")
	}
	s.acked = true
	return nil
}

// MaybeUpdate starts a key update, if one is due and allowed, and tells whether it
// did. It is to be called between flights. Monitor held.
func (k *OneRTT) MaybeUpdate(now time.Time, pto time.Duration) bool {
	s := &k.send
	if s.interval == 0 || s.count < s.interval {
		return false
	}
	if !s.confirmed || s.ackedAt.IsZero() {
		return false // §6.1, both are a MUST
	}
	// §6.5: after an update "SHOULD wait three times the PTO", for the peer may
	// still hold old keys in place of the next ones. A key about to wear out does
	// not wait.
	wornOut := s.limit != 0 && s.count > s.limit-s.limit/8
	if s.gen > 0 && !wornOut && now.Sub(s.ackedAt) < 3*pto {
		return false
	}
	return k.updateSend() == nil
}

// updateSend moves sending to the next generation. The old sealer is left as it
// is, for the flight that may be using it.
func (k *OneRTT) updateSend() error {
	s := &k.send
	secret, key, err := k.next(s.secret)
	if err != nil {
		return err
	}
	s.sealer = &Sealer{key: key, hp: s.sealer.hp}
	s.secret = secret
	s.gen++
	s.first, s.count = -1, 0
	s.acked, s.ackedAt = false, time.Time{}
	return nil
}

// SendGeneration tells how often the keys for sending have been updated. Monitor held.
func (k *OneRTT) SendGeneration() uint64 { return k.send.gen }

// Generations tells how often the keys for sending and for receiving have been
// updated. Connection's goroutine, monitor held.
func (k *OneRTT) Generations() (send, recv uint64) { return k.send.gen, k.recv.gen }
