package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// quick are the cases that go test plays, those that take a second or so, each in a
// process of its own as the matrix does.
var quick = []string{
	"handshake", "chacha20", "retry", "resumption", "zerortt", "http3", "keyupdate", "ecn",
	"amplificationlimit", "handshakeloss", "handshakecorruption", "ipv6", "v2direct",
	"rebind-port", "migration",
}

func TestCells(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cells []cell
	for _, name := range quick {
		if name == "ipv6" && !hasIPv6() || name == "ecn" && runtime.GOOS != "linux" {
			t.Logf("%s cannot be played on this host", name)
			continue
		}
		for _, peer := range []string{quicGoName, xNetName} {
			// With x/net/quic, which waits for long, losses take longer than a test should.
			if peer == xNetName && caseNamed(name).scenario.hurts() {
				continue
			}
			for _, c := range []cell{{name, volleyName, peer}, {name, peer, volleyName}} {
				if caseNamed(name).lacking(c.Client, c.Server) == "" {
					cells = append(cells, c)
				}
			}
		}
	}
	if len(cells) < 35 {
		t.Errorf("only %d cells are played", len(cells))
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, 6) // most of them wait most of the time
	for _, c := range cells {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if v := verdictOf(t.Context(), self, c); v.Result != resultOK {
				t.Errorf("%v: %s (seed %d): %s", c, v.Result, v.Seed, v.Reason)
			}
		})
	}
	wg.Wait()
}

func hasIPv6() bool {
	pc, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		return false
	}
	pc.Close()
	return true
}

// A cell that goes wrong says so, whatever goes wrong with it.
func TestFailingCells(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, v := range map[string]verdict{
		"no such player":  verdictOf(t.Context(), self, cell{"handshake", "nobody", volleyName}),
		"a dead process":  verdictOf(cancelled, self, cell{"handshake", volleyName, quicGoName}),
		"no such program": verdictOf(t.Context(), self+"-not", cell{"handshake", volleyName, quicGoName}),
	} {
		if v.Result != resultFailed || v.Reason == "" {
			t.Errorf("%s: %+v", name, v)
		}
		if statusOf([]verdict{{Result: resultOK}, v}) != exitFailed {
			t.Errorf("%s: the matrix is content", name)
		}
	}
	// ngtcp2 is not there to be found.
	t.Setenv("PATH", t.TempDir())
	if v := verdictOf(t.Context(), self, cell{"handshake", ngtcp2Name, volleyName}); v.Result != resultFailed || !strings.Contains(v.Reason, "apt-get install ngtcp2-client") {
		t.Errorf("%+v", v)
	}
	if o := runProgram(t, nil, "cell", "-case", "handshake", "-client", "nobody"); o.status != exitFailed {
		t.Errorf("%+v", o)
	}
}

func TestMatrixCommand(t *testing.T) {
	o := runProgram(t, nil, "matrix", "-only", "handshake+volley to quic-go, v2+quic-go to volley")
	if o.status != 0 || !strings.Contains(o.stdout, "handshake  ok") || !strings.Contains(o.stdout, "2 cells") || !strings.Contains(o.stdout, "v2, quic-go: no compatible") {
		t.Errorf("%+v", o)
	}
	o = runProgram(t, nil, "matrix", "-json", "-only", "handshake+volley to quic-go")
	if o.status != 0 || !strings.HasPrefix(o.stdout, `{"case":"handshake","client":"volley","server":"quic-go","result":"ok"`) {
		t.Errorf("%+v", o)
	}
	// To play nothing is no success.
	if o := runProgram(t, nil, "matrix", "-only", "handshale"); o.status != exitFailed {
		t.Errorf("%+v", o)
	}
	if o := runProgram(t, nil, "matrix", "-onyl", "handshake"); o.status != exitUsage {
		t.Errorf("%+v", o)
	}
}

func TestPrintMatrix(t *testing.T) {
	var b bytes.Buffer
	printMatrix(&b, []verdict{
		{cell: cell{"handshake", volleyName, xNetName}, Result: resultOK, Seconds: 1.26},
		{cell: cell{"handshake", xNetName, volleyName}, Result: resultFailed, Reason: "2 handshakes, not 1", Seed: 7},
		{cell: cell{"zerortt", volleyName, xNetName}, Result: "peer lacks it", Reason: "no 0-RTT"},
		{cell: cell{"zerortt", xNetName, volleyName}, Result: "peer lacks it", Reason: "no 0-RTT"},
	})
	want := `           volley to x/net/quic  x/net/quic to volley
handshake  ok 1.3 s              FAIL
zerortt    peer lacks it         peer lacks it

Failed:
  handshake, x/net/quic to volley (seed 7): 2 handshakes, not 1

Not there:
  zerortt, x/net/quic: no 0-RTT
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}

// Every lack names a player and a reason, and every case is played by somebody or has a
// reason for each cell.
func TestCasesAreSound(t *testing.T) {
	for _, tc := range cases {
		for _, l := range tc.lacks {
			if players[l.who] == nil || l.why == "" {
				t.Errorf("%s: %+v", tc.name, l)
			}
		}
		if len(tc.sizes) == 0 || len(tc.checks) == 0 {
			t.Errorf("%s checks nothing", tc.name)
		}
		if _, err := planFor("client", tc.client); err != nil && tc.lacking(volleyName, quicGoName) == "" {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
