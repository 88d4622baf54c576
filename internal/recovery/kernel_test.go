package recovery

import (
	"testing"
	"time"
)

// The kernel refuses the middle of a flight (EMSGSIZE).
func TestUnsent(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, true, 0, 10, 10, 10, 10, 10)
	c.OnUnsent(App, 1, 2)
	s.want(c, "lost 10+20")
	c.wantInFlight(3000)
	c.OnUnsent(App, 1, 2) // twice is once
	s.want(c)
	c.wantInFlight(3000)
	if _, err := c.OnAck(App, frame(1, 1), 0, at(50*ms)); err == nil {
		t.Fatal("an ACK of a burnt number was accepted")
	}
	c.ack(App, 50*ms, 3, 4, 0, 0)
	s.want(c, "acked 30+20 fin", "acked 0+10")
	c.wantInFlight(0)
	if len(c.ctl.losses) != 0 {
		t.Fatalf("refused packets were taken for congestion: %v", c.ctl.losses)
	}
	if st := c.Stats(); st.PacketsUnsent != 2 || st.PacketsLost != 0 {
		t.Fatalf("%+v", st)
	}
	c.wantTimer("nothing in flight", time.Time{})
}

func TestUnsentFlight(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, false, 0, 10, 10)
	c.sendData(s, 20, false, 0, 10, 10)
	c.OnUnsent(App, 0, 3)
	s.want(c, "lost 20+20", "lost 0+20")
	c.wantInFlight(0)
	if n := c.NextPN(App); n != 4 {
		t.Fatalf("next number %d: burnt numbers were used again", n)
	}
	c.sendData(s, 0, false, 10*ms, 10, 10)
	c.ack(App, 60*ms, 4, 5)
	s.want(c, "acked 0+20")
}

// The kernel took the rest of a flight later. Its packets count from then, the
// others keep their time: else they would give an RTT that is too short.
func TestRestampCutsTheTrain(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	tr := c.packets(5, 1000)
	tr.Data, tr.Fin = s, true
	tr.Lens = [MaxPackets]uint16{10, 10, 10, 10, 10}
	tr.Extra = append(tr.Extra, Extra{I: 1, Frame: Frame{Kind: 1, ID: 1}}, Extra{I: 4, Frame: Frame{Kind: 1, ID: 4}})
	c.OnSent(App, []*Train{tr}, t0)
	c.ack(App, 30*ms, 0, 0) // an ACK may come before the call returns
	s.want(c, "acked 0+10")
	c.Restamp(App, 2, 4, at(30*ms))
	c.ack(App, 60*ms, 0, 1)
	if c.RTT().Latest != 60*ms {
		t.Fatalf("RTT %v of a packet that was sent 60 ms ago", c.RTT().Latest)
	}
	s.want(c, "acked 10+10")
	c.wantTimer("PTO counts from the later time", at(30*ms).Add(c.PTO(App)))
	c.ack(App, 70*ms, 0, 4)
	if c.RTT().Latest != 40*ms {
		t.Fatalf("RTT %v of a packet that was taken 40 ms ago", c.RTT().Latest)
	}
	s.want(c, "acked 20+30 fin")
	if c.owner.acked[1] != 1 || c.owner.acked[4] != 1 {
		t.Fatalf("frames acked: %v", c.owner.acked)
	}
	c.wantInFlight(0)
}

// A FIN that may be in either of two packets stays with both.
func TestRestampDoesNotCutTheFin(t *testing.T) {
	c := established(t)
	s := newBytes(200)
	c.sendData(s, 0, true, 0, 10, 10, 0)
	c.Restamp(App, 2, 2, at(30*ms))
	c.ack(App, 60*ms, 0, 1)
	s.want(c, "acked 10+10", "acked 0+10")
	c.ack(App, 60*ms, 0, 2)
	s.want(c, "acked 20+0 fin")
}

// No probe timeout runs for what the kernel did not take.
func TestNoProbeTimeoutWhileBlocked(t *testing.T) {
	c := established(t)
	c.send(App, 2, 0)
	c.SetSendBlocked(true)
	c.wantTimer("blocked", time.Time{})
	c.Restamp(App, 0, 1, at(5*time.Second))
	c.SetSendBlocked(false)
	c.wantTimer("taken", at(5*time.Second).Add(c.PTO(App)))
}

func TestDiscard(t *testing.T) {
	c := client(t)
	s := newBytes(10)
	tr := c.packets(2, 1200)
	tr.Data, tr.Lens[0] = s, 10
	c.OnSent(Initial, []*Train{tr}, t0)
	c.send(Handshake, 1, 0)
	c.OnTimer(at(time.Second))
	c.OnTimer(at(3 * time.Second))
	c.Discard(Initial, at(4*time.Second))
	c.wantInFlight(1000)
	s.want(c)
	if c.Probes(Initial) != 0 {
		t.Fatal("probes are due in a space without keys")
	}
	// The backoff starts afresh (RFC 9002 §6.2.2). Nothing was sent since the
	// last timeout, at 3 s.
	c.wantTimer("after Discard", at(3*time.Second+999*ms))
	if res, err := c.OnAck(Initial, frame(0, 100), 0, at(4*time.Second)); err != nil || res != (AckResult{}) {
		t.Fatalf("an ACK for a discarded space: %+v, %v", res, err)
	}
	c.Discard(Initial, at(5*time.Second))
	c.wantInFlight(1000)
}

func TestResetForRetry(t *testing.T) {
	c := client(t)
	s := newBytes(10)
	tr := c.packets(1, 1200)
	tr.Data, tr.Lens[0] = s, 10
	c.OnSent(Initial, []*Train{tr}, t0)
	c.OnTimer(at(time.Second))
	c.ResetForRetry(at(2 * time.Second))
	s.want(c, "lost 0+10")
	c.wantInFlight(0)
	if len(c.ctl.losses) != 0 || c.Stats().PacketsLost != 0 {
		t.Fatal("a Retry was taken for congestion")
	}
	if n := c.NextPN(Initial); n != 1 {
		t.Fatalf("next number %d, want 1 (RFC 9000 §17.2.5.3)", n)
	}
	c.ack(Initial, 2*time.Second, 0, 0)
	s.want(c)
}
