package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// A04, D1: after a write deadline n is exact: what counts may arrive, what does not
// never will, so that the rest can be written again. 500 seeds, in which the write
// buffer, the deadline and when it is set differ, and packets are lost.
func TestNetworkWriteDeadlineIsExact(t *testing.T) {
	for range 500 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprintf("seed %#x", seed), func(t *testing.T) {
			virtualWith(t, seed, func(w *world) {
				rnd := w.rnd
				conf := patient()
				conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 10_000, 10_000
				w.sniff()
				c, s := w.connect(patient(), conf)
				w.both(func(d *direction) { d.lose = float64(rnd.IntN(3)) * 0.02 })

				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				switch rnd.IntN(4) {
				case 0:
					out.SetWriteBuffer(0, 0)
				case 1:
					high := 1 + rnd.IntN(100_000)
					out.SetWriteBuffer(rnd.IntN(high+1), high)
				}
				p := patternOf(10, seed)
				size := []int{1, 700, 1200, 50_000, 300_000}[rnd.IntN(5)]
				data := p.bytes(size)
				var in *ReceiveStream
				var got []byte
				for rest := data; len(rest) > 0; {
					past := false
					switch rnd.IntN(4) {
					case 0:
						past = true
						out.SetWriteDeadline(time.Now().Add(-time.Second))
					case 1:
						out.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
					case 2: // moved while it waits
						out.SetWriteDeadline(time.Now().Add(time.Hour))
						time.AfterFunc(time.Duration(rnd.IntN(100))*time.Millisecond, func() { out.SetWriteDeadline(time.Now()) })
					case 3:
						// With nobody reading, without a deadline it might wait for ever.
						out.SetWriteDeadline(time.Now().Add(time.Duration(rnd.IntN(50)) * time.Microsecond))
					}
					accepted := func() int64 {
						c.mu.Lock()
						defer c.mu.Unlock()
						return out.send.NewOffset()
					}
					before := accepted()
					n, err := out.Write(rest[:min(len(rest), 1+rnd.IntN(100_000))])
					if past {
						if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Fatalf("a write with a deadline in the past: %d, %v", n, err)
						}
						if n := accepted() - before; n != 0 {
							t.Fatalf("it took %d bytes", n)
						}
					}
					var timeout net.Error
					if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout()) {
						t.Fatalf("write: %v", err)
					}
					rest = rest[n:]
					if len(rest) == 0 {
						break
					}
					if in == nil && rnd.IntN(2) == 0 {
						ctx, cancel := context.WithTimeout(w.Context(), time.Second)
						in, _ = s.AcceptUniStream(ctx) // perhaps nothing was written yet
						cancel()
					}
					if in != nil { // it reads a little
						in.SetReadDeadline(time.Now().Add(time.Duration(rnd.IntN(30)) * time.Millisecond))
						b := make([]byte, 1+rnd.IntN(20_000))
						n, err := in.Read(b)
						got = append(got, b[:n]...)
						if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Fatalf("read: %v", err)
						}
					}
				}
				out.SetWriteDeadline(time.Time{})
				if err := out.Close(); err != nil {
					t.Fatal(err)
				}
				if in == nil {
					if in, err = s.AcceptUniStream(w.Context()); err != nil {
						t.Fatal(err)
					}
				}
				in.SetReadDeadline(time.Time{})
				rest, err := io.ReadAll(in)
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, rest...); string(got) != string(data) {
					i := 0
					for i < len(got) && i < len(data) && got[i] == data[i] {
						i++
					}
					t.Fatalf("%d bytes arrived, not %d, and differ from byte %d on", len(got), len(data), i)
				}
			})
		}) {
			return
		}
	}
}

