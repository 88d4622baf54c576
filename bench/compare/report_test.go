package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestPrintResult(t *testing.T) {
	var b strings.Builder
	printResult(&b, &result{id: "P1", job: "bulk", checks: []check{{unit: "Gbit/s", ours: []float64{6}, peer: []float64{2}, peerName: "quic-go", must: atLeast(3), aim: atLeast(5)}}})
	if got, want := b.String(), "P1   bulk: 6.00 against quic-go 2.00 Gbit/s = 3.00×; must ≥ 3×: met; aim ≥ 5×: not reached\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	b.Reset()
	printResult(&b, &result{id: "W1", job: "pieces", notes: []string{"a note"}, checks: []check{
		{what: "one", unit: "µs", ours: []float64{1, 1, 1}, must: atMost(2)},
		{what: "two", unit: "µs", ours: []float64{3, 3, 3}, must: atMost(2), aim: atMost(1)},
	}})
	for _, want := range []string{"W1   pieces: MUST MISSED\n", "one: 1.00 µs (1.00 to 1.00); must ≤ 2: met\n", "two: 3.00 µs (3.00 to 3.00); must ≤ 2: MISSED; aim ≤ 1: not reached\n", " a note\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	b.Reset()
	printResult(&b, &result{id: "P9", job: "handshakes", err: errors.New("no route")})
	if got := b.String(); got != "P9   handshakes: FAILED: no route\n" {
		t.Errorf("got %s", got)
	}
}

func TestPrintJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, []*result{
		{id: "P1", job: "bulk", checks: []check{{unit: "Gbit/s", ours: []float64{4, 6, 8}, peer: []float64{2, 2, 2}, peerName: "quic-go", must: atLeast(3), aim: atLeast(5)}}},
		{id: "W1", job: "pieces", checks: []check{
			{what: "one", unit: "µs", ours: []float64{1}, must: atMost(2)},
			{what: "two", unit: "µs", ours: []float64{3}, must: atMost(2)},
		}},
		{id: "E4", job: "table", table: "1 2\n"},
		{id: "P9", job: "handshakes", err: errors.New("no route")},
	}); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, b.Bytes())
	}
	if len(got) != 4 {
		t.Fatalf("%d objects", len(got))
	}
	for i, want := range []map[string]any{
		{"id": "P1", "job": "bulk", "ours": 6.0, "peer": 2.0, "unit": "Gbit/s", "ratio": 3.0, "must": 3.0, "aim": 5.0, "ok": true, "aim_ok": false, "q1": 2.5, "q3": 3.5, "better": "more"},
		{"id": "W1", "ours": 3.0, "peer": nil, "ratio": nil, "must": 2.0, "aim": nil, "ok": false, "better": "less"},
		{"id": "E4", "ours": nil, "table": "1 2\n", "ok": true},
		{"id": "P9", "ok": false, "error": "no route"},
	} {
		for key, value := range want {
			if g, ok := got[i][key]; !ok || g != value {
				t.Errorf("%s: %s is %v (there: %v), want %v", want["id"], key, g, ok, value)
			}
		}
	}
	if n := len(got[1]["checks"].([]any)); n != 2 {
		t.Errorf("W1 has %d checks", n)
	}
}
