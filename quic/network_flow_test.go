package quic

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// A10: the bytes of streams that were cancelled, reset or never accepted are given back
// to the connection's window, read or not: 200 of them, 20 times the window, and the
// last stream is served as the first.
func TestNetworkCancelledStreamsGiveTheirBytesBack(t *testing.T) {
	const size = 100_000
	variants := []struct {
		name string
		// stream has the sender send, and the receiver give up, one stream.
		stream func(w *world, from, to *Conn, i int)
	}{
		{"read 10 bytes and cancel", func(w *world, from, to *Conn, i int) {
			_, in := w.halfSent(from, to, i, size)
			io.ReadFull(in, make([]byte, 10))
			in.CancelRead(1)
		}},
		{"cancel after the end is there", func(w *world, from, to *Conn, i int) {
			out, in := w.halfSent(from, to, i, size)
			out.Close()
			time.Sleep(100 * time.Millisecond)
			in.CancelRead(1)
		}},
		{"read 10 bytes, then a reset", func(w *world, from, to *Conn, i int) {
			out, in := w.halfSent(from, to, i, size)
			io.ReadFull(in, make([]byte, 10))
			out.CancelWrite(2)
			io.Copy(io.Discard, readOnly{in})
		}},
		{"cancel, then a reset", func(w *world, from, to *Conn, i int) {
			out, in := w.halfSent(from, to, i, size)
			in.CancelRead(1)
			out.CancelWrite(2)
		}},
		{"a reset, then cancel", func(w *world, from, to *Conn, i int) {
			out, in := w.halfSent(from, to, i, size)
			out.CancelWrite(2)
			time.Sleep(20 * time.Millisecond)
			in.CancelRead(1)
		}},
		{"cancel before the bytes are there", func(w *world, from, to *Conn, i int) {
			out, in := w.halfSent(from, to, i, 1)
			in.CancelRead(1)
			p := patternOf(13, uint64(i))
			out.Write(p.bytes(size)) // fails when STOP_SENDING is there
			out.Close()
		}},
		{"a read deadline, then cancel", func(w *world, from, to *Conn, i int) {
			_, in := w.halfSent(from, to, i, size)
			in.SetReadDeadline(time.Now().Add(time.Millisecond))
			for {
				if _, err := in.Read(make([]byte, 1000)); err != nil {
					break
				}
			}
			in.CancelRead(1)
		}},
		{"never accepted, and reset", func(w *world, from, to *Conn, i int) {
			out, err := from.OpenUniStreamSync(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			out.Write(make([]byte, size))
			out.CancelWrite(2)
			time.Sleep(50 * time.Millisecond)
			in, err := to.AcceptUniStream(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			in.Read(make([]byte, 1)) // or the stream is never over
		}},
	}
	for _, v := range variants {
		for _, loss := range []float64{0, 0.02} {
			t.Run(fmt.Sprintf("%s, loss %v", v.name, loss), func(t *testing.T) {
				virtual(t, func(w *world) {
					conf := patient()
					conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 512<<10, 512<<10
					conf.InitialConnectionReceiveWindow, conf.MaxConnectionReceiveWindow = 1<<20, 1<<20
					c, s := w.connect(conf, conf)
					w.both(func(d *direction) { d.lose = loss })
					for _, dir := range [][2]*Conn{{c, s}, {s, c}} {
						for i := range less(200) {
							v.stream(w, dir[0], dir[1], i)
						}
						within := 2 * time.Second
						if loss > 0 {
							within = 6 * time.Second
						}
						if took := w.transfer(dir[0], dir[1], waysToSend[0].send, patternOf(14, 0), 1<<20); took > within {
							t.Errorf("the last stream took %v", took)
						}
					}
				})
			})
		}
	}
}

// halfSent opens a stream on which size bytes were written.
func (w *world) halfSent(from, to *Conn, i, size int) (*SendStream, *ReceiveStream) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	out, err := from.OpenUniStreamSync(ctx)
	if err != nil {
		w.Fatalf("opening stream %d: %v", i, err)
	}
	out.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := out.Write(patternOf(13, uint64(i)).bytes(size)); err != nil {
		w.Fatalf("writing to stream %d: %v", i, err)
	}
	in, err := to.AcceptUniStream(ctx)
	if err != nil {
		w.Fatalf("accepting stream %d: %v", i, err)
	}
	return out, in
}

// A11: the packets that carry credit are lost, and with nothing else to say the receiver
// says it again.
func TestNetworkLostCreditComesAgain(t *testing.T) {
	// loseNext loses the next n datagrams.
	loseNext := func(d *direction, n int) {
		d.set(func(d *direction) {
			d.hook = func(int, []byte) fate {
				if n--; n >= 0 {
					return lose
				}
				return keep
			}
		})
	}
	for _, tt := range []struct {
		name         string
		stream, conn uint64
	}{
		{"MAX_STREAM_DATA", 32 << 10, 1 << 20},
		{"MAX_DATA", 1 << 20, 64 << 10},
	} {
		for lost := range 6 {
			t.Run(fmt.Sprintf("%s, %d lost", tt.name, lost), func(t *testing.T) {
				virtual(t, func(w *world) {
					conf := patient()
					conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = tt.stream, tt.stream
					conf.InitialConnectionReceiveWindow, conf.MaxConnectionReceiveWindow = tt.conn, tt.conn
					c, s := w.connect(patient(), conf)
					p := patternOf(15, 0)
					const size = 200_000
					out, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					sent := make(chan error, 1)
					go func() { sent <- waysToSend[0].send(out, p, size) }()
					in, err := s.AcceptUniStream(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					check := p.checker()
					window := int64(min(tt.stream, tt.conn))
					for check.n < size {
						time.Sleep(time.Second) // the window is full, and all acknowledged
						loseNext(w.down, lost)
						// One read of all that is there: the receiver does nothing after.
						if _, err := io.CopyN(check, readOnly{in}, min(window, size-check.n)); err != nil {
							t.Fatal(err)
						}
						begin := time.Now()
						if check.n < size {
							if _, err := in.Peek(make([]byte, 1)); err != nil {
								t.Fatal(err)
							}
						}
						// Twice as many probe timeouts, doubling, as were lost at worst.
						if d := time.Since(begin); d > 50*time.Millisecond<<lost*4 {
							t.Errorf("credit came after %v", d)
						}
					}
					if err := <-sent; err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
	for lost := range 6 {
		t.Run(fmt.Sprintf("MAX_STREAMS, %d lost", lost), func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := patient()
				conf.MaxIncomingUniStreams = 1
				c, s := w.connect(patient(), conf)
				for i := range 5 {
					out, err := c.OpenUniStreamSync(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					p := patternOf(15, uint64(i))
					if _, err := out.CloseWith(p.bytes(1000)); err != nil {
						t.Fatal(err)
					}
					in, err := s.AcceptUniStream(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					loseNext(w.down, lost)
					if err := p.check(in, 1000); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A11, black box: everything that the receiver says is lost with a probability of 30 %.
func TestNetworkSmallWindowsUnderLoss(t *testing.T) {
	for range 100 {
		virtual(t, func(w *world) {
			conf := patient()
			conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 32<<10, 32<<10
			conf.InitialConnectionReceiveWindow, conf.MaxConnectionReceiveWindow = 64<<10, 64<<10
			c, s := w.connect(patient(), conf)
			w.down.set(func(d *direction) { d.lose = 0.3 })
			if took := w.transfer(c, s, waysToSend[w.rnd.IntN(len(waysToSend))].send, patternOf(16, 0), 300_000); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// D5: a stream whose window is smaller than any piece that is written makes progress by
// parts, whatever the way to send.
func TestNetworkTinyWindows(t *testing.T) {
	for _, window := range []uint64{1, 100, 1300, 5000} {
		for _, way := range waysToSend {
			t.Run(fmt.Sprintf("%d/%s", window, way.name), func(t *testing.T) {
				virtual(t, func(w *world) {
					conf := patient()
					conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = window, window
					c, s := w.connect(patient(), conf)
					size := int64(window) * 20
					// A window in two round trips, and the delay of the ACK.
					if took := w.transfer(c, s, way.send, patternOf(17, window), size); took > 40*65*time.Millisecond {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// Bytes that a source gave and that flow control holds up are asked for no second time.
func TestNetworkSourceIsAskedOnce(t *testing.T) {
	virtual(t, func(w *world) {
		conf := patient()
		conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 7777, 7777
		c, s := w.connect(patient(), conf)
		w.up.set(func(d *direction) { d.lose = 0.05 })
		var ends []int64
		p := patternOf(18, 0)
		src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
			if n := len(ends); n > 0 && ends[n-1] != off {
				t.Errorf("asked for offset %d after %d", off, ends[n-1])
			}
			n, err := p.source(300_000).ReadAt(dst, off)
			n = min(n, 1+w.rnd.IntN(len(dst)))
			if n < len(dst) && off+int64(n) < 300_000 {
				err = nil
			}
			ends = append(ends, off+int64(n))
			return n, err
		})
		way := func(st *SendStream, p pattern, size int64) error {
			_, err := st.SendFrom(w.Context(), src, 0, size, emit.End())
			return err
		}
		w.transfer(c, s, way, p, 300_000)
	})
}
