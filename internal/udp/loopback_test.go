package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// pairing is a sender and a receiver, and how the former addresses the latter.
type pairing struct {
	name         string
	from, to     func(t testing.TB) *Conn
	host         string // of the receiver
	wantFromHost string // as the receiver sees the sender
}

func sock(network, addr string) func(testing.TB) *Conn {
	return func(t testing.TB) *Conn { return listen(t, network, addr) }
}

func applications(network, addr string) func(testing.TB) *Conn {
	return func(t testing.TB) *Conn { return listenAsApplications(t, network, addr) }
}

// pairings leaves IPv6 out, and says so, where the host has none.
func pairings(t testing.TB) []pairing {
	ps := []pairing{
		{"v4", sock("udp4", "127.0.0.1:0"), sock("udp4", "127.0.0.1:0"), "127.0.0.1", "127.0.0.1"},
		{"v4 of package net", applications("udp4", "127.0.0.1:0"), applications("udp4", "127.0.0.1:0"), "127.0.0.1", "127.0.0.1"},
		{"v4 to any", sock("udp4", "0.0.0.0:0"), sock("udp4", "0.0.0.0:0"), "127.0.0.1", "127.0.0.1"},
	}
	if pc, err := net.ListenPacket("udp6", "[::1]:0"); err != nil {
		t.Logf("no IPv6 on this host: %v", err)
		return ps
	} else {
		pc.Close()
	}
	return append(ps,
		pairing{"v6", sock("udp6", "[::1]:0"), sock("udp6", "[::1]:0"), "::1", "::1"},
		pairing{"dual to v4", sock("udp", "[::]:0"), sock("udp4", "127.0.0.1:0"), "127.0.0.1", "127.0.0.1"},
		pairing{"dual to v4-mapped", sock("udp", "[::]:0"), sock("udp4", "127.0.0.1:0"), "::ffff:127.0.0.1", "127.0.0.1"},
		pairing{"v4 to dual", sock("udp4", "127.0.0.1:0"), sock("udp", "[::]:0"), "127.0.0.1", "127.0.0.1"},
		pairing{"v6 to dual", sock("udp6", "[::1]:0"), sock("udp", "[::]:0"), "::1", "::1"},
		pairing{"dual of package net to dual", applications("udp", "[::]:0"), sock("udp", "[::]:0"), "::1", "::1"},
		pairing{"dual to dual of package net", sock("udp", "[::]:0"), applications("udp", "[::]:0"), "::1", "::1"},
		pairing{"dual to dual", sock("udp", "[::]:0"), sock("udp", "[::]:0"), "::1", "::1"},
	)
}

// A15: what the kernel joins on the way comes out as what went in.
func TestTrainsArriveAsTheyWereSent(t *testing.T) {
	for _, p := range pairings(t) {
		t.Run(p.name, func(t *testing.T) {
			from, to := p.from(t), p.to(t)
			r := &Route{Remote: netip.AddrPortFrom(netip.MustParseAddr(p.host), portOf(to))}
			for i, shape := range []struct{ datagrams, segment, last int }{
				{1, 1, 1}, {1, 1200, 1200}, {2, 1200, 1200}, {64, 1000, 1000}, {45, 1452, 1452}, {45, 1452, 1}, {10, 1452, 700},
				{40, 1452, 1452}, {3, 16376, 5}, {4, 16376, 16376}, {1, 2048, 2048}, {1, 2049, 2049}, {100, 900, 20}, {7, 300, 299},
			} {
				if runtime.GOOS != "linux" && shape.segment > 9000 {
					continue // more than some systems send by default
				}
				what := fmt.Sprintf("%d×%d, last %d", shape.datagrams, shape.segment, shape.last)
				b := train(byte(i), (shape.datagrams-1)*shape.segment+shape.last, shape.segment)
				sent, err := from.Send(r, b, shape.segment, NotECT)
				if sent != shape.datagrams || err != nil {
					t.Fatalf("%s: sent %d, %v", what, sent, err)
				}
				got := receive(t, to, shape.datagrams)
				sameDatagrams(t, got, cut(b, shape.segment))
				for _, d := range got {
					if want := netip.AddrPortFrom(netip.MustParseAddr(p.wantFromHost), portOf(from)); d.remote != want {
						t.Fatalf("%s: from %v, want %v", what, d.remote, want)
					}
				}
			}
			if from.GSO() != from.CanGSO() {
				t.Errorf("segmentation: can %v, did %v", from.CanGSO(), from.GSO())
			}
			if runtime.GOOS == "linux" && from.CanGSO() && !to.GRO() {
				t.Error("no read brought more than one datagram")
			}
			sent, received := from.Stats(), to.Stats()
			if sent.SentDatagrams != received.ReceivedDatagrams || received.Truncated != 0 {
				t.Errorf("sent %+v, received %+v", sent, received)
			}
		})
	}
}

