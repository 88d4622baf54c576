package quic

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// A server that would rather be reached elsewhere (RFC 9000 §9.6).

var (
	unicastAddr = &net.UDPAddr{IP: net.IPv4(172, 16, 0, 7).To4(), Port: 4443}
	unicast     = unicastAddr.String()
	anycast     = hereAddr.String()
)

// preferring is a server with another socket, at its preferred address, and a client that has
// given it connection IDs.
func preferring(t *testing.T, opts ...any) (p *actor, sock *actorSocket, side *Transport) {
	t.Helper()
	side = &Transport{}
	p = newActor(t, asServer, append(opts, func(c *Config) {
		c.PreferredAddresses = []PreferredAddress{{unicastAddr.AddrPort(), side}}
	}, func(p *actor) {
		sock = p.sock.side(unicastAddr)
		side.Conn = sock
		p.Cleanup(func() { side.Close() })
	})...).handshake()
	p.writeFrames(wire.OneRTT, moreIDs...)
	p.settle()
	return p, sock, side
}

// to makes the actor send to one of Volley's sockets, nil being the first, with one of Volley's
// connection IDs.
func (p *actor) to(sock *actorSocket, id []byte) {
	p.into, p.dcid = sock, id
}

// onlyProbesIn reports a frame in datagrams that is none of a probe's.
func (p *actor) onlyProbesIn(ds []*sentDatagram) {
	p.Helper()
	for _, d := range ds {
		for _, pkt := range d.packets {
			for _, f := range pkt.frames {
				switch f.(type) {
				case wire.PathChallenge, wire.PathResponse, wire.Padding, wire.NewConnectionID:
				default:
					p.Errorf("%v leaves by a path that is only probed", f)
				}
			}
		}
	}
}

// wantAllFrom wants what the server sends now to leave from one of its addresses only.
func (p *actor) wantAllFrom(addr string, s *SendStream) {
	p.Helper()
	s.Write([]byte("more"))
	got := p.postFrom()
	if len(got) != 1 || len(framesIn[wire.Stream](got[addr])) == 0 {
		p.Errorf("what is sent does not leave from %v alone: %v", addr, got)
	}
	p.ackAll()
}

func TestPreferredAddressIsOffered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, sock, _ := preferring(t)
		a := p.theirs.PreferredAddress
		if a == nil || a.IPv4 != unicastAddr.AddrPort() || a.IPv6.IsValid() || len(a.ConnID) != defaultConnIDLen {
			t.Fatalf("preferred_address is %+v", a)
		}
		if tok := p.transport.resetTokenFor(ConnectionIDFromBytes(a.ConnID)); a.ResetToken != tok {
			t.Errorf("the reset token is %x, want %x", a.ResetToken, tok)
		}
		// It is number 1, and one of the four that the client keeps.
		ids := p.issued()
		if len(ids) != 2 || ids[2].ID == nil || ids[3].ID == nil {
			t.Errorf("with NEW_CONNECTION_ID came %v", ids)
		}
		// Every one is good at either address.
		for _, id := range [][]byte{a.ConnID, ids[2].ID, p.dcid} {
			for _, to := range []*actorSocket{nil, sock} {
				p.to(to, id)
				p.writeFrames(wire.OneRTT, wire.PathChallenge{}, wire.Padding{N: 1150})
				if len(framesIn[wire.PathResponse](p.post()[first])) == 0 {
					t.Errorf("no answer to what came by connection ID %x", id)
				}
			}
		}
		p.to(nil, ids[2].ID)
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		p.settle()
		if ids := p.issued(); len(ids) != 3 || ids[4].ID == nil {
			t.Errorf("another ID for the one that was retired: %v", ids)
		}
	})
}

