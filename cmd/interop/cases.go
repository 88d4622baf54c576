package main

import (
	"fmt"
	"slices"
	"time"
)

// A testcase is one of the runner's cases, or one of this program's own.
type testcase struct {
	name           string
	client, server string // TESTCASE for each role
	about          string // what is less than in the runner, or else
	sizes          []int  // of the files, in bytes
	longNames      bool   // names of 250 characters
	longChain      bool   // nine certificates, the last of them large
	ipv6           bool
	options        options // what client and server need beyond their plans
	scenario       scenario
	checks         []check
	limit          time.Duration
	lacks          []lack
}

// A lack is a reason why someone does not play a case.
type lack struct {
	who  string // a player's name
	role string // client, server, or "" for both
	why  string
}

// scenarioOf is the case's scenario, milder for a peer that does not stand it.
func (c *testcase) scenarioOf(client, server string) scenario {
	s := c.scenario
	if client != quicGoName && server != quicGoName {
		s.lose, s.damage = s.lose.milder(), s.damage.milder()
	}
	return s
}

// lacking returns why a cell cannot be played, "" if it can.
func (c *testcase) lacking(client, server string) string {
	for _, l := range c.lacks {
		if l.who == client && l.role != "server" || l.who == server && l.role != "client" {
			if l.who == volleyName {
				return "Volley lacks it: " + l.why
			}
			return "peer lacks it: " + l.why
		}
	}
	return ""
}

// The players.
const (
	volleyName = "volley"
	quicGoName = "quic-go"
	xNetName   = "x/net/quic"
	ngtcp2Name = "ngtcp2"
)

const (
	kb = 1 << 10

	// patience ends a cell in which nothing goes forward, as it does in the runner.
	patience = 60 * time.Second
)

func repeat(n, size int) []int { return slices.Repeat([]int{size}, n) }

// connections is how many connections the cases of many connections make.
const connections = 12

