package sender

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// What a source gave before SetReliableBoundary arrives though the stream is cancelled, and
// the source is not asked any more; where nobody keeps the bytes, up to the first that is
// lost. The peer checks that nothing else is sent after the reset.
func TestResetSparesBytesOfASource(t *testing.T) {
	for _, tuning := range modes {
		for _, percent := range []int{0, 30} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("%s, %d %% lost, seed %#x", name(tuning), percent, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 0))
				for mark := 1; mark <= 20; mark++ {
					synctest.Test(t, func(t *testing.T) { sparedSource(t, r, tuning, percent, mark) })
				}
			})
		}
	}
}

func sparedSource(t *testing.T, r *rand.Rand, tuning emit.Tuning, percent, mark int) {
	c := newConn(t, setup{dst: 4})
	lost := 0
	c.serve(rtt, func(pn int64) bool {
		if lost < 200 && r.IntN(100) < percent {
			lost++
			return true
		}
		return false
	})
	s, other := c.open(0, plenty), c.open(4, plenty)
	c.do(func() {
		s.st.SetTuning(tuning)
		s.AllowResetAt()
	})
	src := c.source(s, 4_000_000)
	var boundary int64
	end := mark + r.IntN(5)
	wait := time.Duration(r.IntN(3)) * rtt
	if r.IntN(2) == 0 {
		c.cc.bytes = (1 + r.IntN(20)) * 1452 // sources run ahead of it
	}
	src.answer = func(k call) (int, error) {
		if len(src.calls) == mark {
			c.do(func() { boundary = s.NewOffset() })
			s.SetReliableBoundary()
		}
		if len(src.calls) == end {
			s.Cancel(9)
			time.Sleep(wait) // the stream goes on, with its source still in the call
		}
		return src.all(k)
	}
	var w watcher
	w.c = c
	if o := ended(t, c.start(s, src, 0, -1, false, append(w.options(), emit.End())...)); o.err == nil {
		t.Error(o)
	}
	if _, err := other.Write(bytesOf(4, 0, 100_000)); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Minute)
	if len(src.calls) != end {
		t.Errorf("%d calls, the stream was reset in number %d", len(src.calls), end)
	}
	c.whole(4, 100_000, false)

	c.peer.mu.Lock()
	a := c.peer.stream(0)
	switch {
	case !a.reset || a.fins > 0:
		t.Error("not reset")
	case a.reliable > boundary:
		t.Errorf("%d bytes are reliable, marked were %d", a.reliable, boundary)
	case a.reliable < boundary && (!tuning.Reread && tuning.Mode == emit.Scatter || percent == 0):
		t.Errorf("%d bytes are reliable of %d", a.reliable, boundary)
	case slices.Contains(a.has[:a.reliable], false):
		t.Errorf("of %d reliable bytes some did not arrive", a.reliable)
	}
	used := c.peer.used
	c.peer.mu.Unlock()
	c.do(func() {
		if c.x.used != used || c.x.unsent != 0 {
			t.Errorf("%d bytes of credit used, %d arrived; %d unsent", c.x.used, used, c.x.unsent)
		}
		if !slices.Contains(c.done, 0) {
			t.Error("the stream is not over")
		}
	})
	// OnAcked is never told of bytes that may not have arrived.
	for i, off := range w.acked {
		if i > 0 && off <= w.acked[i-1] || off > int64(len(a.data)) {
			t.Errorf("OnAcked was told %v", w.acked)
		}
	}
	if len(w.told()) != 1 {
		t.Errorf("OnRelease was told %v", w.told())
	}
}
