package protect

import (
	"bytes"
	"crypto/cipher"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

const pto = 100 * time.Millisecond

// clock is the time of a conversation. It starts anywhere but at zero.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1000, 0)} }

func (c *clock) wait(d time.Duration) { c.now = c.now.Add(d) }

// packet is a sealed packet on its way.
type packet struct {
	bytes []byte
	pn    int64
	phase bool
	ack   int64 // largest packet that it acknowledges, -1: none
}

// end is one end of a connection, as far as key phases are concerned.
type end struct {
	*OneRTT
	t       testing.TB
	name    string
	clock   *clock
	nextPN  int64
	largest int64 // received
	acked   int64 // received, to be acknowledged
	payload []byte
}

// newEnds makes two ends whose handshake is confirmed, and which update every
// 'interval' packets.
func newEnds(t testing.TB, suite uint16, interval uint64) (a, b *end, c *clock) {
	c = newClock()
	secrets := [2][]byte{make([]byte, suites[suite].hash().Size()), make([]byte, suites[suite].hash().Size())}
	secrets[1][0] = 1
	var ends [2]*end
	for i := range ends {
		k := NewOneRTT(suite, wire.Version1)
		if err := k.SetWriteSecret(secrets[i]); err != nil {
			t.Fatal(err)
		}
		if err := k.SetReadSecret(secrets[1-i]); err != nil {
			t.Fatal(err)
		}
		k.SetHandshakeConfirmed()
		k.SetUpdateInterval(interval)
		ends[i] = &end{OneRTT: k, t: t, name: "ab"[i : i+1], clock: c, largest: -1, acked: -1, payload: []byte("payload")}
	}
	return ends[0], ends[1], c
}

// seal makes the next packet with the current keys, without asking for an update.
func (e *end) seal() packet {
	s, phase := e.SealKey()
	p := e.sealWith(s, e.nextPN, phase)
	e.Sent(e.nextPN, 1)
	e.nextPN++
	return p
}

// sealWith is for peers that do as they please.
func (e *end) sealWith(s *Sealer, pn int64, phase bool) packet {
	b := wire.AppendShort(nil, []byte("conn"), pn, 4, phase)
	pnOff := len(b) - 4
	b = append(b, e.payload...)
	b = append(b, make([]byte, s.Overhead())...)
	s.Seal(b, pnOff, 4, pn)
	return packet{b, pn, phase, e.acked}
}

// take opens a batch of packets as a connection does, and returns the first error
// that would close it, and how many packets were not authentic.
func (e *end) take(ps ...packet) (dropped int, err error) {
	e.t.Helper()
	acked := int64(-1)
	for _, p := range ps {
		pn, payload, err := e.Open(bytes.Clone(p.bytes), 5, e.largest)
		if errors.Is(err, ErrDecrypt) {
			dropped++
			continue
		}
		if err != nil {
			return dropped, err
		}
		if pn != p.pn || !bytes.Equal(payload, e.payload) {
			e.t.Fatalf("%s: opened packet %d with %d bytes, want packet %d with %d", e.name, pn, len(payload), p.pn, len(e.payload))
		}
		e.largest = max(e.largest, pn)
		acked = max(acked, p.ack)
	}
	if acked >= 0 {
		if err := e.Acked(acked); err != nil {
			return dropped, err
		}
	}
	if err := e.Received(e.clock.now, pto); err != nil {
		return dropped, err
	}
	e.acked = e.largest
	return dropped, nil
}

// gets takes packets that must all be good.
func (e *end) gets(ps ...packet) {
	e.t.Helper()
	if dropped, err := e.take(ps...); err != nil || dropped > 0 {
		e.t.Fatalf("%s: %d of %d packets dropped, %v", e.name, dropped, len(ps), err)
	}
}

func (e *end) wantGen(send, recv uint64) {
	e.t.Helper()
	if s, r := e.Generations(); s != send || r != recv {
		e.t.Fatalf("%s is in generations %d (sending) and %d (receiving), want %d and %d", e.name, s, r, send, recv)
	}
	if _, phase := e.SealKey(); phase != (send%2 == 1) {
		e.t.Fatalf("%s: key phase bit %v in generation %d", e.name, phase, send)
	}
}

// updates starts an update, which must be allowed.
func (e *end) updates() {
	e.t.Helper()
	if !e.MaybeUpdate(e.clock.now, pto) {
		e.t.Fatalf("%s may not update", e.name)
	}
}

func (e *end) doesNotUpdate(why string) {
	e.t.Helper()
	if e.MaybeUpdate(e.clock.now, pto) {
		e.t.Fatalf("%s updates, %s", e.name, why)
	}
}

func wantCode(t testing.TB, err error, code wire.ErrorCode) {
	t.Helper()
	var werr *wire.Error
	if !errors.As(err, &werr) || werr.Code != code {
		t.Fatalf("got error %v, want %v", err, code)
	}
}

func forAllSuites(t *testing.T, f func(t *testing.T, suite uint16)) {
	forEachSuite(t, func(t *testing.T, suite uint16, _ []byte) { f(t, suite) })
}

const aesSuite = tls.TLS_AES_128_GCM_SHA256

func TestKeyUpdate(t *testing.T) {
	forAllSuites(t, func(t *testing.T, suite uint16) {
		a, b, c := newEnds(t, suite, 2)
		for gen := uint64(0); gen < 6; gen++ {
			b.gets(a.seal(), a.seal())
			a.gets(b.seal()) // acknowledges
			if gen > 0 {
				a.doesNotUpdate("less than three PTOs after the last time")
				c.wait(3 * pto)
			}
			a.updates()
			a.wantGen(gen+1, gen)
			b.wantGen(gen, gen)
			b.gets(a.seal())
			b.wantGen(gen+1, gen+1) // before it can acknowledge the packet
			a.gets(b.seal())
			a.wantGen(gen+1, gen+1)
		}
	})
}

// RFC 9001 §6.1.
func TestOwnUpdateNeedsPermission(t *testing.T) {
	a, b, c := newEnds(t, aesSuite, 3)
	a.send.confirmed = false
	p1, p2 := a.seal(), a.seal()
	a.doesNotUpdate("nothing acknowledged")
	b.gets(p1, p2)
	a.gets(b.seal())
	a.doesNotUpdate("handshake not confirmed")
	a.SetHandshakeConfirmed()
	a.doesNotUpdate("not due")
	p3 := a.seal()
	a.updates()
	p4, p5, p6 := a.seal(), a.seal(), a.seal()
	c.wait(10 * pto)
	a.doesNotUpdate("nothing acknowledged in this phase")

	// An acknowledgement of the phase before does not count.
	b.gets(p3)
	a.gets(b.seal())
	a.doesNotUpdate("the acknowledgement is of the phase before")

	b.gets(p4, p5, p6)
	a.gets(b.seal())
	a.doesNotUpdate("less than three PTOs after the confirmation")
	c.wait(3 * pto)
	a.updates()
}

func TestNeverUpdates(t *testing.T) {
	a, b, _ := newEnds(t, tls.TLS_CHACHA20_POLY1305_SHA256, 0)
	b.gets(a.seal())
	a.gets(b.seal())
	a.Sent(a.nextPN, 1<<30)
	a.doesNotUpdate("without an interval")
}

// A21: packets of the old phase that come late are opened with the old keys and
// change nothing.
func TestDelayedPacketsOfTheOldPhase(t *testing.T) {
	forAllSuites(t, func(t *testing.T, suite uint16) {
		a, b, c := newEnds(t, suite, 1)
		b.gets(a.seal())
		a.gets(b.seal())
		held := []packet{a.seal(), a.seal(), a.seal()}
		a.updates()
		n1, n2 := a.seal(), a.seal()
		b.gets(n2, held[1]) // in the batch that brings the update
		b.wantGen(1, 1)
		b.gets(held[0])
		b.gets(n1, held[2])
		b.wantGen(1, 1)
		a.gets(b.seal())
		a.wantGen(1, 1)

		// And so through another update, whose old phase is 1.
		c.wait(3 * pto)
		held = []packet{a.seal(), a.seal(), a.seal()}
		a.updates()
		b.gets(a.seal())
		b.gets(held...)
		b.wantGen(2, 2)
	})
}

func TestOldKeysAreDropped(t *testing.T) {
	a, b, c := newEnds(t, aesSuite, 1)
	b.gets(a.seal())
	a.gets(b.seal())
	early, late := a.seal(), a.seal()
	a.updates()
	b.gets(a.seal())
	c.wait(3 * pto)
	b.gets() // the time has not run out yet
	b.gets(early)
	c.wait(time.Millisecond)
	b.gets(a.seal())
	if dropped, err := b.take(late); dropped != 1 || err != nil {
		t.Fatalf("an old packet more than three PTOs after the update: %d dropped, %v", dropped, err)
	}
	b.wantGen(1, 1)
	b.gets(a.seal())
}

// A21, RFC 9001 §6.4: old keys on a higher number close the connection, in whichever
// order the two packets come.
func TestOldKeysOnHigherNumber(t *testing.T) {
	for _, test := range []struct {
		name  string
		order []int // 0: the packet with new keys, 1: the higher one with old keys
		phase bool  // of the latter; the peer may lie about that too
	}{
		{"new first", []int{0, 1}, false},
		{"old first", []int{1, 0}, false},
		{"new first, with the new phase bit", []int{0, 1}, true},
	} {
		for _, oneBatch := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, one batch %v", test.name, oneBatch), func(t *testing.T) {
				a, b, _ := newEnds(t, aesSuite, 1)
				b.gets(a.seal())
				a.gets(b.seal())
				old, _ := a.SealKey()
				a.updates()
				ps := []packet{a.seal(), a.sealWith(old, a.nextPN, test.phase)}
				var err error
				if oneBatch {
					_, err = b.take(ps[test.order[0]], ps[test.order[1]])
				} else {
					b.gets(ps[test.order[0]])
					_, err = b.take(ps[test.order[1]])
				}
				wantCode(t, err, wire.KeyUpdateError)
			})
		}
	}
}

