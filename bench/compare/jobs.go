package main

import (
	"fmt"
	"strings"
)

// A job is one line of the targets. run fills in what it found.
type job struct {
	id, title string
	run       func(b *bench, r *result) error
}

// jobs in the order in which they run.
var jobs []job

func init() {
	jobs = []job{
		{"P1", "bulk, 1 stream: throughput", p1},
		{"P2", "bulk, 1 stream: sender CPU", p2},
		{"P3", "bulk, 1 stream: receiver CPU", p3},
		{"P4", "bulk, 1 stream, against the bare loop", p4},
		{"P5", "bulk with datagrams of 16376 bytes, against TLS over TCP", p5},
		{"P6", "100 parallel streams, one connection", p6},
		{"P7", "request/response 1 KiB, one at a time", p7},
		{"P8", "request/response 1 KiB, 100 streams at once", p8},
		{"P9", "handshakes, one client at a time", p9},
		{"P10", "heap and stacks per idle server connection", p10},
		{"P11", "allocations per packet", p11},
		{"P12", "connections at once in one process, 10 MiB each", p12},
		{"P13", "simulated path, 100 Mbit/s, 50 ms: goodput", p13},
		{"E1", "file source, scatter of 10 against 1 datagram per call: sender CPU", e1},
		{"E2", "source that costs 2 µs a call, same comparison", e2},
		{"E3", "memory: Single or Lend against Scatter: sender CPU", e3},
		{"E4", "emission modes: sender CPU", e4},
		{"E5", "datagrams per source call", e5},
		{"W1", "hand-over of 512 KiB as 16 pieces into a null sink: CPU", w1},
		{"W2", "send buffer filled and drained: time per byte as it grows", w2},
		{"W3", "echo of 64 B: send in the caller's goroutine against hand-over", w3},
		{"W4", "100 responses in ten small pieces: gathering on against off", w4},
	}
}

// A contestant can be measured again and again.
type contestant[T any] struct {
	name    string
	measure func(round int) (T, error)
}

// turns lets the contestants take turns and returns what each did, round by round. say
// puts one measurement into a word, or none, for who watches.
func turns[T any](b *bench, what string, rounds int, cs []contestant[T], say func(T) string) (map[string][]T, error) {
	all := make(map[string][]T)
	for round := range rounds {
		var line strings.Builder
		for _, c := range cs {
			x, err := c.measure(round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], x)
			if word := say(x); word != "" {
				fmt.Fprintf(&line, "  %s %s", c.name, word)
			}
		}
		fmt.Fprintf(b.progress, "  %s, round %d of %d%s\n", what, round+1, rounds, line.String())
	}
	return all, nil
}

// each applies f to every element.
func each[T any](xs []T, f func(T) float64) []float64 {
	ys := make([]float64, len(xs))
	for i, x := range xs {
		ys[i] = f(x)
	}
	return ys
}
