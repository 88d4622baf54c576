package sender

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/udp"
)

// Many goroutines write, send from sources that sleep, answer in part or are not ready, change
// how they emit and cancel, over a bad network and a full socket, with real congestion control
// and pacing. Every byte of a stream that was not cancelled arrives, soon, and nobody spins.
func TestAllTogether(t *testing.T) {
	n := 30
	if testing.Short() || raced {
		n = 8
	}
	for range n {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("%#x", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { together(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func together(t *testing.T, r *rand.Rand) {
	c := newConn(t, setup{dst: 8, real: true, size: []int{1200, 1452, 16376}[r.IntN(3)], plain: r.IntN(4) == 0})
	loss, full := r.IntN(5), r.IntN(10)
	var mu sync.Mutex // of r
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(100) < percent
	}
	below := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	c.send = func(s udp.Sending) (v udp.Verdict) {
		if chance(full) {
			v = udp.Verdict{Err: syscall.EAGAIN, Take: below(s.Datagrams())}
		}
		return v
	}
	c.serve(rtt, func(int64) bool { return chance(loss) })
	type end struct {
		s      *testStream
		n      int64
		cancel bool // it is, or will be
	}
	streams := 1 + below(8)
	ends := make(chan end, streams)
	for i := range streams {
		s := c.open(int64(4*i), plenty)
		size := int64(below(300_000))
		cancel := below(8) == 0
		tuning := emit.Tuning{Mode: emit.Mode(below(5)), MaxDatagrams: below(11), Reread: below(2) == 0}
		c.do(func() { s.st.SetTuning(tuning) })
		if cancel {
			time.AfterFunc(time.Duration(below(200))*time.Millisecond, func() { s.Cancel(3) })
		}
		if below(3) == 0 {
			go func() {
				for n := int64(0); n < size; {
					k := min(int64(1+below(60_000)), size-n)
					if _, err := s.Write(bytesOf(s.ID(), n, int(k))); err != nil {
						break
					}
					n += k
					if chance(20) {
						time.Sleep(time.Duration(below(30)) * time.Millisecond)
					}
				}
				ends <- end{s, size, cancel}
			}()
			continue
		}
		src := c.source(s, size)
		zero := false
		src.answer = func(k call) (int, error) {
			if chance(20) {
				time.Sleep(time.Duration(below(5000)) * time.Microsecond)
			}
			n, err := src.all(k)
			switch p := below(100); {
			case n == 0:
			case p < 10:
				time.AfterFunc(time.Duration(below(20))*time.Millisecond, func() { c.do(s.st.Ready) })
				n, err = below(n), emit.ErrNotReady
			case p < 30:
				n, err = 1+below(n), nil
			case p < 35 && !zero:
				zero = true
				return 0, nil
			case p < 38:
				tuning := emit.Tuning{Mode: emit.Mode(below(5)), MaxDatagrams: below(11)}
				c.do(func() { s.st.SetTuning(tuning) })
			}
			zero = zero && n == 0
			return n, err
		}
		go func() {
			n, err := s.st.SendFrom(context.Background(), both{vector{src}, lender{src}}, 0, -1, emit.Options{})
			if !cancel && (err != nil || n != size) {
				t.Errorf("stream %d: %d of %d bytes, %v", s.ID(), n, size, err)
			}
			ends <- end{s, size, cancel}
		}()
	}
	for range streams {
		var e end
		select {
		case e = <-ends:
		case <-time.After(10 * time.Minute):
			t.Fatal("it hangs")
		}
		if e.cancel {
			continue
		}
		if err := e.s.Close(); err != nil {
			t.Error(err)
		}
		defer c.whole(e.s.ID(), e.n, true)
	}
	time.Sleep(10 * time.Minute)
	c.do(func() {
		if n := c.rec.BytesInFlight(); n != 0 || c.x.Unsent() != 0 {
			t.Errorf("%d bytes in flight, %d unsent", n, c.x.Unsent())
		}
	})
	c.stop(io.EOF)
	time.Sleep(time.Second)
}
