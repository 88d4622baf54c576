package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// eachKind runs f for both roles and for streams of both kinds.
func eachKind(t *testing.T, f func(t *testing.T, volley role, kind int)) {
	for kind, name := range []string{"bidirectional", "unidirectional"} {
		t.Run(name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) { f(t, volley, kind) })
		})
	}
}

// open opens a stream of Volley's for sending.
func (p *actor) open(kind int) *SendStream {
	p.Helper()
	if kind == uni {
		s, err := p.c.OpenUniStream()
		if err != nil {
			p.Fatal(err)
		}
		return s
	}
	s, err := p.c.OpenStream()
	if err != nil {
		p.Fatal(err)
	}
	return s.SendStream
}

// accept accepts a stream of the actor's for receiving.
func (p *actor) accept(kind int) *ReceiveStream {
	p.Helper()
	p.collect()
	c := start(func() (*ReceiveStream, error) {
		if kind == uni {
			return p.c.AcceptUniStream(p.Context())
		}
		s, err := p.c.AcceptStream(p.Context())
		if err != nil {
			return nil, err
		}
		return s.ReceiveStream, nil
	})
	if !c.finished() {
		p.Fatal("there is no stream to accept")
	}
	s, err := c.result()
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// lose makes Volley take for lost all that it has sent so far and that is not
// acknowledged: three newer packets are, which hold nothing but ACKs. No time passes.
func (p *actor) lose() {
	p.Helper()
	p.collect()
	before := p.largest[recovery.App]
	for p.largest[recovery.App] < before+3 {
		p.writeFrames(wire.OneRTT, wire.Ping{})
	}
	var newer []int64
	for pn := before + 1; pn <= p.largest[recovery.App]; pn++ {
		if p.got[recovery.App].contains(pn) {
			newer = append(newer, pn)
		}
	}
	p.queue = nil
	p.unacked[recovery.App] = 0
	p.writeFrames(wire.OneRTT, ack(newer...))
}

// RFC 9000 §2.2: data come in any order and in overlapping pieces, and are read in order.
func TestStreamReassembly(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 6, "world", true))
		p.writeFrames(wire.OneRTT, stream0(id, 3, "lo", false))
		s := p.accept(kind)
		all := start(func() ([]byte, error) { return io.ReadAll(s) })
		if all.finished() {
			t.Fatal("the beginning is missing")
		}
		p.writeFrames(wire.OneRTT, stream0(id, 0, "hell", false), stream0(id, 0, "hello", false))
		p.writeFrames(wire.OneRTT, stream0(id, 4, "o wor", false))
		if b, err := all.result(); string(b) != "hello world" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A stream of no bytes is a stream.
func TestEmptyStream(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 0), 0, "", true))
		if b, err := io.ReadAll(p.accept(kind)); len(b) != 0 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		s := p.open(kind)
		p.advance(time.Second)
		p.ignore(wire.FrameAck)
		p.wantIdle("a stream that is opened and not used is not seen")
		s.Close()
		p.wantFrame("its end is", wire.OneRTT, stream0(p.yours(kind, 0), 0, "", true))
	})
}

// A frame for a stream opens all of its kind below (RFC 9000 §3.2), and Accept returns
// them in order.
func TestAcceptOrder(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 2), 0, "third", true))
		for n := range int64(3) {
			if got, want := p.accept(kind).StreamID(), StreamID(p.mine(kind, n)); got != want {
				t.Errorf("accepted stream %d, want %d", got, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.c.AcceptStream(ctx); err != context.Canceled {
			t.Errorf("Accept returned %v", err)
		}
	})
}

// Every stream is accepted by one of those who wait, whoever it is.
func TestAcceptByMany(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		const n = 50
		var mu sync.Mutex
		seen := map[StreamID]int{}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				var id StreamID
				if kind == uni {
					s, err := p.c.AcceptUniStream(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					id = s.StreamID()
				} else {
					s, err := p.c.AcceptStream(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					id = s.StreamID()
				}
				mu.Lock()
				seen[id]++
				mu.Unlock()
			})
		}
		synctest.Wait()
		p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 9), 0, "", false))
		p.writeFrames(wire.OneRTT, stream0(p.mine(kind, n-1), 0, "", false))
		wg.Wait()
		if len(seen) != n {
			t.Errorf("%d of %d streams were accepted", len(seen), n)
		}
	})
}

