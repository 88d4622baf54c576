package quic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset): streams that are reset but for
// their beginning.

func offersResetAt(c *Config)               { c.EnableStreamResetPartialDelivery = true }
func takesResetAt(tp *wire.TransportParams) { tp.ResetStreamAt = true }

// saidResets are the resets that Volley has said since it was last asked, and the bytes of
// stream id.
func (p *actor) saidResets(id int64) (resets []wire.Frame, data spans) {
	p.Helper()
	p.collect()
	for _, s := range p.queue {
		switch f := s.f.(type) {
		case wire.ResetStream, wire.ResetStreamAt:
			resets = append(resets, f)
		case wire.Stream:
			if f.ID == id && len(f.Data) > 0 {
				data.add(f.Off, f.Off+int64(len(f.Data))-1)
			}
		}
	}
	p.queue = nil
	return resets, data
}

// wantSaid expects exactly one reset, and bytes 0 to n-1 of the stream.
func (p *actor) wantSaid(expect string, id int64, reset wire.Frame, n int64) {
	p.Helper()
	resets, data := p.saidResets(id)
	if len(resets) != 1 || !sameFrame(resets[0], reset) {
		p.Fatalf("%s:\nwant %v\n got %v", expect, reset, resets)
	}
	if n == 0 && len(data) > 0 || n > 0 && (len(data) != 1 || data[0] != span{0, n - 1}) {
		p.Fatalf("%s:\nwant %d bytes of the stream\n got %v", expect, n, data)
	}
}

// sending reports whether the sending side of a stream of Volley's is not over.
func (p *actor) sending(id int64) bool {
	p.collect()
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.streams.sendByID(id) != nil
}

// What was written before the boundary is delivered, however often it and the reset are
// lost, and nothing else is sent again. The stream ends when the peer has both.
func TestReliableBoundary(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, takesResetAt).handshake()
		p.ignore(wire.FrameAck)
		id := p.yours(kind, 0)
		s := p.open(kind)
		s.Write([]byte("reliable"))
		p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
		s.SetReliableBoundary()
		s.Write([]byte("not"))
		p.wantFrame("more data", wire.OneRTT, stream0(id, 8, "not", false))
		s.CancelWrite(7)
		s.CancelWrite(8)
		s.SetReliableBoundary()
		reset := wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 11, ReliableSize: 8}
		p.wantFrame("the end", wire.OneRTT, reset)
		p.wantIdle("once")
		want := &StreamError{StreamID: StreamID(id), ErrorCode: 7}
		if _, err := s.Write([]byte("x")); !errors.Is(err, want) {
			t.Errorf("Write returned %v", err)
		}
		if err := s.Close(); !errors.Is(err, want) {
			t.Errorf("Close returned %v", err)
		}
		if err := context.Cause(s.Context()); !errors.Is(err, want) {
			t.Errorf("the cause is %v", err)
		}
		for range 3 {
			p.lose()
			p.wantSaid("all of it was lost", id, reset, 8)
		}
		if !p.sending(id) {
			t.Error("the stream is over before it is acknowledged")
		}
		p.settle()
		if p.sending(id) {
			t.Error("the stream is not over")
		}
		p.advance(10 * time.Second)
		p.wantIdle("acknowledged")
	})
}

// The reset and the bytes below its reliable size are acknowledged one by one.
func TestReliableBoundaryAckedInParts(t *testing.T) {
	for _, last := range []string{"bytes", "reset"} {
		t.Run(last+" last", func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, takesResetAt).handshake()
				p.ignore(wire.FrameAck)
				id := p.yours(kind, 0)
				s := p.open(kind)
				s.Write([]byte("reliable"))
				data := p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
				s.SetReliableBoundary()
				s.CancelWrite(7)
				reset := p.wantFrame("the end", wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 8, ReliableSize: 8})
				first, second := data.pn, reset.pn
				if last == "bytes" {
					first, second = second, first
				}
				p.writeFrames(wire.OneRTT, ack(first))
				if !p.sending(id) {
					t.Fatal("the stream is over too early")
				}
				p.writeFrames(wire.OneRTT, ack(first, second))
				if p.sending(id) {
					t.Fatal("the stream is not over")
				}
			})
		})
	}
}

