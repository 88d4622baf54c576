package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/emit"
)

// pathTask is a transfer over a simulated path, run once for each seed.
type pathTask struct {
	Link        linkConfig
	First, Last uint64 // seeds
}

// pathRun is how one of them went, in simulated time.
type pathRun struct {
	Seed     uint64
	Elapsed  time.Duration // from the first write to the last byte read
	Lost     uint64        // packets that the sender declared lost
	Emission emit.Stats
}

// pathRuns runs a task's transfers, one after the other, in simulated time: what the
// machine needs for it, and whatever else it does meanwhile, makes no difference.
// Simulated time needs a *testing.T, which package testing gives to whoever brings
// his own tests.
func pathRuns(p *proc.Peer, t task) (any, error) {
	var runs []pathRun
	var failure error
	test := func(tt *testing.T) {
		for seed := t.Path.First; seed <= t.Path.Last; seed++ {
			synctest.Test(tt, func(*testing.T) {
				r, err := onPath(t, seed)
				if err != nil && failure == nil {
					failure = fmt.Errorf("seed %d: %w", seed, err)
				}
				runs = append(runs, r)
			})
		}
		// Main does not return.
		if failure != nil {
			p.Fail(failure)
		} else {
			p.Say(runs)
		}
	}
	if os.Stdout, _ = os.Open(os.DevNull); os.Stdout == nil {
		os.Stdout = os.Stderr // package testing's own words are not for our starter
	}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "path", F: test}}, nil, nil)
	return nil, errors.New("package testing came back")
}

// onPath is one transfer, from client to server.
func onPath(t task, seed uint64) (r pathRun, err error) {
	o, err := t.options()
	if err != nil {
		return r, err
	}
	a, b := newPath(t.Path.Link, seed)
	defer a.Close()
	defer b.Close()
	so, co := o, o
	so.packets, co.packets = a, b
	l, err := stacks[t.Stack].listen(so)
	if err != nil {
		return r, err
	}
	defer l.close()
	d, err := stacks[t.Stack].client(co)
	if err != nil {
		return r, err
	}
	defer d.close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()

	var end time.Time
	received := make(chan error, 1)
	go func() {
		received <- func() error {
			c, err := l.accept(ctx)
			if err != nil {
				return err
			}
			s, err := c.accept(ctx)
			if err != nil {
				return err
			}
			nothing := newGate(1, func() {})
			end := newGate(1, func() { end = time.Now() })
			return receiveStream(s, t, nothing, end)
		}()
	}()

	c, err := d.dial(ctx, t.Addr)
	if err != nil {
		return r, err
	}
	r.Seed = seed
	var start time.Time
	begin := newGate(1, func() { start = time.Now() })
	if err := sendStream(c, 0, t, begin, newGate(1, func() {}), &r.Emission); err != nil {
		return r, err
	}
	if err := <-received; err != nil {
		return r, err
	}
	r.Elapsed = end.Sub(start)
	r.Lost = c.traffic().Lost
	c.close()
	return r, nil
}

// The path of P13. The queue holds what the path holds in one round trip.
var p13Link = linkConfig{Rate: 100e6, Delay: 25 * time.Millisecond, Queue: 625000}

// p13Size is enough for a second and a half at full rate.
const p13Size = 20 << 20

// onPathOf runs a stack over a path with many seeds, in several processes.
func (b *bench) onPathOf(stack string, link linkConfig, size int64, seeds int, e *emission) ([]pathRun, error) {
	var all [2][]pathRun
	err := together(len(all), func(i int) (err error) {
		t := task{
			Role: "path", Stack: stack, Cert: b.cert, Addr: "10.0.0.1:4433", Streams: 1, Size: size, Emission: e,
			Path: &pathTask{Link: link, First: uint64(1 + i*seeds/2), Last: uint64((i + 1) * seeds / 2)},
		}
		if t.Path.First <= t.Path.Last {
			all[i], err = alone[[]pathRun](t)
		}
		return err
	})
	return slices.Concat(all[0], all[1]), err
}

func p13(b *bench, r *result) error {
	for _, loss := range []float64{0, 0.001, 0.01} {
		link := p13Link
		link.Loss = loss
		goodput := make(map[string][]float64)
		for _, name := range []string{volley, quicgo} {
			runs, err := b.onPathOf(name, link, p13Size, b.seeds, nil)
			if err != nil {
				return fmt.Errorf("%s, %g loss: %w", name, loss, err)
			}
			goodput[name] = each(runs, func(x pathRun) float64 { return 8 * p13Size / 1e6 / x.Elapsed.Seconds() })
			lost := each(runs, func(x pathRun) float64 { return float64(x.Lost) })
			g := goodput[name]
			note := fmt.Sprintf("%.1f %% lost, %s: mean %.2f Mbit/s, from %.2f to %.2f, %d seeds; packets declared lost: %.0f on average",
				100*loss, name, mean(g), slices.Min(g), slices.Max(g), len(g), mean(lost))
			fmt.Fprintf(b.progress, "  %s\n", note)
			r.notes = append(r.notes, note)
		}
		c := check{what: fmt.Sprintf("%.1f %% lost", 100*loss), unit: "Mbit/s", peerName: quicgo, must: atLeast(0.95), aim: atLeast(1.1),
			ours: goodput[volley], peer: goodput[quicgo], means: true}
		r.checks = append(r.checks, c)
	}
	r.notes = append(r.notes, fmt.Sprintf("the ratio is that of the means; %d MiB, queue of one round trip's bytes (drop tail), loss in both directions, simulated time", p13Size>>20))
	return nil
}
