package quic

import (
	"container/heap"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// A direction carries datagrams one way between two sockets, in virtual time: with
// delay, jitter, a rate and a queue, and whatever else networks do to datagrams. Its
// exported knobs may be changed at any time by set.
type direction struct {
	mu sync.Mutex

	delay  time.Duration
	jitter time.Duration // added, uniformly: datagrams overtake each other
	rate   int           // bytes a second; 0: no limit
	queue  int           // bytes that may wait for their turn; 0: no limit
	mtu    int           // longer datagrams vanish; 0: no limit
	lose   float64       // probabilities
	double float64
	damage float64
	late   float64 // that it comes 1 to 3 delays later than it should
	hook   func(n int, b []byte) fate
	tap    func(b []byte) // sees all that is sent

	rnd   *rand.Rand
	to    *wireSocket
	from  net.Addr
	due   arrivals
	seq   int
	free  time.Time // when the rate lets the next datagram go
	stats directionStats
}

type directionStats struct {
	sent, bytes int // by the sender
	largest     int // bytes of the largest
	lost        int // all that did not arrive as it was
	arrived     int
	last        time.Time // the latest was sent
}

// fate is what a hook wants for datagram number n.
type fate uint8

const (
	pass fate = iota // what the knobs say
	lose
	double
	damage
	delay // 3 delays later
	keep  // arrives, whatever the knobs say
)

func (d *direction) set(f func(d *direction)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *direction) now() directionStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// send puts b on its way. It keeps no reference.
func (d *direction) send(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	n := d.stats.sent
	d.stats.sent++
	d.stats.bytes += len(b)
	d.stats.largest = max(d.stats.largest, len(b))
	d.stats.last = now
	if d.tap != nil {
		d.tap(b)
	}
	f := pass
	if d.hook != nil {
		f = d.hook(n, b)
	}
	if f == pass {
		switch x := d.rnd.Float64(); {
		case x < d.lose:
			f = lose
		case x < d.lose+d.double:
			f = double
		case x < d.lose+d.double+d.damage:
			f = damage
		case x < d.lose+d.double+d.damage+d.late:
			f = delay
		}
	}
	if d.mtu > 0 && len(b) > d.mtu {
		f = lose
	}
	if f == lose {
		d.stats.lost++
		return
	}
	copies := 1
	if f == double {
		copies = 2
	}
	for range copies {
		at := now
		if d.rate > 0 {
			if d.free.Before(now) {
				d.free = now
			}
			if d.queue > 0 && int(d.free.Sub(now).Seconds()*float64(d.rate)) > d.queue {
				d.stats.lost++
				continue
			}
			d.free = d.free.Add(time.Duration(len(b)) * time.Second / time.Duration(d.rate))
			at = d.free
		}
		at = at.Add(d.delay)
		if d.jitter > 0 {
			at = at.Add(time.Duration(d.rnd.Int64N(int64(d.jitter))))
		}
		if f == delay {
			at = at.Add(time.Duration((1 + 2*d.rnd.Float64()) * float64(max(d.delay, time.Millisecond))))
		}
		c := append([]byte(nil), b...)
		if f == damage {
			d.stats.lost++
			for range 1 + d.rnd.IntN(3) {
				c[d.rnd.IntN(len(c))] ^= 1 << d.rnd.IntN(8)
			}
		}
		heap.Push(&d.due, arrival{at, d.seq, c})
		d.seq++
		after(time.Until(at), d.deliver)
	}
}

// after calls f once d has passed, in a goroutine of its own. A timer that is due
// when it is set runs in the goroutine that sets it; two that do so at once in one
// bubble bring the race detector down (they share its context of the bubble's
// timers, in Go 1.26).
func after(d time.Duration, f func()) {
	if d <= 0 {
		go f()
		return
	}
	time.AfterFunc(d, f)
}

// deliver hands over what is due, in order: timers of one instant fire in none.
func (d *direction) deliver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for now := time.Now(); len(d.due) > 0 && !d.due[0].at.After(now); {
		d.to.arrive(heap.Pop(&d.due).(arrival).b, d.from)
		d.stats.arrived++
	}
}

type arrival struct {
	at  time.Time
	seq int
	b   []byte
}

type arrivals []arrival

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].seq < a[j].seq
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)   { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = arrival{}
	*a = (*a)[:last]
	return x
}

// wireSocket is one end of a pair of directions, as a net.PacketConn.
type wireSocket struct {
	addr net.Addr
	out  *direction

	mu       sync.Mutex
	cond     sync.Cond
	in       []datagramFrom
	deadline time.Time
	closed   bool
}

type datagramFrom struct {
	b    []byte
	from net.Addr
}

// newWire makes two sockets and both directions between them.
func newWire(rnd *rand.Rand) (client, server *wireSocket) {
	client = &wireSocket{addr: thereAddr}
	server = &wireSocket{addr: hereAddr}
	client.out = &direction{to: server, from: client.addr, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 1))}
	server.out = &direction{to: client, from: server.addr, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2))}
	client.cond.L, server.cond.L = &client.mu, &server.mu
	return client, server
}

func (s *wireSocket) arrive(b []byte, from net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.in = append(s.in, datagramFrom{b, from})
		s.cond.Signal()
	}
}

func (s *wireSocket) ReadFrom(b []byte) (int, net.Addr, error) {
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

// ReadFromNow makes the transport's callers read the socket, too, as they do a real one.
func (s *wireSocket) ReadFromNow(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.in) == 0 {
		return 0, nil, os.ErrDeadlineExceeded
	}
	d := s.in[0]
	s.in[0] = datagramFrom{}
	s.in = s.in[1:]
	return copy(b, d.b), d.from, nil
}

func (s *wireSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	s.out.send(b)
	return len(b), nil
}

func (s *wireSocket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	s.cond.Broadcast()
	if t.After(time.Now()) {
		time.AfterFunc(time.Until(t), s.cond.Broadcast)
	}
	return nil
}

func (s *wireSocket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.in = nil
	s.mu.Unlock()
	s.cond.Broadcast()
	return nil
}

func (s *wireSocket) LocalAddr() net.Addr                { return s.addr }
func (s *wireSocket) SetDeadline(t time.Time) error      { return s.SetReadDeadline(t) }
func (s *wireSocket) SetWriteDeadline(t time.Time) error { return nil }
