package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// chaosStream is what one stream's sender knows, for its reader.
type chaosStream struct {
	mu    sync.Mutex
	n     int64 // bytes that were accepted
	ended bool  // by Close: exactly n bytes arrive
}

// A05: 64 goroutines do on 64 streams each whatever comes to their minds, the readers as
// well, while packets are lost, beside a bulk stream in each direction. Every byte that
// arrives is the right one, a stream that was closed arrives whole, the bulk streams get
// through, and in the end no stream is left on either side.
func TestNetworkChaos(t *testing.T) {
	for i := range 6 {
		loss := float64(i%3) / 100
		t.Run(fmt.Sprintf("loss %v", loss), func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := patient()
				conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 20_000, 1<<20
				w.sniff()
				c, s := w.connect(conf, conf)
				w.both(func(d *direction) { d.lose = loss })
				goroutines, each := 64, less(64)

				var known sync.Map // StreamID → *chaosStream
				var senders, readers sync.WaitGroup
				ctx, cancel := context.WithCancel(w.Context())
				bulk := make(chan struct{}, 2)
				for i, dir := range [][2]*Conn{{c, s}, {s, c}} {
					go func() {
						w.transfer(dir[0], dir[1], waysToSend[0].send, patternOf(60, uint64(i)), less[int64](8<<20))
						bulk <- struct{}{}
					}()
				}
				go func() {
					for {
						in, err := s.AcceptStream(ctx)
						if err != nil {
							return
						}
						in.Close()
						rnd := rand.New(rand.NewPCG(uint64(in.StreamID()), 7))
						readers.Go(func() { chaosRead(t, rnd, in, &known) })
					}
				}()
				for range goroutines {
					rnd := rand.New(rand.NewPCG(w.rnd.Uint64(), 0))
					senders.Go(func() {
						for range each {
							out, err := c.OpenStreamSync(w.Context())
							if err != nil {
								t.Errorf("opening a stream: %v", err)
								return
							}
							st := &chaosStream{}
							known.Store(out.StreamID(), st)
							chaosWrite(t, rnd, out, st)
						}
					})
				}
				senders.Wait()
				<-bulk
				<-bulk
				time.Sleep(10 * time.Second)
				cancel()
				readers.Wait()
				w.exchange(c, s, 1000)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for _, conn := range []*Conn{c, s} {
					conn.mu.Lock()
					if n := len(conn.streams.open); n > 0 {
						t.Errorf("%d streams are left", n)
					}
					if n := conn.snd.Unsent(); n != 0 {
						t.Errorf("%d bytes are left unsent", n)
					}
					conn.mu.Unlock()
				}
			})
		})
	}
}