// Bytes that were written before the boundary and not sent yet are sent after CancelWrite,
// as far as the peer's credit goes. The reset comes behind them, as its final size must be
// within the credit, too (the watch sees to it).
func TestReliableBoundaryWaitsForCredit(t *testing.T) {
	for name, give := range map[string]struct {
		credit func(*wire.TransportParams)
		more   func(id, n int64) wire.Frame
	}{
		"of the stream":     {credit(1000, 1<<20), func(id, n int64) wire.Frame { return wire.MaxStreamData{ID: id, Max: n} }},
		"of the connection": {credit(1<<20, 1000), func(id, n int64) wire.Frame { return wire.MaxData{Max: n} }},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, takesResetAt, give.credit).handshake()
				p.ignore(wire.FrameAck, wire.FrameStreamDataBlocked, wire.FrameDataBlocked)
				id := p.yours(kind, 0)
				s := p.open(kind)
				s.Write(make([]byte, 2000))
				s.SetReliableBoundary()
				s.Write(make([]byte, 3000))
				p.settle()
				s.CancelWrite(7)
				p.advance(time.Second)
				if resets, data := p.saidResets(id); len(resets) > 0 || len(data) > 0 {
					t.Fatalf("without credit: %v, %v", resets, data)
				}
				p.writeFrames(wire.OneRTT, give.more(id, 1500))
				p.advance(time.Second)
				resets, data := p.saidResets(id)
				if len(resets) > 0 || len(data) != 1 || data[0] != (span{1000, 1499}) {
					t.Fatalf("with credit for 500 bytes: %v, %v", resets, data)
				}
				p.writeFrames(wire.OneRTT, give.more(id, 100_000))
				p.advance(time.Millisecond)
				resets, data = p.saidResets(id)
				if len(data) != 1 || data[0] != (span{1500, 1999}) {
					t.Fatalf("with enough credit: %v", data)
				}
				if want := (wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 2000, ReliableSize: 2000}); len(resets) != 1 || resets[0] != want {
					t.Fatalf("want %v, got %v", want, resets)
				}
				p.settle()
				if p.sending(id) {
					t.Error("the stream is not over")
				}
				// What was dropped is nobody's: other streams have the credit.
				p.c.mu.Lock()
				if n := p.c.snd.Unsent(); n != 0 {
					t.Errorf("%d bytes are unsent", n)
				}
				p.c.mu.Unlock()
			})
		})
	}
}

// A writer that waits is told how many of its bytes may arrive.
func TestReliableBoundaryAmidAWrite(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, takesResetAt, credit(1000, 1<<20)).handshake()
		s := p.open(kind)
		write := start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
		p.collect()
		s.SetReliableBoundary()
		s.CancelWrite(7)
		n, err := write.result()
		if !errors.Is(err, &StreamError{StreamID: s.StreamID(), ErrorCode: 7}) || n < 1000 || n >= 200<<10 {
			t.Errorf("Write returned %d, %v", n, err)
		}
		id := p.yours(kind, 0)
		p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: id, Max: 1 << 20})
		p.ackUntil(func() bool { return !p.sending(id) })
		resets := []wire.Frame(nil)
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				if f, ok := f.(wire.ResetStreamAt); ok {
					resets = append(resets, f)
				}
			}
		}
		if want := (wire.ResetStreamAt{ID: id, Code: 7, FinalSize: int64(n), ReliableSize: int64(n)}); len(resets) != 1 || resets[0] != want {
			t.Errorf("want %v, got %v", want, resets)
		}
	})
}

