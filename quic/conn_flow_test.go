package quic

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// streamTypes are the eight types of STREAM frames.
var streamTypes = []uint64{8, 9, 10, 11, 12, 13, 14, 15}

func windows(stream, conn int) func(*Config) {
	return func(c *Config) {
		c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = uint64(stream), uint64(stream)
		c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = uint64(conn), uint64(conn)
	}
}

// credit is what Volley may send: on each stream, and on all.
func credit(stream, conn int64) func(*wire.TransportParams) {
	return func(tp *wire.TransportParams) {
		tp.InitialMaxStreamDataBidiLocal, tp.InitialMaxStreamDataBidiRemote, tp.InitialMaxStreamDataUni = stream, stream, stream
		tp.InitialMaxData = conn
	}
}

// maxStreamData is what the peer may send on a stream, as it was told.
func (p *actor) maxStreamData(id int64) (n int64) {
	p.Helper()
	p.collect()
	n = p.theirs.InitialMaxStreamDataBidiRemote
	if id&uniBit != 0 {
		n = p.theirs.InitialMaxStreamDataUni
	}
	for _, pkt := range p.packets {
		for _, f := range pkt.frames {
			if f, ok := f.(wire.MaxStreamData); ok && f.ID == id {
				n = max(n, f.Max)
			}
		}
	}
	return n
}

func (p *actor) maxData() int64 {
	p.Helper()
	p.collect()
	return max(p.theirs.InitialMaxData, p.watching.saidMaxData)
}

// RFC 9000 §4.2: credit comes as the application reads, in good time and not for every
// byte.
func TestCreditFollowsReading(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, windows(1000, 1500)).handshake()
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, string(make([]byte, 1000)), false))
		s := p.accept(kind)
		p.advance(time.Second)
		p.ignore(wire.FrameAck)
		p.wantIdle("nobody reads")
		read := func(n int) {
			t.Helper()
			if _, err := io.ReadFull(s, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		read(400)
		p.wantIdle("more than half is left")
		read(200)
		p.wantFrame("a stream's half is gone", wire.OneRTT, wire.MaxStreamData{ID: id, Max: 1600})
		p.wantIdle("the connection has more")
		read(200)
		p.wantFrame("the connection's half is gone", wire.OneRTT, wire.MaxData{Max: 2300})
		read(200)
		p.wantIdle("there is credit enough")
		p.writeFrames(wire.OneRTT, stream0(id, 1000, string(make([]byte, 600)), true))
		p.wantAlive("within limits")
		read(600)
		p.advance(time.Second)
		if fs := heard[wire.MaxStreamData](p); len(fs) > 0 {
			t.Errorf("%v for a stream that is at its end", fs)
		}
		if got := p.maxData(); got < 2600 {
			t.Errorf("MAX_DATA is %d", got)
		}
	})
}

// Windows grow while the sender uses them up faster than a round trip allows, up to
// their limit.
func TestWindowsGrow(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(c *Config) {
			c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 2<<10, 16<<10
			c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = 3<<10, 24<<10
		}, func(p *actor) { p.rtt = 20 * time.Millisecond }).handshake()
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, "x", false))
		s := p.accept(kind)
		go io.Copy(io.Discard, s)
		sent := int64(1)
		most := int64(0)
		for range 200 {
			limit := min(p.maxStreamData(id), p.maxData())
			most = max(most, limit-sent)
			if limit == sent {
				t.Fatalf("no credit after %d bytes", sent)
			}
			for sent < limit {
				n := min(limit-sent, 1000)
				rtt := p.rtt
				if sent+n < limit {
					p.rtt = 0 // they leave together
				}
				p.writeFrames(wire.OneRTT, stream0(id, sent, string(make([]byte, n)), false))
				p.rtt = rtt
				sent += n
			}
			p.ackAll()
		}
		if most < 12<<10 || most > 24<<10 {
			t.Errorf("the window grew to %d bytes", most)
		}
		p.writeFrames(wire.OneRTT, stream0(id, sent, "", true))
	})
	t.Run("not without need", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, func(c *Config) {
				c.InitialStreamReceiveWindow, c.InitialConnectionReceiveWindow = 2<<10, 3<<10
			}, func(p *actor) { p.rtt = 20 * time.Millisecond }).handshake()
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, stream0(id, 0, "x", false))
			go io.Copy(io.Discard, p.accept(kind))
			sent := int64(1)
			for range 50 {
				p.writeFrames(wire.OneRTT, stream0(id, sent, string(make([]byte, 500)), false))
				sent += 500
				p.advance(100 * time.Millisecond)
				p.ackAll()
			}
			if w := p.maxStreamData(id) - sent; w > 2<<10 {
				t.Errorf("the stream's window is %d bytes", w)
			}
			if w := p.maxData() - sent; w > 3<<10 {
				t.Errorf("the connection's window is %d bytes", w)
			}
		})
	})
}

