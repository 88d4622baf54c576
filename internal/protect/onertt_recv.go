package protect

import (
	"math"
	"time"
)

// recvPhase is the receiving half of OneRTT. It belongs to the connection's
// goroutine.
type recvPhase struct {
	hp masker
	// The keys of the generations gen-1, gen and gen+1. prev is nil in generation
	// 0 and three PTOs after an update. next is nil only between the packet that
	// updates and Received: RFC 9001 §9.5 wants no keys made while packets are
	// processed.
	prev, cur, next *packetKey
	secret          []byte // the last one derived
	gen             uint64

	low, high int64 // lowest and highest number that cur opened
	oldHigh   int64 // highest number that an older key opened, -1 if none

	updated  time.Time // when Received learnt of generation gen
	failures failures

	nonce  [nonceLen]byte
	mask   mask
	second []byte // the ciphertext again, for a second try
}

func (r *recvPhase) init(limit uint64) {
	r.low, r.high, r.oldHigh, r.failures.limit = math.MaxInt64, -1, -1, limit
}

// SetReadSecret installs the peer's first 1-RTT secret. Connection's goroutine. It
// fails for an unknown suite. RFC 9001 §5.7: packets are not to be opened before
// the handshake is complete.
func (k *OneRTT) SetReadSecret(secret []byte) (err error) {
	r := &k.recv
	if _, err = suiteByID(k.suiteID); err != nil {
		return err
	}
	if r.hp, err = newHeaderKey(k.suite, k.labels, secret); err != nil {
		return err
	}
	cur, err := newPacketKey(k.suite, k.labels, secret)
	if err != nil {
		return err
	}
	if r.secret, r.next, err = k.next(secret); err != nil {
		return err
	}
	r.cur = cur
	return nil
}

// Open is [Opener.Open] for 1-RTT packets of any key phase. Connection's
// goroutine, no lock. Besides the errors of Opener.Open, it returns
// KEY_UPDATE_ERROR when old and new keys do not follow the order of packet
// numbers (RFC 9001 §6.4).
func (k *OneRTT) Open(pkt []byte, pnOff int, largest int64) (pn int64, payload []byte, err error) {
	r := &k.recv
	if r.failures.exceeded() {
		return 0, nil, errIntegrityLimit()
	}
	if r.cur == nil || len(pkt) < pnOff+sampleOff+sampleLen {
		return 0, nil, ErrDecrypt
	}
	pn, header := r.hp.unprotect(&r.mask, pkt, pnOff, largest)
	ciphertext := pkt[header:]
	key := r.keyFor(uint64(pkt[0]>>2&1), pn)

	// A failed try destroys the ciphertext. The copy is made whenever there may be
	// a second try and not only when there will be, since what decides that (the
	// Key Phase bit, the number) must not show in the time it takes (§9.5).
	if r.prev != nil {
		r.second = append(r.second[:0], ciphertext...)
	}
	key.nonce(&r.nonce, pn)
	payload, err = key.aead.Open(ciphertext[:0], r.nonce[:], ciphertext, pkt[:header])
	if err != nil {
		if r.prev != nil && r.openedByPrev(pkt[:header], pn) && pn >= r.low {
			return 0, nil, errOldKey()
		}
		return 0, nil, r.failures.add()
	}
	if err := r.opened(key, pn); err != nil {
		return 0, nil, err
	}
	if err := checkReserved(pkt[0]); err != nil {
		return 0, nil, err
	}
	return pn, payload, nil
}

// keyFor chooses the key to try (RFC 9001 §6.5): the other phase is the previous
// one for numbers below all of the current phase, and the next one otherwise.
func (r *recvPhase) keyFor(phase uint64, pn int64) *packetKey {
	switch {
	case phase == r.gen&1:
		return r.cur
	case r.prev != nil && pn < r.low, r.next == nil:
		// Without next we are in the batch that brought the update. No peer can have
		// the acknowledgement that a second one needs, so prev stands in (§6.3).
		return r.prev
	}
	return r.next
}

// openedByPrev is the second try of a packet that failed: is it protected with the
// previous key, against the order of numbers? Every failing packet has it as long
// as there is a previous key, for the sake of even timing.
func (r *recvPhase) openedByPrev(header []byte, pn int64) bool {
	r.prev.nonce(&r.nonce, pn)
	_, err := r.prev.aead.Open(r.second[:0], r.nonce[:], r.second, header)
	return err == nil
}

// opened notes which key opened pn. §6.4: "Packets with higher packet numbers MUST
// be protected with either the same or newer packet protection keys than packets
// with lower packet numbers", whichever of two such packets arrives first.
func (r *recvPhase) opened(key *packetKey, pn int64) error {
	switch key {
	case r.cur:
		if pn < r.oldHigh {
			return errOldKey()
		}
		r.low, r.high = min(r.low, pn), max(r.high, pn)
	case r.prev:
		if pn >= r.low {
			return errOldKey()
		}
		r.oldHigh = max(r.oldHigh, pn)
	default: // next: the peer has updated
		r.oldHigh = max(r.oldHigh, r.high)
		if pn < r.oldHigh {
			return errOldKey()
		}
		r.prev, r.cur, r.next = r.cur, r.next, nil
		r.gen++
		r.low, r.high = pn, pn
		r.updated = time.Time{}
	}
	return nil
}

func errOldKey() error {
	return keyUpdateError("a packet number was protected with older keys than a lower one")
}

// OpensPrevious tells whether the keys of the generation before still open packets.
// Connection's goroutine.
func (k *OneRTT) OpensPrevious() bool { return k.recv.prev != nil }

// Received follows what the packets of a batch said about keys: if the peer
// updated, sending updates too (RFC 9001 §6.2), and the next key is made (§6.3).
// It also drops the previous key when it is three PTOs old (§6.5). Connection's
// goroutine, monitor held, after every batch and before its packets can be
// acknowledged. The error, KEY_UPDATE_ERROR, must close the connection.
func (k *OneRTT) Received(now time.Time, pto time.Duration) (err error) {
	r, s := &k.recv, &k.send
	if s.acked && s.ackedAt.IsZero() {
		s.ackedAt = now
	}
	if r.prev != nil {
		if r.updated.IsZero() {
			r.updated = now
		} else if now.Sub(r.updated) > 3*pto {
			r.prev = nil
		}
	}
	if r.next == nil && r.cur != nil {
		if r.secret, r.next, err = k.next(r.secret); err != nil {
			return err
		}
	}
	if r.gen <= s.gen {
		return nil
	}
	// §6.2: the peer "has updated keys twice without awaiting confirmation", or
	// before the first confirmation there could be.
	if s.first < 0 {
		return keyUpdateError("key update before the previous one was acknowledged")
	}
	return k.updateSend()
}
