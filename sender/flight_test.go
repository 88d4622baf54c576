package sender

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// chooser makes the choices of a random test.
type chooser interface {
	choose(n int) int // 0..n-1
	over() bool
}

type randomChoice struct {
	*rand.Rand
	left int
}

func (r *randomChoice) choose(n int) int { return r.IntN(n) }
func (r *randomChoice) over() bool       { r.left--; return r.left < 0 }

// fuzzChoice takes them from the fuzzer's bytes.
type fuzzChoice struct{ b []byte }

func (f *fuzzChoice) choose(n int) int {
	v := 0
	for k := 1; k < n; k <<= 8 {
		v <<= 8
		if len(f.b) > 0 {
			v |= int(f.b[0])
			f.b = f.b[1:]
		}
	}
	return v % n
}
func (f *fuzzChoice) over() bool { return len(f.b) == 0 }

// life is a connection to which anything may happen. Whatever does, the peer gets every
// byte that was taken from a source or accepted by a Write.
type life struct {
	chooser
	t       *testing.T
	c       *conn
	streams []*lifeStream
	refuse  []udp.Verdict // of the next calls of the kernel
	used    map[int64]bool
	log     []string
}

type lifeStream struct {
	*testStream
	id     int64
	from   int64
	end    int64 // offset up to which the peer is to get it
	fin    bool
	src    *source
	asker  *asker
	err    error
	over   bool
	zero   bool // the latest answer was (0, nil)
	asleep bool // … ErrNotReady
	credit int64
}

func (l *life) pick(of ...int64) int64 { return of[l.choose(len(of))] }

