package sender

import (
	"bytes"
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// 0-RTT packets carry streams as 1-RTT packets do, with long headers; a flight that was
// begun with one kind stays with it.
func TestEarlyFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t, setup{dst: 4})
		secret := bytes.Repeat([]byte{9}, 32)
		sealer, err := protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, secret, wire.Version1)
		if err != nil {
			t.Fatal(err)
		}
		var lens []int
		c.look = func(f *Flight) {
			lens = append(lens, f.hdr)
			for i := range f.n {
				end := min((i+1)*f.size, f.total)
				long := f.buf[i*f.size]&0x80 != 0
				if long != (f.early != nil) {
					t.Error("a header of the other kind")
				}
				if long {
					h, err := wire.ParseLong(f.buf[i*f.size : end])
					if err != nil || h.Type != wire.ZeroRTT || h.Len != end-i*f.size || h.PNOffset != f.hdr-f.pnLen {
						t.Errorf("%+v, %v", h, err)
					}
				}
			}
		}
		c.peer.mute = true // it has no keys for 0-RTT
		c.do(func() { c.x.StartEarly(sealer, wire.Version1, []byte{1, 2, 3, 4}, []byte{5, 6, 7}) })
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(emit.Tuning{Mode: emit.Single}) })
		src := c.source(s, 100_000)
		src.answer = func(k call) (int, error) {
			if len(src.calls) == 5 {
				c.do(func() { c.x.Start(c.peer.writes, c.peer.id) }) // the handshake is complete
			}
			return src.all(k)
		}
		a := c.begin(s, src, 0, -1)
		for range 10 {
			c.step(a)
		}
		if len(lens) < 2 || lens[0] == lens[len(lens)-1] {
			t.Errorf("header lengths: %v", lens)
		}
		// A rejection forgets the flight that is being built, and what waits.
		c.do(func() { c.x.StartEarly(sealer, wire.Version1, []byte{1, 2, 3, 4}, []byte{5, 6, 7}) })
		flights := len(lens)
		src.answer = func(k call) (int, error) {
			c.do(func() {
				c.x.StopEarly()
				s.ConnClosed(io.EOF)
				c.x.StopEarly()
			})
			return src.all(k)
		}
		c.step(a)
		if len(lens) != flights {
			t.Error("a flight left that was rejected")
		}
		c.do(func() {
			if !c.x.MayClose() || c.x.Unsent() != 0 {
				t.Error("the token or bytes are left behind")
			}
			c.x.Start(c.peer.writes, c.peer.id)
			c.x.SetCredit(plenty)
		})
		a.leave(false)
		c.peer.mute = false
		next := c.open(4, plenty)
		next.CloseWith(bytesOf(4, 0, 50_000))
		c.run()
		c.whole(4, 50_000, true)
	})
}

// handshakeData owns the bytes of a crypto stream.
type handshakeData struct{ acked, lost int }

func (d *handshakeData) OnAcked(_ int64, n int, _ bool) { d.acked += n }
func (d *handshakeData) OnLost(_ int64, n int, _ bool)  { d.lost += n }

func TestCryptoFrames(t *testing.T) {
	c := newConn(t, setup{dst: 4, size: 1200})
	c.x.trace = nil
	data := &handshakeData{}
	p := bytesOf(0, 0, 5000)
	f := c.x.newFlight(1200, 3)
	off := 0
	for off < len(p) {
		n := f.Crypto(data, int64(off), p[off:])
		if n == 0 {
			break
		}
		off += n
	}
	if off < 3*1100 || off >= 3*1200 {
		t.Errorf("%d bytes in three datagrams", off)
	}
	c.do(func() {
		c.x.take()
		c.x.send(f, time.Now())
		c.x.release()
	})
	got := 0
	for _, p := range c.take() {
		for _, f := range p.frames {
			f, ok := f.(wire.Crypto)
			if !ok {
				continue // PADDING
			}
			if !bytes.Equal(f.Data, bytesOf(0, f.Off, len(f.Data))) {
				t.Error("other bytes")
			}
			got += len(f.Data)
		}
	}
	c.acked(c.pns()...)
	if got != off || data.acked != off {
		t.Errorf("%d sent, %d arrived, %d acknowledged", off, got, data.acked)
	}
}

