package quic

import (
	"context"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

// The kinds of frames that recovery reports on, in the connection's numbering.
const (
	_ uint8 = iota
	frameAck
	frameMaxData
	frameMaxStreams // ID: 0 bidirectional, 1 unidirectional
	frameMaxStreamData
	frameStopSending
	frameReset // A: reliable size
	frameStreamBlocked
	frameBlocked
	frameStreamsBlocked // ID as frameMaxStreams
	frameNewConnID      // ID: sequence number
	frameRetireConnID   // ID: sequence number
	frameHandshakeDone
	frameNewToken
	framePing
	frameMTUProbe     // A: bytes, B: mtuState.epoch
	frameAckFrequency // A: sequence number
)

// controlQueue is what is due in 1-RTT packets besides streams. Every entry says
// only that a frame is due: the frame is made when it is sent, with the value of
// that moment, so that a loss that makes it due again never resends an old value
// (RFC 9000 §13.3).
type controlQueue struct {
	queue  []recovery.Frame            // Kind and ID
	queued map[recovery.Frame]struct{} // its contents; nil while it is short
	crypto bool                        // the 1-RTT CRYPTO stream has something
}

func (q *controlQueue) any() bool {
	return len(q.queue) > 0 || q.crypto
}

// add makes a frame due, once.
func (q *controlQueue) add(kind uint8, id int64) {
	f := recovery.Frame{Kind: kind, ID: id}
	if q.has(f) {
		return
	}
	q.queue = append(q.queue, f)
	switch {
	case q.queued != nil:
		q.queued[f] = struct{}{}
	case len(q.queue) > shortQueue:
		q.queued = make(map[recovery.Frame]struct{}, 2*len(q.queue))
		for _, f := range q.queue {
			q.queued[f] = struct{}{}
		}
	}
}

// shortQueue is how long a queue may be to be searched from end to end: nearly always,
// a few frames are due.
const shortQueue = 16

func (q *controlQueue) has(f recovery.Frame) bool {
	if q.queued != nil {
		_, ok := q.queued[f]
		return ok
	}
	return slices.Contains(q.queue, f)
}

// drop removes the first n frames.
func (q *controlQueue) drop(n int) {
	for _, f := range q.queue[:n] {
		delete(q.queued, f)
	}
	q.queue = append(q.queue[:0], q.queue[n:]...)
	if len(q.queue) == 0 {
		q.queued = nil
	}
}

// shed gives back what a longer queue has needed.
func (q *controlQueue) shed() {
	if len(q.queue) == 0 {
		q.queue = nil
	}
}

// Due implements sender.Host.
func (m *monitor) Due(now time.Time) (control, ack bool) {
	if limit, blocked := m.snd.Credit(); blocked && limit != m.blockedAt {
		m.blockedAt = limit // said once for each limit, and again if it is lost
		m.control.add(frameBlocked, 0)
	}
	return m.control.any() || len(m.datagrams.out) > 0, m.spaces[recovery.App].acks.due(now)
}

// AppendControl implements sender.Host. An ACK goes along whenever the peer waits
// for one and something leaves.
func (m *monitor) AppendControl(f *sender.Flight, now time.Time, ackOnly bool) {
	c := (*Conn)(m)
	if a := &c.spaces[recovery.App].acks; a.pending() {
		c.appendAck(f, a, now)
	}
	if ackOnly {
		return
	}
	c.appendAckFrequency(f, now)
	if c.control.crypto {
		s := &c.spaces[recovery.App].send
		for s.pending() {
			off, p := s.next()
			n := f.Crypto(s, off, p)
			if n == 0 {
				return
			}
			s.packed(off, n)
		}
		c.control.crypto = false
	}
	q := c.control.queue
	i := 0
	for ; i < len(q); i++ {
		if !c.appendFrame(f, q[i]) {
			break
		}
	}
	c.control.drop(i)
	c.appendDatagrams(f)
}

func (c *Conn) appendAck(f *sender.Flight, a *ackState, now time.Time) {
	const most = 512 // bytes of ACK in front of the data
	fr, ok := a.frame(now, c.ackRanges, most)
	c.ackRanges = fr.Ranges
	if !ok {
		return
	}
	n := fr.Len()
	if b := f.Tail(n); b != nil {
		fr.Append(b)
		f.Wrote(n, false, recovery.Frame{Kind: frameAck, A: fr.Largest()})
		a.sent()
	}
}

// appendFrame writes one queued frame, if it is still due, and reports false if
// there was no room.
func (c *Conn) appendFrame(f *sender.Flight, q recovery.Frame) bool {
	switch q.Kind {
	case frameMaxData:
		fr := wire.MaxData{Max: c.flow.grant()}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case frameMaxStreams:
		fr := wire.MaxStreams{Uni: q.ID == 1, Max: c.streams.grant(q.ID == 1)}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case frameMaxStreamData:
		r := c.streams.recvByID(q.ID)
		if r == nil {
			return true
		}
		limit, ok := r.recv.MaxDataDue()
		if !ok {
			return true
		}
		fr := wire.MaxStreamData{ID: q.ID, Max: limit}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			r.recv.MaxDataSent(limit)
			return true
		}
	case frameStopSending:
		r := c.streams.recvByID(q.ID)
		if r == nil {
			return true
		}
		code, ok := r.recv.StopSendingDue()
		if !ok {
			return true
		}
		fr := wire.StopSending{ID: q.ID, Code: code}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			r.recv.StopSendingSent()
			return true
		}
	case frameReset:
		s := c.streams.sendByID(q.ID)
		if s == nil {
			return true
		}
		code, size, ok := s.send.ResetDue()
		if !ok {
			return true
		}
		if reliable := s.send.ReliableSize(); reliable > 0 {
			return c.appendResetAt(f, q, &s.send, wire.ResetStreamAt{ID: q.ID, Code: code, FinalSize: size, ReliableSize: reliable})
		}
		fr := wire.ResetStream{ID: q.ID, Code: code, FinalSize: size}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			s.send.ResetSent()
			return true
		}
	case frameStreamBlocked:
		s := c.streams.sendByID(q.ID)
		if s == nil || !s.send.Blocked() {
			return true
		}
		fr := wire.StreamDataBlocked{ID: q.ID, Max: s.send.Credit()}
		if b := f.Tail(fr.Len()); b != nil {
			q.A = fr.Max
			f.Wrote(len(fr.Append(b)), true, q)
			s.send.BlockedSent()
			return true
		}
	case frameBlocked:
		limit, blocked := c.snd.Credit()
		if !blocked {
			return true
		}
		fr := wire.DataBlocked{Max: limit}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case frameStreamsBlocked:
		limit, blocked := c.streams.blocked(q.ID == 1)
		if !blocked {
			return true
		}
		fr := wire.StreamsBlocked{Uni: q.ID == 1, Max: limit}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case frameNewConnID:
		fr, ok := c.newConnIDFrame(q.ID)
		if !ok {
			return true
		}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			c.ids.told = max(c.ids.told, q.ID)
			return true
		}
	case frameRetireConnID:
		fr := wire.RetireConnectionID{Seq: q.ID}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case frameHandshakeDone:
		if b := f.Tail(1); b != nil {
			f.Wrote(len(wire.HandshakeDone{}.Append(b)), true, q)
			return true
		}
	case frameNewToken:
		fr := wire.NewToken{Token: c.transport.newToken(c.paths.active.addr)}
		if b := f.Tail(fr.Len()); b != nil {
			f.Wrote(len(fr.Append(b)), true, q)
			return true
		}
	case framePing:
		if b := f.Tail(1); b != nil {
			// What it was for, the next PING or PTO does again.
			f.Wrote(len(wire.Ping{}.Append(b)), true, recovery.Frame{})
			return true
		}
	}
	return false
}

