package quic

import (
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// ends are what a side's journal says of the connection's end.
func (j *journal) ends(t *testing.T) qlog.ConnectionClosed {
	t.Helper()
	j.ended(t)
	ends := eventsOf[qlog.ConnectionClosed](j)
	if len(ends) != 1 {
		t.Fatalf("%d ends", len(ends))
	}
	states := eventsOf[qlog.ConnectionStateUpdated](j)
	if last := states[len(states)-1]; last.State != qlog.ConnectionStateClosed {
		t.Errorf("the last state is %s", last.State)
	}
	return ends[0]
}

func wantEnd(t *testing.T, j *journal, want qlog.ConnectionClosed) {
	t.Helper()
	got := j.ends(t)
	same := func(a, b *TransportErrorCode) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	sameApp := func(a, b *ApplicationErrorCode) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	if got.Initiator != want.Initiator || got.Trigger != want.Trigger || want.Reason != "" && got.Reason != want.Reason ||
		!same(got.ConnectionError, want.ConnectionError) || !sameApp(got.ApplicationError, want.ApplicationError) {
		t.Errorf("closed: %+v, want %+v", got, want)
	}
}

// before fails the test if the recorder is closed when done is done already.
func (j *journal) before(t *testing.T, done <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onEnd = func() {
		select {
		case <-done:
			t.Error("the end is told before the log is complete")
		default:
		}
	}
}

// However a connection ends, its log says so, says who ended it, and is complete by the
// time that the end is told.
func TestQlogEnds(t *testing.T) {
	code, violation := ApplicationErrorCode(7), ProtocolViolation
	traced := func(t *testing.T, f func(w *world, js *journals, c, s *Conn)) {
		virtual(t, func(w *world) {
			js := &journals{}
			conf := &Config{Tracer: js.tracer}
			c, s := w.connect(conf, conf)
			f(w, js, c, s)
		})
	}
	t.Run("by an application", func(t *testing.T) {
		traced(t, func(w *world, js *journals, c, s *Conn) {
			js.of(true).before(t, c.Context().Done())
			js.of(false).before(t, s.closeSent)
			s.CloseWithError(code, "enough")
			wantEnd(t, js.of(false), qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal, ApplicationError: &code, Reason: "enough"})
			<-c.Context().Done()
			wantEnd(t, js.of(true), qlog.ConnectionClosed{Initiator: qlog.InitiatorRemote, ApplicationError: &code, Reason: "enough"})
		})
	})
	t.Run("by silence", func(t *testing.T) {
		traced(t, func(w *world, js *journals, c, s *Conn) {
			js.of(true).before(t, c.Context().Done())
			<-c.Context().Done()
			<-s.Context().Done()
			for _, client := range []bool{true, false} {
				wantEnd(t, js.of(client), qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal, Trigger: qlog.ConnectionCloseTriggerIdleTimeout})
			}
		})
	})
	t.Run("with the transport", func(t *testing.T) {
		traced(t, func(w *world, js *journals, c, s *Conn) {
			w.client.Close()
			wantEnd(t, js.of(true), qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal})
		})
	})
	t.Run("before it began", func(t *testing.T) {
		virtual(t, func(w *world) {
			w.both(func(d *direction) { d.lose = 1 })
			js := &journals{}
			if _, err := w.client.Dial(w.Context(), hereAddr, w.pair.client, &Config{Tracer: js.tracer}); err == nil {
				t.Fatal("it was dialed")
			}
			wantEnd(t, js.of(true), qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal, Trigger: qlog.ConnectionCloseTriggerIdleTimeout})
		})
	})
	script := func(t *testing.T, want qlog.ConnectionClosed, f func(p *actor)) {
		synctest.Test(t, func(t *testing.T) {
			js := &journals{}
			p := newActor(t, asClient,
				func(conf *Config) { conf.Tracer = js.tracer },
				func(tp *wire.TransportParams) { tp.StatelessResetToken = &aToken })
			f(p.handshake())
			p.settle()
			wantEnd(t, js.of(true), want)
		})
	}
	t.Run("by a violation", func(t *testing.T) {
		script(t, qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal, ConnectionError: &violation}, func(p *actor) {
			p.writeFrames(wire.OneRTT, wire.NewConnectionID{Seq: 1, ID: []byte("id.1")}, wire.NewConnectionID{Seq: 1, ID: []byte("id.2")})
			p.wantClosed("one number for two IDs", wire.ProtocolViolation)
		})
	})
	t.Run("by a violation of ours", func(t *testing.T) {
		script(t, qlog.ConnectionClosed{Initiator: qlog.InitiatorRemote, ConnectionError: &violation, Reason: "because"}, func(p *actor) {
			p.writeFrames(wire.OneRTT, wire.ConnectionClose{Code: uint64(wire.ProtocolViolation), Reason: []byte("because")})
		})
	})
	t.Run("by a stateless reset", func(t *testing.T) {
		script(t, qlog.ConnectionClosed{Initiator: qlog.InitiatorRemote, Trigger: qlog.ConnectionCloseTriggerStatelessReset}, func(p *actor) {
			p.reset(aToken, 42)
		})
	})
}