// A10: whatever becomes of a stream, once its final size is known all of it is given back
// to the connection (RFC 9000 §4.5).
func TestCreditOfCancelledStreams(t *testing.T) {
	const size, rounds = 900, 60
	data := func(n int) string { return string(make([]byte, n)) }
	for name, play := range map[string]func(p *actor, kind int, id int64){
		"cancelled, then reset": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(500), false))
			s := p.accept(kind)
			s.Read(make([]byte, 10))
			s.CancelRead(1)
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: size})
		},
		"cancelled with the end in": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(size), true))
			s := p.accept(kind)
			s.Read(make([]byte, 10))
			s.CancelRead(1)
		},
		"cancelled, and data come": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(100), false))
			p.accept(kind).CancelRead(1)
			p.writeFrames(wire.OneRTT, stream0(id, 500, data(400), true))
			p.writeFrames(wire.OneRTT, stream0(id, 100, data(400), false))
		},
		"reset before data": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: size})
			p.accept(kind).Read(make([]byte, 10))
		},
		"reset with gaps": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 100, data(100), false), stream0(id, 700, data(50), false), wire.ResetStream{ID: id, FinalSize: size})
			p.accept(kind).Read(make([]byte, 10))
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(500), false))
		},
		"a deadline before": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(10), false))
			s := p.accept(kind)
			s.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := io.ReadAll(s); !errors.Is(err, os.ErrDeadlineExceeded) {
				p.Error(err)
			}
			s.CancelRead(1)
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: size})
		},
		"reset twice": func(p *actor, kind int, id int64) {
			f := wire.ResetStream{ID: id, FinalSize: size}
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(size), false), f, f)
			p.accept(kind).CancelRead(1)
			p.writeFrames(wire.OneRTT, f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, windows(1000, 2000), func(c *Config) {
					c.MaxIncomingStreams, c.MaxIncomingUniStreams = 1<<20, 1<<20
				}).handshake()
				for n := range int64(rounds) {
					if free := p.maxData() - n*size; free < size {
						t.Fatalf("after %d streams %d bytes of credit are left", n, free)
					}
					play(p, kind, p.mine(kind, n))
					p.wantAlive("all is in order")
					p.advance(time.Millisecond)
					p.ackAll()
					p.queue = nil
				}
				p.settle()
				if free := p.maxData() - rounds*size; free < 1000 || free > 2000 {
					t.Errorf("in the end the window is %d bytes", free)
				}
			})
		})
	}
}

