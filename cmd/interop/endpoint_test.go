package main

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A served endpoint is interop server in a process of its own.
type served struct {
	cmd *exec.Cmd
	url string
}

// serveProgram starts a server of www for a case.
func serveProgram(t *testing.T, www string, env ...string) served {
	t.Helper()
	certs := t.TempDir()
	if _, _, err := makeChain(certs, 1); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, env, "server", "-addr", "127.0.0.1:0", "-www", www, "-certs", certs)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(line), " on ")
	if !found {
		t.Fatalf("the server says %q: %v", line, err)
	}
	return served{cmd, "https://" + addr + "/"}
}

// files fills a directory with files of these sizes, and returns their names.
func files(t *testing.T, sizes ...int) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	urls, err := makeFiles(dir, &testcase{sizes: sizes}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range urls {
		names = append(names, strings.TrimPrefix(u.Path, "/"))
	}
	return dir, names
}

// Client and server as the runner starts them, in each case that Volley does not lack.
func TestEndpoint(t *testing.T) {
	for _, testcase := range []struct{ client, server string }{
		{"handshake", "handshake"}, {"transfer", "transfer"}, {"chacha20", "chacha20"},
		{"retry", "retry"}, {"resumption", "resumption"}, {"zerortt", "zerortt"},
		{"http3", "http3"}, {"multiconnect", "multiconnect"}, {"keyupdate", "transfer"},
		{"ecn", "ecn"}, {"transfer", "connectionmigration"},
	} {
		t.Run(testcase.client+" "+testcase.server, func(t *testing.T) {
			t.Parallel()
			www, names := files(t, 1000, 200_000, 0)
			s := serveProgram(t, www, "TESTCASE="+testcase.server)
			var urls []string
			for _, name := range names {
				urls = append(urls, s.url+name)
			}
			downloads, logs := t.TempDir(), t.TempDir()
			o := runProgram(t, []string{
				"ROLE=client", "TESTCASE=" + testcase.client, "REQUESTS=" + strings.Join(urls, " "),
				"SSLKEYLOGFILE=" + filepath.Join(logs, "keys.log"),
			}, "client", "-downloads", downloads)
			if o.status != 0 {
				t.Fatalf("status %d: %s", o.status, o.stderr)
			}
			if err := sameFiles(www, downloads); err != nil {
				t.Error(err)
			}
			keys, err := os.ReadFile(filepath.Join(logs, "keys.log"))
			if err != nil || !regexp.MustCompile(`(?m)^SERVER_HANDSHAKE_TRAFFIC_SECRET `).Match(keys) {
				t.Errorf("the key log: %v, %q", err, keys)
			}
			// The runner stops its containers.
			s.cmd.Process.Signal(syscall.SIGTERM)
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("the server ended with %v", err)
			}
		})
	}
}

// ROLE alone says which endpoint to be.
func TestRoleFromEnvironment(t *testing.T) {
	if o := runProgram(t, []string{"ROLE=client", "TESTCASE=handshake"}); o.status != exitFailed || !strings.Contains(o.stderr, "/downloads") && !strings.Contains(o.stderr, "no URLs") {
		t.Errorf("%+v", o)
	}
	if o := runProgram(t, nil); o.status != exitUsage {
		t.Errorf("%+v", o)
	}
}

func TestLackedCases(t *testing.T) {
	for _, c := range []struct{ role, testcase string }{
		{"client", "nonsense"}, {"server", "nonsense"},
		{"client", ""}, {"server", ""},
		{"client", "versionnegotiation"}, {"server", "versionnegotiation"},
		{"server", "keyupdate"}, {"client", "connectionmigration"},
	} {
		if o := runProgram(t, []string{"TESTCASE=" + c.testcase}, c.role); o.status != exitLacking {
			t.Errorf("%v: %+v", c, o)
		}
	}
}

func TestFailedDownloads(t *testing.T) {
	www, names := files(t, 100)
	for _, testcase := range []string{"handshake", "http3"} {
		s := serveProgram(t, www, "TESTCASE="+testcase)
		for _, path := range []string{"no-such-file", "../" + filepath.Base(www) + "/" + names[0], ""} {
			o := runProgram(t, []string{"TESTCASE=" + testcase}, "client", "-downloads", t.TempDir(), s.url+path)
			if o.status != exitFailed {
				t.Errorf("%s, %q: %+v", testcase, path, o)
			}
		}
	}
	// One URL is too few where the second connection is what matters.
	s := serveProgram(t, www, "TESTCASE=resumption")
	if o := runProgram(t, []string{"TESTCASE=resumption"}, "client", "-downloads", t.TempDir(), s.url+names[0]); o.status != exitFailed {
		t.Errorf("%+v", o)
	}
}

func TestQLOGDIR(t *testing.T) {
	www, names := files(t, 100)
	logs := filepath.Join(t.TempDir(), "qlog")
	s := serveProgram(t, www, "TESTCASE=handshake")
	o := runProgram(t, []string{"TESTCASE=handshake", "QLOGDIR=" + logs}, "client", "-downloads", t.TempDir(), s.url+names[0])
	if o.status != 0 {
		t.Fatalf("%+v", o)
	}
	found, err := filepath.Glob(filepath.Join(logs, "*_client.sqlog"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil || !strings.Contains(string(b), "connection_closed") {
		t.Errorf("no connection_closed in %d bytes of qlog: %v", len(b), err)
	}
}

// What the image is built with is what the module wants.
func TestDockerfile(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	docker, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	image := regexp.MustCompile(`(?m)^FROM .*golang:(\d+\.\d+) `).FindSubmatch(docker)
	if version == nil || image == nil || string(version[1]) != string(image[1]) {
		t.Errorf("go.mod says %q, the Dockerfile %q", version, image)
	}
}

// In the runner's container a server listens everywhere, and prefers an address that the
// client can reach: loopback is none.
func TestOtherHosts(t *testing.T) {
	at := func(s string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, s := range []string{"127.0.0.1:1", "[::1]:1"} {
		hosts, err := otherHosts(at(s))
		if err != nil || len(hosts) != 1 || hosts[0] != netip.MustParseAddrPort(s).Addr() {
			t.Errorf("of a server at %s: %v, %v", s, hosts, err)
		}
	}
	hosts, err := otherHosts(at("[::]:443"))
	if err != nil {
		if len(hosts) > 0 {
			t.Errorf("%v, though %v", hosts, err)
		}
		return // a machine without a network
	}
	for i, h := range hosts {
		if !h.IsGlobalUnicast() || h.Is4In6() || slices.ContainsFunc(hosts[:i], func(o netip.Addr) bool { return o.Is4() == h.Is4() }) {
			t.Errorf("of a server that listens everywhere: %v", hosts)
		}
	}
}
