package sender

import (
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

var otherWay = netip.MustParseAddrPort("127.0.0.1:10")

func (c *conn) other() Path {
	return Path{UDP: c.sock, Route: &udp.Route{Remote: otherWay}, Dst: c.peer.id}
}

// A flight keeps to the path that it began with, however the path changes while it is
// sealed and sent; the next one leaves by the other.
func TestPathChangesBetweenFlights(t *testing.T) {
	c := newConn(t, setup{dst: 4, plain: true})
	var to []netip.AddrPort
	c.send = func(s udp.Sending) udp.Verdict {
		if to = append(to, s.Remote); len(to) == 3 {
			c.do(func() { c.x.SetPath(c.other()) })
		}
		return udp.Verdict{}
	}
	s := c.open(0, plenty)
	s.Write(bytesOf(0, 0, 100_000))
	c.run()
	first := 0
	for first < len(to) && to[first] != otherWay {
		first++
	}
	for _, a := range to[first:] {
		if a != otherWay {
			t.Errorf("a datagram went to %v after the path had changed", a)
		}
	}
	// 40 datagrams, and a rest.
	if flights := segments(1452); first != flights && len(to) > first {
		t.Errorf("the path changed after %d of %d datagrams", first, flights)
	}
	if first == len(to) {
		t.Error("the path never changed")
	}
	c.whole(0, 100_000, false)
}

// What is sent by a path that is not in use has the size that was asked for, and is none of
// the business of the window, the pacer or the probe timeout.
func TestSendApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		c.cc.bytes = 0 // full
		var sent []udp.Sending
		c.send = func(s udp.Sending) udp.Verdict {
			sent = append(sent, s)
			return udp.Verdict{}
		}
		challenge := wire.PathChallenge{Data: [8]byte{1, 2, 3}}
		write := func(f *Flight) {
			f.Wrote(len(challenge.Append(f.Tail(challenge.Len()))), true, recovery.Frame{})
		}
		for _, size := range []int{1200, 60} {
			ok := false
			c.do(func() { ok = c.x.SendApart(c.other(), size, time.Now(), write) })
			last := c.peer.packets[len(c.peer.packets)-1]
			if !ok || len(sent) == 0 || sent[len(sent)-1].Remote != otherWay || last.size != size || last.frames[0] != challenge {
				t.Fatalf("%v: sent %v, to %v", ok, last, sent)
			}
		}
		c.do(func() {
			if n := c.rec.BytesInFlight(); n != 0 || !c.rec.Timer().IsZero() {
				t.Errorf("%d bytes in flight, timer %v", n, c.rec.Timer())
			}
			// On the path in use it counts as everything else.
			if !c.x.SendApart(Path{c.sock, &c.route, c.peer.id}, 1200, time.Now(), write) {
				t.Error("not sent")
			}
			if n := c.rec.BytesInFlight(); n != 1200 {
				t.Errorf("%d bytes in flight", n)
			}
			// Without a frame there is no packet.
			if c.x.SendApart(c.other(), 1200, time.Now(), func(*Flight) {}) {
				t.Error("an empty packet was sent")
			}
			// Somebody else has the token: the host hears when it is free.
			c.x.take()
			if c.x.SendApart(c.other(), 1200, time.Now(), write) {
				t.Error("sent without the token")
			}
			select {
			case <-c.wake:
			default:
			}
			c.x.release()
			select {
			case <-c.wake:
			default:
				t.Error("the host was not woken")
			}
		})
		if len(sent) != 3 {
			t.Errorf("%d datagrams", len(sent))
		}
	})
}

// A flight that waits for the full socket of a path that is given up holds up nothing.
func TestHeldFlightOfFormerPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		full := true
		c.send = func(s udp.Sending) udp.Verdict {
			if s.Remote != otherWay && full {
				return udp.Verdict{Err: syscall.ENOBUFS}
			}
			return udp.Verdict{}
		}
		s := c.open(0, plenty)
		s.Write(bytesOf(0, 0, 3000))
		c.run()
		c.do(func() {
			if !c.x.Held() {
				t.Fatal("no flight waits")
			}
			c.x.SetPath(c.other())
			if c.x.Held() {
				t.Error("a flight waits for the former path")
			}
			c.rec.Abandon(0, c.rec.NextPN(recovery.App)-1, time.Now())
		})
		c.run()
		c.whole(0, 3000, false)
	})
}
