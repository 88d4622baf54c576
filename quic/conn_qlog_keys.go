package quic

import (
	"crypto/tls"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/recovery"
)

// keyPhases are the generations of 1-RTT keys that were told (RFC 9001 §6).
type keyPhases struct {
	now      uint64 // the latest, of either direction
	recv     uint64
	previous bool // the one before still opens packets
}

// newKeys records that TLS has made the keys of one direction of an encryption level.
func (q *connTrace) newKeys(l qlog.EncryptionLevel, ours bool) {
	q.record(qlog.KeyUpdated{Trigger: qlog.KeyUpdateTLS, KeyType: keyType(l, ours == q.c.isClient)})
}

// tlsEvent records the keys that a step of the handshake brings.
func (q *connTrace) tlsEvent(ev handshake.Event) {
	if ev.Kind != handshake.ReadSecret && ev.Kind != handshake.WriteSecret {
		return
	}
	ours := ev.Kind == handshake.WriteSecret
	q.newKeys(levelOf[ev.Level], ours)
	switch {
	case ev.Level == tls.QUICEncryptionLevelHandshake && !ours:
		q.state(qlog.ConnectionStateHandshakeStarted)
	case ev.Level == tls.QUICEncryptionLevelApplication && ours && q.c.zeroRTT.offered && !q.c.zeroRTT.rejected:
		q.discarded0RTT() // RFC 9001 §4.9.3: a client needs them no more
	}
}

func (q *connTrace) discarded0RTT() { q.record(qlog.KeyDiscarded{KeyType: qlog.KeyTypeClient0RTT}) }

var levelOf = map[tls.QUICEncryptionLevel]qlog.EncryptionLevel{
	tls.QUICEncryptionLevelInitial:     levelInitial,
	tls.QUICEncryptionLevelEarly:       level0RTT,
	tls.QUICEncryptionLevelHandshake:   levelHandshake,
	tls.QUICEncryptionLevelApplication: level1RTT,
}

// discardedKeys records that the keys of a space are gone.
func (q *connTrace) discardedKeys(sp recovery.Space) {
	for _, client := range []bool{true, false} {
		q.record(qlog.KeyDiscarded{KeyType: keyType(levels[sp], client)})
	}
}

// sendGeneration records a key update of our own, which happens between flights. The
// connection's mutex is held.
func (q *connTrace) sendGeneration() {
	if k := q.c.oneRTT; k != nil && k.SendGeneration() > q.keys.now {
		q.updated(k.SendGeneration(), qlog.KeyUpdateLocal)
	}
}

// receivedGeneration records what a batch of packets has done to the keys. It is the
// connection's goroutine that calls, with the mutex held.
func (q *connTrace) receivedGeneration() {
	k := q.c.oneRTT
	if k == nil {
		return
	}
	if _, recv := k.Generations(); recv > q.keys.recv {
		if q.keys.previous {
			q.discardedPhase(q.keys.recv - 1)
		}
		q.keys.recv, q.keys.previous = recv, true
		if recv > q.keys.now { // else it is the answer to our own
			q.updated(recv, qlog.KeyUpdateRemote)
		}
	}
	if q.keys.previous && !k.OpensPrevious() {
		q.keys.previous = false
		q.discardedPhase(q.keys.recv - 1)
	}
}

// updated records an update, which is one of both directions.
func (q *connTrace) updated(generation uint64, why qlog.KeyUpdateTrigger) {
	q.keys.now = generation
	for _, client := range []bool{true, false} {
		q.record(qlog.KeyUpdated{Trigger: why, KeyType: keyType(level1RTT, client), KeyPhase: qlog.KeyPhase(generation)})
	}
}

func (q *connTrace) discardedPhase(generation uint64) {
	for _, client := range []bool{true, false} {
		q.record(qlog.KeyDiscarded{KeyType: keyType(level1RTT, client), KeyPhase: qlog.KeyPhase(generation)})
	}
}

// keyType is the key with which the client, or the server, protects its packets.
func keyType(l qlog.EncryptionLevel, client bool) qlog.KeyType {
	of := func(c, s qlog.KeyType) qlog.KeyType {
		if client {
			return c
		}
		return s
	}
	switch l {
	case levelInitial:
		return of(qlog.KeyTypeClientInitial, qlog.KeyTypeServerInitial)
	case levelHandshake:
		return of(qlog.KeyTypeClientHandshake, qlog.KeyTypeServerHandshake)
	case level0RTT:
		return qlog.KeyTypeClient0RTT // only clients send such packets
	}
	return of(qlog.KeyTypeClient1RTT, qlog.KeyTypeServer1RTT)
}
