package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ngtcp2 is a player that is a program: ngtcp2's gtlsclient and gtlsserver, as Debian
// has them. They speak HTTP/3 only.
type ngtcp2 struct{}

const chaCha20Priority = "--ciphers=NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305"

var handshakeTimeout = fmt.Sprintf("--handshake-timeout=%ds", int((2 * handshakeSilence).Seconds()))

// find returns where a program is.
func (ngtcp2) find(program, pkg string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		// Not everybody has this on the path.
		path = "/usr/sbin/" + program
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s is not installed: apt-get install %s", program, pkg)
		}
	}
	return path, nil
}

func (n ngtcp2) serve(ctx context.Context, j *job, addr *net.UDPAddr) (stop func() error, err error) {
	program, err := n.find("gtlsserver", "ngtcp2-server")
	if err != nil {
		return nil, err
	}
	args := []string{"--quiet", "--no-quic-dump", "--no-http-dump", handshakeTimeout, "--htdocs=" + j.sub("www")}
	switch j.testcase.server {
	case "retry":
		args = append(args, "--validate-addr")
	case "chacha20":
		args = append(args, chaCha20Priority)
	}
	if j.testcase.options.preferred {
		preferred, err := freeAddr(false)
		if err != nil {
			return nil, err
		}
		args = append(args, "--preferred-ipv4-addr="+preferred.String())
	}
	args = append(args, addr.IP.String(), strconv.Itoa(addr.Port), j.sub("certs/priv.key"), j.sub("certs/cert.pem"))
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = j.serverLog, j.serverLog
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() error {
		cancel()
		err := <-ended
		if cmd.ProcessState.ExitCode() > 0 {
			return fmt.Errorf("gtlsserver: %w", err)
		}
		return nil // killed, as it should be
	}
	if err := udpInUse(ctx, addr, ended); err != nil {
		return nil, errors.Join(fmt.Errorf("gtlsserver does not listen: %w", err), stop())
	}
	return stop, nil
}

// udpInUse waits until somebody listens at addr. It looks at the kernel's table, since
// to try the port would be to take it away.
func udpInUse(ctx context.Context, addr *net.UDPAddr, ended chan error) error {
	table := "/proc/net/udp"
	if addr.IP.To4() == nil {
		table = "/proc/net/udp6"
	}
	port := fmt.Appendf(nil, ":%04X ", addr.Port)
	for {
		b, err := os.ReadFile(table)
		if err != nil {
			return err
		}
		if bytes.Contains(b, port) {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (n ngtcp2) download(ctx context.Context, j *job, addr *net.UDPAddr) error {
	program, err := n.find("gtlsclient", "ngtcp2-client")
	if err != nil {
		return err
	}
	fetch := func(urls []*url.URL, more ...string) error {
		args := append([]string{
			"--quiet", "--no-quic-dump", "--no-http-dump", "--exit-on-all-streams-close",
			"--download=" + j.sub("downloads"), handshakeTimeout,
		}, more...)
		switch j.testcase.client {
		case "transfer":
			args = append(args, "--max-data=48K", "--max-stream-data-bidi-local=32K")
		case "chacha20":
			args = append(args, chaCha20Priority)
		case "keyupdate":
			args = append(args, "--key-update=100ms")
		}
		if j.client.options.migrate {
			args = append(args, "--change-local-addr=300ms")
		}
		args = append(args, addr.IP.String(), strconv.Itoa(addr.Port))
		for _, u := range urls {
			args = append(args, u.String())
		}
		cmd := exec.CommandContext(ctx, program, args...)
		out, err := cmd.CombinedOutput()
		j.clientLog.Write(out)
		if err != nil {
			return fmt.Errorf("gtlsclient: %w: %s", err, lastLine(out))
		}
		return nil
	}
	switch j.testcase.client {
	case "multiconnect":
		errs := make(chan error, len(j.urls))
		free := make(chan struct{}, together)
		for i := range j.urls {
			go func() {
				free <- struct{}{}
				errs <- fetch(j.urls[i : i+1])
				<-free
			}()
		}
		var err error
		for range j.urls {
			err = errors.Join(err, <-errs)
		}
		return err
	case "resumption", "zerortt":
		kept := []string{"--session-file=" + j.sub("session"), "--tp-file=" + j.sub("params")}
		if err := fetch(j.urls[:1], kept...); err != nil {
			return err
		}
		if j.testcase.client == "resumption" {
			kept = append(kept, "--disable-early-data")
		}
		return fetch(j.urls[1:], kept...)
	}
	return fetch(j.urls)
}

func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[strings.LastIndexByte(s, '\n')+1:]
}