// RFC 9000 §3.2: a reset ends a stream whatever was received, and is told with its code.
func TestPeerResets(t *testing.T) {
	want := func(p *actor, kind int, code StreamErrorCode) error {
		return &StreamError{StreamID: StreamID(p.mine(kind, 0)), ErrorCode: code, Remote: true}
	}
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", false), stream0(id, 5, "xyz", false))
		s := p.accept(kind)
		b := make([]byte, 3)
		io.ReadFull(s, b)
		read := start(func() (int, error) { return s.Read(b) })
		p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, Code: 7, FinalSize: 20})
		if _, err := read.result(); !errors.Is(err, want(p, kind, 7)) {
			t.Errorf("Read returned %v", err)
		}
		// Late, repeated, and too late to matter.
		p.writeFrames(wire.OneRTT, stream0(id, 8, "late", false), wire.ResetStream{ID: id, Code: 8, FinalSize: 20}, stream0(id, 20, "", true))
		p.wantAlive("all of that may happen")
		if _, err := s.Read(b); !errors.Is(err, want(p, kind, 7)) {
			t.Errorf("Read returned %v", err)
		}
	})
	t.Run("after all data", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			id := p.mine(kind, 0)
			p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", true))
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, Code: 7, FinalSize: 3})
			if b, err := io.ReadAll(p.accept(kind)); string(b) != "abc" || err != nil {
				t.Errorf("everything is there, yet: %q, %v", b, err)
			}
		})
	})
	t.Run("before anything else", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			p.writeFrames(wire.OneRTT, wire.ResetStream{ID: p.mine(kind, 0), Code: 1<<62 - 1})
			if _, err := p.accept(kind).Read(make([]byte, 1)); !errors.Is(err, want(p, kind, 1<<62-1)) {
				t.Errorf("Read returned %v", err)
			}
		})
	})
}

// RFC 9000 §3.5: who does not want the rest asks the peer to stop; again, if that was
// lost; not if there is nothing to stop any more.
func TestCancelRead(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		p.ignore(wire.FrameAck)
		id := p.mine(kind, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", false))
		s := p.accept(kind)
		read := start(func() ([]byte, error) { return io.ReadAll(s) })
		synctest.Wait()
		s.CancelRead(7)
		s.CancelRead(8)
		stop := wire.StopSending{ID: id, Code: 7}
		p.wantFrame("stop", wire.OneRTT, stop)
		if _, err := read.result(); !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7}) {
			t.Errorf("Read returned %v", err)
		}
		p.lose()
		p.wantFrame("it was lost", wire.OneRTT, stop)
		p.lose()
		p.wantFrame("twice", wire.OneRTT, stop)
		p.writeFrames(wire.OneRTT, stream0(id, 3, "more", false))
		p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, Code: 7, FinalSize: 7})
		p.lose()
		p.advance(10 * time.Second)
		for _, f := range heard[wire.StopSending](p) {
			t.Errorf("%v though the peer has stopped", f)
		}
		p.wantAlive("all well")
	})
	t.Run("everything has arrived", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 0), 0, "abc", true))
			p.accept(kind).CancelRead(7)
			p.advance(time.Second)
			if fs := heard[wire.StopSending](p); len(fs) > 0 {
				t.Errorf("%v", fs)
			}
		})
	})
	t.Run("everything was read", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 0), 0, "abc", true))
			s := p.accept(kind)
			io.ReadAll(s)
			s.CancelRead(7)
			p.advance(time.Second)
			if fs := heard[wire.StopSending](p); len(fs) > 0 {
				t.Errorf("%v", fs)
			}
			if _, err := s.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("Read returned %v", err)
			}
		})
	})
}

