package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// RFC 9287. The watch of every actor sees that Volley does not clear the QUIC bit before
// it may, or at all if it may not.

func greasing(tp *wire.TransportParams) { tp.GreaseQUICBit = true }

// bits says which values of the QUIC bit Volley's packets of a type had.
func (p *actor) bits(typ wire.PacketType) (set, clear int) {
	p.Helper()
	p.collect()
	for _, pkt := range p.packets {
		switch {
		case pkt.typ != typ:
		case pkt.greased:
			clear++
		default:
			set++
		}
	}
	return set, clear
}

// 64 packets and more with the same bit come by chance once in 10^19 runs.
const enoughBits = 64

// §3.1: who has said that it takes both values is sent both, in every packet with equal
// chances, and both are authentic.
func TestGreasedPacketsAreSent(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, greasing).handshake()
		for range enoughBits {
			p.writeFrames(wire.OneRTT, wire.Ping{}, rawFrame{0})
			p.advance(maxAckDelay)
		}
		if set, clear := p.bits(wire.OneRTT); set == 0 || clear == 0 || set+clear < enoughBits {
			t.Errorf("%d packets have the bit, %d do not", set, clear)
		}
		// Within one flight, too.
		before := len(p.packets)
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.SetWriteBuffer(1<<19, 1<<20)
		if _, err := s.Write(make([]byte, 200<<10)); err != nil {
			t.Fatal(err)
		}
		p.ackUntil(func() bool { return len(p.packets)-before >= 2*enoughBits })
		set, clear := 0, 0
		for _, pkt := range p.packets[before:] {
			if pkt.greased {
				clear++
			} else {
				set++
			}
		}
		if set < enoughBits/4 || clear < enoughBits/4 {
			t.Errorf("in flights, %d packets have the bit, %d do not", set, clear)
		}
		p.c.CloseWithError(0, "")
	})
}

// The bit goes also in the packets of the handshake that follow the peer's parameters, and
// in CONNECTION_CLOSE, which is sealed elsewhere.
func TestGreasedHandshakesAndCloses(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		var handshake, closes [2]int
		for range enoughBits {
			p := newActor(t, volley, greasing).handshake()
			set, clear := p.bits(wire.Handshake)
			handshake[0] += set
			handshake[1] += clear
			p.c.CloseWithError(0, "")
			p.wantClose("that is it")
			last := p.packets[len(p.packets)-1]
			if last.greased {
				closes[1]++
			} else {
				closes[0]++
			}
			p.transport.Close()
		}
		if handshake[0] == 0 || handshake[1] == 0 {
			t.Errorf("of the Handshake packets %d have the bit, %d do not", handshake[0], handshake[1])
		}
		if closes[0] == 0 || closes[1] == 0 {
			t.Errorf("of the closes %d have the bit, %d do not", closes[0], closes[1])
		}
	})
}

// §3: Volley says that it takes both values, and does, from the first packet that a peer
// may send so on.
func TestGreasedPacketsAreAccepted(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley)
		p.start()
		if volley == asServer {
			// A client without a token cannot know.
			s := p.packet(wire.Initial, p.cryptoFrame(wire.Initial))
			s.greased = true
			p.send(s)
			p.wantIdle("an Initial without the bit, and without a token")
			if p.c != nil {
				t.Fatal("a connection was made of it")
			}
			p.out[0].sent = 0
			p.token = []byte("of another time, but a token")
			p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
			p.collect()
		}
		// Its client hello told the server.
		p.greased = true
		p.handshake()
		if !p.theirs.GreaseQUICBit {
			t.Error("Volley does not say that it takes both values")
		}
		p.ignore(wire.FrameNewConnectionID)
		for range 3 {
			p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "hello", true))
			p.advance(time.Second)
			wantA[wire.Ack](p, "it is acknowledged", wire.OneRTT)
		}
		p.send(p.packet(wire.Handshake, wire.Ping{}), p.packet(wire.OneRTT, wire.Ping{}))
		p.advance(time.Second)
		wantA[wire.Ack](p, "behind a packet of the handshake, too", wire.OneRTT)
		s, err := p.c.AcceptUniStream(p.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(s); string(b) != "hello" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A client's whole first flight may lack the bit if it has a token of the server's.
func TestGreasedFirstFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.token, p.greased = []byte("of another time, but a token"), true
		p.start()
		p.handshake()
	})
}

