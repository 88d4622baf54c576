package quic

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// A world is a client and a server with a wire between them, in virtual time.
type world struct {
	*testing.T
	rnd            *rand.Rand
	up, down       *direction // client to server, and back
	client, server *Transport
	listener       *Listener
	pair           tlsPair
	begin          time.Time
}

// virtual runs f in a world of virtual time, 10 ms from side to side unless f changes
// that. It fails if a goroutine outlives the transports.
func virtual(t *testing.T, f func(w *world)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	virtualWith(t, seed, f)
}

func virtualWith(t *testing.T, seed uint64, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), begin: time.Now(), pair: smallTLSPair()}
		client, server := newWire(w.rnd)
		w.up, w.down = client.out, server.out
		w.up.delay, w.down.delay = 10*time.Millisecond, 10*time.Millisecond
		w.client, w.server = &Transport{Conn: client}, &Transport{Conn: server}
		defer func() {
			w.client.Close()
			w.server.Close()
			client.Close()
			server.Close()
			// What is on the wire, and timers of the stopped: virtual time is free.
			time.Sleep(10 * time.Minute)
		}()
		f(w)
	})
}

// less is n, or a part of it where the race detector looks on.
func less[N int | int64 | time.Duration](n N) N {
	if raceDetector {
		return n / 5
	}
	return n
}

// both applies f to both directions.
func (w *world) both(f func(d *direction)) {
	w.up.set(f)
	w.down.set(f)
}

// connect makes a connection.
func (w *world) connect(clientConf, serverConf *Config) (c, s *Conn) {
	w.Helper()
	st, ct := w.pair.server.Clone(), w.pair.client.Clone()
	if w.listener == nil {
		l, err := w.server.Listen(st, serverConf)
		if err != nil {
			w.Fatal(err)
		}
		w.listener = l
	}
	ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
	defer cancel()
	c, err := w.client.Dial(ctx, hereAddr, ct, clientConf)
	if err != nil {
		w.Fatalf("dialing: %v", err)
	}
	if s, err = w.listener.Accept(ctx); err != nil {
		w.Fatalf("accepting: %v", err)
	}
	return c, s
}

// elapsed is the virtual time since the world began.
func (w *world) elapsed() time.Duration { return time.Since(w.begin) }

// transfer sends size bytes from one side to the other by way, and returns how long that
// took in virtual time.
func (w *world) transfer(from, to *Conn, way func(*SendStream, pattern, int64) error, p pattern, size int64) time.Duration {
	w.Helper()
	begin := time.Now()
	sent := make(chan error, 1)
	go func() {
		s, err := from.OpenUniStreamSync(w.Context())
		if err == nil {
			err = way(s, p, size)
		}
		sent <- err
	}()
	r, err := to.AcceptUniStream(w.Context())
	if err != nil {
		w.Fatalf("accepting a stream: %v", err)
	}
	if err := p.check(r, size); err != nil {
		w.Errorf("receiving: %v", err)
	}
	took := time.Since(begin)
	if err := <-sent; err != nil {
		w.Errorf("sending: %v", err)
	}
	return took
}
