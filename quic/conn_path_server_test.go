package quic

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// A server's view of a client that moves (RFC 9000 §9), by script.

// moveTo makes the actor send from another address from now on, nil being its first one.
func (p *actor) moveTo(a *net.UDPAddr) {
	p.from = nil
	if a != nil {
		p.from = a
		p.sock.mu.Lock()
		p.sock.others = append(p.sock.others, a)
		p.sock.mu.Unlock()
	}
}

// post is what Volley has sent since, by where it was sent to.
func (p *actor) post() map[string][]*sentDatagram {
	p.Helper()
	p.collect()
	m := map[string][]*sentDatagram{}
	for len(p.queue) > 0 {
		dg := p.wantDatagram("")
		m[dg.to.String()] = append(m[dg.to.String()], dg)
	}
	return m
}

// framesIn are the frames of type F in datagrams.
func framesIn[F wire.Frame](ds []*sentDatagram) (fs []F) {
	for _, d := range ds {
		for _, pkt := range d.packets {
			for _, f := range pkt.frames {
				if f, ok := f.(F); ok {
					fs = append(fs, f)
				}
			}
		}
	}
	return fs
}

// theChallenge is the only PATH_CHALLENGE in datagrams.
func (p *actor) theChallenge(ds []*sentDatagram) wire.PathChallenge {
	p.Helper()
	fs := framesIn[wire.PathChallenge](ds)
	if len(fs) != 1 {
		p.Fatalf("want one PATH_CHALLENGE, got %v in %v", fs, ds)
	}
	return fs[0]
}

// answer answers a challenge, in a datagram of 1200 bytes.
func (p *actor) answer(ch wire.PathChallenge, more ...wire.Frame) {
	p.Helper()
	p.writeFrames(wire.OneRTT, append([]wire.Frame{wire.PathResponse(ch), wire.Padding{N: 1100}}, more...)...)
}

// challenge is a frame that asks Volley to prove that a path works.
func challengeOf(s string) wire.PathChallenge {
	var f wire.PathChallenge
	copy(f.Data[:], s)
	return f
}

var (
	natPort  = &net.UDPAddr{IP: thereAddr.IP, Port: thereAddr.Port + 1} // after a rebinding
	farHost  = &net.UDPAddr{IP: net.IPv4(192, 0, 2, 66).To4(), Port: 6666}
	moreIDs  = []wire.Frame{newConnID(1, 0), newConnID(2, 0), newConnID(3, 0)}
	first    = thereAddr.String()
	elseward = farHost.String()
)

// movable is a server with a client that has given it connection IDs, and a stream on
// which the server has sent something.
func movable(t *testing.T, opts ...any) (*actor, *SendStream) {
	t.Helper()
	p := newActor(t, asServer, opts...).handshake()
	p.writeFrames(wire.OneRTT, moreIDs...)
	s, err := p.c.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	s.Write([]byte("hello"))
	p.settle()
	return p, s
}

func inBubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

