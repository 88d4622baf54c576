package quic

import (
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/recovery"
)

// recoveryParameters records how loss recovery begins, on every path anew. The numbers are
// RFC 9002's.
func (q *connTrace) recoveryParameters() {
	e := qlog.RecoveryParametersSet{
		ReorderingThreshold: 3,
		TimeThreshold:       9. / 8,
		TimerGranularity:    time.Millisecond,
		InitialRTT:          q.c.rec.RTT().Smoothed,
	}
	set(&e.InitialCongestionWindow, int64(q.c.cc.Window()))
	q.record(e)
}

// update records what has changed since the last time: measures, timer, ECN, datagram
// size. It is called when a flight leaves, a batch was taken in, a timer fired. The
// connection's mutex is held.
func (q *connTrace) update() {
	c := q.c
	m := qlog.MetricsUpdated{
		CongestionWindow: c.cc.Window(),
		BytesInFlight:    c.rec.BytesInFlight(),
		PacketsInFlight:  c.rec.PacketsInFlight(),
	}
	if rtt := c.rec.RTT(); rtt.Has {
		m.MinRTT, m.SmoothedRTT, m.LatestRTT, m.RTTVariance = rtt.Min, rtt.Smoothed, rtt.Latest, rtt.Var
	}
	if m != q.metrics {
		q.metrics = m
		q.record(m)
	}
	if n := c.rec.PTOCount(); n != q.ptos {
		q.ptos = n
		q.record(qlog.PTOCountUpdated{PTOCount: uint32(n)})
	}
	q.updateTimer()
	if s, why := c.rec.ECN(); qlogECNState[s] != q.ecn {
		if q.ecn = qlogECNState[s]; q.ecn != "" {
			q.record(qlog.ECNStateUpdated{State: q.ecn, Trigger: why})
		}
	}
	if mtu := (qlog.MTUUpdated{Value: c.snd.DatagramSize(), Done: c.mtu.found()}); mtu != q.mtu {
		first := q.mtu == qlog.MTUUpdated{}
		if q.mtu = mtu; !first {
			q.record(mtu)
		}
	}
}

var qlogECNState = [...]qlog.ECNState{
	recovery.ECNUnused:  "", // it is not told
	recovery.ECNTesting: qlog.ECNStateTesting,
	recovery.ECNCapable: qlog.ECNStateCapable,
	recovery.ECNFailed:  qlog.ECNStateFailed,
}

// lossTimer is what the loss detection timer was last told to be.
type lossTimer struct {
	at    time.Time
	level qlog.EncryptionLevel
	pto   bool
}

func (t lossTimer) kind() qlog.TimerType {
	if t.pto {
		return qlog.TimerTypePTO
	}
	return qlog.TimerTypeACK
}

func (q *connTrace) nextTimer() lossTimer {
	at, sp, pto := q.c.rec.NextTimer()
	if at.IsZero() {
		return lossTimer{}
	}
	return lossTimer{at, levels[sp], pto}
}

func (q *connTrace) updateTimer() {
	t := q.nextTimer()
	if t == q.timer {
		return
	}
	q.timer = t
	if t.at.IsZero() {
		q.record(qlog.TimerUpdated{Type: qlog.TimerEventTypeCancelled})
		return
	}
	q.record(qlog.TimerUpdated{Type: qlog.TimerEventTypeSet, TimerType: t.kind(), EncLevel: t.level, Time: t.at})
}

// timerExpired is called before recovery does what is due.
func (q *connTrace) timerExpired() {
	t := q.nextTimer()
	q.record(qlog.TimerUpdated{Type: qlog.TimerEventTypeExpired, TimerType: t.kind(), EncLevel: t.level})
	q.timer = lossTimer{}
}

// PacketLost implements recovery.Trace.
func (q *connTrace) PacketLost(sp recovery.Space, pn int64, byTime, probe bool) {
	level := levels[sp]
	if sp == recovery.App && pn <= q.lastEarly {
		level = level0RTT
	}
	e := qlog.PacketLost{
		Header:           qlog.PacketHeader{PacketType: qlog.EncryptionLevelToPacketType(level), PacketNumber: qlog.PacketNumber(pn)},
		IsMTUProbePacket: probe,
		Trigger:          qlog.PacketLossReorderingThreshold,
	}
	if byTime {
		e.Trigger = qlog.PacketLossTimeThreshold
	}
	q.record(e)
}

// SpuriousLoss implements recovery.Trace.
func (q *connTrace) SpuriousLoss(sp recovery.Space, pn, by int64, age time.Duration) {
	e := qlog.SpuriousLoss{EncryptionLevel: levels[sp], PacketReordering: uint64(max(by, 0)), TimeReordering: age}
	e.PacketNumber = qlog.PacketNumber(pn)
	q.record(e)
}

// Encryption levels, of which qlog exports the type only.
const (
	levelInitial qlog.EncryptionLevel = 1 + iota
	levelHandshake
	level0RTT
	level1RTT
)

var levels = [...]qlog.EncryptionLevel{
	recovery.Initial:   levelInitial,
	recovery.Handshake: levelHandshake,
	recovery.App:       level1RTT,
}

// tracedController is a congestion controller whose state is told. Only a connection that
// is traced has one.
type tracedController struct {
	congestion.Controller
	q     *connTrace
	state qlog.CongestionState
	since time.Time // when the recovery period began
}

// watch puts itself between recovery and its controller.
func (q *connTrace) watch(cc congestion.Controller) congestion.Controller {
	t := &tracedController{Controller: cc, q: q}
	t.set(qlog.CongestionStateSlowStart)
	return t
}

func (t *tracedController) set(s qlog.CongestionState) {
	if s != t.state {
		t.state = s
		t.q.record(qlog.CongestionStateUpdated{State: s})
	}
}

// grows is the state outside recovery periods.
func (t *tracedController) grows() qlog.CongestionState {
	if t.InSlowStart() {
		return qlog.CongestionStateSlowStart
	}
	return qlog.CongestionStateCongestionAvoidance
}

// signal passes a sign of congestion on. A window that shrinks for it begins a recovery
// period (RFC 9002 §7.3.2).
func (t *tracedController) signal(now time.Time, pass func()) {
	before := t.Window()
	if pass(); t.Window() < before {
		t.since = now
		t.set(qlog.CongestionStateRecovery)
	}
}

func (t *tracedController) OnAck(a congestion.Ack) {
	t.Controller.OnAck(a)
	switch {
	case t.state == qlog.CongestionStateRecovery && !a.LargestSentTime.After(t.since):
	case a.AppLimited:
		t.set(qlog.CongestionStateApplicationLimited)
	default:
		t.set(t.grows())
	}
}

func (t *tracedController) OnLoss(l congestion.Loss) {
	t.signal(l.Now, func() { t.Controller.OnLoss(l) })
	if l.Persistent {
		t.set(t.grows()) // §7.6.2: back to slow start, and no recovery period
	}
}

func (t *tracedController) OnECN(now, sent time.Time) {
	t.signal(now, func() { t.Controller.OnECN(now, sent) })
}

func (t *tracedController) OnSpurious(s congestion.Spurious) {
	before := t.Window()
	t.Controller.OnSpurious(s)
	if t.Window() > before {
		t.set(t.grows()) // the reduction was taken back
	}
}