// A11: frames that give credit are sent again when they are lost, though nothing has
// happened since (RFC 9000 §13.3), and with the value of then if something has.
func TestCreditLost(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, windows(1000, 1500)).handshake()
		p.ignore(wire.FrameAck)
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, string(make([]byte, 1000)), false))
		s := p.accept(kind)
		io.ReadFull(s, make([]byte, 900))
		want := []wire.Frame{wire.MaxStreamData{ID: id, Max: 1900}, wire.MaxData{Max: 2400}}
		for range 4 {
			got := map[string]bool{}
			for range want {
				f := p.next()
				if f == nil {
					t.Fatal("it was lost, and does not come again")
				}
				got[f.f.String()] = true
			}
			for _, f := range want {
				if !got[f.String()] {
					t.Fatalf("want %v, got %v", f, got)
				}
			}
			p.lose()
		}
		io.ReadFull(s, make([]byte, 100))
		p.advance(time.Second)
		p.lose()
		p.advance(time.Second)
		if a, b := p.maxStreamData(id), p.maxData(); a != 2000 || b != 2500 {
			t.Errorf("in the end the limits are %d and %d", a, b)
		}
		p.settle()
		p.advance(10 * time.Second)
		p.wantIdle("acknowledged")
	})
	t.Run("superseded", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, windows(1000, 1500)).handshake()
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, stream0(id, 0, string(make([]byte, 1000)), false))
			s := p.accept(kind)
			io.ReadFull(s, make([]byte, 900))
			p.collect()
			p.writeFrames(wire.OneRTT, stream0(id, 1000, string(make([]byte, 100)), true))
			p.queue = nil
			p.lose()
			if fs := heard[wire.MaxStreamData](p); len(fs) > 0 {
				t.Errorf("%v for a stream whose size is known", fs)
			}
		})
	})
}

// RFC 9000 §4.1: who is blocked says so, once for each limit, and goes on when the limit
// rises. The watch sees that no limit is overrun.
func TestBlocked(t *testing.T) {
	t.Run("stream", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, credit(1000, 1<<20)).handshake()
			p.ignore(wire.FrameAck)
			p.ignore(streamTypes...)
			id := p.yours(kind, 0)
			s := p.open(kind)
			w := start(func() (int, error) { return s.Write(make([]byte, 3000)) })
			p.wantFrame("blocked", wire.OneRTT, wire.StreamDataBlocked{ID: id, Max: 1000})
			p.wantIdle("that is said once")
			p.lose()
			p.wantFrame("unless it is lost", wire.OneRTT, wire.StreamDataBlocked{ID: id, Max: 1000})
			p.settle()
			p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: id, Max: 2000})
			p.wantFrame("blocked again", wire.OneRTT, wire.StreamDataBlocked{ID: id, Max: 2000})
			p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: id, Max: 1500}) // out of order
			p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: id, Max: 3000})
			p.wantIdle("there is no more to send")
			if n := p.watching.streams[id].tape.prefix(); n != 3000 || !w.finished() {
				t.Errorf("%d bytes were sent", n)
			}
		})
	})
	t.Run("connection", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, credit(1<<20, 1000)).handshake()
			p.ignore(wire.FrameAck)
			p.ignore(streamTypes...)
			a, b := p.open(kind), p.open(kind)
			a.Write(make([]byte, 600))
			p.collect()
			b.Write(make([]byte, 600))
			p.wantFrame("blocked", wire.OneRTT, wire.DataBlocked{Max: 1000})
			p.wantIdle("that is said once")
			p.lose()
			p.wantFrame("unless it is lost", wire.OneRTT, wire.DataBlocked{Max: 1000})
			p.settle()
			a.Write(make([]byte, 600))
			p.wantIdle("nothing new")
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1500})
			p.wantFrame("blocked again", wire.OneRTT, wire.DataBlocked{Max: 1500})
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1800})
			p.wantIdle("everything is sent")
			if p.watching.total != 1800 {
				t.Errorf("%d bytes were sent", p.watching.total)
			}
		})
	})
}

// Bytes that are sent again use no credit.
func TestRetransmissionNeedsNoCredit(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, credit(1000, 1000)).handshake()
		s := p.open(kind)
		s.Write(make([]byte, 1000))
		p.wantFrame("all the credit", wire.OneRTT, stream0(p.yours(kind, 0), 0, string(make([]byte, 1000)), false))
		p.ignore(wire.FrameAck)
		for range 3 {
			p.lose()
			p.wantFrame("once more", wire.OneRTT, stream0(p.yours(kind, 0), 0, string(make([]byte, 1000)), false))
		}
	})
}

