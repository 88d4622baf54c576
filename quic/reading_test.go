package quic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/scheduler"
)

// A talk is one stream between a client and a server, over which they have said a word each
// so often that the callers of both may stand in for their readers.
type talk struct {
	*world
	c, s     *Conn
	own, far *Stream // the client's end and the server's
}

func talking(t *testing.T, f func(w *talk)) {
	t.Helper()
	virtual(t, func(w *world) {
		k := &talk{world: w}
		k.c, k.s = w.connect(patient(), patient())
		var err error
		if k.own, err = k.c.OpenStream(); err != nil {
			w.Fatal(err)
		}
		k.own.Write([]byte{0})
		if k.far, err = k.s.AcceptStream(w.Context()); err != nil {
			w.Fatal(err)
		}
		word(w.T, k.far)
		k.goOn()
		for _, side := range []struct {
			name string
			*Transport
		}{{"client", w.client}, {"server", w.server}} {
			if n := side.reading.visits.Load(); n == 0 {
				w.Fatalf("no caller of the %s's has stood in for the reader", side.name)
			}
		}
		f(k)
	})
}

// goOn has both say so many words that their callers may stand in.
func (k *talk) goOn() {
	k.Helper()
	const words = 4 * mayStandIn
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		for range words {
			k.far.Write(word(k.T, k.far))
		}
	}()
	for range words {
		k.own.Write([]byte{7})
		word(k.T, k.own)
	}
	<-echoed
}

// word reads a byte.
func word(t *testing.T, s io.Reader) []byte {
	t.Helper()
	b := make([]byte, 1)
	if _, err := io.ReadFull(s, b); err != nil {
		t.Errorf("reading a word: %v", err)
	}
	return b
}

// standsIn begins a call that waits, in the socket, and returns what it will return.
func (k *talk) standsIn(r *reading, call func() error) <-chan error {
	k.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	synctest.Wait()
	if r.state.Load() != atStandIn {
		k.Fatal("the call does not wait in the socket")
	}
	return done
}

// now wants an outcome without any virtual time passing.
func (k *talk) now(done <-chan error) error {
	k.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		return err
	default:
		k.Fatal("the call still waits")
		return nil
	}
}

func readOne(r io.Reader) func() error {
	return func() error {
		_, err := r.Read(make([]byte, 1))
		return err
	}
}

// A call that waits in the socket ends for every reason for which it ends elsewhere.
func TestReadingWaitEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(k *talk)
		want func(error) bool
	}{
		{"by a deadline that is set meanwhile", func(k *talk) { k.own.SetReadDeadline(time.Now()) },
			func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }},
		{"by CancelRead", func(k *talk) { k.own.CancelRead(3) },
			func(err error) bool { var e *StreamError; return errors.As(err, &e) && e.ErrorCode == 3 && !e.Remote }},
		{"by CloseWithError", func(k *talk) { k.c.CloseWithError(4, "bye") },
			func(err error) bool {
				var e *ApplicationError
				return errors.As(err, &e) && e.ErrorCode == 4 && !e.Remote
			}},
		{"by the transport's Close", func(k *talk) { k.client.Close() },
			func(err error) bool { return errors.Is(err, ErrTransportClosed) }},
		{"by the end of the socket", func(k *talk) { k.client.Conn.Close() },
			func(err error) bool { return errors.Is(err, ErrTransportClosed) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			talking(t, func(k *talk) {
				done := k.standsIn(&k.client.reading, readOne(k.own))
				tt.end(k)
				if err := k.now(done); !tt.want(err) {
					t.Errorf("it returns %v", err)
				}
			})
		})
	}

	for _, tt := range []struct {
		name string
		end  func(k *talk)
		want func(error) bool
	}{
		{"by data", func(k *talk) { k.far.Write([]byte{1}) }, func(err error) bool { return err == nil }},
		{"by FIN", func(k *talk) { k.far.Close() }, func(err error) bool { return err == io.EOF }},
		{"by a reset", func(k *talk) { k.far.CancelWrite(5) },
			func(err error) bool { var e *StreamError; return errors.As(err, &e) && e.ErrorCode == 5 && e.Remote }},
		{"by the peer's close", func(k *talk) { k.s.CloseWithError(6, "") },
			func(err error) bool {
				var e *ApplicationError
				return errors.As(err, &e) && e.ErrorCode == 6 && e.Remote
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			talking(t, func(k *talk) {
				done := k.standsIn(&k.client.reading, readOne(k.own))
				begin := time.Now()
				tt.end(k)
				if err := <-done; !tt.want(err) {
					t.Errorf("it returns %v", err)
				}
				if took := time.Since(begin); took != 10*time.Millisecond {
					t.Errorf("it returns after %v, want one way's time", took)
				}
			})
		})
	}
}

