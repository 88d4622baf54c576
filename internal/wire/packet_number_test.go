package wire

import "testing"

func TestPNLenAtItsBorders(t *testing.T) {
	// RFC 9000 §17.1: more than twice the distance must be representable.
	for _, tt := range []struct {
		distance int64
		want     int
	}{
		{1, 1}, {127, 1}, {128, 2}, {1<<15 - 1, 2}, {1 << 15, 3}, {1<<23 - 1, 3}, {1 << 23, 4}, {1<<31 - 1, 4},
	} {
		for _, acked := range []int64{-1, 0, 1, 1 << 40} {
			if got := PNLen(acked+tt.distance, acked); got != tt.want {
				t.Errorf("%d after %d: %d bytes, want %d", acked+tt.distance, acked, got, tt.want)
			}
		}
	}
}

func TestPacketNumbersSurviveTruncation(t *testing.T) {
	// A receiver has seen anything between what it acknowledged and the number
	// that arrives; with PNLen's length it always recovers that number. It has
	// perhaps even seen as many after it.
	r := newRandom(t)
	for range 20000 {
		acked := r.int63() - 1
		distance := 1 + r.int63()%(1<<31-1)
		pn := acked + distance
		if pn > MaxVarint {
			continue
		}
		n := PNLen(pn, acked)
		truncated := pn & (1<<(8*n) - 1)
		for _, largest := range []int64{acked, pn - 1, acked + r.Int64N(distance), min(pn+r.Int64N(distance), MaxVarint)} {
			if got := DecodePN(largest, truncated, n); got != pn {
				t.Fatalf("%d in %d bytes, acknowledged %d, largest received %d: decoded as %d", pn, n, acked, largest, got)
			}
		}
	}
}

func TestDecodePNIsTheClosestToWhatIsExpected(t *testing.T) {
	// The definition in RFC 9000 §17.1, by looking at all candidates around.
	r := newRandom(t)
	for range 20000 {
		largest := r.int63() - 1
		n := 1 + r.IntN(4)
		win := int64(1) << (8 * n)
		truncated := r.Int64N(win)
		got := DecodePN(largest, truncated, n)
		if got < 0 || got > MaxVarint || got&(win-1) != truncated {
			t.Fatalf("DecodePN(%d, %d, %d) = %d", largest, truncated, n, got)
		}
		distance := func(pn int64) int64 { return max(pn-(largest+1), largest+1-pn) }
		for _, other := range []int64{got - win, got + win} {
			if other >= 0 && other <= MaxVarint-win && distance(other) < distance(got) {
				t.Fatalf("DecodePN(%d, %d, %d) = %d, but %d is closer", largest, truncated, n, got, other)
			}
		}
	}
}

func TestDecodePNOfTheFirstPacket(t *testing.T) {
	for pn := range int64(256) {
		if got := DecodePN(-1, pn, 1); got != pn {
			t.Errorf("0x%02x with nothing received is %d", pn, got)
		}
	}
}
