package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asProgramEnv makes the test binary be quicperf, so that tests can run it as
// a user does, self-test with its own children included.
const asProgramEnv = "QUICPERF_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgramEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is quicperf with these arguments and a temporary folder of its own.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, tempDir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tempDir = t.TempDir()
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgramEnv+"=1", "TMPDIR="+tempDir, "TMP="+tempDir, "TEMP="+tempDir)
	return cmd, tempDir
}

// outcome is what a run of the program left.
type outcome struct {
	status         int
	stdout, stderr string
}

func runProgram(t *testing.T, args ...string) outcome {
	t.Helper()
	cmd, dir := program(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	wantEmpty(t, dir)
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("left behind in the temporary folder: %s", e.Name())
	}
}

// wantOneLine checks what a user gets to read when something is wrong.
func (o outcome) wantOneLine(t *testing.T, status int, about string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d", o.status, status)
	}
	if o.stdout != "" {
		t.Errorf("standard output: %q, want nothing", o.stdout)
	}
	if strings.Count(o.stderr, "\n") != 1 || !strings.HasPrefix(o.stderr, "quicperf: ") {
		t.Errorf("want one line that begins with quicperf:, got %q", o.stderr)
	}
	if !strings.Contains(o.stderr, about) {
		t.Errorf("the line says %q, want something about %q", o.stderr, about)
	}
}

func TestHelpNamesEveryCommandAndFlag(t *testing.T) {
	got := runProgram(t, "-h")
	if got.status != exitOK || got.stderr != "" {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	for _, word := range []string{
		"quicperf server", "quicperf client ADDR", "-addr", "-file", "-size", "-direction", "-streams", "-source",
		"-emission", "-max-datagrams", "-stack", "-json", "-insecure", "-ca", "-fingerprint", "-sink",
	} {
		if !strings.Contains(got.stdout, word) {
			t.Errorf("the help does not mention %s", word)
		}
	}
}

func TestHelpOfACommandIsAboutThatCommand(t *testing.T) {
	for _, command := range commands {
		got := runProgram(t, command, "-h").stdout
		for _, other := range []string{"self-test", "server", "client"} {
			if told := strings.Contains(got, "Flags of the "+other); told != (other == command) {
				t.Errorf("the help of %s: flags of the %s told: %t", command, other, told)
			}
		}
	}
}

func TestAnyTextBecomesOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"two\nlines\n":        "two lines",
		"tab\tand\rreturn":    "tab andreturn",
		"\x1b[31mred\x1b[0m!": "[31mred[0m!",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}
