package quic

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/internal/congestion"
)

// Whichever way bytes are sent, and though some are lost: the qlog is a valid file in
// which every packet number occurs once, flights and passes hold together with the packets
// and frames after them, what one side sent is what the other received, and all of it
// together is what was on the wire.
func TestQlogOfATransfer(t *testing.T) {
	const size = 400_000
	for i, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			virtual(t, func(w *world) {
				w.both(func(d *direction) { d.lose = 0.03 })
				w.down.set(func(d *direction) {
					d.hook = func(n int, _ []byte) fate {
						if n == 150 || n == 151 {
							return lose // in the middle of the bytes: chance may spare all of them
						}
						return pass
					}
				})
				js := &journals{}
				conf := &Config{Tracer: js.tracer}
				c, s := w.connect(conf, conf)
				w.transfer(s, c, way.send, patternOf(9, uint64(i)), size)
				if s.QlogTrace() != js.of(false) || c.QlogTrace() != js.of(true) {
					t.Error("QlogTrace is not what Tracer made")
				}
				w.both(func(d *direction) { d.lose = 0 })
				c.CloseWithError(0, "")
				<-s.Context().Done()
				js.of(true).ended(t)
				js.of(false).ended(t)

				header, ours := readLog(t, js.of(false).file.Bytes())
				_, theirs := readLog(t, js.of(true).file.Bytes())
				schemas := header["trace"].(map[string]any)["event_schemas"].([]any)
				if !slices.Contains(schemas, any(qlog.EventSchema)) || !slices.Contains(schemas, any(QlogEventSchema)) {
					t.Errorf("event schemas %v", schemas)
				}
				flights, passes, slots := checkFlights(t, ours)
				checkFlights(t, theirs)
				if st := s.ConnectionStats(); uint64(flights) != st.Flights || slots < size/1500 {
					t.Errorf("%d flights, %d passes, %d slots; %+v", flights, passes, slots, st)
				}
				checkReceived(t, ours, theirs)
				checkReceived(t, theirs, ours)
				checkWire(t, ours, w.down.now())
				checkSource(t, way.name, ours, size)
			})
		})
	}
}

// checkReceived finds what to received as what from sent: the same numbers and frames.
func checkReceived(t *testing.T, from, to []logged) {
	t.Helper()
	sent := map[string]loggedPacket{}
	for _, e := range from {
		if e.Name == "transport:packet_sent" {
			p := into[loggedPacket](t, e)
			sent[p.key()] = p
		}
	}
	n := 0
	for _, e := range to {
		if e.Name != "transport:packet_received" {
			continue
		}
		p := into[loggedPacket](t, e)
		s, ok := sent[p.key()]
		if !ok {
			t.Errorf("%s was received and not sent, or twice", p.key())
			continue
		}
		delete(sent, p.key())
		if string(s.Frames) != string(p.Frames) || s.Raw != p.Raw || s.Header.Dst != p.Header.Dst {
			t.Errorf("%s: sent %+v, received %+v", p.key(), s, p)
		}
		n++
	}
	if n < 10 {
		t.Errorf("%d packets received", n)
	}
}

// checkWire compares the bytes of packets with those of datagrams.
func checkWire(t *testing.T, events []logged, wire directionStats) {
	t.Helper()
	packets, bytes := 0, 0
	for _, e := range events {
		if e.Name == "transport:packet_sent" {
			packets++
			bytes += into[loggedPacket](t, e).Raw.Length
		}
	}
	if bytes != wire.bytes || packets < wire.sent {
		t.Errorf("%d packets of %d bytes are logged, and %d datagrams of %d bytes were sent", packets, bytes, wire.sent, wire.bytes)
	}
}

