package stream

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeHost carries packets from a sender to a receiver, with loss, from a
// goroutine of its own, and in the writers' goroutines.
type pipeHost struct {
	*testHost
	s    *Send
	r    *Recv
	rand *rand.Rand
	sent []packet
	buf  [1500]byte
	bell chan struct{}
}

func (p *pipeHost) SendReady(*Send) {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}
func (p *pipeHost) RecvUpdate(*Recv) { p.SendReady(nil) }

func (p *pipeHost) Push(*Send) { p.run(1 + int(time.Now().UnixNano()&7)) }

// run is a few datagrams' worth of everything.
func (p *pipeHost) run(limit int) {
	p.Lock()
	for range limit {
		if code, size, ok := p.s.ResetDue(); ok {
			reliable := p.s.ReliableSize()
			p.s.ResetSent()
			if p.rand.IntN(3) > 0 {
				p.must(p.r.ResetAt(code, size, reliable))
				p.s.ResetAcked(reliable)
			} else {
				p.s.ResetLost(reliable)
			}
		}
		if v, ok := p.r.MaxDataDue(); ok {
			p.r.MaxDataSent(v)
			if p.rand.IntN(3) > 0 {
				p.s.SetCredit(v)
			} else {
				p.r.MaxDataLost()
			}
		}
		if code, ok := p.r.StopSendingDue(); ok {
			p.r.StopSendingSent()
			p.s.StopSending(code)
		}
		off, n, fin, _, ok := p.s.Next(1 << 20)
		if !ok {
			break
		}
		if size := 1 + p.rand.IntN(1400); n > size {
			n, fin = size, false
		}
		b := p.buf[:n]
		p.s.Copy(b, off)
		if p.s.Packed(off, n, fin) < 0 {
			p.t.Error("refused")
		}
		k := packet{off, n, fin}
		if p.rand.IntN(10) > 0 {
			p.must(p.r.Push(off, b, fin))
		}
		p.sent = append(p.sent, k)
		for len(p.sent) > 20 || len(p.sent) > 0 && fin {
			i := p.rand.IntN(len(p.sent))
			k := p.sent[i]
			p.sent = append(p.sent[:i], p.sent[i+1:]...)
			// Half of what arrived is declared lost, and half of that is
			// acknowledged later on.
			if p.rand.IntN(2) == 0 {
				p.s.OnLost(k.off, k.n, k.fin)
				if p.rand.IntN(2) == 0 {
					continue
				}
			}
			if p.arrived(k) {
				p.s.OnAcked(k.off, k.n, k.fin)
			} else {
				p.s.OnLost(k.off, k.n, k.fin)
			}
		}
	}
	fs := p.afters
	p.afters = nil
	again := p.s.HasPending() || len(p.sent) > 0
	if again {
		p.SendReady(nil)
	}
	if len(p.sent) > 0 && !p.s.HasPending() { // nothing follows: a timeout
		k := p.sent[0]
		p.sent = p.sent[1:]
		if p.arrived(k) {
			p.s.OnAcked(k.off, k.n, k.fin)
		} else {
			p.s.OnLost(k.off, k.n, k.fin)
		}
	}
	p.Unlock()
	for _, f := range fs {
		f()
	}
}

// arrived is what the receiver would have acknowledged.
func (p *pipeHost) arrived(k packet) bool {
	return p.r.discarded || k.off+int64(k.n) <= p.r.ready && (!k.fin || p.r.final >= 0)
}

func (p *pipeHost) must(_ int64, err error) {
	if err != nil {
		p.t.Error(err)
	}
}

func newPipe(t testing.TB, seed uint64) *pipeHost {
	p := &pipeHost{testHost: newHost(t), rand: rand.New(rand.NewPCG(seed, 0)), bell: make(chan struct{}, 1)}
	p.rtt = time.Millisecond
	p.s = NewSend(0, p, 10_000)
	p.r = NewRecv(0, p, 10_000, 100_000)
	return p
}

// serve runs the connection's goroutine until stop.
func (p *pipeHost) serve(stop chan struct{}) {
	for {
		select {
		case <-p.bell:
			p.run(10)
		case <-stop:
			return
		}
	}
}

