package sender

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// endless is a source that costs next to nothing itself: what is measured is the sender.
type endless struct{ page [1 << 18]byte }

func (s *endless) ReadAt(p []byte, _ int64) (int, error) { return copy(p, s.page[:]), nil }
func (s *endless) LendAt(_ int64, n int) ([]byte, error) { return s.page[:n], nil }
func (s *endless) ReadVecAt(bufs [][]byte, _ int64) (n int, err error) {
	for _, b := range bufs {
		n += copy(b, s.page[:])
	}
	return n, nil
}

// quiet is a connection without anything that looks on, whose kernel takes all and whose peer
// acknowledges at once.
func quiet(b testing.TB, size int) *conn {
	c := newConn(b, setup{size: size, dst: 8, quick: true})
	c.x.trace = nil
	next := int64(0)
	ack := wire.Ack{Ranges: make([]wire.AckRange, 1)}
	udp.Inject(c.sock, &udp.Hook{Send: func(s udp.Sending) udp.Verdict {
		c.mu.Lock()
		defer c.mu.Unlock()
		ack.Ranges[0] = wire.AckRange{Lo: next, Hi: next + int64(s.Datagrams()) - 1}
		if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err != nil {
			b.Error(err)
		}
		next = c.rec.NextPN(recovery.App)
		return udp.Verdict{Lose: true}
	}})
	return c
}

// flight plans and scatters one flight from what the stream holds. It is neither sealed nor
// sent, but acknowledged, with the clock standing still.
func (c *conn) flight(b *testing.B, a *asker) (datagrams int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.x.take()
	f := c.x.build(time.Now(), a)
	if f == nil {
		b.Fatal("no flight")
	}
	b.StopTimer()
	defer b.StartTimer()
	datagrams = f.n
	c.x.flush(f, time.Now())
	ack := wire.Ack{Ranges: []wire.AckRange{{Lo: f.first, Hi: f.first + int64(f.n) - 1}}}
	if _, err := c.rec.OnAck(recovery.App, &ack, 0, time.Now()); err != nil {
		b.Fatal(err)
	}
	f.release()
	c.x.token.taken = false
	return datagrams
}

// BenchmarkPlanAndScatter is what a flight of forty datagrams costs before it is sealed.
func BenchmarkPlanAndScatter(b *testing.B) {
	for _, tuning := range modes {
		b.Run(name(tuning), func(b *testing.B) {
			c := quiet(b, 1452)
			s := c.open(0, plenty)
			s.SetWriteBuffer(1<<16, 1<<20)
			s.st.SetTuning(tuning)
			src := &endless{}
			a := &asker{st: s.st, src: src, lender: src, vector: src}
			if err := s.BeginSource(context.Background()); err != nil {
				b.Fatal(err)
			}
			a.begin(0, -1)
			b.ReportAllocs()
			b.SetBytes(int64(c.x.flightBytes()))
			for b.Loop() {
				if !a.inPlace() {
					b.StopTimer()
					c.x.ready = false // asked for, not sent
					for s.Unsent() < c.x.flightBytes()+100 {
						if err := a.askOnce(); err != nil {
							b.Fatal(err)
						}
					}
					c.x.ready = true
					b.StartTimer()
				} else {
					c.x.Ready(s.st)
				}
				if n := c.flight(b, a); n != 40 {
					b.Fatalf("%d datagrams", n)
				}
			}
		})
	}
}

// askOnce makes one pass's worth of bytes ready.
func (a *asker) askOnce() error {
	a.st.x.host.Lock()
	defer a.st.x.host.Unlock()
	return a.askPass()
}

// BenchmarkEmission is the whole way from a source to the kernel, which does nothing.
func BenchmarkEmission(b *testing.B) {
	for _, size := range []int{1452, 16376} {
		for i, tuning := range append(modes, emit.Tuning{}) {
			kind := name(tuning)
			if i == len(modes) {
				kind = "write"
			}
			b.Run(fmt.Sprintf("%d/%s", size, kind), func(b *testing.B) {
				c := quiet(b, size)
				c.serve(0, nil)
				s := c.open(0, plenty)
				c.do(func() { s.st.SetTuning(tuning) })
				const chunk = 1 << 20
				b.ReportAllocs()
				b.SetBytes(chunk)
				if i == len(modes) {
					p := make([]byte, chunk)
					for b.Loop() {
						if _, err := s.Write(p); err != nil {
							b.Fatal(err)
						}
					}
				} else {
					src := &limit{endless: &endless{}, next: make(chan int64), done: make(chan bool)}
					go s.st.SendFrom(context.Background(), src, 0, -1, emit.Options{})
					for b.Loop() {
						src.next <- chunk
						<-src.done
					}
				}
				b.StopTimer()
				st := c.x.Stats()
				b.ReportMetric(float64(st.Datagrams)/float64(st.Flights), "datagrams/flight")
				c.stop(io.EOF)
			})
		}
	}
}

// limit is an endless source that lets so many bytes be taken at a time.
type limit struct {
	*endless
	next chan int64
	done chan bool
	end  int64
	busy bool
}

func (l *limit) take(off int64) error {
	if off < l.end {
		return nil
	}
	if l.busy {
		l.busy = false
		l.done <- true
	}
	l.end += <-l.next
	l.busy = true
	return nil
}

func (l *limit) ReadAt(p []byte, off int64) (int, error) {
	l.take(off)
	return l.endless.ReadAt(p, off)
}
func (l *limit) LendAt(off int64, n int) ([]byte, error) {
	l.take(off)
	return l.endless.LendAt(off, n)
}
func (l *limit) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	l.take(off)
	return l.endless.ReadVecAt(bufs, off)
}

// No flight allocates once everything has its size.
func TestFlightsDoNotAllocate(t *testing.T) {
	for i, tuning := range append(modes, emit.Tuning{}) {
		c := quiet(t, 1452)
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(tuning) })
		src := &endless{}
		a := &asker{st: s.st, src: src, lender: src, vector: src}
		p := make([]byte, 60_000)
		if i < len(modes) {
			if err := s.BeginSource(context.Background()); err != nil {
				t.Fatal(err)
			}
			a.begin(0, -1)
		}
		send := func() {
			if i == len(modes) {
				if _, err := s.Write(p); err != nil {
					t.Fatal(err)
				}
			} else {
				for flights := c.x.Stats().Flights; c.x.Stats().Flights == flights; {
					c.do(func() { a.turn = true })
					if _, _, err := c.step(a); err != nil {
						t.Fatal(err)
					}
				}
			}
			for c.x.Run(1) {
			}
		}
		for range 200 {
			send()
		}
		if n := testing.AllocsPerRun(500, send); n > 0 && !raced {
			t.Errorf("%s %d: %v allocations per flight", name(tuning), i, n)
		}
		if c.x.Stats().Datagrams < 7_000 {
			t.Errorf("%s %d: %+v", name(tuning), i, c.x.Stats())
		}
	}
}
