package quic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// A client that moves (RFC 9000 §9), by script.

var sideAddr = &net.UDPAddr{IP: net.IPv4(172, 16, 0, 9).To4(), Port: 999}

// withSide is a client that has connection IDs of the server's, and another socket.
func withSide(t *testing.T, opts ...any) (p *actor, side *Transport, sock *actorSocket) {
	t.Helper()
	p = newActor(t, asClient, opts...).handshake()
	p.writeFrames(wire.OneRTT, moreIDs...)
	p.settle()
	sock = p.sock.side(sideAddr)
	side = &Transport{Conn: sock}
	t.Cleanup(func() { side.Close() })
	return p, side, sock
}

// post is by where datagrams came from, for a client with several sockets.
func (p *actor) postFrom() map[string][]*sentDatagram {
	p.Helper()
	p.collect()
	m := map[string][]*sentDatagram{}
	for len(p.queue) > 0 {
		dg := p.wantDatagram("")
		m[dg.from.String()] = append(m[dg.from.String()], dg)
	}
	return m
}

func TestProbeAndSwitch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, side, sock := withSide(t)
		path, err := p.c.AddPath(side)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != ErrPathNotValidated {
			t.Errorf("Switch before Probe: %v", err)
		}
		probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
		got := p.postFrom()
		if len(got) != 1 || len(got[sideAddr.String()]) != 1 {
			t.Fatalf("want one datagram from the new socket, got %v", got)
		}
		dg := got[sideAddr.String()][0]
		ch := p.theChallenge([]*sentDatagram{dg})
		if dg.size != 1200 || string(dg.packets[0].dst) != "n001" || len(dg.packets[0].frames) != 2 {
			t.Errorf("want a PATH_CHALLENGE and PADDING to a new connection ID, got %v", dg)
		}
		if err := path.Switch(); err != ErrPathNotValidated {
			t.Errorf("Switch before the answer: %v", err)
		}
		// The server probes as well. Each answer leaves where the challenge came in.
		p.into = sock
		p.writeFrames(wire.OneRTT, challengeOf("on side"))
		p.into = nil
		p.writeFrames(wire.OneRTT, challengeOf("at home"))
		got = p.postFrom()
		if r := framesIn[wire.PathResponse](got[sideAddr.String()]); len(r) != 1 || r[0].Data != challengeOf("on side").Data {
			t.Errorf("on the new path: %v", got[sideAddr.String()])
		}
		home := got[p.sock.local.String()]
		if r := framesIn[wire.PathResponse](home); len(r) != 1 || r[0].Data != challengeOf("at home").Data || home[0].size != 1200 {
			t.Errorf("on the path in use: %v", home)
		}
		if len(framesIn[wire.Ack](home[:1])) == 0 {
			t.Errorf("on the path in use the answer should be no mere probe (RFC 9000 §9.3.3): %v", home)
		}
		for _, pkt := range got[sideAddr.String()][0].packets {
			for _, f := range pkt.frames {
				switch f.(type) {
				case wire.PathResponse, wire.Padding:
				default:
					t.Errorf("%v on a path that is only probed", f)
				}
			}
		}
		if probing.finished() {
			t.Errorf("Probe returned %v without an answer", probing.err)
		}
		p.answer(ch)
		if _, err := probing.result(); err != nil {
			t.Errorf("Probe: %v", err)
		}
		p.settle()

		// Nothing has moved yet.
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("one"))
		if got := p.postFrom(); len(got[sideAddr.String()]) > 0 {
			t.Errorf("before Switch: %v", got)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		if a := p.c.LocalAddr().String(); a != sideAddr.String() {
			t.Errorf("LocalAddr is %v", a)
		}
		s.Write([]byte("two"))
		p.into = sock
		got = p.postFrom()
		if len(got) != 1 || len(framesIn[wire.Ping](got[sideAddr.String()])) == 0 || len(framesIn[wire.Stream](got[sideAddr.String()])) == 0 {
			t.Errorf("after Switch: %v", got)
		}
		if err := path.Close(); err == nil {
			t.Errorf("the path in use was closed")
		}
		// What was on its way by the former path went astray: it goes again.
		found := false
		for _, f := range framesIn[wire.Stream](got[sideAddr.String()]) {
			found = found || f.Off == 0
		}
		if !found {
			t.Errorf("nothing is sent again: %v", got)
		}
		p.settle()
		// The former path is forgotten, with its connection ID.
		p.advance(pathIdle + time.Second)
		if r := framesIn[wire.RetireConnectionID](p.postFrom()[sideAddr.String()]); !retiresOnly(r, 0) {
			t.Errorf("retired: %v", r)
		}
		delete(p.ids, 0)

		// And back.
		back, err := p.c.AddPath(p.transport)
		if err != nil {
			t.Fatal(err)
		}
		probing = start(func() (struct{}, error) { return struct{}{}, back.Probe(t.Context()) })
		got = p.postFrom()
		dg = got[p.sock.local.String()][0]
		if id := string(dg.packets[0].dst); id != "n002" {
			t.Errorf("the connection ID is %q", id)
		}
		p.answer(p.theChallenge([]*sentDatagram{dg}))
		if _, err := probing.result(); err != nil {
			t.Errorf("Probe: %v", err)
		}
		if err := back.Switch(); err != nil {
			t.Errorf("Switch: %v", err)
		}
		if a := p.c.LocalAddr().String(); a != p.sock.local.String() {
			t.Errorf("LocalAddr is %v", a)
		}
		// It needs no probe to switch to a path again.
		if err := path.Switch(); err != nil {
			t.Errorf("Switch: %v", err)
		}
		if err := back.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := back.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
		if err := back.Probe(t.Context()); err != ErrPathClosed {
			t.Errorf("Probe after Close: %v", err)
		}
		if err := back.Switch(); err != ErrPathClosed {
			t.Errorf("Switch after Close: %v", err)
		}
		p.settle()
	})
}

