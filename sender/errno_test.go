package sender

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// Field report A07: where segmentation fails the same ciphertext leaves one by one, in
// order, and that is no loss.
func TestSegmentationThatFails(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.EINVAL} {
		for _, batch := range []int{1, 5} {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				if !c.sock.CanGSO() {
					return
				}
				c.serve(rtt, nil)
				var refused []byte
				segmented, after := 0, 0
				c.send = func(s udp.Sending) udp.Verdict {
					switch {
					case s.Datagrams() == 1:
						if len(refused) > 0 {
							n := min(len(refused), len(s.B))
							if !bytes.Equal(refused[:n], s.B) {
								t.Error("another ciphertext, or another order")
							}
							refused = refused[n:]
						}
					case refused != nil:
						after++
					default:
						if segmented++; segmented == batch {
							refused = bytes.Clone(s.B)
							return udp.Verdict{Err: errno}
						}
					}
					return udp.Verdict{}
				}
				s := c.open(0, plenty)
				if _, err := s.CloseWith(bytesOf(0, 0, 1_000_000)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				c.whole(0, 1_000_000, true)
				if len(refused) > 0 || after > 0 {
					t.Errorf("%v: %d bytes of the refused flight missing, %d segmented sends after it", errno, len(refused), after)
				}
				c.do(func() {
					if s := c.rec.Stats(); s.PTOs > 0 || s.PacketsLost > 0 || s.PacketsUnsent > 0 || len(c.failed) > 0 {
						t.Errorf("%+v, %v", s, c.failed)
					}
				})
				c.stop(io.EOF)
			})
		}
	}
}

// EMSGSIZE at datagram k: what the kernel refused becomes unsent and goes out smaller; its
// numbers are burnt; congestion control hears nothing.
func TestDatagramsTooLarge(t *testing.T) {
	for k := range 40 {
		for i, tuning := range modes {
			c := newConn(t, setup{dst: 4, size: 1452})
			s := c.open(0, plenty)
			c.do(func() {
				s.st.SetTuning(tuning)
				c.control = append(c.control, due{wire.MaxData{Max: 9}, recovery.Frame{Kind: 7, A: 9}})
			})
			first := true
			c.send = func(s udp.Sending) udp.Verdict {
				if first {
					first = false
					return udp.Verdict{Err: syscall.EMSGSIZE, Take: min(k, s.Datagrams()-1)}
				}
				if s.Segment > 1200 {
					t.Errorf("datagrams of %d bytes after the refusal", s.Segment)
				}
				return udp.Verdict{}
			}
			src := c.source(s, 100_000)
			if err := c.finish(c.begin(s, src, 0, -1)); err != nil {
				t.Fatal(err)
			}
			c.acked(c.pns()...)
			c.whole(0, 100_000, false)
			if c.tooBig != 1452 || c.x.DatagramSize() != 1200 {
				t.Errorf("told of %d bytes", c.tooBig)
			}
			st := c.rec.Stats()
			if st.PacketsLost > 0 || st.PacketsUnsent == 0 || c.rec.BytesInFlight() != 0 {
				t.Errorf("%s, refused at %d: %+v, %d bytes in flight", name(tuning), k, st, c.rec.BytesInFlight())
			}
			if k == 0 && len(c.lost) != 1 {
				t.Errorf("the control frame is forgotten")
			}
			// An ACK of a number that was burnt is a lie.
			burnt := int64(-1)
			for pn := range c.cipher {
				if !c.got[pn] {
					burnt = pn
				}
			}
			ack := ackOf([]int64{burnt})
			if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err == nil {
				t.Error("an ACK of an unsent packet is taken")
			}
			if i == 0 && tuning.Reread {
				t.Error("modes have changed")
			}
		}
	}
}

// Datagrams of the smallest size that are refused count as lost: to send them again at
// once would be for ever.
func TestSmallestDatagramsTooLarge(t *testing.T) {
	c := newConn(t, setup{size: 1200})
	calls := 0
	c.send = func(udp.Sending) udp.Verdict { calls++; return udp.Verdict{Err: syscall.EMSGSIZE} }
	s := c.open(0, plenty)
	c.do(func() { c.cc.bytes = 20 * 1200 })
	s.Write(bytesOf(0, 0, 60_000))
	c.run()
	if calls > 2 {
		t.Errorf("%d calls", calls)
	}
	if len(c.failed) == 0 || c.rec.BytesInFlight() == 0 {
		t.Error("not in flight any more")
	}
}

