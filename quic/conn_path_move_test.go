package quic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// A client moves between three sockets while much is carried both ways.
func TestMoveDuringTransfer(t *testing.T) {
	onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
		m.setHook(slowly(2 << 20))
		transports := []*Transport{m.clientT}
		for i := range 2 {
			tr := &Transport{Conn: m.socket("10.1.0.1", 5000+i, time.Duration(5+40*i)*time.Millisecond)}
			defer tr.Close()
			transports = append(transports, tr)
		}
		done := make(chan int)
		go func() {
			moves := 0
			defer func() { done <- moves }()
			paths := make([]*Path, len(transports))
			for i := 1; ; i++ {
				time.Sleep(1500 * time.Millisecond)
				k := i % len(transports)
				if paths[k] == nil {
					path, err := m.c.AddPath(transports[k])
					if err != nil {
						m.Errorf("AddPath: %v", err)
						return
					}
					paths[k] = path
					if err := path.Probe(m.Context()); errors.As(err, new(*ApplicationError)) {
						return
					} else if err != nil {
						m.Errorf("Probe: %v", err)
						return
					}
				}
				if err := paths[k].Switch(); errors.As(err, new(*ApplicationError)) {
					return
				} else if err != nil {
					m.Errorf("Switch: %v", err)
					return
				}
				if got, want := m.c.LocalAddr().String(), transports[k].Conn.LocalAddr().String(); got != want {
					m.Errorf("LocalAddr is %v, not %v", got, want)
				}
				moves++
			}
		}()
		up := make(chan time.Duration)
		go func() { up <- m.carry(m.c, m.s, 12<<20) }()
		down := m.carry(m.s, m.c, 12<<20+1)
		t.Logf("down %v, up %v", down, <-up)
		m.c.CloseWithError(0, "")
		if n := <-done; n < 3 {
			t.Errorf("%d moves only", n)
		}
	})
}

// Sources that fill packets in place take turns at sending: challenges and answers get
// theirs between them.
func TestMoveAmidSources(t *testing.T) {
	for _, way := range waysToSend {
		if way.name != "single" && way.name != "lend" && way.name != "vector" {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
				// A challenge that is lost in the queue is sent again after a second, which is
				// as it should be, but not what is asked here: those only wait.
				slow, probing := slowly(2<<20), true
				m.setHook(func(d *moveDatagram) {
					slow(d)
					other := "10.1.0.1:5000"
					if probing && d.lose && (d.from.String() == other || d.to.String() == other) {
						d.lose, d.delay = false, d.delay+100*time.Millisecond
					}
				})
				const streams, size = 4, 2 << 20
				done := make(chan error, 2*streams)
				for range streams {
					for _, side := range []*Conn{m.c, m.s} {
						go func() {
							s, err := side.OpenUniStreamSync(t.Context())
							if err == nil {
								err = way.send(s, patternOf(uint64(s.StreamID()>>2), 0), size)
							}
							done <- err
						}()
					}
				}
				got := make(chan error, 2*streams)
				for range streams {
					for _, side := range []*Conn{m.c, m.s} {
						go func() {
							r, err := side.AcceptUniStream(t.Context())
							if err == nil {
								p := patternOf(uint64(r.StreamID()>>2), 0)
								err = p.check(r, size)
							}
							got <- err
						}()
					}
				}
				other := &Transport{Conn: m.socket("10.1.0.1", 5000, 2*moveDelay)}
				defer other.Close()
				time.Sleep(500 * time.Millisecond)
				path, err := m.c.AddPath(other)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := path.Probe(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took > 300*time.Millisecond {
					t.Errorf("Probe took %v", took)
				}
				m.mu.Lock()
				probing = false
				m.mu.Unlock()
				if err := path.Switch(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
				m.rebind(m.sockets["10.1.0.1:5000"], "192.0.2.1", 1000)
				for range 2 * streams {
					if err := <-done; err != nil {
						t.Errorf("sending: %v", err)
					}
					if err := <-got; err != nil {
						t.Errorf("receiving: %v", err)
					}
				}
				if took := time.Since(begin); took > 8*time.Second {
					t.Errorf("all took %v", took)
				}
			})
		})
	}
}

