//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestCtrlCEndsCleanly(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		after  string // the line to wait for before the signal
		status int
		says   string
	}{
		{"server", []string{"server", "-stack", "quic-go", "-addr", "127.0.0.1:0"}, "listening", exitOK, ""},
		{"server tcp", []string{"server", "-stack", "tcp", "-addr", "127.0.0.1:0"}, "listening", exitOK, ""},
		// Terabytes of random bytes are never ready before the signal comes.
		{"making the file", []string{"-stack", "quic-go", "-size", "4TiB"}, "making", exitInterrupted, "quicperf: interrupted\n"},
		{"hashing", []string{"-stack", "quic-go", "-size", "4TiB", "-source", "memory"}, "run 1", exitInterrupted, "quicperf: interrupted\n"},
	} {
		for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(c.name+" "+sig.String(), func(t *testing.T) {
				cmd, dir := program(t, c.args...)
				var stderr strings.Builder
				cmd.Stderr = &stderr
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				for lines.Scan() && !strings.HasPrefix(lines.Text(), c.after) {
				}
				cmd.Process.Signal(sig)
				for lines.Scan() {
				}
				cmd.Wait()
				if got := cmd.ProcessState.ExitCode(); got != c.status {
					t.Errorf("exit status %d, want %d", got, c.status)
				}
				if stderr.String() != c.says {
					t.Errorf("stderr is %q, want %q", &stderr, c.says)
				}
				wantEmpty(t, dir)
			})
		}
	}
}

// quicperf | head -1: nobody reads on, and what was made is removed all the same.
func TestNobodyReadsTheOutput(t *testing.T) {
	cmd, dir := program(t, "-stack", "tcp", "-size", "1MiB")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	err = cmd.Run()
	if _, ok := err.(*exec.ExitError); !ok || cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("ended with %v, saying %q", err, &stderr)
	}
	wantEmpty(t, dir)
}
