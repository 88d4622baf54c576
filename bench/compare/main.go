// Command compare holds Volley against quic-go, golang.org/x/net/quic, crypto/tls over
// TCP and the bare machine, on this machine, now.
//
//	go run ./bench/compare                  all jobs
//	go run ./bench/compare -only P1,P4      some of them
//	go run ./bench/compare -json > out.json an array with one object per job; the
//	                                        lines for people go to standard error
//
// Contestants take turns, A B C A B C …, each with fresh processes for sender and
// receiver; what counts is the median of the ratios of each round, as on a shared
// machine an absolute figure means little. All have the same windows, socket buffers,
// write size, cipher and datagram size, and GSO, as far as they have these at
// all; the application's code is the same. What was transferred is checked while the
// clock does not run.
//
// Every job prints its figure, what it must and should reach, and the verdict. A must
// is missed when the whole interquartile range of the rounds lies on the wrong
// side: then the exit status is 1.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
)

// bench is one run of this program.
type bench struct {
	progress io.Writer
	rounds   int
	size     int64         // bytes of a bulk transfer
	span     time.Duration // of what is measured by time
	seeds    int           // of P13
	conns    int           // of P12
	profile  string        // directory
	dir      string        // for files of our own
	cert     identity
	selected map[string]bool

	bulk map[string][]bulk // P1 to P5 share their rounds
	file string            // the content, for sources
}

func main() {
	var t task
	if starter, helper, err := proc.Task(&t); helper {
		if err == nil {
			err = help(starter, t)
		}
		if err != nil {
			starter.Fail(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	b := &bench{progress: stderr}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "jobs to run, such as P1,P4; empty: all")
	asJSON := f.Bool("json", false, "print an array of JSON objects to standard output")
	f.IntVar(&b.rounds, "rounds", 7, "rounds")
	f.Int64Var(&b.size, "size", 1<<30, "bytes of a bulk transfer")
	f.DurationVar(&b.span, "span", 2*time.Second, "duration of each measurement of requests or handshakes")
	f.IntVar(&b.seeds, "seeds", 20, "seeds of the simulated path (P13)")
	f.IntVar(&b.conns, "conns", 1000, "connections of P12; its aim is 10000")
	f.StringVar(&b.profile, "profile", "", "directory for CPU profiles of both sides")
	quiet := f.Bool("quiet", false, "do not say what is going on")
	list := f.Bool("list", false, "list the jobs")
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: compare [flags]")
		f.PrintDefaults()
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *list {
		for _, j := range jobs {
			fmt.Fprintf(stdout, "%-4s %s\n", j.id, j.title)
		}
		return 0
	}
	err := b.check(f.Args())
	if err == nil {
		b.selected, err = choose(*only)
	}
	if err != nil {
		fmt.Fprintln(stderr, "compare:", err)
		return 2
	}
	if *quiet {
		b.progress = io.Discard
	}
	out := stdout
	if *asJSON {
		out = stderr
	}
	if err := b.prepare(); err != nil {
		fmt.Fprintln(stderr, "compare:", err)
		return 1
	}
	defer os.RemoveAll(b.dir)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		os.RemoveAll(b.dir)
		os.Exit(130) // helpers end when they see that we have
	}()

	fmt.Fprintf(out, "%s, %s/%s, %d CPUs, %s\n", time.Now().Format(time.DateTime), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	var results []*result
	status := 0
	for _, j := range jobs {
		if !b.selected[j.id] {
			continue
		}
		start := time.Now()
		r := &result{id: j.id, job: j.title}
		r.err = j.run(b, r)
		fmt.Fprintf(b.progress, "  [%s took %v]\n", j.id, time.Since(start).Round(100*time.Millisecond))
		printResult(out, r)
		if !r.ok() {
			status = 1
		}
		results = append(results, r)
	}
	if *asJSON {
		if err := printJSON(stdout, results); err != nil {
			fmt.Fprintln(stderr, "compare:", err)
			return 1
		}
	}
	return status
}

// check refuses what would measure nothing, or something else than was meant.
func (b *bench) check(words []string) error {
	switch {
	case len(words) > 0:
		return fmt.Errorf("unexpected argument %q: jobs are chosen with -only", words[0])
	case b.rounds < 1:
		return fmt.Errorf("-rounds %d: want at least 1", b.rounds)
	case b.size < 1<<20:
		return fmt.Errorf("-size %d: want at least %d bytes", b.size, 1<<20)
	case b.seeds < 1:
		return fmt.Errorf("-seeds %d: want at least 1", b.seeds)
	case b.conns < 1:
		return fmt.Errorf("-conns %d: want at least 1", b.conns)
	case b.span <= 0:
		return fmt.Errorf("-span %v: want a time to measure in", b.span)
	}
	return nil
}

// prepare makes what all jobs need.
func (b *bench) prepare() (err error) {
	if b.profile != "" {
		if err := os.MkdirAll(b.profile, 0o777); err != nil {
			return err
		}
	}
	if b.cert, err = newIdentity(); err != nil {
		return err
	}
	b.dir, err = os.MkdirTemp("", "compare")
	return err
}

// choose reads the list of -only.
func choose(list string) (map[string]bool, error) {
	selected := make(map[string]bool)
	for id := range strings.SplitSeq(list, ",") {
		id = strings.ToUpper(strings.TrimSpace(id))
		if id == "" {
			continue
		}
		if !slices.ContainsFunc(jobs, func(j job) bool { return j.id == id }) {
			return nil, fmt.Errorf("there is no job %s; -list names them", id)
		}
		selected[id] = true
	}
	if len(selected) == 0 {
		for _, j := range jobs {
			selected[j.id] = true
		}
	}
	return selected, nil
}