// Other errors are the network's: what was to be sent is as good as lost, and sent again.
func TestNetworkThatIsDown(t *testing.T) {
	for _, errno := range []error{syscall.ENETUNREACH, syscall.EPERM, syscall.EIO, syscall.EHOSTDOWN} {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			var up atomic.Bool
			c.send = func(udp.Sending) udp.Verdict {
				if !up.Load() {
					return udp.Verdict{Err: errno}
				}
				return udp.Verdict{}
			}
			s := c.open(0, plenty)
			s.CloseWith(bytesOf(0, 0, 50_000))
			time.Sleep(time.Second)
			up.Store(true)
			time.Sleep(10 * time.Second)
			c.whole(0, 50_000, true)
			if len(c.failed) == 0 || !errors.Is(c.failed[0], errno) {
				t.Errorf("told of %v", c.failed)
			}
			c.stop(io.EOF)
		})
	}
}

// After a full socket loss recovery goes on as before.
func TestLossAfterAFullSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		n := 0
		c.serve(rtt, func(int64) bool { n++; return n == 3 }) // the last: only a probe finds out
		calls := 0
		c.send = func(udp.Sending) udp.Verdict {
			if calls++; calls == 1 {
				return udp.Verdict{Err: syscall.ENOBUFS, Take: 1}
			}
			return udp.Verdict{}
		}
		s := c.open(0, plenty)
		s.CloseWith(bytesOf(0, 0, 4000))
		time.Sleep(3 * time.Second)
		c.do(func() {
			if !s.AllAcked(4000) || c.rec.Stats().PTOs == 0 {
				t.Errorf("%+v", c.rec.Stats())
			}
		})
		c.stop(io.EOF)
	})
}

// A flight that waits for the socket is let go with the connection.
func TestEndWithAHeldFlight(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4})
			c.serve(rtt, nil)
			c.send = func(udp.Sending) udp.Verdict {
				if late { // while it is on its way to the kernel
					late = false
					c.stop(io.EOF)
				}
				return udp.Verdict{Err: syscall.ENOBUFS}
			}
			s := c.open(0, plenty)
			s.Write(bytesOf(0, 0, 100))
			synctest.Wait()
			c.do(func() {
				if !c.x.Held() {
					t.Error("not held")
				}
			})
			c.stop(io.EOF)
			time.Sleep(time.Minute)
			c.do(func() {
				if c.x.Held() {
					t.Error("held for ever")
				}
			})
		})
	}
}

// The socket that is closed ends the connection, also while a flight waits for it.
func TestSocketThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		c.serve(rtt, nil)
		c.send = func(udp.Sending) udp.Verdict { return udp.Verdict{Err: syscall.ENOBUFS} }
		s := c.open(0, plenty)
		s.Write(bytesOf(0, 0, 100))
		synctest.Wait()
		c.sock.Close()
		time.Sleep(time.Minute)
		c.do(func() {
			if len(c.failed) == 0 {
				t.Error("nobody is told")
			}
		})
		c.stop(io.EOF)
		time.Sleep(time.Second)
	})
}

