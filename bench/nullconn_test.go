package bench_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/scheduler"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

// A nullConn is the sending half of a connection: streams, passes, flights, sealing and
// recovery are the library's own. Its system calls are caught before the kernel, and
// answered by an acknowledgement.
type nullConn struct {
	x *sender.Sender

	mu      sync.Mutex
	rec     *recovery.Recovery
	socket  *udp.Conn
	route   udp.Route
	streams map[int64]*sender.Stream
	next    int64 // packet number of the next flight
	ranges  [1]wire.AckRange
	after   []func()
	wake    chan struct{}
	timer   *time.Timer
	closed  chan struct{}
}

// newNullConn returns a connection with datagrams of the given size.
func newNullConn(size int) (*nullConn, error) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	c := &nullConn{streams: make(map[int64]*sender.Stream), wake: make(chan struct{}, 1), closed: make(chan struct{})}
	if c.socket, err = udp.New(pc); err != nil {
		return nil, err
	}
	udp.Inject(c.socket, &udp.Hook{Send: c.take})
	c.route.Remote = netip.MustParseAddrPort("127.0.0.1:9")
	c.rec = recovery.New(recovery.Config{IsClient: true, Owner: nobody{}, Controller: wide{}})
	keys := protect.NewOneRTT(tls.TLS_AES_128_GCM_SHA256, wire.Version1)
	secret := make([]byte, 32)
	if err := keys.SetWriteSecret(secret); err != nil {
		return nil, err
	}
	if err := keys.SetReadSecret(secret); err != nil {
		return nil, err
	}
	c.timer = time.AfterFunc(time.Hour, c.wakeUp)
	c.x = sender.New(sender.Config{
		Host: (*connHost)(c), Recovery: c.rec, Controller: wide{}, Pacer: congestion.NewPacer(size),
		Scheduler: scheduler.New(), UDP: c.socket, Route: &c.route, DatagramSize: size,
	})
	c.mu.Lock()
	c.x.SetCredit(1 << 60)
	c.x.Start(keys, []byte{1, 2, 3, 4})
	c.mu.Unlock()
	go c.run()
	return c, nil
}

// close ends the connection's goroutine and socket.
func (c *nullConn) close() {
	close(c.closed)
	c.timer.Stop()
	c.socket.Close()
}

// open makes a stream: its bytes, and how the sender drives it.
func (c *nullConn) open(id int64) (*stream.Send, *sender.Stream) {
	s := stream.NewSend(id, (*connHost)(c), 1<<60)
	c.mu.Lock()
	defer c.mu.Unlock()
	st := new(sender.Stream)
	st.Init(c.x, s)
	c.streams[id] = st
	return s, st
}

// do runs f with the connection's mutex held.
func (c *nullConn) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// run is the connection's goroutine.
func (c *nullConn) run() {
	for {
		select {
		case <-c.wake:
			for c.x.Run(2) {
			}
		case <-c.closed:
			return
		}
	}
}

func (c *nullConn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take is what the kernel would be asked to do. An ACK may overtake the return of the
// system call, so it may come from here.
func (c *nullConn) take(s udp.Sending) udp.Verdict {
	c.mu.Lock()
	c.ranges[0] = wire.AckRange{Lo: c.next, Hi: c.next + int64(s.Datagrams()) - 1}
	ack := wire.Ack{Ranges: c.ranges[:]}
	if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err != nil {
		panic(err) // the numbers are ours
	}
	c.next = c.rec.NextPN(recovery.App)
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
	return udp.Verdict{Lose: true}
}

// connHost is the connection that the sender and the streams see.
type connHost nullConn

func (h *connHost) Lock()                                         { h.mu.Lock() }
func (h *connHost) Unlock()                                       { h.mu.Unlock() }
func (h *connHost) Wake()                                         { (*nullConn)(h).wakeUp() }
func (h *connHost) Await(w *stream.Wake, ctx context.Context)     { w.Wait(ctx) }
func (h *connHost) Stay() bool                                    { return false }
func (h *connHost) Unstay()                                       {}
func (h *connHost) Rouse(w *stream.Wake)                          { w.Signal() }
func (h *connHost) Between()                                      {}
func (h *connHost) Due(time.Time) (control, ack bool)             { return false, false }
func (h *connHost) AppendControl(*sender.Flight, time.Time, bool) {}
func (h *connHost) Flushed(time.Time, bool)                       {}
func (h *connHost) SetTimer(t time.Time)                          { h.timer.Reset(time.Until(t)) }
func (h *connHost) AntiAmplification() int                        { return -1 }
func (h *connHost) SendFailed(err error)                          { panic(err) }
func (h *connHost) KeysExhausted(err error)                       { panic(err) }
func (h *connHost) DatagramTooLarge(int)                          {}

// SendReady implements stream.Host.
func (h *connHost) SendReady(s *stream.Send) {
	if s.HasPending() {
		h.x.Ready(h.streams[s.ID()])
	}
}

// PushUnlock implements stream.Host.
func (h *connHost) PushUnlock(s *stream.Send) {
	if h.x.PushUnlock(h.streams[s.ID()]) {
		(*nullConn)(h).wakeUp()
	}
}

func (h *connHost) DataSent(*stream.Send)    {}
func (h *connHost) SendDone(*stream.Send)    {}
func (h *connHost) BufferRoom() int          { return 1<<20 - h.x.Unsent() }
func (h *connHost) Buffered(n int)           { h.x.Buffered(n) }
func (h *connHost) RecvUpdate(*stream.Recv)  {}
func (h *connHost) RecvConsumed(int64)       {}
func (h *connHost) RecvDone(*stream.Recv)    {}
func (h *connHost) After(f func())           { h.after = append(h.after, f) }
func (h *connHost) RTT() time.Duration       { return 0 }
func (h *connHost) Context() context.Context { return context.Background() }

// nobody has no frames of its own.
type nobody struct{}

func (nobody) FrameAcked(recovery.Frame) {}
func (nobody) FrameLost(recovery.Frame)  {}

// wide is a congestion controller that lets everything through.
type wide struct{}

func (wide) OnSent(time.Time, int, int)     {}
func (wide) OnAck(congestion.Ack)           {}
func (wide) OnLoss(congestion.Loss)         {}
func (wide) OnECN(_, _ time.Time)           {}
func (wide) OnSpurious(congestion.Spurious) {}
func (wide) Window() int                    { return 1 << 40 }
func (wide) InSlowStart() bool              { return false }
func (wide) SetDatagramSize(int)            {}