// RFC 9000 §3.1, §4.5: a stream that is cancelled ends with a reset whose final size is
// what was sent. The watch sees that nothing follows.
func TestCancelWrite(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		p.ignore(wire.FrameAck)
		id := p.yours(kind, 0)
		s := p.open(kind)
		s.Write([]byte("hello"))
		p.wantFrame("data", wire.OneRTT, stream0(id, 0, "hello", false))
		s.CancelWrite(7)
		s.CancelWrite(8)
		reset := wire.ResetStream{ID: id, Code: 7, FinalSize: 5}
		p.wantFrame("the end", wire.OneRTT, reset)
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
		p.lose()
		p.wantFrame("it was lost", wire.OneRTT, reset)
		p.settle()
		p.advance(10 * time.Second)
		p.wantIdle("acknowledged")
	})
	t.Run("nothing was sent", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.CancelWrite(7)
			p.wantFrame("the peer hears of the stream", wire.OneRTT, wire.ResetStream{ID: p.yours(kind, 0), Code: 7})
		})
	})
	t.Run("more was written than sent", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, func(tp *wire.TransportParams) {
				tp.InitialMaxStreamDataBidiRemote, tp.InitialMaxStreamDataUni = 1000, 1000
			}).handshake()
			s := p.open(kind)
			write := start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
			p.collect()
			s.CancelWrite(7)
			n, err := write.result()
			if !errors.Is(err, &StreamError{StreamID: s.StreamID(), ErrorCode: 7}) || n != 1000 {
				t.Errorf("Write returned %d, %v", n, err)
			}
			p.collect()
			p.ignore(wire.FrameStream, wire.FrameStream|1, wire.FrameStream|2, wire.FrameStream|3, wire.FrameStream|4, wire.FrameStream|5, wire.FrameStream|6, wire.FrameStream|7, wire.FrameStreamDataBlocked)
			p.wantFrame("what was sent counts", wire.OneRTT, wire.ResetStream{ID: p.yours(kind, 0), Code: 7, FinalSize: 1000})
		})
	})
	t.Run("after the end, before its acknowledgement", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.CloseWith([]byte("all"))
			p.wantFrame("all", wire.OneRTT, stream0(p.yours(kind, 0), 0, "all", true))
			s.CancelWrite(7)
			p.wantFrame("it may get lost, so it is reset", wire.OneRTT, wire.ResetStream{ID: p.yours(kind, 0), Code: 7, FinalSize: 3})
		})
	})
	t.Run("after the end was acknowledged", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.CloseWith([]byte("all"))
			p.settle()
			s.CancelWrite(7)
			p.advance(time.Second)
			p.wantIdle("the stream is over")
		})
	})
}

// RFC 9000 §3.5: a stream that the peer does not want is reset with the peer's code.
func TestPeerStopsReading(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(tp *wire.TransportParams) {
			tp.InitialMaxStreamDataBidiRemote, tp.InitialMaxStreamDataUni = 1000, 1000
		}).handshake()
		id := p.yours(kind, 0)
		s := p.open(kind)
		write := start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
		p.collect()
		p.queue = nil
		p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 7})
		want := &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}
		if n, err := write.result(); !errors.Is(err, want) || n != 1000 {
			t.Errorf("Write returned %d, %v", n, err)
		}
		if err := context.Cause(s.Context()); !errors.Is(err, want) {
			t.Errorf("the cause is %v", err)
		}
		p.ignore(wire.FrameAck)
		p.wantFrame("the stream is over", wire.OneRTT, wire.ResetStream{ID: id, Code: 7, FinalSize: 1000})
		p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 8}, wire.MaxStreamData{ID: id, Max: 1 << 20})
		p.wantIdle("once")
		p.settle()
		p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 9}, wire.MaxStreamData{ID: id, Max: 1 << 30})
		p.advance(10 * time.Second)
		p.wantIdle("and for all")
		p.wantAlive("nothing wrong")
	})
	t.Run("a stream of its own", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			id := p.mine(bidi, 0)
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: id, Code: 7})
			p.ignore(wire.FrameAck)
			p.wantFrame("STOP_SENDING opens it", wire.OneRTT, wire.ResetStream{ID: id, Code: 7})
			s, err := p.c.AcceptStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("x")); !errors.Is(err, &StreamError{StreamID: StreamID(id), ErrorCode: 7, Remote: true}) {
				t.Errorf("Write returned %v", err)
			}
		})
	})
	t.Run("after the end was acknowledged", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			p.open(kind).CloseWith([]byte("all"))
			p.settle()
			p.writeFrames(wire.OneRTT, wire.StopSending{ID: p.yours(kind, 0), Code: 7})
			p.advance(time.Second)
			p.ignore(wire.FrameAck)
			p.wantIdle("there is nothing to stop")
		})
	})
}

