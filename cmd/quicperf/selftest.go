package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runSelfTest moves a file over loopback between two processes, once per way
// of asking the source, and says what came of it.
func runSelfTest(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	if err := checkFile(o.file, int64(o.size)); err != nil {
		return err
	}
	// Whatever the children leave, even when they are killed, is in here.
	dir, err := os.MkdirTemp("", "quicperf-")
	if err != nil {
		return fmt.Errorf("no folder for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	t := &selfTest{o: o, dir: dir, stderr: stderr}
	say := func(format string, args ...any) error {
		if o.json {
			return nil
		}
		_, err := fmt.Fprintf(stdout, format+"\n", args...)
		return err
	}
	if o.file == "" && o.source == "file" {
		if o.size < 0 {
			o.size = defaultSize
		}
		if err := say("making a file of %s random bytes", humanBytes(int64(o.size))); err != nil {
			return err
		}
		o.file = filepath.Join(dir, "content")
		if err := makeFile(ctx, o.file, int64(o.size)); err != nil {
			return err
		}
	}

	var results []*result
	runs := t.emissions()
	for i, e := range runs {
		if err := say("run %d of %d: %s, %s", i+1, len(runs), o.stack, e.describe(o)); err != nil {
			return err
		}
		r, err := t.pair(ctx, e)
		if err != nil {
			return err
		}
		if o.json {
			if err := r.writeJSON(stdout); err != nil {
				return err
			}
		}
		results = append(results, r)
	}
	if !o.json {
		r := results[0]
		say("\n%s of %s between two processes on loopback, %s\nSHA-256 of the content %s\n", r.Direction, humanBytes(r.Bytes), r.Cipher, r.SHA256)
		if err := writeTable(stdout, results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if !r.OK {
			return errWrongContent
		}
	}
	return nil
}

func makeFile(ctx context.Context, name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeRandom(ctx, f, size), f.Close())
}

type selfTest struct {
	o      *options
	dir    string
	stderr io.Writer
}

// emissions are the runs: the two ways to compare, unless the command line
// names one, or the stack or the source knows none.
func (t *selfTest) emissions() []emission {
	o := t.o
	if o.set["emission"] || o.set["max-datagrams"] || o.stack != "volley" || o.source == "write" {
		return []emission{{o.emission, o.datagrams}}
	}
	return []emission{{"scatter", maxDatagramsPerCall}, {"scatter", 1}}
}

// describe says how the sender takes the bytes.
func (e emission) describe(o *options) string {
	switch {
	case o.source == "write":
		return "Write in 64 KiB"
	case o.stack != "volley":
		return "source " + o.source
	case e.maxDatagrams == 1 || e.mode == "single":
		return fmt.Sprintf("source %s, %s, one datagram per call", o.source, e.mode)
	}
	return fmt.Sprintf("source %s, %s, up to %d datagrams per call", o.source, e.mode, e.maxDatagrams)
}

// childGrace is how long a child has to end when its input does.
const childGrace = 5 * time.Second

// pair starts a server, then a client, and returns the client's result.
func (t *selfTest) pair(ctx context.Context, e emission) (*result, error) {
	send := []string{"-source", t.o.source}
	if t.o.stack == "volley" && t.o.source != "write" {
		send = append(send, "-emission", e.mode, "-max-datagrams", strconv.Itoa(e.maxDatagrams))
	}
	if t.o.file != "" {
		send = append(send, "-file", t.o.file)
	}
	if t.o.size > 0 {
		send = append(send, "-size", strconv.FormatInt(int64(t.o.size), 10))
	}
	both := []string{"-stack", t.o.stack}
	if t.o.packetSize != 0 {
		both = append(both, "-max-packet-size", strconv.Itoa(t.o.packetSize))
	}

	serverArgs := append([]string{"server", "-addr", "127.0.0.1:0", "-max-size", strconv.FormatInt(1<<62, 10)}, both...)
	clientArgs := append([]string{"-json", "-direction", t.o.direction, "-streams", strconv.Itoa(t.o.streams), "-sink", t.o.sink}, both...)
	if t.o.direction == "download" {
		serverArgs = append(serverArgs, send...)
	} else {
		clientArgs = append(clientArgs, send...)
	}

	server, stopServer, err := t.child(ctx, serverArgs)
	if err != nil {
		return nil, err
	}
	var serverLog bytes.Buffer
	server.Stderr = &serverLog
	out, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	endServer := sync.OnceValue(func() error {
		stopServer()
		return server.Wait()
	})
	defer endServer()
	lines := bufio.NewReader(out)
	addr, fingerprint, err := readHello(lines)
	if err != nil {
		endServer()
		if serverLog.Len() > 0 {
			t.stderr.Write(serverLog.Bytes())
			err = errReported
		}
		return nil, err
	}
	go io.Copy(io.Discard, lines)

	client, stopClient, err := t.child(ctx, append([]string{"client", addr, "-fingerprint", fingerprint}, clientArgs...))
	if err != nil {
		return nil, err
	}
	defer stopClient()
	client.Stderr = t.stderr // also for the progress line
	answer, err := client.Output()
	if len(answer) == 0 {
		if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Exited() {
			err = errReported
		}
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal(answer, r); err != nil {
		return nil, err
	}
	if err := endServer(); err != nil {
		return nil, fmt.Errorf("the server: %w", err)
	}
	return r, nil
}

// child is this program again. It ends when stop is called or ctx is done: its
// standard input is closed then, which works on every system and also when
// this process is killed.
func (t *selfTest) child(ctx context.Context, args []string) (cmd *exec.Cmd, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+t.dir, "TMP="+t.dir, "TEMP="+t.dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stop = func() { in.Close() }
	cmd.Cancel = in.Close
	cmd.WaitDelay = childGrace
	return cmd, stop, nil
}

// readHello reads the line with which a server says that it is ready.
func readHello(r *bufio.Reader) (addr, fingerprint string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", "", errors.New("the server ended before it was ready")
	}
	words := strings.Fields(line)
	if len(words) != 7 || words[0] != "listening" {
		return "", "", fmt.Errorf("the server says %q", oneLine(line))
	}
	return words[2], words[6], nil
}