// FrameAcked implements recovery.Owner.
func (m *monitor) FrameAcked(f recovery.Frame) {
	c := (*Conn)(m)
	switch f.Kind {
	case frameAck:
		sp := recovery.Space(f.ID)
		if sp == 0 {
			sp = recovery.App
		}
		c.spaces[sp].acks.told(f.A)
	case frameReset:
		if s := c.streams.sendByID(f.ID); s != nil {
			s.send.ResetAcked(f.A)
		}
	case frameStopSending:
		if r := c.streams.recvByID(f.ID); r != nil {
			r.recv.StopSendingAcked()
		}
	case frameRetireConnID:
		c.ids.retireAcked(f.ID)
	case frameMTUProbe:
		if f.B == c.mtu.epoch {
			c.mtu.acked(int(f.A), time.Now())
		}
	case frameAckFrequency:
		c.ackFrequencyAcked(f.A)
	}
}

// FrameLost implements recovery.Owner: what is still due, is due again.
func (m *monitor) FrameLost(f recovery.Frame) {
	c := (*Conn)(m)
	switch f.Kind {
	case frameAck:
		return // ACKs are not repaired, the next one says more
	case frameMTUProbe:
		if f.B == c.mtu.epoch {
			c.mtu.failed(int(f.A), time.Now())
		}
		return
	case frameAckFrequency:
		c.ackFrequencyLost(f.A)
		return
	case frameReset:
		if s := c.streams.sendByID(f.ID); s != nil {
			s.send.ResetLost(f.A)
		}
	case frameMaxStreamData:
		if r := c.streams.recvByID(f.ID); r != nil {
			r.recv.MaxDataLost()
		}
	case frameStopSending:
		if r := c.streams.recvByID(f.ID); r != nil {
			r.recv.StopSendingLost()
		}
	case frameStreamBlocked:
		if s := c.streams.sendByID(f.ID); s != nil {
			s.send.BlockedLost(f.A)
		}
	}
	c.control.add(f.Kind, f.ID)
}

