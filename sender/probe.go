package sender

import (
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// Probe sends one datagram of size bytes, a PING and PADDING, alone: a probe of the path
// MTU shares its system call with nothing, as the kernel may refuse it, and its loss is
// no sign of congestion (RFC 9000 §14.4). record is what recovery tells of its fate, and
// sent is called before it can. Probe reports false if nothing may be sent now.
//
// The mutex is held on entry and exit, and let go meanwhile.
func (x *Sender) Probe(size int, now time.Time, record recovery.Frame, sent func()) bool {
	if !x.free(nil) || !x.ready || x.held != nil || x.rec.BytesInFlight()+size > x.cc.Window() || size > maxFlightBytes {
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
