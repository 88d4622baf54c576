package quic

import (
	"testing"
	"time"
)

// troubles are what a network may do to a transfer. within is the virtual time in which
// 2 MB must get through.
var troubles = []struct {
	name   string
	make   func(w *world)
	within time.Duration
}{
	{"none", func(w *world) {}, 500 * time.Millisecond},
	{"1 % loss", func(w *world) { w.both(func(d *direction) { d.lose = 0.01 }) }, 10 * time.Second},
	{"10 % loss", func(w *world) { w.both(func(d *direction) { d.lose = 0.10 }) }, 45 * time.Second},
	{"reordering", func(w *world) { w.both(func(d *direction) { d.late = 0.05 }) }, 8 * time.Second},
	{"jitter", func(w *world) { w.both(func(d *direction) { d.jitter = 20 * time.Millisecond }) }, 20 * time.Second},
	{"duplication", func(w *world) { w.both(func(d *direction) { d.double = 0.20 }) }, 500 * time.Millisecond},
	{"corruption", func(w *world) { w.both(func(d *direction) { d.damage = 0.05 }) }, 20 * time.Second},
	{"all together", func(w *world) {
		w.both(func(d *direction) {
			d.lose, d.late, d.double, d.damage, d.jitter = 0.02, 0.02, 0.02, 0.02, 2*time.Millisecond
		})
	}, 30 * time.Second},
	{"a slow link with a short queue", func(w *world) {
		w.both(func(d *direction) { d.rate, d.queue = 1e6, 30000 })
	}, 3 * time.Second},
	{"small datagrams only", func(w *world) { w.both(func(d *direction) { d.mtu = 1300 }) }, 500 * time.Millisecond},
}

// Whatever the way to send and whatever the network does: the bytes arrive as they were.
func TestNetworkTransfer(t *testing.T) {
	size := less[int64](2_000_000)
	for _, trouble := range troubles {
		for i, way := range waysToSend {
			t.Run(trouble.name+"/"+way.name, func(t *testing.T) {
				virtual(t, func(w *world) {
					trouble.make(w)
					w.sniff()
					c, s := w.connect(nil, nil)
					for _, dir := range [][2]*Conn{{c, s}, {s, c}} {
						if took := w.transfer(dir[0], dir[1], way.send, patternOf(6, uint64(i)), size); took > trouble.within {
							w.Errorf("it took %v", took)
						}
					}
				})
			})
		}
	}
}
