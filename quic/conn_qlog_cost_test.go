package quic

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/quic-go/quic-go/qlogwriter"
)

// A connection that is not traced has no trace, which its sender and its recovery would
// hear of, and the congestion controller itself. Nothing is allocated for each packet, sent
// or received.
func TestQlogCostsNothingWhenOff(t *testing.T) {
	off := map[string]*Config{
		"no tracer": {},
		"no trace":  {Tracer: func(context.Context, bool, ConnectionID) qlogwriter.Trace { return nil }},
	}
	for name, conf := range off {
		t.Run(name, func(t *testing.T) {
			c, s := pair(t, conf)
			for _, conn := range []*Conn{c, s} {
				if _, wrapped := conn.cc.(*tracedController); wrapped || conn.qlog != nil {
					t.Error("there is a trace")
				}
			}
			if perPacket := allocationsPerPacket(t, c, s); perPacket > 0.5 { // the race detector makes pools forget some
				t.Errorf("%.2f allocations for each packet", perPacket)
			}
		})
	}
	// The figure would show them.
	c, s := pair(t, &Config{Tracer: func(context.Context, bool, ConnectionID) qlogwriter.Trace { return nowhere{} }})
	if perPacket := allocationsPerPacket(t, c, s); perPacket < 2 {
		t.Errorf("%.2f allocations for each packet that is traced", perPacket)
	}
}

// nowhere is a trace that keeps nothing.
type nowhere struct{}

func (nowhere) AddProducer() qlogwriter.Recorder { return nowhere{} }
func (nowhere) RecordEvent(qlogwriter.Event)     {}
func (nowhere) Close() error                     { return nil }

// allocationsPerPacket sends from c to s, and says how often memory was allocated for each
// packet, on both sides together.
func allocationsPerPacket(t *testing.T, c, s *Conn) float64 {
	t.Helper()
	out, err := c.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 256<<10)
	q := make([]byte, len(p))
	var in *ReceiveStream
	carry := func() {
		done := make(chan error, 1)
		go func() {
			_, err := out.Write(p)
			done <- err
		}()
		if in == nil {
			if in, err = s.AcceptUniStream(t.Context()); err != nil {
				t.Fatal(err)
			}
			in.SetReadDeadline(time.Now().Add(time.Minute))
		}
		if _, err := io.ReadFull(in, q); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for range 40 { // until windows and buffers have grown
		carry()
	}
	before := c.ConnectionStats().PacketsSent
	const runs = 40
	total := testing.AllocsPerRun(runs-1, carry) * runs // and one run to warm up
	packets := c.ConnectionStats().PacketsSent - before
	t.Logf("%.0f allocations, %d packets", total, packets)
	return total / float64(packets)
}
