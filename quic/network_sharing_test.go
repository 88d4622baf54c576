package quic

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/scheduler"
)

// turns is a scheduler that notes who had a turn, and of how many datagrams.
type turns struct {
	scheduler.Scheduler
	mu  sync.Mutex
	log []oneTurn
}

type oneTurn struct {
	id        int64
	datagrams int
}

func (t *turns) Sent(e *scheduler.Entry, n int, more bool) {
	if n > 0 {
		t.mu.Lock()
		t.log = append(t.log, oneTurn{e.ID, n})
		t.mu.Unlock()
	}
	t.Scheduler.Sent(e, n, more)
}

// runs joins the turns that a stream had in a row.
func (t *turns) runs() (runs []oneTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.log {
		if n := len(runs); n > 0 && runs[n-1].id == u.id {
			runs[n-1].datagrams += u.datagrams
		} else {
			runs = append(runs, u)
		}
	}
	return runs
}

func logTurns(conf *Config) *turns {
	t := &turns{}
	conf.Scheduler = func() scheduler.Scheduler { t.Scheduler = scheduler.New(); return t }
	return t
}

// wide opens a link of 100 Mbit/s and windows that are never full.
func (w *world) wide() *Config {
	w.both(func(d *direction) { d.rate = 100e6 / 8 })
	conf := patient()
	conf.InitialStreamReceiveWindow, conf.InitialConnectionReceiveWindow = 64<<20, 64<<20
	conf.MaxIncomingUniStreams = 1000
	return conf
}

// receive reads a stream to its end and returns when that came.
func (w *world) receive(in *ReceiveStream, p pattern, size int64) time.Time {
	if err := p.check(in, size); err != nil {
		w.Errorf("stream %d: %v", in.StreamID(), err)
	}
	return time.Now()
}

// F1: ten streams that are equal end at the same time, within 30 %, whatever they are
// written by.
func TestNetworkEqualStreamsShare(t *testing.T) {
	size := less[int64](2 << 20)
	for _, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := w.wide()
				c, s := w.connect(conf, conf)
				for i := range 10 {
					out, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					go way.send(out, patternOf(40, uint64(i)), size)
				}
				begin := time.Now()
				var wg sync.WaitGroup
				took := make([]time.Duration, 10)
				for i := range took {
					wg.Go(func() {
						in, err := s.AcceptUniStream(w.Context())
						if err != nil {
							t.Error(err)
							return
						}
						took[i] = w.receive(in, patternOf(40, uint64(in.StreamID()>>2)), size).Sub(begin)
					})
				}
				wg.Wait()
				if first, last := slices.Min(took), slices.Max(took); float64(last) > 1.3*float64(first) {
					t.Errorf("the first took %v, the last %v", first, last)
				}
			})
		})
	}
}

// A20, F4: two equal streams have 40 to 60 % each, in turns of a pass at most, also if
// what one leaves of a datagram is too little for the other's header.
func TestNetworkEqualStreamsTakeTurns(t *testing.T) {
	for _, chunk := range []int{1200, 1215, 1220, 1225, 1230, 50_000} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := w.wide()
				near := w.wide()
				log := logTurns(near)
				c, s := w.connect(near, conf)
				const size = 1 << 20
				for i := range 2 {
					out, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						io.CopyBuffer(writeOnly{out}, readOnly{patternOf(41, uint64(i)).reader(size)}, make([]byte, chunk))
						out.Close()
					}()
				}
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						in, err := s.AcceptUniStream(w.Context())
						if err != nil {
							t.Error(err)
							return
						}
						w.receive(in, patternOf(41, uint64(in.StreamID()>>2)), size)
					})
				}
				wg.Wait()
				// From when both are under way until the first has sent most of its bytes.
				sum := map[int64]int{}
				for _, r := range log.runs() {
					if sum[2] > 50 && sum[6] > 50 && r.datagrams > 2*emit.MaxDatagrams {
						t.Errorf("%d datagrams in a row", r.datagrams)
					}
					if sum[r.id] += r.datagrams; sum[r.id] > 750 {
						break
					}
				}
				if a, b := sum[2], sum[6]; a*10 < 4*(a+b) || b*10 < 4*(a+b) {
					t.Errorf("%d and %d datagrams", a, b)
				}
			})
		})
	}
}

