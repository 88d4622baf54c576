package emit

import (
	"fmt"
	"strings"
)

// Mode says how the bytes of a source get into packets. Its text form, in lower
// case, is what String returns and what ParseMode and the flag package
// (flag.TextVar) take.
type Mode uint8

const (
	// Auto is Lend for a source that is a Lender, and Scatter for any other.
	Auto Mode = iota
	// Scatter calls the source once per pass, into one contiguous block, with no
	// lock held, and moves the slices of the block into the packets. Right for
	// files, and for any source that may take its time.
	Scatter
	// Single calls the source once per datagram, and the source writes straight
	// into the packet. Right for data that already lies in memory.
	Single
	// Lend copies into the packet from memory that the source lends; the source
	// must be a Lender.
	Lend
	// Vector calls the source once per pass with one slice per datagram, each in
	// its packet; the source must be a VectorSource.
	Vector
)

var modeNames = [...]string{Auto: "auto", Scatter: "scatter", Single: "single", Lend: "lend", Vector: "vector"}

func (m Mode) valid() bool { return int(m) < len(modeNames) }

// String returns the mode's name.
func (m Mode) String() string {
	if !m.valid() {
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
	return modeNames[m]
}

// ParseMode returns the mode of that name, in upper or lower case.
func ParseMode(name string) (Mode, error) {
	for m, n := range modeNames {
		if strings.EqualFold(n, name) {
			return Mode(m), nil
		}
	}
	return Auto, fmt.Errorf("emit: unknown mode %q: want one of %s", name, strings.Join(modeNames[:], ", "))
}

// MarshalText implements encoding.TextMarshaler. A mode without a name is an
// error.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.valid() {
		return nil, fmt.Errorf("emit: %v has no name", m)
	}
	return []byte(modeNames[m]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseMode. On an error
// m stays what it was.
func (m *Mode) UnmarshalText(text []byte) error {
	p, err := ParseMode(string(text))
	if err != nil {
		return err
	}
	*m = p
	return nil
}
