package main

import (
	"math"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		p    float64
		want float64
	}{
		{[]float64{3}, 0.25, 3},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{5, 1, 4, 2, 3}, 0.5, 3},
		{[]float64{5, 1, 4, 2, 3}, 0.25, 2},
		{[]float64{5, 1, 4, 2, 3}, 0.75, 4},
		{[]float64{1, 2}, 0, 1},
		{[]float64{1, 2}, 1, 2},
	} {
		if got := quantile(c.xs, c.p); got != c.want {
			t.Errorf("the %v-quantile of %v is %v, want %v", c.p, c.xs, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	xs := []float64{2, 1}
	if median(xs); xs[0] != 2 {
		t.Error("median sorted what it was given")
	}
}

func TestPercentile(t *testing.T) {
	ds := make([]time.Duration, 100)
	for i := range ds {
		ds[99-i] = time.Duration(i)
	}
	if p50, p99 := percentile(ds, 0.5), percentile(ds, 0.99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %d, p99 %d", p50, p99)
	}
	if got := percentile(nil, 0.99); got != 0 {
		t.Errorf("the p99 of nothing is %v", got)
	}
}

func TestRatios(t *testing.T) {
	got := ratios([]float64{6, 9}, []float64{2, 4.5})
	if len(got) != 2 || got[0] != 3 || got[1] != 2 {
		t.Errorf("got %v", got)
	}
}
