package recovery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

const ms = time.Millisecond

// t0 is when every test begins; at is a time after it.
var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// bytesOf is a Data that counts what it hears, byte by byte.
type bytesOf struct {
	acked, lost       []int
	finAcked, finLost int
	calls             []string
}

func newBytes(n int) *bytesOf { return &bytesOf{acked: make([]int, n), lost: make([]int, n)} }

func (b *bytesOf) OnAcked(off int64, n int, fin bool) {
	count(b.acked, off, n)
	if fin {
		b.finAcked++
	}
	b.calls = append(b.calls, call("acked", off, n, fin))
}

func (b *bytesOf) OnLost(off int64, n int, fin bool) {
	count(b.lost, off, n)
	if fin {
		b.finLost++
	}
	b.calls = append(b.calls, call("lost", off, n, fin))
}

func count(c []int, off int64, n int) {
	for i := range c[off : off+int64(n)] {
		c[off+int64(i)]++
	}
}

func call(what string, off int64, n int, fin bool) string {
	s := fmt.Sprintf("%s %d+%d", what, off, n)
	if fin {
		s += " fin"
	}
	return s
}

// heard gives the calls since the last time.
func (b *bytesOf) heard() []string {
	c := b.calls
	b.calls = nil
	return c
}

// frames is an Owner that counts by Frame.ID.
type frames struct{ acked, lost map[int64]int }

func newFrames() *frames { return &frames{map[int64]int{}, map[int64]int{}} }

func (f *frames) FrameAcked(fr Frame) { f.acked[fr.ID]++ }
func (f *frames) FrameLost(fr Frame)  { f.lost[fr.ID]++ }

// listener is a Controller that only takes notes.
type listener struct {
	sent     int
	acks     []congestion.Ack
	losses   []congestion.Loss
	spurious []congestion.Spurious
	ecn      []time.Time
}

func (l *listener) OnSent(_ time.Time, bytes, _ int)  { l.sent += bytes }
func (l *listener) OnAck(a congestion.Ack)            { l.acks = append(l.acks, a) }
func (l *listener) OnLoss(x congestion.Loss)          { l.losses = append(l.losses, x) }
func (l *listener) OnSpurious(s congestion.Spurious)  { l.spurious = append(l.spurious, s) }
func (l *listener) OnECN(_ time.Time, sent time.Time) { l.ecn = append(l.ecn, sent) }
func (l *listener) Window() int                       { return 1 << 30 }
func (l *listener) InSlowStart() bool                 { return false }
func (l *listener) SetDatagramSize(int)               {}
func (l *listener) lastLoss() (none congestion.Loss) {
	if len(l.losses) == 0 {
		return none
	}
	return l.losses[len(l.losses)-1]
}

// talk is one connection in a scripted test.
type talk struct {
	*testing.T
	*Recovery
	ctl   *listener
	owner *frames
}

func client(t *testing.T) *talk { return newTalk(t, true) }
func server(t *testing.T) *talk { return newTalk(t, false) }

// established is a client whose handshake is over, with an RTT of 100 ms, a
// variation of 0 and a peer that delays nothing, so that the PTO is 101 ms.
func established(t *testing.T) *talk {
	c := client(t)
	c.SetHandshakeConfirmed()
	c.SetMaxAckDelay(0)
	c.rtt = RTT{Latest: 100 * ms, Min: 100 * ms, Smoothed: 100 * ms, Has: true}
	c.firstRTT = at(-time.Second)
	return c
}

func newTalk(t *testing.T, client bool) *talk {
	k := &talk{T: t, ctl: &listener{}, owner: newFrames()}
	k.Recovery = New(Config{IsClient: client, Owner: k.owner, Controller: k.ctl})
	return k
}

// packets is a train of n ack-eliciting packets of size bytes, without frames.
func (k *talk) packets(n int, size uint16) *Train {
	t := k.NewTrain()
	t.N = n
	t.Eliciting, t.InFlight = below(n), below(n)
	for i := range n {
		t.Sizes[i] = size
	}
	return t
}

// send sends n ack-eliciting packets of 1000 bytes, each its own train.
func (k *talk) send(sp Space, n int, d time.Duration) {
	for range n {
		k.OnSent(sp, []*Train{k.packets(1, 1000)}, at(d))
	}
}

// sendData sends one train that carries lens of data.
func (k *talk) sendData(data Data, off int64, fin bool, d time.Duration, lens ...uint16) {
	t := k.packets(len(lens), 1000)
	t.Data, t.Off, t.Fin = data, off, fin
	copy(t.Lens[:], lens)
	k.OnSent(App, []*Train{t}, at(d))
}

// ack acknowledges ranges given as lo, hi pairs in descending order.
func (k *talk) ack(sp Space, d time.Duration, pairs ...int64) AckResult {
	k.Helper()
	res, err := k.OnAck(sp, frame(pairs...), 0, at(d))
	if err != nil {
		k.Fatalf("ACK %v: %v", pairs, err)
	}
	if k.BytesInFlight() < 0 {
		k.Fatalf("ACK %v: %d bytes in flight", pairs, k.BytesInFlight())
	}
	return res
}

func frame(pairs ...int64) *wire.Ack {
	a := &wire.Ack{}
	for i := 0; i < len(pairs); i += 2 {
		a.Ranges = append(a.Ranges, wire.AckRange{Lo: pairs[i], Hi: pairs[i+1]})
	}
	return a
}

func (k *talk) wantTimer(what string, want time.Time) {
	k.Helper()
	if got := k.Timer(); !got.Equal(want) {
		k.Fatalf("%s: timer at %v, want %v", what, got.Sub(t0), want.Sub(t0))
	}
}

func (k *talk) wantInFlight(want int) {
	k.Helper()
	if got := k.BytesInFlight(); got != want {
		k.Fatalf("%d bytes in flight, want %d", got, want)
	}
}

func (b *bytesOf) want(t *talk, want ...string) {
	t.Helper()
	if got := b.heard(); !slices.Equal(got, want) {
		t.Fatalf("the stream heard %q, want %q", got, want)
	}
}
