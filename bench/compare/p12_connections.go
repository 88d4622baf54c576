package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
)

// manyReport is what one process found that had all the connections.
type manyReport struct {
	usage
	Right       int           // connections on which everything arrived
	First, Last time.Duration // when the first and the last were through
	Problem     string        // of one that was not
}

// manyReceive accepts t.Conns connections at once and reads a stream on each, looking
// at every byte.
func manyReceive(p *proc.Peer, t task) (any, error) {
	l, err := server(p, t, longIdle)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	var rep manyReport
	var mu sync.Mutex
	var wg sync.WaitGroup
	conns := make([]conn, 0, t.Conns)
	for range t.Conns {
		c, err := l.accept(ctx)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	var m meter
	m.begin(t.Profile)
	for _, c := range conns {
		wg.Go(func() {
			err := manyReceiveOne(ctx, c, t.Size)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				rep.Right++
			} else {
				rep.Problem = err.Error()
			}
		})
	}
	wg.Wait()
	rep.usage = m.end()
	return rep, nil
}

func manyReceiveOne(ctx context.Context, c conn, size int64) error {
	s, err := c.accept(ctx)
	if err != nil {
		return err
	}
	buf := make([]byte, 16<<10) // a connection's share of memory counts here
	if _, err := io.ReadFull(s, buf[:8]); err != nil {
		return err
	}
	number := int(binary.BigEndian.Uint64(buf))
	for off := int64(0); ; {
		n, err := s.Read(buf)
		if !contentIs(buf[:n], number, off) {
			return fmt.Errorf("connection %d: wrong bytes at offset %d", number, off)
		}
		off += int64(n)
		if err == io.EOF && off == size {
			break
		}
		if err != nil {
			return fmt.Errorf("connection %d, after %d bytes: %w", number, off, err)
		}
	}
	s.Write(buf[:1])
	return s.Close()
}

// manySend dials t.Conns connections from one socket, and when all are there sends on
// all of them at once.
func manySend(_ *proc.Peer, t task) (any, error) {
	d, err := dialFrom(t, true, longIdle)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	conns := make([]conn, t.Conns)
	const at = 16 // dials at a time
	if err := together(at, func(i int) (err error) {
		for ; i < t.Conns; i += at {
			if conns[i], err = d.dial(ctx, t.Addr); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var rep manyReport
	var mu sync.Mutex
	var wg sync.WaitGroup
	var m meter
	m.begin(t.Profile)
	start := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			err := manySendOne(ctx, c, i, t.Size)
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				rep.Problem = err.Error()
				return
			}
			rep.Right++
			if rep.First == 0 {
				rep.First = took
			}
			rep.Last = took
		})
	}
	wg.Wait()
	rep.usage = m.end()
	return rep, nil
}

func manySendOne(ctx context.Context, c conn, number int, size int64) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(number))
	if _, err := s.Write(b[:]); err != nil {
		return err
	}
	if err := write(s, number, size); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	_, err = io.ReadFull(s, b[:1])
	return err
}

func p12(b *bench, r *result) error {
	const each = 10 << 20
	t := task{Stack: "volley", Cert: b.cert, Conns: b.conns, Size: each}
	var right, spread []float64
	for round := range min(b.rounds, 3) {
		server, client, err := duel[manyReport, manyReport](t, "many-receive", "many-send", b.profileOf("P12", volley, round))
		if err != nil {
			return err
		}
		n := min(server.Right, client.Right)
		right = append(right, float64(n))
		spread = append(spread, client.Last.Seconds()/client.First.Seconds())
		r.notes = append(r.notes, fmt.Sprintf("round %d: first through after %.2f s, last after %.2f s, %.2f Gbit/s together; RSS: receiver %d MB, sender %d MB", round+1,
			client.First.Seconds(), client.Last.Seconds(), 8*float64(n)*each/1e9/client.Elapsed.Seconds(), server.MaxRSS/1e6, client.MaxRSS/1e6))
		for _, x := range []manyReport{server, client} {
			if x.Problem != "" {
				r.notes = append(r.notes, "a problem: "+x.Problem)
			}
		}
	}
	r.checks = append(r.checks,
		check{what: "connections through, content right", unit: "connections", must: atLeast(min(1000, float64(b.conns))), aim: atLeast(10000), ours: right},
		check{what: "last to finish over first", must: atMost(3), ours: spread})
	if b.conns < 1000 {
		r.notes = append(r.notes, fmt.Sprintf("the target is 1000 connections, this was a run with -conns %d", b.conns))
	}
	return nil
}