// A client that keeps two IDs has them with that.
func TestPreferredAddressCountsAsConnID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _, _ := preferring(t, func(tp *wire.TransportParams) { tp.ActiveConnIDLimit = 2 })
		if ids := p.issued(); len(ids) != 0 || p.theirs.PreferredAddress == nil {
			t.Errorf("the client keeps two connection IDs, and got %v beside the first", ids)
		}
		p.writeFrames(wire.OneRTT, wire.RetireConnectionID{Seq: 1})
		p.settle()
		if ids := p.issued(); len(ids) != 1 || ids[2].ID == nil {
			t.Errorf("for the one that was retired the client got %v", ids)
		}
	})
}

func TestMoveToPreferredAddress(t *testing.T) {
	for _, tt := range []struct {
		name string
		from *net.UDPAddr // of the client, at the preferred address
	}{
		{"from the same address", nil},
		{"from another NAT binding", natPort},
		{"from another host", farHost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, sock, _ := preferring(t)
				s, err := p.c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				p.wantAllFrom(anycast, s)
				home, id := p.dcid, p.theirs.PreferredAddress.ConnID

				// The client asks, and is asked.
				p.moveTo(tt.from)
				p.to(sock, id)
				p.writeFrames(wire.OneRTT, challengeOf("are you?"), wire.Padding{N: 1150})
				got := p.postFrom()
				there := got[unicast]
				if r := framesIn[wire.PathResponse](there); len(r) != 1 || r[0].Data != challengeOf("are you?").Data {
					t.Fatalf("no answer from where the challenge came in: %v", got)
				}
				ch := p.theChallenge(there)
				if there[0].size != 1200 || string(there[0].packets[0].dst) == string(p.scid) {
					t.Errorf("want 1200 bytes to a connection ID of their own, got %v", there[0])
				}
				p.onlyProbesIn(there)
				p.moveTo(nil)
				p.to(nil, home)
				p.wantAllFrom(anycast, s)

				// It answers: what it has not done yet is move.
				p.moveTo(tt.from)
				p.to(sock, id)
				p.answer(ch)
				p.moveTo(nil)
				p.to(nil, home)
				p.wantAllFrom(anycast, s)

				// It moves.
				p.c.mu.Lock()
				cc := p.c.cc
				p.c.mu.Unlock()
				p.moveTo(tt.from)
				p.to(sock, id)
				p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
				p.wantAllFrom(unicast, s)
				if a := p.c.LocalAddr().String(); a != unicast {
					t.Errorf("LocalAddr is %v", a)
				}
				p.c.mu.Lock()
				if p.c.cc == cc {
					t.Errorf("the congestion window is that of the path before")
				}
				p.c.mu.Unlock()

				// What is sent to the old address now does not count.
				p.moveTo(nil)
				p.to(nil, home)
				after := p.packet(wire.OneRTT, wire.Ping{})
				p.send(after)
				p.advance(time.Second)
				p.settle()
				p.c.mu.Lock()
				acks := &p.c.spaces[2].acks
				if acks.seen(after.pn) {
					t.Errorf("a packet to the address that the client has left was taken in")
				}
				p.c.mu.Unlock()
				p.sentPN[2].remove(after.pn, after.pn) // so that no ACK may tell of it
				p.moveTo(tt.from)
				p.to(sock, id)
				p.wantAllFrom(unicast, s)

				// And there the client's NAT may change its mind.
				there2 := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 99).To4(), Port: 99}
				p.moveTo(there2)
				p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
				got = p.postFrom()
				ch = p.theChallenge(slices.DeleteFunc(slices.Clone(got[unicast]), func(d *sentDatagram) bool { return d.to.String() != there2.String() }))
				if len(got) != 1 {
					t.Errorf("after a rebinding: %v", got)
				}
				p.answer(ch)
				p.wantAllFrom(unicast, s)
				if a := p.c.RemoteAddr().String(); a != there2.String() {
					t.Errorf("the client is at %v", a)
				}
			})
		})
	}
}

