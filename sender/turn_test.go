package sender

import (
	"testing"
	"testing/synctest"
	"time"
)

// Streams that share take turns of a pass, and of up to a flight where that takes the path no
// time.
func TestTurnsAreAsLongAsNobodyNotices(t *testing.T) {
	for _, tt := range []struct {
		rtt         time.Duration // 100 datagrams, but for a few frames, are under way in it
		turn        int
		first, rest int // passes of each stream in the next flight
	}{
		{20 * time.Millisecond, 10, 2, 2},
		{time.Millisecond, 10, 2, 2},
		{500 * time.Microsecond, 19, 2, 2},
		{200 * time.Microsecond, 40, 4, 0},
		{time.Microsecond, 40, 4, 0},
	} {
		t.Run(tt.rtt.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{})
				flown := c.open(0, plenty)
				write := func(s *testStream, datagrams int) {
					t.Helper()
					s.SetWriteBuffer(1<<20, 1<<20)
					if _, err := s.Write(bytesOf(s.ID(), 0, datagrams*1420)); err != nil {
						t.Fatal(err)
					}
				}
				write(flown, 101)
				c.run()
				c.do(func() {
					if n := c.x.turn(); n != fullPass {
						t.Errorf("a turn is worth %d datagrams before the path is known", n)
					}
				})
				time.Sleep(tt.rtt)
				c.acked(0)
				var turn int
				c.do(func() { turn = c.x.turn() })
				if turn != tt.turn {
					t.Errorf("a turn is worth %d datagrams, want %d", turn, tt.turn)
				}

				a, b := c.open(4, plenty), c.open(8, plenty)
				c.do(func() { c.cc.bytes = 0 }) // nothing leaves as it is written
				write(a, 50)
				write(b, 50)
				c.do(func() { c.cc.bytes = plenty })
				c.x.Run(1)
				for s, want := range map[*testStream]int{a: tt.first, b: tt.rest} {
					if got := (c.peer.stream(s.ID()).bytes + 5000) / (10 * 1420); got != want {
						t.Errorf("%d passes of stream %d are in a flight, want %d", got, s.ID(), want)
					}
				}
			})
		})
	}
}
