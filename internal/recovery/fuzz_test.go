package recovery

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// FuzzOnAck feeds arbitrary ranges, counts and delays to a connection that has
// trains in every state. Nothing may panic; an error must be one that closes
// the connection and must leave everything as it was.
func FuzzOnAck(f *testing.F) {
	seed := func(nums ...int64) (b []byte) {
		for _, n := range nums {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	f.Add(seed(100, 110, 50, 60), int64(0), uint64(0))
	f.Add(seed(0, 1<<62-1), int64(-1), uint64(1))
	f.Add(seed(119, 119, 112, 117, 0, 98), int64(1<<62), uint64(1<<62-1))
	f.Add(seed(5, 3, -1, 7), int64(5), uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, delay int64, counts uint64) {
		ctl := &listener{}
		r := New(Config{Owner: newFrames(), Controller: ctl})
		r.SetHandshakeConfirmed()
		s := newBytes(10000)
		off := int64(0)
		for i := range 20 { // numbers 0..119
			n := []int{1, 10, 4, 8}[i%4]
			tr := r.NewTrain()
			tr.N, tr.Data, tr.Off, tr.Fin = n, s, off, i%5 == 0
			tr.Eliciting, tr.InFlight = below(n), below(n)
			tr.ECT0 = counts&1 != 0
			for k := range n {
				tr.Lens[k], tr.Sizes[k] = 10, 1000
			}
			off += int64(10 * n)
			tr.Extra = append(tr.Extra, Extra{I: uint8(n - 1), Frame: Frame{Kind: 1, ID: int64(i)}})
			r.OnSent(App, []*Train{tr}, at(time.Duration(i)*ms))
			if i%6 == 5 {
				r.Skip(App)
			}
		}
		next := r.NextPN(App)
		r.OnUnsent(App, next-2, next-2)
		if _, err := r.OnAck(App, frame(40, 44, 20, 30), 0, at(50*ms)); err != nil {
			t.Fatal(err) // the set-up acknowledges a skipped number
		}
		ack := &wire.Ack{ECN: counts != 0, ECT0: counts, CE: counts >> 7, ECT1: counts >> 50}
		for ; len(b) >= 16; b = b[16:] {
			ack.Ranges = append(ack.Ranges, wire.AckRange{
				Lo: int64(binary.BigEndian.Uint64(b)), Hi: int64(binary.BigEndian.Uint64(b[8:]))})
		}
		for i := range 3 {
			before, largest, acks := r.BytesInFlight(), r.LargestAcked(App), len(ctl.acks)
			_, err := r.OnAck(App, ack, time.Duration(delay), at(time.Duration(60+i)*ms))
			if err != nil {
				var e *wire.Error
				if !errors.As(err, &e) || e.Code == wire.NoError {
					t.Fatalf("%v does not close the connection", err)
				}
				if r.BytesInFlight() != before || r.LargestAcked(App) != largest || len(ctl.acks) != acks {
					t.Fatal("a refused ACK changed something")
				}
			}
			if n := r.BytesInFlight(); n < 0 || n > before {
				t.Fatalf("%d bytes in flight, %d before", n, before)
			}
			r.OnTimer(at(time.Duration(100+i) * ms))
		}
		for i := range s.acked {
			if s.acked[i] > 1 || s.lost[i] > 1 {
				t.Fatalf("byte %d was acked %d times and lost %d times", i, s.acked[i], s.lost[i])
			}
		}
		if r.RTT().Smoothed <= 0 || r.PTO(App) < ms {
			t.Fatalf("RTT %+v", *r.RTT())
		}
	})
}
