package quic

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// Rules of RFC 9000 that belong to no other file.

// §5.1.2, §19.15: a connection ID that Volley has given back stays given back, though the
// frame that brought it comes once more: nobody would hear what is sent there.
func TestRetiredConnIDStaysRetired(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, side, _ := withSide(t)
		probe := func() *sentDatagram {
			t.Helper()
			path, err := p.c.AddPath(side)
			if err != nil {
				t.Fatal(err)
			}
			probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
			there := p.postFrom()[sideAddr.String()]
			p.answer(p.theChallenge(there))
			if _, err := probing.result(); err != nil {
				t.Fatal(err)
			}
			if err := path.Close(); err != nil {
				t.Fatal(err)
			}
			return there[0]
		}
		if id := string(probe().packets[0].dst); id != "n001" {
			t.Fatalf("the path has connection ID %q", id)
		}
		p.advance(time.Second)
		p.ignore(wire.FrameAck)
		p.wantFrame("the path is gone, and its ID", wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		p.settle()
		p.writeFrames(wire.OneRTT, moreIDs...)
		p.wantAlive("a frame may come twice")
		delete(p.ids, 1)
		if id := string(probe().packets[0].dst); id != "n002" {
			t.Errorf("another path has connection ID %q", id)
		}
		p.advance(time.Second)
		p.wantFrame("this one goes back, too", wire.OneRTT, wire.RetireConnectionID{Seq: 2})
		p.settle()
		// What the peer wants back is told once more, should it not know (§19.15).
		p.writeFrames(wire.OneRTT, newConnID(4, 4))
		p.settle()
		p.writeFrames(wire.OneRTT, newConnID(2, 0))
		p.ignore(wire.FrameAck)
		p.wantFrame("below Retire Prior To", wire.OneRTT, wire.RetireConnectionID{Seq: 2})
		if n := len(p.c.ids.spent); n != 0 {
			t.Errorf("%d ranges of numbers are remembered", n)
		}
	})
}

// §9: a path that was made before the server could say that the client must not move is
// not used.
func TestNoMoveThatTheServerForbids(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asClient, func(tp *wire.TransportParams) { tp.DisableActiveMigration = true })
		p.start()
		side := &Transport{Conn: p.sock.side(sideAddr)}
		defer side.Close()
		path, err := p.c.AddPath(side)
		if err != nil {
			t.Fatal(err)
		}
		probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
		p.handshake()
		p.writeFrames(wire.OneRTT, moreIDs...)
		p.advance(10 * time.Second)
		if _, err := probing.result(); err != errMoveForbidden {
			t.Errorf("Probe: %v", err)
		}
		if got := p.postFrom()[sideAddr.String()]; len(got) > 0 {
			t.Errorf("from the new socket: %v", got)
		}
	})
}

// §7.4.1: what a client remembers of a server for 0-RTT is all but what it must not.
func TestTicketRemembersParameters(t *testing.T) {
	token := [16]byte{1}
	full := &wire.TransportParams{
		OriginalDst: []byte("orig"), InitialSrc: []byte("init"), RetrySrc: []byte("retr"),
		MaxIdleTimeout: 7 * time.Second, StatelessResetToken: &token, MaxUDPPayload: 1300,
		InitialMaxData: 1, InitialMaxStreamDataBidiLocal: 2, InitialMaxStreamDataBidiRemote: 3, InitialMaxStreamDataUni: 4,
		InitialMaxStreamsBidi: 5, InitialMaxStreamsUni: 6,
		AckDelayExponent: 7, MaxAckDelay: 8 * time.Millisecond, DisableActiveMigration: true, ActiveConnIDLimit: 9,
		MaxDatagramFrame: 10, ResetStreamAt: true,
		PreferredAddress: &wire.PreferredAddress{ConnID: []byte("pref")},
	}
	got := findTicket([][]byte{[]byte("something else"), makeTicket(full)})
	if got == nil {
		t.Fatal("the ticket is not understood")
	}
	want := *full
	want.OriginalDst, want.InitialSrc, want.RetrySrc = []byte{}, []byte{}, nil
	want.StatelessResetToken, want.PreferredAddress = nil, nil
	want.AckDelayExponent, want.MaxAckDelay = wire.DefaultAckDelayExponent, wire.DefaultMaxAckDelay
	if a, b := got.Append(nil), want.Append(nil); !bytes.Equal(a, b) {
		t.Errorf("remembered:\n%+v\nwant\n%+v", got, &want)
	}
}

// smallPayloadCache makes the server that a session is of one that takes 1200 bytes at most.
type smallPayloadCache struct {
	tls.ClientSessionCache
	t *testing.T
}

func (c smallPayloadCache) Put(key string, cs *tls.ClientSessionState) {
	if cs == nil {
		return
	}
	ticket, state, err := cs.ResumptionState()
	if err != nil {
		c.t.Error(err)
		return
	}
	for i, b := range state.Extra {
		if p := findTicket([][]byte{b}); p != nil {
			p.MaxUDPPayload = minPacketSize
			state.Extra[i] = makeTicket(p)
		}
	}
	if cs, err = tls.NewResumptionState(ticket, state); err != nil {
		c.t.Error(err)
		return
	}
	c.ClientSessionCache.Put(key, cs)
}