// A12: a writer that waits for credit is woken by what ends its wait, and by nothing else.
func TestBlockedWriter(t *testing.T) {
	const sent = 1000
	setup := func(t *testing.T, volley role, opts ...any) (*actor, *Stream, *call[int]) {
		t.Helper()
		p := newActor(t, volley, append(opts, credit(sent, 1<<20))...).handshake()
		s, err := p.c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		w := start(func() (int, error) { return s.Write(make([]byte, 500<<10)) })
		p.advance(time.Millisecond)
		p.ackAll()
		return p, s, w
	}
	want := func(p *actor, w *call[int], n int, target error) {
		p.Helper()
		if !w.finished() {
			p.Fatal("Write still waits")
		}
		if got, err := w.result(); got != n || !errors.Is(err, target) {
			p.Fatalf("Write returned %d, %v", got, err)
		}
	}
	for name, play := range map[string]func(p *actor, s *Stream, w *call[int]){
		"the peer closes its own direction": func(p *actor, s *Stream, w *call[int]) {
			p.writeFrames(wire.OneRTT, stream0(p.yours(bidi, 0), 0, "", true))
			p.advance(5 * time.Second)
			if w.finished() {
				p.Fatal("the directions have nothing to do with each other")
			}
			s.CancelWrite(3)
			want(p, w, sent, &StreamError{StreamID: s.StreamID(), ErrorCode: 3})
		},
		"the peer resets its own direction": func(p *actor, s *Stream, w *call[int]) {
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: p.yours(bidi, 0), Code: 7})
			p.advance(5 * time.Second)
			if w.finished() {
				p.Fatal("the directions have nothing to do with each other")
			}
			s.SetWriteDeadline(time.Now().Add(time.Second))
			p.advance(time.Second)
			// What is in the buffer may still arrive.
			if n, err := w.result(); n < sent || !errors.Is(err, os.ErrDeadlineExceeded) {
				p.Errorf("%d, %v", n, err)
			}
		},
		"the peer stops reading": func(p *actor, s *Stream, w *call[int]) {
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: p.yours(bidi, 0), Code: 7})
			want(p, w, sent, &StreamError{StreamID: s.StreamID(), ErrorCode: 7, Remote: true})
		},
		"the peer closes the connection": func(p *actor, s *Stream, w *call[int]) {
			p.writeFrames(wire.OneRTT, wire.ConnectionClose{App: true, Code: 7})
			want(p, w, sent, &ApplicationError{Remote: true, ErrorCode: 7})
		},
		"the peer falls silent": func(p *actor, s *Stream, w *call[int]) {
			p.advance(time.Minute)
			want(p, w, sent, &IdleTimeoutError{})
		},
		"the connection is closed here": func(p *actor, s *Stream, w *call[int]) {
			p.c.CloseWithError(7, "")
			want(p, w, sent, &ApplicationError{ErrorCode: 7})
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p, s, w := setup(t, volley)
				if w.finished() {
					t.Fatal("Write does not wait")
				}
				play(p, s, w)
			})
		})
	}
	t.Run("time and again", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, credit(1000, 1<<20)).handshake()
			for n := range int64(50) {
				s := p.open(uni)
				w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
				p.advance(time.Millisecond)
				p.writeFrames(wire.OneRTT, wire.StopSending{ID: p.yours(uni, n), Code: 7})
				want(p, w, sent, &StreamError{StreamID: s.StreamID(), ErrorCode: 7, Remote: true})
				p.ackAll()
			}
			s := p.open(uni)
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 2 << 20}, wire.MaxStreamData{ID: p.yours(uni, 50), Max: 2 << 20})
			w := start(func() (int, error) { return s.Write(make([]byte, 1<<20)) })
			p.ackUntil(w.finished)
			want(p, w, 1<<20, nil)
			p.c.mu.Lock()
			unsent := p.c.snd.Unsent()
			p.c.mu.Unlock()
			if unsent > 128<<10 {
				t.Errorf("%d bytes are held unsent", unsent)
			}
		})
	})
}

