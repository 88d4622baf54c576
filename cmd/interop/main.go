package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses of the runner's contract.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitLacking = 127
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

const usage = `usage: interop client|server [flags]  an endpoint of the interop runner (or ROLE)
       interop matrix [flags]         plays the runner's cases against other stacks
Flags are told by -h behind the first word; what each does and means, by go doc ./cmd/interop.
`

func run(ctx context.Context, args []string) int {
	if len(args) == 0 && os.Getenv("ROLE") != "" {
		args = []string{os.Getenv("ROLE")}
	}
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	var err error
	switch args[0] {
	case "client", "server":
		err = endpoint(ctx, args[0], args[1:])
	case "matrix":
		return matrix(ctx, args[1:])
	case "cell": // one cell of the matrix, in a process of its own
		return playCell(ctx, args[1:])
	case "-h", "-help", "--help", "help":
		fmt.Print(usage)
		return 0
	default:
		fmt.Fprintf(os.Stderr, "interop: there is no command %q\n%s", args[0], usage)
		return exitUsage
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "interop:", err)
	if errors.Is(err, errLacking) {
		return exitLacking
	}
	return exitFailed
}
