package quic

import (
	"fmt"
	"testing"
	"time"
)

// A NAT changes the client's port, or its address, again and again while much is carried,
// up or down: every byte arrives, as it was, and it does not take much longer than on a
// path that stays.
func TestRebindingDuringTransfer(t *testing.T) {
	for _, what := range []string{"port", "address"} {
		for _, way := range []string{"up", "down"} {
			t.Run(what+" "+way, func(t *testing.T) {
				onTheMove(t, nil, nil, func(t *testing.T, m *moving) {
					done := make(chan struct{})
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						for i := 1; ; i++ {
							select {
							case <-done:
								return
							case <-time.After(2 * time.Second):
							}
							if what == "port" {
								m.rebind(m.clientSocket, "192.0.2.1", 2000+i)
							} else {
								m.rebind(m.clientSocket, fmt.Sprintf("192.0.2.%d", i), 2000)
							}
						}
					}()
					m.setHook(slowly(2 << 20))
					from, to := m.c, m.s
					if way == "down" {
						from, to = to, from
					}
					took := m.carry(from, to, 20<<20)
					close(done)
					<-gone
					t.Logf("%v, %d moves", took, m.moves)
					if m.moves < 3 {
						t.Errorf("the client moved %d times only", m.moves)
					}
					if took > 25*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// slowly lets a number of bytes a second pass in each direction, with a queue of 100 ms.
func slowly(rate int) func(*moveDatagram) {
	free := map[string]time.Time{}
	return func(d *moveDatagram) {
		now, key := time.Now(), "down"
		if to := d.to.String(); to == anycast || to == unicast {
			key = "up"
		}
		at := free[key]
		if at.Before(now) {
			at = now
		}
		if at.Sub(now) > 100*time.Millisecond {
			d.lose = true
			return
		}
		at = at.Add(time.Duration(len(d.b)) * time.Second / time.Duration(rate))
		free[key] = at
		d.delay += at.Sub(now)
	}
}
