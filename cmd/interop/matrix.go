package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// peers are the columns of the matrix, each twice: Volley as client and as server.
var peers = []string{quicGoName, xNetName, ngtcp2Name}

// matrix plays the cells and prints what became of them.
func matrix(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("interop matrix", flag.ContinueOnError)
	only := flags.String("only", "", "play the cells that match one of these `words`, as case, client or server, separated by commas; a+b wants both")
	asJSON := flags.Bool("json", false, "print one JSON object per cell")
	jobs := flags.Int("j", 3*runtime.NumCPU(), "play that many cells at a time, for most of them wait most of the time")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "interop: unexpected argument %q: cells are chosen with -only\n", flags.Arg(0))
		return exitUsage
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return exitFailed
	}
	begin := time.Now()
	var cells []cell
	for _, c := range allCells() {
		if c.matches(*only) {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		fmt.Fprintf(os.Stderr, "interop: no cell matches -only %s\n", *only)
		return exitFailed
	}
	verdicts := make([]verdict, len(cells))
	print := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	var wg sync.WaitGroup
	free := make(chan struct{}, max(*jobs, 1))
	for _, i := range longestFirst(cells) {
		free <- struct{}{}
		wg.Go(func() {
			v := verdictOf(ctx, self, cells[i])
			mu.Lock()
			defer mu.Unlock()
			verdicts[i] = v
			if *asJSON {
				print.Encode(v)
			}
			<-free
		})
	}
	wg.Wait()
	if !*asJSON {
		printMatrix(os.Stdout, verdicts)
		fmt.Printf("\n%d cells in %.0f s.\n", len(verdicts), time.Since(begin).Seconds())
	}
	return statusOf(verdicts)
}

// statusOf is the matrix's exit status.
func statusOf(verdicts []verdict) int {
	if len(verdicts) == 0 || slices.ContainsFunc(verdicts, func(v verdict) bool { return v.Result == resultFailed }) {
		return exitFailed
	}
	return 0
}

func allCells() (cells []cell) {
	for _, tc := range cases {
		for _, peer := range peers {
			cells = append(cells, cell{tc.name, volleyName, peer}, cell{tc.name, peer, volleyName})
		}
	}
	return cells
}

// matches says whether a cell is meant by -only.
func (c cell) matches(only string) bool {
	names := []string{c.Case, c.Client, c.Server, c.Client + " to " + c.Server}
	if only == "" {
		return true
	}
	for word := range strings.SplitSeq(only, ",") {
		all := true
		for part := range strings.SplitSeq(word, "+") {
			all = all && slices.Contains(names, strings.TrimSpace(part))
		}
		if all {
			return true
		}
	}
	return false
}

// longestFirst orders cells so that none that takes long is begun last.
func longestFirst(cells []cell) []int {
	order := make([]int, len(cells))
	weight := func(i int) float64 {
		tc := caseNamed(cells[i].Case)
		bytes := 0
		for _, size := range tc.sizes {
			bytes += size
		}
		w := float64(bytes) + tc.scenario.delay.Seconds()*4e6
		if tc.client == "multiconnect" {
			w += 10e6
		}
		if tc.scenario.hurts() {
			w += 5e6
		}
		return w
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return order
}

// verdictOf plays a cell in a process of its own, which may crash, hang, or set what
// holds for a whole process.
func verdictOf(ctx context.Context, self string, c cell) verdict {
	v := verdict{cell: c}
	tc := caseNamed(c.Case)
	if why := tc.lacking(c.Client, c.Server); why != "" {
		v.Result, v.Reason, _ = strings.Cut(why, ": ")
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, tc.limit+20*time.Second)
	defer cancel()
	begin := time.Now()
	cmd := exec.CommandContext(ctx, self, "cell", "-case", c.Case, "-client", c.Client, "-server", c.Server)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if json.Unmarshal(out, &v) != nil {
		v = verdict{cell: c, Result: resultFailed, Seconds: time.Since(begin).Seconds()}
		v.Reason = fmt.Sprintf("the process ended with %v: %s", err, firstLine(stderr.String()))
	}
	return v
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// printMatrix prints a table, and below it the reasons.
func printMatrix(w io.Writer, verdicts []verdict) {
	byCell := map[cell]verdict{}
	var rows, columns []string
	for _, v := range verdicts {
		byCell[v.cell] = v
		column := v.Client + " to " + v.Server
		if !slices.Contains(rows, v.Case) {
			rows = append(rows, v.Case)
		}
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	table := [][]string{append([]string{""}, columns...)}
	for _, row := range rows {
		line := []string{row}
		for _, column := range columns {
			client, server, _ := strings.Cut(column, " to ")
			v := byCell[cell{row, client, server}]
			text := v.Result
			if v.Result == resultOK {
				text = fmt.Sprintf("ok %.1f s", v.Seconds)
			}
			line = append(line, text)
		}
		table = append(table, line)
	}
	widths := make([]int, len(columns)+1)
	for _, line := range table {
		for i, text := range line {
			widths[i] = max(widths[i], len(text))
		}
	}
	for _, line := range table {
		text := ""
		for i, t := range line {
			text += fmt.Sprintf("%-*s  ", widths[i], t)
		}
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}

	section(w, "Failed:", verdicts, func(v verdict) string {
		if v.Result != resultFailed {
			return ""
		}
		return fmt.Sprintf("%v (seed %d): %s", v.cell, v.Seed, v.Reason)
	})
	section(w, "Not there:", verdicts, func(v verdict) string {
		if v.Result == resultOK || v.Result == resultFailed {
			return ""
		}
		who := "Volley"
		if v.Result == "peer lacks it" {
			who = v.Client
			if who == volleyName {
				who = v.Server
			}
		}
		return fmt.Sprintf("%s, %s: %s", v.Case, who, v.Reason)
	})
	section(w, "Other than in the runner:", verdicts, func(v verdict) string {
		tc := caseNamed(v.Case)
		if tc.about == "" {
			return ""
		}
		return fmt.Sprintf("%s: %s", v.Case, tc.about)
	})
}

// section prints the lines that f makes of verdicts, each once, under a title.
func section(w io.Writer, title string, verdicts []verdict, f func(verdict) string) {
	var lines []string
	for _, v := range verdicts {
		if s := f(v); s != "" && !slices.Contains(lines, s) {
			lines = append(lines, s)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n  %s\n", title, strings.Join(lines, "\n  "))
	}
}
