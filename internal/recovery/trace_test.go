package recovery

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// notes is a Trace that writes down what it hears.
type notes []string

func (n *notes) PacketLost(sp Space, pn int64, byTime, probe bool) {
	s := fmt.Sprintf("lost %d/%d", sp, pn)
	if byTime {
		s += " by time"
	}
	if probe {
		s += " probe"
	}
	*n = append(*n, s)
}

func (n *notes) SpuriousLoss(sp Space, pn, by int64, age time.Duration) {
	*n = append(*n, fmt.Sprintf("spurious %d/%d by %d after %v", sp, pn, by, age))
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(*n, want) {
		t.Errorf("told %q, want %q", *n, want)
	}
	*n = nil
}

func traced(t *testing.T) (*talk, *notes) {
	c, n := established(t), &notes{}
	c.trace = n
	return c, n
}

func TestTraceTellsLossesOneByOne(t *testing.T) {
	c, n := traced(t)
	tr := c.packets(4, 1000)
	tr.Eliciting = 0b1101 // 1 is not, and its loss is no news
	c.OnSent(App, []*Train{tr}, t0)
	c.send(App, 3, 0) // 4, 5, 6
	c.ack(App, 50*ms, 4, 4, 3, 3)
	n.want(t, "lost 2/0")
	c.send(App, 1, 40*ms) // 7
	c.ack(App, 200*ms, 7, 7)
	n.want(t, "lost 2/2 by time", "lost 2/5 by time", "lost 2/6 by time")
	if got := c.PacketsInFlight(); got != 0 {
		t.Errorf("%d packets in flight", got)
	}

	c.Skip(App)            // 8
	c.send(App, 1, 210*ms) // 9
	c.ack(App, 310*ms, 9, 9, 5, 6, 0, 0)
	n.want(t, "spurious 2/0 by 8 after 310ms", "spurious 2/5 by 3 after 310ms", "spurious 2/6 by 2 after 310ms")
	c.ack(App, 320*ms, 9, 9, 5, 6, 0, 0)
	n.want(t) // once is enough

	c.OnSent(App, []*Train{c.packets(3, 1000)}, at(310*ms)) // 10, 11, 12
	c.send(App, 3, 310*ms)
	c.ack(App, 410*ms, 15, 15)
	n.want(t, "lost 2/10", "lost 2/11", "lost 2/12")
	c.ack(App, 411*ms, 15, 15, 10, 12)
	n.want(t, "spurious 2/10 by 5 after 101ms", "spurious 2/11 by 4 after 101ms", "spurious 2/12 by 3 after 101ms")

	probe := c.packets(1, 1400)
	probe.Probe = true
	c.OnSent(App, []*Train{probe}, at(420*ms)) // 16
	c.send(App, 3, 420*ms)
	c.ack(App, 520*ms, 19, 19)
	n.want(t, "lost 2/13 by time", "lost 2/14 by time", "lost 2/16 probe")
}

func TestNextTimerSaysWhatItIsFor(t *testing.T) {
	c := established(t)
	want := func(what string, at time.Time, pto bool) {
		t.Helper()
		got, sp, isPTO := c.NextTimer()
		if !got.Equal(at) || !got.Equal(c.Timer()) || !at.IsZero() && (sp != App || isPTO != pto) {
			t.Errorf("%s: %v in space %d, probe timeout %v", what, got.Sub(t0), sp, isPTO)
		}
	}
	want("nothing sent", time.Time{}, false)
	c.send(App, 1, 0)
	c.send(App, 1, 5*ms)
	want("two packets", at(106*ms), true)
	c.ack(App, 105*ms, 1, 1)
	want("the first is late", at(112500*time.Microsecond), false)
	c.OnTimer(at(113 * ms))
	want("it is lost", time.Time{}, false)

	c.send(App, 1, 200*ms)
	for i := range 3 {
		at, _, _ := c.NextTimer()
		c.OnTimer(at)
		if c.PTOCount() != i+1 {
			t.Errorf("%d probe timeouts, want %d", c.PTOCount(), i+1)
		}
	}
	c.ack(App, 2*time.Second, 2, 2)
	if c.PTOCount() != 0 {
		t.Errorf("%d probe timeouts after an ACK", c.PTOCount())
	}
}

func TestECNStates(t *testing.T) {
	c := established(t)
	want := func(want ECNState, reason bool) {
		t.Helper()
		if s, why := c.ECN(); s != want || (why != "") != reason {
			t.Errorf("state %d %q, want %d", s, why, want)
		}
	}
	want(ECNUnused, false)
	c.sendMarked(3)
	want(ECNTesting, false)
	c.ackCounts(2, 0, 0, 0, 1)
	want(ECNCapable, false)
	c.ack(App, 100*ms, 2, 2)
	want(ECNFailed, true)
}
