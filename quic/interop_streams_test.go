package quic

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/volley-quic/volley/emit"
)

// errand is what one bidirectional stream has to do: carry up bytes there and down
// bytes back. It travels in front of the bytes, so that the far side knows it.
type errand struct{ key, up, down uint64 }

const errandLen = 24

func (e errand) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, e.key)
	b = binary.BigEndian.AppendUint64(b, e.up)
	return binary.BigEndian.AppendUint64(b, e.down)
}

// run does the errand on the side that opened s: it sends and receives at once.
func (e errand) run(s stackStream) error {
	defer s.release()
	sent := make(chan error, 1)
	go func() {
		_, err := s.Write(e.bytes())
		if err == nil {
			_, err = io.CopyBuffer(writeOnly{s}, patternOf(e.key, 0).reader(int64(e.up)), make([]byte, 5000))
		}
		if err == nil {
			err = s.closeWrite()
		}
		sent <- err
	}()
	if err := patternOf(e.key, 1).check(s, int64(e.down)); err != nil {
		return fmt.Errorf("down: %w", err)
	}
	if err := <-sent; err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return nil
}

// serveErrand does the errand that comes along s.
func serveErrand(s stackStream) error {
	defer s.release()
	var head [errandLen]byte
	r := bufio.NewReaderSize(s, 16<<10)
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	e := errand{binary.BigEndian.Uint64(head[:]), binary.BigEndian.Uint64(head[8:]), binary.BigEndian.Uint64(head[16:])}
	received := make(chan error, 1)
	go func() { received <- patternOf(e.key, 0).check(r, int64(e.up)) }()
	if err := sendPattern(s, patternOf(e.key, 1), int64(e.down), emit.Tuning{}); err != nil {
		return fmt.Errorf("serving down: %w", err)
	}
	if err := <-received; err != nil {
		return fmt.Errorf("serving up: %w", err)
	}
	return nil
}

// errands runs n of them from each side at once, over as many streams, sizes up to most.
func errands(t *testing.T, ctx context.Context, rnd *rand.Rand, n int, most int64, sides ...stackConn) {
	t.Helper()
	var wg sync.WaitGroup
	for k, c := range sides {
		far := sides[len(sides)-1-k]
		for i := range n {
			e := errand{uint64(k<<32 | i), uint64(rnd.Int64N(most)), uint64(rnd.Int64N(most))}
			wg.Go(func() {
				s, err := c.open(ctx)
				if err != nil {
					t.Errorf("opening stream %d: %v", i, err)
					return
				}
				if err := e.run(s); err != nil {
					t.Errorf("errand %+v: %v", e, err)
				}
			})
			wg.Go(func() {
				s, err := far.accept(ctx)
				if err != nil {
					t.Errorf("accepting: %v", err)
					return
				}
				if err := serveErrand(s); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

// testSeed returns a source of randomness whose seed the test's output has.
func testSeed(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// Both sides open 300 streams at once, more than the 100 that the other allows at a
// time: the limits have to grow, and each stream has its own bytes.
func TestInteropManyStreams(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{})
		errands(t, interopContext(t), testSeed(t), max(less(300), 120), 60<<10, c, s)
	})
}

// With windows of 32 KiB a stream and 64 KiB a connection on both sides, nearly every
// flight waits for credit.
func TestInteropSmallWindows(t *testing.T) {
	small := stackConfig{streamWindow: 32 << 10, connWindow: 64 << 10}
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, small, small)
		errands(t, interopContext(t), testSeed(t), 10, 500<<10, c, s)
	})
}

