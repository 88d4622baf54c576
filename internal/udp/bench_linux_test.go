package udp

import (
	"fmt"
	"net/netip"
	"testing"
)

// sink is a peer that takes no part in the measurement: its buffer is full after
// a moment, and the kernel drops the rest.
func sink(b *testing.B) *Route {
	return &Route{Remote: addrOf(listen(b, "udp4", "127.0.0.1:0"))}
}

func BenchmarkSend(b *testing.B) {
	for _, datagrams := range []int{1, 10, 40} {
		b.Run(fmt.Sprintf("%dx1452", datagrams), func(b *testing.B) {
			c, r := listen(b, "udp4", "127.0.0.1:0"), sink(b)
			flight := make([]byte, datagrams*1452)
			b.SetBytes(int64(len(flight)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Send(r, flight, 1452, ECT0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSendCall is all of Send but the system call itself: what we add to it.
func BenchmarkSendCall(b *testing.B) {
	c := listen(b, "udp4", "127.0.0.1:0")
	r := &Route{Remote: addrOf(c), Local: Local{Addr: netip.MustParseAddr("127.0.0.1")}}
	c.sock.(*fastSocket).raw = discard{}
	flight := make([]byte, 40*1452)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(r, flight, 1452, ECT0); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Control(func(uintptr)) error    { return nil }
func (discard) Read(func(uintptr) bool) error  { return nil }
func (discard) Write(func(uintptr) bool) error { return nil }

func BenchmarkSendInParallel(b *testing.B) {
	c, r := listen(b, "udp4", "127.0.0.1:0"), sink(b)
	flight := make([]byte, 40*1452)
	b.SetBytes(int64(len(flight)))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		mine := *r
		for pb.Next() {
			if _, err := c.Send(&mine, flight, 1452, ECT0); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkSendAndReadBatch is a flight sent and read again, by one goroutine.
func BenchmarkSendAndReadBatch(b *testing.B) {
	for _, shape := range []struct {
		name               string
		datagrams, segment int
		gso                bool
	}{
		{"1x1452", 1, 1452, true}, {"40x1452", 40, 1452, true}, {"4x16376", 4, 16376, true}, {"40x1452/noGSO", 40, 1452, false},
	} {
		b.Run(shape.name, func(b *testing.B) {
			from, to := listen(b, "udp4", "127.0.0.1:0"), listen(b, "udp4", "127.0.0.1:0")
			r := &Route{Remote: addrOf(to), noGSO: !shape.gso}
			flight := make([]byte, shape.datagrams*shape.segment)
			ms := make([]Message, maxBatch)
			b.SetBytes(int64(len(flight)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := from.Send(r, flight, shape.segment, ECT0); err != nil {
					b.Fatal(err)
				}
				for left := len(flight); left > 0; {
					n, err := to.ReadBatch(ms)
					if err != nil {
						b.Fatal(err)
					}
					for i := range ms[:n] {
						left -= len(ms[i].Data)
						ms[i].Buf.Release()
					}
				}
			}
		})
	}
}
