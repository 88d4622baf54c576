package udp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cmsg is a control message as the kernel writes it.
func cmsg(level, typ int32, data ...byte) []byte {
	mem := make([]uint64, unix.CmsgSpace(len(data))/8+1)
	w := controlWriter{buf: unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), len(mem)*8)}
	copy(w.add(level, typ, len(data)), data)
	return w.buf[:w.n]
}

func native32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
func native16(v uint16) []byte { return binary.NativeEndian.AppendUint16(nil, v) }

func TestWhatControlMessagesSay(t *testing.T) {
	gro := func(data []byte) []byte { return cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, data...) }
	info4 := func(index uint32, spec, dst string) []byte {
		return cmsg(unix.IPPROTO_IP, unix.IP_PKTINFO, slices.Concat(native32(index), netip.MustParseAddr(spec).AsSlice(), netip.MustParseAddr(dst).AsSlice())...)
	}
	info6 := func(addr string, index uint32) []byte {
		a := netip.MustParseAddr(addr).As16()
		return cmsg(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, slices.Concat(a[:], native32(index))...)
	}
	at := func(addr string, index uint32) Local { return Local{netip.MustParseAddr(addr), index} }
	for _, tc := range []struct {
		name string
		in   []byte
		want received
	}{
		{"nothing", nil, received{}},
		{"segments, int", gro(native32(1452)), received{segment: 1452}},
		{"segments, u16", gro(native16(1452)), received{segment: 1452}},
		{"segments of an odd width", gro([]byte{1, 2, 3}), received{}},
		{"segments of eight bytes", gro(make([]byte, 8)), received{}},
		{"a negative segment", gro(native32(0xffffffff)), received{}},
		{"a segment beyond any message", gro(native32(bigSize + 1)), received{}},
		{"TOS, one byte", cmsg(unix.IPPROTO_IP, unix.IP_TOS, 0xb8|2), received{ecn: ECT0}},
		{"TOS, int", cmsg(unix.IPPROTO_IP, unix.IP_TOS, 3, 0, 0, 0), received{ecn: CE}},
		{"TOS, empty", cmsg(unix.IPPROTO_IP, unix.IP_TOS), received{}},
		{"traffic class", cmsg(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, native32(0xb8|1)...), received{ecn: ECT1}},
		{"traffic class, one byte", cmsg(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 3), received{}},
		{"v4 info", info4(7, "10.0.0.1", "10.0.0.255"), received{local: at("10.0.0.1", 7)}},
		{"v4 info without a route", info4(0, "0.0.0.0", "10.0.0.1"), received{local: at("10.0.0.1", 0)}},
		{"v4 info, short", cmsg(unix.IPPROTO_IP, unix.IP_PKTINFO, 1, 2, 3, 4), received{}},
		{"v6 info", info6("2001:db8::1", 3), received{local: at("2001:db8::1", 3)}},
		{"v6 info of a v4 packet", info6("::ffff:10.0.0.1", 3), received{local: at("10.0.0.1", 3)}},
		{"v6 info, short", cmsg(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, make([]byte, 16)...), received{}},
		{"v4 packet on a dual-stack socket", slices.Concat(info4(7, "10.0.0.1", "10.0.0.1"), info6("::ffff:10.0.0.9", 7)), received{local: at("10.0.0.1", 7)}},
		{"all, and a stranger in between", slices.Concat(
			gro(native32(1200)), cmsg(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, make([]byte, 16)...),
			cmsg(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, native32(3)...), info6("::1", 1)),
			received{segment: 1200, ecn: CE, local: at("::1", 1)}},
		{"a header cut short", gro(native32(1452))[:unix.SizeofCmsghdr-1], received{}},
		{"data cut short", gro(native32(1452))[:unix.SizeofCmsghdr+2], received{}},
	} {
		if got := parseControl(tc.in); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	short := gro(native32(1452))
	(*unix.Cmsghdr)(unsafe.Pointer(&short[0])).SetLen(unix.SizeofCmsghdr - 1) // would loop on the spot
	if got := parseControl(short); got != (received{}) {
		t.Errorf("a length below the header's: %+v", got)
	}
}

