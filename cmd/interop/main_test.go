package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// asProgramEnv makes the test binary be interop, so that tests can run it as a user does,
// and the matrix can play its cells in processes of their own.
const asProgramEnv = "INTEROP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	// What go test starts itself, to fuzz, is no program.
	isTest := func(arg string) bool { return strings.HasPrefix(arg, "-test.") }
	if os.Getenv(asProgramEnv) != "" && !slices.ContainsFunc(os.Args, isTest) {
		main()
	}
	os.Setenv(asProgramEnv, "1") // for the processes that tests start
	os.Exit(m.Run())
}

// program is interop with these arguments, and with an environment of the runner's
// variables that env names and no other ones.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "ROLE=", "TESTCASE=", "REQUESTS=", "SSLKEYLOGFILE=", "QLOGDIR=")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// outcome is what a run of the program left.
type outcome struct {
	status         int
	stdout, stderr string
}

func runProgram(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	cmd := program(t, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestTheCommandLineIsAnswered(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"-h"}, 0, "usage: interop"},
		{[]string{"client", "-h"}, 0, "-downloads"},
		{[]string{"matrix", "-h"}, 0, "-only"},
		{[]string{"cell", "-h"}, 0, "-case"},
		{[]string{"cilent"}, exitUsage, "there is no command \"cilent\""},
		{[]string{"matrix", "handshake"}, exitUsage, "unexpected argument \"handshake\""},
		{[]string{"matrix", "-only", "handshaek"}, exitFailed, "no cell matches -only handshaek"},
		{[]string{"client", "https://localhost/file"}, exitLacking, "TESTCASE"},
	} {
		o := runProgram(t, nil, c.args...)
		if o.status != c.status || !strings.Contains(o.stdout+o.stderr, c.says) {
			t.Errorf("interop %q: status %d, want %d, and something about %q:\n%s%s", c.args, o.status, c.status, c.says, o.stdout, o.stderr)
		}
	}
}
