package quic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/experiment"
)

// ackedTransfer is how a transfer went.
type ackedTransfer struct {
	took time.Duration
	back int // datagrams from the receiver
	pto  uint64
}

func (r ackedTransfer) String() string {
	return fmt.Sprintf("%v, %d datagrams back, %d probe timeouts", r.took, r.back, r.pto)
}

// transferAcked sends size bytes from client to server over a link, with the ACK frequency
// extension or plain, without it.
func transferAcked(t *testing.T, seed uint64, plain bool, link func(*direction), size int64) (r ackedTransfer) {
	experiment.AckFrequencyOff.Store(plain)
	defer experiment.AckFrequencyOff.Store(false)
	virtualWith(t, seed, func(w *world) {
		w.both(link)
		conf := w.wide()
		c, s := w.connect(conf, conf)
		before := w.down.now().sent
		r.took = w.transfer(c, s, waysToSend[0].send, patternOf(60, 0), size)
		r.back = w.down.now().sent - before
		c.mu.Lock()
		r.pto = c.rec.Stats().PTOs
		c.mu.Unlock()
	})
	return r
}

// With fewer ACKs bulk is as fast, from the first packet on, and there are fewer.
func TestNetworkFewerAcks(t *testing.T) {
	const rate = 100e6 / 8
	for _, tt := range []struct {
		name  string
		delay time.Duration // one way
		queue int           // bytes
		size  int64
		back  float64 // of the datagrams that come back without the extension, at most
		took  float64 // of the time that it takes without
	}{
		{"slow start", 25 * time.Millisecond, rate / 20, 1 << 20, 1, 1.03},
		{"slow start and its end", 25 * time.Millisecond, rate / 20, 4 << 20, 0.7, 1.03},
		{"long", 25 * time.Millisecond, rate / 20, 40 << 20, 0.25, 1.03},
		{"short queue", 25 * time.Millisecond, rate / 100, 20 << 20, 0.5, 1.06},
		{"short path", time.Millisecond, rate / 50, 20 << 20, 0.5, 1.03},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			link := func(d *direction) { d.delay, d.rate, d.queue = tt.delay, rate, tt.queue }
			size := less(tt.size)
			with := transferAcked(t, seed, false, link, size)
			plain := transferAcked(t, seed, true, link, size)
			t.Logf("with: %v; without: %v", with, plain)
			if float64(with.took) > tt.took*float64(plain.took) {
				t.Errorf("it takes %v, and %v without", with.took, plain.took)
			}
			if with.back > int(tt.back*float64(plain.back)) && !raceDetector {
				t.Errorf("%d datagrams come back, and %d without", with.back, plain.back)
			}
			if with.pto > plain.pto {
				t.Errorf("%d probe timeouts, and %d without", with.pto, plain.pto)
			}
		})
	}
}

// Where packets are lost, ACKs among them, it is as fast as before, too.
func TestNetworkFewerAcksWithLoss(t *testing.T) {
	const rate = 100e6 / 8
	for _, loss := range []float64{0.001, 0.01} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			link := func(d *direction) { d.delay, d.rate, d.queue, d.lose = 25*time.Millisecond, rate, rate/20, loss }
			var with, plain time.Duration
			for range less(30) {
				seed := rand.Uint64()
				a, b := transferAcked(t, seed, false, link, 4<<20), transferAcked(t, seed, true, link, 4<<20)
				t.Logf("seed %#x: with: %v; without: %v", seed, a, b)
				with += a.took
				plain += b.took
			}
			if float64(with) > 1.05*float64(plain) {
				t.Errorf("they take %v, and %v without", with, plain)
			}
		})
	}
}

// A request and its answer take no longer after bulk in either direction, nor does
// anything on a connection that never had any.
func TestNetworkFewerAcksAndRequests(t *testing.T) {
	for _, bulk := range []int64{0, 4 << 20} {
		t.Run(fmt.Sprintf("after %d bytes", bulk), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			var took [2]time.Duration
			for i, plain := range []bool{false, true} {
				experiment.AckFrequencyOff.Store(plain)
				defer experiment.AckFrequencyOff.Store(false)
				virtualWith(t, seed, func(w *world) {
					w.both(func(d *direction) { d.delay, d.rate = 10*time.Millisecond, 100e6/8 })
					conf := w.wide()
					c, s := w.connect(conf, conf)
					if bulk > 0 {
						w.transfer(c, s, waysToSend[0].send, patternOf(61, 0), bulk)
						w.transfer(s, c, waysToSend[0].send, patternOf(61, 1), bulk)
					}
					for n := range int64(200) {
						took[i] += w.transfer(c, s, waysToSend[0].send, patternOf(62, 0), 100+n)
						took[i] += w.transfer(s, c, waysToSend[0].send, patternOf(62, 1), 100*(100+n))
					}
				})
			}
			if took[0] > took[1]+took[1]/200 {
				t.Errorf("all took %v, and %v without", took[0], took[1])
			}
		})
	}
}
