package quic

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// What happens on the wire when packets get lost.

func (p *actor) inFlight() int {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.rec.BytesInFlight()
}

// RFC 9002 §6.1.1: a packet is lost when one that is three numbers higher arrived; what
// was in it leaves at once.
func TestPacketThreshold(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		var pns []int64
		for _, text := range []string{"a", "b", "c", "d"} {
			s.Write([]byte(text))
			p.collect()
			pns = append(pns, p.largest[recovery.App])
			p.writeFrames(wire.OneRTT, wire.Padding{N: 1})
		}
		p.queue = nil
		p.ignore(wire.FrameAck)
		p.writeFrames(wire.OneRTT, ack(pns[1]))
		p.wantIdle("one number higher")
		p.writeFrames(wire.OneRTT, ack(pns[2]))
		p.wantIdle("two")
		p.writeFrames(wire.OneRTT, ack(pns[3]))
		pkt := p.wantFrame("three", wire.OneRTT, stream0(p.yours(kind, 0), 0, "a", false))
		p.wantIdle("nothing else was lost")
		p.writeFrames(wire.OneRTT, ack(pkt.pn))
		if n := p.inFlight(); n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
	})
}

// RFC 9002 §6.1.2: and when it was sent 9/8 of a round trip before one that arrived.
func TestTimeThreshold(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(p *actor) { p.rtt = 80 * time.Millisecond }).handshake()
		s := p.open(kind)
		s.Write([]byte("a"))
		p.collect()
		s.Write([]byte("b"))
		p.collect()
		p.ignore(wire.FrameAck)
		p.queue = nil
		begin := time.Now()
		p.writeFrames(wire.OneRTT, ack(p.largest[recovery.App]))
		p.wantIdle("it may be just late")
		p.advanceToSend()
		st := p.c.ConnectionStats()
		want := max(st.LatestRTT, st.SmoothedRTT) * 9 / 8
		if d := time.Since(begin); d < want-time.Millisecond || d > want+time.Millisecond {
			t.Errorf("it is held to be lost after %v, want %v", d, want)
		}
		p.wantFrame("it is not", wire.OneRTT, stream0(p.yours(kind, 0), 0, "a", false))
		p.wantIdle("nothing else was lost")
	})
}

// RFC 9002 §6.2: when nothing comes back probes leave, later and later, two at a time,
// with something useful in them if there is anything.
func TestProbes(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(p *actor) { p.rtt = 40 * time.Millisecond }).handshake()
		s := p.open(kind)
		s.Write([]byte("hello"))
		p.collect()
		p.c.mu.Lock()
		pto := p.c.rec.PTO(recovery.App)
		p.c.mu.Unlock()
		p.queue = nil
		for n := range 5 {
			if d, want := p.advanceToSend(), pto<<n; d < want-time.Millisecond || d > want+time.Millisecond {
				t.Errorf("probe %d comes after %v, want %v", n, d, want)
			}
			ds := p.wantDatagrams("probes", 2)
			for _, d := range ds {
				if f, ok := d.packets[0].frames[0].(wire.Stream); !ok || string(f.Data) != "hello" {
					t.Errorf("a probe without what is in flight: %v", d)
				}
			}
		}
		p.rtt = 0
		p.ackAll()
		if n := p.inFlight(); n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
		p.advance(10 * time.Second)
		p.wantIdle("nothing is in flight")
		// Acknowledged, the backoff is over.
		s.Write([]byte("more"))
		p.collect()
		p.queue = nil
		if d := p.advanceToSend(); d > 3*time.Second {
			t.Errorf("the next probe comes after %v", d)
		}
	})
	t.Run("new data first", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			s := p.open(uni)
			w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
			p.advance(5 * time.Millisecond)
			p.queue = nil
			highest := p.watching.total
			p.advanceToSend()
			// The window is full, and does not bind probes (§7.5).
			if p.watching.total <= highest {
				t.Error("the probe has no new data")
			}
			p.ackUntil(w.finished)
		})
	})
	t.Run("nothing to repeat", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, func(c *Config) { c.KeepAlivePeriod = 5 * time.Second }).handshake()
			p.advanceToSend()
			wantA[wire.Ping](p, "a PING", wire.OneRTT)
			p.advanceToSend()
			wantA[wire.Ping](p, "and another, if it is lost", wire.OneRTT)
		})
	})
}