// The steps of a handshake, in order, on both sides.
func TestQlogOfAHandshake(t *testing.T) {
	virtual(t, func(w *world) {
		js := &journals{}
		conf := &Config{Tracer: js.tracer, EnableDatagrams: true}
		c, s := w.connect(conf, conf)
		w.exchange(c, s, 1000)
		c.CloseWithError(0, "")
		for _, client := range []bool{true, false} {
			j := js.of(client)
			var states []qlog.ConnectionState
			for _, e := range eventsOf[qlog.ConnectionStateUpdated](j) {
				states = append(states, e.State)
			}
			want := []qlog.ConnectionState{
				qlog.ConnectionStateAttempted, qlog.ConnectionStateHandshakeStarted,
				qlog.ConnectionStateHandshakeComplete, qlog.ConnectionStateHandshakeConfirmed,
			}
			if len(states) < 4 || !slices.Equal(states[:4], want) {
				t.Errorf("states %v", states)
			}
			if e, ok := j.all()[0].(qlog.StartedConnection); !ok || e.Local.IPv4.Port() == 0 || e.Remote.IPv4.Port() == 0 || e.Local == e.Remote {
				t.Errorf("it begins with %#v", j.all()[0])
			}
			if a := eventsOf[qlog.ALPNInformation](j); len(a) != 1 || a[0].ChosenALPN != "volley-test" {
				t.Errorf("ALPN %+v", a)
			}
			if v := eventsOf[qlog.VersionInformation](j); len(v) != 1 || v[0].ChosenVersion != Version1 {
				t.Errorf("version %+v", v)
			}
			if r := eventsOf[qlog.RecoveryParametersSet](j); len(r) != 1 || r[0].InitialCongestionWindow < 12000 {
				t.Errorf("recovery parameters %+v", r)
			}
			if j.id != c.origDst {
				t.Errorf("traced with ID %v, want %v", j.id, c.origDst)
			}
		}
		// What one side sets, the other receives.
		a, b := eventsOf[qlog.ParametersSet](js.of(true)), eventsOf[qlog.ParametersSet](js.of(false))
		if len(a) != 2 || len(b) != 2 {
			t.Fatalf("%d and %d sets of parameters", len(a), len(b))
		}
		slices.SortFunc(b, func(x, y qlog.ParametersSet) int { return int(y.SentBy - x.SentBy) }) // the client's first, too
		for i := range a {
			x, y := a[i], b[i]
			if x.Initiator == y.Initiator || (x.StatelessResetToken == nil) != (y.StatelessResetToken == nil) {
				t.Errorf("%+v and %+v", x, y)
			}
			if x.MaxDatagramFrameSize != maxDatagramFrame || x.InitialMaxData != defaultInitialConnectionWindow || x.MaxIdleTimeout != defaultMaxIdleTimeout {
				t.Errorf("%+v", x)
			}
			x.Initiator, x.StatelessResetToken, y.Initiator, y.StatelessResetToken = "", nil, "", nil
			if x != y {
				t.Errorf("%+v\nis not\n%+v", x, y)
			}
		}
	})
}

