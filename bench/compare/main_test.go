package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/volley-quic/volley/bench/internal/proc"
)

// TestMain lets the test binary be its own helper, as the program is.
func TestMain(m *testing.M) {
	var t task
	if starter, helper, err := proc.Task(&t); helper {
		if err == nil {
			err = help(starter, t)
		}
		starter.Fail(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestChoose(t *testing.T) {
	got, err := choose("p1, E4")
	if err != nil || len(got) != 2 || !got["P1"] || !got["E4"] {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := choose(""); err != nil || len(got) != len(jobs) {
		t.Errorf("an empty list chooses %d jobs, %v", len(got), err)
	}
	if _, err := choose("P1,P99"); err == nil || !strings.Contains(err.Error(), "P99") {
		t.Errorf("an unknown job: %v", err)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-size", "3"}, {"-seeds", "0"}, {"-conns", "0"}, {"-span", "0s"}, {"-only", "X1"}, {"P1"}, {"-nonsense"},
	} {
		var stderr strings.Builder
		if status := run(args, io.Discard, &stderr); status != 2 {
			t.Errorf("%q: status %d", args, status)
		}
		if line, _, _ := strings.Cut(stderr.String(), "\n"); !strings.Contains(line, args[len(args)-1]) && !strings.Contains(line, args[0]) {
			t.Errorf("%q: the line does not say what is wrong: %s", args, line)
		}
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	if status := run([]string{"-h"}, io.Discard, io.Discard); status != 0 {
		t.Errorf("status %d", status)
	}
}

// TestStacksDifferByImportOnly holds the comparison's application code together.
func TestStacksDifferByImportOnly(t *testing.T) {
	read := func(name string) []string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("github.com/volley-quic/volley/quic", "IMPORT", "github.com/quic-go/quic-go", "IMPORT",
			"volley", "STACK", "quicgo", "STACK", "Volley", "STACK", "Quicgo", "STACK").Replace(string(b))
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") && !strings.Contains(line, "// STACK only") {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		return lines
	}
	a, b := read("stack_volley.go"), read("stack_quicgo.go")
	if len(a) != len(b) {
		t.Errorf("%d and %d lines", len(a), len(b))
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("the files differ:\n%s\n%s", a[i], b[i])
		}
	}
}

// testBench makes measurements that are too short to mean anything.
func testBench(t *testing.T) *bench {
	b := &bench{progress: io.Discard, rounds: 1, size: 1 << 20, span: 50 * time.Millisecond, seeds: 2, conns: 3}
	if err := b.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(b.dir) })
	return b
}

func TestBulkOverEveryStack(t *testing.T) {
	b := testBench(t)
	for name := range stacks {
		t.Run(name, func(t *testing.T) {
			x, err := b.bulkOf("P1", name, name, func(t *task) { t.Warm = 1 << 20 }).measure(0)
			if err != nil {
				t.Fatal(err)
			}
			if x.sender.Elapsed <= 0 || x.bytes != b.size {
				t.Errorf("got %+v", x)
			}
			if !strings.HasPrefix(x.sender.Cipher, "TLS_") || x.sender.Cipher != x.receiver.Cipher {
				t.Errorf("ciphers %q and %q", x.sender.Cipher, x.receiver.Cipher)
			}
		})
	}
}

func TestEmissionOfEveryMode(t *testing.T) {
	b := testBench(t)
	if _, err := b.contentFile(); err != nil {
		t.Fatal(err)
	}
	for _, e := range []emission{
		{Mode: "scatter", Source: "file"},
		{Mode: "scatter", Source: "costly", Reread: true},
		{Mode: "single", Source: "memory"},
		{Mode: "lend", Source: "memory"},
		{Mode: "vector", Source: "file"},
	} {
		t.Run(e.Mode+" "+e.Source, func(t *testing.T) {
			x, err := b.emitOf("E4", "volley", e, b.size).measure(0)
			if err != nil {
				t.Fatal(err)
			}
			if got := x.sender.Emission.Bytes; got != uint64(b.size) {
				t.Errorf("%d bytes were emitted, want %d", got, b.size)
			}
		})
	}
}

func TestRequestsAndRelay(t *testing.T) {
	b := testBench(t)
	for _, ask := range []string{"echo", "lines", "pieces"} {
		rep, err := b.echoOf("P7", "volley", "volley", func(t *task) { t.Ask, t.Concurrent = ask, 3 }).measure(0)
		if err != nil || rep.Requests == 0 || rep.P50 > rep.P99 {
			t.Errorf("%s: %+v, %v", ask, rep, err)
		}
	}
	x, err := b.throughRelay("P11", "volley", "volley", 0.02).measure(0)
	if err != nil {
		t.Fatal(err)
	}
	if x.sender.Traffic.Lost == 0 {
		t.Error("nothing was lost on the way")
	}
}

func TestSimulatedPath(t *testing.T) {
	b := testBench(t)
	link := p13Link
	link.Loss = 0.01
	for _, name := range []string{"volley", "quic-go"} {
		one, err := b.onPathOf(name, link, 1<<20, b.seeds, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(one) != b.seeds {
			t.Fatalf("%s: %d runs", name, len(one))
		}
		for _, r := range one {
			if r.Elapsed < 8*time.Millisecond*(1<<20)/100_000 {
				t.Errorf("%s, seed %d: faster than the path: %v", name, r.Seed, r.Elapsed)
			}
		}
	}
}