// What the client sent before it moved counts, whichever way it took (RFC 9000 §9.6.2).
func TestLatePacketToFormerAddress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, sock, _ := preferring(t)
		late := p.packet(wire.OneRTT, wire.Ping{})
		p.to(sock, p.theirs.PreferredAddress.ConnID)
		p.writeFrames(wire.OneRTT, challengeOf("are you?"), wire.Padding{N: 1150})
		p.answer(p.theChallenge(p.postFrom()[unicast]), wire.Ping{})
		if a := p.c.LocalAddr().String(); a != unicast {
			t.Fatalf("the server is at %v", a)
		}
		seen := func() bool {
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			return p.c.spaces[2].acks.seen(late.pn)
		}
		if seen() {
			t.Fatal("the packet counts before it came")
		}
		p.into = nil
		p.send(late)
		if !seen() {
			t.Error("a packet that came late was dropped")
		}
		if a := p.c.LocalAddr().String(); a != unicast {
			t.Errorf("the server is at %v", a)
		}
	})
}

// A client that moves before we know that it is there is followed once we know, unless it was
// heard of elsewhere since.
func TestMoveToPreferredAddressBeforeValidation(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("back=%v", back), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, sock, _ := preferring(t)
				s, err := p.c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				home, id := p.dcid, p.theirs.PreferredAddress.ConnID
				p.to(sock, id)
				p.writeFrames(wire.OneRTT, challengeOf("are you?"), wire.Padding{N: 1150})
				ch := p.theChallenge(p.postFrom()[unicast])
				p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
				if got := p.postFrom(); len(got[unicast]) > 0 {
					t.Errorf("not validated yet: %v", got)
				}
				if back {
					p.to(nil, home)
					p.writeFrames(wire.OneRTT, wire.Ping{})
					p.to(sock, id)
				}
				p.wantAllFromBeforeAnswer(anycast, s)
				p.answer(ch)
				if back {
					p.wantAllFrom(anycast, s)
				} else {
					p.wantAllFrom(unicast, s)
				}
			})
		})
	}
}

// wantAllFromBeforeAnswer is wantAllFrom, but the actor says nothing.
func (p *actor) wantAllFromBeforeAnswer(addr string, s *SendStream) {
	p.Helper()
	s.Write([]byte("more"))
	for from, ds := range p.postFrom() {
		if from != addr && len(framesIn[wire.Stream](ds)) > 0 {
			p.Errorf("data leaves from %v: %v", from, ds)
		}
	}
}

// Somebody sends copies of the client's packets to the preferred address, and the client is so
// careless as to answer what comes from there: it has not asked, so it has not moved.
func TestCopiesToPreferredAddress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, sock, _ := preferring(t)
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		p.into = sock
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		there := p.postFrom()[unicast]
		ch := p.theChallenge(there)
		if id := there[0].packets[0].dst; string(id) == string(p.scid) {
			t.Errorf("the same connection ID is used from two addresses of ours (RFC 9000 §9.5)")
		}
		p.into = nil
		p.answer(ch)
		p.into = sock
		p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
		p.into = nil
		p.wantAllFrom(anycast, s)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantAllFrom(anycast, s)
	})
}

// By the path that is not validated no more leaves than three times what came, whatever the
// client asks for (RFC 9000 §8.1). The actor watches the sums of each of its addresses.
func TestPreferredAddressAllowance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, sock, _ := preferring(t)
		p.moveTo(farHost)
		p.to(sock, p.theirs.PreferredAddress.ConnID)
		p.writeFrames(wire.OneRTT, challengeOf("small"))
		there := p.postFrom()[unicast]
		if len(framesIn[wire.PathResponse](there)) != 1 {
			t.Errorf("want an answer, though a small one: %v", there)
		}
		if len(there) == 0 || there[0].size >= 1200 {
			t.Errorf("the answer is larger than it may be: %v", there)
		}
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(5 * time.Second)
		for _, d := range p.postFrom()[unicast] {
			p.onlyProbesIn([]*sentDatagram{d})
		}
	})
}

