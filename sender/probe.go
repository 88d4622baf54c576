package sender

import (
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// Probe sends one datagram of size bytes, a PING and PADDING, alone: a probe of the path
// MTU shares its system call with nothing, as the kernel may refuse it, and its loss is
// no sign of congestion (RFC 9000 §14.4). record is what recovery tells of its fate, and
// sent is called before it can. Probe reports false if nothing may be sent now. If the window
// is full, and room enough can be made in it, [Sender.ProbeWaits] is true then: Probe is to be
// called again after every ACK, and nothing else takes what has become free.
//
// The mutex is held on entry and exit, and let go meanwhile.
func (x *Sender) Probe(size int, now time.Time, record recovery.Frame, sent func()) bool {
	x.probeRoom = 0
	if !x.free(nil) || !x.ready || x.held != nil || size > maxFlightBytes {
		return false
	}
	// A probe is part of what is in flight and does not exceed the window (RFC 9002 §7). But a
	// sender that always has more leaves less of it free than a datagram of today's size, in
	// which a larger one never fits: so the probe's room is kept for it.
	if window := x.cc.Window(); x.rec.BytesInFlight()+size > window {
		if size <= window/2 {
			x.probeRoom = size
		}
		return false
	}
	x.take()
	f := x.newFlight(size, 1)
	f.probe = true
	wire.Ping{}.Append(f.Tail(1))
	f.Wrote(1, true, record)
	f.pad(f.room())
	f.last().Probe = true
	sent()
	x.send(f, now)
	x.release()
	return true
}

// ProbeWaits reports that a part of the window is kept for a probe of the path MTU.
func (x *Sender) ProbeWaits() bool { return x.probeRoom > 0 }
