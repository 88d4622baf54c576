package udp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
)

// memoryAddr is an address that is none of UDP's.
type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// memoryConn is a PacketConn that has nothing but the interface's methods.
type memoryConn struct {
	name     memoryAddr
	in, out  chan []byte
	closed   chan struct{}
	once     *sync.Once
	complain func() error // asked before each read
}

func memoryPair() (a, b *memoryConn) {
	ab, ba := make(chan []byte, 100), make(chan []byte, 100)
	return &memoryConn{"a", ba, ab, make(chan struct{}), new(sync.Once), nil}, &memoryConn{"b", ab, ba, make(chan struct{}), new(sync.Once), nil}
}

func (m *memoryConn) ReadFrom(p []byte) (int, net.Addr, error) {
	if m.complain != nil {
		if err := m.complain(); err != nil {
			return 0, nil, err
		}
	}
	select {
	case b := <-m.in:
		return copy(p, b), map[memoryAddr]memoryAddr{"a": "b", "b": "a"}[m.name], nil
	case <-m.closed:
		return 0, nil, net.ErrClosed
	}
}

func (m *memoryConn) WriteTo(p []byte, to net.Addr) (int, error) {
	if to == m.name {
		return 0, syscall.EHOSTUNREACH
	}
	m.out <- bytes.Clone(p)
	return len(p), nil
}

func (m *memoryConn) Close() error                     { m.once.Do(func() { close(m.closed) }); return nil }
func (m *memoryConn) LocalAddr() net.Addr              { return m.name }
func (m *memoryConn) SetDeadline(time.Time) error      { return nil }
func (m *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (m *memoryConn) SetWriteDeadline(time.Time) error { return nil }

func TestAnyPacketConn(t *testing.T) {
	a, b := memoryPair()
	from, to := wrap(t, a), wrap(t, b)
	if from.CanGSO() || from.CanECN() {
		t.Error("a conn in memory segments or marks")
	}
	flight := train(1, 3*1200+17, 1200)
	if sent, err := from.Send(&Route{RemoteAddr: memoryAddr("b")}, flight, 1200, ECT0); sent != 4 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	big := train(2, 5000, 5000)
	if sent, err := from.Send(&Route{RemoteAddr: memoryAddr("b")}, big, 0, NotECT); sent != 1 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	for _, want := range append(cut(flight, 1200), big) {
		ms := make([]Message, 3)
		n, err := to.ReadBatch(ms)
		if n != 1 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		m := ms[0]
		if !bytes.Equal(m.Data, want) || m.Segment != len(want) || m.RemoteAddr != memoryAddr("a") || m.Remote.IsValid() || m.ECN != NotECT {
			t.Errorf("arrived: %d bytes, segments of %d, from %v (%v), %v", len(m.Data), m.Segment, m.RemoteAddr, m.Remote, m.ECN)
		}
		if small := len(m.Buf.mem) == smallSize; small != (len(want) <= smallSize) {
			t.Errorf("%d bytes in a buffer of %d", len(want), len(m.Buf.mem))
		}
		m.Buf.Release()
	}
	if got := to.Stats(); got.Reads != 5 || got.ReceivedDatagrams != 5 || to.GRO() || from.GSO() {
		t.Errorf("stats: %+v", got)
	}
	if sent, err := from.Send(&Route{RemoteAddr: memoryAddr("a")}, flight, 1200, NotECT); sent != 0 || !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("to itself: %d, %v", sent, err)
	}
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (temporary) Timeout() bool   { return false }

func TestReadingAnyPacketConnGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memoryPair()
		from, to := wrap(t, a), wrap(t, b)
		complaints := slices.Repeat([]error{syscall.EMSGSIZE, syscall.ECONNREFUSED, &net.OpError{Op: "read", Err: os.NewSyscallError("recvfrom", syscall.ECONNRESET)}, temporary{errors.New("odd")}}, 100)
		b.complain = func() error {
			if len(complaints) == 0 {
				return nil
			}
			defer func() { complaints = complaints[1:] }()
			return complaints[0]
		}
		if _, err := from.Send(&Route{RemoteAddr: memoryAddr("b")}, []byte("x"), 0, NotECT); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		sameDatagrams(t, receive(t, to, 1), [][]byte{[]byte("x")})
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("400 complaints took %v: without end they would take a core, or a reader's time", took)
		}
		go func() { time.Sleep(time.Second); to.Close() }()
		if _, err := to.ReadBatch(make([]Message, 1)); err != net.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		b.complain = func() error { return errors.New("fatal") }
		other := wrap(t, b)
		if _, err := other.ReadBatch(make([]Message, 1)); err == nil || err.Error() != "fatal" {
			t.Errorf("a fatal error became %v", err)
		}
	})
}

