package bench_test

import (
	"context"
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/volley-quic/volley/bench/internal/nullsink"
	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/stream"
)

const (
	datagram = 1452
	hdr      = 1 + 4 + 2 // short header: flags, connection ID, packet number
	pnOff    = 1 + 4
	tag      = 16
	pass     = emit.MaxDatagrams
	flight   = 4 * pass
)

var memory = make([]byte, 8<<20)

// BenchmarkPlan decides where ten slots of a stream lie and writes their frame headers.
func BenchmarkPlan(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, pass*datagram)
	off := int64(0)
	for b.Loop() {
		for i := range pass {
			room := datagram - hdr - tag
			n := room - wire.StreamHeaderLen(4, off, -1)
			at := i*datagram + hdr
			wire.AppendStreamHeader(buf[at:at:(i+1)*datagram], 4, off, -1, false)
			off += int64(n)
		}
		off &= 1<<30 - 1
	}
}

// BenchmarkScatter moves ten slots of a block into packets: one pass over a stream, with
// its two halves of the commit, less the headers.
func BenchmarkScatter(b *testing.B) {
	b.ReportAllocs()
	s := nullsink.NewStream()
	s.Lazy = true
	if err := s.SetWriteBuffer(1<<30, 1<<30); err != nil {
		b.Fatal(err)
	}
	const n = pass * 1410
	b.SetBytes(n)
	for b.Loop() {
		if _, err := s.Write(memory[:n]); err != nil {
			b.Fatal(err)
		}
		s.Drain(n)
	}
}

// BenchmarkWriteBuffer fills a stream's buffer with writes and drains it.
func BenchmarkWriteBuffer(b *testing.B) {
	for _, bench := range []struct {
		name        string
		chunk, size int
	}{
		{"100B", 100, 64 << 10},
		{"1KB", 1000, 1 << 20},
		{"10KB", 10000, 8 << 20},
		{"64KiB", 64 << 10, 8 << 20},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			s := nullsink.NewStream()
			s.Lazy = true
			if err := s.SetWriteBuffer(1<<30, 1<<30); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(bench.size))
			for b.Loop() {
				for n := 0; n < bench.size; n += bench.chunk {
					if _, err := s.Write(memory[:bench.chunk]); err != nil {
						b.Fatal(err)
					}
				}
				s.Drain(14100)
			}
		})
	}
}

// memorySource serves every mode from memory.
type memorySource struct{}

func (memorySource) ReadAt(p []byte, off int64) (int, error) {
	return copy(p, memory[off:]), nil
}

func (memorySource) LendAt(off int64, n int) ([]byte, error) {
	return memory[off : off+int64(n)], nil
}

func (s memorySource) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	for _, p := range bufs {
		n += copy(p, memory[off+int64(n):])
	}
	return n, nil
}