// §5.4 of the draft: a peer that does not want the stream gets RESET_STREAM, and none of
// what was marked.
func TestReliableBoundaryAndStopSending(t *testing.T) {
	t.Run("after the reset", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, takesResetAt).handshake()
			p.ignore(wire.FrameAck)
			id := p.yours(kind, 0)
			s := p.open(kind)
			s.Write([]byte("reliable"))
			s.SetReliableBoundary()
			p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
			s.Write([]byte("not"))
			p.wantFrame("more data", wire.OneRTT, stream0(id, 8, "not", false))
			s.CancelWrite(7)
			at := p.wantFrame("the end", wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 11, ReliableSize: 8})
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 9})
			reset := wire.ResetStream{ID: id, Code: 7, FinalSize: 11} // neither code nor final size may change
			p.wantFrame("not even that", wire.OneRTT, reset)
			// An acknowledgement of the first one is not enough, nor does its loss matter.
			p.writeFrames(wire.OneRTT, ack(at.pn))
			p.lose()
			p.wantSaid("lost", id, reset, 0)
			if !p.sending(id) {
				t.Error("the stream is over before its RESET_STREAM is acknowledged")
			}
			p.settle()
			if p.sending(id) {
				t.Error("the stream is not over")
			}
		})
	})
	t.Run("before the reset", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, takesResetAt).handshake()
			p.ignore(wire.FrameAck)
			id := p.yours(kind, 0)
			s := p.open(kind)
			s.Write([]byte("reliable"))
			s.SetReliableBoundary()
			p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 9})
			p.wantFrame("nobody wants it", wire.OneRTT, wire.ResetStream{ID: id, Code: 9, FinalSize: 8})
			s.CancelWrite(7)
			p.advance(10 * time.Millisecond)
			p.wantIdle("it is reset already")
		})
	})
	t.Run("before the reset could leave", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, takesResetAt, credit(1000, 1<<20)).handshake()
			p.ignore(wire.FrameAck, wire.FrameStreamDataBlocked)
			id := p.yours(kind, 0)
			s := p.open(kind)
			s.Write(make([]byte, 5000))
			s.SetReliableBoundary()
			s.CancelWrite(7)
			p.collect()
			p.queue = nil
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 9})
			p.wantFrame("what was sent counts", wire.OneRTT, wire.ResetStream{ID: id, Code: 7, FinalSize: 1000})
		})
	})
}

// A boundary that there is nothing below, or that the peer has not asked for, is none.
func TestReliableBoundaryWithoutEffect(t *testing.T) {
	t.Run("not offered", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, offersResetAt).handshake() // Volley's offer does not count
			p.ignore(wire.FrameAck)
			id := p.yours(kind, 0)
			s := p.open(kind)
			s.Write([]byte("reliable"))
			p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
			s.SetReliableBoundary()
			s.CancelWrite(7)
			reset := wire.ResetStream{ID: id, Code: 7, FinalSize: 8}
			p.wantFrame("the end", wire.OneRTT, reset)
			p.lose()
			p.wantSaid("lost", id, reset, 0)
		})
	})
	t.Run("nothing written", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, takesResetAt).handshake()
			p.ignore(wire.FrameAck)
			s := p.open(kind)
			s.SetReliableBoundary()
			s.CancelWrite(7)
			p.wantFrame("the end", wire.OneRTT, wire.ResetStream{ID: p.yours(kind, 0), Code: 7})
		})
	})
	t.Run("all is delivered", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, takesResetAt).handshake()
			s := p.open(kind)
			s.SetReliableBoundary()
			s.CloseWith([]byte("all"))
			s.SetReliableBoundary()
			p.settle()
			s.CancelWrite(7)
			p.advance(time.Second)
			p.wantIdle("the stream is over")
		})
	})
}