// A transport that is closed takes the connections with it that have moved there, and no other.
func TestPreferredTransportCloses(t *testing.T) {
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved=%v", moved), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, sock, side := preferring(t)
				s, err := p.c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				home := p.dcid
				p.to(sock, p.theirs.PreferredAddress.ConnID)
				p.writeFrames(wire.OneRTT, challengeOf("are you?"), wire.Padding{N: 1150})
				p.answer(p.theChallenge(p.postFrom()[unicast]))
				if moved {
					p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 1150})
					p.settle()
					p.wantAllFrom(unicast, s)
				}
				side.Close()
				synctest.Wait()
				if over := p.c.Context().Err() != nil; over != moved {
					t.Errorf("over: %v (%v)", over, context.Cause(p.c.Context()))
				}
				if !moved {
					p.to(nil, home)
					p.wantAllFrom(anycast, s)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T) {
		p, sock, _ := preferring(t)
		s, err := p.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		p.to(sock, p.theirs.PreferredAddress.ConnID)
		p.writeFrames(wire.OneRTT, challengeOf("are you?"), wire.Padding{N: 1150})
		p.answer(p.theChallenge(p.postFrom()[unicast]), wire.Ping{})
		p.wantAllFrom(unicast, s)
		p.transport.Close()
		p.wantAllFrom(unicast, s)
	})
}

// RFC 9000 §7.4.1: the address is not for the connections after.
func TestPreferredAddressIsNotRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _, _ := preferring(t)
		if p.theirs.PreferredAddress == nil {
			t.Fatal("there is none")
		}
		if q := findTicket([][]byte{makeTicket(p.theirs)}); q == nil || q.PreferredAddress != nil {
			t.Errorf("the ticket has %+v", q)
		}
	})
}

func TestPreferredAddressConfig(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		other := func(n int) *Transport {
			tr := &Transport{Conn: newActorSocket(unicastAddr, thereAddr), ConnectionIDLength: n}
			t.Cleanup(func() { tr.Close() })
			return tr
		}
		addr := func(s string) PreferredAddress { return PreferredAddress{netip.MustParseAddrPort(s), other(4)} }
		for _, tt := range []struct {
			name string
			as   []PreferredAddress
			want string // in the error; "": there is none
		}{
			{"none", nil, ""},
			{"one of each family", []PreferredAddress{addr("192.0.2.1:443"), addr("[2001:db8::1]:443")}, ""},
			{"IPv4 in IPv6", []PreferredAddress{addr("[::ffff:192.0.2.1]:443"), addr("[2001:db8::1]:443")}, ""},
			{"two of a family", []PreferredAddress{addr("192.0.2.1:443"), addr("192.0.2.2:443")}, "192.0.2.2:443 is the second"},
			{"two of a family in disguise", []PreferredAddress{addr("192.0.2.1:443"), addr("[::ffff:192.0.2.2]:443")}, "second"},
			{"unspecified", []PreferredAddress{addr("0.0.0.0:443")}, "0.0.0.0:443"},
			{"unspecified, IPv6", []PreferredAddress{addr("[::]:443")}, "[::]:443"},
			{"multicast", []PreferredAddress{addr("224.0.0.1:443")}, "224.0.0.1:443"},
			{"with a zone", []PreferredAddress{addr("[fe80::1%eth0]:443")}, "fe80::1%eth0"},
			{"no port", []PreferredAddress{addr("192.0.2.1:0")}, "192.0.2.1:0"},
			{"no address", []PreferredAddress{{}}, "invalid"},
			{"a socket that does not say where packets arrive", []PreferredAddress{{unicastAddr.AddrPort(), nil}}, "Transport of its own"},
			{"longer connection IDs", []PreferredAddress{{unicastAddr.AddrPort(), other(8)}}, "another length"},
			{"a transport without a socket", []PreferredAddress{{unicastAddr.AddrPort(), &Transport{}}}, "Conn not set"},
		} {
			tr := &Transport{Conn: newActorSocket(hereAddr, thereAddr)}
			_, err := tr.Listen(endpointTLS(), &Config{PreferredAddresses: tt.as})
			tr.Close()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		tr := &Transport{Conn: newActorSocket(hereAddr, thereAddr), ConnectionIDGenerator: noIDs{}}
		defer tr.Close()
		if _, err := tr.Listen(endpointTLS(), &Config{PreferredAddresses: []PreferredAddress{addr("192.0.2.1:443")}}); err != errPreferredNoIDs {
			t.Errorf("without connection IDs: %v", err)
		}
	})
}