func TestFollowClient(t *testing.T) {
	for _, tt := range []struct {
		name     string
		to       *net.UDPAddr
		otherID  bool // the client uses another of our IDs there
		wantID   string
		wantCwnd bool // the congestion window begins anew
	}{
		{"after a NAT's new port", natPort, false, "", false},
		{"after a NAT's new address", farHost, false, "", true},
		{"to another network", farHost, true, "n001", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, s := movable(t)
				p.c.mu.Lock()
				cc := p.c.cc
				p.c.mu.Unlock()
				if tt.otherID {
					p.dcid = p.issued()[2].ID
				}
				p.moveTo(tt.to)
				p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
				s.Write([]byte("more"))
				got := p.post()
				there := got[tt.to.String()]
				ch := p.theChallenge(there)
				if there[0].size != 1200 {
					t.Errorf("the challenge is in a datagram of %d bytes", there[0].size)
				}
				if len(framesIn[wire.Stream](there)) != 1 {
					t.Errorf("what is sent goes to the new address: %v", got)
				}
				want := tt.wantID
				if want == "" {
					want = string(p.scid)
				}
				for _, d := range there {
					if id := string(d.packets[0].dst); id != want {
						t.Errorf("the connection ID there is %q, want %q", id, want)
					}
				}
				// The former path is tried as well (RFC 9000 §9.3.3).
				old := p.theChallenge(got[first])
				if old == ch || len(framesIn[wire.Stream](got[first])) > 0 {
					t.Errorf("sent to the former address: %v", got[first])
				}
				if a := p.c.RemoteAddr().String(); a != tt.to.String() {
					t.Errorf("RemoteAddr is %v", a)
				}
				p.answer(ch)
				p.advance(100 * time.Millisecond)
				if len(framesIn[wire.NewToken](p.post()[tt.to.String()])) == 0 {
					t.Errorf("no token for the new address (RFC 9000 §9.3)")
				}
				p.c.mu.Lock()
				if anew := p.c.cc != cc; anew != tt.wantCwnd {
					t.Errorf("the congestion window begins anew: %v (RFC 9000 §9.4)", anew)
				}
				p.c.mu.Unlock()
				// The former path does not answer: it is forgotten, and its ID goes back.
				p.advance(10 * time.Second)
				retired := framesIn[wire.RetireConnectionID](p.post()[tt.to.String()])
				if tt.otherID != (len(retired) > 0) || tt.otherID && retired[0].Seq != 0 {
					t.Errorf("retired: %v", retired)
				}
				s.Write([]byte("at last"))
				if len(framesIn[wire.Stream](p.post()[tt.to.String()])) == 0 {
					t.Errorf("nothing goes to the new address")
				}
			})
		})
	}
}

// A path that is only probed is validated both ways, and not used (RFC 9000 §9.1).
func TestProbeIsNoMove(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, s := movable(t)
		home := p.dcid
		p.moveTo(farHost)
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, challengeOf("is it ok"), newConnID(3, 0), wire.Padding{N: 1100})
		got := p.post()
		there := got[elseward]
		if len(there) != 1 || there[0].size != 1200 || len(there[0].packets[0].frames) != 3 {
			t.Fatalf("want one datagram of PATH_CHALLENGE, PATH_RESPONSE and PADDING, got %v", there)
		}
		if r := framesIn[wire.PathResponse](there); len(r) != 1 || r[0].Data != challengeOf("is it ok").Data {
			t.Errorf("answers: %v", r)
		}
		if id := string(there[0].packets[0].dst); id != "n001" {
			t.Errorf("the connection ID there is %q", id)
		}
		p.answer(p.theChallenge(there))
		s.Write([]byte("still here"))
		got = p.post()
		if len(got[elseward]) > 0 || len(framesIn[wire.Stream](got[first])) != 1 {
			t.Errorf("the path is in use: %v", got)
		}
		if a := p.c.RemoteAddr().String(); a != first {
			t.Errorf("RemoteAddr is %v", a)
		}
		// Now it moves, to where it is known to be: no more questions, and no limit.
		p.writeFrames(wire.OneRTT, wire.Ping{})
		s.Write(make([]byte, 5000))
		got = p.post()
		if len(framesIn[wire.PathChallenge](got[elseward])) > 0 || len(framesIn[wire.Stream](got[elseward])) < 4 {
			t.Errorf("after the move: %v", got)
		}
		// A packet that is late does not bring it back.
		p.moveTo(nil)
		p.dcid = home
		late := p.packet(wire.OneRTT, wire.Ping{})
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.post()
		p.moveTo(nil)
		p.send(late)
		s.Write([]byte("over there"))
		if got := p.post(); len(framesIn[wire.Stream](got[first])) > 0 {
			t.Errorf("a packet that was overtaken moved the client: %v", got)
		}
	})
}