// §5.1 of the draft: after FIN.
func TestReliableBoundaryAfterClose(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, takesResetAt).handshake()
		p.ignore(wire.FrameAck)
		id := p.yours(kind, 0)
		s := p.open(kind)
		s.Write([]byte("reliable"))
		p.wantFrame("data", wire.OneRTT, stream0(id, 0, "reliable", false))
		s.SetReliableBoundary()
		s.CloseWith([]byte("not"))
		p.wantFrame("the rest", wire.OneRTT, stream0(id, 8, "not", true))
		s.CancelWrite(7)
		reset := wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 11, ReliableSize: 8}
		p.wantFrame("after all", wire.OneRTT, reset)
		p.lose()
		p.wantSaid("lost", id, reset, 8)
		p.settle()
		if p.sending(id) {
			t.Error("the stream is not over")
		}
	})
	// Before FIN could be sent: what follows the boundary never is.
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, takesResetAt, credit(1000, 1<<20)).handshake()
		id := p.yours(kind, 0)
		s := p.open(kind)
		s.Write(make([]byte, 1200))
		s.SetReliableBoundary()
		s.CloseWith(make([]byte, 3000))
		s.CancelWrite(7)
		p.settle()
		p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: id, Max: 1 << 20})
		p.advance(time.Millisecond)
		resets, data := p.saidResets(id)
		if want := (wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 1200, ReliableSize: 1200}); len(resets) != 1 || resets[0] != want || len(data) != 1 || data[0] != (span{1000, 1199}) {
			t.Errorf("want %v, got %v with %v", want, resets, data)
		}
	})
}

// While the reliable bytes are sent the stream keeps its place among the others.
func TestReliableBytesKeepTheirPriority(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, takesResetAt, credit(20_000, 10)).handshake()
		p.ignore(wire.FrameAck, wire.FrameDataBlocked)
		late, early := p.open(uni), p.open(uni)
		late.SetPriority(5, true)
		early.SetPriority(1, true)
		for _, s := range []*SendStream{late, early} {
			s.Write(make([]byte, 6000))
			s.SetReliableBoundary()
			s.Write(make([]byte, 6000))
			s.CancelWrite(7)
		}
		p.settle()
		p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1 << 20})
		p.advance(time.Millisecond)
		var order []StreamID
		for _, f := range heard[wire.Stream](p) {
			if n := len(order); n == 0 || order[n-1] != StreamID(f.ID) {
				order = append(order, StreamID(f.ID))
			}
		}
		if len(order) != 2 || order[0] != early.StreamID() {
			t.Errorf("bytes came of streams %v, the first should be %d", order, early.StreamID())
		}
	})
}

// Whatever is lost, both ways and at random, the peer gets what was marked, and the reset.
func TestReliableBoundaryWithLoss(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		eachRole(t, func(t *testing.T, volley role) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %#x", seed)
				}
			}()
			rng := rand.New(rand.NewPCG(seed, 1))
			p := newActor(t, volley, takesResetAt, credit(3000, 5000)).handshake()
			loss := 0.1 + 0.4*rng.Float64()
			type marked struct {
				s        *SendStream
				boundary int64
				got      tape
				reset    *wire.ResetStreamAt
			}
			streams := map[int64]*marked{}
			for n := range int64(4) {
				s := p.open(int(n % 2))
				m := &marked{s: s, boundary: 1 + rng.Int64N(6000)}
				streams[int64(s.StreamID())] = m
				data := make([]byte, 12_000)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				wait := time.Duration(rng.IntN(200)) * time.Millisecond
				go func() {
					s.Write(data[:m.boundary])
					s.SetReliableBoundary()
					s.Write(data[m.boundary:])
					time.Sleep(wait)
					s.CancelWrite(7)
				}()
			}
			var received spans
			next := 0
			over := func() bool {
				for id, m := range streams {
					if m.reset == nil || int64(m.got.prefix()) < m.reset.ReliableSize || p.sending(id) {
						return false
					}
				}
				return true
			}
			for round := 0; !over() || p.inFlight() > 0; round++ {
				if round > 20_000 {
					t.Fatal("it does not come to an end")
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				p.collect()
				for ; next < len(p.packets); next++ {
					pkt := p.packets[next]
					if pkt.typ != wire.OneRTT || rng.Float64() < loss {
						continue
					}
					received.add(pkt.pn, pkt.pn)
					for _, f := range pkt.frames {
						switch f := f.(type) {
						case wire.Stream:
							streams[f.ID].got.put(f.Off, f.Data)
						case wire.ResetStreamAt:
							streams[f.ID].reset = &f
						}
					}
				}
				fs, total := []wire.Frame{}, int64(0)
				if len(received) > 0 {
					a := wire.Ack{}
					for i := len(received) - 1; i >= 0; i-- {
						a.Ranges = append(a.Ranges, wire.AckRange{Lo: received[i].lo, Hi: received[i].hi})
					}
					fs = append(fs, a)
				}
				for id, m := range streams {
					n := int64(m.got.prefix())
					if m.reset != nil {
						n = m.reset.FinalSize
					}
					total += n
					fs = append(fs, wire.MaxStreamData{ID: id, Max: n + 3000})
				}
				fs = append(fs, wire.MaxData{Max: total + 5000})
				if rng.Float64() < loss {
					for _, f := range fs {
						p.watching.said(f) // the limits are not smaller for that
					}
					continue
				}
				p.writeFrames(wire.OneRTT, fs...)
				p.wantAlive("all is in order")
			}
			for id, m := range streams {
				if m.reset.ReliableSize != m.boundary || m.reset.Code != 7 {
					t.Errorf("stream %d: %v, marked was %d", id, m.reset, m.boundary)
				}
			}
		})
	}
}