// L7, F5: bytes of the first urgency that are written beside, or behind, many megabytes
// overtake them: they are there after one way, a flight on the link, and no more.
func TestNetworkUrgentBytesOvertake(t *testing.T) {
	for _, bulk := range waysToSend {
		t.Run(bulk.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := w.wide()
				w.both(func(d *direction) { d.queue = 100_000 })
				c, s := w.connect(conf, conf)
				out, err := c.OpenUniStream()
				if err != nil {
					t.Fatal(err)
				}
				go bulk.send(out, patternOf(42, 0), 8<<20)
				in, err := s.AcceptUniStream(w.Context())
				if err != nil {
					t.Fatal(err)
				}
				go io.Copy(io.Discard, readOnly{in})
				time.Sleep(300 * time.Millisecond)
				// Frames of a video, 1 kB every 20 ms.
				for i := range 10 {
					urgent, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					urgent.SetPriority(0, false)
					p := patternOf(42, uint64(i+1))
					begin := time.Now()
					if _, err := urgent.CloseWith(p.bytes(1000)); err != nil {
						t.Fatal(err)
					}
					in, err := s.AcceptUniStream(w.Context())
					if err != nil {
						t.Fatal(err)
					}
					// One way, a full queue, a flight, and the pacer's pause.
					if d := w.receive(in, p, 1000).Sub(begin); d > 10*time.Millisecond+8*time.Millisecond+5*time.Millisecond+5*time.Millisecond {
						t.Errorf("frame %d took %v", i, d)
					}
					time.Sleep(20 * time.Millisecond)
				}
				out.CancelWrite(0)
			})
		})
	}
}

// F2, F3, quiche#25: of streams that are not incremental the next has nothing until the
// first is done.
func TestNetworkStreamsOneByOne(t *testing.T) {
	for _, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				conf := w.wide()
				near := w.wide()
				log := logTurns(near)
				c, s := w.connect(near, conf)
				size := less[int64](500_000)
				var wg sync.WaitGroup
				for i := range 5 {
					out, err := c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					out.SetPriority(3, false)
					wg.Go(func() { way.send(out, patternOf(43, uint64(i)), size) })
				}
				for range 5 {
					wg.Go(func() {
						in, err := s.AcceptUniStream(w.Context())
						if err != nil {
							t.Error(err)
							return
						}
						w.receive(in, patternOf(43, uint64(in.StreamID()>>2)), size)
					})
				}
				wg.Wait()
				// A stream whose writer has not kept up lets the next one go ahead. So it
				// is counted what each has when its predecessor is done.
				left := map[int64]int{}
				for _, u := range log.log {
					left[u.id] += u.datagrams
				}
				whole := left[2]
				early := 0
				for _, u := range log.log {
					left[u.id] -= u.datagrams
					if u.id > 2 && left[u.id-4] > 0 {
						early += u.datagrams
					}
				}
				if early > 2*whole {
					t.Errorf("%d datagrams of %d went before their turn", early, 5*whole)
				}
			})
		})
	}
}

// A20: a stream that waits for its own credit holds up nobody, whatever its priority.
func TestNetworkBlockedStreamHoldsUpNobody(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		virtual(t, func(w *world) {
			conf := patient()
			conf.InitialStreamReceiveWindow, conf.MaxStreamReceiveWindow = 100_000, 100_000
			c, s := w.connect(patient(), conf)
			first, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			first.SetPriority(0, incremental)
			go waysToSend[0].send(first, patternOf(44, 0), 1_000_000)
			in, err := s.AcceptUniStream(w.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // nobody reads it
			for _, way := range waysToSend {
				if took := w.transfer(c, s, way.send, patternOf(44, 1), 300_000); took > 500*time.Millisecond {
					t.Errorf("%s beside a blocked stream took %v", way.name, took)
				}
			}
			if err := patternOf(44, 0).check(in, 1_000_000); err != nil {
				t.Error(err)
			}
		})
	}
}

// F6: a priority that changes in mid-flight counts from the next turn on.
func TestNetworkPriorityChanges(t *testing.T) {
	virtual(t, func(w *world) {
		conf := w.wide()
		c, s := w.connect(conf, conf)
		const size = 4 << 20
		var outs []*SendStream
		for i := range 2 {
			out, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			outs = append(outs, out)
			go out.SendFrom(context.Background(), patternOf(45, uint64(i)).source(size), 0, size, emit.End())
		}
		outs[1].SetPriority(5, true)
		var at [2]time.Time
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				in, err := s.AcceptUniStream(w.Context())
				if err != nil {
					t.Error(err)
					return
				}
				at[in.StreamID()>>2] = w.receive(in, patternOf(45, uint64(in.StreamID()>>2)), size)
			})
		}
		time.Sleep(250 * time.Millisecond)
		outs[0].SetPriority(6, true) // the other way round
		wg.Wait()
		if at[0].Before(at[1]) {
			t.Error("the stream that was put back ended first")
		}
	})
}
