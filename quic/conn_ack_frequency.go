package quic

import (
	"time"

	"github.com/volley-quic/volley/internal/experiment"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
)

// ACK frequency (draft-ietf-quic-ack-frequency): an end that announces min_ack_delay lets
// its peer say when it is to acknowledge. Volley announces it, does as it is asked (see
// ackRules), and asks in turn.
//
// What it asks for: an ACK for every so many packets of those that were in flight lately. By
// the time an ACK comes, the window has been closed for as long as the packets took that
// it waited for. That costs nothing while the path has a queue to send from, so half of
// what stands in queues may go by, by the round-trip time, and an eighth of all at most.
// Without a queue it is a 32nd, and so it is in slow start, where the window doubles
// meanwhile: it opens in small steps, the pacer has something to spread, and HyStart++ has
// its eight measurements early in the round.
//
// Nothing is asked for while few packets are in flight: requests and responses are not
// bulk, and who waits for an ACK there is somebody. For the same reason everything is as it
// was with the first packet after a silence. Nor is it on very short paths, where no timer
// could bring an ACK each round trip. Bulk comes in batches there, with one ACK for each
// anyway, and the sender's memory is better in the caches the sooner it is used again: on
// loopback, half as many ACKs made bulk 3 % slower.
//
// An ACK may wait for a quarter of the round-trip time, and never longer than the peer
// would have it wait by itself. A gap brings one at once when a packet can be declared
// lost with it. Where nothing more is coming (the end of what there is to send, and
// probes) an IMMEDIATE_ACK frame says that waiting is no use.
//
// A new value is asked for when it is far from the old one, and not before the old one
// has arrived: at most once in a round trip, and in a steady state never.

const (
	// minAckDelay is what we announce: timers are not much finer than that.
	minAckDelay = time.Millisecond

	// How many ACKs there are to be for what is in flight at a time: at least, and at most.
	fewAcks  = 8
	manyAcks = 32

	// fewPackets is the least number of packets for one ACK that is worth a frame, and
	// manyPackets the largest that is asked for. Beyond, an ACK costs little beside what it
	// acknowledges; and if one opened the window for a whole flight, that would be taken by
	// a single stream whose source fills packets in place, where many wait for their turn.
	fewPackets  = 4
	manyPackets = 16

	// shortestWait is the shortest delay that is asked for, and the shortest round trip for
	// which one is. It is part of the probe timeout, which must not fire whenever a busy
	// machine lets the peer wait.
	shortestWait = 5 * time.Millisecond
)

// ackAsk is what we ask for with one ACK_FREQUENCY frame.
type ackAsk struct {
	packets int           // for one ACK; 2 is RFC 9000's way
	delay   time.Duration // an ACK waits no longer
}

// ackAsking is what the peer was asked for, and what it should be asked for.
type ackAsking struct {
	on       bool          // the peer obeys
	shortest time.Duration // … delays of this length at least
	plain    ackAsk        // how it acknowledges without being asked

	want    ackAsk
	due     bool          // … and is, with the next packets: a packet of its own it is not worth
	said    ackAsk        // by the latest frame
	known   ackAsk        // by the latest frame that arrived
	flying  bool          // the latest frame's fate is not known
	next    int64         // its successor's sequence number
	longest time.Duration // the longest delay of those that the peer may keep to

	peak   int   // most bytes in flight during this round
	end    int64 // packet number that ends it
	sentAt time.Time
}

// start notes what the peer announced in its transport parameters.
func (a *ackAsking) start(p *wire.TransportParams) {
	a.plain = ackAsk{packets: 2, delay: p.MaxAckDelay}
	a.want, a.said, a.known, a.longest = a.plain, a.plain, a.plain, p.MaxAckDelay
	if p.MinAckDelay != nil && !experiment.AckFrequencyOff.Load() {
		a.on, a.shortest = true, *p.MinAckDelay
	}
}

// choose is what should be asked for while so many packets are in flight.
func (a *ackAsking) choose(inFlight int, rtt *recovery.RTT, slowStart bool) ackAsk {
	n := inFlight / manyAcks
	if !slowStart {
		queued := float64(inFlight) * float64(rtt.Smoothed-rtt.Min) / float64(rtt.Smoothed)
		n = min(max(n, int(queued/2)), inFlight/fewAcks)
	}
	least, shortest := fewPackets, shortestWait
	if a.said != a.plain {
		least, shortest = least/2, shortest/2 // or it would go to and fro
	}
	if n < least || rtt.Smoothed < shortest {
		return a.plain
	}
	d := min(max(rtt.Smoothed/4, shortestWait), a.plain.delay)
	return ackAsk{packets: min(n, manyPackets), delay: max(d, a.shortest).Truncate(time.Microsecond)}
}