// A Retry and a change of version.
func TestQlogBeforeTheHandshake(t *testing.T) {
	t.Run("Retry", func(t *testing.T) {
		virtual(t, func(w *world) {
			js := &journals{}
			w.server.VerifySourceAddress = func(net.Addr) bool { return true }
			c, _ := w.connect(&Config{Tracer: js.tracer}, &Config{Tracer: js.tracer})
			retries := 0
			for _, e := range eventsOf[qlog.PacketReceived](js.of(true)) {
				if e.Header.PacketType == qlog.PacketTypeRetry && e.Header.Token != nil && len(e.Header.Token.Raw) > 0 {
					retries++
				}
			}
			if retries != 1 || js.of(true).id != c.origDst || js.of(false).id != c.origDst {
				t.Errorf("%d retries; IDs %v and %v, want %v", retries, js.of(true).id, js.of(false).id, c.origDst)
			}
		})
	})
	t.Run("version", func(t *testing.T) {
		virtual(t, func(w *world) {
			js := &journals{}
			c, _ := w.connect(&Config{Tracer: js.tracer, Versions: []Version{Version2, Version1}}, &Config{Versions: []Version{Version1}})
			if len(js.all) != 2 {
				t.Fatalf("%d traces", len(js.all))
			}
			first, second := js.all[0], js.all[1]
			wantEnd(t, first, qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal, Trigger: qlog.ConnectionCloseTriggerVersionMismatch})
			n := eventsOf[qlog.VersionNegotiationReceived](first)
			v := eventsOf[qlog.VersionInformation](first)
			if len(n) != 1 || !slices.Contains(n[0].SupportedVersions, Version1) || len(v) != 1 || v[0].ChosenVersion != Version1 {
				t.Errorf("%+v, %+v", n, v)
			}
			if second.id != c.origDst || len(eventsOf[qlog.VersionInformation](second)) > 0 {
				t.Errorf("second trace of %v", second.id)
			}
		})
	})
}

// What cannot be used is told, with the reason; what comes too early is buffered.
func TestQlogDrops(t *testing.T) {
	t.Run("on a bad network", func(t *testing.T) {
		virtual(t, func(w *world) {
			js := &journals{}
			c, s := w.connect(&Config{Tracer: js.tracer}, nil)
			w.both(func(d *direction) { d.double, d.damage = 0.1, 0.05 })
			w.transfer(s, c, waysToSend[0].send, patternOf(9, 3), 500_000)
			why := js.of(true).triggers()
			if !slices.Contains(why, qlog.PacketDropDuplicate) || !slices.Contains(why, qlog.PacketDropPayloadDecryptError) {
				t.Errorf("reasons %v", why)
			}
			for _, e := range eventsOf[qlog.PacketDropped](js.of(true)) {
				if known := e.Header.PacketNumber >= 0; e.Trigger == qlog.PacketDropDuplicate && !known || e.Raw.Length == 0 {
					t.Errorf("%+v", e)
				}
			}
		})
	})
	t.Run("in a handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			js := &journals{}
			p := newActor(t, asServer, func(conf *Config) { conf.Tracer = js.tracer })
			p.start()
			last := func(want qlog.PacketDropReason, typ qlog.PacketType) {
				t.Helper()
				synctest.Wait()
				drops := eventsOf[qlog.PacketDropped](js.of(false))
				if len(drops) == 0 {
					t.Errorf("nothing dropped, want %s", want)
				} else if e := drops[len(drops)-1]; e.Trigger != want || e.Header.PacketType != typ {
					t.Errorf("dropped %+v, want %s", e, want)
				}
			}
			p.writeCrypto(wire.Initial)
			p.collect()
			small := p.seal(p.packet(wire.Initial, wire.Ping{}), true)
			p.deliver(small, "an Initial in a small datagram")
			last(qlog.PacketDropUnexpectedPacket, qlog.PacketTypeInitial)
			retry := wire.AppendRetry(nil, p.version, p.dcid, p.scid, []byte("token"))
			p.deliver(append(retry, make([]byte, 16)...), "a Retry, to a server")
			last(qlog.PacketDropUnexpectedPacket, qlog.PacketTypeRetry)
			other := wire.AppendLong(nil, wire.Handshake, wire.Version2, p.dcid, p.scid, nil, 30, 1, 4)
			p.deliver(append(other, make([]byte, 26)...), "another version")
			last(qlog.PacketDropUnexpectedVersion, qlog.PacketTypeHandshake)
			garbage := wire.AppendLong(nil, wire.Handshake, p.version, p.dcid, p.scid, nil, 30, 1, 4)
			p.deliver(append(garbage, make([]byte, 26)...), "not sealed")
			last(qlog.PacketDropPayloadDecryptError, qlog.PacketTypeHandshake)
			zero := wire.AppendLong(nil, wire.ZeroRTT, p.version, p.dcid, p.scid, nil, 30, 1, 4)
			p.deliver(append(zero, make([]byte, 26)...), "0-RTT that is not wanted")
			last(qlog.PacketDropKeysUnavailable, qlog.PacketType0RTT)
			short := wire.AppendShort(nil, p.dcid, 1, 4, false)
			p.deliver(append(short, make([]byte, 26)...), "1-RTT too early")
			synctest.Wait()
			if b := eventsOf[qlog.PacketBuffered](js.of(false)); len(b) != 1 || b[0].Header.PacketType != qlog.PacketType1RTT {
				t.Errorf("buffered %+v", b)
			}
		})
	})
}

