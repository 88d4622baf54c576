package quic

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// issued is every connection ID that Volley has given out, by sequence number.
func (p *actor) issued() map[int64]wire.NewConnectionID {
	p.Helper()
	p.collect()
	ids := map[int64]wire.NewConnectionID{}
	for _, pkt := range p.packets {
		for _, f := range pkt.frames {
			f, ok := f.(wire.NewConnectionID)
			if !ok {
				continue
			}
			if old, ok := ids[f.Seq]; ok && (string(old.ID) != string(f.ID) || old.ResetToken != f.ResetToken) {
				p.Errorf("%v differs from %v", f, old)
			}
			ids[f.Seq] = f
		}
	}
	return ids
}

func newConnID(seq, prior int64) wire.NewConnectionID {
	return wire.NewConnectionID{Seq: seq, RetirePriorTo: prior, ID: fmt.Appendf(nil, "n%03d", seq), ResetToken: [16]byte{byte(seq), 1}}
}

// Volley gives out as many connection IDs as the peer keeps (RFC 9000 §5.1.1), and no
// more than it wants to remember.
func TestIssueConnIDs(t *testing.T) {
	for limit, want := range map[int64]int{2: 1, 3: 2, 4: 3, 1000: 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, func(tp *wire.TransportParams) { tp.ActiveConnIDLimit = limit }).handshake()
				ids := p.issued()
				if len(ids) != want {
					t.Errorf("%d IDs were issued, want %d", len(ids), want)
				}
				for seq, f := range ids {
					if seq < 1 || seq > int64(want) || f.RetirePriorTo != 0 {
						t.Errorf("%v", f)
					}
					p.dcid = f.ID
					p.writeFrames(wire.OneRTT, wire.Ping{})
					p.advance(time.Second)
					wantA[wire.Ack](p, "packets to every ID arrive", wire.OneRTT)
				}
			})
		})
	}
}

// A connection ID that the peer retires is replaced, and is of no use any more.
func TestPeerRetiresConnID(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		old := p.dcid
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 0})
		p.advance(time.Second)
		p.ignore(wire.FrameAck)
		f := wantA[wire.NewConnectionID](p, "a new one in its place", wire.OneRTT)
		if f.Seq != 4 {
			t.Errorf("%v", f)
		}
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 0})
		p.settle()
		p.wantAlive("to say it twice does no harm")

		s := p.packet(wire.OneRTT, wire.Ping{}, rawFrame{0x21})
		s.dst = old
		p.advance(time.Minute / 4) // longer than anything is on its way
		p.send(s)
		p.wantIdle("the old one leads nowhere")
		p.wantAlive("the old one leads nowhere")
		// All at once.
		p.dcid = f.ID
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 1}, wire.RetireConnectionID{Seq: 2}, wire.RetireConnectionID{Seq: 3})
		p.settle()
		if n := len(p.issued()); n != 7 {
			t.Errorf("%d IDs were issued, want 7", n)
		}
	})
}

// RFC 9000 §5.1.2: what the peer wants back it gets back, and Volley goes on with the
// next. The watch sees that no packet goes to an ID and retires it.
func TestRetirePriorTo(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.ignore(wire.FrameAck)
		p.writeFrames(wire.OneRTT, newConnID(1, 0))
		p.writeFrames(wire.OneRTT, newConnID(2, 0))
		p.settle()
		p.writeFrames(wire.OneRTT, newConnID(3, 2))
		p.ignore(wire.FrameAck)
		p.wantFrame("the first one is retired", wire.OneRTT, wire.RetireConnectionID{Seq: 0})
		pkt := p.wantFrame("and the second", wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		if string(pkt.dst) != "n002" {
			t.Errorf("it is sent to %q", pkt.dst)
		}
		delete(p.ids, 0)
		delete(p.ids, 1)
		p.settle()
		p.writeFrames(wire.OneRTT, newConnID(3, 2))
		p.wantIdle("said again, it is nothing new")
		// A frame that was overtaken: retired before it was known.
		p.writeFrames(wire.OneRTT, newConnID(1, 0))
		p.wantFrame("it goes back at once", wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		p.settle()
		// The limit counts what is left.
		p.writeFrames(wire.OneRTT, newConnID(4, 2))
		p.writeFrames(wire.OneRTT, newConnID(5, 2))
		p.wantAlive("four IDs are allowed")
		p.writeFrames(wire.OneRTT, newConnID(6, 2))
		p.wantClosed("five are not", wire.ConnectionIDLimitError)
	})
}

