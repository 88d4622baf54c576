package quic

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

func idleTimeout(d time.Duration) func(*wire.TransportParams) {
	return func(tp *wire.TransportParams) { tp.MaxIdleTimeout = d }
}

// wantIdleTimeout expects the connection to end by silence, d from now.
func wantIdleTimeout(p *actor, d time.Duration) {
	p.Helper()
	p.advance(d - time.Millisecond)
	p.wantAlive("not yet")
	p.advance(time.Millisecond)
	if err := p.cause(); !errors.Is(err, &IdleTimeoutError{}) {
		p.Errorf("after %v the cause is %v", d, err)
	}
}

// RFC 9000 §10.1: the smaller of both limits counts, and the end is silent.
func TestIdleTimeout(t *testing.T) {
	for _, tt := range []struct {
		name               string
		ours, theirs, want time.Duration
	}{
		{"ours", 10 * time.Second, 20 * time.Second, 10 * time.Second},
		{"theirs", 20 * time.Second, 10 * time.Second, 10 * time.Second},
		{"the peer has none", 20 * time.Second, 0, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, idleTimeout(tt.theirs), func(c *Config) { c.MaxIdleTimeout = tt.ours }).handshake()
				p.writeFrames(wire.OneRTT, wire.Ping{}) // which restarts the timer
				wantIdleTimeout(p, tt.want)
				p.ignore(wire.FrameAck)
				p.wantIdle("the peer's timer runs as well")
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.wantIdle("and then there is nobody")
			})
		})
	}
}

// RFC 9000 §10.1: what arrives restarts the timer, and the first ack-eliciting packet
// that leaves after; what leaves later does not, or an endpoint that talks to nobody
// would go on for ever.
func TestIdleTimeoutRestarts(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, idleTimeout(10*time.Second)).handshake()
		s, _ := p.c.OpenUniStream()
		p.writeFrames(wire.OneRTT, wire.Ping{})
		for range 3 {
			p.advance(9 * time.Second)
			p.writeFrames(wire.OneRTT, wire.Ping{})
			p.wantAlive("received")
		}
		p.advance(9 * time.Second)
		s.Write([]byte("sent"))
		p.advance(9 * time.Second) // probes as well
		p.wantAlive("sent")
		s.Write([]byte("sent again"))
		wantIdleTimeout(p, time.Second)
	})
}

// Packets that are not authentic do not keep a connection alive.
func TestIdleTimeoutForged(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, idleTimeout(10*time.Second)).handshake()
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.advance(9 * time.Second)
		s := p.packet(wire.OneRTT, wire.Ping{})
		b := p.seal(s, false)
		b[len(b)-1] ^= 1
		p.deliver(b)
		wantIdleTimeout(p, time.Second)
	})
}

// RFC 9000 §10.1: not before three probe timeouts, so that a loss can be repaired.
func TestIdleTimeoutAndPTO(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, idleTimeout(time.Millisecond), func(c *Config) { c.MaxIdleTimeout = time.Millisecond },
			func(p *actor) { p.rtt = 100 * time.Millisecond })
		p.start()
		p.writeCrypto(wire.Initial)
		if volley == asClient {
			p.writeCrypto(wire.Handshake)
		} else {
			p.writeFrames(wire.Handshake, p.cryptoFrame(wire.Handshake))
		}
		p.collect()
		p.advance(250 * time.Millisecond)
		p.wantAlive("a round trip takes 100 ms")
		p.advance(time.Minute)
		if err := p.cause(); !errors.Is(err, &IdleTimeoutError{}) {
			t.Errorf("the cause is %v", err)
		}
	})
}

// A PING keeps the connection alive, when it was silent for so long, and no more often.
func TestKeepAlive(t *testing.T) {
	for _, tt := range []struct {
		name         string
		period, want time.Duration
	}{
		{"as asked", 3 * time.Second, 3 * time.Second},
		{"half the idle timeout at most", time.Minute, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, idleTimeout(10*time.Second), func(c *Config) { c.KeepAlivePeriod = tt.period }).handshake()
				p.writeFrames(wire.OneRTT, wire.Ping{})
				p.ignore(wire.FrameAck)
				p.advance(tt.want - time.Millisecond)
				p.wantIdle("not yet")
				for range 5 {
					p.advance(time.Millisecond)
					p.wantFrame("it is time", wire.OneRTT, wire.Ping{})
					p.ackAll()
					p.advance(tt.want - time.Millisecond)
					p.wantIdle("and again not yet")
				}
				p.wantAlive("for ever")
			})
		})
	}
}

// A PING that is not answered saves nobody.
func TestKeepAliveUnanswered(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, idleTimeout(10*time.Second), func(c *Config) { c.KeepAlivePeriod = 3 * time.Second }).handshake()
		p.writeFrames(wire.OneRTT, wire.Ping{})
		// The first PING restarts the timer once more.
		wantIdleTimeout(p, 13*time.Second)
	})
}

