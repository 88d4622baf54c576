package quic

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// B1: one call of the source for each pass of ten datagrams; with the flag, one for each
// datagram.
func TestNetworkSourceCallsAreCounted(t *testing.T) {
	const size = 1 << 20
	for _, tt := range []struct {
		name   string
		tuning emit.Tuning
		per    float64 // datagrams a call, at least
		most   float64
	}{
		{"scatter", emit.Tuning{Mode: emit.Scatter}, 8, 10},
		{"scatter, reread", emit.Tuning{Mode: emit.Scatter, Reread: true}, 8, 10},
		{"lend", emit.Tuning{Mode: emit.Lend}, 8, 10},
		{"vector", emit.Tuning{Mode: emit.Vector}, 8, 10},
		{"single", emit.Tuning{Mode: emit.Single}, 1, 1},
		{"one datagram", emit.Tuning{Mode: emit.Scatter, MaxDatagrams: 1}, 1, 1},
		{"four datagrams", emit.Tuning{Mode: emit.Scatter, MaxDatagrams: 4}, 3.5, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := w.wide()
				c, s := w.connect(conf, conf)
				w.transfer(c, s, waysToSend[0].send, patternOf(50, 1), 4<<20) // the window is open
				src := &spied{patternOf(50, 0).source(size), func(int) {}}
				var out *SendStream
				way := func(s *SendStream, p pattern, size int64) error {
					out = s
					s.SetEmission(tt.tuning)
					_, err := s.SendFrom(context.Background(), src, 0, size, emit.End())
					return err
				}
				w.transfer(c, s, way, patternOf(50, 0), size)
				stats := out.EmissionStats()
				if int(stats.Calls) != src.calls {
					t.Errorf("%d calls were counted, and %d made", stats.Calls, src.calls)
				}
				// A call for the last bytes may hold few, and a window that is nearly full
				// as well; and what was asked for goes on into one datagram more where a
				// control frame has come first.
				if per := float64(stats.Datagrams) / float64(stats.Calls); per < tt.per || per > 1.01*tt.most {
					t.Errorf("%.2f datagrams a call: %+v", per, stats)
				}
				if stats.Asked != size || stats.Bytes != size {
					t.Errorf("asked for %d bytes, sent %d", stats.Asked, stats.Bytes)
				}
			})
		})
	}
}

// B4, B5: in bulk a system call has many datagrams, also when the pacer, not the window,
// sets the pace; and the connection's goroutine runs less often than packets leave.
func TestNetworkFlightsAreLarge(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		for _, way := range waysToSend {
			if way.name == "small writes" || way.name == "unbuffered write" {
				continue
			}
			t.Run(rtt.String()+"/"+way.name, func(t *testing.T) {
				virtual(t, func(w *world) {
					conf := w.wide()
					w.both(func(d *direction) { d.delay = rtt / 2 })
					c, s := w.connect(conf, conf)
					w.transfer(c, s, way.send, patternOf(51, 0), 2<<20) // slow start
					before, ran := c.ConnectionStats(), rounds(c)
					w.transfer(c, s, way.send, patternOf(51, 0), 4<<20)
					after := c.ConnectionStats()
					flights, datagrams := after.Flights-before.Flights, after.FlightDatagrams-before.FlightDatagrams
					if per := float64(datagrams) / float64(flights); per < 6 {
						t.Errorf("%.1f datagrams a flight", per)
					}
					if n := rounds(c) - ran; n > int(datagrams)*3/4 {
						t.Errorf("%d rounds for %d datagrams", n, datagrams)
					}
				})
			})
		}
	}
}

