package main

import "fmt"

func w4(b *bench, r *result) error {
	const on, off = "gathered", "one by one"
	of := func(name string, lone bool) contestant[echoReport] {
		return b.echoOf("W4", name, "volley", func(t *task) { t.Ask, t.Concurrent, t.Lone = "pieces", 100, lone })
	}
	all, err := turns(b, "responses in pieces", b.rounds, []contestant[echoReport]{of(on, false), of(off, true)}, echoReport.say)
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{unit: "responses/s", peerName: off, must: atLeast(2),
		ours: each(all[on], echoReport.perSecond), peer: each(all[off], echoReport.perSecond)})
	r.notes = append(r.notes, latency(all[on])+"; one by one "+latency(all[off]),
		fmt.Sprintf("%d writes of %d bytes a response; one by one: a write buffer of one piece and a scheduler that lets one stream into each flight, so that every piece leaves in a datagram and a system call of its own", pieces, lineSize))
	return nil
}