// Keys that are updated, on either side's initiative, and thrown away.
func TestQlogOfKeyUpdates(t *testing.T) {
	virtual(t, func(w *world) {
		js := &journals{}
		conf := &Config{Tracer: js.tracer}
		c, s := w.connect(conf, conf)
		s.mu.Lock()
		s.oneRTT.SetUpdateInterval(100)
		s.mu.Unlock()
		for i := range 5 {
			w.transfer(s, c, waysToSend[0].send, patternOf(9, uint64(i)), 300_000)
			time.Sleep(time.Second) // keys must not change too often (RFC 9001 §6.5)
		}
		s.mu.Lock()
		n := s.oneRTT.SendGeneration()
		s.mu.Unlock()
		s.CloseWithError(0, "")
		if n < 2 {
			t.Fatalf("%d updates", n)
		}
		for client, why := range map[bool]qlog.KeyUpdateTrigger{false: qlog.KeyUpdateLocal, true: qlog.KeyUpdateRemote} {
			var phases []qlog.KeyPhase
			for _, e := range eventsOf[qlog.KeyUpdated](js.of(client)) {
				if e.Trigger == qlog.KeyUpdateTLS || e.KeyType == qlog.KeyTypeServer1RTT {
					continue
				}
				if e.Trigger != why {
					t.Errorf("%+v", e)
				}
				phases = append(phases, e.KeyPhase)
			}
			gone := map[qlog.KeyDiscarded]int{}
			for _, e := range eventsOf[qlog.KeyDiscarded](js.of(client)) {
				gone[e]++
			}
			for i := range n {
				if len(phases) != int(n) || phases[i] != qlog.KeyPhase(i+1) {
					t.Errorf("phases %v, want 1 to %d", phases, n)
				}
				if i < n-1 && gone[qlog.KeyDiscarded{KeyType: qlog.KeyTypeServer1RTT, KeyPhase: qlog.KeyPhase(i)}] != 1 {
					t.Errorf("key phase %d is not discarded once: %v", i, gone)
				}
			}
			for _, k := range []qlog.KeyType{qlog.KeyTypeClientInitial, qlog.KeyTypeServerInitial, qlog.KeyTypeClientHandshake, qlog.KeyTypeServerHandshake} {
				if gone[qlog.KeyDiscarded{KeyType: k}] != 1 {
					t.Errorf("%s is discarded %d times", k, gone[qlog.KeyDiscarded{KeyType: k}])
				}
			}
			bits := map[qlog.KeyPhaseBit]bool{}
			for _, e := range eventsOf[qlog.PacketSent](js.of(client)) {
				bits[e.Header.KeyPhaseBit] = true
			}
			if !bits[qlog.KeyPhaseZero] || !bits[qlog.KeyPhaseOne] {
				t.Errorf("key phase bits %v", bits)
			}
		}
	})
}

