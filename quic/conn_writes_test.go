package quic

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// How writes turn into packets (design §5).

// A lone write on a quiet connection leaves before Write returns: no timer, no other
// goroutine.
func TestLoneWrite(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		s.Write([]byte("the first may take the way of the connection's goroutine"))
		p.settle()
		for _, text := range []string{"a", "lone", "write"} {
			off := p.watching.streams[p.yours(kind, 0)].highest
			if n, err := s.Write([]byte(text)); n != len(text) || err != nil {
				t.Fatal(n, err)
			}
			if d := p.sock.take(); len(d) != 1 {
				t.Fatalf("%d datagrams have left when Write returns", len(d))
			} else {
				p.hear(d[0])
			}
			p.wantFrame("what was written", wire.OneRTT, stream0(p.yours(kind, 0), off, text, false))
			p.wantIdle("and nothing else")
			p.settle()
		}
	})
}

// The first write of a stream takes no time either.
func TestFirstWrite(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		begin := time.Now()
		p.open(kind).Write([]byte("hello"))
		p.wantFrame("what was written", wire.OneRTT, stream0(p.yours(kind, 0), 0, "hello", false))
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

// wantText expects Volley's first stream to be text, in n datagrams at most.
func wantText(p *actor, kind int, text string, fin bool, n int) {
	p.Helper()
	p.collect()
	var ds []*sentDatagram
	for len(p.queue) > 0 {
		ds = append(ds, p.wantDatagram("data"))
	}
	if len(ds) > n || len(ds) == 0 {
		p.Errorf("%d datagrams, want %d at most: %v", len(ds), n, ds)
	}
	s := p.watching.streams[p.yours(kind, 0)]
	if s == nil {
		p.Fatal("nothing was sent")
	}
	if got := string(s.tape.data[:s.tape.prefix()]); got != text {
		p.Errorf("%q was sent, want %q", got, text)
	}
	if fin != (s.final == int64(len(text))) {
		p.Errorf("final size %d", s.final)
	}
}

// Small writes that come while something is on its way gather until the connection's
// goroutine runs. With one processor, that is when the writer is done.
func TestSmallWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, quiet := range []bool{true, false} {
		name := "quiet"
		if !quiet {
			name = "something is in flight"
		}
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name      string
				n         int
				text      string
				datagrams int
			}{
				{"5 writes of 2 bytes", 5, "ab", 2},
				{"100 writes of 20 bytes", 100, "twenty bytes of text", 3},
			} {
				t.Run(tt.name, func(t *testing.T) {
					eachKind(t, func(t *testing.T, volley role, kind int) {
						p := newActor(t, volley).handshake()
						s := p.open(kind)
						before := ""
						if !quiet {
							before = "before"
							s.Write([]byte(before))
							p.collect()
							p.queue = nil
						}
						for range tt.n {
							s.Write([]byte(tt.text))
						}
						wantText(p, kind, before+strings.Repeat(tt.text, tt.n), false, tt.datagrams)
					})
				})
			}
		})
	}
}

func TestWriteThenClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		s.Write([]byte("hello"))
		s.Close()
		wantText(p, kind, "hello", true, 2)
		p.settle()
		p.advance(10 * time.Second)
		p.wantIdle("no more than that")
		if _, err := s.Write([]byte("x")); !errors.Is(err, ErrStreamClosed) {
			t.Errorf("Write after Close returned %v", err)
		}
	})
}

func TestCloseWith(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		s.CloseWith([]byte("hello"))
		p.wantFrame("bytes and end in one frame", wire.OneRTT, stream0(p.yours(kind, 0), 0, "hello", true))
		p.wantIdle("one frame")
	})
}

func TestCork(t *testing.T) {
	eachKind(t, func(t *testing.T, volley role, kind int) {
		p := newActor(t, volley).handshake()
		s := p.open(kind)
		s.Cork()
		for _, text := range []string{"one ", "two ", "three"} {
			s.Write([]byte(text))
			p.wantIdle("the cork is in")
		}
		p.advance(100 * time.Millisecond)
		p.wantIdle("for a while")
		s.Uncork()
		p.wantFrame("all of it", wire.OneRTT, stream0(p.yours(kind, 0), 0, "one two three", false))
		p.wantIdle("in one frame")
		p.settle()

		s.Cork()
		s.Write([]byte(" four"))
		p.wantIdle("the cork is in")
		if d := p.advanceToSend(); d > 200*time.Millisecond {
			t.Errorf("a cork that is forgotten holds for %v", d)
		}
		p.wantFrame("not for ever", wire.OneRTT, stream0(p.yours(kind, 0), 13, " four", false))
		p.settle()

		s.Cork()
		s.Write([]byte(" end"))
		s.Close()
		p.wantFrame("Close lifts it", wire.OneRTT, stream0(p.yours(kind, 0), 18, " end", true))
	})
}

