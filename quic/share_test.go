package quic

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoSends(t *testing.T) {
	var s share
	cs := make([]myShare, 5)
	sent := func(at time.Duration, want int, which ...int) {
		t.Helper()
		for _, i := range which {
			s.senders(&cs[i], at)
		}
		if got := s.senders(&cs[which[0]], at); got != want {
			t.Errorf("%v: %d connections send, want %d", at, got, want)
		}
	}
	ms := time.Millisecond
	sent(0, 1, 0)
	sent(1*ms, 3, 0, 1, 2)
	sent(99*ms, 3, 2, 1)
	sent(100*ms, 3, 0) // of the period before
	sent(150*ms, 3, 0, 1)
	sent(200*ms, 2, 1) // the third has not been heard of
	sent(299*ms, 5, 4, 3, 2, 1, 0)
	sent(350*ms, 5, 0)
	sent(450*ms, 1, 0) // it alone, for a period and more
	sent(10*time.Second, 1, 3)
	sent(10*time.Second, 2, 3, 4)
}

// A turn is as long as the others leave it, and who is alone has no turns.
func TestTurns(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 0, 2: shared / 2, 10: shared / 10, 1000: shared / 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s share
				begin := time.Now()
				cs := make([]myShare, n)
				for i := range cs {
					s.senders(&cs[i], 0)
				}
				const flight = shared / 1000
				var began time.Duration
				for at := flight; at < shared; at += flight {
					time.Sleep(flight)
					s.next(&cs[0], begin, time.Since(begin))
					switch turn := time.Duration(cs[0].turn.Load()); {
					case turn == began:
						if want > 0 && at-began >= want {
							t.Fatalf("the turn goes on after %v, it is to end after %v", at-began, want)
						}
					case want == 0 || turn-began != want:
						t.Fatalf("the turn ended after %v, want %v", turn-began, want)
					default:
						began = turn
					}
				}
			})
		})
	}
}

// At the end of a turn what is ready to run does so.
func TestOthersRunAtTheEndOfATurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var s share
	begin := time.Now().Add(-time.Hour)
	var other, mine myShare
	s.senders(&other, time.Since(begin))
	done := make(chan struct{})
	go close(done)
	for range 3 { // the runtime may choose us again, but not each time
		s.next(&mine, begin, time.Since(begin))
		mine.turn.Store(0)
	}
	select {
	case <-done:
	default:
		t.Error("it did not run")
	}
}