// A client that moves is told as tuples: the one in use has no name.
func TestQlogOfAMove(t *testing.T) {
	js := &journals{}
	conf := &Config{Tracer: js.tracer}
	onTheMove(t, conf, conf, func(t *testing.T, m *moving) {
		m.carry(m.s, m.c, 100_000)
		m.rebind(m.clientSocket, "192.0.2.1", 2000)
		m.carry(m.c, m.s, 100_000)
		time.Sleep(time.Second)
		m.c.CloseWithError(0, "")
		<-m.s.Context().Done()
		var ids []string
		for _, e := range eventsOf[qlog.TupleAssigned](js.of(false)) {
			ids = append(ids, e.TupleID)
			if e.TupleID == "" && e.Remote.IPv4.String() != "192.0.2.1:2000" {
				t.Errorf("the client is at %v", e.Remote.IPv4)
			}
		}
		if !slices.Contains(ids, "") || !slices.Contains(ids, "1") {
			t.Errorf("tuples %q", ids)
		}
		if n := len(eventsOf[qlog.RecoveryParametersSet](js.of(false))); n != 2 {
			t.Errorf("recovery begins %d times", n)
		}
		received := map[string]int{}
		for _, e := range eventsOf[qlog.PacketReceived](js.of(false)) {
			received[e.Tuple]++
		}
		challenges := map[string]int{}
		for _, e := range eventsOf[qlog.PacketSent](js.of(false)) {
			for _, f := range e.Frames {
				if _, ok := f.Frame.(*qlog.PathChallengeFrame); ok {
					challenges[e.Tuple]++
				}
			}
		}
		if received["1"] == 0 || received[""] == 0 || challenges[""] == 0 {
			t.Errorf("packets received %v, challenges sent %v", received, challenges)
		}
		_, events := readLog(t, js.of(false).file.Bytes())
		checkFlights(t, events)
	})
}