// The receiving side: what is below the reliable size is read, then the error.
func TestPeerResetsAt(t *testing.T) {
	type script func(p *actor, id int64)
	say := func(frames ...func(id int64) wire.Frame) script {
		return func(p *actor, id int64) {
			for _, f := range frames {
				p.writeFrames(wire.OneRTT, f(id))
			}
		}
	}
	data := func(off int64, s string, fin bool) func(int64) wire.Frame {
		return func(id int64) wire.Frame { return stream0(id, off, s, fin) }
	}
	at := func(final, reliable int64) func(int64) wire.Frame {
		return func(id int64) wire.Frame {
			return wire.ResetStreamAt{ID: id, Code: 7, FinalSize: final, ReliableSize: reliable}
		}
	}
	plain := func(final int64) func(int64) wire.Frame {
		return func(id int64) wire.Frame { return wire.ResetStream{ID: id, Code: 7, FinalSize: final} }
	}
	for _, tt := range []struct {
		name   string
		before script // nobody has read yet
		read   int    // bytes that are read then
		after  script
		want   string // all that is read
	}{
		{"bytes first", say(data(0, "abcdef", false), at(20, 4)), 0, nil, "abcd"},
		{"reset first", say(at(20, 4)), 0, say(data(0, "abcdef", false)), "abcd"},
		{"in pieces, out of order", say(at(20, 6), data(4, "ef", false), data(10, "x", false)), 0, say(data(0, "ab", false), data(2, "cdefgh", false)), "abcdef"},
		{"everything is reliable", say(data(0, "abc", false), at(3, 3)), 0, nil, "abc"},
		{"nothing is", say(data(0, "abc", false), at(3, 0)), 0, nil, ""},
		{"read up to the reliable size", say(data(0, "abcdef", false)), 4, say(at(20, 4)), "abcd"},
		{"read beyond", say(data(0, "abcdef", false)), 5, say(at(20, 4)), "abcde"},
		{"lowered", say(data(0, "abcdef", false), at(20, 5), at(20, 2)), 0, nil, "ab"},
		{"lowered, then read on", say(data(0, "abcdef", false), at(20, 5)), 1, say(at(20, 2)), "ab"},
		{"lowered to what was read", say(data(0, "abcdef", false), at(20, 5)), 3, say(at(20, 2)), "abc"},
		{"lowered to nothing", say(data(0, "abcdef", false), at(20, 5)), 0, say(plain(20)), ""},
		{"lowered by RESET_STREAM after reading", say(data(0, "abc", false), at(20, 5)), 2, say(plain(20)), "ab"},
		{"raised", say(data(0, "abcdef", false), at(20, 2), at(20, 5)), 0, nil, "ab"},
		{"raised after RESET_STREAM", say(data(0, "abcdef", false), plain(20), at(20, 5)), 0, nil, ""},
		{"repeated", say(at(20, 2), data(0, "abcdef", false), at(20, 2), data(0, "abcdef", false)), 0, say(at(20, 2)), "ab"},
		{"FIN before", say(data(2, "cdef", true), at(6, 4)), 0, say(data(0, "ab", false)), "abcd"},
		{"FIN after", say(at(6, 4), data(0, "ab", false)), 0, say(data(2, "cdef", true)), "abcd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, offersResetAt).handshake()
				id := p.mine(kind, 0)
				tt.before(p, id)
				s := p.accept(kind)
				got := make([]byte, tt.read)
				if _, err := io.ReadFull(s, got); err != nil {
					t.Fatal(err)
				}
				if tt.after != nil {
					tt.after(p, id)
				}
				all := start(func() ([]byte, error) { return io.ReadAll(s) })
				if !all.finished() {
					t.Fatal("there is nothing to wait for")
				}
				rest, err := all.result()
				if got = append(got, rest...); string(got) != tt.want || !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}) {
					t.Errorf("read %q, %v, want %q", got, err, tt.want)
				}
				p.wantAlive("all of that may happen")
				// Late, and too late to matter.
				p.writeFrames(wire.OneRTT, stream0(id, 0, "ab", false), at(20, 1)(id))
				p.ignore(wire.FrameAck)
				p.advance(time.Second)
				for _, f := range heard[wire.StopSending](p) {
					t.Errorf("%v", f)
				}
			})
		})
	}
	// All has arrived before the reset: it is read as if nothing had come (RFC 9000 §3.2).
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, offersResetAt).handshake()
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", true), at(3, 1)(id))
		if b, err := io.ReadAll(p.accept(kind)); string(b) != "abc" || err != nil {
			t.Errorf("everything is there, yet: %q, %v", b, err)
		}
	})
}

