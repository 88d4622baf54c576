package quic

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// wantOver expects every call on the connection and its streams to return want.
func wantOver(p *actor, want error, s *Stream) {
	p.Helper()
	ctx := context.Background()
	p.collect()
	if err := context.Cause(p.c.Context()); !errors.Is(err, want) {
		p.Errorf("the context's cause is %v, want %v", err, want)
	}
	for name, call := range map[string]func() error{
		"OpenStream":          func() error { _, err := p.c.OpenStream(); return err },
		"OpenStreamSync":      func() error { _, err := p.c.OpenStreamSync(ctx); return err },
		"OpenUniStream":       func() error { _, err := p.c.OpenUniStream(); return err },
		"OpenUniStreamSync":   func() error { _, err := p.c.OpenUniStreamSync(ctx); return err },
		"AcceptStream":        func() error { _, err := p.c.AcceptStream(ctx); return err },
		"AcceptUniStream":     func() error { _, err := p.c.AcceptUniStream(ctx); return err },
		"Write":               func() error { _, err := s.Write([]byte("x")); return err },
		"Read":                func() error { _, err := s.Read(make([]byte, 1)); return err },
		"the stream's cause":  func() error { return context.Cause(s.SendStream.Context()) },
		"CloseWithError once": func() error { p.c.CloseWithError(1, "too late"); return context.Cause(p.c.Context()) },
	} {
		if err := call(); !errors.Is(err, want) {
			p.Errorf("%s returns %v, want %v", name, err, want)
		}
	}
}

// RFC 9000 §10.2.1: Volley closes, and says so again to who has missed it, but ever less
// often; three probe timeouts later it is gone.
func TestClose(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s, err := p.c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		blocked := start(func() (int, error) { return s.Read(make([]byte, 1)) })
		accept := start(func() (*Stream, error) { return p.c.AcceptStream(t.Context()) })
		synctest.Wait()
		began := time.Now()
		p.c.CloseWithError(7, "goodbye")
		if d := time.Since(began); d != 0 {
			t.Errorf("CloseWithError took %v", d)
		}
		p.wantFrame("the peer learns why", wire.OneRTT, wire.ConnectionClose{App: true, Code: 7, Reason: []byte("goodbye")})
		p.wantIdle("once")
		want := &ApplicationError{ErrorCode: 7, ErrorMessage: "goodbye"}
		for _, err := range []error{second(blocked.result()), second(accept.result())} {
			if !errors.Is(err, want) {
				t.Errorf("a call that was under way returned %v", err)
			}
		}
		wantOver(p, want, s)

		answers := 0
		for range 100 {
			p.writeFrames(wire.OneRTT, wire.Ping{})
			answers += len(heard[wire.ConnectionClose](p))
		}
		if answers < 3 || answers > 8 {
			t.Errorf("100 packets got %d answers", answers)
		}
		p.advance(time.Second)
		if p.transport.ids[ConnectionIDFromBytes(p.dcid)] != nil {
			t.Error("a second later the connection is still there")
		}
		p.writeFrames(wire.OneRTT, wire.Ping{})
		p.wantIdle("forgotten")
	})
}

func second[T any](_ T, err error) error { return err }

// RFC 9000 §10.2: closing takes three probe timeouts, no less, so that late packets find
// somebody.
func TestClosingTakesItsTime(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(p *actor) { p.rtt = 100 * time.Millisecond }).handshake()
		p.rtt = 0
		p.c.mu.Lock()
		pto := p.c.rec.PTO(recovery.App)
		p.c.mu.Unlock()
		p.c.CloseWithError(7, "")
		p.collect()
		known := func() bool { c, _ := p.transport.find(ConnectionIDFromBytes(p.dcid)); return c != nil }
		p.advance(3*pto - time.Millisecond)
		if !known() {
			t.Error("gone too early")
		}
		p.advance(2 * time.Millisecond)
		if known() {
			t.Error("still there")
		}
	})
}

