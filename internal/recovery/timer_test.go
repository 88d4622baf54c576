package recovery

import (
	"maps"
	"testing"
	"time"
)

func TestInitialPTO(t *testing.T) {
	c := server(t)
	c.send(Initial, 1, 0)
	c.wantTimer("333 ms + 4 × 166.5 ms", at(999*ms))
}

// RFC 9002 §6.2.1: the peer may delay ACKs of application packets only.
func TestMaxAckDelayIsForTheApplication(t *testing.T) {
	c := established(t)
	c.SetMaxAckDelay(25 * ms)
	if a, h := c.PTO(App), c.PTO(Handshake); a != 126*ms || h != 101*ms {
		t.Fatalf("PTO %v and %v", a, h)
	}
}

func TestPTOOrder(t *testing.T) {
	s := server(t)
	s.send(App, 1, 0)
	s.wantTimer("application before confirmation", time.Time{})
	s.send(Handshake, 1, 10*ms)
	s.send(Initial, 1, 20*ms)
	s.wantTimer("the earlier of the two", at(10*ms+999*ms))
	probe, sp := s.OnTimer(s.Timer())
	if !probe || sp != Handshake || s.Probes(Handshake) != 2 {
		t.Fatalf("probe %v in %v, %d", probe, sp, s.Probes(Handshake))
	}
	if s.Probes(Initial) != 1 || s.Probes(App) != 0 {
		t.Fatalf("%d Initial and %d application probes, want 1 and 0", s.Probes(Initial), s.Probes(App))
	}
	s.Discard(Initial, at(1100*ms))
	s.Discard(Handshake, at(1100*ms))
	s.wantTimer("still unconfirmed", time.Time{})
	s.SetHandshakeConfirmed()
	s.wantTimer("confirmed", at(1009*ms).Add(s.PTO(App))) // counted from the last timeout
}

func TestProbesCountDown(t *testing.T) {
	c := established(t)
	c.send(App, 1, 0)
	c.OnTimer(at(101 * ms))
	tr := c.NewTrain() // an ACK is no probe
	tr.N, tr.Sizes[0] = 1, 40
	c.OnSent(App, []*Train{tr}, at(101*ms))
	if n := c.Probes(App); n != 2 {
		t.Fatalf("%d probes due, want 2", n)
	}
	c.OnSent(App, []*Train{c.packets(1, 1000)}, at(101*ms))
	if n := c.Probes(App); n != 1 {
		t.Fatalf("%d probes due, want 1", n)
	}
	c.OnSent(App, []*Train{c.packets(3, 1000)}, at(101*ms))
	if n := c.Probes(App); n != 0 {
		t.Fatalf("%d probes due, want 0", n)
	}
}

func TestBackoff(t *testing.T) {
	c := established(t)
	c.send(App, 1, 0)
	now := time.Duration(0)
	for i := range 12 {
		d := min(101*ms<<i, maxPTO)
		c.wantTimer("backoff", at(now+d))
		now += d
		if early, _ := c.OnTimer(at(now - 1)); early {
			t.Fatal("fired early")
		}
		if probe, _ := c.OnTimer(at(now)); !probe {
			t.Fatal("did not fire")
		}
		c.send(App, 2, now)
	}
	c.wantInFlight(25000) // a timeout declares nothing lost (§6.2)
	c.ack(App, now+100*ms, 24, 24)
	if d := c.backoff(c.PTO(App)); d != c.PTO(App) {
		t.Fatalf("the backoff goes on after an ACK: %v", d)
	}
}

// Field report A19: a timeout that cannot be served does not fire at once
// again and again, however late it was seen.
func TestUnservedTimeoutDoesNotSpin(t *testing.T) {
	c := established(t)
	c.send(App, 1, 0)
	now := at(time.Minute) // the process was stopped
	for range 5 {
		if probe, _ := c.OnTimer(now); !probe {
			t.Fatal("no probe")
		}
		if next := c.Timer(); !next.After(now.Add(100 * ms)) {
			t.Fatalf("next timeout %v after this one", next.Sub(now))
		}
		now = c.Timer()
	}
}

