package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/volley-quic/volley/internal/udp"
)

// peer is a socket across from a Transport, in virtual time. It knows nothing of
// QUIC.
type peer struct {
	*testing.T
	t    *Transport
	sock *simnet.SimConn
	to   net.Addr
}

var (
	hereAddr  = &net.UDPAddr{IP: net.IP{10, 0, 0, 1}, Port: 443}
	thereAddr = &net.UDPAddr{IP: net.IP{10, 0, 0, 2}, Port: 2000}
)

// newPeer gives tr a socket, and returns the other end.
func newPeer(t *testing.T, tr *Transport) *peer {
	router := &simnet.PerfectRouter{}
	tr.Conn = simnet.NewSimConn(hereAddr, router)
	p := &peer{T: t, t: tr, sock: simnet.NewSimConn(thereAddr, router), to: hereAddr}
	t.Cleanup(func() {
		tr.Close()
		p.sock.Close()
	})
	return p
}

func (p *peer) send(b []byte) {
	p.Helper()
	if _, err := p.sock.WriteTo(b, p.to); err != nil {
		p.Fatal(err)
	}
}

// receive waits one second of virtual time. It returns nil if nothing comes.
func (p *peer) receive() []byte { return p.read(time.Second) }

// receiveNow waits until everybody waits, and no time.
func (p *peer) receiveNow() []byte {
	synctest.Wait()
	return p.read(time.Nanosecond)
}

func (p *peer) read(wait time.Duration) []byte {
	p.Helper()
	b := make([]byte, 2000)
	p.sock.SetReadDeadline(time.Now().Add(wait))
	n, from, err := p.sock.ReadFrom(b)
	if err != nil {
		return nil
	}
	if from.String() != p.to.String() {
		p.Fatalf("a packet from %v", from)
	}
	return b[:n]
}

func TestTransportClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		ln, err := p.t.Listen(&tls.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.t.Listen(&tls.Config{}, nil); err == nil {
			t.Error("a second listener at the same time")
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := ln.Accept(context.Background())
			accepted <- err
		}()
		synctest.Wait()
		if err := p.t.Close(); err != nil {
			t.Error(err)
		}
		if err := <-accepted; !errors.Is(err, ErrTransportClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returned %v", err)
		}
		if _, err := p.t.Listen(&tls.Config{}, nil); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("Listen returned %v", err)
		}
		if _, err := p.t.Dial(t.Context(), thereAddr, &tls.Config{}, nil); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("Dial returned %v", err)
		}
		if err := p.t.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
		if err := ln.Close(); err != nil {
			t.Errorf("closing the listener after: %v", err)
		}

		// The socket is the application's again, as it was.
		p.send([]byte("hello"))
		b := make([]byte, 10)
		n, _, err := p.t.Conn.ReadFrom(b)
		if err != nil || string(b[:n]) != "hello" {
			t.Errorf("after Close, the socket reads %q, %v", b[:n], err)
		}
	})
}

func TestListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		ln, err := p.t.Listen(&tls.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ln.Addr() != net.Addr(hereAddr) {
			t.Errorf("Addr is %v", ln.Addr())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if _, err := ln.Accept(ctx); err != context.DeadlineExceeded || time.Since(begin) != time.Minute {
			t.Errorf("Accept returned %v after %v", err, time.Since(begin))
		}
		for range 2 {
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			if _, err := ln.Accept(t.Context()); !errors.Is(err, ErrServerClosed) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept returned %v", err)
			}
		}
		// The transport goes on.
		early, err := p.t.ListenEarly(&tls.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.t.Listen(&tls.Config{}, nil); err == nil {
			t.Error("a second listener at the same time")
		}
		early.Close()
		if _, err := early.Accept(t.Context()); !errors.Is(err, ErrServerClosed) {
			t.Errorf("Accept returned %v", err)
		}
	})
}

