package emit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestOnEmitIsAReaderAt(t *testing.T) {
	var gotOff int64
	src := OnEmit(func(dst []byte, off int64) (int, error) {
		gotOff = off
		return copy(dst, "abc"), ErrNotReady
	})
	p := make([]byte, 5)
	n, err := src.ReadAt(p, 1<<40)
	if n != 3 || err != ErrNotReady || gotOff != 1<<40 || string(p) != "abc\x00\x00" {
		t.Fatalf("ReadAt = %d, %v; off %d, %q", n, err, gotOff, p)
	}
	var _ io.ReaderAt = src
}

func TestErrorsAreDifferent(t *testing.T) {
	all := []error{ErrNotReady, ErrSourceChanged, ErrBusy}
	for i, a := range all {
		if !strings.HasPrefix(a.Error(), "emit: ") {
			t.Errorf("%q does not say where it comes from", a)
		}
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("%v is %v: %v", a, b, i != j)
			}
		}
	}
}

func TestModeText(t *testing.T) {
	for m, name := range map[Mode]string{Auto: "auto", Scatter: "scatter", Single: "single", Lend: "lend", Vector: "vector"} {
		if m.String() != name {
			t.Errorf("%d is %q, want %q", m, m.String(), name)
		}
		for _, s := range []string{name, strings.ToUpper(name)} {
			if p, err := ParseMode(s); p != m || err != nil {
				t.Errorf("ParseMode(%q) = %v, %v", s, p, err)
			}
		}
		b, err := json.Marshal(m)
		var back Mode
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || string(b) != `"`+name+`"` || back != m {
			t.Errorf("%v in JSON: %s, back %v, %v", m, b, back, err)
		}
	}
}

func TestModeWithoutAName(t *testing.T) {
	if s := Mode(77).String(); s != "Mode(77)" {
		t.Errorf("String is %q", s)
	}
	if _, err := Mode(5).MarshalText(); err == nil {
		t.Error("Mode(5) has a text form")
	}
	for _, s := range []string{"", "both", "scatter ", "Mode(1)", "1"} {
		m := Vector
		if err := m.UnmarshalText([]byte(s)); err == nil || m != Vector {
			t.Errorf("%q became %v, %v", s, m, err)
		} else if !strings.Contains(err.Error(), "scatter, single") {
			t.Errorf("%q: the error does not say what is right: %v", s, err)
		}
	}
}

func TestModeAsAFlag(t *testing.T) {
	var m Mode
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.TextVar(&m, "emission", Scatter, "how")
	if m != Scatter {
		t.Fatalf("by default %v", m)
	}
	if err := fs.Parse([]string{"-emission", "Lend"}); err != nil || m != Lend {
		t.Fatalf("-emission Lend is %v, %v", m, err)
	}
	if err := fs.Parse([]string{"-emission", "fast"}); err == nil {
		t.Fatal("-emission fast is right")
	}
}

func TestTuningEffective(t *testing.T) {
	for n, want := range map[int]int{-1 << 60: 1, -1: 1, 0: 10, 1: 1, 2: 2, 9: 9, 10: 10, 11: 10, 1 << 60: 10} {
		if got := (Tuning{MaxDatagrams: n}).Effective().MaxDatagrams; got != want {
			t.Errorf("MaxDatagrams %d works as %d, want %d", n, got, want)
		}
	}
	for m, want := range map[Mode]Tuning{
		Auto:    {Auto, 10, false},
		Scatter: {Scatter, 10, false},
		Single:  {Single, 10, true},
		Lend:    {Lend, 10, true},
		Vector:  {Vector, 10, true},
		77:      {Auto, 10, false},
	} {
		if got := (Tuning{Mode: m}).Effective(); got != want {
			t.Errorf("%v works as %+v, want %+v", m, got, want)
		}
		want.Reread = true
		if got := (Tuning{Mode: m, Reread: true}).Effective(); got != want {
			t.Errorf("%v with Reread works as %+v", m, got)
		}
	}
}

type lender struct{ io.ReaderAt }

func (lender) LendAt(int64, int) ([]byte, error) { return nil, io.EOF }

type vectors struct{ io.ReaderAt }

func (vectors) ReadVecAt([][]byte, int64) (int, error) { return 0, io.EOF }