// §7.4.1: 0-RTT datagrams are no longer than the server took the last time.
func TestEarlyDatagramsKeepToThePayloadSize(t *testing.T) {
	virtual(t, func(w *world) {
		st, ct := w.pair.server.Clone(), w.pair.client.Clone()
		ct.ClientSessionCache = smallPayloadCache{tls.NewLRUClientSessionCache(1), t}
		l, err := w.server.ListenEarly(st, &Config{Allow0RTT: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, early := range []bool{false, true} {
			c, err := w.client.DialEarly(w.Context(), hereAddr, ct, nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			go waysToSend[0].send(s, patternOf(1, 1), 5000)
			if early {
				time.Sleep(5 * time.Millisecond) // the server knows nothing yet
				if n := w.up.now().largest; n != minPacketSize {
					t.Errorf("a datagram of 0-RTT has %d bytes", n)
				}
			}
			in, err := l.Accept(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := in.AcceptUniStream(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := patternOf(1, 1).check(r, 5000); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second) // for the ticket, and a larger packet size
			if c.ConnectionState().Used0RTT != early {
				t.Errorf("0-RTT: %v", !early)
			}
			if early {
				c.mu.Lock()
				if n := c.mtu.ceiling; n != defaultMaxPacketSize {
					t.Errorf("when the server says that it takes more, the most is %d bytes", n)
				}
				c.mu.Unlock()
			}
			c.CloseWithError(0, "")
			w.up.set(func(d *direction) { d.stats.largest = 0 })
		}
	})
}

// §12.2: a packet that does not open holds up none of those behind it in its datagram.
func TestCoalescedBehindGarbage(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		p.ignore(wire.FrameCrypto)
		bad := p.seal(p.packet(wire.Initial, wire.Ping{}, wire.Padding{N: 1200}), false)
		bad[len(bad)-1] ^= 1
		good := p.seal(p.packet(wire.Handshake, wire.Ping{}), true)
		p.watching.sending(wire.Handshake)
		p.deliver(append(bad, good...))
		wantA[wire.Ack](p, "the second packet", wire.Handshake)
		p.wantAlive("as if the first had not been")
	})
}

// §5.2: what is of another version than the connection is none of its packets.
func TestOtherVersionsPackets(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		p.writeCrypto(wire.Initial)
		p.collect()
		p.queue = nil
		for _, typ := range []wire.PacketType{wire.Initial, wire.Handshake} {
			s := p.packet(typ, rawFrame{0x21})
			s.version = wire.Version2
			p.send(s)
		}
		p.ignore(wire.FrameCrypto, wire.FrameAck, wire.FramePing)
		p.wantIdle("packets of version 2")
		p.wantAlive("packets of version 2")
	})
}

// §17.4: Volley has no spin bit, and does not look at the peer's.
func TestSpinBit(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		var seen byte
		p.sock.mu.Lock()
		p.sock.first = func(b byte) { seen |= b & 0x20 }
		p.sock.mu.Unlock()
		for i := range 20 {
			s := p.packet(wire.OneRTT, wire.Ping{})
			s.bits = byte(i%2) * 0x20
			p.send(s)
			p.advance(maxAckDelay)
			if len(heard[wire.Ack](p)) == 0 {
				t.Fatalf("packet %d is not acknowledged", i)
			}
		}
		if seen != 0 {
			t.Error("Volley's packets spin")
		}
	})
}

// h2o/quicly PR#283, and the design's §6: what arrives is looked at between flights. A peer
// that closes is heard before much more is sent to it.
func TestInputBetweenFlights(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asServer, credit(64<<20, 64<<20), func(p *actor) { p.rtt = time.Millisecond }).handshake()
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.SetWriteBuffer(1<<20, 2<<20)
		window := func() int {
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			return p.c.cc.Window()
		}
		const much = 900_000
		for window() < 2*much {
			writing := start(func() (int, error) { return s.Write(make([]byte, much)) })
			p.ackUntil(func() bool { return writing.finished() && p.inFlight() == 0 })
		}
		// While the socket is full, as much is written as the window holds.
		p.sock.setRefuse(func(int) error { return syscall.ENOBUFS })
		if n, err := s.Write(make([]byte, much)); n != much || err != nil {
			t.Fatal(n, err)
		}
		bye := p.seal(p.packet(wire.OneRTT, wire.ConnectionClose{App: true}), false)
		buf := udp.CopyBuffer(bye)
		message := packet{
			buf: buf, data: buf.Bytes(), segment: len(bye), at: time.Now(),
			remote: netip.MustParseAddrPort(p.sock.far.String()), remoteAddr: p.sock.far, via: p.transport,
		}
		before, after := 0, 0
		p.sock.setRefuse(func(int) error { // called for every datagram
			if before == 10 {
				after++
			} else if before++; before == 10 {
				p.c.deliver([]packet{message})
			}
			return nil
		})
		time.Sleep(time.Second)
		p.sock.take()
		if err := p.cause(); err == nil {
			t.Error("the connection goes on")
		}
		// The rest of the flight that was on its way, and those of one round.
		const most = 3 * 64
		if before < 10 || after > most {
			t.Errorf("%d datagrams leave after the peer's close has arrived, want %d at most", after, most)
		}
	})
}

// denoland/deno#17194: nothing written between two pieces is not the end.
func TestEmptyPiecesBetween(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(nil, nil)
		out, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{"a", "", "b"} {
			if n, err := out.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Errorf("writing %q: %d, %v", piece, n, err)
			}
			time.Sleep(time.Second)
		}
		// A reader that has nothing once, between two that have something.
		pieces := [][]byte{[]byte("c"), nil, []byte("d")}
		if n, err := out.ReadFrom(readerFunc(func(b []byte) (int, error) {
			if len(pieces) == 0 {
				return 0, io.EOF
			}
			n := copy(b, pieces[0])
			pieces = slices.Delete(pieces, 0, 1)
			return n, nil
		})); n != 2 || err != nil {
			t.Errorf("ReadFrom: %d, %v", n, err)
		}
		out.Close()
		in, err := s.AcceptUniStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(in); string(b) != "abcd" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