// Readers that wait are woken by what matters to them.
func TestWaitingForReliableBytes(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, offersResetAt).handshake()
		id := p.mine(kind, 0)
		want := &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}
		p.writeFrames(wire.OneRTT, stream0(id, 0, "ab", false))
		s := p.accept(kind)
		var size int64
		s.SetReceiveFinalSizeCallback(func(n int64) { size = n })
		io.ReadFull(s, make([]byte, 2))

		peek := start(func() (string, error) {
			b := make([]byte, 10)
			n, err := s.Peek(b)
			return string(b[:n]), err
		})
		p.writeFrames(wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 20, ReliableSize: 5})
		if peek.finished() {
			t.Fatal("Peek has no bytes to return yet")
		}
		if size != 20 {
			t.Errorf("the final size is %d", size)
		}
		p.writeFrames(wire.OneRTT, stream0(id, 2, "cdefghi", false))
		if got, err := peek.result(); got != "cde" || !errors.Is(err, want) {
			t.Errorf("Peek returned %q, %v", got, err)
		}
		b := make([]byte, 2)
		if n, err := s.Peek(b); n != 2 || err != nil {
			t.Errorf("Peek returned %d, %v", n, err)
		}
		if n, err := s.Read(b); n != 2 || err != nil {
			t.Errorf("Read returned %d, %v", n, err)
		}
		if n, err := s.Read(b); n != 1 || !errors.Is(err, want) {
			t.Errorf("Read returned %d, %v", n, err)
		}
		if _, err := s.Peek(b); !errors.Is(err, want) {
			t.Errorf("Peek returned %v", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, offersResetAt).handshake()
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 20, ReliableSize: 5})
			s := p.accept(kind)
			s.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read returned %v", err)
			}
			s.SetReadDeadline(time.Time{})
			read := start(func() ([]byte, error) { return io.ReadAll(s) })
			if read.finished() {
				t.Fatal("there is something to wait for")
			}
			p.writeFrames(wire.OneRTT, stream0(id, 0, "abcde", false))
			if b, err := read.result(); string(b) != "abcde" || !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}) {
				t.Errorf("read %q, %v", b, err)
			}
		})
	})
	// RFC 9000 §3.5: no STOP_SENDING for a stream that was reset; and the error is the peer's.
	t.Run("CancelRead", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, offersResetAt).handshake()
			p.ignore(wire.FrameAck)
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 20, ReliableSize: 5})
			s := p.accept(kind)
			read := start(func() (int, error) { return s.Read(make([]byte, 1)) })
			synctest.Wait()
			s.CancelRead(9)
			if _, err := read.result(); !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}) {
				t.Errorf("Read returned %v", err)
			}
			p.writeFrames(wire.OneRTT, stream0(id, 0, "abcde", false))
			p.advance(time.Second)
			if fs := heard[wire.StopSending](p); len(fs) > 0 {
				t.Errorf("%v", fs)
			}
			p.wantAlive("all well")
		})
	})
	t.Run("CancelRead before", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, offersResetAt).handshake()
			p.ignore(wire.FrameAck)
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, stream0(id, 0, "abcde", false))
			s := p.accept(kind)
			s.CancelRead(9)
			p.wantFrame("stop", wire.OneRTT, wire.StopSending{ID: id, Code: 9})
			p.writeFrames(wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 20, ReliableSize: 5})
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 9}) {
				t.Errorf("Read returned %v", err)
			}
			p.lose()
			p.wantIdle("it has stopped")
		})
	})
}