func TestTuningForASource(t *testing.T) {
	file := bytes.NewReader(nil)
	for _, c := range []struct {
		name    string
		t       Tuning
		src     io.ReaderAt
		want    Tuning
		because string
	}{
		{"auto, a file", Tuning{}, file, Tuning{Scatter, 10, false}, ""},
		{"auto, a file read again", Tuning{Reread: true}, file, Tuning{Scatter, 10, true}, ""},
		{"auto, a lender", Tuning{MaxDatagrams: 3}, lender{}, Tuning{Lend, 3, true}, ""},
		{"auto, vectors", Tuning{}, vectors{}, Tuning{Scatter, 10, false}, ""},
		{"scatter, a lender", Tuning{Mode: Scatter}, lender{}, Tuning{Scatter, 10, false}, ""},
		{"single", Tuning{Mode: Single}, file, Tuning{Single, 10, true}, ""},
		{"lend", Tuning{Mode: Lend}, lender{}, Tuning{Lend, 10, true}, ""},
		{"lend, a file", Tuning{Mode: Lend}, file, Tuning{Scatter, 10, false}, "lend: "},
		{"lend, vectors read again", Tuning{Mode: Lend, Reread: true}, vectors{}, Tuning{Scatter, 10, true}, "lend: "},
		{"vector", Tuning{Mode: Vector}, vectors{}, Tuning{Vector, 10, true}, ""},
		{"vector, a lender", Tuning{Mode: Vector}, lender{}, Tuning{Scatter, 10, false}, "vector: "},
		{"unknown", Tuning{Mode: 9}, file, Tuning{Scatter, 10, false}, ""},
		{"auto, a reader", Tuning{}, nil, Tuning{Scatter, 10, false}, ""},
		{"single, a reader", Tuning{Mode: Single}, nil, Tuning{Scatter, 10, false}, "single: "},
		{"lend, a reader", Tuning{Mode: Lend}, nil, Tuning{Scatter, 10, false}, "lend: "},
		{"a reader read again", Tuning{Reread: true}, nil, Tuning{Scatter, 10, false}, "scatter: "},
	} {
		got, because := c.t.For(c.src)
		if got != c.want || !strings.HasPrefix(because, c.because) || (because == "") != (c.because == "") {
			t.Errorf("%s: %+v because %q, want %+v because %q", c.name, got, because, c.want, c.because)
		}
	}
}

func TestApply(t *testing.T) {
	if o := Apply(); o.End || o.Detach || o.Unchanging || o.OnAcked != nil || o.OnRelease != nil {
		t.Fatalf("nothing became %+v", o)
	}
	var acked []int64
	var released []error
	o := Apply(End(), nil, Detach(),
		OnAcked(func(int64) { t.Error("the earlier of two options won") }),
		OnAcked(func(off int64) { acked = append(acked, off) }),
		OnRelease(func(err error) { released = append(released, err) }))
	if !o.End || !o.Detach {
		t.Fatalf("End and Detach became %+v", o)
	}
	o.OnAcked(7)
	o.OnRelease(io.EOF)
	if len(acked) != 1 || acked[0] != 7 || len(released) != 1 || released[0] != io.EOF {
		t.Fatalf("acked %v, released %v", acked, released)
	}
	if o := Apply(Detach()); o.End || !o.Detach || o.Unchanging {
		t.Fatalf("Detach became %+v", o)
	}
	if o := Apply(Unchanging()); o.End || o.Detach || !o.Unchanging {
		t.Fatalf("Unchanging became %+v", o)
	}
}

func TestApplyWithoutOptionsIsFree(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Apply() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestDatagramsPerCall(t *testing.T) {
	if r := (Stats{}).DatagramsPerCall(); r != 0 {
		t.Errorf("before the first call: %v", r)
	}
	if r := (Stats{Calls: 4, Datagrams: 39}).DatagramsPerCall(); r != 9.75 {
		t.Errorf("39 datagrams in 4 calls: %v", r)
	}
}

func FuzzParseMode(f *testing.F) {
	f.Add("scatter")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseMode(s); err == nil && !strings.EqualFold(m.String(), s) {
			t.Fatalf("%q is %v", s, m)
		}
	})
}
