package udp

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func option(t *testing.T, pc net.PacketConn, level, name int) (v int) {
	t.Helper()
	control(pc, func(fd uintptr) {
		var err error
		if v, err = unix.GetsockoptInt(int(fd), level, name); err != nil {
			t.Fatal(err)
		}
	})
	return v
}

// A16: whatever ICMP says about the path, the kernel refuses no datagram for it.
func TestTheKernelKeepsNoPathMTU(t *testing.T) {
	for _, p := range pairings(t) {
		c := p.to(t)
		if got := option(t, c.pc, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER); got != unix.IP_PMTUDISC_PROBE {
			t.Errorf("%s: IP_MTU_DISCOVER is %d", p.name, got)
		}
		if option(t, c.pc, unix.SOL_SOCKET, unix.SO_DOMAIN) != unix.AF_INET6 {
			continue
		}
		if got := option(t, c.pc, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER); got != unix.IPV6_PMTUDISC_PROBE {
			t.Errorf("%s: IPV6_MTU_DISCOVER is %d", p.name, got)
		}
	}
}

func TestBuffersAreRaised(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := []int{unix.SO_RCVBUF, unix.SO_SNDBUF}
	var before []int
	for _, name := range names {
		before = append(before, option(t, pc, unix.SOL_SOCKET, name))
	}
	wrap(t, pc)
	for i, name := range names {
		after := option(t, pc, unix.SOL_SOCKET, name)
		if after < before[i] || syscall.Geteuid() == 0 && after < socketBuffer {
			t.Errorf("buffer %d went from %d to %d bytes", name, before[i], after)
		}
	}
}

// G7: each extra can be switched off from outside, and everything arrives without it.
func TestSwitches(t *testing.T) {
	names := []string{"VOLLEY_DISABLE_GSO", "VOLLEY_DISABLE_GRO", "VOLLEY_DISABLE_ECN", "QUIC_GO_DISABLE_GSO", "QUIC_GO_DISABLE_ECN"}
	for _, name := range names {
		t.Setenv(name, "")
	}
	kernel := listen(t, "udp4", "127.0.0.1:0").can
	for _, tc := range []struct {
		name, value   string
		gso, gro, ecn bool
	}{
		{"", "", true, true, true},
		{"VOLLEY_DISABLE_GSO", "true", false, true, true},
		{"QUIC_GO_DISABLE_GSO", "1", false, true, true},
		{"VOLLEY_DISABLE_GRO", "1", true, false, true},
		{"VOLLEY_DISABLE_ECN", "1", true, true, false},
		{"QUIC_GO_DISABLE_ECN", "t", true, true, false},
		{"VOLLEY_DISABLE_GSO", "0", true, true, true},
		{"VOLLEY_DISABLE_GSO", "what", true, true, true},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			tc.gso, tc.gro = tc.gso && kernel.gso, tc.gro && kernel.gro
			if tc.name != "" {
				t.Setenv(tc.name, tc.value)
			}
			from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
			b := train(1, 4*1200, 1200)
			if _, err := from.Send(&Route{Remote: addrOf(to)}, b, 1200, ECT0); err != nil {
				t.Fatal(err)
			}
			got := receive(t, to, 4)
			sameDatagrams(t, got, cut(b, 1200))
			if from.CanGSO() != tc.gso || from.GSO() != tc.gso {
				t.Errorf("GSO: can %v, did %v", from.CanGSO(), from.GSO())
			}
			if want := tc.gso && tc.gro; to.GRO() != want {
				t.Errorf("GRO: %v", to.GRO())
			}
			if from.CanECN() != tc.ecn || (got[0].ecn == ECT0) != tc.ecn {
				t.Errorf("ECN: can %v, arrived with %v", from.CanECN(), got[0].ecn)
			}
		})
	}
}

// After Detach the application reads its socket as if we had never been there.
func TestDetachedSocketsReadSingleDatagrams(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	to.Detach()
	if _, err := to.ReadBatch(make([]Message, 1)); err != net.ErrClosed {
		t.Errorf("ReadBatch after Detach: %v", err)
	}
	if _, err := from.Send(&Route{Remote: addrOf(to)}, train(1, 3000, 1000), 1000, NotECT); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5000)
	for range 3 {
		if n, _, err := to.pc.ReadFrom(buf); n != 1000 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
	}
}

// What piled up comes in few system calls, though no train was sent.
func TestOneCallReadsManyMessages(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	b := train(1, 63*1000, 1000)
	if _, err := from.Send(&Route{Remote: addrOf(to), noGSO: true}, b, 1000, NotECT); err != nil {
		t.Fatal(err)
	}
	calls := 0
	Inject(to, &Hook{Read: func() error { calls++; return nil }})
	var got []arrived
	for ms := make([]Message, 16); len(got) < 63; {
		n, err := to.ReadBatch(ms)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms[:n] {
			got = append(got, arrived{data: m.Data})
		}
	}
	sameDatagrams(t, got, cut(b, 1000))
	if calls > 7 { // 1, 2, 4, 8, 16, 16, 16
		t.Errorf("%d calls for 63 messages", calls)
	}
}

func TestDestinationsThatCannotBe(t *testing.T) {
	c := listen(t, "udp4", "127.0.0.1:0")
	for _, to := range []netip.AddrPort{{}, netip.MustParseAddrPort("[2001:db8::1]:443")} {
		if sent, err := c.Send(&Route{Remote: to}, []byte("x"), 0, NotECT); sent != 0 || err == nil {
			t.Errorf("to %v: %d, %v", to, sent, err)
		}
	}
	// The kernel itself says what is too large.
	if sent, err := c.Send(&Route{Remote: addrOf(c)}, make([]byte, 65508), 0, NotECT); sent != 0 || err != ErrTooLarge {
		t.Errorf("65508 bytes: %d, %v", sent, err)
	}
}

func TestZonesBecomeScopes(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	r := &Route{}
	for zone, want := range map[string]uint32{"lo": uint32(lo.Index), "77": 77, "no such interface": 0} {
		var op sendOp
		r.Remote = netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(zone), 0x1234)
		if v4, err := op.address(r, true); v4 || err != nil {
			t.Fatal(v4, err)
		}
		if op.name.Scope_id != want || getPort(&op.name.Port) != 0x1234 {
			t.Errorf("zone %q: %+v", zone, op.name)
		}
	}
	var in receiver
	if got := in.zone(uint32(lo.Index)); got != "lo" {
		t.Errorf("scope %d is %q", lo.Index, got)
	}
}

// A connected socket reports ICMP's answer to the datagram before: the one at hand
// leaves all the same, and reading goes on.
func TestConnectedSocketsOutliveTheirPeer(t *testing.T) {
	peer := listen(t, "udp4", "127.0.0.1:0")
	pc, err := net.DialUDP("udp4", nil, peer.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	c := wrap(t, pc)
	r := &Route{Remote: addrOf(peer)}
	peer.Close()
	for range 4 {
		if sent, err := c.Send(r, []byte("anyone?"), 0, NotECT); sent != 1 || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
	}
	again, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(r.Remote))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.WriteToUDPAddrPort([]byte("back"), addrOf(c)); err != nil {
		t.Fatal(err)
	}
	again.Close()
	sameDatagrams(t, receive(t, c, 1), [][]byte{[]byte("back")})
}