// A server that cannot know leaves the bit in a Retry; one that does may clear it, and
// the tag covers that.
func TestGreasedRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		b := wire.AppendRetry(nil, p.version, p.dcid, []byte("retry.id"), []byte("token"))
		b[0] &^= wire.QUICBit
		tag := protect.RetryTag(p.version, p.origDst, b)
		p.retryWith("retry.id", append(b, tag[:]...))
		p.handshake()
	})
}

// Where it is switched off, nothing is said, nothing is sent and nothing is taken without
// the bit.
func TestGreasingDisabled(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, greasing, func(c *Config) { c.DisableQUICBitGreasing = true }).handshake()
		if p.theirs.GreaseQUICBit {
			t.Error("the peer is invited to grease")
		}
		for range enoughBits {
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.advance(maxAckDelay)
		}
		p.queue = nil
		for range 5 {
			s := p.packet(wire.OneRTT, wire.Ping{}, rawFrame{0x21}) // a frame that closes the connection
			s.greased = true
			p.send(s)
		}
		p.advance(time.Second)
		p.wantIdle("a packet without the bit is none")
		// Nor is one behind a long header, nor with one.
		s := p.packet(wire.OneRTT, rawFrame{0x21})
		s.greased = true
		p.send(p.packet(wire.Handshake, wire.Ping{}), s)
		p.wantIdle("behind a packet of the handshake")
		p.wantAlive("behind a packet of the handshake")
		p = newActor(t, volley, func(c *Config) { c.DisableQUICBitGreasing = true })
		p.start()
		s = p.packet(wire.Initial, wire.Ping{}, rawFrame{0x21})
		s.greased, s.token = true, []byte("t")
		if volley == asClient {
			s.token = nil
		}
		p.send(s)
		p.advance(time.Millisecond)
		if c := heard[wire.ConnectionClose](p); len(c) > 0 {
			t.Errorf("an Initial without the bit was looked at: %v", c)
		}
	})
}

// §3.1: a client relies on a token that came with the parameter within 7 days, and only if
// its Initials have that token: after a Retry they have another, after Version Negotiation
// none.
func TestClientRemembersGreasing(t *testing.T) {
	const key = "localhost"
	store := func(until time.Duration) func(*Config) {
		return func(c *Config) {
			s := NewLRUTokenStore(1, 1)
			tok := &ClientToken{data: []byte("token")}
			if until != 0 {
				tok.greaseUntil = time.Now().Add(until)
			}
			s.Put(key, tok)
			c.TokenStore = s
		}
	}
	dialed := func(tt *testing.T, until time.Duration, opts ...any) (set, clear int) {
		for i := range enoughBits {
			synctest.Test(tt, func(t *testing.T) {
				p := newActor(t, asClient, append(opts, store(until), func(c *tls.Config) { c.ServerName = key })...)
				p.watching.tokenGreases = until > 0
				p.start()
				if pkt := p.packets[0]; string(pkt.token) != "token" {
					t.Fatalf("the token is %q", pkt.token)
				}
				s, c := p.bits(wire.Initial)
				set, clear = set+s, clear+c
				p.watching.tokenGreases = false
				if i%2 == 0 {
					p.retry("retry.id", "other")
				} else { // a token is for the version that it came with
					dst, src := p.dcid, p.origDst
					p.again()
					p.versionNegotiation(dst, src, wire.Version2)
				}
				p.advance(time.Minute)
			})
		}
		return set, clear
	}
	if set, clear := dialed(t, time.Second); set == 0 || clear == 0 {
		t.Errorf("with a good token %d Initials have the bit, %d do not", set, clear)
	}
	if _, clear := dialed(t, -time.Second); clear > 0 {
		t.Errorf("with a token of more than 7 days %d Initials lack the bit", clear)
	}
	if _, clear := dialed(t, 0); clear > 0 {
		t.Errorf("with a token of a server that did not say so %d Initials lack the bit", clear)
	}
	if _, clear := dialed(t, time.Second, func(c *Config) { c.DisableQUICBitGreasing = true }); clear > 0 {
		t.Errorf("though it is switched off %d Initials lack the bit", clear)
	}

	for _, greases := range []bool{true, false} {
		t.Run(fmt.Sprintf("server greases %v", greases), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewLRUTokenStore(1, 1)
				p := newActor(t, asClient, func(c *Config) { c.TokenStore = s }, func(c *tls.Config) { c.ServerName = key },
					func(tp *wire.TransportParams) { tp.GreaseQUICBit = greases }).handshake()
				p.writeFrames(wire.OneRTT, wire.NewToken{Token: []byte("token")})
				p.advance(time.Second)
				tok := s.Pop(key)
				if tok == nil {
					t.Fatal("no token was stored")
				}
				until := time.Time{}
				if greases {
					until = time.Now().Add(7*24*time.Hour - time.Second)
				}
				if !tok.greaseUntil.Equal(until) {
					t.Errorf("the server may be greased until %v, want %v", tok.greaseUntil, until)
				}
			})
		})
	}
}