// RFC 9000 §9: no path is probed before the handshake is confirmed.
func TestProbeWaitsForConfirmation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.writeServerFlight()
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake))
		var err error
		if p.c, err = p.dialing.result(); err != nil {
			t.Fatal(err)
		}
		p.writeFrames(wire.OneRTT, moreIDs...)
		side := &Transport{Conn: p.sock.side(sideAddr)}
		defer side.Close()
		path, err := p.c.AddPath(side)
		if err != nil {
			t.Fatal(err)
		}
		probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
		p.advance(3 * time.Second)
		if got := p.postFrom(); len(got[sideAddr.String()]) > 0 {
			t.Errorf("from the new socket: %v", got[sideAddr.String()])
		}
		p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
		p.oneRTT.SetHandshakeConfirmed()
		p.answer(p.theChallenge(p.postFrom()[sideAddr.String()]))
		if _, err := probing.result(); err != nil {
			t.Error(err)
		}
	})
}

func TestProbeEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(p *actor, path *Path, cancel context.CancelCauseFunc)
		want error
	}{
		{"with its context", func(p *actor, _ *Path, cancel context.CancelCauseFunc) { cancel(errors.New("enough")) }, nil},
		{"with the path", func(_ *actor, path *Path, _ context.CancelCauseFunc) { path.Close() }, ErrPathClosed},
		{"with the connection", func(p *actor, _ *Path, _ context.CancelCauseFunc) {
			go p.c.CloseWithError(7, "over")
		}, &ApplicationError{ErrorCode: 7, ErrorMessage: "over"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, side, _ := withSide(t)
				path, err := p.c.AddPath(side)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(ctx) })
				// 0, 1, 3, 7 s …: the waits double, and it does not give up.
				p.advance(20 * time.Second)
				if n := len(framesIn[wire.PathChallenge](p.postFrom()[sideAddr.String()])); n != 5 {
					t.Errorf("%d challenges in 20 s", n)
				}
				tt.end(p, path, cancel)
				_, err = probing.result()
				switch {
				case tt.want == nil:
					if err == nil || err.Error() != "enough" {
						t.Errorf("Probe: %v", err)
					}
				case err == nil || err.Error() != tt.want.Error():
					t.Errorf("Probe: %v, want %v", err, tt.want)
				}
				p.collect()
				p.queue = nil
				p.advance(pathIdle + 2*time.Second)
				if tt.name != "with the connection" {
					got := p.postFrom()
					if n := len(framesIn[wire.PathChallenge](got[sideAddr.String()])); n > 0 {
						t.Errorf("%d challenges after Probe had returned", n)
					}
					if p.c.ids.bySeq(1) != nil {
						t.Errorf("the path's connection ID is still kept")
					}
				}
			})
		})
	}
}

func TestAddPathRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, side, _ := withSide(t, func(tp *wire.TransportParams) { tp.DisableActiveMigration = true })
		if _, err := p.c.AddPath(side); err == nil || err.Error() != "server disabled connection migration" {
			t.Errorf("AddPath: %v", err)
		}
	})
	inBubble(t, func(t *testing.T) {
		p, _ := movable(t)
		if _, err := p.c.AddPath(p.transport); err == nil || err.Error() != "server cannot initiate connection migration" {
			t.Errorf("AddPath of a server: %v", err)
		}
	})
	inBubble(t, func(t *testing.T) {
		p, side, _ := withSide(t)
		side.ConnectionIDLength = 7
		if _, err := p.c.AddPath(side); err != errPathIDLen {
			t.Errorf("AddPath with other connection IDs: %v", err)
		}
	})
}

// RFC 9000 §9: a client discards what comes from elsewhere than the server.
func TestClientIgnoresOtherAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _, _ := withSide(t)
		p.moveTo(farHost)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.writeFrames(wire.OneRTT, challengeOf("hello"))
		p.writeFrames(wire.OneRTT, wire.ConnectionClose{})
		p.wantAlive("packets from elsewhere")
		p.advance(time.Second)
		p.wantIdle("packets from elsewhere")
	})
}