// RFC 9000 §9.3.2, §9.3.3: somebody sends copies of the client's packets from another
// address, and they arrive first.
func TestSpoofedAddress(t *testing.T) {
	spoof := func(p *actor) {
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1350})
		p.moveTo(nil)
	}
	t.Run("the client goes on", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p, s := movable(t)
			p.c.mu.Lock()
			cc, window, rtt := p.c.cc, p.c.cc.Window(), *p.c.rec.RTT()
			p.c.mu.Unlock()
			spoof(p)
			s.Write(make([]byte, 20000))
			got := p.post() // at most three times what came from there: watch sees to that
			ch := p.theChallenge(got[first])
			astray := framesIn[wire.Stream](got[elseward])
			if len(astray) == 0 {
				t.Fatal("nothing was sent to the new address")
			}
			// The client knows nothing of that, and answers.
			p.writeFrames(wire.OneRTT, wire.PathResponse(ch), wire.Padding{N: 1100}, wire.Ack{Ranges: []wire.AckRange{{Lo: 0, Hi: 0}}})
			p.advance(10 * time.Millisecond)
			got = p.post()
			if len(got[elseward]) > 0 {
				t.Errorf("still sent there: %v", got[elseward])
			}
			n := 0
			for _, f := range framesIn[wire.Stream](got[first]) {
				n += len(f.Data)
			}
			if n < 10000 {
				t.Errorf("%d bytes were sent to the client", n)
			}
			// What went astray goes again, at once, and is no sign of congestion.
			var again spans
			for _, f := range framesIn[wire.Stream](got[first]) {
				again.add(f.Off, f.Off+int64(len(f.Data))-1)
			}
			for _, f := range astray {
				if !again.contains(f.Off) || !again.contains(f.Off+int64(len(f.Data))-1) {
					t.Errorf("not sent again: %v, but %v", f, again)
				}
			}
			p.c.mu.Lock()
			if p.c.cc != cc || p.c.cc.Window() < window || *p.c.rec.RTT() != rtt || p.c.rec.Stats().PacketsLost > 0 {
				t.Errorf("the attack changed window or RTT, or counts as loss")
			}
			p.c.mu.Unlock()
			p.settle()
			p.advance(20 * time.Second)
			if got := p.post(); len(got[elseward]) > 0 {
				t.Errorf("later: %v", got)
			}
		})
	})
	t.Run("the client is silent", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p, s := movable(t)
			spoof(p)
			s.Write([]byte("to whom?"))
			p.advance(900 * time.Millisecond)
			p.post()
			p.advance(5 * time.Second)
			if a := p.c.RemoteAddr().String(); a != first {
				t.Fatalf("RemoteAddr is %v", a)
			}
			found := false
			for _, f := range framesIn[wire.Stream](p.post()[first]) {
				found = found || string(f.Data) == "to whom?"
			}
			if !found {
				t.Errorf("what went astray was not sent again")
			}
			var acks []int64
			for _, pkt := range p.packets {
				if pkt.typ == wire.OneRTT && pkt.dg.to.String() == first {
					acks = append(acks, pkt.pn)
				}
			}
			p.writeFrames(wire.OneRTT, ack(acks...))
			if n := p.c.ConnectionStats().PacketsLost; n > 0 {
				t.Errorf("%d packets count as lost", n)
			}
			s.Write([]byte("to you"))
			if got := p.post(); len(got[elseward]) > 0 || len(got[first]) == 0 {
				t.Errorf("after the validation failed: %v", got)
			}
		})
	})
	t.Run("from everywhere", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p, _ := movable(t)
			for i := range 50 {
				p.moveTo(&net.UDPAddr{IP: net.IPv4(198, 51, 100, byte(i)).To4(), Port: 1})
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.c.mu.Lock()
				if n := len(p.c.paths.all); n > maxPaths {
					t.Errorf("%d paths", n)
				}
				p.c.mu.Unlock()
			}
			p.post()
			p.moveTo(nil)
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.advance(time.Second)
			if got := p.post(); len(got) != 1 || len(got[first]) == 0 {
				t.Errorf("the client is back, and %v", got)
			}
		})
	})
}

