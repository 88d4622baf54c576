package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

const measured = `[
	{"id": "P4", "ok": true},
	{"id": "P1", "ok": true, "stacks": [
		{"name": "volley", "gbit_per_s": [5, 6, 7], "sender_cpu_s_per_gb": [0.4, 0.5, 0.6], "receiver_cpu_s_per_gb": [0.4, 0.5, 0.6]},
		{"name": "quic-go", "gbit_per_s": [1, 2, 3], "sender_cpu_s_per_gb": [1.8, 2, 2.1], "receiver_cpu_s_per_gb": [1.9, 2, 2.1]}
	]}
]`

func TestPicture(t *testing.T) {
	stacks, err := read(strings.NewReader(measured))
	if err != nil || len(stacks) != 2 || stacks[1].Gbit[2] != 3 {
		t.Fatalf("read %+v, %v", stacks, err)
	}
	var b bytes.Buffer
	if err := picture(&b, stacks); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for d := xml.NewDecoder(&b); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("this is no SVG: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			text.Write(c)
		}
	}
	for _, want := range []string{"volley", "quic-go", "Gbit/s", "CPU-seconds per GB", "sender", "receiver"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

func TestReadRefusesWhatHasNoStacks(t *testing.T) {
	for _, in := range []string{"", "{}", "[]", `[{"id":"P7"}]`, "not JSON"} {
		if stacks, err := read(strings.NewReader(in)); err == nil {
			t.Errorf("%q gave %v", in, stacks)
		}
	}
}

func TestOneFileAtATime(t *testing.T) {
	if err := run("never written", []string{"a.json", "b.json"}); err == nil || !strings.Contains(err.Error(), "b.json") {
		t.Error(err)
	}
}