// A12: a writer that waits for credit. A peer that only closes its own direction must
// not wake it; whatever ends its direction, or the connection, must, at once.
func TestNetworkBlockedWriterEnds(t *testing.T) {
	isStreamError := func(code StreamErrorCode, remote bool) func(error) bool {
		return func(err error) bool {
			var e *StreamError
			return errors.As(err, &e) && e.ErrorCode == code && e.Remote == remote
		}
	}
	const rtt = 20 * time.Millisecond
	tests := []struct {
		name string
		do   func(w *world, c, s *Conn, out, in *Stream)
		want func(error) bool
		in   time.Duration
	}{
		{"the peer stops it", func(w *world, c, s *Conn, out, in *Stream) { in.CancelRead(7) },
			isStreamError(7, true), rtt},
		{"the peer closes the connection", func(w *world, c, s *Conn, out, in *Stream) { s.CloseWithError(5, "enough") },
			func(err error) bool { return errors.Is(err, &ApplicationError{Remote: true, ErrorCode: 5}) }, rtt},
		{"it closes the connection", func(w *world, c, s *Conn, out, in *Stream) { c.CloseWithError(6, "enough") },
			func(err error) bool { return errors.Is(err, &ApplicationError{ErrorCode: 6}) }, 0},
		{"the peer is gone", func(w *world, c, s *Conn, out, in *Stream) { w.both(func(d *direction) { d.lose = 1 }) },
			func(err error) bool { return errors.Is(err, &IdleTimeoutError{}) }, 2500 * time.Millisecond},
		{"it sets a deadline", func(w *world, c, s *Conn, out, in *Stream) {
			out.SetWriteDeadline(time.Now().Add(30 * time.Millisecond))
		}, func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }, 30 * time.Millisecond},
		{"it cancels", func(w *world, c, s *Conn, out, in *Stream) { out.CancelWrite(8) },
			isStreamError(8, false), 0},
		{"the transport closes", func(w *world, c, s *Conn, out, in *Stream) { w.client.Close() },
			func(err error) bool { return errors.Is(err, ErrTransportClosed) }, 0},
	}
	writers := []struct {
		name  string
		write func(w *world, s *SendStream, p pattern) (int64, error)
	}{
		{"write", func(w *world, s *SendStream, p pattern) (int64, error) {
			n, err := s.Write(p.bytes(500_000))
			return int64(n), err
		}},
		{"unbuffered write", func(w *world, s *SendStream, p pattern) (int64, error) {
			s.SetWriteBuffer(0, 0)
			n, err := s.Write(p.bytes(500_000))
			return int64(n), err
		}},
		{"owned", func(w *world, s *SendStream, p pattern) (int64, error) {
			for n := int64(0); ; n += 1000 {
				if _, err := s.WriteOwned(p.bytes(1000), nil); err != nil {
					return n, err
				}
			}
		}},
		{"read from", func(w *world, s *SendStream, p pattern) (int64, error) { return s.ReadFrom(p.reader(500_000)) }},
		{"scatter", func(w *world, s *SendStream, p pattern) (int64, error) {
			return s.SendFrom(context.Background(), p.source(500_000), 0, 500_000)
		}},
		{"single", func(w *world, s *SendStream, p pattern) (int64, error) {
			s.SetEmission(emit.Tuning{Mode: emit.Single})
			return s.SendFrom(context.Background(), p.source(500_000), 0, 500_000)
		}},
		{"lend", func(w *world, s *SendStream, p pattern) (int64, error) {
			return s.SendFrom(context.Background(), &lender{*p.source(500_000)}, 0, 500_000)
		}},
	}
	for _, wr := range writers {
		for _, tt := range tests {
			t.Run(wr.name+"/"+tt.name, func(t *testing.T) {
				virtual(t, func(w *world) {
					conf := &Config{
						InitialStreamReceiveWindow: 10_000, MaxStreamReceiveWindow: 10_000, MaxIdleTimeout: 2 * time.Second,
						KeepAlivePeriod: time.Second,
					}
					c, s := w.connect(conf, conf)
					out, err := c.OpenStream()
					if err != nil {
						t.Fatal(err)
					}
					type result struct {
						n   int64
						err error
						at  time.Time
					}
					done := make(chan result, 1)
					go func() {
						n, err := wr.write(w, out.SendStream, patternOf(11, 1))
						done <- result{n, err, time.Now()}
					}()
					in, err := s.AcceptStream(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					in.Close() // its own direction: nobody's business but the reader's
					time.Sleep(5 * time.Second)
					select {
					case r := <-done:
						t.Fatalf("it did not wait: %d, %v", r.n, r.err)
					default:
					}
					begin := time.Now()
					tt.do(w, c, s, out, in)
					r := <-done
					if !tt.want(r.err) {
						t.Errorf("it returned %v", r.err)
					}
					if d := r.at.Sub(begin); d > tt.in {
						t.Errorf("it took %v", d)
					}
					if r.n < 0 || r.n >= 500_000 {
						t.Errorf("it returned a count of %d", r.n)
					}
				})
			})
		}
	}
}

// Streams that were stopped while they waited for credit leave nothing behind that
// starves later ones.
func TestNetworkStoppedStreamsStarveNobody(t *testing.T) {
	virtual(t, func(w *world) {
		conf := patient()
		conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 10_000, 10_000
		conf.InitialConnectionReceiveWindow, conf.MaxConnectionReceiveWindow = 50_000, 50_000
		c, s := w.connect(conf, conf)
		for i := range 50 {
			out, err := c.OpenUniStreamSync(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { _, err := out.Write(make([]byte, 200_000)); done <- err }()
			in, err := s.AcceptUniStream(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(w.rnd.IntN(100)) * time.Millisecond)
			in.CancelRead(StreamErrorCode(i))
			if code, remote := streamCode(<-done); !remote || code != uint64(i) {
				t.Fatalf("stream %d ended with %d", i, code)
			}
		}
		if took := w.transfer(c, s, waysToSend[0].send, patternOf(12, 0), 1_000_000); took > 10*time.Second {
			t.Errorf("the next took %v", took)
		}
	})
}