// An attacker on the way copies packets of the client's and has the copies arrive first,
// from another address (RFC 9000 §9.3.2). The transfer goes on, and the victim gets little.
func TestSpoofedAddressDuringTransfer(t *testing.T) {
	for _, way := range []string{"up", "down"} {
		t.Run(way, func(t *testing.T) {
			onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
				slow := slowly(2 << 20)
				var toVictim, fromVictim, copies int
				victim := moveAddr("203.0.113.7", 7)
				n, each := 0, 500
				if way == "down" {
					each = 50 // of what acknowledges
				}
				m.setHook(func(d *moveDatagram) {
					slow(d)
					switch {
					case d.to.String() == victim.String():
						toVictim += len(d.b)
					case d.to.String() == hereAddr.String():
						if n++; n%each == 0 && !d.lose {
							copies++
							fromVictim += len(d.b)
							m.put(&moveDatagram{from: victim, to: d.to, b: bytes.Clone(d.b), delay: d.delay - 5*time.Millisecond})
						}
					}
				})
				from, to := m.c, m.s
				if way == "down" {
					from, to = to, from
				}
				took := m.carry(from, to, 10<<20)
				t.Logf("%v, %d copies, %d bytes for %d", took, copies, toVictim, fromVictim)
				if copies < 3 {
					t.Errorf("%d copies only", copies)
				}
				if toVictim > 3*fromVictim {
					t.Errorf("the victim got %d bytes for %d", toVictim, fromVictim)
				}
				if took > 9*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A client without connection IDs moves as well: its sockets are all for one connection.
func TestMoveWithoutConnIDs(t *testing.T) {
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		server := &Transport{Conn: n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)}
		defer server.Close()
		l, err := server.Listen(endpointTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sock := n.socket("10.0.0.1", 1000, moveDelay)
		c, err := Dial(t.Context(), sock, hereAddr, endpointClientTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		s, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go mirror(s.AcceptStream)
		n.rebind(sock, "192.0.2.1", 1000)
		exchange(t, c.OpenStream, 100_000)
		other := &Transport{Conn: n.socket("10.0.0.2", 1000, moveDelay)}
		defer other.Close()
		path, err := c.AddPath(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		exchange(t, c.OpenStream, 100_000)
		if a := s.RemoteAddr().String(); a != "10.0.0.2:1000" {
			t.Errorf("the client is at %v", a)
		}
	})
}

// A client that dials the unspecified address hears from where it really is.
func TestDialUnspecifiedAddress(t *testing.T) {
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		sock := n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)
		n.sockets["0.0.0.0:443"] = sock
		server := &Transport{Conn: sock}
		defer server.Close()
		l, err := server.Listen(endpointTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		conf := endpointClientTLS()
		conf.ServerName = "localhost"
		c, err := Dial(t.Context(), n.socket("10.0.0.9", 1000, moveDelay), moveAddr("0.0.0.0", 443), conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		s, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go mirror(s.AcceptStream)
		exchange(t, c.OpenStream, 100_000)
	})
}

// On the new path datagrams may not be as long as on the one before (RFC 9000 §14.2).
func TestSmallerMTUAfterMove(t *testing.T) {
	onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
		m.carry(m.c, m.s, 1<<20)
		m.carry(m.s, m.c, 1<<20+1)
		if n := m.c.snd.DatagramSize(); n != 1452 {
			t.Fatalf("datagrams have %d bytes", n)
		}
		m.mu.Lock()
		m.limit = 1300
		m.mu.Unlock()
		m.rebind(m.clientSocket, "192.0.2.1", 1000)
		small := &Transport{Conn: m.socket("10.1.0.1", 5000, moveDelay)}
		defer small.Close()
		path, err := m.c.AddPath(small)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		// No black hole has to be found first.
		if took := m.carry(m.c, m.s, 1<<20); took > time.Second {
			t.Errorf("up took %v", took)
		}
		if took := m.carry(m.s, m.c, 1<<20+1); took > time.Second {
			t.Errorf("down took %v", took)
		}
	})
}

// A server sends all it has to a client that only listens, and whose NAT forgets it. When
// the client says something again, the rest comes.
func TestRebindingOfSilentClient(t *testing.T) {
	onTheMove(t, &Config{KeepAlivePeriod: 5 * time.Second}, nil, func(t *testing.T, m *moving) {
		s, err := m.s.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("a"))
		r, err := m.c.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		m.rebind(m.clientSocket, "192.0.2.1", 1000)
		s.Write([]byte("b"))
		s.Close()
		if got, err := io.ReadAll(r); err != nil || string(got) != "ab" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// RFC 9000 §10.3.1: the tokens of stateless resets are looked up for datagrams that no key
// opens, and never for others: moving included.
func TestNoResetLookUpOnTheWay(t *testing.T) {
	onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
		var looks atomic.Int32
		for _, tr := range []*Transport{m.clientT, m.serverT} {
			tr.mu.Lock()
			tr.resets.blind = countingCipher{tr.resets.blind, &looks}
			tr.mu.Unlock()
		}
		m.carry(m.s, m.c, 4<<20)
		m.rebind(m.clientSocket, "192.0.2.1", 1000)
		m.carry(m.c, m.s, 4<<20)
		if n := looks.Load(); n > 20 { // tokens are hidden when they come and go, too
			t.Errorf("%d look-ups", n)
		}
	})
}

type countingCipher struct {
	block interface {
		BlockSize() int
		Encrypt(dst, src []byte)
		Decrypt(dst, src []byte)
	}
	n *atomic.Int32
}

func (c countingCipher) BlockSize() int          { return c.block.BlockSize() }
func (c countingCipher) Decrypt(dst, src []byte) { c.block.Decrypt(dst, src) }
func (c countingCipher) Encrypt(dst, src []byte) {
	c.n.Add(1)
	c.block.Encrypt(dst, src)
}

// Against quic-go, in virtual time.

// mirror lets a server of either stack send every stream back.
func mirror[S io.ReadWriteCloser](accept func(context.Context) (S, error)) {
	for {
		s, err := accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			io.Copy(s, s)
			s.Close()
		}()
	}
}