// checkSource adds up what was asked of a stream's source.
func checkSource(t *testing.T, way string, events []logged, size int64) {
	t.Helper()
	var calls, got, again int64
	modes := map[string]bool{}
	for _, e := range events {
		switch e.Name {
		case "volley:source_called":
			c := into[struct {
				Asked, Answered int64
				Mode            string
				Again           bool
			}](t, e)
			if c.Answered > c.Asked {
				t.Errorf("%+v", c)
			}
			if c.Again {
				again += c.Answered
				continue
			}
			calls++
			got += c.Answered
			modes[c.Mode] = true
		case "volley:pass_packed":
			if p := into[loggedPass](t, e); p.Source != "" && p.Length > 0 {
				modes[p.Source] = true
			}
		}
	}
	mode, kept := way, false
	switch way {
	case "read from", "scatter":
		mode, kept = "Scatter", true
	case "scatter reread":
		mode = "Scatter"
	case "single", "lend", "vector":
		mode = strings.ToUpper(way[:1]) + way[1:]
	default:
		if calls+again > 0 || len(modes) > 0 {
			t.Errorf("%d calls of a source that there is none of, modes %v", calls, modes)
		}
		return
	}
	if got != size || kept && again > 0 || !kept && again == 0 {
		t.Errorf("the source gave %d bytes of %d, and %d once more", got, size, again)
	}
	for m := range modes {
		if !strings.EqualFold(m, mode) {
			t.Errorf("modes %v in emission by %s", modes, mode)
		}
	}
	if most := size/1200 + 10; calls > most {
		t.Errorf("%d calls of the source", calls)
	}
}

