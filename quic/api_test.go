package quic

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An application moves from quic-go by changing an import path, so every name that
// quic-go exports is exported here: types, functions, methods, fields, constants and
// variables. (That they mean the same is for other tests.)
func TestHasAllNamesOfQUICGo(t *testing.T) {
	theirs := exported(t, "github.com/quic-go/quic-go")
	ours := exported(t, "github.com/volley-quic/volley/quic")
	if len(theirs) < 100 {
		t.Fatalf("only %d names found in quic-go", len(theirs))
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		got, kind := ours[name], theirs[name]
		switch {
		case got == "" && !slices.Contains(comeLater, name):
			t.Errorf("missing: %s %s", kind, name)
		case got != "" && got != kind:
			t.Errorf("%s is a %s, not a %s", name, got, kind)
		}
	}
}

// comeLater are names whose feature Volley does not have yet.
var comeLater = []string{}

// exported maps the exported names of a package to what they are. Methods and fields
// are "Type.Name".
func exported(t *testing.T, path string) map[string]string {
	t.Helper()
	p, err := build.Import(path, ".", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := apiNames{map[string]string{}, map[string][]string{}}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if owner := receiver(d); d.Recv == nil {
					n.add("function", "", d.Name)
				} else if ast.IsExported(owner) {
					n.add("method", owner+".", d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					n.addSpec(d.Tok, spec)
				}
			}
		}
	}
	for owner, types := range n.embedded {
		for name, kind := range maps.Clone(n.kinds) {
			if of, name, _ := strings.Cut(name, "."); name != "" && slices.Contains(types, of) {
				n.kinds[owner+"."+name] = kind
			}
		}
	}
	return n.kinds
}

type apiNames struct {
	kinds    map[string]string
	embedded map[string][]string // type → types in it
}

func (n apiNames) add(kind, owner string, id *ast.Ident) {
	if id.IsExported() {
		n.kinds[owner+id.Name] = kind
	}
}

func (n apiNames) addSpec(tok token.Token, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, id := range s.Names {
			n.add(map[token.Token]string{token.CONST: "constant", token.VAR: "variable"}[tok], "", id)
		}
	case *ast.TypeSpec:
		n.add("type", "", s.Name)
		var fields []*ast.Field
		kind := "field"
		switch typ := s.Type.(type) {
		case *ast.StructType:
			fields = typ.Fields.List
		case *ast.InterfaceType:
			fields, kind = typ.Methods.List, "interface method"
		}
		if !s.Name.IsExported() {
			return
		}
		for _, f := range fields {
			for _, id := range f.Names {
				n.add(kind, s.Name.Name+".", id)
			}
			if len(f.Names) == 0 {
				n.embedded[s.Name.Name] = append(n.embedded[s.Name.Name], typeName(f.Type))
			}
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	return typeName(d.Recv.List[0].Type)
}

// typeName is T for T and *T of the same package.
func typeName(typ ast.Expr) string {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
