package quic

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// RFC 9000 §8.2.2: a challenge is answered with what it holds, once, in a datagram of
// 1200 bytes.
func TestPathChallenge(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.ignore(wire.FrameAck)
		data := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
		p.writeFrames(wire.OneRTT, wire.PathChallenge{Data: data})
		pkt := p.wantFrame("the answer", wire.OneRTT, wire.PathResponse{Data: data})
		if pkt.dg.size < 1200 {
			t.Errorf("%v", pkt.dg)
		}
		p.wantIdle("once")
		p.lose()
		p.advance(10 * time.Second)
		for _, f := range heard[wire.PathResponse](p) {
			t.Errorf("%v again: the peer asks again if it wants to know", f)
		}
		// Along with data.
		s := p.open(uni)
		p.writeFrames(wire.OneRTT, wire.PathChallenge{Data: data}, wire.PathChallenge{Data: [8]byte{9}})
		s.Write([]byte("data"))
		p.collect()
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				if _, ok := f.(wire.PathResponse); ok && pkt.dg.size < 1200 {
					t.Errorf("%v", pkt.dg)
				}
			}
		}
	})
}

// A17: who floods Volley with challenges, and lets it send little, gets few answers; the
// rest is forgotten.
func TestPathChallengeFlood(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s := p.open(uni)
		w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
		p.advance(5 * time.Millisecond)
		p.queue = nil
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		n := uint64(0)
		for range 500 {
			var fs []wire.Frame
			for range 100 {
				var data [8]byte
				binary.BigEndian.PutUint64(data[:], n)
				n++
				fs = append(fs, wire.PathChallenge{Data: data})
			}
			p.writeFrames(wire.OneRTT, fs...)
			p.queue = nil
			// The test's own memory of what was said is not the point.
			p.packets, p.transcript = nil, nil
			p.got[recovery.App] = p.got[recovery.App][max(0, len(p.got[recovery.App])-1):]
		}
		if k := len(p.c.paths.answers); k > maxPathAnswers {
			t.Errorf("%d answers wait", k)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		p.wantAlive("harmless")
		p.got[recovery.App] = spans{{0, p.largest[recovery.App]}}
		p.mayAckAll(w)
	})
}

// mayAckAll acknowledges until w has returned. Numbers that were skipped are left out.
func (p *actor) mayAckAll(w *call[int]) {
	p.Helper()
	p.c.mu.Lock()
	next := p.c.rec.NextPN(recovery.App)
	p.c.mu.Unlock()
	p.got[recovery.App] = p.got[recovery.App][:0]
	for range 200 {
		if w.finished() {
			return
		}
		p.advance(100 * time.Millisecond)
		if len(p.got[recovery.App]) > 0 && p.got[recovery.App][0].lo < next {
			p.got[recovery.App].remove(0, next-1)
		}
		p.unacked[recovery.App] = 1
		if len(p.got[recovery.App]) > 0 {
			p.ackAll()
		}
	}
	p.Fatal("the stream does not move")
}