// What loss recovery does is told: which packets are lost and why, which came late, the
// timer, the probe timeouts, the window and what state it is in.
func TestQlogOfRecovery(t *testing.T) {
	virtual(t, func(w *world) {
		js := &journals{}
		conf := &Config{Tracer: js.tracer}
		c, s := w.connect(conf, conf)
		send := waysToSend[0].send
		w.both(func(d *direction) { d.lose, d.late = 0.02, 0.02 })
		w.transfer(s, c, send, patternOf(9, 1), 1_000_000)
		// A packet is lost that only one follows: time tells. (Once it may be a probe of the
		// path's MTU.)
		w.both(func(d *direction) { d.lose, d.late = 0, 0 })
		for range 3 {
			first := true
			w.down.set(func(d *direction) {
				d.hook = func(_ int, b []byte) fate {
					if !first || len(b) < 1000 {
						return pass
					}
					first = false
					return lose
				}
			})
			w.transfer(s, c, send, patternOf(9, 3), 2000)
		}
		w.down.set(func(d *direction) { d.hook = nil })
		// Silence: nothing of a round trip arrives.
		w.both(func(d *direction) { d.lose, d.late = 1, 0 })
		time.AfterFunc(3*time.Second, func() { w.both(func(d *direction) { d.lose = 0 }) })
		w.transfer(s, c, send, patternOf(9, 2), 100_000)
		s.CloseWithError(0, "")
		s.mu.Lock()
		stats := s.rec.Stats()
		s.mu.Unlock()

		j := js.of(false)
		lost := map[qlog.PacketNumber]bool{}
		why := map[qlog.PacketLossReason]int{}
		for _, e := range eventsOf[qlog.PacketLost](j) {
			if e.Header.PacketType == qlog.PacketType1RTT {
				lost[e.Header.PacketNumber] = true
			}
			why[e.Trigger]++
		}
		if n := why[qlog.PacketLossReorderingThreshold] + why[qlog.PacketLossTimeThreshold]; uint64(n) != stats.PacketsLost || len(why) != 2 {
			t.Errorf("lost packets %v, want %d", why, stats.PacketsLost)
		}
		spurious := eventsOf[qlog.SpuriousLoss](j)
		if uint64(len(spurious)) != stats.PacketsSpurious || len(spurious) == 0 {
			t.Errorf("%d spurious losses, want %d", len(spurious), stats.PacketsSpurious)
		}
		for _, e := range spurious {
			if !lost[e.PacketNumber] || e.PacketReordering == 0 || e.TimeReordering <= 0 {
				t.Errorf("%+v", e)
			}
		}
		most := uint32(0)
		for _, e := range eventsOf[qlog.PTOCountUpdated](j) {
			most = max(most, e.PTOCount)
		}
		if most < 2 {
			t.Errorf("%d probe timeouts in a row", most)
		}
		timers := map[qlog.TimerUpdated]int{}
		for _, e := range eventsOf[qlog.TimerUpdated](j) {
			timers[qlog.TimerUpdated{Type: e.Type, TimerType: e.TimerType, EncLevel: e.EncLevel}]++
		}
		for _, e := range []qlog.TimerUpdated{
			{Type: qlog.TimerEventTypeSet, TimerType: qlog.TimerTypePTO, EncLevel: level1RTT},
			{Type: qlog.TimerEventTypeSet, TimerType: qlog.TimerTypeACK, EncLevel: level1RTT},
			{Type: qlog.TimerEventTypeExpired, TimerType: qlog.TimerTypePTO, EncLevel: level1RTT},
			{Type: qlog.TimerEventTypeExpired, TimerType: qlog.TimerTypeACK, EncLevel: level1RTT},
			{Type: qlog.TimerEventTypeCancelled},
		} {
			if timers[e] == 0 {
				t.Errorf("no event %+v", e)
			}
		}
		states := map[qlog.CongestionState]bool{}
		before := qlog.CongestionState("")
		for _, e := range eventsOf[qlog.CongestionStateUpdated](j) {
			if states[e.State] = true; e.State == before {
				t.Errorf("%s twice", e.State)
			}
			before = e.State
		}
		if !states[qlog.CongestionStateSlowStart] || !states[qlog.CongestionStateRecovery] || !states[qlog.CongestionStateCongestionAvoidance] {
			t.Errorf("congestion states %v", states)
		}
		metrics := eventsOf[qlog.MetricsUpdated](j)
		last := metrics[len(metrics)-1]
		if last.SmoothedRTT < 20*time.Millisecond || last.MinRTT < 20*time.Millisecond || last.CongestionWindow == 0 {
			t.Errorf("last metrics %+v", last)
		}
		// Probe timeouts in a row make the size suspect before a larger one is found.
		if mtus := eventsOf[qlog.MTUUpdated](j); len(mtus) == 0 || mtus[0].Value <= 1280 && mtus[0].Value != minPacketSize {
			t.Errorf("MTU updates %+v", mtus)
		}
	})
}

// window is a congestion controller that does as it is told.
type window struct {
	size  int
	slow  bool
	signs func(w *window) // what a sign of congestion does
}

func (w *window) OnSent(time.Time, int, int)     {}
func (w *window) OnAck(congestion.Ack)           {}
func (w *window) OnLoss(congestion.Loss)         { w.signs(w) }
func (w *window) OnECN(time.Time, time.Time)     { w.signs(w) }
func (w *window) OnSpurious(congestion.Spurious) { w.signs(w) }
func (w *window) Window() int                    { return w.size }
func (w *window) InSlowStart() bool              { return w.slow }
func (w *window) SetDatagramSize(int)            {}

