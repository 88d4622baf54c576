package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
)

// printResult writes one job's lines.
func printResult(w io.Writer, r *result) {
	if r.err != nil {
		fmt.Fprintf(w, "%-4s %s: FAILED: %v\n", r.id, r.job, r.err)
		return
	}
	if len(r.checks) == 1 {
		fmt.Fprintf(w, "%-4s %s: %s\n", r.id, r.job, checkLine(&r.checks[0]))
	} else {
		word := ""
		if len(r.checks) > 0 {
			word = ": all musts met"
			if !r.ok() {
				word = ": MUST MISSED"
			}
		}
		fmt.Fprintf(w, "%-4s %s%s\n", r.id, r.job, word)
		for i := range r.checks {
			c := &r.checks[i]
			fmt.Fprintf(w, "       %s: %s\n", c.what, checkLine(c))
		}
	}
	for _, n := range r.notes {
		fmt.Fprintf(w, "       %s\n", n)
	}
	if r.table != "" {
		for line := range strings.Lines(r.table) {
			fmt.Fprintf(w, "       %s", line)
		}
	}
}

// checkLine is one figure with its bounds and verdict.
func checkLine(c *check) string {
	v := c.judge()
	var b strings.Builder
	fmt.Fprintf(&b, "%s", figure(c.center(c.ours)))
	if c.peer != nil {
		fmt.Fprintf(&b, " against %s %s", c.peerName, figure(c.center(c.peer)))
	}
	if c.unit != "" {
		fmt.Fprintf(&b, " %s", c.unit)
	}
	if c.peer != nil {
		fmt.Fprintf(&b, " = %s×", figure(v.value))
	}
	if len(c.ours) > 1 {
		fmt.Fprintf(&b, " (%s to %s)", figure(v.q1), figure(v.q3))
	}
	if c.must.set {
		word := "met"
		switch {
		case !v.mustMet:
			word = "MISSED"
		case !c.must.holds(v.value):
			word = "not clearly missed"
		}
		fmt.Fprintf(&b, "; must %s: %s", c.limit(c.must), word)
	}
	if c.aim.set {
		word := "not reached"
		switch {
		case v.nearRoof && !c.aim.holds(v.value):
			word = fmt.Sprintf("reached, at %s of the bare loop", figure(median(c.roof)))
		case v.aimMet:
			word = "reached"
		}
		fmt.Fprintf(&b, "; aim %s: %s", c.limit(c.aim), word)
	}
	return b.String()
}

// number is a float64 that JSON can carry: NaN and infinities are null.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if x := float64(n); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// row is a check in the -json output.
type row struct {
	What     string `json:"what,omitempty"`
	Ours     number `json:"ours"`
	Peer     number `json:"peer"`
	PeerName string `json:"peer_name,omitempty"`
	Unit     string `json:"unit"`
	Ratio    number `json:"ratio"` // null if the figure stands for itself
	Q1       number `json:"q1"`    // of what is held against must and aim
	Q3       number `json:"q3"`
	Rounds   int    `json:"rounds"`
	Must     number `json:"must"`
	Aim      number `json:"aim"`
	Better   string `json:"better,omitempty"` // "more" or "less"
	AimOK    bool   `json:"aim_ok"`
	OK       bool   `json:"ok"`
}

// object is a job in the -json output.
type object struct {
	ID  string `json:"id"`
	Job string `json:"job"`
	row
	Checks []row     `json:"checks,omitempty"` // if there are several
	Notes  []string  `json:"notes,omitempty"`
	Table  string    `json:"table,omitempty"`
	Stacks []summary `json:"stacks,omitempty"`
	Error  string    `json:"error,omitempty"`
}

func rowOf(c *check) row {
	v := c.judge()
	nan := number(math.NaN())
	r := row{
		What: c.what, Unit: c.unit, PeerName: c.peerName,
		Ours: number(c.center(c.ours)), Peer: nan, Ratio: nan, Must: nan, Aim: nan,
		Q1: number(v.q1), Q3: number(v.q3), Rounds: len(c.ours), AimOK: v.aimMet, OK: v.mustMet,
	}
	if c.peer != nil {
		r.Peer, r.Ratio = number(c.center(c.peer)), number(v.value)
	}
	if c.must.set {
		r.Must = number(c.must.limit)
	}
	if c.aim.set {
		r.Aim = number(c.aim.limit)
	}
	if b := c.must; b.set || c.aim.set {
		r.Better = "more"
		if b.most || c.aim.most {
			r.Better = "less"
		}
	}
	return r
}

func objectOf(r *result) object {
	nan := number(math.NaN())
	o := object{ID: r.id, Job: r.job, Notes: r.notes, Table: r.table, Stacks: r.stacks,
		row: row{Ours: nan, Peer: nan, Ratio: nan, Q1: nan, Q3: nan, Must: nan, Aim: nan, AimOK: true}}
	if r.err != nil {
		o.Error = r.err.Error()
		o.AimOK = false
		return o
	}
	if c := r.headline(); c != nil {
		o.row = rowOf(c)
		o.row.What = ""
	}
	if len(r.checks) > 1 {
		for i := range r.checks {
			x := rowOf(&r.checks[i])
			o.Checks = append(o.Checks, x)
			o.AimOK = o.AimOK && x.AimOK
		}
	}
	o.OK = r.ok()
	return o
}

// printJSON writes all results as one array.
func printJSON(w io.Writer, rs []*result) error {
	objects := []object{}
	for _, r := range rs {
		objects = append(objects, objectOf(r))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(objects)
}
