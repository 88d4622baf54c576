package quic

import (
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// A peer wants all of its connection IDs back, and offers in their place one that Volley
// has given back already, when it left a path: there is nothing to go on with.
func TestRetireAllForSpentID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asServer).handshake()
		home := p.dcid
		p.writeFrames(wire.OneRTT, newConnID(1, 0))
		p.settle()
		p.moveTo(farHost)
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		p.answer(p.theChallenge(p.post()[elseward]))
		p.moveTo(nil)
		p.dcid = home
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		p.settle()
		p.advance(10 * time.Second) // the other path is forgotten, and ID 1 with it
		if r := framesIn[wire.RetireConnectionID](p.post()[first]); len(r) == 0 || r[0].Seq != 1 {
			t.Fatalf("retired: %v", r)
		}
		p.writeFrames(wire.OneRTT, newConnID(1, 1))
		p.wantClosed("no ID is left", wire.ProtocolViolation)
	})
}

// A peer that retires IDs as fast as it can count, and acknowledges nothing, does not make
// Volley collect the ones that it is to send in their place: it cannot know them yet
// (RFC 9000 §19.16).
func TestRetireUnsentIDs(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.dcid = p.issued()[1].ID
		for seq := int64(2); ; {
			var fs []wire.Frame
			for range 100 {
				fs = append(fs, wire.RetireConnectionID{Seq: seq})
				seq++
			}
			p.writeFrames(wire.OneRTT, fs...)
			p.c.mu.Lock()
			due := len(p.c.control.queue)
			p.c.mu.Unlock()
			if due > 20 {
				t.Fatalf("%d frames wait to be sent", due)
			}
			if p.cause() != nil {
				break
			}
			if seq > 10000 {
				t.Fatal("it is never enough")
			}
		}
		p.wantClosed("it cannot know these", wire.ProtocolViolation)
	})
}
