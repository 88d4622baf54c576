package sender

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/scheduler"
	"github.com/volley-quic/volley/stream"
)

// conn is a connection without a handshake and without a way in: streams, a sender, real
// recovery, pacing, packet protection and socket code, and a peer that looks at every
// datagram at the socket's border.
type conn struct {
	t    testing.TB
	mu   sync.Mutex
	who  atomic.Int64 // the goroutine that holds mu
	held atomic.Int64 // how often mu was let go

	x       *Sender
	rec     *recovery.Recovery
	cc      *window
	pacer   *congestion.Pacer
	sock    *udp.Conn
	route   udp.Route
	streams map[int64]*testStream
	*peer

	send func(udp.Sending) udp.Verdict // the kernel; nil: it takes everything

	// What the connection has to say besides streams.
	control []due
	ackDue  bool
	ack     wire.Ack
	amp     int // what anti-amplification allows; -1: all
	gone    []due
	lost    []due

	look    func(*Flight) // what else looks at every flight
	sending atomic.Int64  // calls of the kernel under way
	flushed int64         // held when the latest flight was committed
	tooBig  int           // size that the kernel refused
	failed  []error
	breaks  atomic.Int64 // calls of Between
	done    []int64      // streams that came to their end
	room    int          // the connection's mark for unsent bytes

	afters  []func()
	wake    chan struct{}
	timer   *time.Timer
	timerAt time.Time
	timers  int // how often the timer was set
	rounds  int // of the connection's goroutine
	quit    chan struct{}
}

// due is a control frame that is to be sent, and what recovery knows it by.
type due struct {
	frame  wire.Frame
	record recovery.Frame
}

type testStream struct {
	*stream.Send
	st *Stream
}

// window is a congestion controller whose window the test sets.
type window struct{ bytes int }

func (*window) OnSent(time.Time, int, int)     {}
func (*window) OnAck(congestion.Ack)           {}
func (*window) OnLoss(congestion.Loss)         {}
func (*window) OnECN(time.Time, time.Time)     {}
func (*window) OnSpurious(congestion.Spurious) {}
func (w *window) Window() int                  { return w.bytes }
func (*window) InSlowStart() bool              { return false }
func (*window) SetDatagramSize(int)            {}

const plenty = 1 << 40

// setup is what a test may want otherwise.
type setup struct {
	size   int  // of datagrams
	dst    int  // bytes of the destination connection ID
	plain  bool // a PacketConn that knows nothing but single datagrams
	credit int64
	suite  uint16
	quick  bool // whether the mutex is held is not looked at
	real   bool // CUBIC instead of a window that the test sets
}

func newConn(t testing.TB, s setup) *conn {
	if s.size == 0 {
		s.size = 1452
	}
	if s.credit == 0 {
		s.credit = plenty
	}
	if s.suite == 0 {
		s.suite = tls.TLS_AES_128_GCM_SHA256
	}
	c := &conn{
		t: t, cc: &window{plenty}, streams: make(map[int64]*testStream), amp: -1, room: 1 << 20,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), peer: newPeer(t, s),
	}
	var err error
	if c.sock, err = udp.New(newSocket(t, s.plain)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.sock.Close() })
	udp.Inject(c.sock, &udp.Hook{Send: c.kernel})
	c.route.Remote = netip.MustParseAddrPort("127.0.0.1:9")
	var cc congestion.Controller = c.cc
	if s.real {
		cc = congestion.NewCubic(s.size)
	}
	c.rec = recovery.New(recovery.Config{IsClient: true, Owner: (*host)(c), Controller: cc})
	c.rec.SetHandshakeConfirmed()
	c.pacer = congestion.NewPacer(s.size)
	c.timer = time.NewTimer(time.Hour)
	c.x = New(Config{
		Host: (*host)(c), Recovery: c.rec, Controller: cc, Pacer: c.pacer,
		Scheduler: scheduler.New(), UDP: c.sock, Route: &c.route, DatagramSize: s.size, Trace: c,
	})
	c.do(func() {
		c.x.SetCredit(s.credit)
		c.x.Start(c.keys(), c.peer.id)
	})
	return c
}

// newSocket returns a socket that sends nothing, as the hook before it loses all.
func newSocket(t testing.TB, plain bool) net.PacketConn {
	if plain {
		return nowhere{}
	}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return pc
}

// nowhere is a PacketConn that is nothing but that.
type nowhere struct{ net.PacketConn }

func (nowhere) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (nowhere) Close() error        { return nil }

// open makes a stream with the given credit.
func (c *conn) open(id, credit int64) *testStream {
	s := stream.NewSend(id, (*host)(c), credit)
	c.mu.Lock()
	defer c.mu.Unlock()
	ts := &testStream{s, new(Stream)}
	ts.st.Init(c.x, s)
	c.streams[id] = ts
	return ts
}