// differs reports whether want is so far from what was said that it should be said.
func (a *ackAsking) differs(want ackAsk) bool {
	if want == a.plain || a.said == a.plain {
		return want != a.said
	}
	return 2*want.packets >= 3*a.said.packets || 4*want.packets <= 3*a.said.packets ||
		want.delay >= 2*a.said.delay || 2*want.delay <= a.said.delay
}

// thinAcks looks, once in a round trip, whether the peer should acknowledge otherwise.
// An ACK of everything up to largest has come, with so many bytes in flight before it.
func (c *Conn) thinAcks(inFlight int, largest int64) {
	a := &c.asking
	if !a.on {
		return
	}
	a.peak = max(a.peak, inFlight)
	if largest < a.end || a.flying {
		return
	}
	want := a.choose(a.peak/c.snd.DatagramSize(), c.rec.RTT(), c.cc.InSlowStart())
	a.peak, a.end = 0, c.rec.NextPN(recovery.App)
	if a.differs(want) {
		a.want, a.due = want, true
	}
}

// unask has the peer acknowledge as it would by itself.
func (a *ackAsking) unask() {
	a.peak = 0
	if a.want != a.plain || a.said != a.plain {
		a.want, a.due = a.plain, true
	}
}

// appendAckFrequency writes an ACK_FREQUENCY frame if one is due. When sending begins
// after a silence, one is: what begins may be no bulk.
func (c *Conn) appendAckFrequency(f *sender.Flight, now time.Time) {
	a := &c.asking
	if !a.on || c.rec.Probes(recovery.App) > 0 { // there is better use of a probe
		return
	}
	if c.rec.BytesInFlight() == 0 && now.Sub(a.sentAt) >= max(c.rec.RTT().Smoothed, a.said.delay) {
		a.unask()
	}
	if !a.due {
		return
	}
	if a.want == a.known && a.said == a.known {
		a.due = false // a frame that was held to be lost has arrived
		return
	}
	fr := wire.AckFrequency{
		Seq:        a.next,
		Threshold:  uint64(a.want.packets - 1),
		MaxDelay:   uint64(a.want.delay / time.Microsecond),
		Reordering: recovery.PacketThreshold,
	}
	if a.want == a.plain {
		fr.Reordering = 1
	}
	b := f.Tail(fr.Len())
	if b == nil {
		return
	}
	f.Wrote(len(fr.Append(b)), true, recovery.Frame{Kind: frameAckFrequency, A: fr.Seq})
	a.next++
	a.said, a.flying, a.due = a.want, true, false
	// Until it is acknowledged the peer may keep to the old delay, or to the new one.
	a.longest = max(a.longest, a.said.delay)
	c.rec.SetMaxAckDelay(a.longest)
	c.snd.SetImmediateAck(true, a.said != a.plain)
}

// ackFrequencyAcked notes that a frame has arrived.
func (c *Conn) ackFrequencyAcked(seq int64) {
	a := &c.asking
	if seq != a.next-1 {
		return // the peer goes by a later one already, or will
	}
	a.flying, a.known, a.longest = false, a.said, a.said.delay
	c.rec.SetMaxAckDelay(a.longest)
}

// ackFrequencyLost notes that a frame is lost. Another one says what is right then, unless
// it has left already.
func (c *Conn) ackFrequencyLost(seq int64) {
	if a := &c.asking; seq == a.next-1 && a.known != a.said {
		a.flying, a.due = false, true
	}
}

// onAckFrequency does as the peer asks.
func (c *Conn) onAckFrequency(f wire.AckFrequency) error {
	if !c.obeysAsks {
		return notNegotiated(f)
	}
	const most = 1 << 14 * time.Millisecond / time.Microsecond // RFC 9000 §18.2
	if f.MaxDelay < uint64(minAckDelay/time.Microsecond) || f.MaxDelay >= uint64(most) {
		return violation(wire.FrameAckFrequency, "ACK_FREQUENCY with a delay that is not possible")
	}
	if f.Seq <= c.askedSeq {
		return nil // it was overtaken
	}
	c.askedSeq = f.Seq
	c.spaces[recovery.App].acks.obey(ackRules{
		threshold: int64(f.Threshold),
		reorder:   int64(f.Reordering),
		delay:     time.Duration(f.MaxDelay) * time.Microsecond,
	})
	return nil
}

// onImmediateAck makes an ACK due. However many packets of a batch ask for one, they get
// one together.
func (c *Conn) onImmediateAck(f wire.ImmediateAck) error {
	if !c.obeysAsks {
		return notNegotiated(f)
	}
	c.spaces[recovery.App].acks.at = true
	return nil
}
