package main

import (
	"bytes"
	"fmt"
	"net"
	"time"

	"github.com/volley-quic/volley/bench/internal/nullsink"
	"github.com/volley-quic/volley/bench/internal/proc"
)

const (
	handOverSize   = 512 << 10
	handOverPieces = 16
)

// handOverCost is the CPU time of one hand-over, by each way.
type handOverCost struct{ Join, Buffers, Owned time.Duration }

// writePieces hands 512 KiB over in the three ways, again and again.
func writePieces(*proc.Peer, task) (any, error) {
	const repeat = 1500
	var parts [handOverPieces][]byte
	for i := range parts {
		parts[i] = ring[i*handOverSize/handOverPieces:][:handOverSize/handOverPieces]
	}
	s := nullsink.NewStream()
	measure := func(f func() error) (time.Duration, error) {
		for range repeat / 10 {
			if err := f(); err != nil {
				return 0, err
			}
		}
		start := proc.CPU()
		for range repeat {
			if err := f(); err != nil {
				return 0, err
			}
		}
		return (proc.CPU() - start) / repeat, nil
	}
	var c handOverCost
	var err error
	if c.Join, err = measure(func() error {
		_, err := s.Write(bytes.Join(parts[:], nil))
		return err
	}); err != nil {
		return nil, err
	}
	if c.Buffers, err = measure(func() error {
		list := parts // WriteBuffers consumes it
		b := net.Buffers(list[:])
		_, err := s.WriteBuffers(&b)
		return err
	}); err != nil {
		return nil, err
	}
	c.Owned, err = measure(func() error {
		for _, p := range parts {
			if _, err := s.WriteOwned(p, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

func w1(b *bench, r *result) error {
	all, err := turns(b, "hand-over, µs: join, buffers, owned", b.rounds, []contestant[handOverCost]{{volley, func(int) (handOverCost, error) {
		return alone[handOverCost](task{Role: "write-pieces"})
	}}}, func(c handOverCost) string {
		return fmt.Sprintf("%.1f %.1f %.1f", us(c.Join), us(c.Buffers), us(c.Owned))
	})
	if err != nil {
		return err
	}
	join := each(all[volley], func(c handOverCost) float64 { return us(c.Join) })
	for _, way := range []struct {
		name string
		cost func(handOverCost) float64
	}{
		{"WriteBuffers", func(c handOverCost) float64 { return us(c.Buffers) }},
		{"WriteOwned", func(c handOverCost) float64 { return us(c.Owned) }},
	} {
		r.checks = append(r.checks, check{what: "join + Write over " + way.name, unit: "µs", peerName: way.name, must: atLeast(1.5), aim: atLeast(3),
			ours: join, peer: each(all[volley], way.cost)})
	}
	r.notes = append(r.notes, "the null sink copies the bytes out as into packets, and acknowledges them; it neither seals nor sends")
	return nil
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