// RFC 9000 §14.2: as long as it is not known what the new path carries, datagrams are as
// small as at the beginning. On the former one nothing has changed.
func TestDatagramSizeOnNewPath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, s := movable(t, func(c *Config) { c.InitialPacketSize = 1220 })
		p.c.mu.Lock()
		p.c.mtu.low = 1400
		p.c.snd.SetDatagramSize(1400)
		p.c.mu.Unlock()
		longest := func(ds []*sentDatagram) (n int) {
			for _, d := range ds {
				n = max(n, d.size)
			}
			return n
		}
		p.moveTo(farHost)
		for range 3 {
			p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		}
		s.Write(make([]byte, 20000))
		if n := longest(p.post()[elseward]); n != 1220 {
			t.Errorf("to the new address: %d bytes", n)
		}
		p.moveTo(nil)
		p.writeFrames(wire.OneRTT, wire.Ping{}, p.ackFrame(wire.OneRTT))
		p.advance(10 * time.Millisecond)
		if n := longest(p.post()[first]); n != 1400 {
			t.Errorf("to the former address: %d bytes", n)
		}
	})
}

// Challenges and answers get lost (RFC 9000 §8.2.1): it takes another one.
func TestChallengesAreRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t)
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		one := p.theChallenge(p.post()[elseward])
		p.advance(900 * time.Millisecond)
		if n := len(framesIn[wire.PathChallenge](p.post()[elseward])); n > 0 {
			t.Errorf("%d more challenges within a second: Initials come no faster", n)
		}
		p.advance(200 * time.Millisecond)
		two := p.theChallenge(p.post()[elseward])
		if one == two {
			t.Errorf("the same challenge again: %v", one)
		}
		// An answer to the first one is good enough, an acknowledgement is not (§8.2.3).
		p.writeFrames(wire.OneRTT, p.ackFrame(wire.OneRTT), wire.Padding{N: 1100})
		p.c.mu.Lock()
		if p.c.validated {
			t.Errorf("an ACK validated the path")
		}
		p.c.mu.Unlock()
		// It may come by any path.
		p.answer(one)
		p.c.mu.Lock()
		if !p.c.validated {
			t.Errorf("the path is not validated")
		}
		p.c.mu.Unlock()
	})
}

// A client that has sent little from its new address is sent little, and asked once more
// whether datagrams of 1200 bytes arrive (RFC 9000 §8.2.1).
func TestChallengeWithinAllowance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, s := movable(t)
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{}) // about 25 bytes
		s.Write(make([]byte, 3000))
		there := p.post()[elseward]
		ch := p.theChallenge(there)
		if len(there) != 1 || there[0].size > 100 {
			t.Fatalf("%v", there)
		}
		p.writeFrames(wire.OneRTT, wire.PathResponse(ch))
		there = p.post()[elseward]
		ch = p.theChallenge(there)
		n := 0
		for _, f := range framesIn[wire.Stream](there) {
			n += len(f.Data)
		}
		if n != 3000 {
			t.Errorf("%d bytes were sent to a client that has answered", n)
		}
		for _, d := range there {
			if len(framesIn[wire.PathChallenge]([]*sentDatagram{d})) > 0 && d.size != 1200 {
				t.Errorf("the second challenge is in %d bytes", d.size)
			}
		}
		p.answer(ch)
		p.settle()
		p.advance(20 * time.Second)
		if a := p.c.RemoteAddr().String(); a != elseward {
			t.Errorf("RemoteAddr is %v", a)
		}
	})
	// If they do not, the path is of no use.
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t)
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.writeFrames(wire.OneRTT, wire.PathResponse{Data: p.theChallenge(p.post()[elseward]).Data})
		p.advance(20 * time.Second)
		if a := p.c.RemoteAddr().String(); a != first {
			t.Errorf("RemoteAddr is %v", a)
		}
	})
}