// Connection IDs, and their retirement, are said again if the packet is lost (RFC 9000
// §13.3).
func TestConnIDFramesLost(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, newConnID(1, 1), wire.RetireConnectionID{Seq: 0})
		for range 3 {
			p.advanceToSend()
			lost := p.largest[recovery.App]
			p.queue = nil
			for p.largest[recovery.App] < lost+3 {
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.advance(100 * time.Millisecond)
			}
			p.queue = nil
			p.writeFrames(wire.OneRTT, ack(p.largest[recovery.App]))
			p.advance(time.Second)
			retired, issued := 0, 0
			for _, s := range p.queue {
				switch f := s.f.(type) {
				case wire.RetireConnectionID:
					retired++
				case wire.NewConnectionID:
					if f.Seq == 4 {
						issued++
					}
				}
			}
			if retired == 0 || issued == 0 {
				t.Fatalf("after a loss RETIRE_CONNECTION_ID came %d times, NEW_CONNECTION_ID %d times", retired, issued)
			}
		}
		p.settle()
		p.issued() // all alike
		p.advance(10 * time.Second)
		p.wantIdle("acknowledged, they are not said again")
	})
}

// A peer that makes Volley retire IDs without end, and does not acknowledge it, is
// cut off (RFC 9000 §5.1.2).
func TestRetireFlood(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		for seq := int64(1); seq < 10000; seq++ {
			f := newConnID(seq, seq)
			f.ID = fmt.Appendf(nil, "%04d", seq)
			p.writeFrames(wire.OneRTT, f)
			delete(p.ids, seq-1)
			if p.cause() != nil {
				p.wantClosed("enough", wire.ConnectionIDLimitError)
				return
			}
		}
		t.Error("it is never enough")
	})
}

// An endpoint alone on its socket has no connection IDs, and so none to give out.
func TestVolleyWithoutConnIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient, func(tr *Transport) { tr.singleUse = true }).handshake()
		if len(p.dcid) != 0 {
			t.Fatalf("Volley's ID is %x", p.dcid)
		}
		if n := len(p.issued()); n != 0 {
			t.Errorf("%d IDs were issued", n)
		}
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 0})
		p.wantClosed("there is nothing to retire", wire.ProtocolViolation)
	})
}

// RFC 9000 §5.1.1: the ID of preferred_address is number 1, whether the client goes there
// or not.
func TestPreferredAddressConnID(t *testing.T) {
	preferred := func(tp *wire.TransportParams) {
		tp.PreferredAddress = &wire.PreferredAddress{
			IPv4: netip.MustParseAddrPort("10.0.0.3:443"), ConnID: []byte("pref"), ResetToken: aToken,
		}
	}
	known := func(p *actor) { p.ids[1] = []byte("pref") }
	t.Run("it counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, preferred, known).handshake()
			p.writeFrames(wire.OneRTT, newConnID(2, 0), newConnID(3, 0))
			p.wantAlive("four IDs")
			p.writeFrames(wire.OneRTT, newConnID(4, 0))
			p.wantClosed("five IDs", wire.ConnectionIDLimitError)
		})
	})
	t.Run("its number is taken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, preferred, known).handshake()
			p.writeFrames(wire.OneRTT, newConnID(1, 0))
			p.wantClosed("another ID of that number", wire.ProtocolViolation)
		})
	})
	t.Run("it is retired like any other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, preferred, known).handshake()
			p.writeFrames(wire.OneRTT, newConnID(2, 2))
			p.ignore(wire.FrameAck)
			p.wantFrame("the handshake's", wire.OneRTT, wire.RetireConnectionID{Seq: 0})
			p.wantFrame("the preferred address's", wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		})
	})
	t.Run("not with a zero-length connection ID", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, noConnID, preferred)
			p.start()
			p.writeCrypto(wire.Initial)
			p.writeCrypto(wire.Handshake)
			p.wantClosed("RFC 9000 §18.2", wire.TransportParameterError)
		})
	})
}
