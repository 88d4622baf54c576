package quic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
)

// unsent is how many bytes a stream, and its connection, hold that are in no packet yet.
func unsent(s *SendStream) (stream, conn int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.send.Unsent(), s.conn.snd.Unsent()
}

// A14, M3: whatever way bytes come in by, against a peer that reads nothing, no more is
// held than the high watermark and one piece. It goes on when the peer reads, and the
// channel of Writable tells, once for each fall to the low watermark.
func TestNetworkWatermarksBoundWhatIsHeld(t *testing.T) {
	const high, low, window = 64 << 10, 16 << 10, 32 << 10
	size := less[int64](4 << 20)
	feed := func(piece int) []struct {
		name  string
		write func(s *SendStream, p pattern) error
		piece int // what may be held on top
		asked bool
	} {
		pieces := func(f func(b []byte) error) func(s *SendStream, p pattern) error {
			return func(s *SendStream, p pattern) error {
				for off := int64(0); off < size; {
					b := make([]byte, min(int64(piece), size-off))
					p.fill(b, off)
					if err := f(b); err != nil {
						return err
					}
					off += int64(len(b))
				}
				return s.Close()
			}
		}
		return []struct {
			name  string
			write func(s *SendStream, p pattern) error
			piece int
			asked bool
		}{
			{"write", func(s *SendStream, p pattern) error {
				return pieces(func(b []byte) error { _, err := s.Write(b); return err })(s, p)
			}, 0, false},
			{"buffers", func(s *SendStream, p pattern) error {
				return pieces(func(b []byte) error {
					_, err := s.WriteBuffers(&net.Buffers{b[:len(b)/2], b[len(b)/2:]})
					return err
				})(s, p)
			}, 0, false},
			{"owned", func(s *SendStream, p pattern) error {
				return pieces(func(b []byte) error { _, err := s.WriteOwned(b, nil); return err })(s, p)
			}, piece, false},
			{"copy", func(s *SendStream, p pattern) error {
				if _, err := io.Copy(s, p.reader(size)); err != nil {
					return err
				}
				return s.Close()
			}, 0, true},
			{"emit", func(s *SendStream, p pattern) error {
				_, err := s.SendFrom(context.Background(), p.source(size), 0, size, emit.End())
				return err
			}, 0, true},
		}
	}
	for _, piece := range []int{100, 1 << 10, 1 << 20} {
		for _, f := range feed(piece) {
			for _, loss := range []float64{0, 0.05} {
				t.Run(fmt.Sprintf("%s, %d bytes, loss %v", f.name, piece, loss), func(t *testing.T) {
					virtual(t, func(w *world) {
						conf := patient()
						conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = window, window
						c, s := w.connect(patient(), conf)
						w.up.set(func(d *direction) { d.lose = loss })
						out, err := c.OpenUniStream()
						if err != nil {
							t.Fatal(err)
						}
						if err := out.SetWriteBuffer(low, high); err != nil {
							t.Fatal(err)
						}
						p := patternOf(19, uint64(piece))
						done := make(chan error, 1)
						go func() { done <- f.write(out, p) }()
						in, err := s.AcceptUniStream(w.Context())
						if err != nil {
							t.Fatal(err)
						}
						check := p.checker()
						most := 0
						for check.n < size {
							time.Sleep(500 * time.Millisecond)
							n, _ := unsent(out)
							most = max(most, n)
							if _, err := io.CopyN(check, readOnly{in}, min(100_000, size-check.n)); err != nil {
								t.Fatal(err)
							}
						}
						if most > high+f.piece {
							t.Errorf("%d bytes were held", most)
						}
						// A source is asked for what may leave, and no more.
						if f.asked == (most > 0) {
							t.Errorf("%d bytes were held", most)
						}
						if err := <-done; err != nil {
							t.Fatal(err)
						}
					})
				})
			}
		}
	}
}