// RFC 9000 §10.2.2: when the peer closes there is nothing to say any more.
func TestPeerCloses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		frame wire.ConnectionClose
		want  error
	}{
		{"application", wire.ConnectionClose{App: true, Code: 7, Reason: []byte("goodbye")},
			&ApplicationError{Remote: true, ErrorCode: 7, ErrorMessage: "goodbye"}},
		{"transport", wire.ConnectionClose{Code: uint64(wire.FlowControlError), FrameType: 8, Reason: []byte("too much")},
			&TransportError{Remote: true, ErrorCode: FlowControlError, FrameType: 8, ErrorMessage: "too much"}},
		{"no error", wire.ConnectionClose{}, &TransportError{Remote: true}},
		{"the largest code", wire.ConnectionClose{App: true, Code: 1<<62 - 1}, &ApplicationError{Remote: true, ErrorCode: 1<<62 - 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley).handshake()
				s, _ := p.c.OpenStream()
				s.Write([]byte("unacknowledged"))
				blocked := start(func() (int, error) { return s.Read(make([]byte, 1)) })
				p.collect()
				p.queue = nil
				// What follows the close in its packet does not count any more.
				p.writeFrames(wire.OneRTT, wire.Ping{}, tt.frame, rawFrame{0x21})
				if err := second(blocked.result()); !errors.Is(err, tt.want) {
					t.Errorf("Read returned %v, want %v", err, tt.want)
				}
				wantOver(p, tt.want, s)
				for range 10 {
					p.writeFrames(wire.OneRTT, wire.Ping{})
				}
				p.advance(time.Minute)
				p.wantIdle("nothing is sent while draining, not even an ACK")
				if len(p.transport.ids) != 0 {
					t.Error("the connection is still there")
				}
			})
		})
	}
}

// RFC 9000 §10.2.2: closing becomes draining when the peer's close arrives.
func TestBothClose(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.c.CloseWithError(7, "")
		p.wantClose("Volley's close")
		p.writeFrames(wire.OneRTT, wire.ConnectionClose{App: true, Code: 8})
		p.collect()
		p.queue = nil
		for range 100 {
			p.writeFrames(wire.OneRTT, wire.Ping{})
		}
		p.wantIdle("the peer knows")
		if err := p.cause(); !errors.Is(err, &ApplicationError{ErrorCode: 7}) {
			t.Errorf("the cause is %v", err)
		}
	})
}

// RFC 9000 §10.2.3: during the handshake it is not clear which keys the peer has, and
// nothing of the application's is told to who is not authenticated.
func TestCloseInHandshake(t *testing.T) {
	hidden := wire.ConnectionClose{Code: uint64(wire.ApplicationError)}
	told := wire.ConnectionClose{App: true, Code: 7, Reason: []byte("secret")}
	t.Run("as client, nothing received", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.queue = nil
			p.c.CloseWithError(7, "secret")
			pkt := p.wantFrame("Initial", wire.Initial, hidden)
			if pkt.dg.size < 1200 || len(pkt.dg.packets) != 1 {
				t.Errorf("%v", pkt.dg)
			}
			if _, err := p.dialing.result(); !errors.Is(err, &ApplicationError{ErrorCode: 7}) {
				t.Errorf("Dial returned %v", err)
			}
		})
	})
	t.Run("as client, complete but not confirmed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.writeServerFlight()
			p.collect()
			p.queue = nil
			p.c.CloseWithError(7, "secret")
			a := p.wantFrame("Handshake", wire.Handshake, hidden)
			b := p.wantFrame("1-RTT", wire.OneRTT, told)
			if a.dg != b.dg || len(a.dg.packets) != 2 {
				t.Errorf("not in one datagram: %v", a.dg)
			}
		})
	})
	t.Run("as server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer, func(p *actor) { p.early = true })
			p.start()
			p.writeCrypto(wire.Initial)
			c, err := p.accepted(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.collect()
			p.queue = nil
			c.CloseWithError(7, "secret")
			a := p.wantFrame("Initial", wire.Initial, hidden)
			p.wantFrame("Handshake", wire.Handshake, hidden)
			b := p.wantFrame("1-RTT", wire.OneRTT, told)
			if a.dg != b.dg {
				t.Errorf("not in one datagram: %v, %v", a.dg, b.dg)
			}
			// Repeated in answer to packets of any space, as far as the limit allows it.
			for range 50 {
				s := p.packet(wire.Initial, wire.Ping{})
				s.unpadded = true
				p.send(s)
			}
			if n := len(heard[wire.ConnectionClose](p)); n < 3 || n > 3*8 {
				t.Errorf("50 packets got %d frames", n)
			}
		})
	})
	t.Run("as client, and packets arrive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient)
			p.start()
			p.c.CloseWithError(7, "secret")
			p.collect()
			p.queue = nil
			for range 8 {
				p.writeFrames(wire.Initial, wire.Ping{})
			}
			if n := len(heard[wire.ConnectionClose](p)); n < 2 || n > 4 {
				t.Errorf("8 packets got %d answers", n)
			}
		})
	})
}

