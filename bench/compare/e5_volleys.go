package main

import (
	"fmt"
	"time"
)

// e5 counts the datagrams that one call of a source fills.
func e5(b *bench, r *result) error {
	e := emission{Mode: "scatter", Datagrams: 10, Source: "memory"}
	filledOf := func(x bulk) float64 { return x.sender.Emission.DatagramsPerCall() }
	all, err := turns(b, "bulk, datagrams per source call", min(b.rounds, 3), []contestant[bulk]{b.emitOf("E5", volley, e, b.emissionSize())},
		func(x bulk) string { return fmt.Sprintf("%.2f", filledOf(x)) })
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{what: "bulk", unit: "datagrams per call", must: atLeast(9), ours: each(all[volley], filledOf)})

	// Paced: simulated time, so that nothing but the pacer decides.
	link := linkConfig{Rate: 100e6, Delay: 10 * time.Millisecond, Queue: 250000}
	runs, err := b.onPathOf("volley", link, p13Size, 4, &e)
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{what: "paced, 100 Mbit/s, 20 ms", unit: "datagrams per call", must: atLeast(6),
		ours: each(runs, func(x pathRun) float64 { return x.Emission.DatagramsPerCall() })})
	return nil
}
