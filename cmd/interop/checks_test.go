package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// handshakeTrace is the trace of the simplest case.
func handshakeTrace(t *testing.T) *trace {
	t.Helper()
	tr, err := cell{"handshake", volleyName, volleyName}.observe(t.Context(), 1, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// What its checks want of a case does not happen by itself: a plain handshake passes none
// of them but its own.
func TestChecksFail(t *testing.T) {
	tr := handshakeTrace(t)
	for _, checks := range [][]check{always, caseNamed("handshake").checks} {
		for _, check := range checks {
			if err := check(tr); err != nil {
				t.Error(err)
			}
		}
	}
	for name, check := range map[string]check{
		"two handshakes": handshakes(2), "version 2": onlyVersion(wire.Version2), "longChain": longChain,
		"helloAgain": helloAgain, "windowsGrow": windowsGrow, "chacha20": onlyChaCha20Offered,
		"streamLimitGrows": streamLimitGrows, "retried": retried, "zeroRTTUsed": zeroRTTUsed(1000),
		"keysUpdated": keysUpdated, "rebound": rebound(false), "moved": moved, "newIDs": newIDs,
		"compatible": compatible, "lost": befell(lost), "damaged": befell(damaged),
	} {
		if check(tr) == nil {
			t.Errorf("%s: a plain handshake passes", name)
		}
	}
	// One handshake has the certificate that a second one must not have.
	if resumed(&trace{conns: []*connTrace{tr.conns[0], tr.conns[0]}}) == nil {
		t.Error("resumed: a full handshake passes")
	}
}

// sends returns the trace as if f had been done to every datagram of the client.
func tampered(tr *trace, server string, f func(i int, d *datagram)) *trace {
	c := *tr.conns[0]
	c.datagrams, c.packets = nil, slices.Clone(c.packets)
	n := 0
	for _, d := range tr.conns[0].datagrams {
		copied := *d
		if d.up {
			f(n, &copied)
			n++
		}
		c.datagrams = append(c.datagrams, &copied)
	}
	return &trace{server: server, conns: []*connTrace{&c}}
}

func TestAmplificationCheck(t *testing.T) {
	tr := handshakeTrace(t)
	got, sent := 0, 0
	for _, d := range tr.conns[0].datagrams {
		if d.up && d.in < firstValid(tr) {
			got += len(d.data)
		} else if !d.up && d.in < firstValid(tr) {
			sent += len(d.data)
		}
	}
	// As if the client had sent so little that the server sent three times, four times
	// as much, and a byte more.
	for _, c := range []struct {
		server string
		factor int
	}{{volleyName, 3}, {quicGoName, 4}} {
		allowed := (sent + c.factor - 1) / c.factor
		for _, less := range []int{0, 1} {
			fake := tampered(tr, c.server, func(i int, d *datagram) {
				d.data = nil
				if i == 0 {
					d.data = make([]byte, allowed-less)
				}
			})
			if err := amplification(fake); (err != nil) != (less > 0) {
				t.Errorf("%s, %d bytes for %d: %v", c.server, sent, allowed-less, err)
			}
		}
	}
	// What has not arrived yet does not count.
	late := tampered(tr, volleyName, func(i int, d *datagram) { d.out = 1 << 30 })
	if amplification(late) == nil {
		t.Error("the server may answer what it has not got")
	}
	t.Logf("%d bytes for %d", sent, got)
}

// firstValid is when the server got the packet that validated the client's address.
func firstValid(tr *trace) int {
	for _, p := range tr.conns[0].packets {
		if p.up && p.typ == wire.Handshake {
			return p.out
		}
	}
	return 0
}

func TestClosedWellCheck(t *testing.T) {
	tr := handshakeTrace(t)
	d := &datagram{up: true}
	for _, c := range []struct {
		typ wire.PacketType
		f   wire.ConnectionClose
		ok  bool
	}{
		{wire.OneRTT, wire.ConnectionClose{App: true}, true},
		{wire.OneRTT, wire.ConnectionClose{App: true, Code: h3NoError}, true},
		{wire.OneRTT, wire.ConnectionClose{App: true, Code: 1}, false},
		{wire.OneRTT, wire.ConnectionClose{Code: uint64(wire.ProtocolViolation)}, false},
		{wire.Handshake, wire.ConnectionClose{Code: uint64(wire.ApplicationError)}, true},
		{wire.OneRTT, wire.ConnectionClose{Code: uint64(wire.ApplicationError)}, false},
	} {
		fake := tampered(tr, volleyName, func(int, *datagram) {})
		fake.conns[0].packets = append(fake.conns[0].packets, packet{datagram: d, typ: c.typ, frames: []wire.Frame{c.f}})
		if err := closedWell(fake); (err == nil) != c.ok {
			t.Errorf("%v in %v: %v", c.f, c.typ, err)
		}
	}
}

// Without the keys nothing is seen, and that is told.
func TestOpenedCheck(t *testing.T) {
	tr := handshakeTrace(t)
	if err := opened(openCapture(tr.datagrams, &keyLog{}, volleyName)); err == nil {
		t.Error("no keys, and no complaint")
	}
	if err := opened(openCapture(nil, &keyLog{}, volleyName)); err == nil {
		t.Error("no packets, and no complaint")
	}
}

func TestSameFiles(t *testing.T) {
	write := func(dir, name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, got := t.TempDir(), t.TempDir()
	write(want, "a", "one")
	for _, c := range []struct {
		do   func()
		says string
	}{
		{func() {}, "missing"},
		{func() { write(got, "a", "0ne") }, "another content"},
		{func() { write(got, "a", "one"); write(got, "b", "") }, "2 files"},
		{func() { os.Remove(filepath.Join(got, "b")) }, ""},
	} {
		c.do()
		err := sameFiles(want, got)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, not %q", err, c.says)
		}
	}
}
