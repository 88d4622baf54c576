package main

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/volley-quic/volley/bench/internal/nullsink"
	"github.com/volley-quic/volley/bench/internal/proc"
)

const mb = 1000 * 1000

var (
	bufferChunks = []int{1000, 10 * 1000, 100 * 1000}
	bufferSizes  = []int{10 * mb, 100 * mb, 400 * mb}
)

// writeBuffer fills a stream's send buffer and drains it, for every chunk and size, and
// says what a byte cost in nanoseconds of CPU.
func writeBuffer(*proc.Peer, task) (any, error) {
	// Blocks come from a pool that a garbage collection would empty.
	debug.SetGCPercent(-1)
	s := nullsink.NewStream()
	s.Lazy = true
	if err := s.SetWriteBuffer(1<<30, 1<<30); err != nil {
		return nil, err
	}
	cycle := func(size, chunk int) error {
		for n := 0; n < size; n += chunk {
			var err error
			if chunk <= writeSize {
				_, err = s.Write(content(0, int64(n), chunk))
			} else {
				_, err = s.Write(ring[:chunk])
			}
			if err != nil {
				return err
			}
		}
		s.Drain(chunk)
		return nil
	}
	cost := make([][]float64, len(bufferChunks))
	for i, chunk := range bufferChunks {
		if err := cycle(bufferSizes[len(bufferSizes)-1], chunk); err != nil { // warms the pool
			return nil, err
		}
		for _, size := range bufferSizes {
			const least = 400 * mb
			repeat := max(1, least/size)
			start := proc.CPU()
			for range repeat {
				if err := cycle(size, chunk); err != nil {
					return nil, err
				}
			}
			cost[i] = append(cost[i], float64((proc.CPU()-start)/time.Nanosecond)/float64(repeat*size))
		}
	}
	return cost, nil
}

func w2(b *bench, r *result) error {
	all, err := turns(b, "send buffer, ns per byte", b.rounds, []contestant[[][]float64]{{volley, func(int) ([][]float64, error) {
		return alone[[][]float64](task{Role: "write-buffer"})
	}}}, func(c [][]float64) string { return fmt.Sprintf("%.3f", c) })
	if err != nil {
		return err
	}
	for i, chunk := range bufferChunks {
		cost := func(j int) []float64 {
			return each(all[volley], func(c [][]float64) float64 { return c[i][j] })
		}
		for j, must := range []bound{atMost(4), atMost(1.3)} {
			size := fmt.Sprintf("%d MB", bufferSizes[j]/mb)
			r.checks = append(r.checks, check{what: fmt.Sprintf("chunks of %d KB, 400 MB against %s", chunk/1000, size), unit: "ns per byte",
				peerName: size, must: must, ours: cost(2), peer: cost(j)})
		}
	}
	return nil
}