// A peer that closes during the handshake is heard in every space.
func TestPeerClosesInHandshake(t *testing.T) {
	refused := wire.ConnectionClose{Code: uint64(wire.ConnectionRefused), Reason: []byte("busy")}
	want := &TransportError{Remote: true, ErrorCode: ConnectionRefused}
	for _, typ := range []wire.PacketType{wire.Initial, wire.Handshake} {
		t.Run(typ.String(), func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley)
				p.start()
				p.writeFrames(wire.Initial, p.cryptoFrame(wire.Initial))
				p.collect()
				p.writeFrames(typ, refused)
				p.collect()
				if err := p.cause(); !errors.Is(err, want) {
					t.Errorf("the cause is %v", err)
				}
				p.queue = nil
				p.advance(time.Minute)
				p.wantIdle("it drains")
				if volley == asClient {
					if _, err := p.dialing.result(); !errors.Is(err, want) {
						t.Errorf("Dial returned %v", err)
					}
				}
			})
		})
	}
}

// A long reason is cut, so that the close fits into the smallest packet, and stays UTF-8
// (RFC 9000 §19.19).
func TestCloseReason(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		for n := range 3 {
			p := newActor(t, volley).handshake()
			reason := strings.Repeat("x", n) + strings.Repeat("€", 1000)
			p.c.CloseWithError(7, reason)
			f := p.wantClose("cut")
			if got := string(f.Reason); len(got) < 100 || len(got) > 1000 || !strings.HasPrefix(reason, got) || !utf8.ValidString(got) {
				t.Errorf("the reason is %q", got)
			}
			if dg := p.packets[len(p.packets)-1].dg; dg.size > 1200 {
				t.Errorf("%d bytes", dg.size)
			}
		}
	})
}

// Of what was written before nothing leaves after the close, and nothing that arrives is
// looked at.
func TestNothingAfterClose(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s, _ := p.c.OpenUniStream()
		w := start(func() (int, error) { return s.Write(make([]byte, 1<<20)) })
		p.advance(time.Millisecond)
		p.c.CloseWithError(7, "")
		p.wantClose("the last word")
		if _, err := w.result(); !errors.Is(err, &ApplicationError{ErrorCode: 7}) {
			t.Errorf("Write returned %v", err)
		}
		p.writeFrames(wire.OneRTT, p.ackFrame(wire.OneRTT), rawFrame{0x21})
		p.ignore(wire.FrameConnectionCloseApp)
		p.advance(time.Minute)
		p.wantIdle("not even a retransmission")
		if err := p.cause(); !errors.Is(err, &ApplicationError{ErrorCode: 7}) {
			t.Errorf("the cause is %v", err)
		}
	})
}

// Transport.Close ends a connection without a word.
func TestTransportClosedUnderConn(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s, _ := p.c.OpenStream()
		read := start(func() (int, error) { return s.Read(make([]byte, 1)) })
		p.transport.Close()
		if _, err := read.result(); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("Read returned %v", err)
		}
		p.wantIdle("no close")
		wantOver(p, ErrTransportClosed, s)
	})
}

// Data that arrived together with the end of a stream can still be read when the
// connection is over; an end that came is an end.
func TestReadAfterPeerCloses(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.writeFrames(wire.OneRTT, stream0(p.mine(uni, 0), 0, "all", true))
		s, err := p.c.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(s)
		if string(b) != "all" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		p.writeFrames(wire.OneRTT, wire.ConnectionClose{App: true, Code: 7})
		if _, err := s.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read after EOF returned %v", err)
		}
	})
}
