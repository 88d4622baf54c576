package sender

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// send commits a flight, seals it and hands it to the kernel. The mutex is held on entry
// and exit, and let go meanwhile.
func (x *Sender) send(f *Flight, now time.Time) {
	x.seal(f, now)
	x.transmit(f)
}

// seal commits a flight and seals it.
func (x *Sender) seal(f *Flight, now time.Time) {
	x.flush(f, now)
	x.host.Unlock()
	f.seal()
	x.host.Lock()
}

// flush is the packet half of the commit: numbers, headers, trains, congestion
// window and pacer, once per flight and just before it is sealed.
func (x *Sender) flush(f *Flight, now time.Time) {
	// Header protection samples 16 bytes from 4 bytes after the start of the packet
	// number, so that number and payload need 4 bytes together (RFC 9001 §5.4.2).
	if short := f.n*f.size - f.size + f.hdr + 4 - f.pnLen - f.w; short > 0 {
		f.pad(short)
	}
	f.total = f.w + overhead
	f.first = x.rec.NextPN(recovery.App)
	x.headers(f)
	pn, left, flying := f.first, f.total, 0
	// Until validation fails every flight is marked, and the peer's counts in ACKs
	// tell whether the marks arrive (RFC 9000 §13.4.2).
	if f.udp.CanECN() && x.rec.ECNCapable() && !f.apart {
		f.ecn = udp.ECT0
	}
	for _, t := range f.trains {
		t.First = pn
		t.ECT0 = f.ecn == udp.ECT0
		for i := range t.N {
			size := min(left, f.size)
			left -= size
			t.Sizes[i] = uint16(size)
			if t.InFlight&(1<<i) != 0 {
				flying += size
			}
		}
		pn += int64(t.N)
	}
	eliciting := f.eliciting()
	if x.trace != nil {
		x.trace.Flight(f)
	}
	x.rec.OnSent(recovery.App, f.trains, now)
	if f.early == nil {
		x.keys.Sent(f.first, f.n)
	}
	if flying > 0 {
		x.pacer.OnSent(now, flying)
	}
	x.rec.SetAppLimited(!x.fillsWindow())
	x.stats.Bytes += uint64(f.total)
	x.host.Flushed(now, eliciting)
	x.maybeSkip(f.n)
}

// headers writes the headers of a flight's packets and takes the key that seals them.
func (x *Sender) headers(f *Flight) {
	var phase bool
	if f.early != nil {
		f.sealer = f.early.sealer
	} else {
		f.sealer, phase = x.keys.SealKey()
	}
	for i := range f.n {
		start := i * f.size
		b, pn := f.buf[start:start:start+f.hdr], f.first+int64(i)
		if e := f.early; e != nil {
			n := min(f.size, f.total-start) - f.hdr + f.pnLen
			wire.AppendLong(b, wire.ZeroRTT, e.version, f.dst, e.src, nil, n, pn, f.pnLen)
		} else {
			wire.AppendShort(b, f.dst, pn, f.pnLen, phase)
		}
	}
	if x.grease {
		bits := rand.Uint64() // one for each of maxSegments packets
		for i := range f.n {
			f.buf[i*f.size] ^= byte(bits>>i&1) * wire.QUICBit
		}
	}
}

// header is how long they will be, and how long the packet numbers in them.
func (x *Sender) header() (hdr, pnLen int) {
	// The margin is for the numbers of the flight itself.
	pnLen = wire.PNLen(x.rec.NextPN(recovery.App)+maxSegments, x.rec.LargestAcked(recovery.App))
	if x.early != nil {
		return wire.LongHeaderLen(wire.ZeroRTT, len(x.dst), len(x.early.src), 0, pnLen), pnLen
	}
	return wire.ShortHeaderLen(len(x.dst), pnLen), pnLen
}

// fillsWindow reports whether the congestion window is put to use. It must not grow
// while something else sets the pace: the application, flow control, or this machine
// (RFC 9002 §7.8). In slow start half a window is enough, as it doubles.
func (x *Sender) fillsWindow() bool {
	inFlight, window := x.rec.BytesInFlight(), x.cc.Window()
	return inFlight+x.passBytes() >= window || x.cc.InSlowStart() && inFlight >= window/2
}

// Skipped packet numbers catch peers that acknowledge what they did not receive
// (RFC 9000 §21.4): the first comes early, the others less often as more is sent.
const (
	firstSkip = 100
	mostSkip  = 1 << 16
)

func (x *Sender) maybeSkip(n int) {
	x.skipIn -= n
	if x.skipIn > 0 {
		return
	}
	x.rec.Skip(recovery.App)
	next := x.rec.NextPN(recovery.App)
	// Between one and two times the numbers so far, so that a guesser cannot tell.
	x.skipIn = min(int(next)+rand.IntN(int(next)+1), mostSkip)
}

// transmit hands a sealed flight to the kernel. The mutex is held on entry and exit
// and let go during the system call.
func (x *Sender) transmit(f *Flight) {
	x.host.Unlock()
	n, err := f.udp.Send(f.route, f.rest(), f.size, f.ecn)
	x.host.Lock()

	if f.held {
		if n > 0 {
			// The kernel took them only now: so says the sent time, or round-trip
			// times would include the wait for the socket.
			x.rec.Restamp(recovery.App, f.first+int64(f.sent), f.first+int64(f.sent+n-1), time.Now())
		}
		if err != udp.ErrBlocked {
			// The probe timer runs again, and the connection's goroutine may have looked at
			// the time while it did not.
			x.rec.SetSendBlocked(false)
			x.host.SetTimer(x.rec.Timer())
		}
	}
	f.sent += n
	if n > 0 {
		x.stats.Flights++
		x.stats.Datagrams += uint64(n)
	}
	switch err {
	case nil:
	case udp.ErrBlocked:
		x.hold(f)
		return
	case udp.ErrTooLarge:
		if f.route != x.route {
			break // the path is not in use, or not any more
		}
		x.host.DatagramTooLarge(f.size)
		if x.size < f.size || f.probe {
			// What the kernel refused for its size becomes unsent: its ranges are
			// pending again and go out smaller. Nothing was lost, so congestion control
			// is not told.
			x.rec.OnUnsent(recovery.App, f.first+int64(f.sent), f.first+int64(f.n-1))
			if x.trace != nil {
				x.trace.Refused(f.first+int64(f.sent), f.first+int64(f.n-1))
			}
			break
		}
		// They cannot go out smaller. To have them pending again would be to try
		// again at once, and for ever: they count as lost.
		x.host.SendFailed(err)
	default:
		// Anything else is treated as loss: the packets stay in flight and recovery
		// sends their content again. A socket that is gone ends the connection.
		x.failed(f.udp, err)
	}
	f.release()
}

// hold keeps a flight that a full socket buffer refused: the same ciphertext goes
// out when there is room, as a packet number is sealed once only.
func (x *Sender) hold(f *Flight) {
	f.held = true
	x.held = f
	u := f.udp
	if x.waiting == u {
		return
	}
	x.waiting = u
	x.rec.SetSendBlocked(true)
	go func() {
		err := u.WaitWritable(context.Background())
		x.host.Lock()
		if x.waiting == u {
			x.waiting = nil
		}
		if !x.ready && x.held != nil && !x.token.taken {
			x.held.release()
			x.held = nil
		}
		if err != nil {
			x.failed(u, err)
		}
		x.host.Unlock()
		x.host.Wake()
	}()
}