// A probe timeout calls no source. It sends bytes at hand, or that are in flight and at
// hand, or a FIN, and a PING if there is nothing else.
func TestProbeTimeout(t *testing.T) {
	for i, tuning := range append(modes, modes[0]) {
		writes := i == len(modes)
		t.Run(fmt.Sprintf("%s, write %v", name(tuning), writes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t, setup{dst: 4})
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				src := c.source(s, plenty)
				var a *asker
				if writes {
					s.Write(bytesOf(0, 0, 5000))
				} else {
					a = c.begin(s, src, 0, -1)
					for range 8 {
						c.step(a)
					}
				}
				c.run()
				c.do(func() { c.cc.bytes = 0 })
				calls := len(src.calls)
				for round := range 3 {
					before := len(c.take())
					if before == 0 && round == 0 {
						t.Fatal("nothing is in flight")
					}
					c.do(func() {
						time.Sleep(time.Until(c.rec.Timer()))
						if probe, _ := c.rec.OnTimer(time.Now()); !probe {
							t.Fatal("no probe is due")
						}
					})
					if a != nil && a.inPlace() { // its own goroutine may come first
						c.step(a)
						c.step(a)
					}
					c.run()
					ps := c.take()
					if len(ps) != 2 {
						t.Fatalf("%d probes", len(ps))
					}
					for _, p := range ps {
						_, data := p.frames[0].(wire.Stream)
						if want := writes || tuning.Mode == emit.Scatter && !tuning.Reread; data != want {
							t.Errorf("a probe with %v", p.frames)
						}
					}
				}
				if len(src.calls) != calls && !writes {
					t.Errorf("a probe called the source %d times", len(src.calls)-calls)
				}
				c.do(func() { c.cc.bytes = plenty })
				for range 3 { // and then it is its turn again
					if a != nil {
						c.step(a)
						c.run()
					}
				}
				if len(src.calls) == calls && !writes {
					t.Error("the source is forgotten")
				}
			})
		})
	}
}

// … and bytes that wait for the window go before those in flight.
func TestProbeTimeoutWithNewBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		c.cc.bytes = 3 * 1452
		s := c.open(0, plenty)
		s.Write(bytesOf(0, 0, 20_000))
		c.run()
		n := c.peer.bytes(0)
		c.do(func() {
			time.Sleep(time.Until(c.rec.Timer()))
			c.rec.OnTimer(time.Now())
		})
		c.run()
		if got := c.peer.bytes(0); got <= n || got > n+2*1452 {
			t.Errorf("%d bytes, then %d", n, got)
		}
		c.acked(c.pns()...)
		c.do(func() { c.cc.bytes = plenty })
		c.run()
		c.acked(c.pns()...)
		// All is acknowledged but a FIN: it is its own item.
		s.Close()
		c.run()
		c.take()
		c.do(func() {
			time.Sleep(time.Until(c.rec.Timer()))
			c.rec.OnTimer(time.Now())
		})
		c.run()
		fins := 0
		for _, p := range c.take() {
			for _, f := range p.frames {
				if f, ok := f.(wire.Stream); ok && f.Fin && len(f.Data) == 0 {
					fins++
				}
			}
		}
		if fins == 0 {
			t.Error("the probes do not repeat the FIN")
		}
	})
}

// A probe of the path MTU goes alone, padded to its size, and its loss is no congestion.
func TestPathProbe(t *testing.T) {
	for _, errno := range []error{nil, syscall.EMSGSIZE, syscall.EAGAIN} {
		synctest.Test(t, func(t *testing.T) {
			c := newConn(t, setup{dst: 4, size: 1200})
			c.send = func(s udp.Sending) udp.Verdict {
				if len(s.B) > 1200*s.Datagrams() {
					return udp.Verdict{Err: errno}
				}
				return udp.Verdict{}
			}
			s := c.open(0, plenty)
			c.do(func() { c.x.Ready(s.st) })
			sent := false
			c.do(func() {
				if !c.x.Probe(1400, time.Now(), recovery.Frame{Kind: 9, A: 1400}, func() { sent = true }) {
					t.Error("not sent")
				}
			})
			if !sent {
				t.Error("the sender was not told")
			}
			if errno == syscall.EAGAIN {
				time.Sleep(time.Second)
				errno = nil
				c.run()
			}
			if errno == nil {
				ps := c.take()
				if len(ps) != 1 || ps[0].size != 1400 {
					t.Fatal(ps)
				}
				if n := len(c.calls()); n == 0 {
					t.Error(n)
				}
			} else if c.tooBig != 1400 || len(c.lost) != 1 {
				t.Error("not told of the refusal")
			}
			s.Write(bytesOf(0, 0, 5000))
			c.run()
			c.whole(0, 5000, false)
			c.do(func() {
				if c.x.DatagramSize() != 1200 {
					t.Error(c.x.DatagramSize())
				}
			})
		})
	}
}

