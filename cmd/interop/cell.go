package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// A cell is a case played by two players.
type cell struct {
	Case   string `json:"case"`
	Client string `json:"client"`
	Server string `json:"server"`
}

func (c cell) String() string { return fmt.Sprintf("%s, %s to %s", c.Case, c.Client, c.Server) }

// A verdict is what became of a cell.
type verdict struct {
	cell
	// Result is ok, FAIL, "peer lacks it" or "Volley lacks it"; Reason says why it is not ok.
	Result  string  `json:"result"`
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed,omitempty"`
}

const (
	resultOK     = "ok"
	resultFailed = "FAIL"
)

// files makes the files of a case in www.
func makeFiles(www string, c *testcase, seed uint64) (urls []*url.URL, err error) {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	content := rand.NewChaCha8(key)
	rnd := rand.New(content)
	for i, size := range c.sizes {
		name := fmt.Sprintf("file-%d", i)
		if c.longNames {
			b := make([]byte, 250)
			for k := range b {
				b[k] = 'a' + byte(rnd.IntN(26))
			}
			name = string(b)
		}
		b := make([]byte, size)
		content.Read(b)
		if err := os.WriteFile(filepath.Join(www, name), b, 0o644); err != nil {
			return nil, err
		}
		urls = append(urls, &url.URL{Scheme: "https", Host: "localhost", Path: "/" + name})
	}
	return urls, nil
}

// sameFiles wants the same files in both directories: by name, and by the hash of what
// is in them.
func sameFiles(want, got string) error {
	wants, err := hashes(want)
	if err != nil {
		return err
	}
	gots, err := hashes(got)
	if err != nil {
		return err
	}
	for name, hash := range wants {
		switch h, ok := gots[name]; {
		case !ok:
			return fmt.Errorf("%s is missing", shorten(name))
		case h != hash:
			return fmt.Errorf("%s has another content", shorten(name))
		}
	}
	if len(gots) != len(wants) {
		return fmt.Errorf("%d files, not %d", len(gots), len(wants))
	}
	return nil
}

func hashes(dir string) (map[string][sha256.Size]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	m := map[string][sha256.Size]byte{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		m[e.Name()] = sha256.Sum256(b)
	}
	return m, nil
}