// Listen on a socket of the application's gives it back when there is nothing to
// wait for.
func TestListenGivesSocketBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		ln, err := Listen(p.t.Conn, &tls.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		<-ln.s.t.done
		p.send([]byte("hello"))
		b := make([]byte, 10)
		if n, _, err := p.t.Conn.ReadFrom(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("after Close, the socket reads %q, %v", b[:n], err)
		}
	})
}

func TestListenAddrClosesSocket(t *testing.T) {
	ln, err := ListenAddr("127.0.0.1:0", &tls.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	<-ln.s.t.done
	if _, err := ln.s.t.Conn.WriteTo([]byte("x"), ln.Addr()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is still open: %v", err)
	}

	// A listener that cannot be made leaves no socket.
	addr := ln.Addr().String()
	if _, err := ListenAddr(addr, nil, nil); err == nil {
		t.Error("a listener without certificates")
	}
	if _, err := ListenAddr(addr, &tls.Config{}, &Config{Versions: []Version{7}}); err == nil {
		t.Error("a listener of version 7")
	}
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatalf("the address is still in use: %v", err)
	}
	defer pc.Close()
	if _, err := ListenAddr(addr, &tls.Config{}, nil); err == nil {
		t.Error("two sockets on one address")
	}
	if _, err := ListenAddrEarly("no address", &tls.Config{}, nil); err == nil {
		t.Error("a listener on no address")
	}
}

func TestTransportBadSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tr := range []*Transport{
			{ConnectionIDLength: 21},
			{ConnectionIDLength: -1},
			{ConnectionIDGenerator: fakeIDs{length: 30}},
		} {
			p := newPeer(t, tr)
			if _, err := tr.Listen(&tls.Config{}, nil); err == nil {
				t.Errorf("%+v listens", tr)
			}
			if _, err := tr.Dial(t.Context(), thereAddr, &tls.Config{}, nil); err == nil {
				t.Errorf("%+v dials", tr)
			}
			if err := p.t.Close(); err != nil {
				t.Errorf("%+v does not close: %v", tr, err)
			}
		}
		if _, err := new(Transport).Listen(&tls.Config{}, nil); err == nil {
			t.Error("a transport without a socket listens")
		}
		if err := new(Transport).Close(); err != nil {
			t.Errorf("a transport without a socket does not close: %v", err)
		}
		p := newPeer(t, new(Transport))
		if _, err := p.t.Dial(t.Context(), thereAddr, nil, nil); err == nil {
			t.Error("dialing without a tls.Config")
		}
		if _, err := p.t.Dial(t.Context(), thereAddr, &tls.Config{}, &Config{Versions: []Version{7}}); err == nil {
			t.Error("dialing with version 7")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(io.ErrNoProgress)
		if _, err := p.t.Dial(ctx, thereAddr, &tls.Config{}, nil); err != io.ErrNoProgress {
			t.Errorf("dialing with a context that is over: %v", err)
		}
	})
}

type fakeIDs struct {
	length int
	ids    []ConnectionID
	err    error
	n      *int
}

func (g fakeIDs) ConnectionIDLen() int { return g.length }
func (g fakeIDs) GenerateConnectionID() (ConnectionID, error) {
	if g.err != nil {
		return ConnectionID{}, g.err
	}
	*g.n++
	return g.ids[(*g.n-1)%len(g.ids)], nil
}

func TestConnectionIDGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ConnectionIDFromBytes([]byte("aa")), ConnectionIDFromBytes([]byte("bb"))
		p := newPeer(t, &Transport{ConnectionIDLength: 7, ConnectionIDGenerator: fakeIDs{length: 2, ids: []ConnectionID{a, b}, n: new(int)}})
		p.t.init(false)
		if p.t.connIDLen != 2 {
			t.Errorf("IDs of %d bytes are expected in packets", p.t.connIDLen)
		}
		take := func(want ConnectionID) {
			t.Helper()
			if id, err := p.t.newConnID(); err != nil || id != want || !p.t.addID(id, new(Conn)) {
				t.Fatalf("got %v, %v, want %v", id, err, want)
			}
		}
		take(a)
		// A generator that repeats itself is asked again, but not for ever.
		p.t.ConnectionIDGenerator = fakeIDs{length: 2, ids: []ConnectionID{a, a, b}, n: new(int)}
		take(b)
		if id, err := p.t.newConnID(); err == nil {
			t.Errorf("%v is used twice", id)
		}
		if p.t.addID(a, new(Conn)) {
			t.Error("an ID was taken from its connection")
		}
		p.t.removeID(a)
		take(a)

		p.t.ConnectionIDGenerator = fakeIDs{length: 2, ids: []ConnectionID{ConnectionIDFromBytes([]byte("ccc"))}, n: new(int)}
		if id, err := p.t.newConnID(); err == nil {
			t.Errorf("%v is not of the promised length", id)
		}
		p.t.ConnectionIDGenerator = fakeIDs{length: 2, err: os.ErrInvalid}
		if _, err := p.t.newConnID(); err != os.ErrInvalid {
			t.Errorf("error %v", err)
		}
		for _, id := range []ConnectionID{a, b} {
			p.t.removeID(id) // Close must not touch what only this test made
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, &Transport{ConnectionIDGenerator: fakeIDs{ids: []ConnectionID{{}}, n: new(int)}})
		p.t.init(false)
		if id, err := p.t.newConnID(); err != nil || !id.Valid() || id.Len() != 0 {
			t.Errorf("the zero value of a generator of empty IDs became %v, %v", id, err)
		}
	})
	for length, want := range map[int]int{0: 4, 1: 1, 20: 20} {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, &Transport{ConnectionIDLength: length})
			p.t.init(false)
			if id, err := p.t.newConnID(); err != nil || id.Len() != want {
				t.Errorf("length %d gives %v, %v", length, id, err)
			}
		})
	}
}

// What arrives for a connection that is still being made is kept for it.
func TestHoldID(t *testing.T) {
	d := newDemuxTest(t, 4)
	id := ConnectionIDFromBytes([]byte("aaaa"))
	if err := d.t.hold(id); err != nil {
		t.Fatal(err)
	}
	if d.t.hold(id) == nil || d.t.addID(id, new(Conn)) {
		t.Error("an ID is given away twice")
	}
	for range maxHeld + 5 {
		d.batch([]udp.Message{message(short("aaaa", "01"))}, time.Now())
	}
	d.want()
	if n := len(d.t.held[id]); n != maxHeld {
		t.Errorf("%d packets are kept, want %d", n, maxHeld)
	}
	if !d.t.settle(id, nil) {
		t.Error("the transport is not closed")
	}
	c := d.conn("A", "aaaa")
	d.batch([]udp.Message{message(short("aaaa", "02"))}, time.Now())
	d.want("A: 02")

	d.t.removeID(id)
	if err := d.t.hold(id); err != nil {
		t.Fatal(err)
	}
	if !d.t.settle(id, c) {
		t.Error("the transport is not closed")
	}
	d.batch([]udp.Message{message(short("aaaa", "03"))}, time.Now())
	d.want("A: 03")
}

func TestNonQUICPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		if n, err := p.t.WriteTo([]byte("\x00ping"), thereAddr); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if got := p.receive(); string(got) != "\x00ping" {
			t.Errorf("got %q", got)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := make([]byte, 100)
		p.send([]byte("\x00 before anybody asked"))
		synctest.Wait()
		if n, _, err := p.t.ReadNonQUICPacket(ctx, b); err != context.DeadlineExceeded {
			t.Errorf("got %q, %v", b[:n], err)
		}
		for range 100 {
			p.send([]byte("\x3fpong"))
			synctest.Wait()
		}
		p.send([]byte("\x40QUIC"))
		p.send([]byte("\x80QUIC"))
		n, from, err := p.t.ReadNonQUICPacket(t.Context(), b)
		if err != nil || string(b[:n]) != "\x3fpong" || from.String() != thereAddr.String() {
			t.Errorf("got %q from %v, %v", b[:n], from, err)
		}
		if n := len(p.t.nonQUIC); n != maxNonQUICPackets-1 {
			t.Errorf("%d packets are waiting", n)
		}
		for len(p.t.nonQUIC) > 0 {
			<-p.t.nonQUIC
		}
		time.AfterFunc(time.Second, func() { p.t.Close() })
		if _, _, err := p.t.ReadNonQUICPacket(t.Context(), b); !errors.Is(err, ErrTransportClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// brokenSocket fails when it is told to.
type brokenSocket struct {
	net.PacketConn
	mu     sync.Mutex
	broken error
	reads  int
}

func (s *brokenSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := s.PacketConn.ReadFrom(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.broken != nil {
		return 0, nil, s.broken
	}
	return n, addr, err
}

func TestSocketFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		s := &brokenSocket{PacketConn: p.t.Conn}
		p.t.Conn = s
		ln, err := p.t.Listen(&tls.Config{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.broken = io.ErrNoProgress
		s.mu.Unlock()
		p.send([]byte("x"))
		if _, err := ln.Accept(t.Context()); !errors.Is(err, ErrTransportClosed) || !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("Accept returned %v", err)
		}
		if _, err := p.t.Dial(t.Context(), thereAddr, &tls.Config{}, nil); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("Dial returned %v", err)
		}
	})
}

// A read deadline that the application set must not make the reader spin.
func TestForeignDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		s := &brokenSocket{PacketConn: timeouts{p.t.Conn}}
		p.t.Conn = s
		p.t.init(false)
		p.t.readingNonQUIC.Store(true)
		p.t.Conn.SetReadDeadline(time.Now().Add(-time.Second))
		synctest.Wait() // returns only when the reader waits
		p.send([]byte("\x00hello"))
		synctest.Wait()
		if len(p.t.nonQUIC) != 1 {
			t.Error("the reader has stopped")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reads > 10 {
			t.Errorf("%d reads", s.reads)
		}
	})
}

// timeouts says so in the way of package net.
type timeouts struct{ net.PacketConn }

func (s timeouts) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := s.PacketConn.ReadFrom(b)
	if errors.Is(err, simnet.ErrDeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return n, addr, err
}

// recorder is a tracer that minds being used after Close.
type recorder struct {
	mu     sync.Mutex
	t      *testing.T
	events []qlogwriter.Event
	closed int
}

func (r *recorder) RecordEvent(e qlogwriter.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed > 0 {
		r.t.Error("an event after Close")
	}
	r.events = append(r.events, e)
}

func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed++
	return nil
}

func TestTransportTracer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{t: t}
		p := newPeer(t, &Transport{Tracer: r})
		p.t.init(false)
		p.send([]byte("\x40abcd and nobody there"))
		p.send([]byte("\x80abc"))
		synctest.Wait()
		var why []qlog.PacketDropReason
		for _, e := range r.events {
			why = append(why, e.(qlog.PacketDropped).Trigger)
		}
		if len(why) != 2 || why[0] != qlog.PacketDropUnknownConnectionID || why[1] != qlog.PacketDropHeaderParseError {
			t.Errorf("recorded %v", why)
		}
		p.t.Close()
		p.t.Close()
		if r.closed != 1 {
			t.Errorf("closed %d times", r.closed)
		}
	})
}

func TestTransportConcurrentUse(t *testing.T) {
	for range 20 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tr := &Transport{Conn: pc}
		var wg sync.WaitGroup
		wg.Go(func() { tr.Close() })
		wg.Go(func() {
			if ln, err := tr.Listen(&tls.Config{}, nil); err == nil {
				ln.Close()
			}
		})
		wg.Go(func() { tr.WriteTo([]byte("\x00"), pc.LocalAddr()) })
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			tr.ReadNonQUICPacket(ctx, make([]byte, 10))
		})
		wg.Wait()
		pc.Close()
	}
}
