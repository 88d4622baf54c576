package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses. A transfer whose content was wrong is exitFailed.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// childEnv tells a process that it was started by a self-test: it ends when
// its standard input does, so that it never outlives its parent.
const childEnv = "QUICPERF_CHILD"

// errReported is returned when a line about the failure is on stderr already.
var errReported = errors.New("already reported")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the program the hard way, should the clean end hang.
	context.AfterFunc(ctx, stop)
	// Whoever reads the output may go away, as head does. The next write says so; the
	// signal would end the program with its files left behind.
	signal.Ignore(syscall.SIGPIPE)
	if os.Getenv(childEnv) != "" {
		ctx = untilEOF(ctx, os.Stdin)
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// untilEOF returns a context that ends with ctx, or when r has no more to read.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx
}

// run is the program without its process: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		printHelp(stdout, args)
		return exitOK
	}
	if err != nil {
		complain(stderr, fmt.Errorf("%w (quicperf -h lists commands and flags)", err))
		return exitUsage
	}

	switch o.command {
	case "server":
		err = runServer(ctx, o, stdout, stderr)
	case "client":
		err = runClient(ctx, o, stdout, stderr)
	default:
		err = runSelfTest(ctx, o, stdout, stderr)
	}

	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		if os.Getenv(childEnv) == "" {
			complain(stderr, errors.New("interrupted"))
		}
		return exitInterrupted
	case errors.Is(err, errReported):
		return exitFailed
	default:
		complain(stderr, err)
		return exitFailed
	}
}

// complain writes err as one line, whatever it contains.
func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "quicperf: %s\n", oneLine(err.Error()))
}

// oneLine makes text of any origin fit to be one line on a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, strings.TrimSpace(s))
}
