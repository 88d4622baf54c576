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
	if x.taken || !x.ready || x.held != nil || x.rec.BytesInFlight()+size > x.cc.Window() || size > maxFlightBytes {
		return false
	}
	x.taken = true
	pnLen := wire.PNLen(x.rec.NextPN(recovery.App)+maxSegments, x.rec.LargestAcked(recovery.App))
	f := newFlight(x, size, wire.ShortHeaderLen(len(x.dst), pnLen), pnLen, 1)
	wire.Ping{}.Append(f.Tail(1))
	f.Wrote(1, true, record)
	f.pad(f.Room())
	f.last().Probe = true
	sent()
	x.flush(f, now)
	x.host.Unlock()
	f.seal()
	x.host.Lock()
	x.transmit(f)
	x.release()
	return true
}