// monitor is the connection as its streams, its sender and its recovery see it. It is
// a type of its own so that their methods are not the application's.
type monitor Conn

func (m *monitor) Lock()   { m.mu.Lock() }
func (m *monitor) Unlock() { m.mu.Unlock() }

// Await implements stream.Host.
func (m *monitor) Await(w *stream.Wake, ctx context.Context) { (*Conn)(m).await(w, ctx) }

// Rouse implements stream.Host. Who waits for what packets bring would only queue for the
// mutex while more of them are taken in.
func (m *monitor) Rouse(w *stream.Wake) {
	if m.takingIn {
		m.roused = append(m.roused, w)
	} else {
		w.Signal()
	}
}

// Between implements sender.Host.
func (m *monitor) Between() {
	r := &m.transport.reading
	at := r.clock()
	m.transport.share.next(&m.myShare, r.start, at)
	if m.reads.Load() == r {
		r.look((*Conn)(m), at)
	}
}

// Wake implements sender.Host.
func (m *monitor) Wake() { (*Conn)(m).wakeUp() }

// SetTimer implements sender.Host.
func (m *monitor) SetTimer(t time.Time) { (*Conn)(m).setTimer(t) }

// AntiAmplification implements sender.Host.
func (m *monitor) AntiAmplification() int {
	if m.validated {
		return -1
	}
	return max(3*m.bytesIn-m.bytesOut-int(m.snd.Stats().Bytes), 0)
}

// Flushed implements sender.Host.
func (m *monitor) Flushed(now time.Time, eliciting bool) {
	if eliciting {
		(*Conn)(m).sentEliciting(now)
		m.asking.sentAt = now
	}
	if m.qlog != nil {
		m.qlog.update()
	}
	// Whoever sends, the goroutine is not woken for it, and has not seen this one's timer.
	c := (*Conn)(m)
	c.setTimer(c.nextTimer())
}

// SendFailed implements sender.Host.
func (m *monitor) SendFailed(err error) { (*Conn)(m).sendFailed(err) }