// Frames for streams that are over may still be on their way.
func TestFramesForStreamsThatAreOver(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		// Both sides of a stream of each end, one after the other.
		id := p.mine(bidi, 0)
		p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", true))
		theirs, err := p.c.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		io.ReadAll(theirs)
		theirs.Close()
		ours, err := p.c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		ours.CloseWith([]byte("abc"))
		p.settle()
		yours := p.yours(bidi, 0)
		p.writeFrames(wire.OneRTT, stream0(yours, 0, "abc", true))
		io.ReadAll(ours)
		p.settle()
		p.c.mu.Lock()
		n := len(p.c.streams.open)
		p.c.mu.Unlock()
		if n != 0 {
			t.Fatalf("%d streams are open", n)
		}
		for _, id := range []int64{id, yours} {
			p.writeFrames(wire.OneRTT, stream0(id, 0, "abc", true), stream0(id, 1, "b", false), wire.ResetStream{ID: id, Code: 1, FinalSize: 3},
				wire.StopSending{ID: id, Code: 1}, wire.MaxStreamData{ID: id, Max: 1 << 20}, wire.StreamDataBlocked{ID: id, Max: 3})
		}
		p.settle()
		p.wantAlive("all of that is old")
		if n := len(p.c.streams.open); n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}

// Nothing that only repeats, or says less than what was said, is an error.
func TestHarmlessFrames(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s := p.open(bidi)
		s.Write([]byte("x"))
		id := p.yours(bidi, 0)
		for range 2 {
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1}, wire.MaxStreamData{ID: id, Max: 1}, wire.MaxStreams{Max: 1}, wire.MaxStreams{Uni: true, Max: 0},
				wire.DataBlocked{Max: 5}, wire.StreamDataBlocked{ID: id, Max: 5}, wire.StreamsBlocked{Max: 5}, wire.StreamsBlocked{Uni: true, Max: 1 << 60},
				wire.Padding{N: 3}, wire.Ping{}, wire.PathResponse{Data: [8]byte{1}}, stream0(p.mine(uni, 1), 0, "", false), stream0(p.mine(uni, 1), 0, "", false))
			p.wantAlive("harmless")
		}
		if _, err := s.Write(make([]byte, 1000)); err != nil {
			t.Error(err)
		}
		p.advance(time.Second)
		if n := p.watching.streams[id].highest; n != 1001 {
			t.Errorf("%d bytes were sent, limits must have fallen", n)
		}
		for range 5 {
			p.open(uni)
		}
	})
}

// A03: the end of a stream is an item of its own, sent, lost and acknowledged on its
// own, and needs no credit.
func TestFin(t *testing.T) {
	fin := func(p *actor, kind int, off int64) wire.Stream { return stream0(p.yours(kind, 0), off, "", true) }
	over := func(p *actor, kind int) bool {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		return p.c.streams.sendByID(p.yours(kind, 0)) == nil
	}
	t.Run("after all bytes were acknowledged, and lost", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.Write(make([]byte, 1000))
			p.settle()
			if over(p, kind) {
				t.Fatal("the stream is over without an end")
			}
			s.Close()
			p.wantFrame("the end", wire.OneRTT, fin(p, kind, 1000))
			p.advance(20 * time.Millisecond)
			if over(p, kind) {
				t.Error("the stream is over, but the end is not acknowledged")
			}
			p.lose()
			p.wantFrame("it was lost", wire.OneRTT, fin(p, kind, 1000))
			p.settle()
			if !over(p, kind) {
				t.Error("acknowledged, and not over")
			}
		})
	})
	t.Run("probes repeat it", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.Close()
			p.wantFrame("the end", wire.OneRTT, fin(p, kind, 0))
			p.advanceToSend()
			p.wantFrame("a probe that has something to carry", wire.OneRTT, fin(p, kind, 0))
		})
	})
	t.Run("with no credit left", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, func(tp *wire.TransportParams) {
				tp.InitialMaxStreamDataBidiRemote, tp.InitialMaxStreamDataUni, tp.InitialMaxData = 1000, 1000, 1000
			}).handshake()
			s := p.open(kind)
			s.Write(make([]byte, 1000))
			p.settle()
			s.Close()
			p.wantFrame("the end costs nothing", wire.OneRTT, fin(p, kind, 1000))
			p.lose()
			p.wantFrame("the second time as well", wire.OneRTT, fin(p, kind, 1000))
		})
	})
	t.Run("no credit at all", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, func(tp *wire.TransportParams) {
				tp.InitialMaxStreamDataBidiRemote, tp.InitialMaxStreamDataUni, tp.InitialMaxData = 0, 0, 0
			}).handshake()
			p.open(kind).Close()
			p.wantFrame("an empty stream", wire.OneRTT, fin(p, kind, 0))
		})
	})
	t.Run("bytes are lost, the end is not", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.Write([]byte("abc"))
			p.wantFrame("data", wire.OneRTT, stream0(p.yours(kind, 0), 0, "abc", false))
			s.Close()
			pkt := p.wantFrame("the end", wire.OneRTT, fin(p, kind, 3))
			p.writeFrames(wire.OneRTT, ack(pkt.pn))
			p.advance(time.Second)
			if over(p, kind) {
				t.Fatal("not all bytes are acknowledged")
			}
			found := false
			for _, f := range heard[wire.Stream](p) {
				found = found || string(f.Data) == "abc"
			}
			if !found {
				t.Error("the bytes were not sent again")
			}
			p.settle()
			if !over(p, kind) {
				t.Error("acknowledged, and not over")
			}
		})
	})
}

