package quic

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// patient is a Config that gives up late.
func patient() *Config {
	return &Config{HandshakeIdleTimeout: 10 * time.Minute, MaxIdleTimeout: 30 * time.Minute}
}

// exchange has the client say something and the server answer, on a new stream.
func (w *world) exchange(c, s *Conn, n int) {
	w.Helper()
	p := patternOf(7, uint64(n))
	done := make(chan error, 1)
	go func() {
		st, err := s.AcceptStream(w.Context())
		if err == nil {
			_, err = io.Copy(writeOnly{st}, readOnly{st})
			st.Close()
		}
		done <- err
	}()
	st, err := c.OpenStreamSync(w.Context())
	if err != nil {
		w.Fatalf("opening a stream: %v", err)
	}
	if _, err := st.CloseWith(p.bytes(n)); err != nil {
		w.Fatalf("asking: %v", err)
	}
	if err := p.check(st, int64(n)); err != nil {
		w.Fatalf("the answer: %v", err)
	}
	if err := <-done; err != nil {
		w.Fatalf("answering: %v", err)
	}
}

// answering counts the server's connections that send something, from now on.
func (w *world) answering() (count func() int) {
	ids := map[string]bool{}
	w.down.set(func(d *direction) {
		d.tap = func(b []byte) {
			// What answers a version that is not known belongs to no connection.
			if h, err := wire.ParseLong(b); wire.IsLong(b[0]) && err == nil && h.Type != wire.VersionNegotiation {
				ids[string(h.Src)] = true
			}
		}
	})
	return func() (n int) {
		w.down.set(func(*direction) { n = len(ids) })
		return n
	}
}

// A handshake gets through when 30 % of all datagrams are lost or damaged, each way, and
// both sides know it; and the server makes no connection of what comes late, or twice, or
// damaged, that says a word. 200 seeds for each trouble, half of them with a certificate of
// 8 KiB.
func TestNetworkHandshakeThroughTrouble(t *testing.T) {
	for _, trouble := range []struct {
		name string
		make func(d *direction)
	}{
		{"30 % loss", func(d *direction) { d.lose = 0.3 }},
		{"30 % corruption", func(d *direction) { d.damage = 0.3 }},
		{"30 % duplication and 30 % reordering", func(d *direction) { d.double, d.late = 0.3, 0.3 }},
		{"30 % duplication, up to 100 ms apart", func(d *direction) { d.double, d.jitter = 0.3, 100*time.Millisecond }},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			var worst, sum time.Duration
			for range 200 {
				seed := rand.Uint64()
				if !t.Run(fmt.Sprintf("seed %#x", seed), func(t *testing.T) {
					virtualWith(t, seed, func(w *world) {
						w.both(func(d *direction) {
							d.delay = 15 * time.Millisecond
							trouble.make(d)
						})
						if seed&1 != 0 {
							w.pair = largeTLSPair()
						}
						answers := w.answering()
						c, s := w.connect(patient(), patient())
						w.exchange(c, s, 1000)
						took := w.elapsed()
						time.Sleep(time.Minute) // for what is on its way
						if n := answers(); n != 1 {
							w.Errorf("%d connections of the server's answered one client", n)
						}
						worst = max(worst, took)
						sum += took
					})
				}) {
					return
				}
			}
			t.Logf("it took %v on average, %v at most", sum/200, worst)
			if sum/200 > 5*time.Second {
				t.Error("too long on average")
			}
		})
	}
}

// A22: the server has used up what it may send to an unknown client, the client has
// acknowledged everything. The client's probe timer must break the deadlock, and the
// server must at no time have sent more than three times what it has got.
func TestNetworkAmplificationLimitIsNoDeadlock(t *testing.T) {
	for _, trouble := range []struct {
		name     string
		up, down func(n int, b []byte) fate
	}{
		{"the server's datagrams 2 to 7 are lost", nil, loseBetween(1, 6)},
		{"the client's datagrams 2 to 4 are lost", loseBetween(1, 3), nil},
		{"the client's first reply and the server's first flight but one are lost", loseBetween(1, 1), loseBetween(1, 2)},
		{"nothing is lost", nil, nil},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.pair = largeTLSPair()
				w.both(func(d *direction) { d.delay = 7500 * time.Microsecond })
				watch := w.watchAmplification()
				w.up.hook, w.down.hook = watch.up(trouble.up), watch.down(trouble.down)
				c, s := w.connect(nil, nil)
				w.exchange(c, s, 1000)
				if took := w.elapsed(); took > 3*time.Second {
					w.Errorf("it took %v", took)
				}
			})
		})
	}
}

// loseBetween loses datagrams number from to to, counted from 0.
func loseBetween(from, to int) func(int, []byte) fate {
	return func(n int, b []byte) fate {
		if from <= n && n <= to {
			return lose
		}
		return keep
	}
}

// amplification watches that a server sends three times what it has received at most,
// until a Handshake packet of the client has arrived (RFC 9000 §8.1).
type amplification struct {
	w              *world
	received, sent int
	validated      bool
}

func (w *world) watchAmplification() *amplification { return &amplification{w: w} }

// up sees what the client sends. What arrives does so later, so that the sum is too high
// at worst, by what is on the wire: the hook therefore counts on arrival.
func (a *amplification) up(then func(int, []byte) fate) func(int, []byte) fate {
	return func(n int, b []byte) fate {
		f := keep
		if then != nil {
			f = then(n, b)
		}
		if f != lose {
			size, handshake := len(b), b[0]&0xf0 == 0xe0
			time.AfterFunc(a.w.up.delay-1, func() {
				a.w.down.set(func(*direction) {
					a.received += size
					a.validated = a.validated || handshake
				})
			})
		}
		return f
	}
}

func (a *amplification) down(then func(int, []byte) fate) func(int, []byte) fate {
	return func(n int, b []byte) fate {
		a.sent += len(b)
		if !a.validated && a.sent > 3*a.received {
			a.w.Errorf("%d bytes sent to an unknown client that sent %d", a.sent, a.received)
		}
		if then != nil {
			return then(n, b)
		}
		return keep
	}
}