func TestTwoPeersInterleaved(t *testing.T) {
	to, peers := listen(t, "udp4", "127.0.0.1:0"), []*Conn{listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")}
	r := &Route{Remote: addrOf(to)}
	for round := range 20 {
		want := make([][][]byte, len(peers))
		n := 0
		for k := range 6 {
			i := (k + round) % 2
			b := train(byte(k), 9*(1000+i)+k+1, 1000+i)
			if _, err := peers[i].Send(r, b, 1000+i, NotECT); err != nil {
				t.Fatal(err)
			}
			want[i] = append(want[i], cut(b, 1000+i)...)
			n += 10
		}
		got := receive(t, to, n)
		for i, p := range peers {
			from := addrOf(p)
			sameDatagrams(t, slices.DeleteFunc(slices.Clone(got), func(d arrived) bool { return d.remote != from }), want[i])
		}
	}
}

func TestMarksArrive(t *testing.T) {
	for _, p := range pairings(t) {
		t.Run(p.name, func(t *testing.T) {
			from, to := p.from(t), p.to(t)
			if from.CanECN() != (runtime.GOOS == "linux") {
				t.Fatalf("CanECN is %v", from.CanECN())
			}
			r := &Route{Remote: netip.AddrPortFrom(netip.MustParseAddr(p.host), portOf(to))}
			for _, mark := range []ECN{NotECT, ECT0, ECT1, CE} {
				for _, datagrams := range []int{1, 5} {
					b := train(9, 1200*datagrams, 1200)
					if _, err := from.Send(r, b, 1200, mark); err != nil {
						t.Fatal(err)
					}
					for _, d := range receive(t, to, datagrams) {
						if want := mark; from.CanECN() && d.ecn != want {
							t.Errorf("sent with %v, arrived with %v", want, d.ecn)
						}
					}
				}
			}
		})
	}
}

// A server on the wildcard address answers from the address it was asked at.
func TestRepliesLeaveFromWhereTheQuestionArrived(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // plain sockets do not know
	}
	for _, network := range []string{"udp4", "udp"} {
		t.Run(network, func(t *testing.T) {
			server, client := listen(t, network, ":0"), listen(t, "udp4", "127.0.0.1:0")
			for _, host := range []string{"127.0.0.1", "127.0.0.7", "127.1.2.3"} {
				at := netip.MustParseAddr(host)
				if _, err := client.Send(&Route{Remote: netip.AddrPortFrom(at, portOf(server))}, []byte("question"), 0, NotECT); err != nil {
					t.Fatal(err)
				}
				q := receive(t, server, 1)[0]
				if q.local.Addr != at || q.local.IfIndex == 0 {
					t.Fatalf("asked at %v, the server saw %+v", at, q.local)
				}
				b := train(1, 3000, 1000)
				if _, err := server.Send(&Route{Remote: q.remote, Local: q.local}, b, 1000, ECT0); err != nil {
					t.Fatal(err)
				}
				for _, a := range receive(t, client, 3) {
					if a.remote != netip.AddrPortFrom(at, portOf(server)) || a.ecn != ECT0 {
						t.Errorf("asked at %v, answered from %v with %v", at, a.remote, a.ecn)
					}
				}
			}
		})
	}
}

