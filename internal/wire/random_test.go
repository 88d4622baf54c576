package wire

import (
	"math/rand/v2"
	"testing"
	"time"
)

// random draws values for property tests. Its seed is in the log of a test that
// fails.
type random struct{ *rand.Rand }

func newRandom(t *testing.T) random {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return random{rand.New(rand.NewPCG(seed, 0))}
}

// int63 is any varint, with every length and the borders between them likely.
func (r random) int63() int64 {
	if r.IntN(3) == 0 {
		border := []int64{0, 1<<6 - 1, 1 << 6, 1<<14 - 1, 1 << 14, 1<<30 - 1, 1 << 30, MaxVarint}
		return border[r.IntN(len(border))]
	}
	return int64(r.Uint64() >> (2 + r.IntN(62)))
}

func (r random) varint() uint64 { return uint64(r.int63()) }

// upTo is at most limit, and limit itself now and then.
func (r random) upTo(limit int64) int64 { return min(r.int63(), limit) }

func (r random) bool() bool { return r.IntN(2) == 0 }

func (r random) bytes(least, most int) []byte {
	b := make([]byte, least+r.IntN(most-least+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func (r random) fill(b []byte) { copy(b, r.bytes(len(b), len(b))) }

// ranges makes up to n ACK ranges.
func (r random) ranges(n int) []AckRange {
	hi := r.int63()
	var rs []AckRange
	for len(rs) < n && hi >= 0 {
		lo := max(0, hi-r.int63()>>r.IntN(62))
		rs = append(rs, AckRange{Lo: lo, Hi: hi})
		hi = lo - 2 - r.int63()>>r.IntN(62)
	}
	return rs
}

// frames makes one random frame of every kind.
func (r random) frames() []Frame {
	final := r.int63()
	seq := r.int63()
	ncid := NewConnectionID{Seq: seq, RetirePriorTo: r.upTo(seq), ID: r.bytes(1, MaxConnIDLen)}
	r.fill(ncid.ResetToken[:])
	var challenge PathChallenge
	var response PathResponse
	r.fill(challenge.Data[:])
	r.fill(response.Data[:])
	data := r.bytes(0, 200)
	crypto := r.bytes(0, 200)
	ack := Ack{Ranges: r.ranges(1 + r.IntN(40)), Delay: r.varint()}
	if r.bool() {
		ack.ECN, ack.ECT0, ack.ECT1, ack.CE = true, r.varint(), r.varint(), r.varint()
	}
	cc := ConnectionClose{App: r.bool(), Code: r.varint(), Reason: r.bytes(0, 100)}
	if !cc.App {
		cc.FrameType = r.varint()
	}
	return []Frame{
		Padding{N: 1 + r.IntN(50)},
		Ping{},
		ack,
		ResetStream{ID: r.int63(), Code: r.varint(), FinalSize: final},
		StopSending{ID: r.int63(), Code: r.varint()},
		Crypto{Off: r.upTo(MaxVarint - int64(len(crypto))), Data: crypto},
		NewToken{Token: r.bytes(1, 100)},
		Stream{ID: r.int63(), Off: r.upTo(MaxVarint - int64(len(data))), Data: data, Fin: r.bool(), HasLen: r.bool()},
		MaxData{Max: r.int63()},
		MaxStreamData{ID: r.int63(), Max: r.int63()},
		MaxStreams{Uni: r.bool(), Max: r.upTo(MaxStreamCount)},
		DataBlocked{Max: r.int63()},
		StreamDataBlocked{ID: r.int63(), Max: r.int63()},
		StreamsBlocked{Uni: r.bool(), Max: r.upTo(MaxStreamCount)},
		ncid,
		RetireConnectionID{Seq: r.int63()},
		challenge,
		response,
		cc,
		HandshakeDone{},
		Datagram{Data: r.bytes(0, 100), HasLen: r.bool()},
		ResetStreamAt{ID: r.int63(), Code: r.varint(), FinalSize: final, ReliableSize: r.upTo(final)},
		AckFrequency{Seq: r.int63(), Threshold: r.varint(), MaxDelay: r.varint(), Reordering: r.varint()},
		ImmediateAck{},
	}
}
