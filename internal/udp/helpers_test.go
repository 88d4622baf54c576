package udp

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// listen opens a socket that the test's end closes. Reads give up after ten
// seconds: a test must fail, not hang.
func listen(t testing.TB, network, addr string) *Conn {
	t.Helper()
	pc, err := Listen(network, resolve(t, network, addr))
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, pc)
}

// listenAsApplications is listen with a socket of package net.
func listenAsApplications(t testing.TB, network, addr string) *Conn {
	t.Helper()
	pc, err := net.ListenUDP(network, resolve(t, network, addr))
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, pc)
}

func resolve(t testing.TB, network, addr string) *net.UDPAddr {
	t.Helper()
	a, err := net.ResolveUDPAddr(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wrap(t testing.TB, pc net.PacketConn) *Conn {
	t.Helper()
	c, err := New(pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func portOf(c *Conn) uint16 { return uint16(c.LocalAddr().(*net.UDPAddr).Port) }

func addrOf(c *Conn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// train makes sizes bytes of datagrams, each of which shows who made it, which one
// it is, and its whole length.
func train(id byte, size, segment int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = id ^ byte(i/segment*7) ^ byte(i*13) ^ byte(i>>8)
	}
	return b
}

func cut(b []byte, segment int) (ds [][]byte) {
	for len(b) > 0 {
		n := min(segment, len(b))
		ds = append(ds, b[:n:n])
		b = b[n:]
	}
	return ds
}

// arrived is a datagram as the test saw it come in.
type arrived struct {
	data   []byte
	remote netip.AddrPort
	local  Local
	ecn    ECN
}

// receive reads n datagrams, checking the promises about a Message on the way.
func receive(t testing.TB, c *Conn, n int) (ds []arrived) {
	t.Helper()
	ms := make([]Message, 4)
	for len(ds) < n {
		k, err := c.ReadBatch(ms)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(ds), n, err)
		}
		for _, m := range ms[:k] {
			if len(m.Data) == 0 || m.Segment < 1 || m.Segment > len(m.Data) {
				t.Fatalf("message of %d bytes with segments of %d", len(m.Data), m.Segment)
			}
			if m.Remote.Addr().Is4In6() || m.Local.Addr.Is4In6() {
				t.Fatalf("v4-mapped address: from %v to %v", m.Remote, m.Local.Addr)
			}
			if len(m.Data) <= smallSize && len(m.Buf.mem) != smallSize {
				t.Fatalf("%d bytes hold a buffer of %d", len(m.Data), len(m.Buf.mem))
			}
			for _, d := range cut(m.Data, m.Segment) {
				ds = append(ds, arrived{bytes.Clone(d), m.Remote, m.Local, m.ECN})
			}
			m.Buf.Release()
		}
	}
	return ds
}

func sameDatagrams(t testing.TB, got []arrived, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d datagrams arrived, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].data, want[i]) {
			t.Fatalf("datagram %d of %d: %d bytes arrived, want %d, or their content differs", i, len(want), len(got[i].data), len(want[i]))
		}
	}
}

// script is a Hook that writes down every send and answers by a function.
type script struct {
	mu     sync.Mutex
	calls  []Sending
	answer func(call int, s Sending) Verdict
}

func (s *script) hook() *Hook {
	return &Hook{Send: func(call Sending) Verdict {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := len(s.calls)
		call.B = bytes.Clone(call.B)
		s.calls = append(s.calls, call)
		if s.answer == nil {
			return Verdict{}
		}
		return s.answer(i, call)
	}}
}

// datagrams gives the number of datagrams of each call.
func (s *script) datagrams() (ns []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		ns = append(ns, c.Datagrams())
	}
	return ns
}
