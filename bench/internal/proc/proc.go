// Package proc runs a program's own executable again as its helpers, one process for
// each side of a measurement, and talks with them in lines of JSON; and it says
// what a process has used.
package proc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// envTask is how a helper knows that it is one, and what it is to do.
const envTask = "VOLLEY_BENCH_TASK"

// A Peer is the other end of a conversation: a helper, or the one who started it.
type Peer struct {
	in  *json.Decoder
	out *json.Encoder

	cmd   *exec.Cmd // of a helper
	stdin io.Closer
}

// Task returns what this process was started for, into task, and whom to tell. ok is
// false if it was started by a user.
//
// A helper whose starter goes away ends at once.
func Task(task any) (starter *Peer, ok bool, err error) {
	text, ok := os.LookupEnv(envTask)
	if !ok {
		return nil, false, nil
	}
	if err := json.Unmarshal([]byte(text), task); err != nil {
		return nil, true, err
	}
	r, w := io.Pipe()
	go func() {
		// Read ahead, or nobody would notice the end.
		s := bufio.NewReader(os.Stdin)
		for {
			line, err := s.ReadBytes('\n')
			if err != nil {
				os.Exit(3)
			}
			w.Write(line)
		}
	}()
	return &Peer{in: json.NewDecoder(r), out: json.NewEncoder(os.Stdout)}, true, nil
}

// Start starts a helper.
func Start(task any, env ...string) (*Peer, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), envTask+"="+string(text)), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Peer{in: json.NewDecoder(stdout), out: json.NewEncoder(stdin), cmd: cmd, stdin: stdin}, nil
}

// message wraps what is said, so that a failure can be said too.
type message struct {
	Error string          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Say sends v.
func (p *Peer) Say(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.out.Encode(message{Value: text})
}

// Fail sends an error instead.
func (p *Peer) Fail(err error) { p.out.Encode(message{Error: err.Error()}) }

// Hear waits for what the other end says next. A helper that says nothing within
// timeout (0: no limit) is ended.
func (p *Peer) Hear(v any, timeout time.Duration) error {
	late := make(chan struct{})
	if timeout > 0 && p.cmd != nil {
		t := time.AfterFunc(timeout, func() {
			close(late)
			p.cmd.Process.Kill()
		})
		defer t.Stop()
	}
	var m message
	if err := p.in.Decode(&m); err != nil {
		select {
		case <-late:
			return fmt.Errorf("no result within %v", timeout)
		default:
		}
		if p.cmd != nil {
			return fmt.Errorf("a process ended without a result: %w", err)
		}
		return err
	}
	if m.Error != "" {
		return errors.New(m.Error)
	}
	return json.Unmarshal(m.Value, v)
}

// Close ends a helper, if it has not ended by itself.
func (p *Peer) Close() {
	p.stdin.Close() // which tells it to
	t := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	p.cmd.Wait()
	t.Stop()
}