// 0-RTT packets, the parameters they rely on, and their keys.
func TestQlogOf0RTT(t *testing.T) {
	virtual(t, func(w *world) {
		cache := newTicketCache()
		w.pair.client = w.pair.client.Clone()
		w.pair.client.ClientSessionCache = cache
		before, js := &journals{}, &journals{}
		server := &Config{Allow0RTT: true, Tracer: before.tracer}
		c, _ := w.connect(nil, server)
		<-cache.put
		c.CloseWithError(0, "")
		time.Sleep(time.Minute)
		c, err := w.client.DialEarly(w.Context(), hereAddr, w.pair.client, &Config{Tracer: js.tracer})
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		st.Write([]byte("early"))
		s, err := w.listener.Accept(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		in, err := s.AcceptUniStream(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		in.Read(make([]byte, 5))
		<-c.HandshakeComplete()
		c.CloseWithError(0, "")
		ours, theirs := js.of(true), before.all[len(before.all)-1]
		if r := eventsOf[qlog.ParametersRestored](ours); len(r) != 1 || r[0].InitialMaxData != defaultInitialConnectionWindow {
			t.Errorf("restored %+v", r)
		}
		flights := eventsOf[QlogFlightSent](ours)
		if len(flights) == 0 || flights[0].PacketType != qlog.PacketType0RTT {
			t.Errorf("flights %+v", flights)
		}
		sent, received := 0, 0
		for _, e := range eventsOf[qlog.PacketSent](ours) {
			if e.Header.PacketType == qlog.PacketType0RTT && e.Header.SrcConnectionID.Len() > 0 {
				sent++
			}
		}
		for _, e := range eventsOf[qlog.PacketReceived](theirs) {
			if e.Header.PacketType == qlog.PacketType0RTT {
				received++
			}
		}
		if sent == 0 || received != sent {
			t.Errorf("%d packets sent as 0-RTT, and %d received", sent, received)
		}
		if !slices.Contains(ours.all(), any(qlog.KeyUpdated{Trigger: qlog.KeyUpdateTLS, KeyType: qlog.KeyTypeClient0RTT}).(qlogwriter.Event)) ||
			!slices.Contains(ours.all(), any(qlog.KeyDiscarded{KeyType: qlog.KeyTypeClient0RTT}).(qlogwriter.Event)) ||
			!slices.Contains(theirs.all(), any(qlog.KeyUpdated{Trigger: qlog.KeyUpdateTLS, KeyType: qlog.KeyTypeClient0RTT}).(qlogwriter.Event)) {
			t.Error("keys of 0-RTT are missing")
		}
	})
}

// Packets that the system refused are recorded as sent, and then as refused.
func TestQlogOfRefusedPackets(t *testing.T) {
	virtual(t, func(w *world) {
		js := &journals{}
		c, s := w.connect(nil, &Config{Tracer: js.tracer})
		w.transfer(s, c, waysToSend[0].send, patternOf(9, 5), 500_000)
		time.Sleep(time.Second) // datagrams are large now
		kernel(w.server, func(n int, s udp.Sending) udp.Verdict {
			if s.Segment > 1300 {
				return udp.Verdict{Err: syscall.EMSGSIZE}
			}
			return udp.Verdict{}
		})
		before := w.down.now()
		w.transfer(s, c, waysToSend[0].send, patternOf(9, 6), 100_000)
		sent := map[qlog.PacketNumber]bool{}
		for _, e := range eventsOf[qlog.PacketSent](js.of(false)) {
			sent[e.Header.PacketNumber] = sent[e.Header.PacketNumber] || e.Header.PacketType == qlog.PacketType1RTT
		}
		n := 0
		for _, e := range eventsOf[QlogPacketsRefused](js.of(false)) {
			for pn := e.First; pn <= e.Last; pn++ {
				if n++; !sent[pn] || e.PacketType != qlog.PacketType1RTT {
					t.Errorf("%+v", e)
				}
			}
		}
		if n == 0 || w.down.now().sent == before.sent {
			t.Errorf("%d packets were refused", n)
		}
	})
}

// Messages that nobody receives, priorities, and the size of datagrams.
func TestQlogOfOddsAndEnds(t *testing.T) {
	virtual(t, func(w *world) {
		js := &journals{}
		conf := &Config{Tracer: js.tracer, EnableDatagrams: true}
		c, s := w.connect(conf, conf)
		for range maxDatagramsIn + 5 {
			if err := c.SendDatagram([]byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
		st, err := c.OpenUniStream()
		if err != nil {
			t.Fatal(err)
		}
		st.SetPriority(1, true)
		w.exchange(c, s, 1000)
		d := eventsOf[qlog.DatagramDropped](js.of(false))
		if len(d) != 5 || d[0].Direction != qlog.DirectionReceiving || d[0].Raw.Length != 5 || d[0].Trigger != "buffer_full" {
			t.Errorf("%d dropped, %+v", len(d), d)
		}
		if p := eventsOf[qlog.StreamPriorityUpdated](js.of(true)); len(p) != 1 || p[0] != (qlog.StreamPriorityUpdated{StreamID: st.StreamID(), Urgency: 1, Incremental: true}) {
			t.Errorf("%+v", p)
		}
		time.Sleep(10 * time.Second)
		probes := 0
		for _, e := range eventsOf[qlog.PacketSent](js.of(true)) {
			if e.IsMTUProbePacket {
				probes++
			}
		}
		if mtu := eventsOf[qlog.MTUUpdated](js.of(true)); len(mtu) == 0 || mtu[len(mtu)-1] != (qlog.MTUUpdated{Value: 1452, Done: true}) || probes == 0 {
			t.Errorf("%d MTU probes, %+v", probes, mtu)
		}
	})
}
