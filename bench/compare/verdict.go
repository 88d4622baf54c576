package main

import (
	"fmt"
	"math"
)

// A bound is what a figure must, or should, reach.
type bound struct {
	limit float64
	most  bool // the figure should be at most limit, not at least
	set   bool
}

func atLeast(x float64) bound { return bound{x, false, true} }
func atMost(x float64) bound  { return bound{x, true, true} }

func (b bound) holds(x float64) bool { return b.most && x <= b.limit || !b.most && x >= b.limit }

// A check is one figure, taken round by round, and what is expected of it.
type check struct {
	what     string // which figure of the job, if there are several
	unit     string
	ours     []float64
	peer     []float64 // in the same rounds; nil: the figure stands for itself
	peerName string

	must, aim bound
	// roof is how close ours came to the bare loop in the same rounds, 1 being as
	// good: an aim also counts as reached at nearRoof.
	roof []float64

	// means compares the means of the rounds, not the median of their ratios: for what
	// differs by chance and not by the hour.
	means bool
}

// center is what stands for all rounds.
func (c *check) center(xs []float64) float64 {
	if c.means {
		return mean(xs)
	}
	return median(xs)
}

const nearRoof = 0.9

// A verdict is what became of a check.
type verdict struct {
	value, q1, q3   float64 // the ratio to the peer, or the figure itself
	mustMet, aimMet bool    // true where there is nothing to reach
	nearRoof        bool    // the aim is met as the bare loop is no faster
}

// rounds are the figures to judge: ratios if there is a peer.
func (c *check) rounds() []float64 {
	if c.peer == nil {
		return c.ours
	}
	return ratios(c.ours, c.peer)
}

// judge applies the rule: a must is missed when the whole interquartile range of the
// rounds lies on the wrong side. An aim is reached by the median.
func (c *check) judge() verdict {
	xs := c.rounds()
	v := verdict{value: median(xs), q1: quantile(xs, 0.25), q3: quantile(xs, 0.75), mustMet: true, aimMet: true}
	if c.means {
		v.value = mean(c.ours)
		if c.peer != nil {
			v.value /= mean(c.peer)
		}
	}
	if c.must.set {
		v.mustMet = c.must.holds(v.q1) || c.must.holds(v.q3)
	}
	if c.aim.set {
		v.nearRoof = len(c.roof) > 0 && median(c.roof) >= nearRoof
		v.aimMet = c.aim.holds(v.value) || v.nearRoof
	}
	return v
}

// margin is by what factor the figure is better than its must, to find the worst of
// several.
func (c *check) margin() float64 {
	v := c.judge()
	if !c.must.set {
		return math.Inf(1)
	}
	if c.must.most {
		return c.must.limit / v.value
	}
	return v.value / c.must.limit
}

// result is what a job found.
type result struct {
	id, job string
	checks  []check
	notes   []string  // figures without a target
	table   string    // E4's
	stacks  []summary // for the plot
	err     error
}

// summary is one stack's bulk figures: medians and quartiles over the rounds.
type summary struct {
	Name     string     `json:"name"`
	Gbit     [3]float64 `json:"gbit_per_s"` // first quartile, median, third quartile
	Sender   [3]float64 `json:"sender_cpu_s_per_gb"`
	Receiver [3]float64 `json:"receiver_cpu_s_per_gb"`
}

// ok reports whether the job ran and every must was met.
func (r *result) ok() bool {
	if r.err != nil {
		return false
	}
	for i := range r.checks {
		if !r.checks[i].judge().mustMet {
			return false
		}
	}
	return true
}

// headline is the check that stands for the job: the one nearest to its must, or
// farthest from it. nil if there is none.
func (r *result) headline() *check {
	var worst *check
	for i := range r.checks {
		if c := &r.checks[i]; worst == nil || c.margin() < worst.margin() {
			worst = c
		}
	}
	return worst
}

// figure prints a number with three digits that count.
func figure(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "–"
	case a >= 1000:
		return fmt.Sprintf("%.0f", x)
	case a >= 100:
		return fmt.Sprintf("%.1f", x)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.3g", x)
	}
}

// limit prints a bound: "≥ 3×".
func (c *check) limit(b bound) string {
	if !b.set {
		return "–"
	}
	s := "≥ "
	if b.most {
		s = "≤ "
	}
	s += fmt.Sprintf("%.4g", b.limit)
	if c.peer != nil {
		s += "×"
	}
	return s
}