// KeysExhausted implements sender.Host.
func (m *monitor) KeysExhausted(err error) { (*Conn)(m).failLocked(err) }

// DatagramTooLarge implements sender.Host.
func (m *monitor) DatagramTooLarge(size int) {
	m.mtu.tooLarge(size, time.Now())
}

// SendReady implements stream.Host.
func (m *monitor) SendReady(s *stream.Send) {
	c := (*Conn)(m)
	h := c.streams.sendByID(s.ID())
	if h == nil {
		return
	}
	if _, _, ok := s.ResetDue(); ok {
		c.control.add(frameReset, s.ID())
	}
	if s.Blocked() {
		c.control.add(frameStreamBlocked, s.ID())
	}
	if s.HasPending() {
		c.snd.Ready(&h.st)
	}
}

// PushUnlock implements stream.Host.
func (m *monitor) PushUnlock(s *stream.Send) { (*Conn)(m).pushUnlock(s) }

// DataSent implements stream.Host.
func (m *monitor) DataSent(s *stream.Send) { m.streams.dataSent(s.ID()) }

// SendDone implements stream.Host.
func (m *monitor) SendDone(s *stream.Send) { m.streams.sendDone(s.ID()) }

// maxConnBuffer is how many bytes all streams of a connection may hold unsent. Once there,
// writers wait until half of them are gone: they are woken all together, and that must
// not happen with every flight.
const maxConnBuffer = 1 << 20

// BufferRoom implements stream.Host.
func (m *monitor) BufferRoom() int {
	if m.bufferFull {
		return 0
	}
	return maxConnBuffer - m.snd.Unsent()
}

// Buffered implements stream.Host.
func (m *monitor) Buffered(delta int) {
	m.snd.Buffered(delta)
	switch n := m.snd.Unsent(); {
	case n >= maxConnBuffer:
		m.bufferFull = true
	case m.bufferFull && n <= maxConnBuffer/2:
		m.bufferFull = false
		m.streams.wakeWriters()
	}
}

// RecvUpdate implements stream.Host.
func (m *monitor) RecvUpdate(r *stream.Recv) {
	if _, ok := r.MaxDataDue(); ok {
		m.control.add(frameMaxStreamData, r.ID())
		(*Conn)(m).creditDue(r.Scarce())
	}
	if _, ok := r.StopSendingDue(); ok {
		m.control.add(frameStopSending, r.ID())
		(*Conn)(m).wakeUp()
	}
}

// creditDue comes when the peer is to get more credit. Unless it is scarce that can wait
// until a caller who reads has taken in what has arrived. The mutex is held.
func (c *Conn) creditDue(scarce bool) {
	if r := c.reads.Load(); r == nil || scarce || !r.leaveCredit(c) {
		c.wakeUp()
	}
}

// RecvConsumed implements stream.Host.
func (m *monitor) RecvConsumed(n int64) {
	if m.flow.read(n, time.Now, m.RTT()) {
		m.control.add(frameMaxData, 0)
		(*Conn)(m).creditDue(m.flow.scarce())
	}
}

// RecvDone implements stream.Host.
func (m *monitor) RecvDone(r *stream.Recv) { m.streams.recvDone(r.ID()) }

// RTT implements stream.Host.
func (m *monitor) RTT() time.Duration {
	if rtt := m.rec.RTT(); rtt.Has {
		return rtt.Smoothed
	}
	return 0
}

// Context implements stream.Host: it is called without the lock.
func (m *monitor) Context() context.Context { return m.ctx }

// After implements stream.Host: callbacks of the application run in a goroutine of
// their own, in order, without the lock and off the receive path.
func (m *monitor) After(f func()) {
	m.after = append(m.after, f)
	if !m.afterRunning {
		m.afterRunning = true
		go (*Conn)(m).runAfter()
	}
}

func (c *Conn) runAfter() {
	for {
		c.mu.Lock()
		fs := c.after
		c.after = nil
		if len(fs) == 0 {
			c.afterRunning = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, f := range fs {
			f()
		}
	}
}