// tapBits counts the packets at the beginning of datagrams, with and without the bit,
// long headers and short ones.
func tapBits(d *direction) (counts func() (long, short [2]int)) {
	var mu sync.Mutex
	var n [2][2]int
	tap := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		form, bit := 0, 0
		if !wire.IsLong(b[0]) {
			form = 1
		}
		if b[0]&wire.QUICBit == 0 {
			bit = 1
		}
		n[form][bit]++
	}
	d.set(func(d *direction) { d.tap = tap })
	return func() ([2]int, [2]int) {
		mu.Lock()
		defer mu.Unlock()
		return n[0], n[1]
	}
}

// Volley with Volley greases both ways, with loss and 0-RTT, with no connection IDs and
// with some.
func TestGreasingBothWays(t *testing.T) {
	virtual(t, func(w *world) {
		up, down := tapBits(w.up), tapBits(w.down)
		w.both(func(d *direction) { d.lose = 0.02 })
		c, s := w.connect(nil, nil)
		w.transfer(c, s, waysToSend[0].send, patternOf(1, 1), 300_000)
		w.transfer(s, c, waysToSend[0].send, patternOf(1, 2), 300_000)
		for name, counts := range map[string]func() (long, short [2]int){"client": up, "server": down} {
			if _, short := counts(); short[0] < 50 || short[1] < 50 {
				t.Errorf("%s: %d packets with the bit, %d without", name, short[0], short[1])
			}
		}
	})
}

// 0-RTT packets lack the bit if their Initial's token allows it, and only then.
func TestGreasedEarlyData(t *testing.T) {
	virtual(t, func(w *world) {
		st, ct := w.pair.server.Clone(), w.pair.client.Clone()
		ct.ClientSessionCache = tls.NewLRUClientSessionCache(10)
		l, err := w.server.ListenEarly(st, &Config{Allow0RTT: true})
		if err != nil {
			t.Fatal(err)
		}
		visit := func(conf *Config, early bool) (long [2]int) {
			t.Helper()
			counts := tapBits(w.up)
			ctx := w.Context()
			c, err := w.client.DialEarly(ctx, hereAddr, ct, conf)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			data := bytes.Repeat([]byte("early "), 2000)
			go func() {
				s.Write(data)
				s.Close()
			}()
			in, err := l.Accept(ctx)
			if err != nil {
				t.Fatal(err)
			}
			r, err := in.AcceptUniStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, data) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			time.Sleep(time.Second) // for the ticket and the token
			if c.ConnectionState().Used0RTT != early {
				t.Errorf("0-RTT: %v", !early)
			}
			long, _ = counts()
			c.CloseWithError(0, "")
			return long
		}
		conf := &Config{TokenStore: NewLRUTokenStore(1, 1)}
		visit(conf, false)
		var sum [2]int
		for range 20 {
			long := visit(conf, true)
			sum[0] += long[0]
			sum[1] += long[1]
		}
		if sum[0] < 20 || sum[1] < 20 {
			t.Errorf("with a token %d packets have the bit, %d do not", sum[0], sum[1])
		}
	})
}