func (l *life) note(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

func newLife(t *testing.T, ch chooser) *life {
	l := &life{chooser: ch, t: t, used: make(map[int64]bool)}
	size := int(l.pick(1200, 1201, 1280, 1452, 1452, 1452, 1500, 4000, 16376))
	s := setup{size: size, dst: l.choose(21), plain: l.choose(4) == 0}
	if l.choose(2) == 0 {
		s.credit = 20_000
	}
	l.note("%+v", s)
	l.c = newConn(t, s)
	l.c.send = func(s udp.Sending) (v udp.Verdict) {
		if len(l.refuse) > 0 {
			v, l.refuse = l.refuse[0], l.refuse[1:]
			v.Take = min(v.Take, s.Datagrams()-1)
		}
		return v
	}
	for range 1 + l.choose(4) {
		l.open()
	}
	return l
}

func (l *life) open() {
	if len(l.streams) == 6 {
		return
	}
	id := l.pick(0, 4, 56, 60, 64, 68, 16380, 16384, 1<<30-4, 1<<30)
	if l.used[id] {
		return
	}
	l.used[id] = true
	from := l.pick(0, 0, 0, 62, 63, 64, 65, 16380, 16383, 16384)
	if l.choose(40) == 0 {
		from = 1<<30 - l.pick(-1, 0, 1, 2000)
	}
	s := &lifeStream{testStream: l.c.openAt(id, from), id: id, from: from, end: from, credit: from + plenty}
	if l.choose(3) == 0 {
		// The stream that openAt made has credit for all; a new one has not.
		if from == 0 {
			s.credit = 5_000
			s.testStream = l.c.open(id, s.credit)
			l.c.do(func() { l.c.peer.stream(id).limit = s.credit })
		}
	}
	l.tune(s)
	l.streams = append(l.streams, s)
	l.note("stream %d from %d, credit %d", id, from, s.credit)
}

func (l *life) tune(s *lifeStream) {
	tuning := emit.Tuning{Mode: emit.Mode(l.choose(5)), MaxDatagrams: l.choose(12), Reread: l.choose(2) == 0}
	l.note("tuning of %d: %+v", s.id, tuning)
	l.c.do(func() { s.st.SetTuning(tuning) })
}

func (l *life) step() {
	s := l.streams[l.choose(len(l.streams))]
	switch l.choose(24) {
	case 0, 1, 2, 3, 4, 5:
		if s.asker == nil {
			l.begin(s)
		}
		l.advance(s)
	case 6:
		l.write(s)
	case 7:
		l.open()
	case 8, 9, 10:
		l.note("run: %v", l.c.x.Run(1+l.choose(3)))
	case 11, 12:
		l.control()
	case 13, 14, 15:
		l.acks(l.choose(3))
	case 16:
		d := time.Duration(l.choose(300)) * time.Millisecond
		l.note("sleep %v", d)
		time.Sleep(d)
		l.timer()
	case 17:
		l.refusal()
	case 18:
		l.ready(s)
	case 19:
		l.tune(s)
	case 20:
		l.note("window")
		l.c.do(func() { l.c.cc.bytes = int(l.pick(0, 2, 3, 15, 60, 1000)) * l.c.x.size })
	case 21:
		l.moreCredit(s, 10_000)
	case 22:
		// Another connection ID, or another datagram size: from the next flight on.
		if l.choose(2) == 0 {
			l.c.do(func() { l.c.x.SetDatagramSize(int(l.pick(1200, 1280, 1452, 1453))) })
		}
		l.note("size %d", l.c.x.size)
	case 23:
		l.c.later()
	}
	l.t.Helper()
}

// begin starts a source on s, if nothing runs there.
func (l *life) begin(s *lifeStream) {
	if s.fin || s.err != nil {
		return
	}
	pass := 10 * l.c.x.size
	n := int64(l.pick(0, 1, 2, 63, 64, 100, 1300, 1400, 16383, 16384, int64(pass), int64(2*pass)) + int64(l.choose(5)))
	src := l.c.source(s.testStream, s.end+n)
	src.id = s.id
	src.answer = func(k call) (int, error) { return l.answer(s, src, k) }
	var opts []emit.Option
	if l.choose(4) == 0 {
		opts, s.fin = append(opts, emit.End()), true
	}
	l.note("source on %d: %d bytes at %d, fin %v", s.id, n, s.end, s.fin)
	s.src, s.over, s.zero, s.asleep = src, false, false, false
	if all := n; l.choose(2) == 0 {
		s.asker = l.c.begin(s.testStream, src, s.end, -1, opts...)
	} else {
		s.asker = l.c.begin(s.testStream, src, s.end, all, opts...)
	}
	s.end += n
}

// answer is anything that a source may say without ending the stream.
func (l *life) answer(s *lifeStream, src *source, k call) (int, error) {
	n, err := src.all(k)
	if n == 0 {
		return n, err
	}
	switch c := l.choose(10); {
	case c == 0 && !s.zero:
		s.zero = true
		return 0, nil
	case c == 1:
		s.asleep = true
		l.note("%d sleeps", s.id)
		return l.choose(n + 1), emit.ErrNotReady
	case c < 5:
		// About a slot's border, or a Length field's.
		border := l.pick(0, 0, 63, 16383, int64(n)) + int64(l.choose(11))*int64(l.c.x.size-30)
		m := int(border) + l.choose(9) - 4
		if m > 0 && m < n {
			n, err = m, nil
		}
	}
	s.zero = false
	if int64(n)+k.off == src.size && l.choose(2) == 0 {
		err = io.EOF
	} else if int64(n)+k.off < src.size {
		err = nil
	}
	return n, err
}

// advance makes a source's next step.
func (l *life) advance(s *lifeStream) {
	if s.asker == nil {
		return
	}
	did, more, err := l.c.step(s.asker)
	l.note("step of %d: did %v, more %v, %v; next %d", s.id, did, more, err, s.asker.pos)
	if err != nil {
		l.t.Fatalf("stream %d: %v", s.id, err)
	}
	if did && !more {
		l.leave(s)
	}
}

// leave is what run does when a source is done.
func (l *life) leave(s *lifeStream) {
	a := s.asker
	s.asker = nil
	if a.pos != s.end {
		l.t.Fatalf("stream %d: ended at %d, not %d", s.id, a.pos, s.end)
	}
	a.leave(false)
}

func (l *life) write(s *lifeStream) {
	if s.asker != nil || s.fin {
		return
	}
	n := int(l.pick(1, 20, 1000, 1400, 5000, 20_000))
	var room int
	l.c.do(func() { room = s.Room() })
	if n = min(n, room); n <= 0 {
		return
	}
	p := bytesOf(s.id, s.end, n)
	s.end += int64(n)
	l.note("write %d bytes on %d", n, s.id)
	var err error
	switch l.choose(4) {
	case 0:
		s.fin = true
		_, err = s.CloseWith(p)
	case 1:
		_, err = s.WriteOwned(p, nil)
	default:
		_, err = s.Write(p)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// control makes something due besides streams, so that streams find any room.
func (l *life) control() {
	l.c.do(func() {
		switch l.choose(3) {
		case 0:
			ranges := []wire.AckRange{}
			for i := range 1 + l.choose(100) {
				ranges = append(ranges, wire.AckRange{Lo: int64(1000 - 3*i), Hi: int64(1000 - 3*i)})
			}
			l.c.ackDue, l.c.ack = true, wire.Ack{Ranges: ranges}
		case 1:
			l.c.control = append(l.c.control, due{wire.Ping{}, recovery.Frame{}})
		default:
			token := make([]byte, 1+l.choose(1100))
			l.c.control = append(l.c.control, due{wire.NewToken{Token: token}, recovery.Frame{Kind: 3, ID: int64(len(token))}})
		}
	})
}

// acks acknowledges what arrived: all, nothing of some packets, or the other way round.
func (l *life) acks(kind int) {
	pns := l.c.pns()
	if kind > 0 {
		pns = slices.DeleteFunc(pns, func(pn int64) bool {
			if l.choose(5) < kind {
				delete(l.c.peer.got, pn)
				return true
			}
			return false
		})
	}
	l.note("ack of %v", pns)
	l.c.acked(pns...)
	l.c.later()
}

// refusal makes the kernel say no.
func (l *life) refusal() {
	errs := []error{syscall.EAGAIN, syscall.ENOBUFS, syscall.EIO, syscall.EINVAL, syscall.EMSGSIZE}
	e := errs[l.choose(len(errs))]
	v := udp.Verdict{Err: e}
	if e == syscall.EAGAIN || e == syscall.ENOBUFS || e == syscall.EMSGSIZE {
		v.Take = l.choose(12)
	}
	l.note("refusal: %+v", v)
	l.refuse = append(l.refuse, v)
}

func (l *life) ready(s *lifeStream) {
	l.note("ready %d", s.id)
	s.asleep = false
	l.c.do(s.st.Ready)
}

func (l *life) moreCredit(s *lifeStream, n int64) {
	l.note("credit")
	l.c.do(func() {
		l.c.peer.mu.Lock()
		defer l.c.peer.mu.Unlock()
		s.credit += n
		if a := l.c.peer.stream(s.id); a.limit > 0 {
			a.limit = s.credit
		}
		if s.SetCredit(s.credit) {
			s.st.CreditRose()
		}
		l.c.peer.credit += n
		if l.c.x.SetCredit(l.c.peer.credit) {
			l.c.x.WakeAskers()
		}
	})
}

func (l *life) timer() {
	l.c.do(func() {
		if t := l.c.rec.Timer(); !t.IsZero() && !time.Now().Before(t) {
			probe, _ := l.c.rec.OnTimer(time.Now())
			l.note("timer, probe %v", probe)
		}
	})
}

// settle lifts every limit and sees everything arrive.
func (l *life) settle() {
	l.refuse = nil
	l.c.do(func() { l.c.cc.bytes = plenty })
	for _, s := range l.streams {
		l.moreCredit(s, plenty)
	}
	for range 20_000 {
		idle := true
		for _, s := range l.streams {
			if s.asleep {
				l.ready(s)
			}
			if s.asker != nil {
				idle = false
				l.advance(s)
			}
		}
		time.Sleep(time.Millisecond)
		l.timer()
		l.c.x.Run(1)
		l.acks(0)
		for _, s := range l.streams {
			l.c.do(func() { idle = idle && s.AllAcked(s.end) && !s.HasPending() })
		}
		if idle && len(l.c.control) == 0 && l.inFlight() == 0 {
			break
		}
	}
	if n := l.inFlight(); n != 0 {
		l.t.Errorf("%d bytes in flight", n)
	}
	for _, s := range l.streams {
		l.c.whole(s.id, s.end-s.from, s.fin)
	}
	l.c.do(func() {
		if n := l.c.x.Unsent(); n != 0 {
			l.t.Errorf("%d bytes unsent", n)
		}
		if l.c.x.used != l.c.peer.used {
			l.t.Errorf("%d bytes of credit used, %d arrived", l.c.x.used, l.c.peer.used)
		}
	})
}

func (l *life) inFlight() (n int) {
	l.c.do(func() { n = l.c.rec.BytesInFlight() })
	return n
}

func (l *life) run() {
	defer func() {
		if l.t.Failed() {
			for _, s := range l.log {
				l.t.Log(s)
			}
		}
	}()
	for !l.over() && !l.t.Failed() {
		l.step()
		synctest.Wait()
	}
	if !l.t.Failed() {
		l.settle()
	}
	l.c.stop(errors.New("the end"))
	time.Sleep(time.Second)
}

func TestWhateverHappensEverythingArrives(t *testing.T) {
	n := 200
	if testing.Short() || raced {
		n = 30
	}
	for range n {
		seed := rand.Uint64()
		ok := t.Run(fmt.Sprintf("%#x", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newLife(t, &randomChoice{rand.New(rand.NewPCG(seed, 0)), 200}).run()
			})
		})
		if !ok {
			return
		}
	}
}

func FuzzFlights(f *testing.F) {
	f.Add([]byte("\x03\x08\x01\x00\x02 a life like any other \x00\x01\x02\x08\x09\x0d\x10\x00\x00\x08"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1000 {
			return
		}
		synctest.Test(t, func(t *testing.T) { newLife(t, &fuzzChoice{b}).run() })
	})
}