// Writable's channel is closed once for each fall to the low watermark, and not before.
// Limits that change while a writer waits hold at once.
func TestNetworkWritable(t *testing.T) {
	virtual(t, func(w *world) {
		conf := patient()
		conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 1000, 1000
		c, s := w.connect(patient(), conf)
		out, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		open := func() bool {
			select {
			case <-out.Writable():
				return true
			default:
				return false
			}
		}
		if !open() {
			t.Error("an empty stream is not writable")
		}
		if err := out.SetWriteBuffer(2000, 8000); err != nil {
			t.Fatal(err)
		}
		p := patternOf(20, 0)
		data := p.bytes(100_000)
		if n, err := out.Write(data[:8000]); n != 8000 || err != nil { // 1000 of them leave
			t.Fatalf("write: %d, %v", n, err)
		}
		in, err := s.AcceptUniStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		check := p.checker()
		read := func(n int64) {
			if _, err := io.CopyN(check, readOnly{in}, n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		ch := out.Writable()
		if open() {
			t.Error("writable at the high watermark")
		}
		read(4000) // leaves 3000: more than low
		if open() {
			t.Error("writable above the low watermark")
		}
		read(1000)
		select {
		case <-ch:
		default:
			t.Error("not told at the low watermark")
		}

		// Raising the limits lets a writer go on, lowering them stops it.
		wrote := make(chan int, 1)
		go func() {
			n, err := out.Write(data[8000:50_000])
			if err != nil {
				t.Error(err)
			}
			wrote <- n
		}()
		time.Sleep(time.Second)
		if n, _ := unsent(out); n > 8000 {
			t.Errorf("%d bytes are held", n)
		}
		out.SetWriteBuffer(10_000, 20_000)
		time.Sleep(time.Second)
		if n, _ := unsent(out); n < 15_000 || n > 20_000 {
			t.Errorf("with larger limits %d bytes are held", n)
		}
		out.SetWriteBuffer(100, 5000)
		read(10_000)
		if n, _ := unsent(out); n > 10_500 {
			t.Errorf("with smaller limits %d bytes are held", n)
		}
		out.SetWriteBuffer(100_000, 200_000)
		time.Sleep(time.Second)
		if n := <-wrote; n != 42_000 {
			t.Errorf("wrote %d bytes", n)
		}
		go out.Close()
		for check.n < 50_000 {
			read(1000)
		}
		if _, err := in.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
	})
}

// M4: many streams against a peer that reads nothing hold no more together than the
// connection's limit, and what each may have anyway.
func TestNetworkManyStreamsBoundWhatIsHeld(t *testing.T) {
	const n, most, each = 90, 1 << 20, 4 << 10
	virtual(t, func(w *world) {
		conf := patient()
		conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 1000, 1<<20
		c, s := w.connect(patient(), conf)
		done := make(chan error, n)
		for i := range n {
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- waysToSend[0].send(out, patternOf(21, uint64(i)), 200_000) }()
		}
		time.Sleep(10 * time.Second)
		c.mu.Lock()
		held := c.snd.Unsent()
		c.mu.Unlock()
		if held > most+n*each || held < most/2 {
			t.Errorf("%d bytes are held", held)
		}
		// A stream that comes now, and is read, is not held up by those that are not.
		urgent, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		go waysToSend[0].send(urgent, patternOf(21, n), 20_000)
		streams := make([]*ReceiveStream, n+1)
		for i := range streams {
			if streams[i], err = s.AcceptUniStream(w.Context()); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		if err := patternOf(21, n).check(streams[n], 20_000); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("it took %v", d)
		}
		for i, in := range streams[:n] {
			go func() { done <- patternOf(21, uint64(i)).check(in, 200_000) }()
		}
		for range 2 * n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// A13: an idle connection sends what it is given, whatever was written before: nothing,
// a byte, a flight and a bit; 10,000 rounds in which nothing else wakes anybody.
func TestNetworkEveryWriteLeaves(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(patient(), patient())
		out, err := c.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		out.Write([]byte{0})
		in, err := s.AcceptStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1<<20)
		in.Read(b)
		time.Sleep(time.Second)
		for round := range 10_000 {
			var size int
			switch w.rnd.IntN(4) {
			case 0:
				size = 1
			case 1:
				size = 1 + w.rnd.IntN(100)
			case 2:
				size = 1200 + w.rnd.IntN(100)
			case 3:
				size = 10*1250 + w.rnd.IntN(1000) - 500
			}
			p := patternOf(22, uint64(round))
			data := p.bytes(size)
			from, to := out, in
			if w.rnd.IntN(2) == 0 {
				from, to = in, out
			}
			begin := time.Now()
			if n, err := from.Write(nil); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			for rest := data; len(rest) > 0; {
				n := len(rest)
				if w.rnd.IntN(3) == 0 {
					n = 1 + w.rnd.IntN(n)
				}
				if _, err := from.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			// The writer waits in Read now, for the answer.
			if _, err := io.ReadFull(to, b[:size]); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b[:size], data) {
				t.Fatalf("round %d: %d bytes are not what was written", round, size)
			}
			if d := time.Since(begin); d > 40*time.Millisecond {
				t.Fatalf("round %d: %d bytes took %v", round, size, d)
			}
		}
	})
}

// deno#20569: a flight is one system call's worth, and a lone write leaves with no timer:
// bytes that are written together leave together.
func TestNetworkSmallWrites(t *testing.T) {
	// How many packets small writes become depends on who runs when: here, one at a time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tests := []struct {
		name  string
		write func(w *world, c *Conn, s *SendStream)
		most  int           // datagrams
		after time.Duration // that the last of them leaves
	}{
		{"a lone byte", func(w *world, c *Conn, s *SendStream) { s.Write([]byte("x")) }, 1, 0},
		{"5 writes of 2 bytes", func(w *world, c *Conn, s *SendStream) {
			for range 5 {
				s.Write([]byte("xx"))
			}
		}, 2, 0},
		{"100 writes of 20 bytes", func(w *world, c *Conn, s *SendStream) {
			for range 100 {
				s.Write(make([]byte, 20))
			}
		}, 3, 0},
		{"cork, 3 writes, uncork", func(w *world, c *Conn, s *SendStream) {
			s.Cork()
			for range 3 {
				s.Write(make([]byte, 20))
			}
			s.Uncork()
		}, 1, 0},
		{"cork and forget", func(w *world, c *Conn, s *SendStream) {
			s.Cork()
			for range 3 {
				s.Write(make([]byte, 20))
			}
		}, 1, 200 * time.Millisecond},
		{"an empty write between", func(w *world, c *Conn, s *SendStream) {
			s.Write([]byte("a"))
			s.Write(nil)
			s.Write([]byte("b"))
		}, 2, 0},
		{"close with", func(w *world, c *Conn, s *SendStream) { s.CloseWith(make([]byte, 100)) }, 1, 0},
		{"write and close", func(w *world, c *Conn, s *SendStream) { s.Write(make([]byte, 100)); s.Close() }, 2, 0},
		{"100 bytes on each of 90 streams", func(w *world, c *Conn, s *SendStream) { // L3: 10 frames a packet
			for range 90 {
				if s, err := c.OpenUniStream(); err == nil {
					s.Write(make([]byte, 100))
				}
			}
		}, 9, 20 * time.Millisecond}, // the pacer's
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				c, _ := w.connect(patient(), patient())
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // the connection is quiet
				out.Write([]byte("the first"))
				time.Sleep(time.Second)
				// Its receiver says nothing in between that would have to be acknowledged.
				before, begin := w.up.now().sent, time.Now()
				tt.write(w, c, out)
				time.Sleep(15 * time.Millisecond)
				if tt.after == 0 && w.up.now().sent == before {
					t.Error("nothing has left")
				}
				time.Sleep(time.Second)
				after := w.up.now()
				if n := after.sent - before; n > tt.most {
					t.Errorf("it took %d datagrams", n)
				}
				if d := after.last.Sub(begin); d > tt.after {
					t.Errorf("the last left after %v", d)
				}
			})
		})
	}
}