// What a peer that was offered RESET_STREAM_AT must not do with it. What one must not do that
// was not, is in TestViolations.
func TestResetAtViolations(t *testing.T) {
	s := stream0
	at := func(id, final, reliable int64) wire.ResetStreamAt {
		return wire.ResetStreamAt{ID: id, Code: 7, FinalSize: final, ReliableSize: reliable}
	}
	for _, tt := range []struct {
		name string
		say  func(p *actor) []wire.Frame
		code wire.ErrorCode
	}{
		{"more reliable than final", func(p *actor) []wire.Frame { return []wire.Frame{at(p.mine(uni, 0), 5, 6)} }, wire.FrameEncodingError},
		{"on a stream that only Volley sends on", func(p *actor) []wire.Frame { return []wire.Frame{at(p.yours(uni, 0), 5, 5)} }, wire.StreamStateError},
		{"on a stream that Volley did not open", func(p *actor) []wire.Frame { return []wire.Frame{at(p.yours(bidi, 0), 5, 5)} }, wire.StreamStateError},
		{"beyond MAX_STREAMS", func(p *actor) []wire.Frame { return []wire.Frame{at(p.mine(uni, 3), 5, 5)} }, wire.StreamLimitError},
		{"a final size beyond MAX_STREAM_DATA", func(p *actor) []wire.Frame { return []wire.Frame{at(p.mine(uni, 0), 1001, 5)} }, wire.FlowControlError},
		{"final sizes beyond MAX_DATA", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 800, 800), at(p.mine(uni, 1), 800, 800)}
		}, wire.FlowControlError},
		{"a final size below data", func(p *actor) []wire.Frame {
			return []wire.Frame{s(p.mine(uni, 0), 0, "abc", false), at(p.mine(uni, 0), 2, 1)}
		}, wire.FinalSizeError},
		{"another final size than FIN", func(p *actor) []wire.Frame {
			return []wire.Frame{s(p.mine(uni, 0), 0, "abc", true), at(p.mine(uni, 0), 4, 1)}
		}, wire.FinalSizeError},
		{"another final size than before", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), at(p.mine(uni, 0), 6, 3)}
		}, wire.FinalSizeError},
		{"RESET_STREAM with another final size", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), wire.ResetStream{ID: p.mine(uni, 0), Code: 7, FinalSize: 4}}
		}, wire.FinalSizeError},
		{"data beyond the final size", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), s(p.mine(uni, 0), 4, "xy", false)}
		}, wire.FinalSizeError},
		{"FIN at the reliable size", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), s(p.mine(uni, 0), 0, "abc", true)}
		}, wire.FinalSizeError},
		{"another code", func(p *actor) []wire.Frame {
			f := at(p.mine(uni, 0), 5, 2)
			f.Code = 8
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), f}
		}, wire.StreamStateError},
		{"RESET_STREAM with another code", func(p *actor) []wire.Frame {
			return []wire.Frame{at(p.mine(uni, 0), 5, 3), wire.ResetStream{ID: p.mine(uni, 0), Code: 8, FinalSize: 5}}
		}, wire.StreamStateError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, offersResetAt, smallWindows).handshake()
				p.writeFrames(wire.OneRTT, tt.say(p)...)
				p.wantClosed(tt.name, tt.code)
			})
		})
	}
}