func TestAnEmptyDatagramIsNoMessage(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	if _, err := from.pc.WriteTo(nil, to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Send(&Route{Remote: addrOf(to)}, []byte("x"), 0, NotECT); err != nil {
		t.Fatal(err)
	}
	sameDatagrams(t, receive(t, to, 1), [][]byte{[]byte("x")})
	if n, err := from.Send(&Route{Remote: addrOf(to)}, nil, 1200, NotECT); n != 0 || err != nil {
		t.Errorf("nothing to send: %d, %v", n, err)
	}
}

func TestTheCallerOwnsItsBuffers(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	r, ms := &Route{Remote: addrOf(to)}, make([]Message, 8)
	type kept struct {
		m    Message
		want []byte
	}
	var all []kept
	for i := range 30 {
		b := train(byte(i), 1+i*600, 1300)
		if _, err := from.Send(r, b, 1300, NotECT); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(b); {
			n, err := to.ReadBatch(ms)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ms[:n] {
				m.Buf.Retain()
				m.Buf.Release() // one reference is left
				all = append(all, kept{m, b[got : got+len(m.Data)]})
				got += len(m.Data)
			}
		}
	}
	for i, k := range all {
		if !bytes.Equal(k.m.Data, k.want) || !bytes.Equal(k.m.Buf.Bytes(), k.want) {
			t.Fatalf("message %d changed while it was held", i)
		}
		k.m.Buf.Release()
	}
}

func TestManySendersAtOnce(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	const senders, rounds = 8, 30
	errs := make(chan error, senders)
	tokens := make(chan struct{}, 4) // keeps what is under way below the receive buffer of any host
	for id := range senders {
		go func() {
			r := &Route{Remote: addrOf(to)}
			for range rounds {
				tokens <- struct{}{}
				if n, err := from.Send(r, bytes.Repeat([]byte{byte(id)}, 5*1100), 1100, ECN(id%4)); n != 5 || err != nil {
					errs <- fmt.Errorf("sent %d: %w", n, err)
					return
				}
			}
			errs <- nil
		}()
	}
	seen := make([]int, senders)
	for n := 0; n < senders*rounds*5; {
		for _, d := range receive(t, to, 1) {
			id := d.data[0]
			if !bytes.Equal(d.data, bytes.Repeat([]byte{id}, 1100)) || to.CanECN() && d.ecn != ECN(id%4) {
				t.Fatalf("sender %d: bytes or mark (%v) of another", id, d.ecn)
			}
			seen[id]++
			if n++; n%5 == 0 {
				<-tokens
			}
		}
	}
	for id, n := range seen {
		if err := <-errs; err != nil {
			t.Error(err)
		}
		if n != 5*rounds {
			t.Errorf("%d datagrams of sender %d", n, id)
		}
	}
}

// kinds are the sockets that there are.
var kinds = map[string]func(testing.TB) *Conn{
	"of Listen":      sock("udp4", "127.0.0.1:0"),
	"of package net": applications("udp4", "127.0.0.1:0"),
}

func TestCloseEndsReading(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := open(t)
			c.SetReadDeadline(time.Time{})
			ended := make(chan error)
			go func() {
				ms := make([]Message, 4)
				_, err := c.ReadBatch(ms)
				ended <- err
				_, err = c.ReadBatch(ms)
				ended <- err
			}()
			c.Close()
			for range 2 {
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("ReadBatch ended with %v", err)
				}
			}
			if _, err := c.Send(&Route{Remote: addrOf(c)}, []byte("x"), 0, NotECT); err != net.ErrClosed {
				t.Errorf("Send after Close: %v", err)
			}
		})
	}
}

// The application may close its socket without asking.
func TestAClosedSocketEndsReadingAndSending(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := open(t)
			to := addrOf(c)
			c.pc.Close()
			if _, err := c.ReadBatch(make([]Message, 1)); err != net.ErrClosed {
				t.Errorf("ReadBatch: %v", err)
			}
			if _, err := c.Send(&Route{Remote: to}, []byte("x"), 0, NotECT); err != net.ErrClosed {
				t.Errorf("Send: %v", err)
			}
		})
	}
}

func TestReadDeadline(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := open(t)
			c.SetReadDeadline(time.Now().Add(-time.Second))
			if _, err := c.ReadBatch(make([]Message, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("deadline in the past: %v", err)
			}
			c.SetReadDeadline(time.Time{})
			ended := make(chan error)
			go func() {
				_, err := c.ReadBatch(make([]Message, 1))
				ended <- err
			}()
			c.SetReadDeadline(time.Now())
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("deadline that comes while reading: %v", err)
			}
			// What arrived meanwhile is there afterwards.
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Send(&Route{Remote: addrOf(c)}, []byte("x"), 0, NotECT); err != nil {
				t.Fatal(err)
			}
			if ds := receive(t, c, 1); string(ds[0].data) != "x" {
				t.Errorf("%q arrived", ds[0].data)
			}
		})
	}
}

// A socket of Listen is a net.PacketConn like any other.
func TestListenedSocketAsPacketConn(t *testing.T) {
	a, err := Listen("udp4", resolve(t, "udp4", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	end := time.Now().Add(10 * time.Second)
	a.SetDeadline(end)
	b.SetDeadline(end)
	for from, to := range map[net.PacketConn]net.PacketConn{a: b, b: a} {
		if n, err := from.WriteTo([]byte("some bytes"), to.LocalAddr()); n != 10 || err != nil {
			t.Fatalf("WriteTo: %d, %v", n, err)
		}
		p := make([]byte, 4)
		if n, addr, err := to.ReadFrom(p); err != nil || string(p[:n]) != "some" || addr.String() != from.LocalAddr().String() {
			t.Errorf("ReadFrom: %q from %v, %v", p[:n], addr, err)
		}
	}
	if _, err := a.WriteTo([]byte("x"), &net.TCPAddr{}); err == nil {
		t.Error("WriteTo takes an address of TCP")
	}
	a.SetReadDeadline(time.Now().Add(-time.Second))
	if _, _, err := a.ReadFrom(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := a.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ReadFrom after Close: %v", err)
	}
	if _, err := a.WriteTo([]byte("x"), b.LocalAddr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("WriteTo after Close: %v", err)
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Close after Close: %v", err)
	}
	if _, err := Listen("udp4", b.LocalAddr().(*net.UDPAddr)); err == nil {
		t.Error("two sockets on one port")
	}
}