// RFC 9000 §8.2.2: who probes with little gets little, too.
func TestAnswerWithinAllowance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t)
		p.dcid = p.issued()[1].ID
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, challengeOf("tiny")) // watch minds the limit
		there := p.post()[elseward]
		if len(framesIn[wire.PathResponse](there)) != 1 || len(there) != 1 {
			t.Errorf("answers: %v", there)
		}
	})
}

// RFC 9000 §9.3: without a connection ID for it, nothing can be sent on a new path; as
// soon as there is one, it goes on.
func TestNoConnIDForPath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asServer).handshake()
		p.dcid = p.issued()[1].ID
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		p.advance(time.Second)
		if got := p.post(); len(got[elseward]) > 0 {
			t.Errorf("sent without a connection ID: %v", got)
		}
		p.writeFrames(wire.OneRTT, newConnID(1, 0))
		got := p.post()
		p.theChallenge(got[elseward])
		if id := string(got[elseward][0].packets[0].dst); id != "n001" {
			t.Errorf("the connection ID there is %q", id)
		}
	})
}

// A peer that wants its connection IDs back gets them, of paths that are not in use, too.
func TestRetirePriorToOnPaths(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, s := movable(t)
		p.moveTo(farHost)
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, challengeOf("probe"), wire.Padding{N: 1100})
		p.post()
		p.moveTo(nil)
		p.writeFrames(wire.OneRTT, newConnID(4, 3))
		s.Write([]byte("x"))
		got := p.post()
		var seqs []int64
		for _, f := range framesIn[wire.RetireConnectionID](got[first]) {
			seqs = append(seqs, f.Seq)
		}
		if fmt.Sprint(seqs) != "[0 1 2]" {
			t.Errorf("retired: %v", seqs)
		}
		for _, d := range got[first] {
			if id := string(d.packets[0].dst); id != "n003" {
				t.Errorf("the connection ID is %q", id)
			}
		}
		for _, id := range []int64{0, 1, 2} {
			delete(p.ids, id) // watch minds them from now on
		}
		p.advance(3 * time.Second)
	})
}

// RFC 9000 §21.9: who probes from many addresses gets few answers.
func TestFewPathsAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t)
		home := p.dcid
		p.dcid = p.issued()[1].ID
		known := func() int {
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			return len(p.c.paths.all)
		}
		for i := range 20 {
			p.moveTo(&net.UDPAddr{IP: net.IPv4(198, 51, 100, byte(i)).To4(), Port: 1})
			p.writeFrames(wire.OneRTT, challengeOf(fmt.Sprint("from", i)), wire.Padding{N: 1100})
			if n := known(); n > maxPaths {
				t.Errorf("%d paths", n)
			}
		}
		// The first ones, that is, which are left alone for a while.
		got := p.post()
		if got["198.51.100.0:1"] == nil || got["198.51.100.2:1"] == nil || got["198.51.100.19:1"] != nil {
			t.Errorf("answers: %v", got)
		}
		// But for a client that moves there is room.
		p.dcid = home
		p.moveTo(natPort)
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		if got := p.post(); got[natPort.String()] == nil || known() > maxPaths {
			t.Errorf("%d paths; %v", known(), got)
		}
		p.moveTo(nil)
		p.advance(20 * time.Second)
		p.c.mu.Lock()
		if n := len(p.c.paths.all); n != 1 {
			t.Errorf("%d paths are left", n)
		}
		p.c.mu.Unlock()
		p.wantAlive("after the flood")
	})
}