// An urgent byte that is written during bulk is in the next flight, first.
func TestUrgentStreamGoesFirst(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	c.cc.bytes = 40 * 1452
	bulk, urgent := c.open(0, plenty), c.open(4, plenty)
	c.do(func() { c.x.SetPriority(urgent.st, 0, true) })
	bulk.SetWriteBuffer(1<<20, 2<<20)
	bulk.Write(bytesOf(0, 0, 1<<20))
	c.run()
	c.take()
	urgent.Write(bytesOf(4, 0, 100))
	c.acked(c.pns()...)
	c.x.Run(1)
	if f := c.take()[0].frames[0].(wire.Stream); f.ID != 4 {
		t.Errorf("first %v", f)
	}
}

// Keys that may seal no more close the connection, and nothing more is sealed.
func TestKeysThatAreWornOut(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	c.do(func() { c.peer.writes.Sent(0, 1<<23) })
	s.Write(bytesOf(0, 0, 100))
	c.run()
	if len(c.take()) > 0 {
		t.Error("sealed")
	}
	c.do(func() {
		if c.x.ready {
			t.Error("goes on")
		}
	})
}

// Anti-amplification holds back even an ACK.
func TestAmplification(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	c.do(func() {
		c.amp, c.ackDue, c.ack = 1451, true, ackOf([]int64{1})
	})
	s.Write(bytesOf(0, 0, 10_000))
	c.run()
	if ps := c.take(); len(ps) > 0 {
		t.Errorf("%v", ps)
	}
	c.do(func() { c.amp = 3 * 1452 })
	c.x.Run(1)
	if ps := c.take(); len(ps) != 3 {
		t.Errorf("%d datagrams", len(ps))
	}
}

// An ACK alone is not held back by the window, and does not count against it.
func TestAckAlone(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	c.do(func() {
		c.cc.bytes, c.ackDue, c.ack = 0, true, ackOf([]int64{1})
		c.control = append(c.control, due{wire.Ping{}, recovery.Frame{}})
	})
	c.run()
	ps := c.take()
	if len(ps) != 1 || len(ps[0].frames) != 1 || c.rec.BytesInFlight() != 0 {
		t.Errorf("%v, %d bytes in flight", ps, c.rec.BytesInFlight())
	}
}

// The counters tell of calls of the kernel that took something.
func TestStats(t *testing.T) {
	c := newConn(t, setup{dst: 4})
	s := c.open(0, plenty)
	s.Write(bytesOf(0, 0, 60_000))
	c.run()
	flights, datagrams, total := len(c.calls()), 0, 0
	for _, p := range c.take() {
		datagrams++
		total += p.size
	}
	if st := c.x.Stats(); c.sock.CanGSO() && st.Flights != uint64(flights) || st.Datagrams != uint64(datagrams) || st.Bytes != uint64(total) {
		t.Errorf("%+v; %d calls, %d datagrams, %d bytes", st, flights, datagrams, total)
	}
}

// A mode that the source cannot serve falls back to Scatter, and Stats says so.
func TestFallbacks(t *testing.T) {
	for _, mode := range []emit.Mode{emit.Auto, emit.Scatter, emit.Single, emit.Lend, emit.Vector} {
		c := newConn(t, setup{dst: 4})
		s := c.open(0, plenty)
		c.do(func() { s.st.SetTuning(emit.Tuning{Mode: mode}) })
		src := c.source(s, 50_000)
		a := &asker{st: s.st, src: src}
		if err := s.BeginSource(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.begin(0, -1)
		if err := c.finish(a); err != nil {
			t.Fatal(err)
		}
		c.whole(0, 50_000, false)
		st := s.st.Stats()
		want := mode
		if mode != emit.Single {
			want = emit.Scatter
		}
		if fell := mode == emit.Lend || mode == emit.Vector; st.Mode != want || fell != (st.Fallbacks == 1) || fell != (st.FallbackReason != "") {
			t.Errorf("%v: %+v", mode, st)
		}
		if reread := mode == emit.Single; a.reread != reread {
			t.Errorf("%v: reread is %v", mode, a.reread)
		}
	}
}
