package recovery

import (
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// sendMarked sends n packets marked ECT(0).
func (k *talk) sendMarked(n int) {
	for range n {
		tr := k.packets(1, 1000)
		tr.ECT0 = true
		k.OnSent(App, []*Train{tr}, t0)
	}
}

func (k *talk) ackCounts(ect0, ect1, ce uint64, pairs ...int64) AckResult {
	k.Helper()
	a := frame(pairs...)
	a.ECN, a.ECT0, a.ECT1, a.CE = true, ect0, ect1, ce
	res, err := k.OnAck(App, a, 0, at(100*ms))
	if err != nil {
		k.Fatal(err)
	}
	return res
}

// RFC 9000 §13.4.2.1.
func TestECNValidation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		play   func(*talk) AckResult
		failed bool
		ce     int
	}{
		{"all seen", func(c *talk) AckResult { return c.ackCounts(3, 0, 0, 0, 2) }, false, 0},
		{"one was marked CE", func(c *talk) AckResult { return c.ackCounts(2, 0, 1, 0, 2) }, false, 1},
		{"no counts", func(c *talk) AckResult { return c.ack(App, 100*ms, 0, 2) }, true, 0},
		{"marks taken off", func(c *talk) AckResult { return c.ackCounts(1, 0, 1, 0, 2) }, true, 0},
		{"marks put on", func(c *talk) AckResult { return c.ackCounts(11, 0, 0, 0, 2) }, true, 0},
		{"CE invented", func(c *talk) AckResult { return c.ackCounts(3, 0, 100, 0, 2) }, true, 0},
		{"marked otherwise", func(c *talk) AckResult { return c.ackCounts(3, 1, 0, 0, 2) }, true, 0},
		{"counts fall", func(c *talk) AckResult {
			c.ackCounts(3, 0, 0, 0, 2)
			return c.ackCounts(2, 0, 2, 0, 3)
		}, true, 0},
		{"the CE count falls", func(c *talk) AckResult {
			c.ackCounts(1, 0, 2, 0, 2)
			c.ctl.ecn = nil
			return c.ackCounts(4, 0, 1, 0, 3)
		}, true, 0},
		{"a mark that never left", func(c *talk) AckResult {
			c.OnUnsent(App, 5, 9)
			return c.ackCounts(6, 0, 0, 0, 4)
		}, true, 0},
		{"counts of lost ACKs", func(c *talk) AckResult { return c.ackCounts(5, 0, 0, 4, 4) }, false, 0},
		{"reordered ACK", func(c *talk) AckResult {
			c.ackCounts(5, 0, 0, 4, 4, 2, 3)
			return c.ack(App, 100*ms, 2, 4, 0, 0)
		}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := established(t)
			c.sendMarked(10)
			res := tt.play(c)
			if res.ECNFailed != tt.failed || c.ECNCapable() == tt.failed {
				t.Errorf("failed %v, capable %v, want failed %v", res.ECNFailed, c.ECNCapable(), tt.failed)
			}
			if res.CE != (tt.ce > 0) || len(c.ctl.ecn) != tt.ce {
				t.Errorf("CE %v, the controller heard %d, want %d", res.CE, len(c.ctl.ecn), tt.ce)
			}
			if tt.failed && (c.ackCounts(9, 9, 9, 0, 4).CE || len(c.ctl.ecn) > 0) {
				t.Error("counts are believed after a failure")
			}
		})
	}
}

func TestUnmarkedPacketsNeedNoCounts(t *testing.T) {
	c := established(t)
	c.send(App, 3, 0)
	if res := c.ack(App, 100*ms, 0, 2); res.ECNFailed || !c.ECNCapable() {
		t.Fatalf("%+v", res)
	}
	c.send(App, 3, 0)
	if res := c.ackCounts(0, 0, 3, 0, 5); !res.ECNFailed || len(c.ctl.ecn) != 0 {
		t.Fatalf("CE without our mark: %+v", res)
	}
}

// §13.4.2: a path that drops marked packets.
func TestAllMarkedPacketsLost(t *testing.T) {
	c := established(t)
	c.sendMarked(10)
	c.send(App, 3, 0)
	if res := c.ack(App, 100*ms, 10, 12); !res.ECNFailed || c.ECNCapable() {
		t.Fatalf("%+v", res)
	}
}

func TestCountsAreOnePerSpace(t *testing.T) {
	c := established(t)
	tr := c.packets(1, 1000)
	tr.ECT0 = true
	c.OnSent(Handshake, []*Train{tr}, t0)
	c.sendMarked(1)
	for sp := Handshake; sp <= App; sp++ {
		res, err := c.OnAck(sp, &wire.Ack{Ranges: []wire.AckRange{{}}, ECN: true, ECT0: 1}, 0, at(50*ms))
		if err != nil || res.ECNFailed {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}