// B8: 100 ms of round trip at 100 Mbit/s are filled to 80 % after slow start, with the
// default windows at the receiver and watermarks at the sender, whatever the way to send.
func TestNetworkFillsALongFatLink(t *testing.T) {
	for _, way := range waysToSend {
		if slices.Contains([]string{"unbuffered write", "small writes", "owned", "scatter reread", "vector"}, way.name) {
			continue // much the same as others
		}
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				const rate = 100e6 / 8
				w.both(func(d *direction) { d.delay, d.rate, d.queue = 50*time.Millisecond, rate, rate/10 })
				c, s := w.connect(nil, nil)
				var sent [2]int64
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				go way.send(out, patternOf(52, 0), 1<<30)
				in, err := s.AcceptUniStream(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				check := patternOf(52, 0).checker()
				go io.Copy(check, readOnly{in})
				time.Sleep(2500 * time.Millisecond)
				for i := range sent {
					sent[i] = int64(w.up.now().arrived)
					if i == 0 {
						time.Sleep(less(2 * time.Second))
					}
				}
				if share := float64(sent[1]-sent[0]) * 1452 / (rate * less(2*time.Second).Seconds()); share < 0.8 {
					t.Errorf("%.0f %% of the link are used; %+v", 100*share, c.ConnectionStats())
				}
				out.CancelWrite(0)
				in.CancelRead(0)
			})
		})
	}
}

// P2: on a path of 100 µs the pacer and its timer are no brake.
func TestNetworkShortPathIsFast(t *testing.T) {
	for _, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.both(func(d *direction) { d.delay = 50 * time.Microsecond })
				c, s := w.connect(nil, nil)
				const size = 8 << 20
				took := w.transfer(c, s, way.send, patternOf(53, 0), size)
				if rate := float64(size) * 8 / took.Seconds() / 1e9; rate < 1 {
					t.Errorf("%.2f Gbit/s", rate)
				}
			})
		})
	}
}

