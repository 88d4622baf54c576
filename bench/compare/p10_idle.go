package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
)

const (
	idleConns = 2000
	// idleFor is how long connections rest before they are weighed.
	idleFor = 3 * time.Second
)

func longIdle(o *options) { o.idleTimeout = 10 * time.Minute }

// weight is what a server's connections weigh.
type weight struct {
	Conns      int
	Heap       float64 // bytes per connection, after a garbage collection
	Stacks     float64
	Goroutines float64
}

func (w weight) total() float64 { return w.Heap + w.Stacks }

// weigh is the heap in use, the stacks and the goroutines of this process.
func weigh() (heap, stacks uint64, goroutines int) {
	for range 3 { // pools are emptied by the second
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()
}

// idleServer accepts t.Conns connections and says what they weigh.
func idleServer(p *proc.Peer, t task) (any, error) {
	l, err := server(p, t, longIdle)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	conns := make([]conn, 0, t.Conns+1)
	accept := func() error {
		c, err := l.accept(ctx)
		if err == nil {
			conns = append(conns, c)
		}
		return err
	}
	// The first brings what is there once.
	if err := accept(); err != nil {
		return nil, err
	}
	heap, stacks, goroutines := weigh()
	for range t.Conns {
		if err := accept(); err != nil {
			return nil, err
		}
	}
	var dialed bool
	if err := p.Hear(&dialed, 0); err != nil {
		return nil, err
	}
	time.Sleep(idleFor)
	heap2, stacks2, goroutines2 := weigh()
	runtime.KeepAlive(conns)
	n := float64(t.Conns)
	return weight{
		Conns:      t.Conns,
		Heap:       (float64(heap2) - float64(heap)) / n,
		Stacks:     (float64(stacks2) - float64(stacks)) / n,
		Goroutines: float64(goroutines2-goroutines) / n,
	}, nil
}

// idleClient dials one connection more than t.Conns, and keeps them.
func idleClient(_ *proc.Peer, t task) (any, error) {
	d, err := dialFrom(t, true, longIdle)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for range t.Conns + 1 {
		if _, err := d.dial(ctx, t.Addr); err != nil {
			return nil, err
		}
	}
	return t.Conns, nil
}

func p10(b *bench, r *result) error {
	of := func(name, stack string) contestant[weight] {
		return contestant[weight]{name, func(round int) (weight, error) {
			w, _, err := duel[weight, int](task{Stack: stack, Cert: b.cert, Conns: idleConns}, "idle-server", "idle-client", b.profileOf("P10", name, round))
			return w, err
		}}
	}
	// Memory is not as restless as time: three rounds say as much as seven.
	all, err := turns(b, "idle connections", min(b.rounds, 3), []contestant[weight]{of(volley, "volley"), of(quicgo, "quic-go")},
		func(w weight) string { return fmt.Sprintf("%.1f KB", w.total()/1e3) })
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{unit: "bytes", peerName: quicgo, must: atMost(0.7), aim: atMost(0.4),
		ours: each(all[volley], weight.total), peer: each(all[quicgo], weight.total)})
	for _, name := range []string{volley, quicgo} {
		ws := all[name]
		r.notes = append(r.notes, fmt.Sprintf("%s: heap %.0f, stacks %.0f bytes, %.1f goroutines each, %d connections", name,
			median(each(ws, func(w weight) float64 { return w.Heap })),
			median(each(ws, func(w weight) float64 { return w.Stacks })),
			median(each(ws, func(w weight) float64 { return w.Goroutines })), idleConns))
	}
	return nil
}