// Field report A22 and RFC 9002 §6.2.2.1: everything the client sent is
// acknowledged, and the server may send no more until it hears from it.
func TestClientAgainstDeadlock(t *testing.T) {
	c := client(t)
	c.wantTimer("nothing sent yet", time.Time{})
	c.send(Initial, 1, 0)
	c.ack(Initial, 100*ms, 0, 0)
	pto := 100*ms + 4*50*ms
	c.wantTimer("nothing in flight, address unvalidated", at(100*ms+pto))
	probe, sp := c.OnTimer(at(100*ms + pto))
	if !probe || sp != Initial || c.Probes(Initial) != 1 {
		t.Fatalf("probe %v in %v, %d", probe, sp, c.Probes(Initial))
	}
	c.send(Initial, 1, 100*ms+pto)
	c.wantTimer("backs off", at(100*ms+3*pto))
	// §6.2.1: an Initial ACK does not end the backoff of such a client.
	c.ack(Initial, 200*ms+pto, 0, 1)
	c.SetHandshakeKeys(true)
	if want := at(200*ms + pto).Add(2 * c.PTO(Initial)); !c.Timer().Equal(want) {
		t.Fatalf("timer %v, want %v", c.Timer().Sub(t0), want.Sub(t0))
	}
	if probe, sp := c.OnTimer(c.Timer()); !probe || sp != Handshake {
		t.Fatalf("probe %v in %v: Handshake keys are there", probe, sp)
	}
	c.send(App, 1, 2*time.Second) // 0-RTT does not help: it has no timer
	if c.Timer().IsZero() {
		t.Fatal("no timer although nothing but 0-RTT is in flight")
	}
	c.send(Handshake, 1, 2*time.Second)
	c.ack(Handshake, 3*time.Second, 0, 0)
	c.wantTimer("a Handshake ACK proves validation", time.Time{})
}

func TestServerAtTheAmplificationLimit(t *testing.T) {
	s := server(t)
	s.send(Initial, 3, 0)
	s.SetAmplificationLimited(true)
	s.wantTimer("limited", time.Time{})
	if probe, _ := s.OnTimer(at(10 * time.Second)); probe {
		t.Fatal("a probe that may not be sent")
	}
	s.SetAmplificationLimited(false)
	s.wantTimer("the time it had, even if that is past", at(999*ms))
	// §6.2.1: a loss time can always be served.
	s.SetAmplificationLimited(true)
	s.ack(Initial, 100*ms, 1, 1)
	s.wantTimer("time threshold", at(112500*time.Microsecond))
}

func TestLossTimeGoesBeforePTO(t *testing.T) {
	c := established(t)
	c.send(App, 2, 0)
	c.send(App, 1, 60*ms)
	c.ack(App, 100*ms, 1, 1)
	c.wantTimer("loss time", at(112500*time.Microsecond))
	if probe, _ := c.OnTimer(at(time.Minute)); probe {
		t.Fatal("probe timeout while a loss time was set")
	}
	if c.Timer().IsZero() {
		t.Fatal("no timer for the last packet")
	}
}

// What the oldest packets in flight said besides stream data is said again with the
// probes: nobody needs to find out first that it is lost.
func TestTimeoutRepeatsFrames(t *testing.T) {
	c := established(t)
	train := func(extra ...Extra) {
		tr := c.NewTrain()
		tr.N, tr.Sizes[0], tr.Sizes[1], tr.Eliciting, tr.InFlight = 2, 1000, 1000, 3, 3
		tr.Extra = append(tr.Extra, extra...)
		c.OnSent(App, []*Train{tr}, at(0))
	}
	frame := func(packet uint8, id int64) Extra { return Extra{I: packet, Frame: Frame{Kind: 1, ID: id}} }
	b := newBytes(10)
	train(frame(1, 1), frame(1, 2), Extra{I: 0, Data: b, Len: 10})
	train()
	train(frame(0, 3), frame(1, 4))
	if probe, _ := c.OnTimer(c.Timer()); !probe {
		t.Fatal("no timeout")
	}
	if want := map[int64]int{1: 1, 2: 1, 3: 1}; !maps.Equal(c.owner.lost, want) {
		t.Errorf("given back: %v, want %v", c.owner.lost, want)
	}
	c.wantInFlight(6000)
	if s := c.Stats(); s.PacketsLost != 0 {
		t.Errorf("%+v", s)
	}
	// The packets may arrive all the same.
	c.ack(App, 200*ms, 0, 5)
	if want := map[int64]int{1: 1, 2: 1, 3: 1, 4: 1}; !maps.Equal(c.owner.acked, want) {
		t.Errorf("acknowledged: %v, want %v", c.owner.acked, want)
	}
}