// A deadline that was there before ends the wait to the moment.
func TestReadingDeadline(t *testing.T) {
	talking(t, func(k *talk) {
		k.own.SetReadDeadline(time.Now().Add(123 * time.Millisecond))
		begin := time.Now()
		done := k.standsIn(&k.client.reading, readOne(k.own))
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 123*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		// The connection goes on.
		k.own.SetReadDeadline(time.Time{})
		k.far.Write([]byte{9})
		if b := word(t, k.own); b[0] != 9 {
			t.Errorf("then comes %d", b)
		}
	})
}

// Other calls than Read wait there, too, and end with their context.
func TestReadingContexts(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Conn) error{
		"AcceptStream":    func(ctx context.Context, c *Conn) error { _, err := c.AcceptStream(ctx); return err },
		"AcceptUniStream": func(ctx context.Context, c *Conn) error { _, err := c.AcceptUniStream(ctx); return err },
		"ReceiveDatagram": func(ctx context.Context, c *Conn) error { _, err := c.ReceiveDatagram(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			talking(t, func(k *talk) {
				k.c.config.EnableDatagrams = true
				ctx, cancel := context.WithCancel(k.Context())
				done := k.standsIn(&k.client.reading, func() error { return call(ctx, k.c) })
				cancel()
				if err := k.now(done); !errors.Is(err, context.Canceled) {
					t.Errorf("it returns %v", err)
				}
				// What the next one waits for is not lost.
				k.far.Write([]byte{9})
				if b := word(t, k.own); b[0] != 9 {
					t.Errorf("then comes %d", b)
				}
			})
		})
	}
}

// Somebody who stood in and stays away holds nothing up: the reader is back in time for
// whoever waits for something else, and such an absence makes it more careful.
func TestReadingAbsence(t *testing.T) {
	talking(t, func(k *talk) {
		k.far.Write([]byte{1})
		word(t, k.own) // stands in, and does not come back
		synctest.Wait()
		if n := k.client.reading.state.Load(); n != atNobody {
			t.Fatalf("the right to read is at %d, want nobody", n)
		}
		before := k.client.reading.required.Load()
		// Nobody waits: a stream that the server opens is found when the application asks
		// for it, and the ACK is not later than the reader's patience.
		sent := time.Now()
		s, err := k.s.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte("hello"))
		acked := func() bool {
			k.s.mu.Lock()
			defer k.s.mu.Unlock()
			return s.send.AllAcked(5)
		}
		for !acked() {
			time.Sleep(100 * time.Microsecond)
		}
		if took, most := time.Since(sent), 20*time.Millisecond+2*readerPatience+maxAckDelay; took > most {
			t.Errorf("the ACK comes after %v, want %v at most", took, most)
		}
		if n := k.client.reading.state.Load(); n != atReader {
			t.Errorf("the right to read is at %d, want the reader", n)
		}
		if n := k.client.reading.required.Load(); n < before {
			t.Errorf("%d calls in a row are required after an absence, %d before", n, before)
		}
	})
}

// Who waits when the one who stood in leaves is served by the reader at once.
func TestReadingOthersWait(t *testing.T) {
	talking(t, func(k *talk) {
		first := k.standsIn(&k.client.reading, readOne(k.own))
		accepted := make(chan time.Time, 1)
		go func() {
			if s, err := k.c.AcceptUniStream(k.Context()); err == nil {
				word(t, s)
				accepted <- time.Now()
			}
		}()
		synctest.Wait()
		k.far.Write([]byte{1})
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := k.client.reading.state.Load(); n != atReader {
			t.Errorf("the right to read is at %d, want the reader", n)
		}
		s, err := k.s.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		s.CloseWith([]byte{2})
		if took := (<-accepted).Sub(sent); took != 10*time.Millisecond {
			t.Errorf("the other one has its word after %v, want one way's time", took)
		}
	})
}