// One writer, one reader, and a connection between them that loses packets
// and acknowledgements: what is read is what was written. Run with -race.
func TestBytesArriveWhileEverybodyRuns(t *testing.T) {
	watchBlocks(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(10) {
		p := newPipe(t, seed+round)
		if round%3 == 0 {
			p.s.SetWriteBuffer(0, 0)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { p.serve(stop) })
		const total = 300_000
		released, lent := 0, 0
		wg.Go(func() { // the deadline comes and goes
			for range 50 {
				p.s.SetDeadline(time.Now().Add(100 * time.Microsecond))
				p.r.SetDeadline(time.Now().Add(100 * time.Microsecond))
				time.Sleep(50 * time.Microsecond)
				p.s.SetDeadline(time.Time{})
				p.r.SetDeadline(time.Time{})
			}
		})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, round))
			for off := int64(0); off < total; {
				n := int(min(total-off, int64(1+r.IntN(20_000))))
				var k int
				var err error
				switch data := pattern(off, n); r.IntN(4) {
				case 0:
					k, err = p.s.Write(data)
				case 1:
					var k64 int64
					k64, err = p.s.WriteBuffers(&net.Buffers{data[:n/3], data[n/3:]})
					k = int(k64)
				case 2:
					lent++
					k, err = p.s.WriteOwned(data, func() { p.do(func() { released++ }) })
				case 3:
					if err = p.s.TryWriteAll(data); err == nil {
						k = n
					} else {
						<-p.s.Writable()
						if errors.Is(err, errs.WouldBlock) {
							err = nil
						}
					}
				}
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
					return
				}
				off += int64(k)
			}
			p.s.Close()
		})
		got := make([]byte, 0, total)
		for buf := make([]byte, 50_000); ; {
			n, err := p.r.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if len(got) != total {
			t.Fatalf("%d bytes arrived", len(got))
		}
		checkPattern(t, got, 0)
		for done := false; !done; p.run(10) {
			p.do(func() { done = p.done == 1 })
		}
		close(stop)
		wg.Wait()
		p.later()
		if released != lent {
			t.Errorf("%d pieces lent, %d released", lent, released)
		}
		if p.consumed != total || p.recvDone != 1 {
			t.Errorf("consumed %d, done %d times", p.consumed, p.recvDone)
		}
	}
}

// A writer marks a part of what it has written, writes on and cancels, while a reader reads:
// the part arrives, and then the error.
func TestReliableBytesArriveWhileEverybodyRuns(t *testing.T) {
	watchBlocks(t)
	useTestErrors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(30) {
		p := newPipe(t, seed+round)
		p.do(p.s.AllowResetAt)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { p.serve(stop) })
		r := rand.New(rand.NewPCG(seed, round))
		lent, released := 0, 0
		marked := 0
		wg.Go(func() {
			off := 0
			for boundary := 1 + r.IntN(10); off < 100_000; boundary-- {
				n := 1 + r.IntN(20_000)
				var err error
				if data := pattern(int64(off), n); r.IntN(2) == 0 {
					_, err = p.s.Write(data)
				} else {
					lent++
					_, err = p.s.WriteOwned(data, func() { p.do(func() { released++ }) })
				}
				if err != nil {
					t.Error(err)
				}
				if off += n; boundary == 0 {
					p.s.SetReliableBoundary()
					marked = off
				}
			}
			p.s.Cancel(1)
		})
		got := make([]byte, 0, 200_000)
		for buf := make([]byte, 50_000); ; {
			n, err := p.r.Read(buf[:1+1000*round])
			got = append(got, buf[:n]...)
			if err != nil {
				if err != (testReset{1, true}) {
					t.Error(err)
				}
				break
			}
		}
		for done := false; !done; p.run(10) {
			p.do(func() { done = p.done == 1 })
		}
		close(stop)
		wg.Wait()
		p.later()
		if len(got) < marked {
			t.Errorf("%d bytes arrived of %d that were marked", len(got), marked)
		}
		checkPattern(t, got, 0)
		if released != lent || p.buffered != 0 {
			t.Errorf("%d pieces lent, %d released, %d bytes buffered", lent, released, p.buffered)
		}
		if p.consumed != p.r.final || p.recvDone != 1 {
			t.Errorf("consumed %d of %d, done %d times", p.consumed, p.r.final, p.recvDone)
		}
	}
}