// BenchmarkEmission sends 1 MiB from memory through passes, flights, sealing and
// recovery, up to the system call.
func BenchmarkEmission(b *testing.B) {
	const size = 1 << 20
	for _, bench := range []struct {
		name   string
		tuning emit.Tuning
	}{
		{"Scatter", emit.Tuning{Mode: emit.Scatter}},
		{"ScatterReread", emit.Tuning{Mode: emit.Scatter, Reread: true}},
		{"Scatter1", emit.Tuning{Mode: emit.Scatter, MaxDatagrams: 1}},
		{"Single", emit.Tuning{Mode: emit.Single}},
		{"Lend", emit.Tuning{Mode: emit.Lend}},
		{"Vector", emit.Tuning{Mode: emit.Vector}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			c := newConn(b)
			_, st := c.open(0)
			c.do(func() { st.SetTuning(bench.tuning) })
			b.SetBytes(size)
			for b.Loop() {
				if _, err := st.SendFrom(context.Background(), memorySource{}, 0, size, emit.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			c.do(func() { b.ReportMetric(st.Stats().DatagramsPerCall(), "datagrams/call") })
		})
	}
	b.Run("Write", func(b *testing.B) {
		b.ReportAllocs()
		c := newConn(b)
		s, _ := c.open(0)
		b.SetBytes(size)
		for b.Loop() {
			for n := 0; n < size; n += 64 << 10 {
				if _, err := s.Write(memory[n : n+64<<10]); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("ReadFrom", func(b *testing.B) {
		b.ReportAllocs()
		c := newConn(b)
		_, st := c.open(0)
		b.SetBytes(size)
		for b.Loop() {
			r := io.NewSectionReader(memorySource{}, 0, size)
			if _, err := st.ReadFrom(context.Background(), r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func newConn(b *testing.B) *nullConn {
	c, err := newNullConn(datagram)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.close)
	return c
}

var secret = make([]byte, 32)

func newSealer(b *testing.B) *protect.Sealer {
	s, err := protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, secret, wire.Version1)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkSeal protects one packet, header protection included.
func BenchmarkSeal(b *testing.B) {
	for _, bench := range []struct {
		name string
		size int
	}{{"1452", datagram}, {"16376", 16376}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			s := newSealer(b)
			pkt := make([]byte, bench.size)
			b.SetBytes(int64(bench.size))
			pn := int64(0)
			for b.Loop() {
				s.Seal(pkt, pnOff, hdr-pnOff, pn)
				pn++
			}
		})
	}
	b.Run("Through", func(b *testing.B) {
		b.ReportAllocs()
		s := newSealer(b)
		pkt, plain := make([]byte, datagram), make([]byte, datagram-hdr-tag)
		b.SetBytes(datagram)
		pn := int64(0)
		for b.Loop() {
			s.SealTo(pkt, plain, pnOff, hdr-pnOff, pn)
			pn++
		}
	})
}

// BenchmarkOpen takes the protection of one packet off, copying it into place before.
func BenchmarkOpen(b *testing.B) {
	for _, bench := range []struct {
		name string
		size int
	}{{"1452", datagram}, {"16376", 16376}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			sealed, pkt := make([]byte, bench.size), make([]byte, bench.size)
			sealed[0] = 0x41
			newSealer(b).Seal(sealed, pnOff, hdr-pnOff, 0)
			o, err := protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, secret, wire.Version1)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(bench.size))
			for b.Loop() {
				copy(pkt, sealed)
				if _, _, err := o.Open(pkt, pnOff, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nothing owns bytes that nobody misses.
type nothing struct{}

func (nothing) OnAcked(int64, int, bool) {}
func (nothing) OnLost(int64, int, bool)  {}

// BenchmarkAck registers a flight of four trains and has it acknowledged, by one range,
// or by one for every train with a gap of one packet between.
func BenchmarkAck(b *testing.B) {
	for _, bench := range []struct {
		name   string
		ranges int
	}{{"OneRange", 1}, {"FourRanges", 4}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			r := recovery.New(recovery.Config{IsClient: true, Owner: nobody{}, Controller: wide{}})
			trains := make([]*recovery.Train, 0, flight/pass)
			ranges := make([]wire.AckRange, 0, bench.ranges)
			now := time.Unix(0, 0)
			off := int64(0)
			for b.Loop() {
				first := r.NextPN(recovery.App)
				trains, ranges = trains[:0], ranges[:0]
				for range flight / pass {
					t := r.NewTrain()
					t.N, t.Data, t.Off = pass, nothing{}, off
					t.Eliciting, t.InFlight = 1<<pass-1, 1<<pass-1
					for i := range pass {
						t.Lens[i], t.Sizes[i] = 1410, datagram
					}
					off += pass * 1410
					trains = append(trains, t)
				}
				r.OnSent(recovery.App, trains, now)
				n := int64(flight / bench.ranges)
				for i := bench.ranges - 1; i >= 0; i-- {
					lo := first + int64(i)*n
					gap := int64(0)
					if i > 0 {
						gap = 1
					}
					ranges = append(ranges, wire.AckRange{Lo: lo + gap, Hi: lo + n - 1})
				}
				now = now.Add(time.Millisecond)
				if _, err := r.OnAck(recovery.App, &wire.Ack{Ranges: ranges}, 0, now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/flight, "ns/packet")
		})
	}
}

// BenchmarkParse reads frames as a receiver does.
func BenchmarkParse(b *testing.B) {
	b.Run("Stream", func(b *testing.B) {
		b.ReportAllocs()
		p := wire.AppendStreamHeader(nil, 4, 1<<32, -1, false)
		p = append(p, memory[:1400]...)
		for b.Loop() {
			if _, _, err := wire.FrameType(p); err != nil {
				b.Fatal(err)
			}
			if _, _, err := wire.ParseStream(p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Ack", func(b *testing.B) {
		b.ReportAllocs()
		a := wire.Ack{Ranges: []wire.AckRange{{Lo: 1_000_040, Hi: 1_000_079}, {Lo: 1_000_000, Hi: 1_000_038}, {Lo: 0, Hi: 999_990}}, Delay: 25}
		p := a.Append(nil)
		ranges := make([]wire.AckRange, 0, 32)
		for b.Loop() {
			got, _, err := wire.ParseAck(p, ranges[:0])
			if err != nil {
				b.Fatal(err)
			}
			ranges = got.Ranges
		}
	})
	b.Run("MaxStreamData", func(b *testing.B) {
		b.ReportAllocs()
		p := wire.MaxStreamData{ID: 4, Max: 1 << 32}.Append(nil)
		for b.Loop() {
			if _, _, err := wire.ParseMaxStreamData(p); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReceive puts the frames of a flight in order and reads them.
func BenchmarkReceive(b *testing.B) {
	b.ReportAllocs()
	s := nullsink.NewStream()
	r := stream.NewRecv(0, s.Host(), 1<<60, 1<<60)
	buf := make([]byte, 64<<10)
	const n = 1410
	b.SetBytes(flight * n)
	off := int64(0)
	for b.Loop() {
		s.Host().Lock()
		for range flight {
			if _, err := r.Push(off, memory[:n], false); err != nil {
				b.Fatal(err)
			}
			off += n
		}
		s.Host().Unlock()
		if k, err := io.ReadFull(r, buf[:flight*n]); err != nil {
			b.Fatal(k, err)
		}
	}
}
