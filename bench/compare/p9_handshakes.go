package main

import (
	"context"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
)

// acceptHandshakes is a server that does nothing with its connections.
func acceptHandshakes(p *proc.Peer, t task) (any, error) {
	l, err := server(p, t, nil)
	if err != nil {
		return nil, err
	}
	var m meter
	m.begin(t.Profile)
	go func() {
		for {
			if _, err := l.accept(context.Background()); err != nil {
				return
			}
		}
	}()
	var stop bool
	if err := p.Hear(&stop, 0); err != nil {
		return nil, err
	}
	return m.end(), nil
}

// dialHandshakes dials, closes, and dials again, from one socket, without resumption.
func dialHandshakes(_ *proc.Peer, t task) (any, error) {
	d, err := dialFrom(t, true, nil)
	if err != nil {
		return nil, err
	}
	dialFor := func(span time.Duration, took []time.Duration) ([]time.Duration, error) {
		for until := time.Now().Add(span); ; {
			start := time.Now()
			if start.After(until) {
				return took, nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			c, err := d.dial(ctx, t.Addr)
			cancel()
			if err != nil {
				return nil, err
			}
			took = append(took, time.Since(start))
			c.close()
		}
	}
	if _, err := dialFor(settle, nil); err != nil {
		return nil, err
	}
	var m meter
	m.begin(t.Profile)
	took, err := dialFor(t.Span, nil)
	rep := echoReport{usage: m.end(), Requests: len(took)}
	rep.P50, rep.P99 = percentile(took, 0.50), percentile(took, 0.99)
	return rep, err
}

func p9(b *bench, r *result) error {
	of := func(name, stack string) contestant[echoReport] {
		return contestant[echoReport]{name, func(round int) (echoReport, error) {
			_, rep, err := duel[usage, echoReport](task{Stack: stack, Cert: b.cert, Span: b.span}, "accept", "dial", b.profileOf("P9", name, round))
			return rep, err
		}}
	}
	all, err := turns(b, "handshakes", b.rounds, []contestant[echoReport]{of(volley, "volley"), of(quicgo, "quic-go")}, echoReport.say)
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{unit: "handshakes/s", peerName: quicgo, must: atLeast(0.95), aim: atLeast(1.3),
		ours: each(all[volley], echoReport.perSecond), peer: each(all[quicgo], echoReport.perSecond)})
	r.notes = append(r.notes, latency(all[volley])+"; quic-go "+latency(all[quicgo])+" (ECDSA P-256, no resumption)")
	return nil
}
