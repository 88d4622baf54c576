package quic_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	quicgoPath = "github.com/quic-go/quic-go"
	volleyPath = "github.com/volley-quic/volley/quic"
)

// apiExceptions are the names of quic-go that Volley does not have, or has differently,
// each with a reason that a user would accept.
var apiExceptions = map[string]string{
	"Config":          "has more fields than quic-go's: a literal needs keys",
	"ConnectionStats": "has more fields than quic-go's: a literal needs keys",

	// Nobody can name quic-go's types of these, as they are not exported.
	"ErrServerClosed":       "an error, of whatever type",
	"ErrTransportClosed":    "an error, of whatever type",
	"QUICVersionContextKey": "a key, of whatever type",
}

// An application moves from quic-go by changing an import path. So every exported name
// of quic-go is here, and is the same kind of thing with the same type: functions,
// methods, fields, constants with their values, variables.
func TestAPIIsThatOfQUICGo(t *testing.T) {
	theirs, ours := exportedAPI(t, quicgoPath), exportedAPI(t, volleyPath)
	if len(theirs) < 250 {
		t.Fatalf("only %d names found in quic-go: this test looks at the wrong package", len(theirs))
	}
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		want, got := theirs[name], ours[name]
		reason, excused := apiExceptions[name]
		switch {
		case got == want && excused:
			t.Errorf("%s is as in quic-go: strike it out of apiExceptions", name)
		case excused && reason == "":
			t.Errorf("%s differs, and no reason is given", name)
		case got == want, excused:
		case got == "":
			t.Errorf("missing: %s, %s", name, want)
		default:
			t.Errorf("%s is\n\t%s\nin quic-go, and here\n\t%s", name, want, got)
		}
	}
	for name := range apiExceptions {
		if theirs[name] == "" {
			t.Errorf("quic-go has no %s: strike it out of apiExceptions", name)
		}
	}
}

// The migration page names everything that is in Volley only: what an application can
// gain by the move should not have to be found by reading the source.
func TestMigrationPageNamesWhatIsNew(t *testing.T) {
	page, err := os.ReadFile("migrating.go")
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := exportedAPI(t, quicgoPath), exportedAPI(t, volleyPath)
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		owner, member, _ := strings.Cut(name, ".")
		switch {
		case theirs[name] != "" || strings.HasSuffix(name, " (value)"):
			continue
		case member == "Is": // of an error: errors.Is calls it
			continue
		case member != "" && (theirs[owner] == "" || owner == "Stream"):
			continue // a type that is new is named itself; Stream's are SendStream's and ReceiveStream's
		}
		short := name[strings.LastIndex(name, ".")+1:]
		if !regexp.MustCompile(`\b` + short + `\b`).Match(page) {
			t.Errorf("migrating.go does not tell of %s", name)
		}
	}
}

// exportedAPI describes what a package exports. The keys are
//
//	Name            a function, constant, variable or type
//	Type.Name       a field, or a method of Type or *Type
//	Type.Name (value)   a method that can be called on a Type, too
//
// and the values say what it is. Types of the package are written quic.T, however it
// comes by them: quic-go's are often aliases of an internal package's.
func exportedAPI(t *testing.T, path string) map[string]string {
	t.Helper()
	pkg := importPackage(t, path)
	n := namer{pkg, map[string]string{}}
	api := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if o, ok := pkg.Scope().Lookup(name).(*types.TypeName); ok && o.Exported() {
			n.learn(o)
		}
	}
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			api[name] = fmt.Sprintf("constant %s = %s", n.of(o.Type()), o.Val())
		case *types.Var:
			api[name] = "variable " + n.of(o.Type())
		case *types.Func:
			api[name] = n.of(o.Type())
		case *types.TypeName:
			n.describe(api, name, types.Unalias(o.Type()))
		}
	}
	return api
}

// describe adds a type with its fields and methods.
func (n namer) describe(api map[string]string, name string, typ types.Type) {
	switch u := typ.Underlying().(type) {
	case *types.Interface:
		api[name] = "interface"
	case *types.Struct:
		api[name] = "struct"
		var all []string
		for f := range u.Fields() {
			if f.Exported() && !f.Embedded() {
				api[name+"."+f.Name()] = "field " + n.of(f.Type())
			}
			if f.Exported() && !f.Embedded() {
				all = append(all, f.Name())
			}
		}
		if len(all) == u.NumFields() {
			// It can be written without keys, and then the order counts.
			api[name] = "struct{" + strings.Join(all, "; ") + "}"
		}
	default:
		api[name] = "type " + n.of(u)
	}
	values := types.NewMethodSet(typ)
	of := typ
	if !types.IsInterface(typ) {
		of = types.NewPointer(typ)
	}
	for m := range types.NewMethodSet(of).Methods() {
		if f := m.Obj(); f.Exported() {
			key := name + "." + f.Name()
			api[key] = "method " + n.of(f.Type())
			if values.Lookup(f.Pkg(), f.Name()) != nil {
				api[key+" (value)"] = api[key]
			}
		}
	}
}

// namer writes types.
type namer struct {
	pkg   *types.Package
	names map[string]string // full name of a type → "quic.T"
}

// learn notes under which names a type of the package goes.
func (n namer) learn(o *types.TypeName) {
	short := "quic." + o.Name()
	n.names[n.pkg.Path()+"."+o.Name()] = short
	for typ := o.Type(); ; {
		alias, ok := typ.(*types.Alias)
		if !ok {
			n.names[types.TypeString(typ, nil)] = short
			return
		}
		n.names[types.TypeString(alias, nil)] = short
		typ = alias.Rhs()
	}
}

var fullName = regexp.MustCompile(`[\w./-]+\.\w+`)

func (n namer) of(typ types.Type) string {
	return fullName.ReplaceAllStringFunc(types.TypeString(withoutNames(typ), nil), func(s string) string {
		if short := n.names[s]; short != "" {
			return short
		}
		return s
	})
}

// withoutNames drops the names of parameters, which mean nothing to a caller.
func withoutNames(typ types.Type) types.Type {
	sig, ok := typ.(*types.Signature)
	if !ok {
		return typ
	}
	unnamed := func(t *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range t.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", withoutNames(v.Type())))
		}
		return types.NewTuple(vars...)
	}
	return types.NewSignatureType(nil, nil, nil, unnamed(sig.Params()), unnamed(sig.Results()), sig.Variadic())
}

// importPackage reads what the compiler says of a package.
func importPackage(t *testing.T, path string) *types.Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", path, err, stderr.Bytes())
	}
	files := map[string]string{}
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		p, file, _ := strings.Cut(sc.Text(), " ")
		files[p] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(p string) (io.ReadCloser, error) {
		return os.Open(files[p])
	})
	pkg, err := imp.Import(path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}