// A10: whatever is reliable, and whoever reads it, all of a stream's bytes are given back to
// the connection, and those that are not to be read at once.
func TestCreditOfPartlyResetStreams(t *testing.T) {
	const size, rounds = 900, 60
	data := func(n int) string { return string(make([]byte, n)) }
	at := func(id, reliable int64) wire.Frame {
		return wire.ResetStreamAt{ID: id, FinalSize: size, ReliableSize: reliable}
	}
	for name, play := range map[string]func(p *actor, kind int, id int64){
		"read to the end": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(500), false), at(id, 300))
			io.ReadAll(p.accept(kind))
			p.writeFrames(wire.OneRTT, stream0(id, 500, data(400), false))
		},
		"not read, and little is reliable": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(500), false), at(id, 1))
			p.accept(kind)
		},
		"gaps": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, at(id, 300), stream0(id, 100, data(700), false), stream0(id, 200, data(10), false))
			s := p.accept(kind)
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(150), false))
			io.ReadAll(s)
		},
		"lowered while it is read": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(800), false), at(id, 700))
			s := p.accept(kind)
			s.Read(make([]byte, 100))
			p.writeFrames(wire.OneRTT, at(id, 300))
			s.Read(make([]byte, 100))
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: size}, at(id, 300))
			io.ReadAll(s)
		},
		"cancelled": func(p *actor, kind int, id int64) {
			p.writeFrames(wire.OneRTT, stream0(id, 0, data(800), false), at(id, 700))
			s := p.accept(kind)
			s.Read(make([]byte, 100))
			s.CancelRead(1)
			p.writeFrames(wire.OneRTT, at(id, 300))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, offersResetAt, windows(1000, 2000), func(c *Config) {
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
			})
		})
	}
}

// Long frames are held where they were decrypted, and let go when they are cut off.
func TestResetAtOfHeldBytes(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, offersResetAt).handshake()
		id := p.mine(kind, 0)
		all := make([]byte, 12_000)
		for i := range all {
			all[i] = byte(i * 7 >> 3)
		}
		for off := 0; off < len(all); off += 1200 {
			p.writeFrames(wire.OneRTT, wire.Stream{ID: id, Off: int64(off), Data: all[off : off+1200], HasLen: true})
		}
		s := p.accept(kind)
		p.writeFrames(wire.OneRTT, wire.ResetStreamAt{ID: id, Code: 7, FinalSize: 12_000, ReliableSize: 5000})
		p.c.mu.Lock()
		held := p.c.held
		p.c.mu.Unlock()
		b, err := io.ReadAll(s)
		if !bytes.Equal(b, all[:5000]) || !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}) {
			t.Errorf("read %d bytes, %v", len(b), err)
		}
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		if held > 5 || p.c.held != 0 {
			t.Errorf("%d packets were held, and %d are in the end", held, p.c.held)
		}
	})
}

func TestConnectionStateOfResetAt(t *testing.T) {
	for _, ours := range []bool{false, true} {
		for _, theirs := range []bool{false, true} {
			t.Run(fmt.Sprintf("local %v, remote %v", ours, theirs), func(t *testing.T) {
				eachRole(t, func(t *testing.T, volley role) {
					p := newActor(t, volley, func(c *Config) { c.EnableStreamResetPartialDelivery = ours },
						func(tp *wire.TransportParams) { tp.ResetStreamAt = theirs }).handshake()
					if st := p.c.ConnectionState().SupportsStreamResetPartialDelivery; st.Local != ours || st.Remote != theirs || p.theirs.ResetStreamAt != ours {
						t.Errorf("%+v, and the peer was told %v", st, p.theirs.ResetStreamAt)
					}
				})
			})
		}
	}
}
