package quic

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// wantGoroutines expects the connection, the only one in its bubble, to have n goroutines.
func (p *actor) wantGoroutines(expect string, n int) {
	p.Helper()
	synctest.Wait()
	b := make([]byte, 1<<20)
	size := runtime.Stack(b, true)
	for ; size == len(b); size = runtime.Stack(b, true) { // there was more
		b = make([]byte, 2*len(b))
	}
	all := bytes.Split(b[:size], []byte("\n\n"))
	// Connections of tests before may have yet to end. The first goroutine is this one.
	_, bubble, _ := bytes.Cut(all[0][:bytes.IndexByte(all[0], '\n')], []byte("synctest bubble"))
	got := 0
	for _, g := range all {
		if bytes.Contains(g, []byte("quic.(*Conn).work(")) && bytes.HasSuffix(g[:bytes.IndexByte(g, '\n')], bubble) {
			got++
		}
	}
	if got != n {
		p.Fatalf("%s: %d goroutines, want %d", expect, got, n)
	}
}

// resting is an actor whose connection has come to rest.
func resting(t *testing.T, volley role) *actor {
	p := newActor(t, volley).handshake()
	p.ignore(wire.FrameAck)
	p.writeFrames(wire.OneRTT, wire.Ping{})
	p.advance(restAfter - time.Nanosecond)
	p.wantGoroutines("something arrived a moment ago", 1)
	p.advance(time.Nanosecond)
	p.wantGoroutines("nothing has for a while", 0)
	return p
}

// What a connection has to do it does as soon when it rests, and then it rests again.
func TestRest(t *testing.T) {
	for _, tt := range []struct {
		name string
		wake func(p *actor)
	}{
		{"a packet arrives", func(p *actor) {
			p.writeFrames(wire.OneRTT, wire.PathChallenge{Data: [8]byte{1, 2, 3}})
			p.wantFrame("the answer", wire.OneRTT, wire.PathResponse{Data: [8]byte{1, 2, 3}})
			p.ackAll()
		}},
		{"the application writes", func(p *actor) {
			s := p.open(uni)
			s.Write([]byte("now"))
			p.wantFrame("no later", wire.OneRTT, wire.Stream{ID: int64(s.StreamID()), Data: []byte("now"), HasLen: true})
			p.ackAll()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := resting(t, volley)
				for range 2 {
					tt.wake(p)
					p.wantGoroutines("at work", 1)
					p.advance(restAfter)
					p.wantGoroutines("at rest again", 0)
				}
			})
		})
	}
}

// The timer works at rest.
func TestRestTimer(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(c *Config) { c.KeepAlivePeriod = 10 * time.Second }).handshake()
		p.ignore(wire.FrameAck)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		for range 2 {
			p.advance(10*time.Second - time.Nanosecond)
			p.wantGoroutines("long at rest", 0)
			p.wantIdle("not yet")
			p.advance(time.Nanosecond)
			p.wantFrame("it is time", wire.OneRTT, wire.Ping{})
			p.ackAll()
			p.wantGoroutines("the peer has answered", 1)
		}
	})
}

// A connection that rests can be closed, and ends for good.
func TestRestClose(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := resting(t, volley)
		p.c.CloseWithError(7, "enough")
		p.wantClose("at once")
		p.advance(time.Minute)
		synctest.Wait()
		if !p.c.turn.over() {
			t.Error("the connection is not over")
		}
	})
}

// A client rests while it waits for a server that does not answer, and nothing is missed.
func TestRestInHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.advance(2 * restAfter)
		p.wantGoroutines("nobody answers", 0)
		p.queue = nil
		p.advance(restAfter)
		if len(p.queue) == 0 {
			t.Error("no probe at rest")
		}
		p.handshake()
		p.wantAlive("late, but not too late")
	})
}

// Whoever wakes a connection that is about to rest, has come to rest, or is being woken by
// others, is heard, and there is never more than one goroutine.
func TestRestRace(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := resting(t, volley)
		for range 500 {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					for range 20 {
						p.c.wakeUp()
					}
				})
			}
			all.Wait()
			synctest.Wait()
			if !p.c.resting.Load() || len(p.c.wake) > 0 {
				t.Fatalf("resting: %v, not heard: %d", p.c.resting.Load(), len(p.c.wake))
			}
		}
		p.wantGoroutines("after all", 0)
	})
}

// No moment is wrong to wake a connection that is about to rest.
func TestRestNot(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		c := resting(t, volley).c
		// The test is the connection's goroutine.
		c.resting.Store(false)
		c.quiet.Store(true)
		signal(c.wake)
		if c.rest() {
			t.Error("it rests, though it was woken before")
		}
		<-c.wake
		c.inboxMu.Lock()
		rests := make(chan bool)
		go func() { rests <- c.rest() }()
		for c.turn.state.Load() == turnFree {
			runtime.Gosched()
		}
		c.wakeUp()
		c.inboxMu.Unlock()
		if <-rests {
			t.Error("it rests, though it was woken meanwhile")
		}
		go c.work()
	})
}

// What traffic has left behind is given back.
func TestRestSheds(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		c := p.c
		c.inbox, c.spare = make([]packet, 0, 8), make([]packet, 0, 8)
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(restAfter)
		if c.inbox != nil || c.spare != nil || c.opened != nil || c.control.queue != nil {
			t.Errorf("kept: room for %d and %d messages, %d packets, %d control frames",
				cap(c.inbox), cap(c.spare), cap(c.opened), cap(c.control.queue))
		}
	})
}
