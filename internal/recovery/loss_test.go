package recovery

import (
	"testing"
	"time"
)

func TestPacketThreshold(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, false, 0, 10, 10, 10, 10)
	c.ack(App, 50*ms, 2, 2)
	s.want(c, "acked 20+10")
	res := c.ack(App, 50*ms, 2, 3)
	s.want(c, "acked 30+10", "lost 0+10")
	if res.LostPackets != 1 || res.LostBytes != 1000 {
		t.Fatalf("%+v", res)
	}
	c.wantInFlight(1000)
}

// Numbers that were skipped are no packets: three of them prove nothing.
func TestSkippedNumbersAreNoReordering(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, false, 0, 10)
	for range 5 {
		c.Skip(App)
	}
	c.sendData(s, 10, false, 0, 10, 10, 10) // 6, 7, 8
	c.ack(App, 50*ms, 7, 7)
	s.want(c, "acked 20+10")
	c.ack(App, 50*ms, 7, 8)
	s.want(c, "acked 30+10", "lost 0+10")
}

func TestTimeThreshold(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, false, 0, 10)
	c.sendData(s, 10, false, 40*ms, 10)
	c.ack(App, 140*ms, 1, 1) // packet 0 was sent more than 9/8 of the RTT ago
	s.want(c, "acked 10+10", "lost 0+10")

	c = established(t)
	c.sendData(s, 0, false, 0, 10)
	c.sendData(s, 10, false, 5*ms, 10)
	c.ack(App, 105*ms, 1, 1)
	s.want(c, "acked 10+10")
	c.wantTimer("time threshold", at(112500*time.Microsecond))
	c.OnTimer(at(112*ms + 499*time.Microsecond))
	s.want(c)
	if probe, _ := c.OnTimer(at(112*ms + 500*time.Microsecond)); probe {
		t.Fatal("a loss time is no probe timeout")
	}
	s.want(c, "lost 0+10")
	c.wantTimer("nothing left", time.Time{})
}

func TestTimeThresholdIsAtLeastGranularity(t *testing.T) {
	c := established(t)
	c.rtt = RTT{Latest: 1, Min: 1, Smoothed: 1, Has: true}
	c.send(App, 2, 0)
	c.ack(App, 0, 1, 1)
	c.wantTimer("1 ms", at(ms))
}

// Time alone proves a loss only behind an acknowledged packet.
func TestNothingIsLostWithoutALaterAck(t *testing.T) {
	c := established(t)
	c.send(App, 3, 0)
	c.ack(App, 50*ms, 0, 0)
	c.OnTimer(at(10 * time.Second))
	c.wantInFlight(2000)
}

func TestLateAckWithdrawsTheRange(t *testing.T) {
	c := established(t)
	s := newBytes(100)
	c.sendData(s, 0, true, 0, 10, 10)
	c.send(App, 3, 0)
	c.ack(App, 100*ms, 2, 4)
	s.want(c, "lost 0+20 fin")
	c.wantInFlight(0)
	res := c.ack(App, 200*ms, 0, 4)
	s.want(c, "acked 0+20 fin")
	if res.SpuriousPackets != 2 || res.NewlyAcked || res.AckedBytes != 0 || c.Stats().PacketsSpurious != 2 {
		t.Fatalf("%+v, %+v", res, c.Stats())
	}
	if n := len(c.ctl.spurious); n != 1 || c.ctl.spurious[0].Packets != 2 {
		t.Fatalf("spurious: %+v", c.ctl.spurious)
	}
	c.wantInFlight(0)
}

// Records of lost packets stay three PTOs and no longer.
func TestLostRecordsStayThreePTOs(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		late  int
	}{{290 * ms, 1}, {600 * ms, 0}} {
		c := established(t)
		c.send(App, 4, 0)
		c.ack(App, 100*ms, 1, 3)
		keep := 3 * c.PTO(App)
		if keep < 300*ms || keep > 500*ms {
			t.Fatalf("3 PTO are %v", keep)
		}
		if res := c.ack(App, 100*ms+tt.after, 0, 3); res.SpuriousPackets != tt.late {
			t.Errorf("after %v: %+v", tt.after, res)
		}
	}
}

// Field report A09.
func TestAckedAfterResendAndLostAgain(t *testing.T) {
	t.Run("originals acked, copies lost", func(t *testing.T) {
		c := established(t)
		s := newBytes(100)
		c.sendData(s, 0, true, 0, 10, 10)
		if probe, _ := c.OnTimer(c.Timer()); !probe {
			t.Fatal("no probe")
		}
		c.sendData(s, 0, true, 101*ms, 10, 10) // the same bytes again
		c.ack(App, 150*ms, 0, 1)
		s.want(c, "acked 0+20 fin")
		c.send(App, 3, 160*ms)
		c.ack(App, 260*ms, 4, 6, 0, 1)
		s.want(c, "lost 0+20 fin") // the stream knows that they are acked
		c.wantInFlight(0)
		c.ack(App, 270*ms, 0, 6)
		s.want(c, "acked 0+20 fin")
		c.wantInFlight(0)
	})
	t.Run("only the middle of a lost range", func(t *testing.T) {
		c := established(t)
		s := newBytes(100)
		c.sendData(s, 0, false, 0, 10, 10, 10)
		c.send(App, 3, 0)
		c.ack(App, 100*ms, 3, 5)
		s.want(c, "lost 0+30")
		c.ack(App, 110*ms, 3, 5, 1, 1)
		s.want(c, "acked 10+10")
	})
	t.Run("the same range lost twice", func(t *testing.T) {
		c := established(t)
		s := newBytes(100)
		for i := range int64(2) {
			c.sendData(s, 0, false, 0, 10)
			c.send(App, 3, 0)
			c.ack(App, 100*ms, 4*i+1, 4*i+3)
			s.want(c, "lost 0+10")
		}
		c.wantInFlight(0)
	})
}

// A path MTU probe that got lost says that it was too large (RFC 9000 §14.4).
func TestLostProbeIsNoCongestion(t *testing.T) {
	c := established(t)
	tr := c.packets(1, 1452)
	tr.Probe = true
	tr.Extra = append(tr.Extra, Extra{Frame: Frame{Kind: 2, ID: 1452}})
	c.OnSent(App, []*Train{tr}, t0)
	c.send(App, 3, 0)
	c.wantInFlight(4452)
	res := c.ack(App, 100*ms, 1, 3)
	if c.owner.lost[1452] != 1 || res.LostPackets != 0 || len(c.ctl.losses) != 0 {
		t.Fatalf("frames lost %v, %+v, losses %v", c.owner.lost, res, c.ctl.losses)
	}
	c.wantInFlight(0)
}

func TestLossIsReportedOnceAndBeforeTheAck(t *testing.T) {
	c := established(t)
	c.send(App, 40, 0)
	res := c.ack(App, 100*ms, 20, 39)
	if len(c.ctl.losses) != 1 || len(c.ctl.acks) != 1 {
		t.Fatalf("%d losses, %d acks", len(c.ctl.losses), len(c.ctl.acks))
	}
	l, a := c.ctl.losses[0], c.ctl.acks[0]
	if l.Packets != 20 || l.Bytes != 20000 || l.Persistent || res.LostBytes != 20000 {
		t.Fatalf("%+v", l)
	}
	if a.Bytes != 20000 || a.InFlightBefore != 40000 || a.LargestPN != 39 || a.SentPN != 39 || a.RTT != 100*ms {
		t.Fatalf("%+v", a)
	}
}
