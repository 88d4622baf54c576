package recovery

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// TestTrainsAgainstPackets plays random connections to trains and to the naive
// map of packets, and wants both to say the same at every step: to streams and
// owners, byte by byte, and to the congestion controller, event by event.
func TestTrainsAgainstPackets(t *testing.T) {
	runs, steps := 60, 400
	if testing.Short() {
		runs = 10
	}
	for range runs {
		seed := rand.Uint64()
		if !t.Run("", func(t *testing.T) { differ(t, seed, steps) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestTrainsAgainstPacketsFixedSeeds(t *testing.T) {
	for seed := range uint64(20) {
		if !t.Run("", func(t *testing.T) { differ(t, seed, 400) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

type duel struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	r     *Recovery
	ctl   *listener
	owner *frames
	n     *naive

	pairs       [][2]*bytesOf // what trains told, what packets told
	ids         int64
	first, last [NumSpaces]int64 // latest flight
	space       func() Space
	several     bool
}

func differ(t *testing.T, seed uint64, steps int) {
	d := &duel{t: t, rng: rand.New(rand.NewPCG(seed, 0)), now: t0, ctl: &listener{}, owner: newFrames(), n: newNaive()}
	d.r = New(Config{Owner: d.owner, Controller: d.ctl})
	d.r.SetHandshakeConfirmed()
	d.space = func() Space { return App }
	if d.several = d.rng.IntN(5) == 0; d.several {
		d.space = func() Space { return Space(d.rng.IntN(int(NumSpaces))) }
	}
	// How a run is: how often ACKs come, how much is lost, how slow it goes.
	ackEvery := 1 + d.rng.IntN(6)
	keepAcks := 0.3 + 0.7*d.rng.Float64()
	pace := time.Duration(1+d.rng.IntN(40)) * ms
	for step := range steps {
		d.now = d.now.Add(time.Duration(d.rng.Int64N(int64(pace))))
		if d.rng.IntN(50) == 0 {
			d.now = d.now.Add(time.Duration(d.rng.Int64N(int64(time.Second))))
		}
		switch k := d.rng.IntN(20); {
		case k < 8:
			d.send()
		case k < 9:
			sp := d.space()
			d.n.spaces[sp].neverSent[d.r.NextPN(sp)] = true
			d.n.spaces[sp].next++
			d.r.Skip(sp)
		case k < 10:
			d.unsend()
		case k < 11:
			d.restamp()
		case k < 12:
			d.forgedAck()
		case k < 14:
			if tm := d.r.Timer(); !tm.IsZero() && tm.After(d.now) && d.rng.IntN(2) == 0 {
				d.now = tm
			}
			d.r.OnTimer(d.now)
			d.n.onTimer(d.now)
		default:
			if d.rng.IntN(ackEvery) == 0 {
				d.ack(keepAcks)
			}
		}
		d.compare(step, step%20 == 0 || step == steps-1)
	}
}

func (d *duel) data(n int) [2]*bytesOf {
	p := [2]*bytesOf{newBytes(n), newBytes(n)}
	d.pairs = append(d.pairs, p)
	return p
}

func (d *duel) send() {
	sp := d.space()
	var trains []*Train
	var groups [][]*naivePacket
	for range 1 + d.rng.IntN(4) {
		tr := d.r.NewTrain()
		tr.N = 1 + d.rng.IntN(10)
		kind := d.rng.IntN(10)
		if kind == 0 {
			tr.N, tr.Probe = 1, true
		}
		g := make([]*naivePacket, tr.N)
		tells := make([][]func(bool), tr.N)
		for i := range g {
			tr.Sizes[i] = uint16(100 + d.rng.IntN(1300))
			if kind > 1 || d.rng.IntN(4) > 0 { // kind 1: some ACK-only packets
				tr.InFlight |= 1 << i
				if d.rng.IntN(20) > 0 { // but not PADDING alone
					tr.Eliciting |= 1 << i
				}
			}
			g[i] = &naivePacket{size: int(tr.Sizes[i]), probe: tr.Probe,
				inFlight: tr.InFlight>>i&1 != 0, eliciting: tr.Eliciting>>i&1 != 0}
		}
		if kind > 2 {
			total := 0
			for i := range g {
				if d.rng.IntN(8) > 0 || i == tr.N-1 {
					tr.Lens[i] = uint16(1 + d.rng.IntN(6))
				}
				total += int(tr.Lens[i])
			}
			tr.Fin = d.rng.IntN(3) == 0
			if tr.Fin && d.rng.IntN(4) == 0 { // a FIN alone at the end
				total -= int(tr.Lens[tr.N-1])
				if tr.Lens[tr.N-1] = 0; tr.N > 1 && tr.Lens[tr.N-2] == 0 {
					tr.Fin = false // its place could not be told
				}
				if tr.N > 1 {
					tr.Fin = false
				}
			}
			tr.Off = int64(d.rng.IntN(5))
			p := d.data(total + int(tr.Off))
			tr.Data = p[0]
			off := tr.Off
			for i := range g {
				o, n, fin := off, int(tr.Lens[i]), tr.Fin && i == tr.N-1
				off += int64(n)
				if n > 0 || fin {
					tells[i] = append(tells[i], func(acked bool) { tellData(p[1], o, n, fin, acked) })
				}
			}
		}
		for i := range g {
			for d.rng.IntN(3) == 0 {
				if d.rng.IntN(2) == 0 {
					d.ids++
					f := Frame{Kind: 1, ID: d.ids}
					tr.Extra = append(tr.Extra, Extra{I: uint8(i), Frame: f})
					g[i].frames = append(g[i].frames, f)
					tells[i] = append(tells[i], func(acked bool) {
						if acked {
							d.n.owner.FrameAcked(f)
						} else {
							d.n.owner.FrameLost(f)
						}
					})
					continue
				}
				// Another pass's bytes in a shared packet.
				n, fin := d.rng.IntN(4), d.rng.IntN(4) == 0
				p := d.data(n)
				tr.Extra = append(tr.Extra, Extra{I: uint8(i), Data: p[0], Len: n, Fin: fin})
				tells[i] = append(tells[i], func(acked bool) { tellData(p[1], 0, n, fin, acked) })
			}
			g[i].tell = func(acked bool) {
				for _, f := range tells[i] {
					f(acked)
				}
			}
		}
		trains, groups = append(trains, tr), append(groups, g)
	}
	d.first[sp] = d.r.NextPN(sp)
	d.r.OnSent(sp, trains, d.now)
	d.n.send(sp, groups, d.now)
	d.last[sp] = d.r.NextPN(sp) - 1
}

// part is some of the latest flight, if nothing was sent since. It ends where
// the flight ends, as when the kernel takes the first packets only.
func (d *duel) part(sp Space) (first, last int64, ok bool) {
	if d.last[sp] != d.r.NextPN(sp)-1 || d.last[sp] <= d.r.LargestAcked(sp) || d.last[sp] == 0 {
		return 0, 0, false
	}
	from := max(d.first[sp], d.r.LargestAcked(sp)+1)
	if from > d.last[sp] {
		return 0, 0, false
	}
	return from + d.rng.Int64N(d.last[sp]-from+1), d.last[sp], true
}

func (d *duel) unsend() {
	sp := d.space()
	if first, last, ok := d.part(sp); ok {
		last = first + d.rng.Int64N(last-first+1)
		d.r.OnUnsent(sp, first, last)
		d.n.unsent(sp, first, last)
		d.first[sp] = last + 1 // no number is taken back twice
	}
}

func (d *duel) restamp() {
	sp := d.space()
	if first, last, ok := d.part(sp); ok {
		d.r.Restamp(sp, first, last, d.now)
		d.n.restamp(sp, first, last, d.now)
	}
}

// ack acknowledges some of the recent packets, whatever became of them.
func (d *duel) ack(keep float64) {
	sp := d.space()
	s := &d.n.spaces[sp]
	if len(s.sent) == 0 {
		return
	}
	reach := s.sent[max(0, len(s.sent)-1-d.rng.IntN(150)):]
	reach = reach[:1+d.rng.IntN(len(reach))]
	var ranges []wire.AckRange
	on := d.rng.Float64() < keep
	for i := len(reach) - 1; i >= 0; i-- {
		p := reach[i]
		if d.rng.IntN(6) == 0 {
			on = d.rng.Float64() < keep
		}
		if p.unsent || !on && len(ranges) > 0 {
			continue
		}
		if n := len(ranges); n > 0 && ranges[n-1].Lo == p.pn+1 {
			ranges[n-1].Lo = p.pn
		} else {
			ranges = append(ranges, wire.AckRange{Lo: p.pn, Hi: p.pn})
		}
	}
	if len(ranges) == 0 {
		return
	}
	limited := d.rng.IntN(2) == 0
	d.r.SetAppLimited(limited)
	delay := time.Duration(d.rng.Int64N(int64(40 * ms)))
	if _, err := d.r.OnAck(sp, &wire.Ack{Ranges: ranges}, delay, d.now); err != nil {
		d.t.Fatalf("ACK %v: %v", ranges, err)
	}
	d.n.ack(sp, ranges, delay, d.now, limited)
}

// forgedAck names a number that was never sent. It must change nothing.
func (d *duel) forgedAck() {
	sp := d.space()
	bad := d.r.NextPN(sp) + d.rng.Int64N(3)
	if skipped := slices.Sorted(maps.Keys(d.n.spaces[sp].neverSent)); len(skipped) > 0 && d.rng.IntN(4) > 0 {
		// Older ones may have been forgotten.
		bad = skipped[max(0, len(skipped)-1-d.rng.IntN(20))]
	}
	lo := max(0, bad-d.rng.Int64N(3))
	_, err := d.r.OnAck(sp, frame(lo, bad), 0, d.now)
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.ProtocolViolation {
		d.t.Fatalf("ACK of %d..%d, of which %d was never sent: %v", lo, bad, bad, err)
	}
}

func (d *duel) compare(step int, all bool) {
	d.t.Helper()
	same := func(what string, got, want any) {
		d.t.Helper()
		if !reflect.DeepEqual(got, want) {
			d.t.Fatalf("step %d: %s: trains %+v, packets %+v", step, what, got, want)
		}
	}
	if d.r.BytesInFlight() < 0 {
		d.t.Fatalf("step %d: %d bytes in flight", step, d.r.BytesInFlight())
	}
	same("bytes in flight", d.r.BytesInFlight(), d.n.inFlight)
	same("RTT", *d.r.RTT(), d.n.rtt)
	same("timer", d.r.Timer(), d.n.timer())
	for sp := range NumSpaces {
		same("next", d.r.NextPN(sp), d.n.spaces[sp].next)
		same("largest acked", d.r.LargestAcked(sp), d.n.spaces[sp].largestAcked)
	}
	same("acks", d.ctl.acks, d.n.acks)
	same("losses", d.ctl.losses, d.n.losses)
	same("spurious", d.ctl.spurious, d.n.spurious)
	d.ctl.acks, d.n.acks = nil, nil
	d.ctl.losses, d.n.losses = nil, nil
	d.ctl.spurious, d.n.spurious = nil, nil
	if !all {
		return
	}
	same("frames acked", d.owner.acked, d.n.owner.acked)
	same("frames lost", d.owner.lost, d.n.owner.lost)
	for _, p := range d.pairs {
		p[0].calls, p[1].calls = nil, nil
		same("data", p[0], p[1])
		for i := range p[0].acked {
			if p[0].acked[i] > 1 || p[0].lost[i] > 1 {
				d.t.Fatalf("step %d: a byte was acked %d times, lost %d times", step, p[0].acked[i], p[0].lost[i])
			}
		}
	}
}