// A side that allows three streams gets no fourth, and one more for each that ends.
func TestInteropStreamLimits(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		few := stackConfig{bidi: 3, uni: 2}
		ctx := interopContext(t)
		c, s := connectStacks(t, client, server, few, few)
		for _, way := range []struct {
			name string
			a, b stackConn
		}{{"client opens", c, s}, {"server opens", s, c}} {
			t.Run(way.name, func(t *testing.T) {
				var open []stackStream
				for range 3 {
					st, err := way.a.open(ctx)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, st)
				}
				if v, ok := way.a.(volleyConn); ok {
					if _, err := v.OpenStream(); !errors.As(err, new(*StreamLimitReachedError)) {
						t.Fatalf("a fourth stream: %v", err)
					}
				}
				// Each that is done makes room for one more.
				for i := range 15 {
					next := make(chan stackStream, 1)
					go func() {
						st, err := way.a.open(ctx)
						if err != nil {
							t.Errorf("opening: %v", err)
						}
						next <- st
					}()
					served := make(chan error, 1)
					go func() {
						st, err := way.b.accept(ctx)
						if err == nil {
							err = serveErrand(st)
						}
						served <- err
					}()
					if err := (errand{uint64(i), 100, 100}).run(open[0]); err != nil {
						t.Fatal(err)
					}
					if err := <-served; err != nil {
						t.Fatal(err)
					}
					open = append(open[1:], <-next)
				}
			})
		}
	})
}

// A reset arrives with its code, and so does the wish for one.
func TestInteropResetAndStop(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{})
		ctx := interopContext(t)
		for _, way := range []struct {
			name string
			a, b stackConn
		}{{"client opens", c, s}, {"server opens", s, c}} {
			t.Run(way.name, func(t *testing.T) {
				for i := range 20 { // more bytes than a window, should any be forgotten
					out, err := way.a.open(ctx)
					if err != nil {
						t.Fatal(err)
					}
					p := patternOf(4, uint64(i))
					if _, err := out.Write(p.bytes(100_000)); err != nil {
						t.Fatal(err)
					}
					flush(out)
					in, err := way.b.accept(ctx)
					if err != nil {
						t.Fatal(err)
					}
					// The opener hears that the acceptor wants no more, while it writes;
					// and the acceptor, while it reads, that no more comes.
					in.stop(1000 + uint64(i))
					for {
						if _, err = out.Write(make([]byte, 100_000)); err != nil {
							break
						}
					}
					if code, remote := streamCode(err); !remote || code != 1000+uint64(i) {
						t.Fatalf("write ended with %v, want code %d from the peer", err, 1000+i)
					}
					// Now in the direction back.
					if _, err := in.Write(p.bytes(1000)); err != nil {
						t.Fatal(err)
					}
					flush(in)
					if _, err := io.ReadFull(out, make([]byte, 1000)); err != nil {
						t.Fatal(err)
					}
					in.reset(2000 + uint64(i))
					_, err = io.Copy(io.Discard, readOnly{out})
					if code, remote := streamCode(err); !remote || code != 2000+uint64(i) {
						t.Fatalf("read ended with %v, want code %d from the peer", err, 2000+i)
					}
				}
				errands(t, ctx, testSeed(t), 1, 4<<20, way.a, way.b)
			})
		}
	})
}

// flush sends what a stack that buffers has.
func flush(s stackStream) {
	if f, ok := s.(interface{ Flush() error }); ok {
		f.Flush()
	}
}

// A10: streams that the reader gives up after ten bytes cost nobody any credit, neither
// ours nor the other stack's: 200 of them are 20 times the connection's window.
func TestInteropCancelledStreamsGiveTheirBytesBack(t *testing.T) {
	window := stackConfig{streamWindow: 512 << 10, connWindow: 1 << 20}
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, window, window)
		ctx := interopContext(t)
		for _, way := range []struct {
			name string
			a, b stackConn
		}{{"client sends", c, s}, {"server sends", s, c}} {
			t.Run(way.name, func(t *testing.T) {
				const size = 100_000
				for i := range less(200) {
					out, err := way.a.openUni(ctx)
					if err != nil {
						t.Fatalf("opening stream %d: %v", i, err)
					}
					// It may be stopped before the last byte is written.
					if _, err := out.Write(patternOf(6, uint64(i)).bytes(size)); err == nil {
						out.closeWrite()
					} else if code, remote := streamCode(err); !remote || code != 9 {
						t.Fatalf("writing to stream %d: %v", i, err)
					}
					in, err := way.b.acceptUni(ctx)
					if err != nil {
						t.Fatalf("accepting stream %d: %v", i, err)
					}
					if _, err := io.ReadFull(in, make([]byte, 10)); err != nil {
						t.Fatal(err)
					}
					in.stop(9)
					in.release()
				}
				errands(t, ctx, testSeed(t), 1, 1<<20, way.a, way.b)
			})
		}
	})
}