// RFC 9000 §4.6: as streams end the peer may open others, and hears of it in time.
func TestStreamsComeBack(t *testing.T) {
	limit := func(n int64) func(*Config) {
		return func(c *Config) { c.MaxIncomingStreams, c.MaxIncomingUniStreams = n, n }
	}
	max := func(p *actor, kind int) int64 { // what the peer may open, as it was told
		p.collect()
		if kind == uni {
			return max(p.theirs.InitialMaxStreamsUni, p.watching.saidMaxStreams[uni])
		}
		return max(p.theirs.InitialMaxStreamsBidi, p.watching.saidMaxStreams[bidi])
	}
	use := func(p *actor, kind int, n int64) {
		p.Helper()
		p.writeFrames(wire.OneRTT, stream0(p.mine(kind, n), 0, "x", true))
		if kind == uni {
			io.ReadAll(p.accept(uni))
			return
		}
		s, err := p.c.AcceptStream(p.Context())
		if err != nil {
			p.Fatal(err)
		}
		io.ReadAll(s)
		s.Close()
		p.settle() // the end is acknowledged
	}
	for _, n := range []int64{1, 2, 10, 100} {
		t.Run(fmt.Sprintf("limit %d", n), func(t *testing.T) {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, limit(n)).handshake()
				frames := 0
				for i := range 3 * n {
					if i >= max(p, kind) {
						t.Fatalf("stream %d cannot be opened, though all before are over", i)
					}
					use(p, kind, i)
					frames += len(heard[wire.MaxStreams](p))
				}
				if got := max(p, kind); got > 4*n {
					t.Errorf("the peer may open %d streams after %d, with a limit of %d", got, 3*n, n)
				}
				if n == 100 && frames > 20 {
					t.Errorf("%d MAX_STREAMS frames", frames)
				}
			})
		})
	}
	t.Run("a few that stay do not keep back those that ended", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, limit(10)).handshake()
			for i := range int64(4) {
				use(p, kind, i)
			}
			for i := int64(4); i < 10; i++ {
				p.writeFrames(wire.OneRTT, stream0(p.mine(kind, i), 0, "x", false))
			}
			p.settle()
			if got := max(p, kind); got < 14 {
				t.Errorf("6 streams are open, 4 are over, and the peer may open no more than %d", got)
			}
		})
	})
	t.Run("lost", func(t *testing.T) { // A11
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, limit(1)).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 0), 0, "x", true))
			if kind == uni {
				io.ReadAll(p.accept(uni))
			} else {
				s, _ := p.c.AcceptStream(t.Context())
				io.ReadAll(s)
				s.Close()
			}
			p.ignore(wire.FrameAck, wire.FrameStream|3, wire.FrameStream|1)
			want := wire.MaxStreams{Uni: kind == uni, Max: 2}
			p.wantFrame("one more", wire.OneRTT, want)
			for range 3 {
				p.lose()
				p.wantFrame("it was lost", wire.OneRTT, want)
			}
			p.settle()
			p.advance(10 * time.Second)
			p.wantIdle("acknowledged")
		})
	})
	// Of a stream that only waits for ACKs the application holds nothing any more.
	t.Run("when the answer has left", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			const n = 3
			p := newActor(t, volley, limit(n)).handshake()
			ask := func(i int64) *Stream {
				t.Helper()
				p.writeFrames(wire.OneRTT, stream0(p.mine(bidi, i), 0, "x", true))
				s, err := p.c.AcceptStream(p.Context())
				if err != nil {
					t.Fatal(err)
				}
				io.ReadAll(s)
				s.Write([]byte("answer"))
				return s
			}
			want := func(most int64, why string) {
				t.Helper()
				if got := max(p, bidi); got != most {
					t.Errorf("%s: the peer may open %d streams, want %d", why, got, most)
				}
			}
			p.collect()
			first := ask(0)
			want(n, "the answer may go on")
			first.Close()
			want(n+1, "the answer has left")
			for i := int64(1); i < n; i++ {
				ask(i).Close()
			}
			want(2*n, "as many answers have left as streams may be open")
			for i := int64(n); i < 2*n; i++ {
				ask(i).Close()
			}
			want(2*n, "and none of them is acknowledged")
			p.settle()
			want(3*n, "all are acknowledged")
			ask(2 * n).Close()
			want(3*n+1, "the next answer has left")
		})
	})
	t.Run("not while the question goes on", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, limit(1)).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(bidi, 0), 0, "x", false))
			s, err := p.c.AcceptStream(p.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte("answer"))
			s.Close()
			if got := max(p, bidi); got != 1 {
				t.Errorf("the peer may open %d streams, and the only one is still open", got)
			}
			p.writeFrames(wire.OneRTT, stream0(p.mine(bidi, 0), 1, "", true))
			io.ReadAll(s)
			if got := max(p, bidi); got != 2 {
				t.Errorf("the peer may open %d streams, and the first is over but for ACKs", got)
			}
		})
	})
	t.Run("not while the answer waits for credit", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, limit(1), func(p *wire.TransportParams) {
				p.InitialMaxStreamDataBidiLocal, p.InitialMaxStreamDataBidiRemote = 5, 5
			}).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(bidi, 0), 0, "x", true))
			s, err := p.c.AcceptStream(p.Context())
			if err != nil {
				t.Fatal(err)
			}
			io.ReadAll(s)
			s.Write([]byte("answer"))
			s.Close()
			p.settle()
			if got := max(p, bidi); got != 1 {
				t.Errorf("the peer may open %d streams, and the last byte of the answer has not left", got)
			}
			p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: p.mine(bidi, 0), Max: 6})
			if got := max(p, bidi); got != 2 {
				t.Errorf("the peer may open %d streams, and the answer has left", got)
			}
		})
	})
	t.Run("reset and cancelled streams", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, limit(1)).handshake()
			for i := range int64(10) {
				id := p.mine(uni, i)
				switch i % 3 {
				case 0:
					p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: 5})
					p.accept(uni).Read(make([]byte, 1))
				case 1:
					p.writeFrames(wire.OneRTT, stream0(id, 0, "x", false))
					p.accept(uni).CancelRead(1)
					p.writeFrames(wire.OneRTT, wire.ResetStream{ID: id, FinalSize: 5})
				case 2:
					p.writeFrames(wire.OneRTT, stream0(id, 0, "x", true))
					p.accept(uni).CancelRead(1)
				}
				p.settle()
				if got := max(p, uni); got != i+2 {
					t.Fatalf("after stream %d the limit is %d", i, got)
				}
			}
		})
	})
	t.Run("none are allowed", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley, limit(-1)).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 0), 0, "x", false))
			p.wantClosed("none", wire.StreamLimitError)
		})
	})
}