// A09: originals are acknowledged after their data were sent again, and then the copies
// get lost: there is nothing left to send.
func TestLostCopies(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		for _, what := range []string{"data", "end", "reset"} {
			p := newActor(t, volley).handshake()
			p.ignore(wire.FrameAck)
			s := p.open(kind)
			s.Write([]byte("hello"))
			p.collect()
			first := p.largest[recovery.App]
			switch what {
			case "end":
				s.Close()
			case "reset":
				s.CancelWrite(1)
			}
			p.collect()
			originals := p.ackFrame(wire.OneRTT)
			p.advanceToSend()
			if p.largest[recovery.App] <= first {
				t.Fatal("no probes")
			}
			p.queue = nil
			p.writeFrames(wire.OneRTT, originals)
			p.lose() // the copies
			p.lose()
			p.advance(10 * time.Second)
			for _, s := range p.queue {
				if _, ok := s.f.(wire.Ack); !ok && frameType(s.f) != wire.FramePing {
					t.Errorf("%s: %v was acknowledged", what, s.f)
				}
			}
			p.ackAll()
			if n := p.inFlight(); n != 0 {
				t.Errorf("%s: %d bytes in flight", what, n)
			}
			p.wantAlive(what)
		}
	})
}

// A09: of a lost range only what is not acknowledged leaves again.
func TestLostRangePartlyAcked(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s := p.open(uni)
		s.Write([]byte("first"))
		p.settle()
		s.Write(make([]byte, 9000))
		p.advance(5 * time.Millisecond)
		var pns []int64
		for _, pkt := range p.packets {
			if f, ok := pkt.frames[len(pkt.frames)-1].(wire.Stream); ok && f.Off >= 5 {
				pns = append(pns, pkt.pn)
			}
		}
		if len(pns) < 7 {
			t.Fatalf("only %d packets have left", len(pns))
		}
		p.queue = nil
		p.ignore(wire.FrameAck)
		middle, last := pns[2], pns[len(pns)-1]
		p.writeFrames(wire.OneRTT, ack(last))
		p.advance(20 * time.Millisecond) // by number or by time, the others are lost
		p.writeFrames(wire.OneRTT, ack(middle, last))
		again := map[int64]int64{}
		for _, f := range heard[wire.Stream](p) {
			again[f.Off] = f.Off + int64(len(f.Data))
		}
		if len(again) == 0 {
			t.Fatal("nothing was sent again")
		}
		p.lose() // twice
		var m []wire.Stream
		m = append(m, heard[wire.Stream](p)...)
		for _, pkt := range p.packets {
			if pkt.pn != middle {
				continue
			}
			acked := pkt.frames[len(pkt.frames)-1].(wire.Stream)
			for _, f := range m {
				if f.Off < acked.Off+int64(len(acked.Data)) && acked.Off < f.Off+int64(len(f.Data)) {
					t.Errorf("%v holds bytes of %v, which was acknowledged", f, acked)
				}
			}
		}
		p.ackAll()
		p.settle()
		if n := p.inFlight(); n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
	})
}

// A09: an ACK that comes after everything is over finds nobody, and does no harm.
func TestAckAfterStreamIsGone(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		s.CloseWith([]byte("hello"))
		p.collect()
		late := p.ackFrame(wire.OneRTT)
		p.lose()
		p.collect()
		p.writeFrames(wire.OneRTT, ack(p.largest[recovery.App]))
		p.settle()
		s.CancelWrite(1)
		p.writeFrames(wire.OneRTT, late)
		p.advance(10 * time.Second)
		p.wantAlive("late")
		if n := p.inFlight(); n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
	})
}

// RFC 9002 §7.6: when everything over a long time got lost, the window is the smallest.
func TestPersistentCongestion(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(p *actor) { p.rtt = 20 * time.Millisecond }).handshake()
		p.rtt = 0
		s := p.open(uni)
		w := start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
		p.advance(20 * time.Millisecond)
		p.ackAll()
		window := p.c.ConnectionStats().CongestionWindow
		p.advance(3 * time.Second) // probes, and nothing comes back
		p.queue = nil
		p.lose()
		if got, smallest := p.c.ConnectionStats().CongestionWindow, uint64(2*1280); got > smallest || got >= window {
			t.Errorf("the window was %d bytes, is %d", window, got)
		}
		p.ackUntil(w.finished)
	})
}