// A write that is left to callers who are expected back leaves, also if they are not.
func TestReadingWriteIsNotForgotten(t *testing.T) {
	talking(t, func(k *talk) {
		k.far.Write([]byte{1})
		word(t, k.own)
		s, err := k.c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan time.Time, 1)
		go func() {
			if s, err := k.s.AcceptUniStream(k.Context()); err == nil {
				word(t, s)
				accepted <- time.Now()
			}
		}()
		sent := time.Now()
		s.Write([]byte{2})
		if k.client.reading.owing.Load() != k.c {
			t.Error("the first write of a stream is not left to a caller who is expected back")
		}
		// The application does not come back, and does not close the stream.
		if took, most := (<-accepted).Sub(sent), 10*time.Millisecond+2*readerPatience; took > most {
			t.Errorf("it is there after %v, want %v at most", took, most)
		}
	})
}

// More credit for the peer is left to a caller who reads, also where much arrives: nobody is
// woken for it. It leaves, too, if the caller does not come back, who is not distrusted for that.
func TestReadingCreditCanWait(t *testing.T) {
	talking(t, func(k *talk) {
		r := &k.client.reading
		due := func() {
			k.c.mu.Lock()
			defer k.c.mu.Unlock()
			k.c.control.add(frameMaxData, 0)
			k.c.creditDue(false)
		}
		sent := func() bool {
			k.c.mu.Lock()
			defer k.c.mu.Unlock()
			return !k.c.control.any()
		}
		k.far.Write([]byte{1})
		word(t, k.own)
		r.much.Store(true)
		due()
		if synctest.Wait(); sent() || r.granting.Load() != k.c {
			t.Error("the credit is not left to the caller")
		}
		required := r.required.Load()
		time.Sleep(2 * readerPatience)
		if synctest.Wait(); !sent() {
			t.Error("the credit does not leave though the caller stays away")
		}
		if r.state.Load() != atReader || r.alone.Load() != k.c || r.required.Load() != required {
			t.Error("that is taken for a mistake")
		}
		due()
		if synctest.Wait(); !sent() {
			t.Error("where the reader reads, the credit does not leave at once")
		}
		r.much.Store(false)
		k.goOn()
		k.c.mu.Lock()
		k.c.control.add(frameMaxData, 0)
		k.c.creditDue(true)
		k.c.mu.Unlock()
		if synctest.Wait(); !sent() {
			t.Error("the peer has little credit left, and waits for more")
		}
		due()
		answer := k.standsIn(r, readOne(k.own))
		if !sent() {
			t.Error("the credit waits though the caller is back")
		}
		k.far.Write([]byte{1})
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// STOP_SENDING is not credit: it waits for nobody.
func TestReadingStopSendingLeavesAtOnce(t *testing.T) {
	talking(t, func(k *talk) {
		k.far.Write([]byte{1})
		word(t, k.own)
		k.own.CancelRead(3)
		synctest.Wait()
		k.c.mu.Lock()
		defer k.c.mu.Unlock()
		if k.c.control.any() {
			t.Error("it does not leave at once")
		}
	})
}

// Who waits for an answer has written all of the question: the rest of what was written in
// bulk does not wait for more.
func TestReadingWhoAsksWritesNoMore(t *testing.T) {
	talking(t, func(k *talk) {
		ask := func(size int) <-chan time.Duration {
			took, begin := make(chan time.Duration, 1), time.Now()
			go func() {
				io.ReadFull(k.far, make([]byte, size))
				took <- time.Since(begin)
			}()
			k.own.Write(make([]byte, size-1000))
			k.own.Write(make([]byte, 1000))
			return took
		}
		<-ask(8 << 20) // the window is large enough for all of the next one
		k.goOn()
		took := ask(40 << 10)
		answer := k.standsIn(&k.client.reading, readOne(k.own))
		if took := <-took; took != 10*time.Millisecond {
			t.Errorf("the question is there after %v, want one way's time", took)
		}
		k.far.Write([]byte{1})
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// Who saw the reader late may come to help when a caller stands in already: the two share
// what the mutex guards. It is for the race detector.
func TestReadingHelpComesLate(t *testing.T) {
	talking(t, func(k *talk) {
		r := &k.client.reading
		done := k.standsIn(r, readOne(k.own))
		k.far.Write([]byte{1})
		helped := make(chan struct{})
		go func() {
			defer close(helped)
			time.Sleep(11 * time.Millisecond)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.batch(0, nil)
		}()
		<-helped
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Who naps until more has come is late with an answer: nobody does who speaks in between.
func TestReadingNoNapInAConversation(t *testing.T) {
	talking(t, func(k *talk) {
		r := &k.client.reading
		for _, speaks := range []bool{false, true} {
			k.goOn()
			k.far.Write([]byte{1})
			word(k.T, k.own)
			r.plenty = mayNap
			if speaks {
				k.own.Write([]byte{1})
			}
			done := k.standsIn(r, readOne(k.own))
			if napping := r.plenty >= mayNap; napping == speaks {
				t.Errorf("speaks: %v, may nap: %v", speaks, napping)
			}
			k.far.Write([]byte{1})
			if err := <-done; err != nil {
				t.Error(err)
			}
			if speaks {
				word(k.T, k.far)
			}
		}
	})
}

// What a write has left to its connection's callers is not forgotten though those of another
// connection come first, or that connection's packets.
func TestReadingWriteIsNotForgottenForAnother(t *testing.T) {
	for name, comes := range map[string]func(k *talk, d *Conn){
		"caller": func(k *talk, d *Conn) { go d.AcceptStream(k.Context()) },
		"packet": func(k *talk, d *Conn) {
			// The reader is called back, and takes it in before the caller has gone on.
			k.client.reading.alone.Store(nil)
			k.client.reading.callReader()
		},
	} {
		t.Run(name, func(t *testing.T) {
			talking(t, func(k *talk) {
				d, _ := k.connect(patient(), patient())
				k.goOn()
				r := &k.client.reading
				done := k.standsIn(r, readOne(k.own))
				k.far.Write([]byte{1})
				time.Sleep(10*time.Millisecond - brief/2)
				// The other one's application asks again and again without waiting.
				ended, cancel := context.WithCancel(k.Context())
				cancel()
				for range 4 * mayStandIn {
					d.AcceptStream(ended)
				}
				if err := <-done; err != nil {
					k.Fatal(err)
				}
				synctest.Wait()
				s, err := k.c.OpenUniStream()
				if err != nil {
					k.Fatal(err)
				}
				accepted := make(chan time.Time, 1)
				go func() {
					if s, err := k.s.AcceptUniStream(k.Context()); err == nil {
						word(k.T, s)
						accepted <- time.Now()
					}
				}()
				sent := time.Now()
				s.Write([]byte{2})
				if r.owing.Load() != k.c {
					t.Error("the first write of a stream is not left to a caller who is expected back")
				}
				comes(k, d)
				if took, most := (<-accepted).Sub(sent), 10*time.Millisecond+2*readerPatience; took > most {
					t.Errorf("it is there after %v, want %v at most", took, most)
				}
			})
		})
	}
}

// Another connection's packets bring the reader back: who stands in works for one only.
func TestReadingIsForOneConnection(t *testing.T) {
	talking(t, func(k *talk) {
		r := &k.client.reading
		done := k.standsIn(r, readOne(k.own))
		c2, s2 := k.connect(patient(), patient())
		if n := r.state.Load(); n != atReader {
			t.Errorf("with another connection the right to read is at %d, want the reader", n)
		}
		s, err := s2.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		s.CloseWith([]byte{3})
		in, err := c2.AcceptUniStream(k.Context())
		if err != nil {
			t.Fatal(err)
		}
		word(t, in)
		k.far.Write([]byte{1})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Callers may stand in when a connection has had the socket for itself for a while, and
// little came at a time, or the application does little with it.
func TestReadingAlone(t *testing.T) {
	d := newDemuxTest(t, 4)
	c, other := d.conn("c", "aaaa"), d.conn("other", "bbbb")
	r := &d.t.reading
	r.ms = make([]udp.Message, messagesPerRead)
	r.demux = *d.demux
	arrives := func(datagrams int, ids ...string) bool {
		for i, id := range ids {
			one := append([]byte{0x40}, append([]byte(id), make([]byte, 995)...)...)
			b := udp.CopyBuffer(bytes.Repeat(one, datagrams))
			r.ms[i] = udp.Message{Buf: b, Data: b.Bytes(), Segment: len(one)}
		}
		return r.batch(len(ids), c)
	}
	want := func(alone *Conn) {
		t.Helper()
		if got := r.alone.Load(); got != alone {
			t.Errorf("alone is %q, want %q", d.names[got], d.names[alone])
		}
	}
	again := func() {
		t.Helper()
		for range mayStandIn {
			want(nil)
			if !arrives(1, "aaaa") {
				t.Error("a little for c alone is too much for c's callers")
			}
		}
		if arrives(1, "aaaa"); r.alone.Load() != c || r.much.Load() {
			t.Errorf("alone is %q with much: %v; want c with little", d.names[r.alone.Load()], r.much.Load())
		}
	}
	again()
	if arrives(1, "aaaa", "bbbb") {
		t.Error("what is for two connections is for c's callers")
	}
	want(nil)
	again()
	if arrives(1, "bbbb") {
		t.Error("what is for another connection is for c's callers")
	}
	want(nil)
	again()
	if arrives(1, "aaaa", "cccc") {
		t.Error("what is for nobody we know is for c's callers")
	}
	want(nil)
	again()

	r.room = true
	const many = littleBytes/1000 + 1
	use := func(waits, works time.Duration) {
		c.prompt.waits.Store(int64(waits))
		c.prompt.works.Store(int64(works))
	}
	use(300*time.Microsecond, 150*time.Microsecond)
	if !arrives(many, "aaaa") {
		t.Error("much for c is too much for an application that does little with it")
	}
	if want(c); !r.much.Load() {
		t.Error("much is little")
	}
	use(300*time.Microsecond, 151*time.Microsecond)
	if arrives(many, "aaaa") {
		t.Error("much for c is for an application that has work to do")
	}
	use(300*time.Microsecond, 150*time.Microsecond)
	if r.room = false; arrives(many, "aaaa") {
		t.Error("much for c is for its callers, though the socket does not hold much")
	}
	want(c)
	for range mayStandIn {
		if !r.much.Load() {
			t.Fatal("much is not remembered")
		}
		arrives(1, "aaaa")
	}
	if r.much.Load() {
		t.Error("much is remembered for ever")
	}

	r.forget(other)
	want(c)
	r.forget(c)
	want(nil)
}

// endless is a socket that holds any number of bytes.
type endless struct{ readSocket }

func (endless) CanReadNow() bool        { return true }
func (endless) Room() int               { return math.MaxInt }
func (endless) SetReadLock(sync.Locker) {}

// On an only processor much is left to the reader, which lets others run whenever it waits.
func TestReadingOnOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for n, want := range map[int]bool{1: false, 2: true} {
		runtime.GOMAXPROCS(n)
		r, c := new(reading), new(Conn)
		if r.init(new(Transport), endless{}); r.forCallers(c) != want {
			t.Errorf("with %d processors much is for callers: %v", n, !want)
		}
	}
}

// What an application does is what it does as a rule: neither one long wait nor one long
// absence counts for much.
func TestReadingMostlyWaits(t *testing.T) {
	var p prompt
	at := time.Second
	visits := func(n int, waits, works time.Duration) {
		for range n {
			p.back(at)
			at += waits
			p.leaves(at)
			at += works
		}
	}
	for _, tt := range []struct {
		name         string
		n            int
		waits, works time.Duration
		want         bool
	}{
		{"works as long as it waits", 100, 50 * time.Microsecond, 50 * time.Microsecond, false},
		{"works a third of the time", 100, 50 * time.Microsecond, 24 * time.Microsecond, true},
		{"waits once", 1, 300 * time.Microsecond, 24 * time.Microsecond, true},
		{"works once for long", 1, 50 * time.Microsecond, time.Minute, true}, // it has not come back
		{"and for once is not back soon", 1, 50 * time.Microsecond, 24 * time.Microsecond, false},
		{"but then again", 40, 50 * time.Microsecond, 20 * time.Microsecond, true},
		{"works more", 40, 50 * time.Microsecond, 80 * time.Microsecond, false},
		{"waits once for long", 1, time.Minute, 80 * time.Microsecond, true},
		{"and then no more", 20, 50 * time.Microsecond, 80 * time.Microsecond, false},
	} {
		if visits(tt.n, tt.waits, tt.works); p.mostlyWaits() != tt.want {
			t.Errorf("%s: mostly waits: %v, of %v and %v", tt.name, !tt.want, time.Duration(p.waits.Load()), time.Duration(p.works.Load()))
		}
	}
}

// Where much arrives, a call waits in the socket only if the application mostly waits.
func TestReadingMuch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	for name, mostlyWaits := range map[string]bool{"mostly waits": true, "has work to do": false} {
		t.Run(name, func(t *testing.T) {
			talking(t, func(k *talk) {
				r, p := &k.client.reading, &k.c.prompt
				r.much.Store(true)
				p.works.Store(int64(time.Millisecond))
				p.waits.Store(int64(time.Millisecond))
				if mostlyWaits {
					p.waits.Store(int64(2 * time.Millisecond))
				}
				done := make(chan error, 1)
				go func() { done <- readOne(k.own)() }()
				synctest.Wait()
				if got := r.state.Load() == atStandIn; got != mostlyWaits {
					t.Errorf("its call waits in the socket: %v", got)
				}
				k.far.Write([]byte{1})
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who receives in bulk reads the socket itself if it does next to nothing with what it
// reads, and leaves that to the reader if it has work to do.
func TestReadingInBulk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	for _, tt := range []struct {
		name  string
		works time.Duration // for each 64 KiB
		want  bool
	}{
		{"an application that only reads", 0, true},
		{"one that is long away", 100 * time.Millisecond, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				c, s := w.connect(patient(), patient())
				const size = 20 << 20
				p := patternOf(1, 1)
				sent := make(chan error, 1)
				go func() {
					out, err := s.OpenUniStream()
					if err == nil {
						_, err = io.Copy(writerOnly{out}, p.reader(size))
						out.Close()
					}
					sent <- err
				}()
				in, err := c.AcceptUniStream(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				// How often a caller has stood in after the first half.
				var before uint32
				b, want, n := make([]byte, 64<<10), make([]byte, 64<<10), 0
				for wanted := p.reader(size); ; {
					k, err := io.ReadFull(in, b)
					if io.ReadFull(wanted, want[:k]); !bytes.Equal(b[:k], want[:k]) {
						t.Fatalf("wrong bytes after %d", n)
					}
					if n += k; n <= size/2 {
						before = w.client.reading.visits.Load()
					}
					if err != nil {
						break
					}
					time.Sleep(tt.works)
				}
				if err := <-sent; err != nil || n != size {
					t.Fatalf("%d bytes of %d: %v", n, size, err)
				}
				if got := w.client.reading.visits.Load() - before; (got > 100) != tt.want || !tt.want && got > 0 {
					t.Errorf("its caller has stood in for the reader %d times", got)
				}
			})
		})
	}
}

// What calls the application is not done by its callers: they do not stand in for the
// reader where something is traced, asked or made by it, and leave TLS messages to the connection's
// goroutine.
func TestReadingCallsNoApplication(t *testing.T) {
	for name, f := range map[string]func(w *world, conf *Config){
		"traced": func(w *world, conf *Config) {
			conf.Tracer = func(context.Context, bool, ConnectionID) qlogwriter.Trace { return nowhere{} }
		},
		"transport traced": func(w *world, conf *Config) { w.client.Tracer = nowhere{}.AddProducer() },
		"window asked for": func(w *world, conf *Config) {
			conf.AllowConnectionWindowIncrease = func(*Conn, uint64) bool { return true }
		},
		"scheduler": func(w *world, conf *Config) { conf.Scheduler = func() scheduler.Scheduler { return scheduler.New() } },
		"connection IDs made": func(w *world, conf *Config) {
			w.client.ConnectionIDGenerator = noIDs{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := patient()
				f(w, conf)
				c, _ := w.connect(conf, patient())
				if c.reads.Load() != nil {
					t.Error("its callers may stand in for the reader")
				}
			})
		})
	}

	t.Run("TLS message", func(t *testing.T) {
		talking(t, func(k *talk) {
			c := k.c
			if !c.turn.take() {
				k.Fatal("somebody works for a connection on which nothing happens")
			}
			c.visited = true
			msg := wire.Crypto{Off: c.spaces[recovery.App].recv.off, Data: []byte{0xff, 0, 0, 0}}.Append(nil)
			pn := c.spaces[recovery.App].acks.largest + 1
			c.opened = append(c.opened, openedPacket{pn: pn, b: append(msg, make([]byte, sealTag)...), at: time.Now(), by: c.paths.active})
			c.takeOpened()
			if !c.tlsDue || c.closeErr != nil {
				k.Fatalf("a caller that stands in hands a message to TLS: %v", c.closeErr)
			}
			c.serve(true)
			if c.closeErr == nil {
				t.Error("the connection's goroutine does not hand it to TLS")
			}
		})
	})
}

// A caller that sends in bulk takes in the ACKs itself, and the reader is back soon after
// its last flight.
func TestReadingBulk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // see reserve
	virtual(t, func(w *world) {
		c, s := w.connect(patient(), patient())
		p := patternOf(1, 1)
		w.transfer(c, s, func(out *SendStream, p pattern, n int64) error {
			_, err := io.Copy(writerOnly{out}, p.reader(n))
			if err == nil {
				err = out.Close()
			}
			return err
		}, p, less[int64](20<<20))
		r := &w.client.reading
		if r.visits.Load() == 0 {
			t.Error("the sender has never looked for ACKs")
		}
		time.Sleep(2*bulkPatience + time.Second)
		if n := r.state.Load(); n != atReader {
			t.Errorf("long after, the right to read is at %d, want the reader", n)
		}
		if r.reserved.Load() || r.stays.Load() {
			t.Error("long after, its thread is reserved for it")
		}
	})
}

// Threads are reserved for the callers of as many sockets as can run at once, and each is
// for the only call of the connection that has the socket for itself.
func TestReadingOwnThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	if n := ownThreads.Load(); n != 0 {
		t.Fatalf("%d threads are reserved before it begins", n)
	}
	rs := make([]reading, 4)
	for i := range rs {
		rs[i].reserve()
		rs[i].reserve() // once for all
	}
	has := func(want ...bool) {
		t.Helper()
		for i := range rs {
			if rs[i].reserved.Load() != want[i] {
				t.Errorf("reserved for the caller of socket %d: %v", i, !want[i])
			}
		}
	}
	has(true, true, false, false)
	rs[0].unreserve()
	rs[0].unreserve()
	rs[3].reserve()
	rs[2].reserve()
	has(false, true, false, true)
	rs[3].unreserve()

	d := newDemuxTest(t, 4)
	c, other := d.conn("c", "aaaa"), d.conn("other", "bbbb")
	c.transport = d.t
	r := &d.t.reading
	r.reserve()
	r.alone.Store(c)
	stays := func(want bool, conn *Conn, why string) {
		t.Helper()
		if got := (*monitor)(conn).Stay(); got != want {
			t.Errorf("%s: it stays: %v", why, got)
		}
	}
	stays(false, c, "a call of one whose callers may not read")
	c.reads.Store(r)
	other.reads.Store(r)
	stays(false, other, "a call of another connection")
	for range 3 {
		stays(true, c, "one call after the other")
		(*monitor)(c).Unstay()
	}
	stays(true, c, "one call")
	stays(false, c, "a second one at once")
	(*monitor)(c).Unstay()
	stays(false, c, "since two were there at once")
	r.reserve()
	stays(true, c, "when that is over")
	(*monitor)(c).Unstay()

	r.unreserve()
	rs[1].unreserve()
	if n := ownThreads.Load(); n != 0 {
		t.Errorf("%d threads remain reserved", n)
	}
	runtime.GOMAXPROCS(1)
	if rs[0].reserve(); rs[0].reserved.Load() {
		t.Error("the only processor's thread is reserved")
	}
}

// A thread is reserved for a caller that has come by to look again and again.
func TestReadingInBulkHasAThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	d := newDemuxTest(t, 4)
	c := d.conn("c", "aaaa")
	r := &d.t.reading
	r.init(d.t, empty{})
	r.alone.Store(c)
	r.state.Store(atNobody)
	r.required.Store(0)
	for n := range manyLooks {
		if r.reserved.Load() {
			t.Errorf("after %d looks", n)
		}
		r.look(c, time.Duration(n)*lookEvery)
	}
	if !r.reserved.Load() {
		t.Errorf("not after %d looks", manyLooks)
	}
	r.unreserve()
}

// empty is a socket in which there is nothing.
type empty struct{ endless }

func (empty) ReadNow([]udp.Message) int { return 0 }
func (empty) Watch(bool)                {}

// Where much comes for one that sends in bulk, and does not look for it any more, the reader
// is back at once.
func TestReadingMuchForABulkSender(t *testing.T) {
	d := newDemuxTest(t, 4)
	c := d.conn("c", "aaaa")
	r := &d.t.reading
	r.init(d.t, full{one: append([]byte{0x40}, append([]byte("aaaa"), make([]byte, littleBytes)...)...)})
	r.demux, r.room = *d.demux, true
	c.turn.take() // its own goroutine does its work
	c.prompt.waits.Store(int64(time.Hour))
	r.bulk.Store(true)
	r.last.Store(c)
	r.alone.Store(c)
	r.state.Store(atNobody)
	r.look(c, lookEvery)
	if !r.much.Load() {
		t.Error("not what this test is about")
	}
	if n := r.state.Load(); n != atReader {
		t.Errorf("the right to read is at %d, want the reader", n)
	}
}

// full is a socket in which there is always one more message.
type full struct {
	endless
	one []byte
}

func (f full) ReadNow(ms []udp.Message) int {
	b := udp.CopyBuffer(f.one)
	ms[0] = udp.Message{Buf: b, Data: b.Bytes(), Segment: len(f.one)}
	return 1
}

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }

// A close of the transport finds whoever has the right, and does not wait for the patience
// of anybody.
func TestReadingTransportCloses(t *testing.T) {
	for name, before := range map[string]func(k *talk) <-chan error{
		"while a call waits in the socket": func(k *talk) <-chan error {
			return k.standsIn(&k.client.reading, readOne(k.own))
		},
		"while nobody reads": func(k *talk) <-chan error {
			k.far.Write([]byte{1})
			word(k.T, k.own)
			synctest.Wait()
			if n := k.client.reading.state.Load(); n != atNobody {
				k.Fatalf("the right to read is at %d, want nobody", n)
			}
			return nil
		},
		"while the reader does": func(k *talk) <-chan error {
			time.Sleep(time.Second)
			if n := k.client.reading.state.Load(); n != atReader {
				k.Fatalf("the right to read is at %d, want the reader", n)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			talking(t, func(k *talk) {
				done := before(k)
				begin := time.Now()
				k.client.Close()
				if took := time.Since(begin); took != 0 {
					t.Errorf("Close takes %v", took)
				}
				if done != nil {
					if err := k.now(done); !errors.Is(err, ErrTransportClosed) {
						t.Errorf("the call returns %v", err)
					}
				}
				// The socket is the application's again.
				b := make([]byte, 2000)
				k.client.Conn.SetReadDeadline(time.Time{})
				go k.server.Conn.WriteTo([]byte("for the application"), hereAddr)
				n, _, err := k.client.Conn.ReadFrom(b)
				for err == nil && !bytes.Contains(b[:n], []byte("for the application")) {
					n, _, err = k.client.Conn.ReadFrom(b)
				}
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever is late in calling a reader back does so before the socket is the application's
// again, or not at all.
func TestReadingCallsNobodyBackFromAClosedTransport(t *testing.T) {
	talking(t, func(k *talk) {
		r := &k.client.reading
		done := k.standsIn(r, readOne(k.own))
		k.client.Close()
		<-done
		r.recall() // as a context does that ended meanwhile
		r.ask()    // as a caller does that has not seen the end yet
		go k.server.Conn.WriteTo([]byte("for the application"), hereAddr)
		for {
			b := make([]byte, 2000)
			n, _, err := k.client.Conn.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b[:n], []byte("for the application")) {
				break
			}
		}
	})
}
