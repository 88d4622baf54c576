package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/volley-quic/volley/bench/internal/bare"
)

// contentFile makes the file for file sources, once.
func (b *bench) contentFile() (string, error) {
	if b.file != "" {
		return b.file, nil
	}
	f, err := os.Create(filepath.Join(b.dir, "content"))
	if err != nil {
		return "", err
	}
	if err := writeContentFile(f); err != nil {
		return "", err
	}
	b.file = f.Name()
	return b.file, f.Close()
}

// emitOf measures a bulk transfer from a source.
func (b *bench) emitOf(job, name string, e emission, size int64) contestant[bulk] {
	return b.bulkOf(job, name, "volley", func(t *task) {
		t.Size = size
		e.File = b.file
		t.Emission = &e
	})
}

// emissionSize is what is sent for one figure of E1 to E3.
func (b *bench) emissionSize() int64 { return max(b.size/2, 1<<20) }

func sayCPU(x bulk) string { return fmt.Sprintf("%.3f", x.senderCPU()) }

// tenAgainstOne is E1 and E2.
func (b *bench) tenAgainstOne(r *result, job, src string) error {
	if _, err := b.contentFile(); err != nil {
		return err
	}
	const ten, one = "10 per call", "1 per call"
	all, err := turns(b, src+" source, sender CPU-s per GB", b.rounds, []contestant[bulk]{
		b.emitOf(job, ten, emission{Mode: "scatter", Datagrams: 10, Source: src}, b.emissionSize()),
		b.emitOf(job, one, emission{Mode: "scatter", Datagrams: 1, Source: src}, b.emissionSize()),
	}, sayCPU)
	if err != nil {
		return err
	}
	c := against(all, ten, one, "CPU-s per GB", bulk.senderCPU)
	c.must, c.aim = atMost(0.65), atMost(0.45)
	r.checks = append(r.checks, c)
	r.notes = append(r.notes, fmt.Sprintf("%s against %s Gbit/s; %.1f against %.1f datagrams per call%s",
		figure(median(each(all[ten], bulk.gbit))), figure(median(each(all[one], bulk.gbit))),
		perCall(all[ten]), perCall(all[one]), filled(all[ten])))
	return nil
}

func perCall(xs []bulk) float64 {
	return median(each(xs, func(x bulk) float64 { return x.sender.Emission.DatagramsPerCall() }))
}

func e1(b *bench, r *result) error { return b.tenAgainstOne(r, "E1", "file") }
func e2(b *bench, r *result) error { return b.tenAgainstOne(r, "E2", "costly") }

func e3(b *bench, r *result) error {
	const scatter, single, lend = "scatter", "single", "lend"
	var cs []contestant[bulk]
	for _, mode := range []string{scatter, single, lend} {
		cs = append(cs, b.emitOf("E3", mode, emission{Mode: mode, Datagrams: 10, Source: "memory", Stays: true}, b.emissionSize()))
	}
	all, err := turns(b, "memory source, sender CPU-s per GB", b.rounds, cs, sayCPU)
	if err != nil {
		return err
	}
	// The target speaks of the better of the two; which that is, the medians say.
	best := single
	if median(each(all[lend], bulk.senderCPU)) < median(each(all[single], bulk.senderCPU)) {
		best = lend
	}
	c := against(all, best, scatter, "CPU-s per GB", bulk.senderCPU)
	c.what = best
	c.must, c.aim = atMost(1.03), atMost(0.97)
	r.checks = append(r.checks, c)
	r.notes = append(r.notes, "all with emit.Unchanging, which spares Single and Lend a hash of every byte")
	for _, mode := range []string{scatter, single, lend} {
		r.notes = append(r.notes, fmt.Sprintf("%-8s %.3f CPU-s per GB, %s Gbit/s, ratio %.2f", mode,
			median(each(all[mode], bulk.senderCPU)), figure(median(each(all[mode], bulk.gbit))),
			median(ratios(each(all[mode], bulk.senderCPU), each(all[scatter], bulk.senderCPU)))))
	}
	return nil
}