// Loss makes the window smaller once for a round trip, and it grows again.
func TestCongestionWindow(t *testing.T) {
	for _, cc := range []CongestionControl{CongestionCubic, CongestionNewReno} {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, func(p *actor) { p.rtt = 20 * time.Millisecond }, credit(1<<30, 1<<30),
				func(c *Config) { c.CongestionControl = cc }).handshake()
			s := p.open(uni)
			go s.ReadFrom(readerOf(zeroes{}))
			window := func() int { return int(p.c.ConnectionStats().CongestionWindow) }
			initial := window()
			for range 5 {
				p.advance(15 * time.Millisecond)
				p.ackAll()
			}
			grown := window()
			if grown < 2*initial {
				t.Errorf("the window was %d bytes and grew to %d", initial, grown)
			}
			p.advance(15 * time.Millisecond)
			// One of the packets in flight is lost, then another of them.
			f := p.ackFrame(wire.OneRTT).(wire.Ack)
			hole := func(pn int64) {
				var rs []wire.AckRange
				for _, r := range f.Ranges {
					if r.Lo <= pn && pn <= r.Hi {
						if pn < r.Hi {
							rs = append(rs, wire.AckRange{Lo: pn + 1, Hi: r.Hi})
						}
						if r.Lo < pn {
							rs = append(rs, wire.AckRange{Lo: r.Lo, Hi: pn - 1})
						}
						continue
					}
					rs = append(rs, r)
				}
				f.Ranges = rs
			}
			hole(f.Largest() - 8)
			hole(f.Largest() - 10)
			p.writeFrames(wire.OneRTT, f)
			less := window()
			if less >= grown || less < grown/3 {
				t.Errorf("by a loss the window fell from %d bytes to %d", grown, less)
			}
			if st := p.c.ConnectionStats(); st.PacketsLost != 2 {
				t.Errorf("%d packets were lost", st.PacketsLost)
			}
		})
	}
}

type endlessReader struct{ zeroes }

func (r endlessReader) Read(p []byte) (int, error) { return r.ReadAt(p, 0) }

func readerOf(z zeroes) endlessReader { return endlessReader{z} }

// A sender is bound by the window, and by nothing else does it stay below it.
func TestWindowIsKept(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(p *actor) { p.rtt = 20 * time.Millisecond }, credit(1<<30, 1<<30)).handshake()
		s := p.open(uni)
		go s.ReadFrom(readerOf(zeroes{}))
		for range 8 {
			p.advance(20 * time.Millisecond)
			st := p.c.ConnectionStats()
			if n := p.inFlight(); n > int(st.CongestionWindow) {
				t.Errorf("%d bytes in flight, the window is %d", n, st.CongestionWindow)
			}
			p.ackAll()
		}
		p.advance(40 * time.Millisecond)
		st := p.c.ConnectionStats()
		if n := p.inFlight(); n < int(st.CongestionWindow)*3/4 {
			t.Errorf("%d bytes in flight, the window is %d", n, st.CongestionWindow)
		}
	})
}

