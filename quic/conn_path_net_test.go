package quic

import (
	"container/heap"
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A moveNet is a network on which hosts move, in virtual time: any number of sockets, each
// some way off, of which some are behind a NAT that changes its mind.
type moveNet struct {
	*testing.T

	mu      sync.Mutex
	sockets map[string]*moveSocket
	outside map[string]*net.UDPAddr // socket → how the world sees it, if that differs
	inside  map[string]string       // and back, for the addresses that still work
	limit   int                     // longer datagrams vanish; 0: no limit
	hook    func(*moveDatagram)     // sees and may change every datagram before it goes
	moves   int
}

// moveDatagram is one on its way.
type moveDatagram struct {
	from, to net.Addr // as the world sees them
	b        []byte
	lose     bool
	delay    time.Duration
}

// onMoveNet runs f in virtual time. It fails if a goroutine outlives the sockets.
func onMoveNet(t *testing.T, f func(t *testing.T, n *moveNet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &moveNet{
			T: t, sockets: map[string]*moveSocket{},
			outside: map[string]*net.UDPAddr{}, inside: map[string]string{},
		}
		f(t, n)
		n.mu.Lock()
		all := n.sockets
		n.mu.Unlock()
		for _, s := range all {
			s.Close()
		}
		time.Sleep(10 * time.Minute) // virtual time is free
	})
}

func moveAddr(host string, port int) *net.UDPAddr {
	return &net.UDPAddr{IP: net.ParseIP(host).To4(), Port: port}
}

// socket makes a socket whose datagrams take delay in either direction.
func (n *moveNet) socket(host string, port int, delay time.Duration) *moveSocket {
	s := &moveSocket{net: n, addr: moveAddr(host, port), delay: delay}
	s.cond.L = &s.mu
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sockets[s.addr.String()] = s
	return s
}

// rebind has a NAT give the socket another address: what is sent to the one before does
// not arrive.
func (n *moveNet) rebind(s *moveSocket, host string, port int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.outside[s.addr.String()]; old != nil {
		delete(n.inside, old.String())
	}
	to := moveAddr(host, port)
	n.outside[s.addr.String()] = to
	n.inside[to.String()] = s.addr.String()
	n.moves++
}

func (n *moveNet) setHook(f func(*moveDatagram)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hook = f
}

// send puts a datagram on its way. The NAT is right beside the socket.
func (n *moveNet) send(s *moveSocket, b []byte, to net.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &moveDatagram{from: s.addr, to: to, b: append([]byte(nil), b...), delay: s.delay}
	if out := n.outside[s.addr.String()]; out != nil {
		d.from = out
	}
	if n.hook != nil {
		n.hook(d)
	}
	if d.lose || n.limit > 0 && len(d.b) > n.limit {
		return
	}
	n.put(d)
}

// put lets a datagram arrive that comes from anywhere. n.mu is held.
func (n *moveNet) put(d *moveDatagram) {
	at := n.sockets[d.to.String()]
	if in, ok := n.inside[d.to.String()]; ok {
		at = n.sockets[in]
	} else if at != nil && n.outside[at.addr.String()] != nil {
		return // it is behind a NAT, which knows nothing of that address
	}
	if at == nil {
		return
	}
	at.arriveIn(d.delay+at.delay, d)
}

// moveSocket is one of its sockets, as a net.PacketConn.
type moveSocket struct {
	net   *moveNet
	addr  *net.UDPAddr
	delay time.Duration

	mu       sync.Mutex
	cond     sync.Cond
	due      arrivals
	seq      int
	in       []datagramFrom
	from     map[int]net.Addr
	deadline time.Time
	closed   bool
}

func (s *moveSocket) arriveIn(delay time.Duration, d *moveDatagram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[int]net.Addr{}
	}
	at := time.Now().Add(delay)
	heap.Push(&s.due, arrival{at, s.seq, d.b})
	s.from[s.seq] = d.from
	s.seq++
	after(delay, s.deliver)
}

func (s *moveSocket) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for now := time.Now(); len(s.due) > 0 && !s.due[0].at.After(now); {
		a := heap.Pop(&s.due).(arrival)
		if !s.closed {
			s.in = append(s.in, datagramFrom{a.b, s.from[a.seq]})
		}
		delete(s.from, a.seq)
	}
	s.cond.Signal()
}

func (s *moveSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, nil, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.in) > 0:
			d := s.in[0]
			s.in[0] = datagramFrom{}
			s.in = s.in[1:]
			return copy(b, d.b), d.from, nil
		}
		s.cond.Wait()
	}
}

func (s *moveSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	s.net.send(s, b, to)
	return len(b), nil
}

func (s *moveSocket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	s.cond.Broadcast()
	if !t.IsZero() {
		after(time.Until(t), s.cond.Broadcast)
	}
	return nil
}

func (s *moveSocket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cond.Broadcast()
	return nil
}

func (s *moveSocket) LocalAddr() net.Addr              { return s.addr }
func (s *moveSocket) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *moveSocket) SetWriteDeadline(time.Time) error { return nil }
func (s *moveSocket) SetReadBuffer(int) error          { return nil }
func (s *moveSocket) SetWriteBuffer(int) error         { return nil }

// A moving is a client and a server of Volley's on a moveNet.
type moving struct {
	*moveNet
	clientSocket, serverSocket *moveSocket
	clientT, serverT           *Transport
	c, s                       *Conn
}

const moveDelay = 10 * time.Millisecond

// onTheMove makes a connection between the two, 40 ms apart.
func onTheMove(t *testing.T, clientConf, serverConf *Config, f func(t *testing.T, m *moving)) {
	t.Helper()
	onMoveNet(t, func(t *testing.T, n *moveNet) {
		m := &moving{moveNet: n}
		m.clientSocket = n.socket("10.0.0.1", 1000, moveDelay)
		m.serverSocket = n.socket(hereAddr.IP.String(), hereAddr.Port, moveDelay)
		m.clientT = &Transport{Conn: m.clientSocket}
		m.serverT = &Transport{Conn: m.serverSocket}
		l, err := m.serverT.Listen(endpointTLS(), serverConf)
		if err != nil {
			n.Fatal(err)
		}
		m.c, err = m.clientT.Dial(n.Context(), hereAddr, endpointClientTLS(), clientConf)
		if err != nil {
			n.Fatal(err)
		}
		if m.s, err = l.Accept(n.Context()); err != nil {
			n.Fatal(err)
		}
		defer m.serverT.Close()
		defer m.clientT.Close()
		f(t, m)
	})
}

// carry sends size bytes from one side to the other, and returns how long that took.
func (n *moveNet) carry(from, to *Conn, size int64) time.Duration {
	n.Helper()
	begin := time.Now()
	p := patternOf(7, uint64(size))
	sent := make(chan error, 1)
	go func() {
		s, err := from.OpenUniStreamSync(n.Context())
		if err == nil {
			err = waysToSend[0].send(s, p, size)
		}
		sent <- err
	}()
	ctx, cancel := context.WithTimeout(n.Context(), 5*time.Minute)
	defer cancel()
	r, err := to.AcceptUniStream(ctx)
	if err != nil {
		n.Fatalf("accepting a stream: %v", err)
	}
	r.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if err := p.check(r, size); err != nil {
		n.Errorf("receiving: %v", err)
	}
	took := time.Since(begin)
	if err := <-sent; err != nil {
		n.Errorf("sending: %v", err)
	}
	return took
}
