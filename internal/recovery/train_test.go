package recovery

import "testing"

// A burst of packets, more than there ever were, makes few allocations.
func TestNewTrainAllocates(t *testing.T) {
	const trains = 80
	n := testing.AllocsPerRun(10, func() {
		r := new(Recovery)
		for range trains {
			tr := r.NewTrain()
			tr.Extra = append(tr.Extra, Extra{}, Extra{})
		}
	})
	if n > trains/4 {
		t.Errorf("%v allocations for %d trains", n, trains)
	}
}

// Every train is empty, and shares nothing with the others.
func TestNewTrain(t *testing.T) {
	r := new(Recovery)
	var all []*Train
	for i := range int64(200) {
		tr := r.NewTrain()
		if tr.N != 0 || len(tr.Extra) != 0 {
			t.Fatalf("train %d is not empty: %+v", i, tr)
		}
		tr.First = i
		for range 3 {
			tr.Extra = append(tr.Extra, Extra{Off: i})
		}
		all = append(all, tr)
	}
	for i, tr := range all {
		for _, e := range tr.Extra {
			if tr.First != int64(i) || e.Off != int64(i) {
				t.Fatalf("train %d holds what is train %d's", i, e.Off)
			}
		}
		r.recycle(tr)
	}
	for i := range 300 {
		if tr := r.NewTrain(); tr.N != 0 || tr.First != 0 || len(tr.Extra) != 0 {
			t.Fatalf("train %d is not empty: %+v", i, tr)
		}
	}
}
