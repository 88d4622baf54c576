package quic_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// These tests build programs that are written for quic-go, in testdata/swap, twice: as
// they are, and with nothing but the import line changed.

// swapped builds a package of testdata/swap for both stacks with "go build" or "go test
// -c", and returns the two programs.
func swapped(t *testing.T, pkg string, build ...string) (onQUICGo, onVolley string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", "swap", pkg))
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	out := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, source := range sources {
		to := filepath.Join(out, filepath.Base(source))
		if swapImport(t, source, to) {
			overlay.Replace[source] = to
		}
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(out, "overlay.json")
	if err := os.WriteFile(overlayFile, b, 0o600); err != nil {
		t.Fatal(err)
	}
	onQUICGo, onVolley = filepath.Join(out, "quicgo.exe"), filepath.Join(out, "volley.exe")
	for _, args := range [][]string{{"-o", onQUICGo}, {"-o", onVolley, "-overlay", overlayFile}} {
		cmd := exec.Command("go", slices.Concat(build, args, []string{"./testdata/swap/" + pkg})...)
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOTOOLCHAIN=local") // Go alone is needed
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, b)
		}
	}
	return onQUICGo, onVolley
}

// swapImport copies a source with its import of quic-go, one line, changed to Volley, and
// reports whether there was one.
func swapImport(t *testing.T, from, to string) bool {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := []byte("\t\""+quicgoPath+"\"\n"), []byte("\t\""+volleyPath+"\"\n")
	switch n := bytes.Count(b, theirs); {
	case n > 1:
		t.Fatalf("%s imports quic-go %d times", from, n)
	case n == 0:
		return false
	}
	if err := os.WriteFile(to, bytes.Replace(b, theirs, ours, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return true
}

// A client and a server are the same to each other, and to those who use them, whichever
// of the two stacks they are built on.
func TestApplicationsRunOnBothStacks(t *testing.T) {
	onQUICGo, onVolley := swapped(t, "apps", "build")
	want := runApps(t, "", onQUICGo, onQUICGo)
	if len(want) < 50 {
		t.Fatalf("on quic-go, the applications say only %q", want)
	}
	for _, pair := range []struct{ name, debug, server, client string }{
		{"Volley", "", onVolley, onVolley},
		{"server on Volley", "", onVolley, onQUICGo},
		{"client on Volley", "", onQUICGo, onVolley},
		{"Volley in FIPS 140 mode", "fips140=on", onVolley, onVolley},
		{"Volley with nothing but FIPS 140", "fips140=only", onVolley, onVolley},
		{"client with nothing but FIPS 140", "fips140=only", onQUICGo, onVolley},
	} {
		t.Run(pair.name, func(t *testing.T) {
			got := runApps(t, pair.debug, pair.server, pair.client)
			for i := range max(len(got), len(want)) {
				g, w := line(got, i), line(want, i)
				if g != w {
					t.Errorf("line %d is %q, on quic-go %q", i, g, w)
				}
			}
		})
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// runApps lets the clients of one program talk to the servers of another, with GODEBUG set
// to debug, and returns what both print.
func runApps(t *testing.T, debug, server, client string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	env := append(os.Environ(), "GODEBUG="+debug)
	serve := exec.CommandContext(ctx, server, "serve")
	serve.Env = env
	var stderr bytes.Buffer
	serve.Stderr = &stderr
	stop, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	says := bufio.NewReader(stdout)
	var addrs [2]string
	for i := range addrs {
		s, err := says.ReadString('\n')
		if err != nil {
			t.Fatalf("the server does not say where it is: %v\n%s", err, stderr.Bytes())
		}
		addrs[i] = strings.TrimSpace(s)
	}

	// One after another: a CONNECTION_CLOSE is not sent again unless it is asked for, so the
	// socket's buffer must never be full.
	apps := []string{"echo", "files", "requests", "datagrams", "early", "errors"}
	outputs := make([]bytes.Buffer, len(apps))
	for i, app := range apps {
		addr := addrs[0]
		if app == "early" {
			addr = addrs[0] + "," + addrs[1]
		}
		dial := exec.CommandContext(ctx, client, "dial", addr, app)
		dial.Env = env
		dial.Stdout, dial.Stderr = &outputs[i], &outputs[i]
		if err := dial.Run(); err != nil {
			t.Errorf("%s: %v", app, err)
		}
	}
	stop.Close()
	ends, err := io.ReadAll(says)
	if err := serve.Wait(); err != nil {
		t.Errorf("the server: %v\n%s", err, stderr.Bytes())
	}
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for i, app := range apps {
		lines = append(lines, strings.Split("client "+app+"\n"+outputs[i].String(), "\n")...)
	}
	return append(lines, strings.Split("servers\n"+string(ends), "\n")...)
}

// A difference is what an application sees on the two stacks where it is not the same.
type difference struct {
	quicgo, volley string // what the row of testdata/swap/behaviour says
	why            string
}

// differences are all differences in behaviour that the rows of testdata/swap/behaviour
// show. The migration page tells of each, by the name of its row.
var differences = map[string]difference{
	"write returns": {
		"when a packet or less is unsent", "when 64 KiB or less is unsent",
		"a writer is ahead of the network, so that flights are full; SetWriteBuffer(0, 0) gives quic-go's rule",
	},
	"write deadline, n": {
		"all of the peer's credit, and nothing", "all of the peer's credit, and 64 KiB or less",
		"follows from the write buffer",
	},
	"WriteWithLimit, calls of the limiter": {
		"one for 5 packets or less: true", "one for 5 packets or less: false",
		"asked once for a pass, outside of all locks",
	},
	"Close after CancelWrite": {
		"\"close called for canceled stream 2\"\nagain: nil",
		"StreamError \"stream 2 canceled by local with error code 7\"\nagain: StreamError \"stream 2 canceled by local with error code 7\"",
		"the error says what happened, however often it is asked",
	},
	"the text of a deadline's error": {
		"deadline exceeded", "i/o timeout",
		"it is os.ErrDeadlineExceeded itself, and not an error that wraps it",
	},
	"Peek beyond the window": {
		"0, false", "5000, true",
		"the peer is given credit for what Peek waits for",
	},
	"reset after all bytes have arrived, unread": {
		"0, StreamError \"stream 2 canceled by remote with error code 5\"", "3, io.EOF \"EOF\"",
		"RFC 9000 §3.2 lets the bytes be delivered that are all there",
	},
	"the largest datagram": {
		"1243", "1252",
		"what fits is reckoned with the connection ID in use, not with the longest",
	},
	"Accept's queue": {
		"108 of 140 refused\n32 accepted", "12 of 140 refused\n128 accepted",
		"a burst of clients is not refused because Accept is a little late",
	},
	"ReadNonQUICPacket after Close": {
		"\"closed\"", "ErrTransportClosed net.ErrClosed \"quic: transport closed\"",
		"the error of everything else on a closed Transport",
	},
}

func TestBehaviourIsThatOfQUICGo(t *testing.T) {
	onQUICGo, onVolley := swapped(t, "behaviour", "test", "-c")
	theirs, ours := runRows(t, onQUICGo), runRows(t, onVolley)
	if len(theirs) < 50 {
		t.Fatalf("only %d rows", len(theirs))
	}
	page, err := os.ReadFile("migrating.go")
	if err != nil {
		t.Fatal(err)
	}
	// Comments are broken into lines anywhere.
	prose := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\n//", " ")), " ")
	for _, row := range slices.Sorted(maps.Keys(theirs)) {
		quicgo, volley := theirs[row], ours[row]
		want, differs := differences[row]
		if !differs {
			if !slices.Equal(quicgo, volley) {
				t.Errorf("%s\nquic-go:\n\t%s\nVolley:\n\t%s", row, strings.Join(quicgo, "\n\t"), strings.Join(volley, "\n\t"))
			}
			continue
		}
		var q, v []string
		for i := range max(len(quicgo), len(volley)) {
			if a, b := line(quicgo, i), line(volley, i); a != b {
				q, v = append(q, a), append(v, b)
			}
		}
		got := difference{strings.Join(q, "\n"), strings.Join(v, "\n"), want.why}
		switch {
		case len(q) == 0:
			t.Errorf("%s is the same on both stacks: strike it out of differences, and of the migration page", row)
		case got != want:
			t.Errorf("%s\nquic-go:\n\t%s\nVolley:\n\t%s\nwhich is not what the table of differences says", row, got.quicgo, got.volley)
		}
		if !strings.Contains(prose, fmt.Sprintf("%q", row)) {
			t.Errorf("migrating.go does not tell of %q", row)
		}
	}
	for row := range differences {
		if theirs[row] == nil {
			t.Errorf("there is no row %q", row)
		}
	}
}

// runRows returns what a program says, line by line, of each row.
func runRows(t *testing.T, program string) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := map[string][]string{}
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		if kind, rest, _ := strings.Cut(sc.Text(), "\t"); kind == "row" {
			row, says, _ := strings.Cut(rest, "\t")
			rows[row] = append(rows[row], says)
		}
	}
	return rows
}
