package quic

import (
	"go/build"
	"strings"
	"testing"
)

// A program that runs on Volley does not carry a second stack: what is imported
// here may import quic-go's tracing and varints, but not quic-go.
func TestDoesNotImportQUICGo(t *testing.T) {
	const root = "github.com/quic-go/quic-go"
	seen := map[string]bool{}
	var visit func(path, dir, from string)
	visit = func(path, dir, from string) {
		if path == "C" || seen[path] {
			return
		}
		seen[path] = true
		if path == root {
			t.Errorf("%s imports %s", from, path)
			return
		}
		p, err := build.Import(path, dir, 0)
		if err != nil {
			t.Fatalf("%s, imported by %s: %v", path, from, err)
		}
		if p.Goroot {
			return
		}
		for _, dep := range p.Imports {
			visit(dep, p.Dir, path)
		}
	}
	visit("github.com/volley-quic/volley/quic", ".", "this test")

	for path := range seen {
		if strings.HasPrefix(path, root+"/") {
			return
		}
	}
	t.Error("not even qlog was seen: this test looks at the wrong packages")
}