// Field report A17 (CVE-2023-49295): a flood of challenges while the peer squeezes our
// window. What waits stays little, and other things go on.
func TestPathChallengeFloodOnPaths(t *testing.T) {
	for _, tt := range []struct {
		name      string
		perPacket int
		to        *net.UDPAddr
	}{
		{"one per packet", 1, nil},
		{"100 per packet", 100, nil},
		{"on another path", 100, farHost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, s := movable(t)
				done := make(chan error, 1)
				const size = 40 << 10
				go func() {
					_, err := s.Write(make([]byte, size))
					done <- err
				}()
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				p.moveTo(tt.to)
				if tt.to != nil {
					p.dcid = p.issued()[1].ID
				}
				most := 0
				const flood = 20000
				for n := 0; n < flood; n += tt.perPacket {
					fs := make([]wire.Frame, 0, tt.perPacket+1)
					for i := range tt.perPacket {
						fs = append(fs, challengeOf(fmt.Sprint(n+i)))
					}
					if n%1000 == 0 && tt.to == nil {
						// Every other packet only: the window shrinks.
						p.collect()
						var pns []int64
						for _, pkt := range p.packets[max(len(p.packets)-40, 0):] {
							if pkt.typ == wire.OneRTT && pkt.pn%2 == 0 {
								pns = append(pns, pkt.pn)
							}
						}
						fs = append(fs, ack(pns...))
					}
					p.writeFrames(wire.OneRTT, fs...)
					p.c.mu.Lock()
					most = max(most, len(p.c.paths.answers))
					p.c.mu.Unlock()
					p.queue = nil
				}
				if most > maxPathAnswers {
					t.Errorf("%d answers waited", most)
				}
				p.moveTo(nil)
				p.transcript = nil
				for range 100 {
					p.ackAll()
					p.advance(100 * time.Millisecond)
				}
				p.packets, p.queue, p.transcript = nil, nil, nil
				runtime.GC()
				runtime.ReadMemStats(&after)
				if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
					t.Errorf("the heap has grown by %d bytes", grown)
				}
				if err := <-done; err != nil {
					t.Errorf("the stream did not get on: %v", err)
				}
				if n := len(p.watching.streams[int64(3)].tape.data); n != size+5 {
					t.Errorf("%d bytes arrived", n)
				}
				p.wantAlive("after the flood")
			})
		})
	}
}

// No move before the handshake is confirmed (RFC 9000 §9).
func TestNoMoveDuringHandshake(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.moveTo(natPort)
		p.send(p.packet(wire.Initial, p.ackFrame(wire.Initial)),
			p.packet(wire.Handshake, p.ackFrame(wire.Handshake), p.cryptoFrame(wire.Handshake)))
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.collect()
		for _, pkt := range p.packets {
			if pkt.typ != wire.OneRTT && pkt.dg.to.String() != first {
				t.Errorf("%v went to %v", pkt.typ, pkt.dg.to)
			}
		}
		if _, err := p.accepted(p.Context()); err != nil && err != io.EOF {
			t.Error(err)
		}
	})
}

// What was sent to a connection ID before the peer retired it may take a longer way than
// what retired it.
func TestLatePacketToRetiredConnID(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		old := p.dcid
		p.dcid = p.issued()[1].ID
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 0})
		p.settle()
		p.queue = nil
		p.c.mu.Lock()
		gone := len(p.c.ids.gone)
		p.c.mu.Unlock()
		if gone > 0 {
			t.Errorf("%d IDs are kept for longer than a second", gone)
		}
		s := p.packet(wire.OneRTT, wire.Ping{})
		s.dst = old
		p.send(s)
		p.advance(time.Second)
		p.wantIdle("far too late")

		late := p.packet(wire.OneRTT, wire.Ping{})
		p.dcid = p.issued()[2].ID
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		p.send(late)
		p.advance(50 * time.Millisecond)
		found := false
		for _, f := range heard[wire.Ack](p) {
			for _, r := range f.Ranges {
				found = found || r.Lo <= late.pn && late.pn <= r.Hi
			}
		}
		if !found {
			t.Errorf("a packet that was a little late is not acknowledged")
		}
	})
}