// A packet with new keys and a lower number than one with old keys is the same
// mistake, be it the first packet of its phase or not.
func TestNewKeysOnLowerNumber(t *testing.T) {
	for _, first := range []bool{true, false} {
		a, b, _ := newEnds(t, aesSuite, 1)
		b.gets(a.seal())
		a.gets(b.seal())
		pn := a.nextPN
		a.nextPN++
		b.gets(a.seal())
		a.updates()
		if !first {
			b.gets(a.seal())
		}
		s, phase := a.SealKey()
		_, err := b.take(a.sealWith(s, pn, phase))
		wantCode(t, err, wire.KeyUpdateError)
	}
}

func TestOneRTTReservedBits(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	p := wire.AppendShort(nil, []byte("conn"), 0, 4, false)
	p[0] |= 0x10
	p = append(p, make([]byte, 20)...)
	a.send.sealer.Seal(p, 5, 4, 0)
	_, err := b.take(packet{bytes: p})
	wantCode(t, err, wire.ProtocolViolation)
}

// RFC 9001 §6.2: the second of two updates comes before anything was sent that
// could confirm the first.
func TestPeerUpdatesTwice(t *testing.T) {
	twice := func() (b *end, ps [2]packet) {
		a, b, _ := newEnds(t, aesSuite, 1)
		b.gets(a.seal())
		a.gets(b.seal())
		for i := range ps {
			if err := a.updateSend(); err != nil {
				t.Fatal(err)
			}
			ps[i] = a.seal()
		}
		return b, ps
	}
	b, ps := twice()
	b.gets(ps[0])
	_, err := b.take(ps[1])
	wantCode(t, err, wire.KeyUpdateError)

	// In one batch there is no key yet to find out with.
	b, ps = twice()
	if dropped, err := b.take(ps[0], ps[1]); dropped != 1 || err != nil {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
	b.wantGen(1, 1)
}

// RFC 9001 §6.2: the peer acknowledges our update but does not follow it.
func TestPeerDoesNotFollow(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	b.gets(a.seal())
	a.gets(b.seal())
	old, _ := b.SealKey()
	a.updates()
	b.gets(a.seal())
	_, err := a.take(b.sealWith(old, b.nextPN, false))
	wantCode(t, err, wire.KeyUpdateError)
}

func TestBothUpdateAtOnce(t *testing.T) {
	a, b, c := newEnds(t, aesSuite, 1)
	b.gets(a.seal())
	a.gets(b.seal())
	b.gets(a.seal())
	a.updates()
	b.updates()
	pa, pb := a.seal(), b.seal()
	a.gets(pb)
	b.gets(pa)
	a.wantGen(1, 1)
	b.wantGen(1, 1)
	a.gets(b.seal())
	c.wait(3 * pto)
	a.updates()
	b.gets(a.seal())
	b.wantGen(2, 2)
}

// Packets from elsewhere, of either phase, change nothing and cost no keys.
func TestForgedPackets(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	forger, _, _ := newEnds(t, aesSuite, 1)
	forger.SetWriteSecret(bytes.Repeat([]byte{7}, 32))
	forge := func() {
		t.Helper()
		s, _ := forger.SealKey()
		// With the right header protection, so that the phase bit is the one wanted.
		s.hp = a.send.sealer.hp
		for _, phase := range []bool{false, true} {
			for _, pn := range []int64{0, 1, a.nextPN, a.nextPN + 1000} {
				next := b.recv.next
				if dropped, err := b.take(forger.sealWith(s, pn, phase)); dropped != 1 || err != nil {
					t.Fatalf("packet %d, phase %v: %d dropped, %v", pn, phase, dropped, err)
				}
				if b.recv.next != next {
					t.Fatal("a forged packet replaced the next keys")
				}
			}
		}
	}
	forge()
	b.gets(a.seal())
	a.gets(b.seal())
	forge()
	delayed := a.seal()
	a.updates()
	b.gets(a.seal())
	b.wantGen(1, 1)
	forge()
	b.gets(delayed, a.seal())
	b.wantGen(1, 1)
}

// countingAEAD counts how often it is asked to open.
type countingAEAD struct {
	cipher.AEAD
	n *int
}

func (c countingAEAD) Open(dst, nonce, ciphertext, aad []byte) ([]byte, error) {
	*c.n++
	return c.AEAD.Open(dst, nonce, ciphertext, aad)
}

// RFC 9001 §9.5: how much work a packet makes must not depend on the Key Phase bit
// or the number that it claims.
func TestWorkIsEven(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	var n int
	count := func() {
		for _, k := range []*packetKey{b.recv.prev, b.recv.cur, b.recv.next} {
			if k == nil {
				continue
			}
			if c, counts := k.aead.(countingAEAD); counts {
				k.aead = c.AEAD
			}
			k.aead = countingAEAD{k.aead, &n}
		}
	}
	work := func(p packet) int {
		t.Helper()
		count()
		n = 0
		b.Open(bytes.Clone(p.bytes), 5, b.largest)
		return n
	}
	forged := func(want int) {
		t.Helper()
		s, _ := a.SealKey()
		for _, phase := range []bool{false, true} {
			for _, pn := range []int64{0, a.nextPN, a.nextPN + 1000} {
				p := a.sealWith(s, pn, phase)
				p.bytes[len(p.bytes)-1] ^= 1
				if got := work(p); got != want {
					t.Errorf("forged packet %d, phase %v: %d tries, want %d", pn, phase, got, want)
				}
			}
		}
	}
	for range 10 {
		b.gets(a.seal())
	}
	a.gets(b.seal())
	forged(1)
	delayed := a.seal()
	a.updates()
	if got := work(a.seal()); got != 1 {
		t.Errorf("the packet that updates: %d tries", got)
	}
	forged(2) // with no next key at hand
	if err := b.Received(b.clock.now, pto); err != nil {
		t.Fatal(err)
	}
	forged(2)
	if got := work(delayed); got != 1 {
		t.Errorf("delayed packet: %d tries", got)
	}
	if got := work(a.seal()); got != 1 {
		t.Errorf("packet of the current phase: %d tries", got)
	}
}

func TestConfidentialityLimit(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	fresh := NewOneRTT(aesSuite, wire.Version1)
	if fresh.send.limit != 1<<23 || fresh.send.interval != 1<<22 {
		t.Errorf("limit %d, interval %d", fresh.send.limit, fresh.send.interval)
	}
	a.send.limit = 4 * limitReserve
	b.gets(a.seal())
	a.gets(b.seal())
	a.updates()
	b.gets(a.seal())
	a.gets(b.seal())
	a.Sent(a.nextPN, 3*limitReserve)
	a.doesNotUpdate("less than three PTOs after the last time")
	if err := a.SendLimit(); err == nil {
		t.Fatal("the reserve is used up")
	} else {
		wantCode(t, err, wire.AEADLimitReached)
	}
	// Near the end there is no waiting.
	a.Sent(a.nextPN, limitReserve/2+2)
	a.updates()
	if err := a.SendLimit(); err != nil {
		t.Fatal(err)
	}
}

func TestOneRTTIntegrityLimit(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 1)
	if b.recv.failures.limit != 1<<52 {
		t.Errorf("limit %d, want 2^52", b.recv.failures.limit)
	}
	b.recv.failures.limit = 2
	good := a.seal()
	bad := packet{bytes: make([]byte, 50)}
	if dropped, err := b.take(bad, bad, good); dropped != 2 || err != nil {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
	_, err := b.take(bad)
	wantCode(t, err, wire.AEADLimitReached)
	_, err = b.take(a.seal())
	wantCode(t, err, wire.AEADLimitReached)
}

func TestOpenWithoutKeys(t *testing.T) {
	k := NewOneRTT(aesSuite, wire.Version1)
	if _, _, err := k.Open(make([]byte, 50), 1, -1); !errors.Is(err, ErrDecrypt) {
		t.Error(err)
	}
	if err := k.Received(time.Unix(1, 0), pto); err != nil {
		t.Error(err)
	}
	if s, _ := k.SealKey(); s != nil {
		t.Error("a sealer without a secret")
	}
	if k.MaybeUpdate(time.Unix(1, 0), pto) {
		t.Error("an update without keys")
	}
}
