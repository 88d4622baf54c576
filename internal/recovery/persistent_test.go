package recovery

import (
	"testing"
	"time"
)

// slow is an established connection on which 3 PTOs are six seconds, as in the
// example of RFC 9002 §7.6.3. ACKs that come roundTrip after the largest packet
// they name keep it so.
func slow(t *testing.T) *talk {
	c := established(t)
	c.rtt = RTT{Latest: roundTrip, Min: roundTrip, Smoothed: roundTrip, Has: true}
	return c
}

const roundTrip = 1999 * ms

// sendAt sends one packet at each of the given times.
func (k *talk) sendAt(times ...time.Duration) {
	for _, d := range times {
		k.send(App, 1, d)
	}
}

// confirmAt acknowledges a packet that is sent at d and perhaps older ones.
func (k *talk) confirmAt(d time.Duration, older ...int64) AckResult {
	k.Helper()
	pn := k.NextPN(App)
	k.sendAt(d)
	res := k.ack(App, d+roundTrip, append([]int64{pn, pn}, older...)...)
	if k.rtt.Smoothed != roundTrip || k.rtt.Var != 0 {
		k.Fatalf("the test changed its own RTT: %+v", k.rtt)
	}
	return res
}

const s = time.Second

func TestPersistentCongestion(t *testing.T) {
	c := slow(t)
	c.confirmAt(0)
	c.sendAt(2*s, 3*s, 4*s, 5*s, 6*s, 9*s)
	res := c.confirmAt(12 * s)
	if !res.Persistent || !c.ctl.lastLoss().Persistent || c.Stats().PersistentCongestions != 1 {
		t.Fatalf("packets sent over 7 s are lost: %+v, %+v", res, c.ctl.lastLoss())
	}
	// §5.2: the RTT may have changed for good.
	c.sendAt(20 * s)
	c.ack(App, 25*s, 8, 8)
	if c.RTT().Min != 5*s {
		t.Fatalf("min_rtt is %v, want that of the first sample afterwards", c.RTT().Min)
	}
}

func TestNotPersistent(t *testing.T) {
	t.Run("no longer than the period", func(t *testing.T) {
		c := slow(t)
		c.sendAt(2*s, 3*s, 8*s)
		if c.confirmAt(11 * s).Persistent {
			t.Fatal("established after exactly six seconds")
		}
	})
	t.Run("one in between was acknowledged", func(t *testing.T) {
		c := slow(t)
		c.sendAt(2*s, 3*s, 5*s, 8*s, 9*s)
		if c.confirmAt(12*s, 2, 2).Persistent {
			t.Fatal("established")
		}
	})
	t.Run("one in between was acknowledged long ago", func(t *testing.T) {
		c := slow(t)
		c.sendAt(2*s, 3*s)
		c.confirmAt(4 * s)
		c.sendAt(9*s, 10*s)
		if c.confirmAt(12 * s).Persistent {
			t.Fatal("established")
		}
	})
	t.Run("one in between was acknowledged in another space", func(t *testing.T) {
		c := slow(t)
		c.sendAt(2 * s)
		c.send(Handshake, 1, 4*s)
		c.sendAt(9 * s)
		c.ack(Handshake, 4*s+roundTrip, 0, 0)
		if c.confirmAt(12 * s).Persistent {
			t.Fatal("established")
		}
	})
	t.Run("sent before the first RTT sample", func(t *testing.T) {
		c := slow(t)
		c.firstRTT = at(4 * s)
		c.sendAt(2*s, 3*s, 9*s)
		if c.confirmAt(12 * s).Persistent {
			t.Fatal("established")
		}
	})
	t.Run("probes for the path MTU", func(t *testing.T) {
		c := slow(t)
		tr := c.packets(1, 1452)
		tr.Probe = true
		c.OnSent(App, []*Train{tr}, at(2*s))
		c.sendAt(9 * s)
		if res := c.confirmAt(12 * s); res.Persistent || res.LostPackets != 1 {
			t.Fatalf("%+v", res)
		}
	})
	t.Run("what does not elicit ACKs", func(t *testing.T) {
		c := slow(t)
		for _, d := range []time.Duration{2 * s, 9 * s} {
			tr := c.packets(1, 1000)
			tr.Eliciting = 0
			c.OnSent(App, []*Train{tr}, at(d))
		}
		c.sendAt(9 * s)
		if c.confirmAt(12 * s).Persistent {
			t.Fatal("established")
		}
	})
}

// Packets of one period may be declared lost one by one, and the first of them
// may be out of memory when the last is.
func TestPersistentCongestionOverManyACKs(t *testing.T) {
	c := slow(t)
	c.sendAt(s) // 0, lost at 2 s + roundTrip
	tr := c.packets(16, 1000)
	c.OnSent(App, []*Train{tr}, at(2*s)) // 1..16: one train, its end acknowledged
	c.ack(App, 2*s+roundTrip, 16, 16)
	if l := c.ctl.lastLoss(); l.Packets != 14 {
		t.Fatalf("%+v", l)
	}
	c.sendAt(9 * s)
	if c.confirmAt(12 * s).Persistent {
		t.Fatal("packet 16 was acknowledged")
	}

	c = slow(t)
	c.confirmAt(0)
	c.sendAt(2 * s)
	c.send(App, 4, 8*s)
	res := c.ack(App, 8*s+roundTrip, 3, 3) // 1 and 2 span six seconds: not more
	if res.Persistent {
		t.Fatal("established")
	}
	c = slow(t)
	c.confirmAt(0)
	c.sendAt(2 * s)                     // 1
	c.send(App, 3, 4*s)                 // 2, 3, 4
	c.sendAt(8500 * ms)                 // 5
	c.OnTimer(at(8500 * ms))            //
	c.ack(App, 8500*ms+roundTrip, 5, 5) // 1..4 lost: only two seconds apart
	if c.ctl.lastLoss().Persistent {
		t.Fatal("established too early")
	}
}

// The record of the period's first packet is gone when its last one is lost.
func TestFreedTrainsAreRemembered(t *testing.T) {
	var p past
	lost := func(d time.Duration) *slot {
		tr := &Train{N: 4, Time: at(d), Eliciting: 0b1111, lost: 0b1111}
		return &slot{train: tr, time: tr.Time}
	}
	p.take(lost(s), t0)
	p.take(lost(2*s), t0)
	if !p.lost.Equal(at(s)) {
		t.Fatalf("the period began at %v", p.lost.Sub(t0))
	}
	p.take(&slot{time: at(3 * s), acked: true}, t0)
	if !p.lost.IsZero() || !p.acked.Equal(at(3*s)) {
		t.Fatalf("an acknowledged train does not end the period: %+v", p)
	}
	half := lost(4 * s)
	half.acked, half.train.acked = true, 0b0011
	p.take(half, t0)
	if !p.lost.Equal(at(4 * s)) {
		t.Fatal("the lost packets behind an acknowledged one begin a period")
	}
	half.train.acked = 0b1000
	p.take(half, t0)
	if !p.lost.IsZero() {
		t.Fatal("an acknowledged packet behind the lost ones ends the period")
	}

	for _, elsewhere := range []bool{false, true} {
		c := slow(t)
		c.spaces[App].past.lost = at(3 * s)
		if elsewhere {
			c.send(Handshake, 1, 5*s)
			c.ack(Handshake, 5*s+roundTrip, 0, 0)
		}
		c.sendAt(10 * s)
		if res := c.confirmAt(13 * s); res.Persistent == elsewhere {
			t.Fatalf("lost at 3 s and at 10 s, acknowledged in another space %v: %+v", elsewhere, res)
		}
	}
}