// A socket with other protocols keeps the bit, and theirs are told from QUIC's.
func TestGreasingAndOtherProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := func(p *actor) {
			ctx, cancel := context.WithCancel(p.Context())
			cancel()
			p.transport.ReadNonQUICPacket(ctx, nil)
		}
		other := func(p *actor, b []byte) {
			p.Helper()
			p.deliver(b)
			got := make([]byte, 100)
			ctx, cancel := context.WithTimeout(p.Context(), time.Second)
			defer cancel()
			if n, _, err := p.transport.ReadNonQUICPacket(ctx, got); err != nil || !bytes.Equal(got[:n], b) {
				p.Errorf("got %x, %v, want %x", got[:n], err, b)
			}
		}
		stun := []byte("\x00\x01\x00\x08\x21\x12\xa4\x42 and so on")

		// Read before there are connections.
		p := newActor(t, asServer)
		reads(p)
		p.handshake()
		if p.theirs.GreaseQUICBit {
			t.Error("the peer is invited to grease")
		}
		other(p, stun)
		other(p, slices.Concat([]byte{0}, p.dcid, stun))

		// Read when there is one already.
		p = newActor(t, asServer, greasing).handshake()
		p.ignore(wire.FrameNewConnectionID)
		p.deliver(stun) // nobody wants it
		reads(p)
		other(p, stun)
		p.greased = true
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(time.Second)
		wantA[wire.Ack](p, "what belongs to the connection still gets there", wire.OneRTT)
		other(p, stun)
	})
}

// A connection alone on a socket has no connection IDs, and takes everything.
func TestGreasingWithoutConnIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient, greasing, func(tr *Transport) { tr.singleUse = true })
		p.start()
		p.greased = true
		p.handshake()
		if !p.theirs.GreaseQUICBit {
			t.Error("Volley does not say that it takes both values")
		}
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(time.Second)
		wantA[wire.Ack](p, "it is acknowledged", wire.OneRTT)

		// On a socket for more than one thing, nothing but the bit tells them apart.
		p = newActor(t, asClient, greasing, func(tr *Transport) { tr.ConnectionIDGenerator = noIDs{} }).handshake()
		if p.theirs.GreaseQUICBit {
			t.Error("the peer is invited to grease")
		}
	})
}

// Whoever has forgotten a connection says so, whatever the bit; and is heard, as a reset has
// the bit (the actors of TestStatelessReset do not grease).
func TestGreasedPacketsAreReset(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, greasing, func(tr *Transport) { tr.StatelessResetKey = &StatelessResetKey{1} }).handshake()
		id := p.issued()[1]
		p.advance(5 * time.Minute)
		if err := p.cause(); !errors.Is(err, &IdleTimeoutError{}) {
			t.Fatalf("the connection is over with %v", err)
		}
		p.queue = nil
		s := p.packet(wire.OneRTT, wire.Ping{}, wire.Padding{N: 100})
		s.dst, s.greased = id.ID, true
		p.send(s)
		f := wantA[garbageFrame](p, "a stateless reset", wire.OneRTT)
		if !bytes.HasSuffix(f.b, id.ResetToken[:]) || f.b[0]&0xc0 != wire.QUICBit {
			t.Errorf("%x", f.b)
		}
	})
}