func (p *actor) openSync(ctx context.Context, kind int) *call[StreamID] {
	return start(func() (StreamID, error) {
		if kind == uni {
			s, err := p.c.OpenUniStreamSync(ctx)
			if err != nil {
				return 0, err
			}
			return s.StreamID(), nil
		}
		s, err := p.c.OpenStreamSync(ctx)
		if err != nil {
			return 0, err
		}
		return s.StreamID(), nil
	})
}

// Opening waits for the peer's leave, in order, and the peer hears that somebody waits.
func TestOpenStreamSync(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(tp *wire.TransportParams) { tp.InitialMaxStreamsBidi, tp.InitialMaxStreamsUni = 1, 1 }).handshake()
		ctx := t.Context()
		if id, err := p.openSync(ctx, kind).result(); id != StreamID(p.yours(kind, 0)) || err != nil {
			t.Fatal(id, err)
		}
		var waiting []*call[StreamID]
		for range 4 {
			waiting = append(waiting, p.openSync(ctx, kind))
			if waiting[len(waiting)-1].finished() {
				t.Fatal("it does not wait")
			}
		}
		p.ignore(wire.FrameAck)
		blocked := func(n int64) wire.StreamsBlocked { return wire.StreamsBlocked{Uni: kind == uni, Max: n} }
		p.wantFrame("somebody waits", wire.OneRTT, blocked(1))
		p.wantIdle("once")
		p.lose()
		p.wantFrame("it was lost", wire.OneRTT, blocked(1))
		if _, err := p.openNow(kind); !errors.As(err, new(*StreamLimitReachedError)) {
			t.Errorf("OpenStream returned %v", err)
		}
		p.writeFrames(wire.OneRTT, wire.MaxStreams{Uni: kind == uni, Max: 3})
		for i, want := range []bool{true, true, false, false} {
			if got := waiting[i].finished(); got != want {
				t.Errorf("caller %d returned: %t", i, got)
			} else if got {
				if id, err := waiting[i].result(); id != StreamID(p.yours(kind, int64(i)+1)) || err != nil {
					t.Errorf("caller %d got stream %d, %v", i, id, err)
				}
			}
		}
		p.wantFrame("two still wait", wire.OneRTT, blocked(3))
		if _, err := p.openNow(kind); !errors.As(err, new(*StreamLimitReachedError)) {
			t.Errorf("OpenStream returned %v", err)
		}
		p.writeFrames(wire.OneRTT, wire.MaxStreams{Uni: kind == uni, Max: 10})
		for i := 2; i < 4; i++ {
			if id, err := waiting[i].result(); id != StreamID(p.yours(kind, int64(i)+1)) || err != nil {
				t.Errorf("caller %d got stream %d, %v", i, id, err)
			}
		}
		if id, err := p.openNow(kind); id != StreamID(p.yours(kind, 5)) || err != nil {
			t.Error(id, err)
		}
	})
}