// Whatever gets lost, in both directions and at random, what was written arrives whole,
// and nothing is left in flight.
func TestRandomLoss(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		eachRole(t, func(t *testing.T, volley role) {
			rng := rand.New(rand.NewPCG(seed, 1))
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			p := newActor(t, volley, credit(2000, 4000)).handshake()
			loss := 0.1 + 0.4*rng.Float64()
			const streams = 5
			want := map[int64][]byte{}
			var writers []*call[int]
			for n := range int64(streams) {
				kind := int(n % 2)
				s := p.open(kind)
				data := make([]byte, rng.IntN(20000))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				id := int64(s.StreamID())
				want[id] = data
				cuts := rng.Perm(10)
				writers = append(writers, start(func() (int, error) {
					rest := data
					for _, c := range cuts {
						k := min(len(rest), c*500)
						if _, err := s.Write(rest[:k]); err != nil {
							return 0, err
						}
						rest = rest[k:]
					}
					return s.CloseWith(rest)
				}))
			}
			// What the actor has received: the rest was lost, though the watch sees it.
			var received spans
			seen := map[int64]*watched{}
			next := 0
			take := func() {
				p.collect()
				for ; next < len(p.packets); next++ {
					pkt := p.packets[next]
					if pkt.typ != wire.OneRTT || received.contains(pkt.pn) || rng.Float64() < loss {
						continue
					}
					received.add(pkt.pn, pkt.pn)
					for _, f := range pkt.frames {
						if f, ok := f.(wire.Stream); ok {
							if seen[f.ID] == nil {
								seen[f.ID] = &watched{final: -1}
							}
							seen[f.ID].tape.put(f.Off, f.Data)
							if f.Fin {
								seen[f.ID].final = f.Off + int64(len(f.Data))
							}
						}
					}
				}
			}
			complete := func() bool {
				for id, data := range want {
					if s := seen[id]; s == nil || s.tape.prefix() != len(data) || s.final != int64(len(data)) {
						return false
					}
				}
				return true
			}
			for round := 0; !complete() || p.inFlight() > 0; round++ {
				if round > 20000 {
					t.Fatalf("it does not come to an end")
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				take()
				var fs []wire.Frame
				if len(received) > 0 {
					f := wire.Ack{}
					for i := len(received) - 1; i >= 0; i-- {
						f.Ranges = append(f.Ranges, wire.AckRange{Lo: received[i].lo, Hi: received[i].hi})
					}
					fs = append(fs, f)
				}
				total := int64(0)
				for id, s := range seen {
					total += int64(s.tape.prefix())
					fs = append(fs, wire.MaxStreamData{ID: id, Max: int64(s.tape.prefix()) + 2000})
				}
				fs = append(fs, wire.MaxData{Max: total + 4000})
				if rng.Float64() < loss {
					for _, f := range fs {
						p.watching.said(f) // it was on its way, and the limits are not smaller
					}
					continue
				}
				p.writeFrames(wire.OneRTT, fs...)
				p.wantAlive("all is in order")
			}
			for id, data := range want {
				if !bytes.Equal(seen[id].tape.data, data) {
					t.Errorf("stream %d is not what was written", id)
				}
			}
			for _, w := range writers {
				if _, err := w.result(); err != nil {
					t.Error(err)
				}
			}
			p.c.mu.Lock()
			if n := len(p.c.streams.open); n > streams {
				t.Errorf("%d streams are open", n)
			}
			p.c.mu.Unlock()
		})
	}
}

// Key updates of the peer are followed (RFC 9001 §6.2); packets of the old keys that were
// overtaken still count, newer ones must not be.
func TestPeerUpdatesKeys(t *testing.T) {
	update := func(p *actor) {
		p.Helper()
		// The actor's keys are those of package protect, and know when they may.
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.writeFrames(wire.OneRTT, wire.Ping{})
		acks := heard[wire.Ack](p)
		if len(acks) == 0 {
			p.Fatal("no ACK")
		}
		if err := p.oneRTT.Acked(acks[0].Largest()); err != nil {
			p.Fatal(err)
		}
		p.advance(time.Second)
		p.oneRTT.Received(time.Now(), time.Millisecond)
		p.oneRTT.SetUpdateInterval(1)
		if !p.oneRTT.MaybeUpdate(time.Now().Add(time.Minute), time.Millisecond) {
			p.Fatal("the actor may not update its keys")
		}
	}
	t.Run("followed", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			for n := range 4 {
				update(p)
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.writeFrames(wire.OneRTT, wire.Ping{})
				wantA[wire.Ack](p, "the new keys are in use", wire.OneRTT)
				if send, recv := p.c.oneRTT.Generations(); send != uint64(n+1) || recv != uint64(n+1) {
					t.Fatalf("Volley is at generations %d and %d", send, recv)
				}
				p.advance(10 * time.Second)
			}
		})
	})
	t.Run("an old packet comes late", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			late := p.packet(wire.OneRTT, stream0(p.mine(uni, 0), 0, "late", true))
			b := slices.Clone(p.seal(late, true))
			update(p)
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.deliver(b)
			wantRead(p, "late")
			if _, recv := p.c.oneRTT.Generations(); recv != 1 {
				t.Errorf("Volley is at generation %d", recv)
			}
		})
	})
	t.Run("old keys for a newer packet", func(t *testing.T) { // A21, RFC 9001 §6.4
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			old, phase := p.oneRTT.SealKey()
			update(p)
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.sealKey, p.phase = old, phase
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.sealKey = nil
			p.wantClosed("the order of keys is that of numbers", wire.KeyUpdateError)
		})
	})
}
