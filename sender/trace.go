package sender

import (
	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/udp"
)

// A Trace hears what a sender does, for qlog. It is called with the connection's mutex
// held. Where there is none that costs a comparison for each pass, flight and source call.
type Trace interface {
	// Flight reports a flight that is about to be sealed and to leave. Its methods
	// may be called, and its packets read, until Flight returns.
	Flight(f *Flight)

	// SourceCall reports one call of a source.
	SourceCall(SourceCall)

	// Refused reports packets of a flight that the kernel refused as too large. They
	// never left, and their numbers are not used again.
	Refused(first, last int64)
}

// A Pass is what one pass over a stream put into a flight.
type Pass struct {
	Stream int64
	Off    int64     // of the first byte, in the stream
	Bytes  int       // of the stream
	Slots  int       // STREAM frames, each in a datagram of its own
	Fin    bool      // the stream ends with it
	Lost   bool      // the bytes had left before, and were lost
	Probe  bool      // … and may be on their way still: it was a probe timeout
	Mode   emit.Mode // in which the bytes came from a source; Auto: they were written
}

// A SourceCall is one call of a stream's source.
type SourceCall struct {
	Stream int64
	Off    int64 // of the first byte asked for, in the stream
	Asked  int   // bytes
	Got    int   // bytes that count
	Mode   emit.Mode
	Again  bool // the bytes had been asked for before, and were lost
}

// passed notes a pass for the Trace that there is.
func (f *Flight) passed(p Pass) {
	// A pass of Single is one call and one commit for each datagram.
	if n := len(f.passes); n > 0 && p.Mode == emit.Single {
		if q := &f.passes[n-1]; q.Mode == p.Mode && q.Lost == p.Lost && q.Stream == p.Stream && q.Off+int64(q.Bytes) == p.Off && q.Slots+p.Slots <= emit.MaxDatagrams {
			q.Bytes += p.Bytes
			q.Slots += p.Slots
			q.Fin = p.Fin
			return
		}
	}
	f.passes = append(f.passes, p)
}

// source is the mode in which the byte at off came from a source, Auto if it was written.
func (st *Stream) source(off int64) emit.Mode {
	switch a := st.asker; {
	case off < st.sourced:
		return emit.Scatter
	case a != nil && a.reread && off >= a.from:
		return a.mode
	}
	return emit.Auto
}

// called reports a call of the source for asked bytes from off on, and how many it gave.
func (a *asker) called(off int64, asked, got int, again bool) {
	if tr := a.st.x.trace; tr != nil {
		tr.SourceCall(SourceCall{Stream: a.st.send.ID(), Off: off, Asked: asked, Got: got, Mode: a.mode, Again: again})
	}
}

// Passes are the passes whose bytes the flight carries, in order.
func (f *Flight) Passes() []Pass { return f.passes }

// First is the number of the first packet; the others follow.
func (f *Flight) First() int64 { return f.first }

// Datagrams is how many there are, each with one packet.
func (f *Flight) Datagrams() int { return f.n }

// Bytes is how long they are together, and Size how long each is but the last.
func (f *Flight) Bytes() int { return f.total }
func (f *Flight) Size() int  { return f.size }

// Route is the path that it leaves by.
func (f *Flight) Route() *udp.Route { return f.route }

// Early reports whether they are 0-RTT packets.
func (f *Flight) Early() bool { return f.early != nil }

// Probe reports whether it is a probe of the path MTU.
func (f *Flight) Probe() bool { return f.probe }

// ECN is the mark of its datagrams.
func (f *Flight) ECN() udp.ECN { return f.ecn }

// Segmented reports whether the kernel is to cut the flight into datagrams (GSO).
func (f *Flight) Segmented() bool { return f.n > 1 && f.udp.CanGSO() && f.route.GSO() }

// Packet is packet i as it is before it is sealed: a header, which ends with the packet
// number, frames, and room for the tag.
func (f *Flight) Packet(i int) (b []byte, header int) {
	start := i * f.size
	return f.buf[start:min(start+f.size, f.total)], f.hdr
}