// chaosWrite does up to a dozen things to a stream and ends it.
func chaosWrite(t *testing.T, rnd *rand.Rand, out *Stream, st *chaosStream) {
	p := patternOf(61, uint64(out.StreamID()))
	// wrote takes in what a write returned. n is said before it may be read.
	write := func(f func(b []byte) (int, error)) error {
		b := make([]byte, rnd.IntN(6000)>>rnd.IntN(12))
		st.mu.Lock()
		defer st.mu.Unlock()
		p.fill(b, st.n)
		n, err := f(b)
		if n < 0 || n > len(b) || err == nil && n != len(b) {
			t.Errorf("a write of %d bytes: %d, %v", len(b), n, err)
		}
		st.n += int64(n)
		return err
	}
	for range rnd.IntN(12) {
		var err error
		switch rnd.IntN(16) {
		case 0, 1, 2, 3:
			err = write(out.Write)
		case 4:
			err = write(func(b []byte) (int, error) {
				k := rnd.IntN(len(b) + 1)
				n, err := out.WriteBuffers(&net.Buffers{b[:k], nil, b[k:]})
				return int(n), err
			})
		case 5:
			err = write(func(b []byte) (int, error) {
				n, err := out.WriteOwned(b, func() { clear(b) })
				return n, err
			})
		case 6:
			err = write(func(b []byte) (int, error) {
				if err := out.TryWriteAll(b); err != nil {
					return 0, err
				}
				return len(b), nil
			})
			if errors.Is(err, ErrWouldBlock) {
				err = nil
			}
		case 7, 8:
			out.SetEmission(emit.Tuning{Mode: emit.Mode(rnd.IntN(5)), MaxDatagrams: rnd.IntN(12), Reread: rnd.IntN(4) == 0})
			err = write(func(b []byte) (int, error) {
				var src io.ReaderAt = p.source(st.n + int64(len(b)))
				switch rnd.IntN(3) {
				case 0:
					src = &lender{*src.(*patternSource)}
				case 1:
					src = &vectors{*src.(*patternSource)}
				}
				n, err := out.SendFrom(context.Background(), src, st.n, int64(len(b)))
				return int(n), err
			})
		case 9:
			out.SetWriteDeadline(time.Now().Add(time.Duration(rnd.IntN(20)-5) * time.Millisecond))
		case 10:
			out.SetWriteDeadline(time.Time{})
		case 11:
			out.SetPriority(int8(rnd.IntN(8)), rnd.IntN(2) == 0)
		case 12:
			out.Cork()
		case 13:
			out.Uncork()
		case 14:
			high := rnd.IntN(10_000)
			out.SetWriteBuffer(rnd.IntN(high+1), high)
		case 15:
			time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			out.SetWriteDeadline(time.Time{})
		} else if code, remote := streamCode(err); err != nil && (!remote || code != 1) {
			// The reader may have stopped it, and a source in place that ended by its
			// deadline has reset it.
			var e *StreamError
			if !errors.As(err, &e) {
				t.Errorf("stream %d: %v", out.StreamID(), err)
			}
			break
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if rnd.IntN(3) == 0 {
		out.CancelWrite(2)
	} else if out.Close() == nil {
		st.ended = true
	}
	out.CancelRead(3) // nothing comes
}

// chaosRead reads a stream, some to the end, and others not.
func chaosRead(t *testing.T, rnd *rand.Rand, in *Stream, known *sync.Map) {
	check := patternOf(61, uint64(in.StreamID())).checker()
	stop := int64(-1)
	if rnd.IntN(4) == 0 {
		stop = rnd.Int64N(5000)
	}
	b := make([]byte, 3000)
	for {
		if rnd.IntN(4) == 0 {
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
		if rnd.IntN(8) == 0 {
			in.SetReadDeadline(time.Now().Add(time.Duration(rnd.IntN(20)-5) * time.Millisecond))
		} else {
			in.SetReadDeadline(time.Now().Add(time.Minute))
		}
		n, err := in.Read(b[:1+rnd.IntN(len(b))])
		if _, err := check.Write(b[:n]); err != nil {
			t.Errorf("stream %d: %v", in.StreamID(), err)
		}
		switch {
		case err == io.EOF:
			v, _ := known.Load(in.StreamID())
			st := v.(*chaosStream)
			st.mu.Lock()
			defer st.mu.Unlock()
			if !st.ended || st.n != check.n {
				t.Errorf("stream %d ended after %d bytes; of %d, by Close: %v", in.StreamID(), check.n, st.n, st.ended)
			}
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			if _, remote := streamCode(err); !remote {
				t.Errorf("stream %d: %v", in.StreamID(), err)
			}
			return
		}
		if stop >= 0 && check.n >= stop {
			in.CancelRead(1)
			return
		}
	}
}

// quic-go#5035, #2824: OpenStreamSync is cancelled just when a stream is there. The next
// who waits has it: 10,000 times.
func TestNetworkCancelledOpenPassesItOn(t *testing.T) {
	virtual(t, func(w *world) {
		conf := patient()
		conf.MaxIncomingUniStreams = 1
		c, s := w.connect(patient(), conf)
		cur, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		type result struct {
			s   *SendStream
			err error
		}
		open := func(ctx context.Context) chan result {
			ch := make(chan result, 1)
			go func() {
				s, err := c.OpenUniStreamSync(ctx)
				ch <- result{s, err}
			}()
			synctest.Wait() // it is in the queue
			return ch
		}
		end := func() {
			if err := cur.Close(); err != nil {
				t.Fatal(err)
			}
			go func() {
				in, err := s.AcceptUniStream(w.Context())
				if err == nil {
					io.Copy(io.Discard, readOnly{in})
				}
			}()
		}
		cancelled := 0
		for round := range less(10_000) {
			ctx, cancel := context.WithCancel(w.Context())
			first := open(ctx)
			limit, stop := context.WithTimeout(w.Context(), time.Minute)
			second := open(limit)
			end()
			// There and back again takes 20 ms.
			time.AfterFunc(20*time.Millisecond+time.Duration(w.rnd.IntN(3)-1), cancel)
			r := <-first
			if r.err == nil {
				cur = r.s
				end()
			} else {
				cancelled++
			}
			if r = <-second; r.err != nil {
				t.Fatalf("round %d: the next got no stream: %v", round, r.err)
			}
			cur = r.s
			stop()
			cancel()
		}
		if n := less(10_000); cancelled == 0 || cancelled == n {
			t.Errorf("%d of %d were cancelled: that tests nothing", cancelled, n)
		}
	})
}
