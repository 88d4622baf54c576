package protect

import (
	"errors"

	"github.com/volley-quic/volley/internal/wire"
)

// ErrDecrypt says that a packet is not authentic, or too short to be: it is to be
// dropped, and nothing is learned from it (RFC 9001 §5.5).
var ErrDecrypt = errors.New("protect: packet failed authentication")

// Opener removes the protection of one direction's packets with one key. It
// serves one goroutine at a time.
type Opener struct {
	key      *packetKey
	hp       masker
	nonce    [nonceLen]byte
	mask     mask
	failures failures
}

// NewOpener is NewSealer for the receiving end.
func NewOpener(suite uint16, secret []byte, version uint32) (*Opener, error) {
	s, err := suiteByID(suite)
	if err != nil {
		return nil, err
	}
	l := labelsOf(version)
	key, err := newPacketKey(s, l, secret)
	if err != nil {
		return nil, err
	}
	hp, err := newHeaderKey(s, l, secret)
	if err != nil {
		return nil, err
	}
	return &Opener{key: key, hp: hp, failures: failures{limit: s.openLimit}}, nil
}

// Open removes header protection, completes the packet number against largest
// (the largest authenticated one so far, -1 if none) and decrypts in place;
// payload aliases pkt, which ends where the packet ends.
//
// The error is ErrDecrypt, or a *wire.Error that must close the connection:
// reserved bits (RFC 9000 §17.2) or the integrity limit (RFC 9001 §6.6). After
// ErrDecrypt, pkt is spoilt but for its last 16 bytes, which may be a stateless
// reset token.
func (o *Opener) Open(pkt []byte, pnOff int, largest int64) (pn int64, payload []byte, err error) {
	if o.failures.exceeded() {
		return 0, nil, errIntegrityLimit()
	}
	// §5.4.2: "MUST discard packets that are not long enough to contain a complete sample".
	if len(pkt) < pnOff+sampleOff+sampleLen {
		return 0, nil, ErrDecrypt
	}
	// RFC 9001 §9.5: from here to the verdict nothing may depend on what the
	// header says, or its timing would give the header away.
	pn, header := o.hp.unprotect(&o.mask, pkt, pnOff, largest)
	o.key.nonce(&o.nonce, pn)
	payload, err = o.key.aead.Open(pkt[header:header], o.nonce[:], pkt[header:], pkt[:header])
	if err != nil {
		return 0, nil, o.failures.add()
	}
	if err := checkReserved(pkt[0]); err != nil {
		return 0, nil, err
	}
	return pn, payload, nil
}

// failures counts the packets that failed authentication. Going over the limit
// ends the connection, and no further packet is processed (RFC 9001 §6.6).
type failures struct{ n, limit uint64 }

func (f *failures) exceeded() bool { return f.n > f.limit }

func (f *failures) add() error {
	f.n++
	if f.exceeded() {
		return errIntegrityLimit()
	}
	return ErrDecrypt
}

func errIntegrityLimit() error {
	return &wire.Error{Code: wire.AEADLimitReached, Reason: "too many packets failed authentication"}
}