func (p *actor) openNow(kind int) (StreamID, error) {
	if kind == uni {
		s, err := p.c.OpenUniStream()
		if err != nil {
			return 0, err
		}
		return s.StreamID(), nil
	}
	s, err := p.c.OpenStream()
	if err != nil {
		return 0, err
	}
	return s.StreamID(), nil
}

// Who gives up waiting takes no stream with him, also if one comes at that moment:
// somebody else who waits gets it.
func TestOpenStreamSyncGivenUp(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(tp *wire.TransportParams) { tp.InitialMaxStreamsUni = 0 }).handshake()
		allowed := int64(0)
		opened := map[StreamID]bool{}
		const rounds = 10000
		for round := range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			first := p.openSync(ctx, uni)
			synctest.Wait()
			next := p.openSync(t.Context(), uni)
			synctest.Wait()
			// One more stream comes just as the first gives up.
			allowed++
			raise := func() {
				p.c.mu.Lock()
				p.c.streams.setLimit(true, allowed)
				p.c.mu.Unlock()
			}
			if round%2 == 0 {
				go cancel()
				raise()
			} else {
				go raise()
				cancel()
			}
			synctest.Wait()
			id, err := first.result()
			if err == nil {
				if next.finished() {
					t.Fatalf("round %d: two streams for one", round)
				}
				allowed++
				raise()
			} else if err != context.Canceled {
				t.Fatal(err)
			}
			if !next.finished() {
				t.Fatalf("round %d: a stream got lost", round)
			}
			id2, err2 := next.result()
			if err2 != nil {
				t.Fatal(err2)
			}
			if err == nil {
				opened[id] = true
			}
			opened[id2] = true
		}
		if int64(len(opened)) != allowed {
			t.Errorf("%d of %d streams were opened", len(opened), allowed)
		}
		p.queue = nil
		p.watching.loose = true
	})
}

// Who waits for a stream hears of the connection's end, every one.
func TestOpenStreamSyncConnOver(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley, func(tp *wire.TransportParams) { tp.InitialMaxStreamsBidi, tp.InitialMaxStreamsUni = 0, 0 }).handshake()
		var waiting []*call[StreamID]
		for range 5 {
			waiting = append(waiting, p.openSync(t.Context(), kind))
			synctest.Wait()
		}
		p.writeFrames(wire.OneRTT, wire.ConnectionClose{App: true, Code: 7})
		for i, w := range waiting {
			if _, err := w.result(); !errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 7}) {
				t.Errorf("caller %d got %v", i, err)
			}
		}
	})
}