// cases are played in this order.
var cases = func() []*testcase {
	one := []check{handshakes(1), onlyVersion(1)}
	with := func(checks ...check) []check { return append(slices.Clone(one), checks...) }
	light := trouble{rate: 0.02, burst: 3}
	noMigration := lack{xNetName, "", "no migration, says its documentation"}
	return []*testcase{
		{
			name: "handshake", client: "handshake", server: "handshake",
			sizes: []int{1 * kb}, checks: with(noRetry),
		},
		{
			name: "transfer", client: "transfer", server: "transfer",
			about: "files of 500, 750 and 1250 KB; the runner has 2, 3 and 5 MB",
			sizes: []int{500 * kb, 750 * kb, 1250 * kb}, checks: with(windowsGrow),
		},
		{
			name: "longrtt", client: "handshake", server: "handshake",
			sizes:    []int{1 * kb},
			scenario: plain.with(func(s *scenario) { s.delay = 750 * time.Millisecond }),
			checks:   with(helloAgain),
		},
		{
			name: "chacha20", client: "chacha20", server: "chacha20",
			about: "500 KB; the runner has 3 MB",
			sizes: []int{500 * kb}, checks: with(onlyChaCha20Offered),
		},
		{
			name: "multiplexing", client: "transfer", server: "transfer",
			sizes: repeat(1999, 32), checks: with(streamLimitGrows),
		},
		{
			name: "retry", client: "retry", server: "retry",
			sizes: []int{10 * kb}, checks: with(retried),
		},
		{
			name: "resumption", client: "resumption", server: "resumption",
			sizes: []int{5 * kb, 10 * kb}, checks: []check{handshakes(2), onlyVersion(1), resumed},
			lacks: []lack{{xNetName, "", "neither gives nor keeps session tickets"}},
		},
		{
			name: "zerortt", client: "zerortt", server: "zerortt",
			sizes: repeat(40, 32), longNames: true,
			checks: []check{handshakes(2), onlyVersion(1), resumed, zeroRTTUsed(40 * 250 / 2)},
			lacks:  []lack{{xNetName, "", "no 0-RTT, says its documentation"}},
		},
		{
			name: "http3", client: "http3", server: "http3",
			about: "with ngtcp2 every case is played over HTTP/3, for it speaks nothing else",
			sizes: []int{5 * kb, 10 * kb, 500 * kb}, checks: one,
			lacks: []lack{{xNetName, "", "offers no HTTP/3 on its QUIC"}},
		},
		{
			name: "blackhole", client: "transfer", server: "transfer",
			about:    "2.5 MB, 1 s on and 1 s off, twice; the runner has 10 MB, 5 s on and 2 s off",
			sizes:    []int{2500 * kb},
			scenario: plain.with(func(s *scenario) { s.on, s.off, s.holes = time.Second, time.Second, 2 }),
			checks:   with(befell(lost)),
		},
		{
			name: "keyupdate", client: "keyupdate", server: "transfer",
			about: "1 MB; the runner has 3 MB",
			sizes: []int{1000 * kb}, checks: with(keysUpdated),
		},
		{
			name: "ecn", client: "ecn", server: "ecn",
			sizes: []int{100 * kb}, checks: with(ecnUsed),
			lacks: []lack{{xNetName, "", "marks no packets (and makes no use of what peers tell of marks)"}},
		},
		{
			name: "amplificationlimit", client: "transfer", server: "transfer",
			about: "three times is the limit here; the runner lets four pass",
			sizes: []int{5 * kb}, longChain: true,
			scenario: plain.with(func(s *scenario) { s.loseUp = []int{2, 3, 4, 5, 6, 7} }),
			checks:   with(longChain, befell(lost)),
		},
		{
			name: "handshakeloss", client: "multiconnect", server: "multiconnect",
			about: fmt.Sprintf("%d connections, %d at a time; the runner has 50, each client in its way. "+
				"But with quic-go, 20 %% of the datagrams and 2 in a row, not 30 %% and 3: the others wait 1, 2, 4 and 8 s "+
				"for one probe, which is rarely, but then too long for a cell", connections, together),
			sizes:    repeat(connections, 1*kb),
			scenario: plain.with(func(s *scenario) { s.lose = heavy }),
			checks:   []check{handshakes(connections), onlyVersion(1), befell(lost)},
		},
		{
			name: "handshakecorruption", client: "multiconnect", server: "multiconnect",
			about:    "as handshakeloss",
			sizes:    repeat(connections, 1*kb),
			scenario: plain.with(func(s *scenario) { s.damage = heavy }),
			checks:   []check{handshakes(connections), onlyVersion(1), befell(damaged)},
		},
		{
			name: "transferloss", client: "transfer", server: "transfer",
			about:    "1 MB; the runner has 2 MB",
			sizes:    []int{1000 * kb},
			scenario: plain.with(func(s *scenario) { s.lose = light }),
			checks:   with(befell(lost)),
		},
		{
			name: "transfercorruption", client: "transfer", server: "transfer",
			about:    "1 MB; the runner has 2 MB",
			sizes:    []int{1000 * kb},
			scenario: plain.with(func(s *scenario) { s.damage = light }),
			checks:   with(befell(damaged)),
		},
		{
			name: "ipv6", client: "transfer", server: "transfer",
			sizes: []int{5 * kb, 10 * kb}, ipv6: true, checks: one,
		},
		{
			name: "v2", client: "v2", server: "v2",
			sizes: []int{1 * kb}, checks: []check{handshakes(1), compatible},
			lacks: []lack{
				{quicGoName, "", "no compatible version negotiation (RFC 9368)"},
				{xNetName, "", "version 1 only"},
				{ngtcp2Name, "", "0.12.1 speaks a draft of version 2, with another number (0x709a50c4)"},
			},
		},
		{
			name: "v2direct", client: "handshake", server: "handshake",
			about: "version 2 from the first packet on; not in the runner",
			sizes: []int{100 * kb}, options: options{version2: true},
			checks: []check{handshakes(1), onlyVersion(0x6b3343cf)},
			lacks: []lack{
				{xNetName, "", "version 1 only"},
				{ngtcp2Name, "", "0.12.1 speaks a draft of version 2, with another number (0x709a50c4)"},
			},
		},
		{
			name: "rebind-port", client: "transfer", server: "transfer",
			about: "2 MB, a new port after 0.4 s and every 0.7 s; the runner has 10 MB, 1 s and 5 s",
			sizes: []int{2000 * kb},
			scenario: plain.with(func(s *scenario) {
				s.firstRebind, s.rebindEvery = 400*time.Millisecond, 700*time.Millisecond
			}),
			checks: with(rebound(false)),
			lacks:  []lack{noMigration},
		},
		{
			name: "rebind-addr", client: "transfer", server: "transfer",
			about: "as rebind-port",
			sizes: []int{2000 * kb},
			scenario: plain.with(func(s *scenario) {
				s.firstRebind, s.rebindEvery, s.rebindAddr = 400*time.Millisecond, 700*time.Millisecond, true
			}),
			checks: with(rebound(true)),
			lacks:  []lack{noMigration},
		},
		{
			name: "connectionmigration", client: "transfer", server: "connectionmigration",
			about: "8 MB, seen at Volley's sockets; the runner has 2 MB, on a slow link",
			sizes: []int{8000 * kb}, options: options{preferred: true},
			checks: with(moved, newIDs, pathsProved),
			lacks: []lack{
				noMigration,
				{quicGoName, "", "neither offers nor uses a preferred address"},
			},
		},
		{
			name: "migration", client: "transfer", server: "transfer",
			about: "the client moves to another socket 0.3 s into the transfer of 2 MB; not in the runner",
			sizes: []int{2000 * kb}, options: options{migrate: true},
			checks: with(moved, newIDs, pathsProved),
			lacks:  []lack{noMigration},
		},
	}
}()

func init() {
	for _, c := range cases {
		if c.scenario.mbps == 0 {
			c.scenario = plain
		}
		if c.limit == 0 {
			c.limit = patience
		}
	}
}

func caseNamed(name string) *testcase {
	for _, c := range cases {
		if c.name == name {
			return c
		}
	}
	return nil
}
