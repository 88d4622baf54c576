package main

func w3(b *bench, r *result) error {
	const direct, handOver = "in the caller", "handed over"
	of := func(name string, over bool) contestant[echoReport] {
		return b.echoOf("W3", name, "volley", func(t *task) { t.Ask, t.HandOver = "lines", over })
	}
	all, err := turns(b, "echo of 64 B", b.rounds, []contestant[echoReport]{of(direct, false), of(handOver, true)}, echoReport.say)
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{unit: "requests/s", peerName: handOver, must: atLeast(1.10),
		ours: each(all[direct], echoReport.perSecond), peer: each(all[handOver], echoReport.perSecond)})
	r.notes = append(r.notes, latency(all[direct])+"; handed over "+latency(all[handOver]),
		"handed over: on both sides every write leaves through the connection's goroutine")
	return nil
}
