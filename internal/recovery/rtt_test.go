package recovery

import (
	"testing"
	"time"
)

// exchange sends one packet and has it acknowledged rtt later.
func (k *talk) exchange(sp Space, rtt, ackDelay time.Duration) {
	k.Helper()
	pn := k.NextPN(sp)
	k.send(sp, 1, time.Duration(pn)*time.Second)
	if _, err := k.OnAck(sp, frame(pn, pn), ackDelay, at(time.Duration(pn)*time.Second+rtt)); err != nil {
		k.Fatal(err)
	}
}

func (k *talk) wantRTT(latest, low, smoothed, variation time.Duration) {
	k.Helper()
	if got, want := *k.RTT(), (RTT{latest, low, smoothed, variation, true}); got != want {
		k.Fatalf("RTT %+v, want %+v", got, want)
	}
}

func TestRTTEquations(t *testing.T) {
	c := server(t)
	if r := c.RTT(); r.Has || r.Smoothed != 333*ms || r.Var != 333*ms/2 {
		t.Fatalf("before any sample: %+v", *r)
	}
	c.SetHandshakeConfirmed()
	c.SetMaxAckDelay(20 * ms)
	c.exchange(App, 100*ms, 20*ms) // the first is taken as it is
	c.wantRTT(100*ms, 100*ms, 100*ms, 50*ms)
	c.exchange(App, 180*ms, 20*ms) // 160 ms without the delay
	c.wantRTT(180*ms, 100*ms, 107500*time.Microsecond, 52500*time.Microsecond)
	c.exchange(App, 107500*time.Microsecond, 20*ms) // would fall below the minimum
	c.wantRTT(107500*time.Microsecond, 100*ms, 107500*time.Microsecond, 39375*time.Microsecond)
	c.exchange(App, 187500*time.Microsecond, time.Hour) // no more than max_ack_delay
	c.wantRTT(187500*time.Microsecond, 100*ms, 115*ms, 44531250)
	c.exchange(App, 60*ms, 0)
	c.wantRTT(60*ms, 60*ms, 108125*time.Microsecond, 47148437)
}

func TestAckDelayBeforeConfirmation(t *testing.T) {
	c := server(t)
	c.SetMaxAckDelay(20 * ms)
	c.exchange(Handshake, 100*ms, 0)
	c.exchange(Handshake, 260*ms, 80*ms) // believed, though above max_ack_delay
	c.wantRTT(260*ms, 100*ms, 110*ms, 57500*time.Microsecond)
}

// The ACK for a packet is lost, and another one that comes along with something else, much
// later, is the first to arrive: that says nothing about the path.
func TestStaleAckOfTheHandshake(t *testing.T) {
	for _, sp := range []Space{Initial, Handshake} {
		c := server(t)
		c.exchange(sp, 2030*ms, 2000*ms)
		if c.RTT().Has {
			t.Errorf("%+v", *c.RTT())
		}
		c.exchange(sp, 30*ms, ms)
		c.wantRTT(30*ms, 30*ms, 30*ms, 15*ms)
		c.exchange(sp, 2030*ms, 2000*ms) // the delay explains it
		c.wantRTT(2030*ms, 30*ms, 30*ms, 11250*time.Microsecond)
		c.exchange(sp, 2020*ms, 2000*ms) // a delay that cannot be
		c.wantRTT(2030*ms, 30*ms, 30*ms, 11250*time.Microsecond)
	}
	// Once the handshake is confirmed, what exceeds max_ack_delay is the path's.
	c := server(t)
	c.SetHandshakeConfirmed()
	c.SetMaxAckDelay(20 * ms)
	c.exchange(App, 2030*ms, 2000*ms)
	c.wantRTT(2030*ms, 2030*ms, 2030*ms, 1015*ms)
}

func TestNoSampleWithoutNewLargest(t *testing.T) {
	c := established(t)
	c.send(App, 3, 0)
	if res := c.ack(App, 50*ms, 2, 2); !res.RTTSample || !res.LargestNewlyAcked {
		t.Fatalf("%+v", res)
	}
	if res := c.ack(App, 70*ms, 1, 2); res.RTTSample || res.LargestNewlyAcked || !res.NewlyAcked {
		t.Fatalf("%+v", res)
	}
	if res := c.ack(App, 80*ms, 1, 2); res != (AckResult{}) {
		t.Fatalf("the same again: %+v", res)
	}
}

// A path without delay must not read as a path without samples.
func TestZeroRTT(t *testing.T) {
	c := server(t)
	c.exchange(Initial, 0, 0)
	if r := c.RTT(); !r.Has || r.Smoothed <= 0 || r.Smoothed > time.Microsecond {
		t.Fatalf("%+v", *r)
	}
	if pto := c.PTO(Initial); pto < ms {
		t.Fatalf("PTO %v is below the timer's granularity", pto)
	}
}
