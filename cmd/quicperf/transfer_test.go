package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// startServer serves in this process and returns its address. Failures that
// the server has go to the returned log.
func startServer(t *testing.T, args ...string) (addr string, log *lockedBuffer) {
	t.Helper()
	o, err := parseOptions(append([]string{"server", "-addr", "127.0.0.1:0"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	conf, _, err := serverTLS(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := stacks[o.stack].Listen(o.addr, conf, o.net())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	log = new(lockedBuffer)
	srv := &server{o: o, out: io.Discard, log: log}
	served := make(chan error)
	go func() { served <- srv.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	return l.Addr().String(), log
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// ask does one transfer as the client.
func ask(t *testing.T, addr string, args ...string) (*result, error) {
	t.Helper()
	o, err := parseOptions(append([]string{"client", addr}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return transfer(t.Context(), o, io.Discard)
}

// mustAsk is ask for transfers that have to go well.
func mustAsk(t *testing.T, addr string, args ...string) *result {
	t.Helper()
	r, err := ask(t, addr, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK {
		t.Fatal("the content arrived wrong")
	}
	return r
}

// pairs are the stacks that understand each other, client first.
func pairs() (ps [][2]string) {
	for _, client := range stackNames() {
		for _, server := range stackNames() {
			if (client == "tcp") == (server == "tcp") && stacks[client] != nil {
				ps = append(ps, [2]string{client, server})
			}
		}
	}
	return ps
}

// quic-go#3291, #3592: a connection's close right after a stream's end takes nothing of
// the stream with it, as both sides wait until the receiver has it all.
func TestEveryPairOfStacksMovesTheContent(t *testing.T) {
	const size = 3<<20 + 12345
	for _, pair := range pairs() {
		client, server := pair[0], pair[1]
		t.Run(client+" with "+server, func(t *testing.T) {
			t.Parallel()
			addr, log := startServer(t, "-stack", server)
			for _, direction := range directions {
				for _, source := range sources {
					for _, streams := range []int{1, 7} {
						t.Run(fmt.Sprintf("%s of %s on %d", direction, source, streams), func(t *testing.T) {
							r := mustAsk(t, addr, "-stack", client, "-direction", direction, "-source", source,
								"-streams", fmt.Sprint(streams), "-size", fmt.Sprint(size))
							if r.Bytes != size || r.Seconds <= 0 || r.Gbps <= 0 {
								t.Errorf("%d bytes in %g s, %g Gbit/s", r.Bytes, r.Seconds, r.Gbps)
							}
							if r.Stack != client || r.PeerStack != server || r.Direction != direction || r.Source != source {
								t.Errorf("the result is about %s with %s, %s of %s", r.Stack, r.PeerStack, r.Direction, r.Source)
							}
							if r.Cipher == "" || len(r.SHA256) != 64 {
								t.Errorf("cipher %q, SHA-256 %q", r.Cipher, r.SHA256)
							}
							if r.SenderCPU == nil || r.ReceiverCPU == nil {
								t.Error("no CPU figures of a transfer that was alone")
							}
						})
					}
				}
			}
			if log.String() != "" {
				t.Errorf("the server complains: %s", log)
			}
		})
	}
}

func TestEveryEmissionMovesTheContent(t *testing.T) {
	addr, _ := startServer(t, "-stack", "volley")
	for _, c := range []struct {
		source, asked, used string
	}{
		{"file", "auto", "scatter"},
		{"file", "scatter", "scatter"},
		{"file", "single", "single"},
		{"file", "lend", "scatter"}, // files cannot lend
		{"memory", "auto", "lend"},
		{"memory", "scatter", "scatter"},
		{"memory", "single", "single"},
		{"memory", "lend", "lend"},
		{"memory", "vector", "vector"},
	} {
		for _, direction := range directions {
			t.Run(c.asked+" of "+c.source+" "+direction, func(t *testing.T) {
				r := mustAsk(t, addr, "-direction", direction, "-source", c.source, "-emission", c.asked, "-size", "2MiB", "-streams", "3", "-max-datagrams", "4")
				if r.Emission == nil || *r.Emission != c.used || *r.Asked != c.asked {
					t.Errorf("asked for %s, used %s", c.asked, known(r.Emission, func(s string) string { return s }))
				}
				if fell := *r.Fallbacks > 0; fell != (c.asked != "auto" && c.asked != c.used) {
					t.Errorf("%d fallbacks: %q", *r.Fallbacks, r.FallbackReason)
				}
				if *r.SourceCalls == 0 || *r.DatagramsPerCall > 4.5 {
					t.Errorf("%d calls, %g datagrams each; the limit was 4", *r.SourceCalls, *r.DatagramsPerCall)
				}
			})
		}
	}
	// The parts are taken whole long before they are all sent, and are counted all the same.
	for _, direction := range directions {
		if r := mustAsk(t, addr, "-direction", direction, "-emission", "scatter", "-size", "3MiB", "-streams", "1000"); *r.DatagramsPerCall < 2 {
			t.Errorf("%s: %g datagrams for each call, which are of 3 KiB", direction, *r.DatagramsPerCall)
		}
	}
	// preadv is there on Linux only; elsewhere the same content comes by scatter.
	mustAsk(t, addr, "-source", "file", "-emission", "vector", "-size", "2MiB")
	if r := mustAsk(t, addr, "-source", "write", "-size", "2MiB"); r.Emission != nil || r.SourceCalls != nil {
		t.Error("source write asks nobody, but there are emission figures")
	}
}

func TestANamedFileArrives(t *testing.T) {
	name := filepath.Join(t.TempDir(), "some file")
	if err := os.WriteFile(name, []byte(strings.Repeat("all of this and no more ", 40000)), 0o600); err != nil {
		t.Fatal(err)
	}
	const sum = "e55d1a6a3611776ec4eec7c92bf915ec47e299fd5347db190832d6baab9a90ca"
	addr, _ := startServer(t, "-stack", "tcp", "-file", name)
	for _, source := range sources {
		if r := mustAsk(t, addr, "-stack", "tcp", "-source", source); r.Bytes != 960000 || r.SHA256 != sum {
			t.Errorf("download of %s: %d bytes, SHA-256 %s", source, r.Bytes, r.SHA256)
		}
		if r := mustAsk(t, addr, "-stack", "tcp", "-source", source, "-direction", "upload", "-file", name); r.SHA256 != sum {
			t.Errorf("upload of %s: SHA-256 %s", source, r.SHA256)
		}
	}
	if r := mustAsk(t, addr, "-stack", "tcp", "-size", "1000"); r.Bytes != 1000 {
		t.Errorf("asked for the first 1000 bytes, got %d", r.Bytes)
	}
	if _, err := ask(t, addr, "-stack", "tcp", "-size", "960001"); err == nil || !strings.Contains(err.Error(), "has only 960000 bytes") {
		t.Errorf("asked for more than the file has: %v", err)
	}
}

func TestTheServersFlagsHoldWhereTheClientSaysNothing(t *testing.T) {
	addr, _ := startServer(t, "-stack", "tcp", "-size", "5000", "-source", "memory", "-max-size", "1MiB")
	if r := mustAsk(t, addr, "-stack", "tcp"); r.Bytes != 5000 || r.Source != "memory" || r.Sink != "memory" {
		t.Errorf("got %d bytes of %s into %s", r.Bytes, r.Source, r.Sink)
	}
	if r := mustAsk(t, addr, "-stack", "tcp", "-size", "6000", "-source", "file"); r.Bytes != 6000 || r.Source != "file" || r.Sink != "file" {
		t.Errorf("got %d bytes of %s into %s", r.Bytes, r.Source, r.Sink)
	}
	for _, direction := range directions {
		_, err := ask(t, addr, "-stack", "tcp", "-size", "1048577", "-direction", direction)
		if err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s beyond -max-size: %v", direction, err)
		}
	}
}

// connect is a client that has yet to say what it wants.
func connect(t *testing.T, stack, addr string) *session {
	t.Helper()
	o, err := parseOptions([]string{"client", addr, "-stack", stack})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheServerSaysWhatItDoesNotKnow(t *testing.T) {
	good := job{Direction: "download", Streams: 1, Sink: "auto"}
	for name := range stacks {
		t.Run(name, func(t *testing.T) {
			addr, _ := startServer(t, "-stack", name)
			for want, spoil := range map[string]func(*job){
				"unknown -direction": func(j *job) { j.Direction = "sideways" },
				"unknown -source":    func(j *job) { j.Source = "tape" },
				"unknown -sink":      func(j *job) { j.Sink = "drain" },
				"unknown -emission":  func(j *job) { j.Emission = "slow" },
				"-streams -1":        func(j *job) { j.Streams = -1 },
				"-streams 1001":      func(j *job) { j.Streams = 1001 },
				"-max-datagrams 11":  func(j *job) { j.MaxDatagrams = 11 },
				"-size -5":           func(j *job) { j.Size = -5 },
				"upload of no bytes": func(j *job) { j.Direction = "upload" },
			} {
				s, j := connect(t, name, addr), good
				spoil(&j)
				err := s.greet(message{Request: &j})
				if err == nil {
					_, err = s.next()
				}
				if err = s.end(err); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want something about %q", err, want)
				}
			}
		})
	}
}

func TestAServerThatIsBusySaysSo(t *testing.T) {
	addr, _ := startServer(t, "-stack", "tcp")
	for range maxSessions {
		s := connect(t, "tcp", addr)
		defer s.end(nil)
		// The answer shows that the server counts this one.
		if err := s.greet(message{Request: &job{Direction: "download", Size: 1, Streams: 1, Sink: "auto"}}); err != nil {
			t.Fatal(err)
		}
		if m, err := s.next(); err != nil || m.Job == nil {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	if _, err := ask(t, addr, "-stack", "tcp", "-size", "1"); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("one transfer too many: %v", err)
	}
}

func TestCPUOfASharedServerIsUnknown(t *testing.T) {
	srv := new(server)
	first, _ := srv.enter()
	second, _ := srv.enter()
	if second() {
		t.Error("the second transfer believes that it was alone")
	}
	if first() {
		t.Error("the first transfer believes that it was alone")
	}
	if third, _ := srv.enter(); !third() {
		t.Error("the third transfer was alone")
	}
}

// A tampered stack changes one byte of the content on its way.
type tamperedStack struct{ stack }

func (s tamperedStack) Dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, n netOptions) (conn, error) {
	c, err := s.stack.Dial(ctx, addr, conf, n)
	if err != nil {
		return nil, err
	}
	return &tamperedConn{conn: c}, nil
}

type tamperedConn struct {
	conn
	opened int
}

func (c *tamperedConn) OpenStream(ctx context.Context) (stream, error) {
	s, err := c.conn.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	c.opened++
	if c.opened == 1 { // the control stream
		return s, nil
	}
	return &tamperedStream{stream: s}, nil
}

type tamperedStream struct {
	stream
	read atomic.Int64
}

func (s *tamperedStream) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	const at = 300_000
	if off := s.read.Add(int64(n)) - int64(n); off <= at && at < off+int64(n) {
		p[at-off] ^= 0x10
	}
	return n, err
}

func TestOneWrongBitIsNoticed(t *testing.T) {
	stacks["tampered"] = tamperedStack{stacks["quic-go"]}
	defer delete(stacks, "tampered")
	addr, _ := startServer(t, "-stack", "quic-go")
	for _, sink := range []string{"file", "memory"} {
		o, err := parseOptions([]string{"client", addr, "-stack", "tampered", "-size", "1MiB", "-sink", sink, "-json"})
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		err = runClient(t.Context(), o, &stdout, io.Discard)
		if !errors.Is(err, errWrongContent) {
			t.Errorf("the client says: %v", err)
		}
		if !strings.Contains(stdout.String(), `"sha256_ok":false`) {
			t.Errorf("the JSON says: %s", &stdout)
		}
	}
}

func TestAClientThatIsInterruptedTellsTheServer(t *testing.T) {
	for name := range stacks {
		t.Run(name, func(t *testing.T) {
			o, err := parseOptions([]string{"server", "-addr", "127.0.0.1:0", "-stack", name})
			if err != nil {
				t.Fatal(err)
			}
			conf, _, err := serverTLS(o)
			if err != nil {
				t.Fatal(err)
			}
			l, err := stacks[name].Listen(o.addr, conf, o.net())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()

			// A server that gets as far as the content, and sends none.
			ctx, interrupt := context.WithCancel(t.Context())
			said := make(chan error, 1)
			go func() {
				c, err := l.Accept(t.Context())
				if err != nil {
					said <- err
					return
				}
				ctrl, err := c.AcceptStream(t.Context())
				if err != nil {
					said <- err
					return
				}
				s := newSession(t.Context(), c, ctrl)
				j := job{Direction: "download", Size: 1000, Streams: 2, Source: "memory", Sink: "auto", Emission: "auto", MaxDatagrams: 10}
				if err = s.greet(); err == nil {
					s.next() // the request
					s.ctrl.send(message{Job: &j})
					_, err = s.acceptStreams(&j)
				}
				if err == nil {
					s.next() // Go
					interrupt()
					_, err = s.next()
				}
				said <- s.end(err)
			}()

			o, err = parseOptions([]string{"client", l.Addr().String(), "-stack", name, "-streams", "2"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transfer(ctx, o, io.Discard); err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("the client says: %v", err)
			}
			if err := <-said; err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("the server hears: %v", err)
			}
		})
	}
}

func TestAServerThatIsInterruptedTellsItsClients(t *testing.T) {
	for name := range stacks {
		t.Run(name, func(t *testing.T) {
			var s *session
			t.Run("server", func(t *testing.T) { // ends when this ends
				addr, _ := startServer(t, "-stack", name)
				s = connect(t, name, addr)
				if err := s.greet(message{Request: &job{Direction: "download", Size: 1000, Streams: 2, Sink: "auto"}}); err != nil {
					t.Fatal(err)
				}
				if m, err := s.next(); err != nil || m.Job == nil {
					t.Fatalf("got %+v, %v", m, err)
				}
			})
			_, err := s.next()
			if err = s.end(err); err == nil || !strings.Contains(describe(err), "interrupted") {
				t.Errorf("the client hears: %v", err)
			}
		})
	}
}
