package recovery

import (
	"testing"
	"time"
)

// sendElsewhere sends a packet by another path than the one in use.
func (k *talk) sendElsewhere(d time.Duration) {
	t := k.packets(1, 1200)
	t.Elsewhere, t.Eliciting, t.InFlight = true, 0, 0
	k.OnSent(App, []*Train{t}, at(d))
}

// RFC 9000 §9.4: what is sent by another path gives no RTT sample, is not in flight, makes
// no probe due, and its acknowledgement says nothing of the packets before it.
func TestPacketsElsewhere(t *testing.T) {
	c := established(t)
	c.send(App, 5, 0) // 0–4
	for range 4 {
		c.sendElsewhere(0) // 5–8
	}
	c.wantInFlight(5000)
	c.wantTimer("the PTO of packet 4", at(101*ms))
	// The other path is faster.
	res := c.ack(App, 5*ms, 5, 8)
	if res.RTTSample || res.LostPackets > 0 || c.rtt.Min != 100*ms || len(c.ctl.acks) > 0 {
		t.Errorf("%+v, RTT %+v", res, c.rtt)
	}
	c.wantInFlight(5000)
	c.wantTimer("nothing is overdue", at(101*ms))
	// As usual, but for packets 5 to 8: 4 is the largest here.
	res = c.ack(App, 110*ms, 4, 8)
	if !res.RTTSample && res.LargestNewlyAcked {
		t.Errorf("%+v", res)
	}
	if res.LostPackets != 2 { // 0 and 1: three or more before 4
		t.Errorf("%+v", res)
	}
	// Their loss is nobody's.
	c = established(t)
	c.sendElsewhere(0) // 0
	c.send(App, 4, 0)  // 1–4
	if res := c.ack(App, 100*ms, 1, 4); res.LostPackets > 0 || len(c.ctl.losses) > 0 || !res.RTTSample {
		t.Errorf("%+v", res)
	}
}

// The packets of a path that is given up go again, without a sign of congestion, unless
// they are acknowledged after all.
func TestAbandon(t *testing.T) {
	c := established(t)
	b := newBytes(4000)
	c.sendData(b, 0, false, 0, 1000, 1000) // 0–1
	c.sendData(b, 2000, false, 0, 1000)    // 2
	c.sendData(b, 3000, true, 0, 1000)     // 3
	c.ack(App, 50*ms, 0, 0)
	b.want(c, "acked 0+1000")
	c.Abandon(0, 2, at(60*ms))
	b.want(c, "lost 2000+1000", "lost 1000+1000")
	c.wantInFlight(1000)
	if len(c.ctl.losses) > 0 {
		t.Errorf("losses: %+v", c.ctl.losses)
	}
	if s := c.Stats(); s.PacketsLost > 0 {
		t.Errorf("%+v", s)
	}
	acks := len(c.ctl.acks)
	res := c.ack(App, 90*ms, 1, 2, 0, 0)
	b.want(c, "acked 2000+1000", "acked 1000+1000")
	if res.RTTSample || res.SpuriousPackets > 0 || res.AckedBytes > 0 || len(c.ctl.spurious) > 0 || len(c.ctl.acks) > acks {
		t.Errorf("%+v", res)
	}
	c.ack(App, 100*ms, 0, 3)
	b.want(c, "acked 3000+1000 fin")
	c.wantInFlight(0)
	c.Abandon(5, 9, at(100*ms)) // nothing there
	c.Abandon(2, 1, at(100*ms))
}

// RFC 9000 §9.4: everything begins anew, but for what has left by the new path already.
func TestRestart(t *testing.T) {
	c := established(t)
	c.sendMarked(3) // 0–2
	c.send(App, 1, 10*ms)
	c.OnTimer(at(500 * ms))
	c.ecn.failed = true
	ctl := &listener{}
	c.Restart(ctl, 3, 20*ms, at(500*ms))
	c.wantInFlight(1000)
	if c.rtt.Has || c.rtt.Smoothed != 20*ms || c.rtt.Var != 10*ms {
		t.Errorf("RTT %+v", c.rtt)
	}
	if !c.ECNCapable() {
		t.Error("marks are not tried on the new path")
	}
	c.wantTimer("the PTO begins anew", at(500*ms+60*ms)) // the last one fired at 500 ms
	res := c.ack(App, 540*ms, 3, 3, 0, 2)
	if !res.RTTSample || c.rtt.Latest != 530*ms || res.AckedBytes != 1000 || len(ctl.acks) != 1 || len(c.ctl.acks) > 0 {
		t.Errorf("%+v, RTT %+v", res, c.rtt)
	}
	// Without a hint it is the RFC's initial RTT.
	c.Restart(ctl, c.NextPN(App), 0, at(time.Second))
	if c.rtt.Smoothed != initialRTT || c.InitialPTO() != 999*ms {
		t.Errorf("RTT %+v, PTO %v", c.rtt, c.InitialPTO())
	}
}

// The counts of the path before are no fault of the new one (RFC 9000 A.4).
func TestECNCountsOfFormerPath(t *testing.T) {
	c := established(t)
	c.sendMarked(3)
	if res := c.ackCounts(1, 2, 0, 0, 2); !res.ECNFailed {
		t.Fatalf("%+v", res)
	}
	c.Restart(c.ctl, c.NextPN(App), 0, at(200*ms))
	c.sendMarked(3)
	if res := c.ackCounts(4, 2, 0, 3, 5); res.ECNFailed || !c.ECNCapable() {
		t.Errorf("%+v", res)
	}
	c.sendMarked(2)
	if res := c.ackCounts(5, 2, 1, 6, 7); res.ECNFailed || !res.CE {
		t.Errorf("%+v", res)
	}
	c.sendMarked(2)
	if res := c.ackCounts(5, 4, 1, 8, 9); !res.ECNFailed {
		t.Errorf("marks were changed on the new path: %+v", res)
	}
}

// Losses on a path that is given up are not part of persistent congestion.
func TestAbandonedAreNotPersistent(t *testing.T) {
	c := established(t)
	c.send(App, 1, 0)
	c.Abandon(0, 0, at(10*ms))
	for i := range 5 {
		c.send(App, 1, time.Duration(1000+i)*ms)
	}
	c.ack(App, 1100*ms, 5, 5)
	if l := c.ctl.lastLoss(); l.Persistent || l.Packets != 2 {
		t.Errorf("%+v", l)
	}
}