// The transport of a path that is not in use may go; with the one in use, the connection
// is over.
func TestTransportOfPathCloses(t *testing.T) {
	moved := func(t *testing.T) (*actor, *Transport) {
		p, side, sock := withSide(t)
		path, _ := p.c.AddPath(side)
		probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
		p.answer(p.theChallenge(p.postFrom()[sideAddr.String()]))
		if _, err := probing.result(); err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		p.into = sock
		p.settle()
		return p, side
	}
	inBubble(t, func(t *testing.T) {
		p, _ := moved(t)
		p.transport.Close()
		p.wantAlive("the former path's transport is closed")
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 1}, wire.Ping{})
		p.advance(time.Second)
		fs := heard[wire.NewConnectionID](p)
		if len(fs) == 0 || slices.ContainsFunc(fs, func(f wire.NewConnectionID) bool { return f.Seq != fs[0].Seq }) {
			t.Errorf("new connection IDs: %v", fs)
		}
	})
	inBubble(t, func(t *testing.T) {
		p, side := moved(t)
		side.Close()
		p.collect()
		if err := p.cause(); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("the connection ended with %v", err)
		}
	})
}

// RFC 9000 §9.6: the client goes to the server's preferred address if it is reached there.
func TestPreferredAddress(t *testing.T) {
	preferred := netip.MustParseAddrPort("10.0.0.3:443")
	offer := func(tp *wire.TransportParams) {
		tp.PreferredAddress = &wire.PreferredAddress{
			IPv4: preferred, IPv6: netip.MustParseAddrPort("[2001:db8::3]:443"), ConnID: []byte("pref"), ResetToken: aToken,
		}
	}
	known := func(p *actor) { p.ids[1] = []byte("pref") }
	t.Run("it is used", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p := newActor(t, asClient, offer, known)
			p.start()
			p.writeServerFlight()
			p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake))
			for to := range p.post() {
				if to == preferred.String() {
					t.Errorf("before the handshake is confirmed: a datagram to %v", to)
				}
			}
			p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
			p.c, _ = p.dialing.result()
			p.oneRTT.SetHandshakeConfirmed()
			there := p.post()[preferred.String()]
			if len(there) != 1 || there[0].size != 1200 || string(there[0].packets[0].dst) != "pref" {
				t.Fatalf("to the preferred address: %v", there)
			}
			ch := p.theChallenge(there)
			s, err := p.c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte("one"))
			if got := p.post(); len(got[preferred.String()]) > 0 {
				t.Errorf("before the answer: %v", got)
			}
			// The answer may come from either address.
			p.from = net.UDPAddrFromAddrPort(preferred)
			p.answer(ch)
			s.Write([]byte("two"))
			got := p.post()
			if len(got) != 1 || len(framesIn[wire.Stream](got[preferred.String()])) == 0 {
				t.Errorf("after the answer: %v", got)
			}
			if a := p.c.RemoteAddr().String(); a != preferred.String() {
				t.Errorf("RemoteAddr is %v", a)
			}
			p.settle()
			p.advance(pathIdle + time.Second)
			if r := framesIn[wire.RetireConnectionID](p.post()[preferred.String()]); !retiresOnly(r, 0) {
				t.Errorf("retired: %v", r)
			}
			delete(p.ids, 0)
			// A reset with its token counts now (RFC 9000 §10.3.1).
			p.reset(aToken, 42)
			if err := p.cause(); !errors.As(err, new(*StatelessResetError)) {
				t.Errorf("the connection ended with %v", err)
			}
		})
	})
	t.Run("it is not reached", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p := newActor(t, asClient, offer, known).handshake()
			p.advance(10 * time.Second)
			got := p.post()
			if r := framesIn[wire.RetireConnectionID](got[p.sock.far.String()]); !retiresOnly(r, 1) {
				t.Errorf("retired: %v", r)
			}
			delete(p.ids, 1)
			p.settle()
			p.advance(20 * time.Second)
			s, err := p.c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte("here"))
			if got := p.post(); len(got) != 1 || got[p.sock.far.String()] == nil {
				t.Errorf("sent: %v", got)
			}
		})
	})
	t.Run("of another family", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			p := newActor(t, asClient, func(tp *wire.TransportParams) {
				offer(tp)
				tp.PreferredAddress.IPv4 = netip.AddrPort{}
			}, known).handshake()
			p.advance(10 * time.Second)
			p.wantIdle("there is no such address in our family")
		})
	})
}

// retiresOnly says whether seq is retired, and nothing else: a peer that does not answer is
// told again and again.
func retiresOnly(fs []wire.RetireConnectionID, seq int64) bool {
	return len(fs) > 0 && !slices.ContainsFunc(fs, func(f wire.RetireConnectionID) bool { return f.Seq != seq })
}