// What we write is what the kernel's own words mean to us, and fits the room for it.
func TestControlMessagesRoundTrip(t *testing.T) {
	for _, local := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::7"} {
		for mark := range ECN(4) {
			l := Local{netip.MustParseAddr(local), 9}
			var mem [maxSendControl / 8]uint64
			w := controlWriter{buf: unsafe.Slice((*byte)(unsafe.Pointer(&mem)), maxSendControl)}
			v4 := l.Addr.Unmap().Is4()
			w.segment(1452)
			w.ecn(v4, mark)
			w.source(v4, l)
			if h := (*unix.Cmsghdr)(unsafe.Pointer(&mem)); h.Level != unix.IPPROTO_UDP || h.Type != unix.UDP_SEGMENT {
				t.Fatalf("first message: %+v", h)
			} else {
				h.Type = unix.UDP_GRO // the other direction's name for it, same layout
			}
			want := received{segment: 1452, ecn: mark, local: Local{l.Addr.Unmap(), 9}}
			if got := parseControl(w.buf[:w.n]); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}

			w.n = 0
			w.source(!v4, l)
			if w.n != 0 {
				t.Errorf("%v as the source of a packet of the other version", l.Addr)
			}
		}
	}
}

func FuzzControlMessages(f *testing.F) {
	f.Add([]byte{})
	f.Add(cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, native32(1452)...))
	f.Add(slices.Concat(cmsg(unix.IPPROTO_IP, unix.IP_TOS, 1), cmsg(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, make([]byte, 20)...)))
	f.Add(cmsg(unix.IPPROTO_IP, unix.IP_PKTINFO, make([]byte, 12)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := parseControl(b)
		if r.segment < 0 || r.segment > bigSize || r.ecn > 3 || r.local.Addr.Is4In6() {
			t.Errorf("%+v", r)
		}
	})
}

// fill puts a message into slot i as recvmmsg does.
func fill(in *receiver, i int, data []byte, flags int32, control ...byte) {
	in.prepare(i)
	copy(in.bufs[i].mem, data)
	in.hdrs[i].Len = uint32(len(data))
	in.hdrs[i].Hdr.Flags = flags
	in.names[i] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: netip.MustParseAddr("fe80::1").As16(), Scope_id: 4000}
	putPort(&in.names[i].Port, 4433)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&in.control[i])), roomForReceiving), control)
	in.hdrs[i].Hdr.SetControllen(len(control))
}

func TestWhatASlotBecomes(t *testing.T) {
	gro := func(n uint32) []byte { return cmsg(unix.IPPROTO_UDP, unix.UDP_GRO, native32(n)...) }
	for _, tc := range []struct {
		name    string
		size    int
		flags   int32
		control []byte
		segment int // 0: no message
		small   bool
	}{
		{"one datagram", 1200, 0, nil, 1200, true},
		{"one datagram, said to be whole", 1200, 0, gro(1200), 1200, true},
		{"three, the last one short", 2048, 0, gro(1000), 1000, true},
		{"a byte more than a small buffer holds", 2049, 0, gro(1000), 1000, false},
		{"as much as there can be", 65535, 0, gro(1024), 1024, false},
		{"a segment larger than the message", 100, 0, gro(1452), 100, true},
		{"a segment of nothing", 100, 0, gro(0), 100, true},
		{"cut", 1000, unix.MSG_TRUNC, gro(100), 0, false},
		{"cut control messages", 1000, unix.MSG_CTRUNC, gro(100), 100, true},
		{"empty", 0, 0, nil, 0, false},
	} {
		var in receiver
		var stats counters
		var m Message
		in.init()
		data := train(5, tc.size, 100)
		fill(&in, 0, data, tc.flags, tc.control...)
		if ok := in.take(0, &m, &stats); ok != (tc.segment > 0) {
			t.Errorf("%s: taken: %v", tc.name, ok)
		} else if ok {
			sameDatagrams(t, []arrived{{data: m.Data}}, [][]byte{data})
			if m.Segment != tc.segment || len(m.Buf.mem) == smallSize != tc.small || m.Remote != netip.MustParseAddrPort("[fe80::1%4000]:4433") {
				t.Errorf("%s: segments of %d in a buffer of %d from %v", tc.name, m.Segment, len(m.Buf.mem), m.Remote)
			}
			m.Buf.Release()
		}
		if cut := stats.truncations.Load() == 1; cut != (tc.flags&unix.MSG_TRUNC != 0) {
			t.Errorf("%s: %d truncations", tc.name, stats.truncations.Load())
		}
	}
}

// The kernel cuts what does not fit: such a read is counted, and the next is whole.
func TestTruncatedReads(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	in := &to.sock.(*fastSocket).in
	in.prepare(0)
	in.ready = 1
	in.iovs[0].SetLen(1000)
	r := &Route{Remote: addrOf(to)}
	for _, b := range [][]byte{train(1, 1001, 1001), train(2, 1000, 1000)} {
		if _, err := from.Send(r, b, 0, NotECT); err != nil {
			t.Fatal(err)
		}
	}
	sameDatagrams(t, receive(t, to, 1), [][]byte{train(2, 1000, 1000)})
	if got := to.Stats(); got.Truncated != 1 || got.ReceivedDatagrams != 1 || got.Reads != 1 {
		t.Errorf("stats: %+v", got)
	}
}