// play plays a cell, and says what is wrong. What it learns beside goes to log.
func (c cell) play(ctx context.Context, seed uint64, log io.Writer) error {
	t, err := c.observe(ctx, seed, log)
	if err != nil {
		return err
	}
	for _, checks := range [][]check{always, caseNamed(c.Case).checks} {
		for _, check := range checks {
			if err := check(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// observe plays a cell and returns what was to be seen. All files have arrived if there is
// no error.
func (c cell) observe(ctx context.Context, seed uint64, log io.Writer) (t *trace, err error) {
	tc := caseNamed(c.Case)
	client, server := players[c.Client], players[c.Server]
	if tc == nil || client == nil || server == nil {
		return nil, fmt.Errorf("there is no such cell: %v", c)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tc.limit, fmt.Errorf("not over after %v", tc.limit))
	defer cancel()

	dir, err := os.MkdirTemp(memoryDir(), "interop-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	j := &job{testcase: tc, dir: dir, keys: &keyLog{}, clientLog: prefix{log, "client: "}, serverLog: prefix{log, "server: "}}
	for _, name := range []string{"www", "downloads", "certs"} {
		if err := os.Mkdir(j.sub(name), 0o755); err != nil {
			return nil, err
		}
	}
	if j.urls, err = makeFiles(j.sub("www"), tc, seed); err != nil {
		return nil, err
	}
	length := 1
	if tc.longChain {
		length = 9
	}
	if j.cert, j.trust, err = makeChain(j.sub("certs"), length); err != nil {
		return nil, err
	}
	if err := j.makePlans(c); err != nil {
		return nil, err
	}

	addr, err := freeAddr(tc.ipv6)
	if err != nil {
		return nil, err
	}
	stop, err := server.serve(ctx, j, addr)
	if err != nil {
		return nil, err
	}
	relay, err := newRelay(addrPort(addr), tc.scenarioOf(c.Client, c.Server), seed)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	err = client.download(ctx, j, relay.addr())
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	// Let a CONNECTION_CLOSE that is under way arrive.
	time.Sleep(tc.scenario.delay + 20*time.Millisecond)
	err = errors.Join(err, stop(), relay.close())
	seen := &relay.capture
	for _, p := range []plan{j.server, j.client} {
		if p.options.tap != nil {
			seen = p.options.tap
		}
	}
	t = openCapture(seen.datagrams(), j.keys, c.Server)
	t.print(log)
	if err != nil {
		return nil, err
	}
	return t, sameFiles(j.sub("www"), j.sub("downloads"))
}

// makePlans says what each role has to do, and prepares the process for it.
func (j *job) makePlans(c cell) (err error) {
	if j.client, err = planFor("client", j.testcase.client); err != nil {
		return err
	}
	if j.server, err = planFor("server", j.testcase.server); err != nil && c.Server == volleyName {
		return err
	}
	j.protocol = j.client.protocol
	if c.Client == ngtcp2Name || c.Server == ngtcp2Name {
		j.protocol = h3{}
	}
	for _, p := range []*plan{&j.client, &j.server} {
		p.options.version2 = j.testcase.options.version2
	}
	j.client.options.keepAlive = false // the relay does without, see rebind
	j.client.options.migrate = j.testcase.options.migrate
	if j.testcase.options.preferred {
		// The other address leads past the relay.
		if c.Server == volleyName {
			j.server.options.preferredHosts = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
		}
		if c.Client == volleyName {
			j.client.options.tap = &capture{}
		} else {
			j.server.options.tap = &capture{}
		}
	}
	// A peer updates its keys of its own accord, and Volley has to follow.
	j.client.keyUpdate = j.client.keyUpdate && c.Client == volleyName
	j.client.apply()
	j.server.apply()
	return nil
}

// memoryDir is where files take no time, if there is such a place: a case has up to 2,000.
func memoryDir() string {
	const dir = "/dev/shm"
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// freeAddr finds an address on loopback that nobody uses.
func freeAddr(ipv6 bool) (*net.UDPAddr, error) {
	ip := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if ipv6 {
		ip = netip.IPv6Loopback()
	}
	pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	return pc.LocalAddr().(*net.UDPAddr), nil
}

// prefix puts a word in front of what is written.
type prefix struct {
	w    io.Writer
	word string
}

func (p prefix) Write(b []byte) (int, error) {
	fmt.Fprintf(p.w, "%s%s", p.word, b)
	return len(b), nil
}

// playCell is the command with which the matrix plays a cell in a process of its own: it
// prints a verdict.
func playCell(ctx context.Context, args []string) int {
	var c cell
	flags := flag.NewFlagSet("interop cell", flag.ContinueOnError)
	flags.StringVar(&c.Case, "case", "handshake", "`name` of the case")
	flags.StringVar(&c.Client, "client", volleyName, "`name` of the client")
	flags.StringVar(&c.Server, "server", quicGoName, "`name` of the server")
	seed := flags.Uint64("seed", rand.Uint64(), "`number` that decides what is lost")
	verbose := flags.Bool("v", false, "tell every packet")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	log := io.Discard
	if *verbose {
		log = os.Stderr
	}
	v := verdict{cell: c, Result: resultOK, Seed: *seed}
	begin := time.Now()
	if err := c.play(ctx, *seed, log); err != nil {
		v.Result, v.Reason = resultFailed, err.Error()
	}
	v.Seconds = time.Since(begin).Seconds()
	json.NewEncoder(os.Stdout).Encode(v)
	if v.Result == resultFailed {
		return exitFailed
	}
	return 0
}