// exchange sends bytes over a stream and wants them back.
func exchange[S io.ReadWriteCloser](t *testing.T, open func() (S, error), size int) {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Errorf("opening a stream: %v", err)
		return
	}
	p := patternOf(9, uint64(size))
	go func() {
		io.Copy(s, p.reader(int64(size)))
		s.Close()
	}()
	if err := p.check(s, int64(size)); err != nil {
		t.Errorf("exchange: %v", err)
	}
}

func TestMoveOfQUICGoClient(t *testing.T) {
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		tr := &Transport{Conn: n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)}
		defer tr.Close()
		l, err := tr.Listen(endpointTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sock1, sock2 := n.socket("10.0.0.1", 1000, moveDelay), n.socket("10.0.0.2", 2000, 3*moveDelay)
		t1, t2 := &quicgo.Transport{Conn: sock1}, &quicgo.Transport{Conn: sock2}
		defer t1.Close()
		defer t2.Close()
		c, err := t1.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		s, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go mirror(s.AcceptStream)
		n.setHook(slowly(4 << 20))
		exchange(t, c.OpenStream, 100_000)

		path, err := c.AddPath(t2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := path.Probe(ctx); err != nil {
			t.Fatalf("Probe: %v", err)
		}
		exchange(t, c.OpenStream, 100_000)
		if a := s.RemoteAddr().String(); a != sock1.addr.String() {
			t.Errorf("a probe moved the client to %v", a)
		}
		moving := make(chan struct{})
		go func() {
			defer close(moving)
			exchange(t, c.OpenStream, 3_000_000)
		}()
		time.Sleep(200 * time.Millisecond)
		if err := path.Switch(); err != nil {
			t.Fatalf("Switch: %v", err)
		}
		<-moving
		if a := s.RemoteAddr().String(); a != sock2.addr.String() {
			t.Errorf("the client is at %v", a)
		}
		back, err := c.AddPath(t1)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Probe(ctx); err != nil {
			t.Fatalf("Probe: %v", err)
		}
		for i := range 6 {
			if err := []*quicgo.Path{back, path}[i%2].Switch(); err != nil {
				t.Fatalf("Switch: %v", err)
			}
			exchange(t, c.OpenStream, 500_000)
			time.Sleep(time.Second)
			if a, want := s.RemoteAddr().String(), []*moveSocket{sock1, sock2}[i%2].addr.String(); a != want {
				t.Errorf("the client is at %v, not %v", a, want)
			}
		}
		// Its NAT has other ideas.
		for i := range 10 {
			n.rebind(sock2, "192.0.2.1", 1000+i)
			exchange(t, c.OpenStream, 200_000)
		}
	})
}