// openAt makes a stream whose bytes up to off were sent and acknowledged long ago.
func (c *conn) openAt(id, off int64) *testStream {
	s := c.open(id, off+plenty)
	c.do(func() {
		for at := int64(0); at < off; {
			lens := make([]uint16, 0, 1024)
			n := int64(0)
			for ; len(lens) < cap(lens) && at+n < off; n += int64(lens[len(lens)-1]) {
				lens = append(lens, uint16(min(off-at-n, 65535)))
			}
			if s.PackedSource(at, lens, make([]uint64, len(lens)), false) != int(n) {
				c.t.Fatal("cannot skip")
			}
			at += n
			s.OnAcked(0, int(at), false)
		}
		c.peer.skip(id, off)
	})
	return s
}

// err is why no byte of s leaves any more.
func (c *conn) err(s *testStream) (err error) {
	c.do(func() { err = s.Err() })
	return err
}

// do runs f with the mutex held.
func (c *conn) do(f func()) {
	(*host)(c).Lock()
	defer (*host)(c).Unlock()
	f()
}

// outside fails the test if the calling goroutine holds the mutex: what is called from
// here on is the application's, or slow.
func (c *conn) outside(what string) {
	c.t.Helper()
	if !c.peer.setup.quick && c.who.Load() == goroutine() {
		c.t.Errorf("%s is called with the mutex held", what)
	}
}

// goroutine is the number of the calling goroutine.
func goroutine() int64 {
	var b [64]byte
	f := bytes.Fields(b[:runtime.Stack(b[:], false)])
	n, _ := strconv.ParseInt(string(f[1]), 10, 64)
	return n
}

// kernel is where sendmsg would be.
func (c *conn) kernel(s udp.Sending) udp.Verdict {
	c.outside("sendmsg")
	if c.sending.Add(1) > 1 {
		c.t.Error("two flights leave at the same time")
	}
	defer c.sending.Add(-1)
	if c.held.Load()-atomic.LoadInt64(&c.flushed) < 2 {
		c.t.Error("sealed, or sent, in the hold in which it was committed")
	}
	v := udp.Verdict{}
	if c.send != nil {
		v = c.send(s)
	}
	v.Lose = true
	n := s.Datagrams()
	if v.Err != nil {
		n = v.Take
	}
	c.peer.sealed(s)
	c.peer.receive(s, n)
	return v
}

// later runs what After was given.
func (c *conn) later() {
	for {
		var fs []func()
		c.do(func() { fs, c.afters = c.afters, nil })
		if len(fs) == 0 {
			return
		}
		for _, f := range fs {
			f()
		}
	}
}

// run sends until there is nothing to send any more.
func (c *conn) run() {
	for range 10_000 {
		if !c.x.Run(1) {
			return
		}
	}
	c.t.Fatal("there is always more to send")
}

// serve is the connection's goroutine, for tests in virtual time. The peer acknowledges
// what it received after rtt, but for what drop names.
func (c *conn) serve(rtt time.Duration, drop func(pn int64) bool) {
	way := make(chan []int64, 10_000) // one ACK never overtakes another
	var turn sync.Mutex
	c.peer.arrived = func(pns []int64) {
		way <- pns
		time.AfterFunc(rtt, func() {
			turn.Lock()
			defer turn.Unlock()
			var acks []int64
			for _, pn := range <-way {
				if drop == nil || !drop(pn) {
					acks = append(acks, pn)
				}
			}
			c.acked(acks...)
			(*host)(c).Wake()
		})
	}
	go func() {
		for {
			select {
			case <-c.wake:
			case <-c.timer.C:
				c.do(func() { c.timerAt = time.Time{} })
			case <-c.quit:
				return
			}
			for more := true; more; {
				c.do(func() {
					c.rounds++
					if t := c.rec.Timer(); !t.IsZero() && !time.Now().Before(t) {
						c.rec.OnTimer(time.Now())
					}
				})
				more = c.x.Run(2)
			}
			c.later()
			c.do(func() {
				h := (*host)(c)
				h.SetTimer(c.rec.Timer())
				h.SetTimer(c.x.Timer())
			})
		}
	}()
	c.t.Cleanup(func() { c.stop(net.ErrClosed) })
}

// stop is the connection's end.
func (c *conn) stop(err error) {
	select {
	case <-c.quit:
		return
	default:
	}
	close(c.quit)
	c.do(func() {
		c.x.Stop()
		for _, s := range c.streams {
			s.ConnClosed(err)
		}
	})
	c.later()
}

// acked is an ACK of exactly these packets.
func (c *conn) acked(pns ...int64) {
	c.t.Helper()
	ack := ackOf(pns)
	if len(ack.Ranges) == 0 {
		return
	}
	c.do(func() {
		if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err != nil {
			c.t.Error(err)
		}
		if c.peer.setup.real {
			c.pacer.SetRate(c.x.cc.Window(), c.rec.RTT().Smoothed, c.x.cc.InSlowStart())
		}
	})
}

// host is what the sender, the streams and recovery see of a conn.
type host conn