// A Config for one connection is looked at as the listener's is.
func TestPreferredAddressConfigForClient(t *testing.T) {
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		server := &Transport{Conn: n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)}
		defer server.Close()
		_, err := server.Listen(endpointTLS(), &Config{GetConfigForClient: func(*ClientInfo) (*Config, error) {
			return &Config{PreferredAddresses: []PreferredAddress{{Addr: netip.MustParseAddrPort("0.0.0.0:1")}}}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		client := &Transport{Conn: n.socket("10.0.0.1", 1000, moveDelay)}
		defer client.Close()
		if _, err := client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil); err == nil || !strings.Contains(err.Error(), "CONNECTION_REFUSED") {
			t.Errorf("Dial: %v", err)
		}
	})
}

// preferredNet is a client and a server on the moving network, with a preferred address. watch
// hears of every datagram.
func preferredNet(t *testing.T, f func(t *testing.T, m *moving, side *Transport)) {
	t.Helper()
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		m := &moving{moveNet: n}
		m.clientSocket = n.socket("10.0.0.1", 1000, moveDelay)
		m.serverSocket = n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)
		m.clientT, m.serverT = &Transport{Conn: m.clientSocket}, &Transport{Conn: m.serverSocket}
		side := &Transport{Conn: n.socket(unicastAddr.IP.String(), unicastAddr.Port, moveDelay/2)}
		l, err := m.serverT.Listen(endpointTLS(), &Config{PreferredAddresses: []PreferredAddress{{unicastAddr.AddrPort(), side}}})
		if err != nil {
			t.Fatal(err)
		}
		if m.c, err = m.clientT.Dial(t.Context(), hereAddr, endpointClientTLS(), nil); err != nil {
			t.Fatal(err)
		}
		if m.s, err = l.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer m.serverT.Close()
		defer side.Close()
		defer m.clientT.Close()
		f(t, m, side)
	})
}

