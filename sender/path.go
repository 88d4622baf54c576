package sender

import (
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// A Path is where packets go: the socket they leave by, the address they are sent to, and
// the peer's connection ID that is used there.
type Path struct {
	UDP   *udp.Conn
	Route *udp.Route // for the token's holder alone; it says which path this is
	Dst   []byte
}

// SetPath makes packets leave by another path, from the next flight on: a flight keeps to
// the one that it began with. If it waits there for a full socket it is lost.
func (x *Sender) SetPath(p Path) {
	if f := x.held; f != nil && f.route != p.Route {
		f.release()
		x.held, x.waiting = nil, nil
		x.rec.SetSendBlocked(false)
	}
	x.udp, x.route, x.dst = p.UDP, p.Route, p.Dst
}

// SetController changes the congestion controller, as another path has another window.
func (x *Sender) SetController(cc congestion.Controller) { x.cc = cc }

// failed reports an error of a socket. One that is not in use any more is not missed.
func (x *Sender) failed(u *udp.Conn, err error) {
	if u == x.udp {
		x.host.SendFailed(err)
	}
}

// SendApart sends one datagram of size bytes by path p, which need not be the one in use,
// with the frames that write appends, and PADDING. On another path than the one in use it
// is bound by no window and tells recovery nothing of the one in use. SendApart reports
// false if nothing may be sent now: the host is woken when the token is free again, which
// is then kept for it until it calls Run.
//
// The mutex is held on entry and exit, and let go meanwhile.
func (x *Sender) SendApart(p Path, size int, now time.Time, write func(*Flight)) bool {
	if !x.ready || x.early != nil || x.held != nil {
		return false // who waits for the socket wakes the host, too
	}
	if x.token.taken || x.token.promised != nil {
		x.apart = true
		return false
	}
	x.apart = false
	x.take()
	f := x.newFlight(size, 1)
	f.udp, f.route, f.dst = p.UDP, p.Route, p.Dst
	f.hdr = wire.ShortHeaderLen(len(p.Dst), f.pnLen)
	f.apart = p.Route != x.route
	write(f)
	f.dropEmpty()
	if f.n == 0 {
		f.release()
		x.release()
		return false
	}
	f.pad(f.room())
	if t := f.last(); f.apart {
		t.Elsewhere = true
		t.Eliciting, t.InFlight = 0, 0
	}
	x.send(f, now)
	x.release()
	return true
}
