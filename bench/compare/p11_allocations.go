package main

import (
	"fmt"

	"github.com/volley-quic/volley/bench/internal/proc"
)

// throughRelay measures a bulk transfer whose datagrams get lost on the way.
func (b *bench) throughRelay(job, name, stack string, loss float64) contestant[bulk] {
	return contestant[bulk]{name, func(round int) (x bulk, err error) {
		t := task{Stack: stack, Cert: b.cert, Warm: warmUp, Size: b.size, Streams: 1, Loss: loss}
		x.bytes = t.Size
		profile := b.profileOf(job, name, round)
		var helpers []*proc.Peer
		defer func() {
			for _, p := range helpers {
				p.Close()
			}
		}()
		start := func(role string) (*proc.Peer, error) {
			t.Role, t.Profile = role, profile(role)
			p, err := proc.Start(t)
			if err == nil {
				helpers = append(helpers, p)
			}
			return p, err
		}
		receiver, err := start("receive")
		if err != nil {
			return x, err
		}
		if err := receiver.Hear(&t.Addr, limit); err != nil {
			return x, err
		}
		between, err := start("relay")
		if err != nil {
			return x, err
		}
		if err := between.Hear(&t.Addr, limit); err != nil {
			return x, err
		}
		sender, err := start("send")
		if err != nil {
			return x, err
		}
		if err := sender.Hear(&x.sender, limit); err != nil {
			return x, err
		}
		return x, receiver.Hear(&x.receiver, limit)
	}}
}

func (x bulk) senderMallocs() float64 {
	return float64(x.sender.Mallocs) / float64(x.sender.Traffic.Sent)
}

func (x bulk) receiverMallocs() float64 {
	return float64(x.receiver.Mallocs) / float64(x.receiver.Traffic.Received)
}

func p11(b *bench, r *result) error {
	const lossy = "volley, 1 % lost"
	all, err := turns(b, "allocations", min(b.rounds, 3), []contestant[bulk]{
		b.bulkOf("P11", volley, "volley", nil),
		b.throughRelay("P11", lossy, "volley", 0.01),
	}, func(x bulk) string { return fmt.Sprintf("%.5f/%.5f", x.senderMallocs(), x.receiverMallocs()) })
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what, of string
		f        func(bulk) float64
	}{
		{"sender, no loss", volley, bulk.senderMallocs},
		{"receiver, no loss", volley, bulk.receiverMallocs},
		{"sender, 1 % lost", lossy, bulk.senderMallocs},
		{"receiver, 1 % lost", lossy, bulk.receiverMallocs},
	} {
		r.checks = append(r.checks, check{what: c.what, unit: "allocations per packet", must: atMost(0.01), aim: atMost(0.001), ours: each(all[c.of], c.f)})
	}
	x := all[lossy][0]
	r.notes = append(r.notes,
		fmt.Sprintf("%d packets without loss, %d with, of which %d declared lost; garbage collections: sender %d, receiver %d",
			all[volley][0].sender.Traffic.Sent, x.sender.Traffic.Sent, x.sender.Traffic.Lost, x.sender.GCs, x.receiver.GCs),
		fmt.Sprintf("with 1 %% lost %s Gbit/s, through a relay in a process of its own that reads with GRO and sends on with GSO", figure(x.gbit())))
	return nil
}