// P3: a sender that stopped at the pacer's limit goes on by itself, on a path with no
// delay at all, too, and at any rate.
func TestNetworkPacerWakesItself(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Microsecond, time.Millisecond, 300 * time.Millisecond, 2 * time.Second} {
		for _, way := range waysToSend {
			t.Run(delay.String()+"/"+way.name, func(t *testing.T) {
				virtual(t, func(w *world) {
					w.both(func(d *direction) { d.delay = delay })
					c, s := w.connect(patient(), patient())
					// Slow start from ten packets on: seven round trips, or eight.
					if took := w.transfer(c, s, way.send, patternOf(54, 0), 1<<20); took > 10*2*delay+200*time.Millisecond {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// RFC 9002 §7.8: the window does not grow while the application sends less than it
// allows, and does while it sends all it can, though the pacer holds it back
// (picoquic#1485, s2n-quic PR#1367).
func TestNetworkWindowFollowsNeed(t *testing.T) {
	virtual(t, func(w *world) {
		conf := w.wide()
		w.both(func(d *direction) { d.delay = 25 * time.Millisecond })
		c, s := w.connect(conf, conf)
		out, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		initial := c.ConnectionStats().CongestionWindow
		go func() {
			in, err := s.AcceptUniStream(w.Context())
			if err == nil {
				io.Copy(io.Discard, readOnly{in})
			}
		}()
		// 100 kB/s: 5 kB are in flight at a time.
		for range 600 {
			if _, err := out.Write(make([]byte, 10_000)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if w := c.ConnectionStats().CongestionWindow; w > 2*initial {
			t.Errorf("the window grew from %d to %d bytes", initial, w)
		}
		out.Close()
		w.transfer(c, s, waysToSend[0].send, patternOf(55, 0), 16<<20)
		if w := c.ConnectionStats().CongestionWindow; w < 10*initial {
			t.Errorf("in bulk the window is %d bytes", w)
		}
	})
}

// quinn#1855, #2791: random loss is no black hole: for a minute of bulk at 2 % loss, datagrams keep the size
// that was found.
func TestNetworkLossIsNoBlackHole(t *testing.T) {
	virtual(t, func(w *world) {
		conf := patient()
		c, s := w.connect(conf, conf)
		w.transfer(c, s, waysToSend[0].send, patternOf(56, 0), 1<<20)
		w.exchange(c, s, 1000)
		time.Sleep(time.Second)
		size := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.snd.DatagramSize()
		}
		if n := size(); n != defaultMaxPacketSize {
			t.Fatalf("the size found is %d", n)
		}
		w.both(func(d *direction) { d.lose = 0.02 })
		out, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		go waysToSend[0].send(out, patternOf(56, 1), 1<<40)
		in, err := s.AcceptUniStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, readOnly{in})
		for range 60 {
			time.Sleep(time.Second)
			if n := size(); n != defaultMaxPacketSize {
				t.Fatalf("after %v the size is %d", w.elapsed(), n)
			}
		}
		out.CancelWrite(0)
	})
}

// A06 at this level: the path's MTU falls in mid-transfer, twice, below what is in
// flight. What was lost goes out in smaller pieces.
func TestNetworkMTUFalls(t *testing.T) {
	size := less[int64](4 << 20)
	for _, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.both(func(d *direction) { d.rate = 1e6; d.queue = 100_000; d.mtu = 1452 })
				w.sniff()
				c, s := w.connect(patient(), patient())
				for i, mtu := range []int{1300, 1200} {
					time.AfterFunc(time.Duration(1+2*i)*500*time.Millisecond, func() { w.both(func(d *direction) { d.mtu = mtu }) })
				}
				if took := w.transfer(c, s, way.send, patternOf(57, 0), size); took > 30*time.Second {
					t.Errorf("it took %v", took)
				}
				large := 0
				w.up.set(func(d *direction) {
					d.hook = func(_ int, b []byte) fate {
						if len(b) > 1200 {
							large++
						}
						return pass
					}
				})
				w.transfer(c, s, way.send, patternOf(57, 0), 200_000)
				if large > 3 { // probes, three for a size
					t.Errorf("%d datagrams are larger than the path takes", large)
				}
			})
		})
	}
}

// Bulk that keeps its window full leaves room for the probes that find the size of
// datagrams (RFC 9000 §14.3), also where the window never opens by more than what an ACK
// acknowledges, and no ACK comes at the moment when a probe is due.
func TestNetworkFullWindowFindsTheSize(t *testing.T) {
	virtual(t, func(w *world) {
		w.up.set(func(d *direction) { d.rate = 10_000_000 })
		c, s := w.connect(patient(), patient())
		c.mu.Lock()
		c.cc = &window{size: 20 * 1280}
		c.snd.SetController(c.cc)
		c.mu.Unlock()
		out, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		go waysToSend[0].send(out, patternOf(59, 0), 1<<40)
		in, err := s.AcceptUniStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, readOnly{in})
		time.Sleep(time.Second)
		c.mu.Lock()
		if n := c.snd.DatagramSize(); n != defaultMaxPacketSize {
			t.Errorf("after %v of bulk datagrams have %d bytes", w.elapsed(), n)
		}
		c.mu.Unlock()
		out.CancelWrite(0)
	})
}

// A path that is gone for a while gives reason to suspect large datagrams, but not for
// long: when it is back they pass.
func TestNetworkOutageIsNoSmallPath(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(patient(), patient())
		for range 3 {
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- waysToSend[0].send(out, patternOf(58, 0), 2<<20) }()
			in, err := s.AcceptUniStream(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			w.both(func(d *direction) { d.lose = 1 })
			time.Sleep(5 * time.Second)
			w.both(func(d *direction) { d.lose = 0 })
			if err := patternOf(58, 0).check(in, 2<<20); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			w.transfer(c, s, waysToSend[0].send, patternOf(58, 1), 2<<20)
			c.mu.Lock()
			size := c.snd.DatagramSize()
			c.mu.Unlock()
			if size != defaultMaxPacketSize {
				t.Errorf("afterwards the size is %d", size)
			}
		}
	})
}