// The state of congestion control is what it is at, and told when it changes.
func TestQlogCongestionStates(t *testing.T) {
	js := &journals{}
	js.tracer(t.Context(), true, ConnectionID{})
	q := &connTrace{rec: js.of(true)}
	w := &window{size: 100, slow: true}
	cc := q.watch(w)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	shrink := func(w *window) { w.size, w.slow = 50, false }
	grow := func(w *window) { w.size = 100 }
	same := func(w *window) {}
	told := 0
	for _, step := range []struct {
		name string
		do   func()
		want qlog.CongestionState // "": nothing new
	}{
		{"beginning", func() {}, qlog.CongestionStateSlowStart},
		{"ACK", func() { cc.OnAck(congestion.Ack{LargestSentTime: at(1)}) }, ""},
		{"application-limited", func() { cc.OnAck(congestion.Ack{LargestSentTime: at(1), AppLimited: true}) }, qlog.CongestionStateApplicationLimited},
		{"not any more", func() { cc.OnAck(congestion.Ack{LargestSentTime: at(1)}) }, qlog.CongestionStateSlowStart},
		{"loss", func() { w.signs = shrink; cc.OnLoss(congestion.Loss{Now: at(2)}) }, qlog.CongestionStateRecovery},
		{"more of it", func() { w.signs = same; cc.OnLoss(congestion.Loss{Now: at(3)}) }, ""},
		{"ACK of what left before", func() { cc.OnAck(congestion.Ack{LargestSentTime: at(1)}) }, ""},
		{"ACK of what left then", func() { cc.OnAck(congestion.Ack{LargestSentTime: at(3)}) }, qlog.CongestionStateCongestionAvoidance},
		{"CE mark", func() { w.size, w.signs = 100, shrink; cc.OnECN(at(4), at(3)) }, qlog.CongestionStateRecovery},
		{"loss that was none", func() { w.signs = grow; cc.OnSpurious(congestion.Spurious{}) }, qlog.CongestionStateCongestionAvoidance},
		{"persistent congestion", func() {
			w.signs = func(w *window) { w.size, w.slow = 2, true }
			cc.OnLoss(congestion.Loss{Now: at(5), Persistent: true})
		}, qlog.CongestionStateSlowStart},
	} {
		step.do()
		all := eventsOf[qlog.CongestionStateUpdated](js.of(true))
		var got qlog.CongestionState
		if len(all) > told {
			got = all[len(all)-1].State
		}
		told = len(all)
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	q.end()
}

// With qlog.DefaultConnectionTracer and QLOGDIR a connection leaves a file for each side,
// complete when the end of the connection is told.
func TestQlogDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("QLOGDIR", dir)
	c, s := pair(t, &Config{Tracer: qlog.DefaultConnectionTracer})
	if c.QlogTrace() == nil || s.QlogTrace() == nil {
		t.Fatal("no trace")
	}
	go c.CloseWithError(3, "bye")
	<-s.Context().Done()
	for _, side := range []string{"client", "server"} {
		names, err := filepath.Glob(filepath.Join(dir, "*_"+side+".sqlog"))
		if err != nil || len(names) != 1 {
			t.Fatalf("files of the %s: %v, %v", side, names, err)
		}
		if side == "client" {
			c.CloseWithError(0, "") // returns when the peer has been told
		}
		b, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		_, events := readLog(t, b)
		closed := slices.IndexFunc(events, func(e logged) bool { return e.Name == "transport:connection_closed" })
		if closed < 0 || !strings.Contains(string(events[closed].Data), `"reason":"bye"`) {
			t.Errorf("the %s's file has no end in its %d events", side, len(events))
		}
	}
}

// Tracer is called as quic-go calls it, and may return nil.
func TestQlogTracer(t *testing.T) {
	type call struct {
		client bool
		id     ConnectionID
		ctx    context.Context
	}
	calls := make(chan call, 2)
	c, s := pair(t, &Config{Tracer: func(ctx context.Context, client bool, id ConnectionID) qlogwriter.Trace {
		calls <- call{client, id, ctx}
		return nil
	}})
	a, b := <-calls, <-calls
	if !a.client || b.client || a.id != b.id || a.id != c.origDst {
		t.Errorf("calls %+v and %+v, want ID %v", a, b, c.origDst)
	}
	for _, call := range []call{a, b} {
		if call.ctx.Value(QUICVersionContextKey) != Version1 {
			t.Error("the context does not know the version")
		}
	}
	if c.QlogTrace() != nil || s.QlogTrace() != nil || c.qlog != nil {
		t.Error("there is a trace although Tracer returned none")
	}
}
