package main

import (
	"errors"
	"testing"
)

func TestJudge(t *testing.T) {
	peer := []float64{1, 1, 1, 1, 1}
	for name, c := range map[string]struct {
		check
		must, aim bool
	}{
		"all rounds above":                  {check{ours: []float64{4, 4, 4, 4, 4}, peer: peer, must: atLeast(3), aim: atLeast(5)}, true, false},
		"median below, quartiles astride":   {check{ours: []float64{2, 2, 2.9, 3.1, 3.2}, peer: peer, must: atLeast(3)}, true, true},
		"quartiles below, one round above":  {check{ours: []float64{2, 2, 2, 2.9, 9}, peer: peer, must: atLeast(3)}, false, true},
		"at most, all below":                {check{ours: []float64{0.3, 0.3, 0.3, 0.2, 0.2}, peer: peer, must: atMost(0.4), aim: atMost(0.25)}, true, false},
		"at most, quartiles above":          {check{ours: []float64{0.5, 0.5, 0.5, 0.5, 0.1}, peer: peer, must: atMost(0.4)}, false, true},
		"ratios are taken round by round":   {check{ours: []float64{3, 30, 300}, peer: []float64{1, 10, 100}, must: atLeast(3), aim: atLeast(3)}, true, true},
		"without a peer the figure itself":  {check{ours: []float64{0.02}, must: atMost(0.01)}, false, true},
		"an aim is met at 0.9 of the roof":  {check{ours: []float64{4}, peer: []float64{1}, must: atLeast(3), aim: atLeast(5), roof: []float64{0.9}}, true, true},
		"… and not at less":                 {check{ours: []float64{4}, peer: []float64{1}, must: atLeast(3), aim: atLeast(5), roof: []float64{0.89}}, true, false},
		"a must is not met by the roof":     {check{ours: []float64{2}, peer: []float64{1}, must: atLeast(3), roof: []float64{1}}, false, true},
		"nothing to reach is always fine":   {check{ours: []float64{1}}, true, true},
		"means, where they are to count":    {check{ours: []float64{1, 1, 4}, peer: []float64{1, 1, 1}, aim: atLeast(2), means: true}, true, true},
		"a ratio that is NaN is never fine": {check{ours: []float64{0}, peer: []float64{0}, must: atLeast(1), aim: atLeast(1)}, false, false},
	} {
		if v := c.judge(); v.mustMet != c.must || v.aimMet != c.aim {
			t.Errorf("%s: must met %v, aim met %v: %+v", name, v.mustMet, v.aimMet, v)
		}
	}
}

func TestHeadlineIsTheWorst(t *testing.T) {
	r := result{checks: []check{
		{what: "fine", ours: []float64{10}, must: atLeast(1)},
		{what: "missed", ours: []float64{3}, must: atMost(2)},
		{what: "close", ours: []float64{1.1}, must: atLeast(1)},
	}}
	if c := r.headline(); c.what != "missed" {
		t.Errorf("the headline is %q", c.what)
	}
	if r.ok() {
		t.Error("a missed must is ok")
	}
	r.checks = r.checks[:1]
	if !r.ok() {
		t.Error("a met must is not ok")
	}
	r.err = errors.New("no network")
	if r.ok() {
		t.Error("a job that failed is ok")
	}
}

func TestFigure(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00", 0.00123456: "0.00123", 0.5: "0.5", 3.14159: "3.14", 123.456: "123.5", 12345.6: "12346"} {
		if got := figure(x); got != want {
			t.Errorf("figure(%v) is %s, want %s", x, got, want)
		}
	}
}
