package main

import (
	"fmt"
	"time"
)

// echoOf measures requests over a stack; change says which.
func (b *bench) echoOf(job, name, stack string, change func(*task)) contestant[echoReport] {
	return contestant[echoReport]{name, func(round int) (echoReport, error) {
		t := task{Stack: stack, Cert: b.cert, Span: b.span, Concurrent: 1, Ask: "echo"}
		change(&t)
		t.Streams = max(100, t.Concurrent)
		_, rep, err := duel[usage, echoReport](t, "echo-server", "echo-client", b.profileOf(job, name, round))
		return rep, err
	}}
}

func latency(rs []echoReport) string {
	us := func(f func(echoReport) time.Duration) float64 {
		return median(each(rs, func(r echoReport) float64 { return float64(f(r).Nanoseconds()) / 1e3 }))
	}
	return fmt.Sprintf("p50 %s µs, p99 %s µs",
		figure(us(func(r echoReport) time.Duration { return r.P50 })), figure(us(func(r echoReport) time.Duration { return r.P99 })))
}

func p99(r echoReport) float64 { return float64(r.P99.Nanoseconds()) / 1e3 }

func p7(b *bench, r *result) error {
	one := func(t *task) { t.Concurrent = 1 }
	all, err := turns(b, "requests, one at a time", b.rounds, []contestant[echoReport]{
		b.echoOf("P7", volley, "volley", one), b.echoOf("P7", quicgo, "quic-go", one),
	}, echoReport.say)
	if err != nil {
		return err
	}
	r.checks = append(r.checks,
		check{what: "requests/s", unit: "requests/s", peerName: quicgo, must: atLeast(1.3), aim: atLeast(2),
			ours: each(all[volley], echoReport.perSecond), peer: each(all[quicgo], echoReport.perSecond)},
		check{what: "p99 latency", unit: "µs", peerName: quicgo, must: atMost(1),
			ours: each(all[volley], p99), peer: each(all[quicgo], p99)})
	r.notes = append(r.notes, latency(all[volley])+"; quic-go "+latency(all[quicgo]))
	return nil
}

func p8(b *bench, r *result) error {
	many := func(t *task) { t.Concurrent = 100 }
	all, err := turns(b, "requests, 100 streams at once", b.rounds, []contestant[echoReport]{
		b.echoOf("P8", volley, "volley", many), b.echoOf("P8", quicgo, "quic-go", many),
	}, echoReport.say)
	if err != nil {
		return err
	}
	r.checks = append(r.checks, check{unit: "requests/s", peerName: quicgo, must: atLeast(2), aim: atLeast(4),
		ours: each(all[volley], echoReport.perSecond), peer: each(all[quicgo], echoReport.perSecond)})
	r.notes = append(r.notes, latency(all[volley])+"; quic-go "+latency(all[quicgo]))
	return nil
}
