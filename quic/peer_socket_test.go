package quic

import (
	"bytes"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// An actorSocket is Volley's socket in a test with an [actor]. What is sent arrives
// at once: time passes only where the script says so.
type actorSocket struct {
	local, far net.Addr
	in         chan letter  // toward Volley
	main       *actorSocket // where what is sent is collected, if not here

	mu      sync.Mutex
	expired chan struct{} // closed: reads return with a timeout
	out     []sent        // from Volley, not collected yet
	refuse  func(n int) error
	check   func(n int, to net.Addr) // sees every datagram as it is sent
	first   func(b byte)             // … and its first byte
	others  []net.Addr               // where Volley may send to, too

	wrote chan struct{} // capacity 1: something was added to out
}

// letter is a datagram to Volley.
type letter struct {
	b    []byte
	from net.Addr
}

// sent is a datagram of Volley's.
type sent struct {
	at       time.Time
	b        []byte
	from, to net.Addr
}

// side is another socket of Volley's.
func (s *actorSocket) side(local net.Addr) *actorSocket {
	o := newActorSocket(local, s.far)
	o.main = s
	return o
}

func newActorSocket(local, far net.Addr) *actorSocket {
	return &actorSocket{
		local: local, far: far,
		in:      make(chan letter, 1<<14),
		expired: make(chan struct{}),
		wrote:   make(chan struct{}, 1),
	}
}

// setRefuse makes f decide whether the system takes a datagram of n bytes.
func (s *actorSocket) setRefuse(f func(n int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// take returns what Volley has sent since the last call.
func (s *actorSocket) take() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out = nil
	select {
	case <-s.wrote:
	default:
	}
	return out
}

func (s *actorSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	from := s.local
	if s.main != nil {
		s = s.main
	}
	if to.String() != s.far.String() && !slices.ContainsFunc(s.others, func(o net.Addr) bool { return o.String() == to.String() }) {
		panic("datagram to " + to.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if err := s.refuse(len(b)); err != nil {
			return 0, err
		}
	}
	if s.check != nil {
		s.check(len(b), to)
	}
	if s.first != nil {
		s.first(b[0])
	}
	s.out = append(s.out, sent{time.Now(), bytes.Clone(b), from, to})
	signal(s.wrote)
	return len(b), nil
}

func (s *actorSocket) ReadFrom(b []byte) (int, net.Addr, error) {
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	select {
	case p := <-s.in:
		return copy(b, p.b), p.from, nil
	case <-expired:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (s *actorSocket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.IsZero() {
		s.expired = make(chan struct{})
	} else {
		close(s.expired) // a Transport knows no other deadline than the past
	}
	return nil
}

func (s *actorSocket) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *actorSocket) SetWriteDeadline(time.Time) error { return nil }
func (s *actorSocket) LocalAddr() net.Addr              { return s.local }
func (s *actorSocket) Close() error                     { return nil }