// A stream that the peer gives no credit does not hold up the others, nor use up their
// buffer.
func TestBlockedStreamHoldsUpNoOther(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, credit(1000, 1<<30)).handshake()
		var blocked []*call[int]
		for range 50 {
			s := p.open(uni)
			blocked = append(blocked, start(func() (int, error) { return s.Write(make([]byte, 100<<10)) }))
		}
		p.advance(time.Millisecond)
		p.ackAll()
		s := p.open(uni)
		p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: p.yours(uni, 50), Max: 1 << 30})
		w := start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
		p.ackUntil(w.finished)
		for _, b := range blocked {
			if b.finished() {
				t.Error("a blocked writer returned")
			}
		}
	})
}

// A source of SendFrom waits for credit as a writer does.
func TestBlockedSource(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, credit(1000, 1<<20)).handshake()
		p.ignore(wire.FrameAck)
		p.ignore(streamTypes...)
		s := p.open(uni)
		w := start(func() (int64, error) { return s.SendFrom(context.Background(), zeroes{}, 0, 5000) })
		p.wantFrame("blocked", wire.OneRTT, wire.StreamDataBlocked{ID: p.yours(uni, 0), Max: 1000})
		p.ackAll()
		if w.finished() {
			t.Fatal("it does not wait")
		}
		p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: p.yours(uni, 0), Max: 5000})
		p.advance(10 * time.Millisecond)
		if n, err := w.result(); n != 5000 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		synctest.Wait()
	})
}

type zeroes struct{}

func (zeroes) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// AllowConnectionWindowIncrease decides whether the connection's window grows, and may
// take its time without holding anything up.
func TestAllowConnectionWindowIncrease(t *testing.T) {
	for _, allow := range []bool{false, true} {
		eachRole(t, func(t *testing.T, volley role) {
			var asked atomic.Int64
			p := newActor(t, volley, func(c *Config) {
				c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = 16<<10, 16<<10
				c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = 4<<10, 64<<10
				c.AllowConnectionWindowIncrease = func(conn *Conn, delta uint64) bool {
					conn.ConnectionStats() // the documentation says that it must not; it must not hang either
					asked.Add(int64(delta))
					return allow
				}
			}, func(p *actor) { p.rtt = 20 * time.Millisecond }).handshake()
			id := p.mine(uni, 0)
			p.writeFrames(wire.OneRTT, stream0(id, 0, "x", false))
			go io.Copy(io.Discard, p.accept(uni))
			sent := int64(1)
			most := int64(0)
			for range 50 {
				free := min(p.maxStreamData(id), p.maxData()) - sent
				most = max(most, p.maxData()-sent)
				for free > 0 {
					n := min(free, 1000)
					rtt := p.rtt
					if p.rtt = 0; n == free {
						p.rtt = rtt
					}
					p.writeFrames(wire.OneRTT, stream0(id, sent, string(make([]byte, n)), false))
					p.rtt = rtt
					sent, free = sent+n, free-n
				}
				p.ackAll()
			}
			switch {
			case asked.Load() == 0:
				t.Error("nobody was asked")
			case allow && most <= 4<<10, !allow && most > 4<<10:
				t.Errorf("allowed: %t; the window was %d bytes", allow, most)
			}
		})
	}
}

// Credit and connection IDs come all the time where a stream is long: to take them in costs
// no memory.
func TestFrequentFramesAllocate(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s := p.open(uni)
		credit := int64(1 << 20)
		id := wire.NewConnectionID{Seq: 1, ID: []byte("1234"), ResetToken: [16]byte{1}}
		var b []byte
		n := testing.AllocsPerRun(100, func() {
			credit++
			b = wire.MaxData{Max: credit}.Append(b[:0])
			b = wire.MaxStreamData{ID: int64(s.StreamID()), Max: credit}.Append(b)
			b = id.Append(b)
			p.c.mu.Lock()
			defer p.c.mu.Unlock()
			if eliciting, err := p.c.frames(b, wire.OneRTT, time.Now(), nil); !eliciting || err != nil {
				t.Error(eliciting, err)
			}
		})
		if n > 0 {
			t.Errorf("%v allocations for three frames", n)
		}
	})
}