// A13: whatever the last call was, what is written next leaves.
func TestWakeUps(t *testing.T) {
	t.Run("an empty write", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			if n, err := s.Write(nil); n != 0 || err != nil {
				t.Fatal(n, err)
			}
			p.wantIdle("nothing was written")
			s.Write([]byte("x"))
			p.wantFrame("something was", wire.OneRTT, stream0(p.yours(kind, 0), 0, "x", false))
		})
	})
	t.Run("one byte more than a pass", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			for n := 12500; n < 12600; n += 7 {
				p := newActor(t, volley).handshake()
				s := p.open(kind)
				s.Write(make([]byte, n))
				p.advance(30 * time.Millisecond)
				p.ackAll()
				p.advance(30 * time.Millisecond)
				p.ackAll()
				if got := p.watching.total; got != int64(n) {
					t.Fatalf("%d of %d bytes have left", got, n)
				}
			}
		})
	})
	t.Run("write, then wait for an answer", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			s, _ := p.c.OpenStream()
			for range 500 {
				off := p.watching.total
				answer := start(func() (int, error) {
					s.Write([]byte("ask"))
					return s.Read(make([]byte, 1))
				})
				p.advance(time.Millisecond)
				if p.watching.total != off+3 {
					t.Fatalf("after %d bytes, the next do not leave", off)
				}
				p.writeFrames(wire.OneRTT, p.ackFrame(wire.OneRTT), stream0(s.recvID(), off/3, "!", false))
				if !answer.finished() {
					t.Fatal("the answer does not arrive")
				}
				p.queue = nil
			}
		})
	})
	t.Run("the socket takes a part", func(t *testing.T) {
		for k := range 10 {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley).handshake()
				s := p.open(uni)
				s.Write([]byte("first"))
				p.settle()
				taken := 0
				p.sock.setRefuse(func(int) error {
					if taken == k {
						return syscall.EAGAIN
					}
					taken++
					return nil
				})
				s.Write(make([]byte, 12000))
				p.advance(time.Millisecond)
				if taken != k {
					t.Fatalf("the socket took %d datagrams", taken)
				}
				p.sock.setRefuse(nil)
				p.advance(31 * time.Millisecond)
				p.ackAll()
				p.advance(31 * time.Millisecond)
				if got := p.watching.total; got != 12005 {
					t.Errorf("%d bytes have left", got)
				}
				if st := p.c.ConnectionStats(); st.PacketsLost > 0 {
					t.Errorf("%d packets are held to be lost", st.PacketsLost)
				}
			})
		}
	})
	t.Run("the system has no buffers", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			s := p.open(uni)
			n := 0
			p.sock.setRefuse(func(int) error {
				if n++; n%3 != 0 {
					return syscall.ENOBUFS
				}
				return nil
			})
			w := start(func() (int, error) { return s.Write(make([]byte, 100<<10)) })
			p.ackUntil(w.finished)
			p.sock.setRefuse(nil)
			for range 20 {
				p.advance(10 * time.Millisecond)
				p.ackAll()
			}
			if got := p.watching.streams[p.yours(uni, 0)].tape.prefix(); got != 100<<10 {
				t.Errorf("%d bytes have left", got)
			}
		})
	})
}

func (s *Stream) recvID() int64 { return s.ReceiveStream.recv.ID() }

// A16: datagrams that the system calls too large leave in smaller ones, which is neither
// an error nor a loss.
func TestDatagramsTooLarge(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		s := p.open(uni)
		p.sock.setRefuse(func(n int) error {
			if n > 1200 {
				return syscall.EMSGSIZE
			}
			return nil
		})
		data := bytes.Repeat([]byte("0123456789"), 1000)
		s.CloseWith(data)
		for range 5 {
			p.advance(10 * time.Millisecond)
			p.ackAll()
		}
		p.wantAlive("it goes on with 1200 bytes")
		got := p.watching.streams[p.yours(uni, 0)]
		if got == nil || !bytes.Equal(got.tape.data[:got.tape.prefix()], data) || got.final != int64(len(data)) {
			t.Fatal("not everything has come")
		}
		if st := p.c.ConnectionStats(); st.PacketsLost > 0 {
			t.Errorf("%d packets are held to be lost", st.PacketsLost)
		}
	})
}

// A04: of what Write says that it did not take, nothing is ever sent.
func TestWriteDeadline(t *testing.T) {
	t.Run("past", func(t *testing.T) {
		eachKind(t, func(t *testing.T, volley role, kind int) {
			p := newActor(t, volley).handshake()
			s := p.open(kind)
			s.SetWriteDeadline(time.Now().Add(-time.Second))
			if n, err := s.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write returned %d, %v", n, err)
			}
			p.advance(time.Second)
			p.wantIdle("not a byte")
			s.SetWriteDeadline(time.Time{})
			s.Write([]byte("y"))
			p.wantFrame("the stream is as before", wire.OneRTT, stream0(p.yours(kind, 0), 0, "y", false))
		})
	})
	t.Run("while blocked", func(t *testing.T) {
		for _, unbuffered := range []bool{false, true} {
			eachKind(t, func(t *testing.T, volley role, kind int) {
				p := newActor(t, volley, credit(10_000, 1<<20)).handshake()
				s := p.open(kind)
				if unbuffered {
					s.SetWriteBuffer(0, 0)
				}
				data := make([]byte, 200_000)
				for i := range data {
					data[i] = byte(i * i >> 8)
				}
				rest := data
				for n := int64(0); len(rest) > 0; n++ {
					s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
					k, err := s.Write(rest)
					if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatal(err)
					}
					rest = rest[k:]
					p.ackAll()
					p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: p.yours(kind, 0), Max: 10_000 * (n + 2)})
					if n > 100 {
						t.Fatal("no progress")
					}
				}
				s.Close()
				p.writeFrames(wire.OneRTT, wire.MaxStreamData{ID: p.yours(kind, 0), Max: 1 << 20})
				for range 50 {
					p.advance(10 * time.Millisecond)
					p.ackAll()
				}
				got := p.watching.streams[p.yours(kind, 0)]
				if !bytes.Equal(got.tape.data[:got.tape.prefix()], data) || got.final != int64(len(data)) {
					t.Error("what was sent is not what was written")
				}
			})
		}
	})
}