func TestMoveToQUICGoServer(t *testing.T) {
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		tr := &quicgo.Transport{Conn: n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)}
		defer tr.Close()
		l, err := tr.Listen(endpointTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sock1, sock2 := n.socket("10.0.0.1", 1000, moveDelay), n.socket("10.0.0.2", 2000, 3*moveDelay)
		t1, t2 := &Transport{Conn: sock1}, &Transport{Conn: sock2}
		defer t1.Close()
		defer t2.Close()
		c, err := t1.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithError(0, "")
		s, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go mirror(s.AcceptStream)
		n.setHook(slowly(4 << 20))
		exchange(t, c.OpenStream, 100_000)

		path, err := c.AddPath(t2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := path.Probe(ctx); err != nil {
			t.Fatalf("Probe: %v", err)
		}
		exchange(t, c.OpenStream, 100_000)
		moving := make(chan struct{})
		go func() {
			defer close(moving)
			exchange(t, c.OpenStream, 3_000_000)
		}()
		time.Sleep(200 * time.Millisecond)
		if err := path.Switch(); err != nil {
			t.Fatalf("Switch: %v", err)
		}
		<-moving
		if a := s.RemoteAddr().String(); a != sock2.addr.String() {
			t.Errorf("the server has the client at %v", a)
		}
		back, err := c.AddPath(t1)
		if err != nil {
			t.Fatal(err)
		}
		if err := back.Probe(ctx); err != nil {
			t.Fatalf("Probe: %v", err)
		}
		for i := range 6 {
			if err := []*Path{back, path}[i%2].Switch(); err != nil {
				t.Fatalf("Switch: %v", err)
			}
			exchange(t, c.OpenStream, 500_000)
			time.Sleep(time.Second)
			if a, want := s.RemoteAddr().String(), []*moveSocket{sock1, sock2}[i%2].addr.String(); a != want {
				t.Errorf("the server has the client at %v, not %v", a, want)
			}
		}
		for i := range 10 {
			n.rebind(sock2, "192.0.2.1", 1000+i)
			exchange(t, c.OpenStream, 200_000)
		}
	})
}

// Over real sockets, a client leaves the one it dialed from, which is closed then.
func TestMoveOverLoopback(t *testing.T) {
	listen := func() net.PacketConn {
		pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pc.Close() })
		return pc
	}
	server := &Transport{Conn: listen()}
	defer server.Close()
	l, err := server.Listen(endpointTLS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	one, two := &Transport{Conn: listen()}, &Transport{Conn: listen()}
	defer two.Close()
	c, err := one.Dial(ctx, server.Conn.LocalAddr(), endpointClientTLS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go mirror(s.AcceptStream)
	exchange(t, c.OpenStream, 1<<20)
	path, err := c.AddPath(two)
	if err != nil {
		t.Fatal(err)
	}
	moving := make(chan struct{})
	go func() {
		defer close(moving)
		exchange(t, c.OpenStream, 64<<20)
	}()
	if err := path.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	if err := path.Switch(); err != nil {
		t.Fatal(err)
	}
	one.Close()
	<-moving
	exchange(t, c.OpenStream, 1<<20)
	if a, want := s.RemoteAddr().String(), two.Conn.LocalAddr().String(); a != want {
		t.Errorf("the server has the client at %v, not %v", a, want)
	}
	c.CloseWithError(0, "")
	<-s.Context().Done()
}
