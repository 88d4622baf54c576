package congestion

import (
	"testing"
	"time"
)

// round plays one round of slow start: n ACKs with the given RTTs, repeated as
// needed, that together acknowledge the window. It returns the window's growth
// as a multiple of what was acknowledged.
type slowStart struct {
	*cubic
	pn  int64
	now time.Duration
}

func newSlowStart() *slowStart { return &slowStart{cubic: NewCubic(mss).(*cubic)} }

func (s *slowStart) round(acks int, rtts ...time.Duration) float64 {
	before := s.cwnd
	first := s.pn + 1
	s.pn += int64(acks) // each ACK names one packet
	s.now += 100 * ms
	acked := 0
	for i := range acks {
		n := int(before) / acks
		acked += n
		rtt := rtts[i%len(rtts)]
		sent := s.pn
		if i == acks-1 {
			sent += int64(acks) // the next round's packets left meanwhile
		}
		s.OnAck(Ack{Now: at(s.now), Bytes: n, LargestSentTime: at(s.now - rtt), LargestPN: first + int64(i),
			SentPN: sent, RTT: rtt, MinRTT: rtts[0], SmoothedRTT: rtt})
	}
	return (s.cwnd - before) / float64(acked)
}

func (s *slowStart) wantGrowth(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got < want-0.02 || got > want+0.02 {
		t.Fatalf("%s: the window grew by %.3f of what was acknowledged, want %.2f", what, got, want)
	}
}

// RFC 9406 §4.2 on a path of 40 ms: the threshold is 40/8 = 5 ms.
func TestHyStartLeavesBeforeLoss(t *testing.T) {
	s := newSlowStart()
	for range 4 {
		s.wantGrowth(t, "no delay", s.round(10, 40*ms), 1)
	}
	s.wantGrowth(t, "4.9 ms more", s.round(10, 44900*time.Microsecond), 1)
	s.round(10, 40*ms)
	// The eighth sample of the round shows the delay: from there on CSS.
	got := s.round(10, 45*ms)
	if !s.hystart.css || got > 0.9 {
		t.Fatalf("5 ms more: growth %.2f, CSS %v", got, s.hystart.css)
	}
	for i := range 4 {
		s.wantGrowth(t, "conservative", s.round(10, 45*ms), 0.25)
		if (i < 3) != s.InSlowStart() {
			t.Fatalf("round %d of CSS: slow start %v", i+2, s.InSlowStart())
		}
	}
	w := s.cwnd
	if s.ssthresh != w {
		t.Fatalf("ssthresh %.0f, window %.0f", s.ssthresh, w)
	}
	// RFC 9438 §4.10: the plateau is here.
	if got := s.round(10, 45*ms); got > 0.05 || s.wMax < w-1 || s.k != 0 {
		t.Fatalf("congestion avoidance: growth %.3f, W_max %.0f, K %v", got, s.wMax, s.k)
	}
}

// Jitter that goes away again does not end slow start.
func TestHyStartResumes(t *testing.T) {
	s := newSlowStart()
	s.round(10, 40*ms)
	s.round(10, 40*ms)
	s.round(10, 60*ms)
	if !s.hystart.css {
		t.Fatal("no CSS although the delay rose by half")
	}
	s.wantGrowth(t, "CSS", s.round(10, 60*ms), 0.25)
	s.round(10, 50*ms) // less than when CSS began
	if s.hystart.css || !s.InSlowStart() {
		t.Fatal("slow start did not resume")
	}
	s.wantGrowth(t, "resumed", s.round(10, 50*ms), 1)
}

func TestHyStartThreshold(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{
		100 * time.Microsecond: 4 * ms, 32 * ms: 4 * ms, 80 * ms: 10 * ms, 128 * ms: 16 * ms, 10 * time.Second: 16 * ms,
	} {
		if got := threshold(rtt); got != want {
			t.Errorf("RTT %v: threshold %v, want %v", rtt, got, want)
		}
	}
}

// Few samples prove nothing, nor do ACKs of the handshake.
func TestHyStartNeedsSamples(t *testing.T) {
	s := newSlowStart()
	for i := range 20 {
		s.wantGrowth(t, "seven samples a round", s.round(7, time.Duration(40+20*i)*ms), 1)
	}
	c := NewCubic(mss).(*cubic)
	for i := range 100 {
		c.OnAck(Ack{Now: at(time.Duration(i) * ms), Bytes: 1, LargestSentTime: t0, LargestPN: -1, SentPN: int64(i),
			RTT: time.Duration(i) * ms})
	}
	if c.hystart.samples != 0 {
		t.Fatal("samples of other spaces were counted")
	}
}

// The second slow start is a plain one (RFC 9406 §4.3).
func TestHyStartIsForTheFirstSlowStart(t *testing.T) {
	s := newSlowStart()
	s.round(10, 40*ms)
	s.round(10, 40*ms)
	s.OnLoss(Loss{Now: at(s.now), Packets: 1, LargestSentTime: at(s.now - ms), Persistent: true})
	s.now += 100 * ms
	s.round(10, 90*ms)
	if s.hystart.css {
		t.Fatal("CSS in a later slow start")
	}
}