// e4 is a table: no target, but the defaults follow it.
func e4(b *bench, r *result) error {
	if _, err := b.contentFile(); err != nil {
		return err
	}
	sources := []string{"file", "memory", "costly"}
	counts := []int{1, 2, 5, 10}
	size := max(b.size/8, 1<<20)
	rounds := min(b.rounds, 3)

	type line struct {
		name    string
		mode    string
		reread  bool
		stays   bool
		counts  []int
		through bool
		bare    bool
		retain  int
	}
	lines := []line{
		{name: "scatter, retained", mode: "scatter", counts: counts},
		{name: "scatter, reread", mode: "scatter", reread: true, counts: counts},
		{name: "vector", mode: "vector", counts: counts},
		{name: "lend", mode: "lend", counts: counts},
		{name: "lend, unchanging", mode: "lend", stays: true, counts: counts},
		{name: "single", mode: "single", counts: []int{1}},
		{name: "single, unchanging", mode: "single", stays: true, counts: []int{1}},
	}
	if haveBare {
		const retained = 1 << 20
		lines = append(lines,
			line{name: "bare: scatter, scratch hot", mode: "scatter", counts: counts, bare: true},
			line{name: "bare: scatter, retained", mode: "scatter", counts: counts, bare: true, retain: retained},
			line{name: "bare: sealed through, scratch hot", mode: "scatter", counts: counts, bare: true, through: true},
			line{name: "bare: sealed through, retained", mode: "scatter", counts: counts, bare: true, through: true, retain: retained})
	}
	cell := func(l line, src string, k int) string { return fmt.Sprintf("%s %s %d", l.name, src, k) }
	var cs []contestant[bulk]
	for _, l := range lines {
		for _, src := range sources {
			if l.mode == "lend" && src == "file" {
				continue // a file has no memory to lend
			}
			for _, k := range l.counts {
				e := emission{Mode: l.mode, Datagrams: k, Reread: l.reread, Stays: l.stays, Source: src}
				name := cell(l, src, k)
				if !l.bare {
					cs = append(cs, b.emitOf("E4", name, e, size))
					continue
				}
				cs = append(cs, b.bulkOf("E4", name, "bare", func(t *task) {
					e.File = b.file
					t.Emission, t.Size = &e, size
					t.Bare = bare.Config{PerCall: k, Through: l.through, Retain: l.retain}
				}))
			}
		}
	}
	all, err := turns(b, "emission", rounds, cs, func(bulk) string { return "" })
	if err != nil {
		return err
	}

	var t strings.Builder
	w := tabwriter.NewWriter(&t, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "sender CPU-s per GB\t")
	for _, src := range sources {
		for _, k := range counts {
			fmt.Fprintf(w, "%s %d\t", src, k)
		}
	}
	fmt.Fprintln(w)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t", l.name)
		for _, src := range sources {
			for _, k := range counts {
				if xs := all[cell(l, src, k)]; xs != nil {
					mark := ""
					if xs[0].sender.Emission.Fallbacks > 0 {
						mark = "*"
					}
					fmt.Fprintf(w, "%.3f%s\t", median(each(xs, bulk.senderCPU)), mark)
				} else {
					fmt.Fprint(w, "–\t")
				}
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	r.table = t.String()
	r.notes = append(r.notes,
		fmt.Sprintf("medians of %d rounds, %d MiB each; the number is how many datagrams one source call may fill; * fell back to scatter", rounds, size>>20),
		"the bare rows are bench's own sender loop, without a transport, 40 datagrams per sendmsg")
	return nil
}

// bareSource is source for the bare loop, whose content is its own.
func bareSource(e emission) (src func(dst []byte, off int64), done func(), err error) {
	fromMemory := func(dst []byte, off int64) {
		for i := 0; i < len(dst); {
			i += copy(dst[i:], bareContent[(off+int64(i))%251:])
		}
	}
	done = func() {}
	switch e.Source {
	case "memory":
		return fromMemory, done, nil
	case "costly":
		cost := ringSource{cost: costlyCall}
		return func(dst []byte, off int64) {
			cost.spend()
			fromMemory(dst, off)
		}, done, nil
	case "file":
		if runtime.GOOS != "linux" {
			return nil, nil, bare.ErrUnsupported
		}
		f, err := os.CreateTemp("", "bare")
		if err != nil {
			return nil, nil, err
		}
		os.Remove(f.Name()) // it lives as long as it is open
		for range 64 {
			if _, err := f.Write(bareContent[:bareFile/64]); err != nil {
				return nil, nil, err
			}
		}
		return func(dst []byte, off int64) {
			for len(dst) > 0 {
				at := off % bareFile
				n, err := f.ReadAt(dst[:min(int64(len(dst)), bareFile-at)], at)
				if err != nil && n == 0 {
					panic(err)
				}
				dst, off = dst[n:], off+int64(n)
			}
		}, func() { f.Close() }, nil
	}
	return nil, nil, errors.New("no such source")
}

// bareFile is the length of the bare loop's file: content repeats every 251 bytes.
const bareFile = 64 * 251 * 4096

var bareContent = func() []byte {
	b := make([]byte, 251*4096+251)
	for i := range b {
		b[i] = bare.Content(int64(i))
	}
	return b
}()