// Much is carried while the client moves to the preferred address, over a network that loses
// datagrams, and its NAT changes its mind.
func TestPreferredAddressDuringTransfer(t *testing.T) {
	for _, way := range []string{"up", "down"} {
		for _, what := range []string{"", "lossy", "rebinding"} {
			t.Run(way+" "+what, func(t *testing.T) {
				preferredNet(t, func(t *testing.T, m *moving, _ *Transport) {
					var mu sync.Mutex
					bytes := map[string]int{}
					n, asked := 0, 0
					slow := slowly(2 << 20)
					m.setHook(func(d *moveDatagram) {
						mu.Lock()
						defer mu.Unlock()
						n++
						slow(d)
						d.lose = d.lose || what == "lossy" && n%100 == 0
						bytes[d.from.String()] += len(d.b)
						bytes[d.to.String()] += len(d.b)
						if d.to.String() != unicast {
							return
						}
						if asked++; what == "rebinding" && asked == 1 {
							// The answer to the first challenge does not arrive.
							go m.rebind(m.clientSocket, "192.0.2.1", 2000)
						}
					})
					from, to := m.c, m.s
					if way == "down" {
						from, to = to, from
					}
					done, gone := make(chan struct{}), make(chan struct{})
					go func() {
						defer close(gone)
						for i := 1; what == "rebinding"; i++ {
							select {
							case <-done:
								return
							case <-time.After(2 * time.Second):
								m.rebind(m.clientSocket, "192.0.2.1", 2000+i)
							}
						}
					}()
					took := m.carry(from, to, 16<<20)
					close(done)
					<-gone
					mu.Lock()
					defer mu.Unlock()
					t.Logf("%v, %d moves, %d bytes at first and %d at the preferred address", took, m.moves, bytes[anycast], bytes[unicast])
					if what == "rebinding" && m.moves < 4 {
						t.Errorf("the NAT changed its mind %d times", m.moves)
					}
					if bytes[unicast] < bytes[anycast] {
						t.Errorf("most should go by the preferred address: %v", bytes)
					}
					if a := m.c.RemoteAddr().String(); a != unicast {
						t.Errorf("the client talks to %v", a)
					}
					if a := m.s.LocalAddr().String(); a != unicast {
						t.Errorf("the server is at %v", a)
					}
					if took > 60*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// A client that cannot reach the preferred address, or be reached from there, stays, and so
// does the server.
func TestPreferredAddressOutOfReach(t *testing.T) {
	for _, way := range []string{"to", "from"} {
		t.Run(way, func(t *testing.T) {
			onMoveNet(t, func(t *testing.T, n *moveNet) {
				n.setHook(func(d *moveDatagram) {
					d.lose = way == "to" && d.to.String() == unicast || way == "from" && d.from.String() == unicast
				})
				side := &Transport{Conn: n.socket(unicastAddr.IP.String(), unicastAddr.Port, moveDelay)}
				defer side.Close()
				server := &Transport{Conn: n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)}
				defer server.Close()
				l, err := server.Listen(endpointTLS(), &Config{PreferredAddresses: []PreferredAddress{{unicastAddr.AddrPort(), side}}})
				if err != nil {
					t.Fatal(err)
				}
				client := &Transport{Conn: n.socket("10.0.0.1", 1000, moveDelay)}
				defer client.Close()
				c, err := client.Dial(t.Context(), hereAddr, endpointClientTLS(), nil)
				if err != nil {
					t.Fatal(err)
				}
				s, err := l.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				n.carry(c, s, 1<<20)
				time.Sleep(15 * time.Second)
				n.carry(s, c, 1<<20)
				if a := c.RemoteAddr().String(); a != anycast {
					t.Errorf("the client talks to %v", a)
				}
				if a := s.LocalAddr().String(); a != anycast {
					t.Errorf("the server is at %v", a)
				}
			})
		})
	}
}

// The client's application moves once the connection is at the preferred address: from there
// on, and not to where the server was before.
func TestMoveFromPreferredAddress(t *testing.T) {
	preferredNet(t, func(t *testing.T, m *moving, _ *Transport) {
		wifi := &Transport{Conn: m.socket("10.1.0.1", 5000, moveDelay)}
		defer wifi.Close()
		path, err := m.c.AddPath(wifi)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.carry(m.c, m.s, 1<<20)
		if a := m.c.RemoteAddr().String(); a != unicast {
			t.Fatalf("the client talks to %v", a)
		}
		if err := path.Switch(); err != ErrPathNotValidated {
			t.Errorf("Switch to where the server was before: %v", err)
		}
		if err := path.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		m.carry(m.c, m.s, 1<<20)
		m.carry(m.s, m.c, 1<<20)
		if a := m.s.RemoteAddr().String(); a != "10.1.0.1:5000" {
			t.Errorf("the client is at %v", a)
		}
		if a := m.c.RemoteAddr().String(); a != unicast {
			t.Errorf("the client talks to %v", a)
		}
	})
}

// RFC 9000 §18.2: disable_active_migration is about the address that was used during the
// handshake. At the preferred one a client may move, more than once.
func TestPreferredAddressAndDisableActiveMigration(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newActor(t, asClient, func(tp *wire.TransportParams) {
			tp.DisableActiveMigration = true
			tp.PreferredAddress = &wire.PreferredAddress{IPv4: netip.MustParseAddrPort("10.0.0.3:443"), ConnID: []byte("pref"), ResetToken: aToken}
		}, func(p *actor) { p.ids[1] = []byte("pref") }).handshake()
		p.writeFrames(wire.OneRTT, newConnID(2, 0), newConnID(3, 0))
		side := &Transport{Conn: p.sock.side(sideAddr)}
		defer side.Close()
		if _, err := p.c.AddPath(side); err != errMoveForbidden {
			t.Errorf("AddPath at the first address: %v", err)
		}
		var ch wire.PathChallenge
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				if f, ok := f.(wire.PathChallenge); ok {
					ch = f
				}
			}
		}
		p.answer(ch)
		for i, tr := range []*Transport{side, p.transport} {
			path, err := p.c.AddPath(tr)
			if err != nil {
				t.Fatalf("AddPath %d at the preferred address: %v", i, err)
			}
			probing := start(func() (struct{}, error) { return struct{}{}, path.Probe(t.Context()) })
			for _, f := range framesIn[wire.PathChallenge](p.post()["10.0.0.3:443"]) {
				p.answer(f)
			}
			if _, err := probing.result(); err != nil {
				t.Fatal(err)
			}
			if err := path.Switch(); err != nil {
				t.Errorf("Switch %d: %v", i, err)
			}
		}
	})
}

// Over real sockets: one that is bound to no address tells where packets arrive; elsewhere than
// on Linux it does not, and a second one is what it takes.
func TestPreferredAddressOverLoopback(t *testing.T) {
	for _, tt := range []struct {
		name, listen, dial, preferred string
		own                           bool // the preferred address has a socket of its own
	}{
		{"one socket", "0.0.0.0", "127.0.0.1", "127.0.0.2", false},
		{"one socket for both families", "::", "127.0.0.1", "127.0.0.2", false},
		{"two sockets", "127.0.0.1", "127.0.0.1", "127.0.0.1", true},
		{"two sockets, IPv6", "::1", "::1", "::1", true},
		{"two sockets, the first of them everywhere", "::", "::1", "::1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			open := func(ip string) *net.UDPConn {
				pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { pc.Close() })
				return pc
			}
			port := func(pc *net.UDPConn) uint16 { return uint16(pc.LocalAddr().(*net.UDPAddr).Port) }
			sock := open(tt.listen)
			server := &Transport{Conn: sock}
			defer server.Close()
			at := PreferredAddress{Addr: netip.AddrPortFrom(netip.MustParseAddr(tt.preferred), port(sock))}
			if tt.own {
				pc := open(tt.preferred)
				at.Addr = netip.AddrPortFrom(at.Addr.Addr(), port(pc))
				at.Transport = &Transport{Conn: pc}
				defer at.Transport.Close()
			}
			l, err := server.Listen(endpointTLS(), &Config{PreferredAddresses: []PreferredAddress{at}})
			if !tt.own && !server.udp.SaysLocal() {
				if err != errPreferredDeaf {
					t.Errorf("Listen: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			client := &Transport{Conn: open(tt.dial)}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := client.Dial(ctx, &net.UDPAddr{IP: net.ParseIP(tt.dial), Port: int(port(sock))}, clientTLSFor(tt.dial), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept(ctx)
			if err != nil {
				t.Fatal(err)
			}
			go echoStreams(ctx, func(ctx context.Context) (io.ReadWriteCloser, error) { return s.AcceptStream(ctx) })
			// It moves in a while that nobody has to wait for: each echo is a round trip.
			deadline := time.Now().Add(10 * time.Second)
			for c.RemoteAddr().String() != at.Addr.String() {
				if time.Now().After(deadline) {
					t.Fatalf("the client talks to %v", c.RemoteAddr())
				}
				echoOf(t, ctx, func() (io.ReadWriteCloser, error) { return c.OpenStreamSync(ctx) }, "hello")
			}
			before := c.ConnectionStats().BytesReceived
			big := strings.Repeat("volley ", 100_000)
			echoOf(t, ctx, func() (io.ReadWriteCloser, error) { return c.OpenStreamSync(ctx) }, big)
			if n := c.ConnectionStats().BytesReceived - before; n < uint64(len(big)) {
				t.Errorf("%d bytes came", n)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if q := s.paths.active; q.sameEnd(s.paths.home) {
				t.Errorf("the server sends by the first path still")
			} else if !tt.own && q.local != at.Addr.Addr() {
				t.Errorf("the server sends from %v", q.local)
			}
		})
	}
}

func clientTLSFor(ip string) *tls.Config {
	conf := endpointClientTLS().Clone()
	conf.ServerName = "localhost"
	return conf
}