// In one coalesced message both values of the bit lie side by side.
func TestDemuxGreased(t *testing.T) {
	d := newDemuxTest(t, 4)
	d.conn("A", "aaaa").greases = true
	d.conn("B", "bbbb")
	grease := func(b []byte) []byte {
		b[0] &^= wire.QUICBit
		return b
	}
	stun := func() []byte { return append([]byte("\x00\x01xxxx"), short("", "st")...)[:len(short("aaaa", "01"))] }
	for _, reading := range []bool{false, true} {
		d.t.readingNonQUIC.Store(reading)
		d.batch([]udp.Message{message(grease(short("aaaa", "01")), short("aaaa", "02"), grease(short("aaaa", "03")), grease(short("aaaa", "04")))}, time.Now())
		d.want("A: 01,02,03,04")
		d.batch([]udp.Message{
			message(grease(short("bbbb", "01")), short("bbbb", "02"), grease(short("bbbb", "03")), short("bbbb", "04")),
			message(short("aaaa", "05"), stun(), grease(short("aaaa", "06")), short("bbbb", "07")),
		}, time.Now())
		d.want("B: 02;04;07", "A: 05;06")
		d.batch([]udp.Message{message(grease(long("aaaa", "08"))), message(grease(long("bbbb", "09")))}, time.Now())
		d.want("A: 08", "B: 09") // the connection looks at the bits of long headers
		want := 0
		if reading {
			want = 3 // two of B's look foreign, and one is
		}
		if n := len(d.t.nonQUIC); n != want {
			t.Errorf("%d datagrams of other protocols, want %d", n, want)
		}
		for len(d.t.nonQUIC) > 0 {
			<-d.t.nonQUIC
		}
	}
}

// Other stacks do not take packets without the bit, and are not sent any.
func TestInteropQUICBit(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		relay := newBitRelay(t)
		c, s := connectStacksVia(t, client, server, relay)
		ctx := interopContext(t)
		done := make(chan error, 1)
		go func() {
			st, err := s.accept(ctx)
			if err == nil {
				_, err = io.Copy(st, st)
				st.closeWrite()
			}
			done <- err
		}()
		st, err := c.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("bit"), 100_000)
		go func() {
			st.Write(data)
			st.closeWrite()
		}()
		if b, err := io.ReadAll(st); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%d bytes came back, %v", len(b), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n, bad := relay.counts(); n < 200 || bad > 0 {
			t.Errorf("of %d datagrams %d begin without the bit", n, bad)
		}
	})
}

// bitRelay passes datagrams between one client and a server, and looks at their first byte.
type bitRelay struct {
	front, back *net.UDPConn

	mu     sync.Mutex
	client *net.UDPAddr
	n, bad int
}

func newBitRelay(t *testing.T) *bitRelay {
	return &bitRelay{front: loopbackSocket(t, ""), back: loopbackSocket(t, "")}
}

func (r *bitRelay) counts() (n, bad int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.bad
}

func (r *bitRelay) run(server *net.UDPAddr) {
	look := func(b []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.n++; b[0]&wire.QUICBit == 0 {
			r.bad++
		}
	}
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := r.front.ReadFromUDP(b)
			if err != nil {
				return
			}
			look(b[:n])
			r.mu.Lock()
			r.client = from
			r.mu.Unlock()
			r.back.WriteToUDP(b[:n], server)
		}
	}()
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := r.back.Read(b)
			if err != nil {
				return
			}
			look(b[:n])
			r.mu.Lock()
			to := r.client
			r.mu.Unlock()
			r.front.WriteToUDP(b[:n], to)
		}
	}()
}

// connectStacksVia is connectStacks through a relay.
func connectStacksVia(t *testing.T, client, server *stack, r *bitRelay) (c, s stackConn) {
	t.Helper()
	through := *server
	through.listen = func(t *testing.T, conf *tls.Config, sc stackConfig) (string, func(context.Context) (stackConn, error)) {
		addr, accept := server.listen(t, conf, sc)
		r.run(udpAddr(t, addr))
		return r.front.LocalAddr().String(), accept
	}
	return connectStacks(t, client, &through, stackConfig{}, stackConfig{})
}