func (h *host) Lock() {
	h.mu.Lock()
	if !h.peer.setup.quick {
		h.who.Store(goroutine())
	}
}

func (h *host) Unlock() {
	h.who.Store(0)
	h.held.Add(1)
	h.mu.Unlock()
}

// inside fails the test if the mutex is not held.
func (h *host) inside() {
	if !h.peer.setup.quick && h.who.Load() != goroutine() {
		h.t.Helper()
		h.t.Error("called without the mutex")
	}
}

func (h *host) Wake() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *host) Due(time.Time) (control, ack bool) {
	h.inside()
	return len(h.control) > 0, h.ackDue
}

func (h *host) AppendControl(f *Flight, _ time.Time, ackOnly bool) {
	h.inside()
	if h.ackDue {
		if b := f.Tail(h.ack.Len()); b != nil {
			f.Wrote(len(h.ack.Append(b)), false, recovery.Frame{Kind: 1})
			h.ackDue = false
		}
	}
	for !ackOnly && len(h.control) > 0 {
		d := h.control[0]
		b := f.Tail(d.frame.Len())
		if b == nil {
			return
		}
		f.Wrote(len(d.frame.Append(b)), true, d.record)
		h.control = h.control[1:]
	}
}

func (h *host) SetTimer(t time.Time) {
	h.inside()
	if t.IsZero() || !h.timerAt.IsZero() && !t.Before(h.timerAt) {
		return
	}
	h.timers++
	h.timerAt = t
	h.timer.Reset(time.Until(t))
}

func (h *host) Flushed(time.Time, bool) {
	h.inside()
	atomic.StoreInt64(&h.flushed, h.held.Load())
	h.SetTimer(h.rec.Timer())
	h.SetTimer(h.x.Timer())
}
func (h *host) AntiAmplification() int  { h.inside(); return h.amp }
func (h *host) SendFailed(err error)    { h.inside(); h.failed = append(h.failed, err) }
func (h *host) KeysExhausted(err error) { h.inside(); h.x.Stop() }
func (h *host) DatagramTooLarge(n int) {
	h.inside()
	h.tooBig = n
	if n > 1200 {
		h.x.SetDatagramSize(1200)
	}
}

func (h *host) SendReady(s *stream.Send) {
	h.inside()
	if _, _, ok := s.ResetDue(); ok {
		code, size, _ := s.ResetDue()
		var f wire.Frame = wire.ResetStream{ID: s.ID(), Code: code, FinalSize: size}
		reliable := s.ReliableSize()
		if reliable > 0 {
			f = wire.ResetStreamAt{ID: s.ID(), Code: code, FinalSize: size, ReliableSize: reliable}
		}
		h.control = append(h.control, due{f, recovery.Frame{Kind: 2, ID: s.ID(), A: reliable}})
		s.ResetSent()
	}
	if s.HasPending() {
		h.x.Ready(h.streams[s.ID()].st)
	}
}

func (h *host) PushUnlock(s *stream.Send) {
	h.inside()
	if h.x.PushUnlock(h.streams[s.ID()].st) {
		h.Wake()
	}
}

func (h *host) DataSent(*stream.Send) {}

func (h *host) SendDone(s *stream.Send) {
	h.inside()
	h.done = append(h.done, s.ID())
	h.x.Remove(h.streams[s.ID()].st)
}

func (h *host) BufferRoom() int { h.inside(); return h.room - h.x.Unsent() }
func (h *host) Buffered(n int) {
	h.inside()
	before := h.x.Unsent()
	h.x.Buffered(n)
	if before >= h.room && before+n < h.room {
		for _, s := range h.streams {
			s.Wake()
		}
	}
}
func (h *host) RecvUpdate(*stream.Recv)                   {}
func (h *host) RecvConsumed(int64)                        {}
func (h *host) RecvDone(*stream.Recv)                     {}
func (h *host) Await(w *stream.Wake, ctx context.Context) { w.Wait(ctx) }
func (h *host) Stay() bool                                { h.inside(); return false }
func (h *host) Unstay()                                   {}
func (h *host) Rouse(w *stream.Wake)                      { h.inside(); w.Signal() }
func (h *host) Between() {
	(*conn)(h).outside("Between")
	h.breaks.Add(1)
}
func (h *host) RTT() time.Duration       { return 0 }
func (h *host) Context() context.Context { return context.Background() }
func (h *host) After(f func()) {
	h.inside()
	h.afters = append(h.afters, f)
	h.Wake()
}

func (h *host) FrameAcked(f recovery.Frame) {
	h.inside()
	if f.Kind == 2 {
		h.streams[f.ID].ResetAcked(f.A)
	}
	h.gone = append(h.gone, due{record: f})
}

func (h *host) FrameLost(f recovery.Frame) {
	h.inside()
	if f.Kind == 2 {
		h.streams[f.ID].ResetLost(f.A)
	}
	h.lost = append(h.lost, due{record: f})
}
