package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writePEM(t *testing.T, w io.Writer, kind string, der []byte) {
	t.Helper()
	if err := pem.Encode(w, &pem.Block{Type: kind, Bytes: der}); err != nil {
		t.Fatal(err)
	}
}

func TestSelfTestPrintsOneObjectPerTransfer(t *testing.T) {
	for stack := range stacks {
		for _, direction := range directions {
			t.Run(stack+" "+direction, func(t *testing.T) {
				got := runProgram(t, "-json", "-stack", stack, "-size", "2MiB", "-direction", direction)
				if got.status != exitOK || got.stderr != "" {
					t.Fatalf("status %d: %s", got.status, got.stderr)
				}
				lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
				if want := map[bool]int{true: 2, false: 1}[stack == "volley"]; len(lines) != want {
					t.Fatalf("%d lines, want %d: %s", len(lines), want, got.stdout)
				}
				for _, line := range lines {
					var fields map[string]any
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					for _, name := range []string{
						"stack", "emission", "bytes", "seconds", "gbps", "sha256_ok", "source_calls", "datagrams_per_call",
						"datagrams_per_sendmsg", "gso", "gro", "retransmitted_bytes", "sender_cpu_seconds", "receiver_cpu_seconds",
					} {
						if _, ok := fields[name]; !ok {
							t.Errorf("no field %s in %s", name, line)
						}
					}
					if fields["sha256_ok"] != true || fields["stack"] != stack || fields["bytes"] != float64(2<<20) {
						t.Errorf("unexpected: %s", line)
					}
				}
				if stack == "volley" {
					wantVolleys(t, lines[0], lines[1])
				}
			})
		}
	}
}

func TestSelfTestShowsATable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runProgram(t, "-stack", "tcp", "-file", file)
	if got.status != exitOK || got.stderr != "" {
		t.Fatalf("status %d: %s", got.status, got.stderr)
	}
	for _, want := range []string{"97.66 KiB", "Gbit/s", "tcp → tcp", "right"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
}

func TestTheTableTellsOfAFallback(t *testing.T) {
	got := runProgram(t, "-emission", "lend", "-size", "10KiB")
	if got.status != exitOK || !strings.HasSuffix(got.stdout, "\nscatter instead of lend: the source is no emit.Lender\n") {
		t.Errorf("status %d:\n%s", got.status, got.stdout)
	}
}

func TestTheTableClaimsNothingOfLittle(t *testing.T) {
	var table strings.Builder
	mode, cpu := "single", 0.001
	datagrams := 10
	r := &result{Stack: "volley", PeerStack: "volley", Emission: &mode, MaxDatagrams: &datagrams, Bytes: 1, OK: true, SenderCPU: &cpu, ReceiverCPU: &cpu}
	if err := writeTable(&table, []*result{r}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(table.String(), "1000000") {
		t.Errorf("one byte has a price for a gigabyte:\n%s", &table)
	}
	if strings.Contains(table.String(), "≤ 10") {
		t.Errorf("single is said to be up to ten:\n%s", &table)
	}
}

// wantVolleys checks that the two runs differ in what they are there to show.
func wantVolleys(t *testing.T, lines ...string) {
	t.Helper()
	var runs [2]result
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &runs[i]); err != nil {
			t.Fatal(err)
		}
		if *runs[i].Emission != "scatter" {
			t.Errorf("run %d used %s", i, *runs[i].Emission)
		}
		if *runs[i].GSO != (*runs[i].DatagramsPerSendmsg > 1) {
			t.Errorf("run %d: gso %t, but %g datagrams per sendmsg", i, *runs[i].GSO, *runs[i].DatagramsPerSendmsg)
		}
	}
	if many := *runs[0].DatagramsPerCall; many < 5 || many > 10.5 {
		t.Errorf("%g datagrams per call, want up to ten", many)
	}
	if one := *runs[1].DatagramsPerCall; one > 1.5 {
		t.Errorf("%g datagrams per call, want one", one)
	}
}