// Who waits for the peer's streams hears of the connection's end, every one, and what
// was not accepted by then is gone.
func TestAcceptConnOver(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		accept := func() error {
			if kind == uni {
				return second(p.c.AcceptUniStream(t.Context()))
			}
			return second(p.c.AcceptStream(t.Context()))
		}
		var waiting []*call[int]
		for range 5 {
			waiting = append(waiting, start(func() (int, error) { return 0, accept() }))
		}
		synctest.Wait()
		p.writeFrames(wire.OneRTT, wire.ConnectionClose{App: true, Code: 7})
		want := &ApplicationError{Remote: true, ErrorCode: 7}
		for i, w := range waiting {
			if _, err := w.result(); !errors.Is(err, want) {
				t.Errorf("caller %d got %v", i, err)
			}
		}
	})
	t.Run("with streams in the queue", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			p.writeFrames(wire.OneRTT, stream0(p.mine(kind, 3), 0, "x", true), wire.ConnectionClose{App: true, Code: 7})
			var err error
			if kind == uni {
				_, err = p.c.AcceptUniStream(t.Context())
			} else {
				_, err = p.c.AcceptStream(t.Context())
			}
			if !errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 7}) {
				t.Errorf("Accept returned %v", err)
			}
		})
	})
}

// A context of the application's that ends is not the connection's end: Accept waits, and
// does not spin.
func TestAcceptWithDeadParentContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		p := newActor(t, asServer, func(tr *Transport) {
			tr.ConnContext = func(ctx context.Context, _ *ClientInfo) (context.Context, error) {
				ctx, stop := context.WithCancel(ctx)
				context.AfterFunc(parent, stop)
				return ctx, nil
			}
		}).handshake()
		a := start(func() (*ReceiveStream, error) { return p.c.AcceptUniStream(t.Context()) })
		synctest.Wait()
		cancel()
		if a.finished() {
			t.Fatal(a.result())
		}
		p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "x", true))
		if _, err := a.result(); err != nil {
			t.Error(err)
		}
	})
}

// Many streams at once keep their bytes apart.
func TestManyStreams(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		const n = 100
		text := func(i int64) string { return strings.Repeat(fmt.Sprint(i, " "), 300) }
		var wg sync.WaitGroup
		for i := range int64(n) {
			s := p.open(kind)
			wg.Go(func() {
				for _, part := range strings.SplitAfter(text(i), " ") {
					s.Write([]byte(part))
				}
				s.Close()
			})
		}
		w := start(func() (int, error) { wg.Wait(); return 0, nil })
		p.ackUntil(w.finished)
		for range 20 {
			p.advance(10 * time.Millisecond)
			p.ackAll()
		}
		for i := range int64(n) {
			s := p.watching.streams[p.yours(kind, i)]
			if s == nil || string(s.tape.data[:s.tape.prefix()]) != text(i) || s.final != int64(len(text(i))) {
				t.Errorf("stream %d is not what was written", i)
			}
		}
	})
}

// All that a stream is made of is one piece of memory.
func TestStreamIsOneAllocation(t *testing.T) {
	var h *halves
	defer func() { runtime.KeepAlive(h) }()
	for id, ours := range map[int64]bool{0: true, 1: false, 2: true, 3: false} {
		if n := testing.AllocsPerRun(100, func() { h = newHalves(id, ours) }); n != 1 {
			t.Errorf("stream %d: %v allocations", id, n)
		}
	}
}

// Who waits for what packets bring is woken behind them, when the mutex is free, and not
// one by one to queue for it.
func TestWakesFollowTheMutex(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(nil, nil)
		var woken, locked atomic.Int32
		look := func() {
			woken.Add(1)
			if !s.mu.TryLock() {
				locked.Add(1)
				return
			}
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.streams.arrived[bidi].Away(&look)
		s.mu.Unlock()
		for range 3 {
			st, err := c.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			st.Write([]byte("a"))
		}
		time.Sleep(time.Second)
		if woken.Load() == 0 || locked.Load() > 0 {
			t.Errorf("woken %d times, %d of them while the mutex was held", woken.Load(), locked.Load())
		}
		s.streams.arrived[bidi].Away(nil)
	})
}
