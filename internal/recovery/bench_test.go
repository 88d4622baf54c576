package recovery

import (
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

type nobody struct{}

func (nobody) OnAcked(int64, int, bool) {}
func (nobody) OnLost(int64, int, bool)  {}

// flight is 40 packets in 4 trains, what one sendmsg carries.
func flight(r *Recovery, trains []*Train, off int64) []*Train {
	for range 4 {
		t := r.NewTrain()
		t.N, t.Data, t.Off = 10, nobody{}, off
		t.Eliciting, t.InFlight = below(10), below(10)
		for i := range 10 {
			t.Lens[i], t.Sizes[i] = 1400, 1452
		}
		off += 14000
		trains = append(trains, t)
	}
	return trains
}

func perPacket(b *testing.B, packets int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(packets), "ns/packet")
}

// BenchmarkFlight is a flight sent and acknowledged by one ACK frame.
func BenchmarkFlight(b *testing.B) {
	r := New(Config{Controller: congestion.NewCubic(1452)})
	r.SetHandshakeConfirmed()
	ack := &wire.Ack{Ranges: make([]wire.AckRange, 1)}
	trains := make([]*Train, 0, 4)
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		trains = flight(r, trains[:0], 0)
		r.OnSent(App, trains, now)
		now = now.Add(time.Millisecond)
		ack.Ranges[0] = wire.AckRange{Lo: 0, Hi: r.NextPN(App) - 1}
		if _, err := r.OnAck(App, ack, 0, now); err != nil {
			b.Fatal(err)
		}
		r.Timer()
	}
	perPacket(b, 40)
}

// BenchmarkPipe has 1000 packets in flight, an ACK for every 10 packets with
// 20 ranges, and one packet in 100 lost.
func BenchmarkPipe(b *testing.B) {
	r := New(Config{Controller: congestion.NewCubic(1452)})
	r.SetHandshakeConfirmed()
	trains := make([]*Train, 0, 4)
	now := t0
	send := func() {
		trains = flight(r, trains[:0], 0)
		r.OnSent(App, trains, now)
	}
	for range 25 {
		send()
	}
	ack := &wire.Ack{Ranges: make([]wire.AckRange, 0, 32)}
	acked := int64(-1)
	b.ReportAllocs()
	for b.Loop() {
		send()
		for range 4 {
			now = now.Add(100 * time.Microsecond)
			acked += 10
			ack.Ranges = ack.Ranges[:0]
			hi := acked
			for range 20 {
				gap := hi / 100 * 100 // every number that is a multiple of 100 got lost
				if gap < 0 || hi < 0 {
					break
				}
				if gap < hi {
					ack.Ranges = append(ack.Ranges, wire.AckRange{Lo: gap + 1, Hi: hi})
				}
				hi = gap - 1
			}
			if _, err := r.OnAck(App, ack, 0, now); err != nil {
				b.Fatal(err)
			}
		}
	}
	perPacket(b, 40)
}

// BenchmarkHostileAck is an ACK of 512 ranges over 100,000 packets that are
// all settled, but kept in the ring by a lost one.
func BenchmarkHostileAck(b *testing.B) {
	r := New(Config{Controller: congestion.NewCubic(1452)})
	r.SetHandshakeConfirmed()
	now := t0
	for range 2500 {
		r.OnSent(App, flight(r, nil, 0), now)
	}
	now = now.Add(100 * time.Millisecond)
	last := r.NextPN(App) - 1
	if _, err := r.OnAck(App, &wire.Ack{Ranges: []wire.AckRange{{Lo: 1, Hi: last}}}, 0, now); err != nil {
		b.Fatal(err)
	}
	ack := &wire.Ack{}
	for hi := last; len(ack.Ranges) < 512; hi -= 195 {
		ack.Ranges = append(ack.Ranges, wire.AckRange{Lo: hi - 100, Hi: hi})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.OnAck(App, ack, 0, now); err != nil {
			b.Fatal(err)
		}
	}
}
