package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func fatesOf(s scenario, up bool, n int) (list []fate) {
	f := newFates(&s, up, rand.New(rand.NewPCG(1, 2)))
	for range n {
		list = append(list, f.next(0, 0))
	}
	return list
}

func TestLossComesInShortBursts(t *testing.T) {
	s := scenario{lose: trouble{0.30, 3}, damage: trouble{0.30, 3}}
	list := fatesOf(s, true, 20000)
	count := map[fate]int{}
	row := 0
	for _, f := range list {
		count[f]++
		if f != lost {
			row = 0
		} else if row++; row > 3 {
			t.Fatal("four lost in a row")
		}
	}
	if count[lost] < 5500 || count[lost] > 6100 {
		t.Errorf("%d of 20000 lost", count[lost])
	}
	if count[damaged] < 3500 || count[damaged] > 4500 {
		t.Errorf("%d of 20000 damaged", count[damaged])
	}
}

// The limit is each client's own.
func TestBurstsOfTwoClients(t *testing.T) {
	s := scenario{lose: trouble{1, 3}}
	f := newFates(&s, true, rand.New(rand.NewPCG(1, 2)))
	var first, second []fate
	for range 5 {
		first = append(first, f.next(1, 0))
		second = append(second, f.next(2, 0))
	}
	want := []fate{lost, lost, lost, passed, lost}
	if !slices.Equal(first, want) || !slices.Equal(second, want) {
		t.Error(first, second)
	}
}

func TestDropList(t *testing.T) {
	s := scenario{loseUp: []int{2, 3, 5}}
	if got := fatesOf(s, true, 6); !slices.Equal(got, []fate{passed, lost, lost, passed, lost, passed}) {
		t.Error(got)
	}
	if got := fatesOf(s, false, 6); slices.Contains(got, lost) {
		t.Error(got)
	}
}

func TestBlackhole(t *testing.T) {
	f := newFates(&scenario{on: 5 * time.Second, off: 2 * time.Second, holes: 2}, true, nil)
	for _, c := range []struct {
		at   time.Duration
		want fate
	}{{0, passed}, {4999 * time.Millisecond, passed}, {5 * time.Second, lost}, {6999 * time.Millisecond, lost}, {7 * time.Second, passed}, {12 * time.Second, lost}, {19 * time.Second, passed}} {
		if got := f.next(0, c.at); got != c.want {
			t.Errorf("after %v: %v", c.at, got)
		}
	}
}

// Ten Mbit/s are 1250 bytes a millisecond.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(scenario{delay: 15 * time.Millisecond, mbps: 10, queue: 3})
		begin := time.Now()
		var took []time.Duration
		arrives := func() { took = append(took, time.Since(begin)) }
		for i := range 6 {
			// One on the way, three that wait, and no room for more.
			if ok := l.send(1250-overhead, arrives); ok != (i < 4) {
				t.Errorf("datagram %d: %v", i, ok)
			}
		}
		time.Sleep(10 * time.Millisecond)
		l.send(1250-overhead, arrives)
		l.close()
		if l.send(1, arrives) {
			t.Error("a closed link takes datagrams")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want := []time.Duration{16, 17, 18, 19, 26}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if !slices.Equal(took, want) {
			t.Errorf("arrivals after %v, not %v", took, want)
		}
	})
}