// Everything at once, in every order: nothing hangs, panics, or leaks.
func TestEverythingAtOnce(t *testing.T) {
	watchBlocks(t)
	useTestErrors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(30) {
		p := newPipe(t, seed+round)
		if round%3 > 0 {
			p.do(p.s.AllowResetAt)
		}
		stop := make(chan struct{})
		var server, wg sync.WaitGroup
		server.Go(func() { p.serve(stop) })
		var mu sync.Mutex
		lent, released := 0, 0
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed+round, uint64(g)))
				data := make([]byte, 30_000)
				for range 40 {
					n := r.IntN(len(data))
					switch c := r.IntN(40); {
					case c < 8:
						p.s.Write(data[:n])
					case c < 12:
						p.s.WriteBuffers(&net.Buffers{data[:n/2], data[n/2 : n]})
					case c < 16:
						mu.Lock()
						lent++
						mu.Unlock()
						p.s.WriteOwned(make([]byte, n), func() { mu.Lock(); released++; mu.Unlock() })
					case c < 20:
						p.r.Read(data[:n])
					case c < 22:
						p.s.TryWriteAll(data[:n])
					case c < 24:
						p.s.SetDeadline(time.Now().Add(time.Duration(r.IntN(200)) * time.Microsecond))
						p.r.SetDeadline(time.Now().Add(time.Duration(r.IntN(200)) * time.Microsecond))
					case c < 25:
						p.s.SetDeadline(time.Time{})
						p.s.SetDeadline(time.Now().Add(time.Millisecond))
					case c < 27:
						p.s.Cork()
					case c < 29:
						p.s.Uncork()
					case c < 31:
						p.s.SetWriteBuffer(n/4, n)
					case c < 32:
						p.s.SetWriteBuffer(0, 0)
					case c < 35:
						if p.s.BeginSource(t.Context()) != nil {
							break
						}
						p.do(func() { p.s.AppendBlock(Get(n), n) })
						p.Lock()
						p.PushUnlock(p.s)
						p.s.WaitSource(t.Context(), func() bool { return p.s.Unsent() == 0 })
						p.s.EndSource()
					case c < 36:
						p.s.Context()
						p.s.Writable()
						p.s.SetReliableBoundary()
					default:
						if r.IntN(20) > 0 || round%2 == 0 {
							break
						}
						switch r.IntN(5) {
						case 0:
							p.s.Close()
						case 1:
							p.s.CloseWith(data[:n])
						case 2:
							p.s.Cancel(1)
						case 3:
							p.r.Cancel(2)
						case 4:
							p.do(func() { p.s.ConnClosed(io.EOF); p.r.ConnClosed(io.EOF) })
						}
					}
				}
			})
		}
		wg.Go(func() { // whatever still waits when the others are through
			time.Sleep(20 * time.Millisecond)
			p.do(func() { p.s.ConnClosed(io.EOF); p.r.ConnClosed(io.EOF) })
		})
		wg.Wait()
		close(stop)
		server.Wait()
		p.later()
		if lent != released {
			t.Errorf("%d pieces lent, %d released", lent, released)
		}
		if p.buffered != 0 {
			t.Errorf("%d bytes still count as unsent", p.buffered)
		}
	}
}

// A12, repeated: a peer that stops reading ends the writer each time, and
// nothing of it stays.
func TestStoppedWritersLeaveNothing(t *testing.T) {
	watchBlocks(t)
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
		for range 50 {
			p := newPipe(t, 1)
			var err error
			returned := false
			go func() { _, err = p.s.Write(make([]byte, 1<<20)); returned = true }()
			synctest.Wait()
			p.r.Cancel(7)
			for range 20 {
				p.run(10)
			}
			synctest.Wait()
			if !returned || err == nil {
				t.Fatalf("returned %v, %v", returned, err)
			}
			if p.buffered != 0 || p.done != 1 {
				t.Fatalf("%d bytes buffered, done %d times", p.buffered, p.done)
			}
			if p.recvDone != 1 || p.consumed != p.r.final {
				t.Fatalf("the receiver: done %d times, gave back %d of %d", p.recvDone, p.consumed, p.r.final)
			}
		}
	})
}
