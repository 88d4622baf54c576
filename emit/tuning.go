package emit

import "io"

// Tuning is how one stream emits. The zero value is right for most: Auto, ten
// datagrams a pass, bytes kept until they are acknowledged.
type Tuning struct {
	Mode Mode

	// MaxDatagrams is how many datagrams a pass fills at most, and so how many
	// bytes a source is asked for at once. 0 means the constant MaxDatagrams;
	// anything else is clamped to 1..MaxDatagrams.
	MaxDatagrams int

	// Reread saves memory: bytes are not kept until they are acknowledged but,
	// if they are lost, read from the source again, which must not change. It
	// makes SendFrom return only when all is acknowledged. Single, Lend and
	// Vector imply it.
	Reread bool
}

// Effective returns t as it works: an unknown Mode is Auto, MaxDatagrams is in
// 1..MaxDatagrams, and Reread is set where the mode implies it.
func (t Tuning) Effective() Tuning {
	if !t.Mode.valid() {
		t.Mode = Auto
	}
	if t.MaxDatagrams == 0 {
		t.MaxDatagrams = MaxDatagrams
	}
	t.MaxDatagrams = min(max(t.MaxDatagrams, 1), MaxDatagrams)
	switch t.Mode {
	case Single, Lend, Vector:
		t.Reread = true
	}
	return t
}

// For returns the effective tuning for one source, with Auto decided. A mode
// that src cannot serve falls back to Scatter, and fallback, otherwise empty,
// says why; Stats counts it. A nil src stands for a source that can only be read
// on, as ReadFrom has it: neither its bytes can be had again nor its other
// methods be used, so it is Scatter without Reread whatever t says.
func (t Tuning) For(src io.ReaderAt) (effective Tuning, fallback string) {
	e := t.Effective()
	_, lends := src.(Lender)
	_, vectors := src.(VectorSource)
	if e.Mode == Auto {
		e.Mode = Scatter
		if lends {
			e.Mode = Lend
		}
	}
	switch {
	case src == nil && (e.Mode != Scatter || e.Reread):
		fallback = e.Mode.String() + ": an io.Reader cannot be read again"
		t.Reread = false
	case e.Mode == Lend && !lends:
		fallback = "lend: the source is no emit.Lender"
	case e.Mode == Vector && !vectors:
		fallback = "vector: the source is no emit.VectorSource"
	default:
		return e.Effective(), ""
	}
	e.Mode, e.Reread = Scatter, t.Reread
	return e, fallback
}