// Without a keep-alive nothing is sent.
func TestSilence(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		before := rounds(p.c)
		p.advance(20 * time.Second)
		p.wantIdle("nothing to say")
		if n := rounds(p.c) - before; n > 5 {
			t.Errorf("the connection's goroutine ran %d times", n)
		}
	})
}

// A handshake on which nothing arrives ends after HandshakeIdleTimeout, and one that
// crawls after twice that.
func TestHandshakeTimeouts(t *testing.T) {
	quick := func(c *Config) { c.HandshakeIdleTimeout = 2 * time.Second }
	t.Run("silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, quick)
			begin := time.Now()
			p.start()
			_, err := p.dialing.result()
			if !errors.Is(err, &IdleTimeoutError{}) || time.Since(begin) != 2*time.Second {
				t.Errorf("after %v, Dial returned %v", time.Since(begin), err)
			}
			if len(p.transport.ids) != 0 {
				t.Error("the connection is still there")
			}
		})
	})
	t.Run("a server that only acknowledges", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, quick)
			begin := time.Now()
			p.start()
			for !p.dialing.finished() && time.Since(begin) < time.Minute {
				p.writeFrames(wire.Initial, p.ackFrame(wire.Initial))
				p.advance(500 * time.Millisecond)
			}
			if _, err := p.dialing.result(); !errors.Is(err, &HandshakeTimeoutError{}) || time.Since(begin) != 4*time.Second {
				t.Errorf("after %v, Dial returned %v", time.Since(begin), err)
			}
		})
	})
	t.Run("a client that goes away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer, quick)
			p.start()
			p.writeCrypto(wire.Initial)
			p.collect()
			p.advance(3 * time.Second)
			if err := p.cause(); !errors.Is(err, &IdleTimeoutError{}) {
				t.Errorf("the cause is %v", err)
			}
			if len(p.transport.ids) != 0 {
				t.Error("the connection is still there")
			}
		})
	})
}

// A19. Whatever it waits for, a connection waits; it does not keep looking.
func TestNoSpinning(t *testing.T) {
	spin := func(p *actor, what string, most int) {
		p.Helper()
		p.collect()
		before := rounds(p.c)
		p.advance(5 * time.Second)
		if n := rounds(p.c) - before; n > most {
			p.Errorf("%s: the connection's goroutine ran %d times in 5 s", what, n)
		}
	}
	write := func(p *actor) *call[int] {
		p.Helper()
		s, err := p.c.OpenUniStream()
		if err != nil {
			p.Fatal(err)
		}
		return start(func() (int, error) { return s.Write(make([]byte, 200<<10)) })
	}
	t.Run("the window is full and no ACK comes", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			w := write(p)
			p.advance(time.Millisecond)
			spin(p, "waiting for ACKs", 100)
			p.ackUntil(w.finished)
		})
	})
	t.Run("the socket is full", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			p.sock.setRefuse(func(int) error { return syscall.EAGAIN })
			w := write(p)
			p.advance(time.Millisecond)
			spin(p, "waiting for the socket", 5*200)
			p.sock.setRefuse(nil)
			if d := p.advanceToSend(); d > 10*time.Millisecond {
				t.Errorf("sending goes on after %v", d)
			}
			p.ackUntil(w.finished)
		})
	})
	t.Run("flow control", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, func(tp *wire.TransportParams) { tp.InitialMaxData = 10 << 10 }).handshake()
			w := write(p)
			p.advance(time.Millisecond)
			p.ackAll()
			p.advance(time.Second)
			p.ackAll()
			spin(p, "waiting for MAX_DATA", 100)
			p.writeFrames(wire.OneRTT, wire.MaxData{Max: 1 << 20})
			p.ackUntil(w.finished)
		})
	})
	t.Run("closing, and packets arrive", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, func(p *actor) { p.rtt = 500 * time.Millisecond }).handshake()
			p.rtt = 0
			p.c.CloseWithError(0, "")
			p.collect()
			before := rounds(p.c)
			for range 100 {
				p.writeFrames(wire.OneRTT, wire.Ping{})
			}
			if n := rounds(p.c) - before; n > 200 {
				t.Errorf("100 packets make the connection's goroutine run %d times", n)
			}
			spin(p, "closing", 100)
		})
	})
	t.Run("waiting for the peer's ACK of the close of a stream", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			s, _ := p.c.OpenStream()
			s.Close()
			spin(p, "a FIN in flight", 100)
		})
	})
	t.Run("a pacer that lets little through", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley, func(p *actor) { p.rtt = 200 * time.Millisecond }).handshake()
			w := write(p)
			p.collect()
			before := rounds(p.c)
			sent := len(p.packets)
			p.advance(100 * time.Millisecond)
			if n, k := rounds(p.c)-before, len(p.packets)-sent; n > 10+4*k {
				t.Errorf("for %d packets the connection's goroutine ran %d times", k, n)
			}
			p.rtt = 0
			p.ackUntil(w.finished)
		})
	})
}