// A full window is no reason to go without a probe of the path MTU: as ACKs come in, its
// room is left free.
func TestPathProbeWaitsForRoom(t *testing.T) {
	const full = 20 * 1200
	for _, tt := range []struct {
		name    string
		size    int    // of the probe
		acks    int    // how many packets have to be acknowledged for it; 0: it does not leave
		waits   bool   // for these ACKs
		instead string // what happens while it waits
	}{
		{name: "a little larger", size: 1452, acks: 2, waits: true},
		{name: "much larger", size: full / 2, acks: 10, waits: true},
		{name: "too large", size: full/2 + 1},
		{name: "another size", size: 1452, waits: true, instead: "another size of datagrams"},
		{name: "a window that falls", size: 1452, waits: true, instead: "a smaller window"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConn(t, setup{dst: 4, size: 1200})
			c.cc.bytes = full
			s := c.open(0, plenty)
			s.Write(bytesOf(0, 0, 60_000))
			c.run()
			if n := len(c.take()); n != 20 {
				t.Fatalf("%d datagrams fill the window", n)
			}
			unacked := c.pns()
			probe := func() (sent, waits bool) {
				c.do(func() {
					sent = c.x.Probe(tt.size, time.Now(), recovery.Frame{Kind: 9}, func() {})
					waits = c.x.ProbeWaits()
				})
				return sent, waits
			}
			more := func(what string, want int) {
				t.Helper()
				c.run()
				if n := len(c.take()); n != want {
					t.Fatalf("%s: %d datagrams, want %d", what, n, want)
				}
			}
			if sent, waits := probe(); sent || waits != tt.waits {
				t.Fatalf("sent %v, waits %v", sent, waits)
			}
			switch tt.instead {
			case "another size of datagrams":
				c.do(func() { c.x.SetDatagramSize(1200) })
				c.acked(unacked[:4]...)
				more("nobody waits any more", 4)
				return
			case "a smaller window":
				c.cc.bytes = 2 * 1200
				c.acked(unacked...)
				more("nothing in flight", 2)
				if sent, waits := probe(); sent || waits {
					t.Errorf("in a window of two: sent %v, waits %v", sent, waits)
				}
				return
			}
			for i := range tt.acks {
				if sent, waits := probe(); sent || !waits {
					t.Fatalf("after %d ACKs: sent %v, waits %v", i, sent, waits)
				}
				c.acked(unacked[i])
				more("the room is the probe's", 0)
			}
			if sent, waits := probe(); sent != tt.waits || waits {
				t.Fatalf("at last: sent %v, waits %v", sent, waits)
			}
			if ps := c.take(); tt.waits && (len(ps) != 1 || ps[0].size != tt.size) {
				t.Fatal(ps)
			}
			c.do(func() {
				if n := c.rec.BytesInFlight(); n > full { // RFC 9002 §7
					t.Errorf("%d bytes in flight in a window of %d", n, full)
				}
			})
			c.acked(unacked[tt.acks : tt.acks+4]...)
			more("and then it is the stream's turn", 4+(tt.acks*1200-tt.size*min(tt.acks, 1))/1200)
		})
	}
}

func TestSkippedNumbers(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	for n := int64(0); n < 5_000_000; n += 50_000 {
		if _, err := s.Write(bytesOf(0, n, 50_000)); err != nil {
			t.Fatal(err)
		}
		c.run()
		c.acked(c.pns()...)
	}
	var pns, skipped []int64
	for pn := range c.got {
		pns = append(pns, pn)
	}
	slices.Sort(pns)
	for i := range pns[1:] {
		for pn := pns[i] + 1; pn < pns[i+1]; pn++ {
			skipped = append(skipped, pn)
		}
	}
	if len(skipped) < 3 || len(skipped) > 10 || skipped[0] < 100 || skipped[0] > 160 {
		t.Fatalf("of %d numbers these are skipped: %v", len(pns), skipped)
	}
	ack := ackOf([]int64{skipped[len(skipped)-1]})
	if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err == nil {
		t.Error("an ACK of a skipped number is taken") // RFC 9000 §21.4
	}
}