// The same rules as for fast sockets, one datagram a call.
func TestRefusalsOfPlainSockets(t *testing.T) {
	for _, tc := range []struct {
		errno error
		want  error
	}{
		{syscall.EAGAIN, ErrBlocked}, {syscall.ENOBUFS, ErrBlocked}, {syscall.EMSGSIZE, ErrTooLarge},
		{syscall.EIO, syscall.EIO}, {syscall.EHOSTUNREACH, syscall.EHOSTUNREACH}, {net.ErrClosed, net.ErrClosed},
	} {
		for k := range 4 {
			a, b := memoryPair()
			from, to := wrap(t, a), wrap(t, b)
			s := &script{answer: func(call int, _ Sending) Verdict {
				if call == k {
					return Verdict{Err: tc.errno}
				}
				return Verdict{}
			}}
			Inject(from, s.hook())
			r := &Route{RemoteAddr: memoryAddr("b")}
			flight := train(1, 4*1000, 1000)
			sent, err := from.Send(r, flight, 1000, NotECT)
			if sent != k || !errors.Is(err, tc.want) || len(s.calls) != k+1 {
				t.Errorf("%v for datagram %d: sent %d in %d calls, %v", tc.errno, k, sent, len(s.calls), err)
			}
			if _, err := from.Send(r, flight[sent*1000:], 1000, NotECT); err != nil {
				t.Errorf("the rest: %v", err)
			}
			sameDatagrams(t, receive(t, to, 4), cut(flight, 1000))
		}
	}
}

// wrapped hides what a *net.UDPConn can do, and counts what goes through its methods.
type wrapped struct {
	*net.UDPConn
	reads, writes int
}

func (w *wrapped) ReadFrom(p []byte) (int, net.Addr, error) {
	w.reads++
	return w.UDPConn.ReadFrom(p)
}

func (w *wrapped) WriteTo(p []byte, to net.Addr) (int, error) {
	w.writes++
	return w.UDPConn.WriteTo(p, to)
}

// A type that embeds a UDP socket may do so to change the bytes: both ways go
// through its own methods.
func TestWrappersAreNotBypassed(t *testing.T) {
	pc, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &wrapped{UDPConn: pc}
	c, peer := wrap(t, w), listen(t, "udp4", "127.0.0.1:0")
	b := train(1, 2*1000, 1000)
	r := &Route{Remote: addrOf(peer)}
	for range 2 { // the second time with the address at hand
		if sent, err := c.Send(r, b, 1000, ECT0); sent != 2 || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
		sameDatagrams(t, receive(t, peer, 2), cut(b, 1000))
	}
	back := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), portOf(c))
	if _, err := peer.Send(&Route{Remote: back}, b, 1000, ECT0); err != nil {
		t.Fatal(err)
	}
	got := receive(t, c, 2)
	sameDatagrams(t, got, cut(b, 1000))
	if got[0].remote != addrOf(peer) {
		t.Errorf("from %v", got[0].remote)
	}
	if w.writes != 4 || w.reads != 2 {
		t.Errorf("%d writes, %d reads through the wrapper", w.writes, w.reads)
	}
	// A Route that moves does not send to where it was.
	other := listen(t, "udp4", "127.0.0.1:0")
	r.Remote = addrOf(other)
	if _, err := c.Send(r, b, 1000, NotECT); err != nil {
		t.Fatal(err)
	}
	sameDatagrams(t, receive(t, other, 2), cut(b, 1000))
}

// What systems other than Linux do with a UDP socket, done here.
func TestPlainUDPSockets(t *testing.T) {
	for _, p := range pairings(t) {
		t.Run(p.name, func(t *testing.T) {
			from, to := p.from(t), p.to(t)
			for _, c := range []*Conn{from, to} {
				c.sock.detach()
				c.sock, c.can = newPlainSocket(c.pc), abilities{}
			}
			r := &Route{Remote: netip.AddrPortFrom(netip.MustParseAddr(p.host), portOf(to))}
			b := train(1, 4*1452+1, 1452)
			if sent, err := from.Send(r, b, 1452, CE); sent != 5 || err != nil {
				t.Fatalf("sent %d, %v", sent, err)
			}
			got := receive(t, to, 5)
			sameDatagrams(t, got, cut(b, 1452))
			if want := netip.AddrPortFrom(netip.MustParseAddr(p.wantFromHost), portOf(from)); got[0].remote != want {
				t.Errorf("from %v, want %v", got[0].remote, want)
			}
			if _, err := from.Send(r, make([]byte, 65536), 0, NotECT); err != ErrTooLarge {
				t.Errorf("65536 bytes: %v", err)
			}
		})
	}
}

// In virtual time, over quic-go's simulated network.
func TestSimulatedNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
		settings := simnet.NodeBiDiLinkSettings{Latency: 30 * time.Millisecond}
		a := network.NewEndpoint(udpAddr("10.0.0.1:1"), settings)
		b := network.NewEndpoint(udpAddr("10.0.0.2:2"), settings)
		if err := network.Start(); err != nil {
			t.Fatal(err)
		}
		defer network.Close()
		from, to := wrap(t, a), wrap(t, b)
		start := time.Now()
		flight := train(1, 10*1200, 1200)
		if sent, err := from.Send(&Route{Remote: netip.MustParseAddrPort("10.0.0.2:2")}, flight, 1200, ECT0); sent != 10 || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
		got := receive(t, to, 10)
		sameDatagrams(t, got, cut(flight, 1200))
		if got[0].remote != netip.MustParseAddrPort("10.0.0.1:1") || time.Since(start) < 30*time.Millisecond {
			t.Errorf("from %v after %v", got[0].remote, time.Since(start))
		}
		ended := make(chan error)
		go func() {
			_, err := to.ReadBatch(make([]Message, 1))
			ended <- err
		}()
		synctest.Wait()
		if err := to.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != net.ErrClosed {
			t.Errorf("after Close: %v", err)
		}
		if err := to.WaitWritable(context.Background()); err != net.ErrClosed {
			t.Errorf("WaitWritable after Close: %v", err)
		}
	})
}

func udpAddr(s string) *net.UDPAddr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
