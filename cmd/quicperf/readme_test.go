package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volley-quic/volley/quic"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	command = regexp.MustCompile(`(?m)^    go run ./cmd/quicperf( [^#\n]*)?`)
)

func readme(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestReadmeShowsCodeThatCompiles(t *testing.T) {
	code, err := os.ReadFile("readme_examples_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range fenced.FindAllStringSubmatch(readme(t), -1) {
		language, text := block[1], block[2]
		switch language {
		case "go":
		case "diff": // what the reader is to have afterwards
			var after []string
			for line := range strings.Lines(text) {
				if rest, ok := strings.CutPrefix(line, "+"); ok {
					after = append(after, rest)
				}
			}
			text = strings.Join(after, "")
		default:
			t.Errorf("a block of %q: nothing checks that it is right", language)
			continue
		}
		found++
		if !strings.Contains(string(code), text) {
			t.Errorf("README.md has code that is not in readme_examples_test.go:\n%s", text)
		}
	}
	if found < 4 {
		t.Errorf("found only %d blocks of code", found)
	}
}

func TestReadmeShowsCommandsThatParse(t *testing.T) {
	found := 0
	for _, line := range command.FindAllStringSubmatch(readme(t), -1) {
		found++
		if _, err := parseOptions(strings.Fields(line[1])); err != nil {
			t.Errorf("go run ./cmd/quicperf%s: %v", line[1], err)
		}
	}
	if found < 5 {
		t.Errorf("found only %d commands", found)
	}
}

func TestReadmeNamesEveryFolder(t *testing.T) {
	page := readme(t)
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.Contains(page, "| `"+e.Name()) {
			t.Errorf("README.md says nothing of the folder %s", e.Name())
		}
	}
}

func TestReadmeExamplesDeliver(t *testing.T) {
	conf, _, err := serverTLS(&options{addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := quic.ListenAddr("127.0.0.1:0", conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	o, err := parseOptions([]string{"client", addr})
	if err != nil {
		t.Fatal(err)
	}
	clientConf, err := clientTLS(o, mustResolve(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	client, err := quic.DialAddr(t.Context(), addr, clientConf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseWithError(0, "")
	server, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := make([]byte, 100_000)
	for i := range want {
		want[i] = byte(i * i)
	}
	name := filepath.Join(t.TempDir(), "squares")
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	served := make(chan error, 1)
	go func() { served <- serve(t.Context(), l, f, int64(len(want))) }()
	copied, err := os.Create(name + ".copy")
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if err := errors.Join(fetch(t.Context(), addr, clientConf, copied), <-served); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(copied.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("fetch stored %d bytes, and not those (%v)", len(got), err)
	}

	for what, send := range map[string]func() error{
		"sendFile": func() error { return sendFile(t.Context(), server, f, int64(len(want))) },
		"sendSquares": func() error {
			stream, err := server.OpenUniStreamSync(t.Context())
			if err != nil {
				return err
			}
			return sendSquares(t.Context(), stream, int64(len(want)))
		},
		"sendBytes": func() error {
			stream, err := server.OpenUniStreamSync(t.Context())
			if err != nil {
				return err
			}
			return sendBytes(t.Context(), stream, want)
		},
	} {
		sent := make(chan error, 1)
		go func() { sent <- send() }()
		stream, err := client.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(stream)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes arrived, and not those", what, len(got))
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
