package quic

import (
	"context"
	"slices"

	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/stream"
)

// Stream IDs (RFC 9000 §2.1): the lowest bit says who opened the stream, the next
// whether it is unidirectional.
const (
	serverBit = 1
	uniBit    = 2
)

// Which of a pair of values, bidirectional or unidirectional.
const (
	bidi = 0
	uni  = 1
)

// halves is one stream that is not over yet. One of them is nil if the stream has no
// such side, or that side has ended.
type halves struct {
	send   *SendStream
	recv   *ReceiveStream
	stream *Stream // both, what the application has of a bidirectional stream
	// counted: opened by the peer, so that its end gives the peer a stream back, but not
	// before the application has released it, if that is required.
	counted bool
	// early: counted no more before its end.
	early  bool
	credit *streamCredit // nil: its end is enough
}

// newHalves makes the sides of stream id that exist on our end. All that a stream is made
// of is one piece of memory: a request often has a stream of its own.
func newHalves(id int64, ours bool) *halves {
	switch {
	case id&uniBit == 0:
		m := new(struct {
			halves
			both Stream
			s    SendStream
			r    ReceiveStream
		})
		m.both = Stream{&m.s, &m.r}
		m.stream, m.send, m.recv = &m.both, &m.s, &m.r
		return &m.halves
	case ours:
		m := new(struct {
			halves
			s SendStream
		})
		m.send = &m.s
		return &m.halves
	}
	m := new(struct {
		halves
		r ReceiveStream
	})
	m.recv = &m.r
	return &m.halves
}

// streams is a connection's streams. The mutex is held in all methods but those that
// say otherwise.
type streams struct {
	c    *Conn
	open map[int64]*halves
	last int64 // key of lastHalves
	// lastHalves saves most look-ups: packets of one stream come in a row.
	lastHalves *halves

	// Ours: how many we opened, and may open.
	opened  [2]int64
	allowed [2]int64
	waiters [2][]*streamWaiter // callers of OpenStreamSync, in order
	told    [2]int64           // limit of the last STREAMS_BLOCKED

	// The peer's: how many it opened, may open, and how many of those are over.
	peerOpened  [2]int64
	peerAllowed [2]int64
	peerWindow  [2]int64
	peerEnded   [2]int64
	peerEarly   [2]int64 // of these, still to be acknowledged
	bidiQueue   []*Stream
	uniQueue    []*ReceiveStream
	arrived     [2]*stream.Wake // Accept has something to do

	closeErr error
}

func (ss *streams) init(c *Conn) {
	ss.c = c
	ss.open = make(map[int64]*halves)
	ss.last = -1
	ss.peerWindow = [2]int64{c.config.MaxIncomingStreams, c.config.MaxIncomingUniStreams}
	ss.peerAllowed = ss.peerWindow
	ss.told = [2]int64{-1, -1}
	for i := range ss.arrived {
		ss.arrived[i] = stream.NewWake()
	}
}

// setParams takes in the peer's limits.
func (ss *streams) setParams(p *wire.TransportParams) {
	ss.setLimit(false, p.InitialMaxStreamsBidi)
	ss.setLimit(true, p.InitialMaxStreamsUni)
	for id, h := range ss.open {
		if h.send == nil {
			continue
		}
		if p.ResetStreamAt {
			h.send.send.AllowResetAt()
		}
		if h.send.send.SetCredit(ss.sendCredit(id)) {
			h.send.st.CreditRose()
		}
	}
}

// setLimit raises how many streams we may open (RFC 9000 §4.6).
func (ss *streams) setLimit(unidirectional bool, n int64) {
	k := kindOf(unidirectional)
	if n <= ss.allowed[k] {
		return
	}
	ss.allowed[k] = n
	ss.serve(k)
}

func kindOf(unidirectional bool) int {
	if unidirectional {
		return uni
	}
	return bidi
}

// streamWaiter is a caller of OpenStreamSync. Its stream is opened for it, lest each who
// waits had to run before the next one may.
type streamWaiter struct {
	served chan struct{} // closed when one of the following is set
	h      *halves
	err    error
}

// serve opens streams for those who wait, in order, and tells the peer if somebody is left.
func (ss *streams) serve(k int) {
	for len(ss.waiters[k]) > 0 {
		h, err := ss.openStream(k)
		if err == errStreamLimit {
			// RFC 9000 §4.6: the peer should know, once for each limit.
			if ss.c.params != nil && ss.told[k] != ss.allowed[k] {
				ss.told[k] = ss.allowed[k]
				ss.c.control.add(frameStreamsBlocked, int64(k))
				ss.c.wakeUp()
			}
			return
		}
		w := ss.waiters[k][0]
		ss.waiters[k] = ss.waiters[k][1:]
		w.h, w.err = h, err
		close(w.served)
	}
	ss.waiters[k] = nil // those who were served are not kept
}

// serveAll serves everybody who waits: the handshake is complete.
func (ss *streams) serveAll() {
	ss.serve(bidi)
	ss.serve(uni)
}

// blocked is the limit that keeps us from opening streams, if somebody waits.
func (ss *streams) blocked(unidirectional bool) (limit int64, ok bool) {
	k := kindOf(unidirectional)
	return ss.allowed[k], ss.opened[k] >= ss.allowed[k] && len(ss.waiters[k]) > 0
}

// grant is the peer's limit to be told (MAX_STREAMS).
func (ss *streams) grant(unidirectional bool) int64 {
	k := kindOf(unidirectional)
	ss.peerAllowed[k] = max(ss.peerAllowed[k], min(ss.peerEnded[k]+ss.peerWindow[k], maxIncomingStreams))
	return ss.peerAllowed[k]
}

// sendCredit is the peer's initial MAX_STREAM_DATA for stream id.
func (ss *streams) sendCredit(id int64) int64 {
	p := ss.c.params
	switch {
	case p == nil:
		return 0
	case id&uniBit != 0:
		return p.InitialMaxStreamDataUni
	case ss.ours(id):
		return p.InitialMaxStreamDataBidiRemote
	}
	return p.InitialMaxStreamDataBidiLocal
}

// ours reports whether we open streams of that ID.
func (ss *streams) ours(id int64) bool { return (id&serverBit == 0) == ss.c.isClient }

// make makes the sides of stream id that exist on our end.
func (ss *streams) make(id int64) *halves {
	ours := ss.ours(id)
	h := newHalves(id, ours)
	h.counted = !ours
	if h.counted && ss.c.config.RequireStreamCreditRelease {
		h.credit = new(streamCredit)
	}
	host := (*monitor)(ss.c)
	if s := h.send; s != nil {
		s.conn = ss.c
		s.send.Init(id, host, ss.sendCredit(id))
		if p := ss.c.params; p != nil && p.ResetStreamAt {
			s.send.AllowResetAt()
		}
		s.st.Init(ss.c.snd, &s.send)
	}
	if r := h.recv; r != nil {
		r.conn, r.credit = ss.c, h.credit
		cf := ss.c.config
		r.recv.Init(id, host, int64(cf.InitialStreamReceiveWindow), int64(max(cf.InitialStreamReceiveWindow, cf.MaxStreamReceiveWindow)))
	}
	ss.open[id] = h
	return h
}

// find returns the stream that id names in a frame of the given type, opening streams of
// the peer's up to it. nil without an error: the stream is over.
func (ss *streams) find(id int64, frame uint64) (*halves, error) {
	if id == ss.last {
		return ss.lastHalves, nil
	}
	k := kindOf(id&uniBit != 0)
	n := id>>2 + 1
	if ss.ours(id) {
		if n > ss.opened[k] {
			return nil, &wire.Error{Code: wire.StreamStateError, FrameType: frame, Reason: "frame for a stream that was not opened"}
		}
	} else {
		if n > ss.peerAllowed[k] {
			return nil, &wire.Error{Code: wire.StreamLimitError, FrameType: frame, Reason: "more streams than MAX_STREAMS allows"} // RFC 9000 §4.6
		}
		// Opening a stream opens all of its kind below (RFC 9000 §3.2).
		for ss.peerOpened[k] < n {
			ss.accept(ss.peerOpened[k]<<2|id&3, k)
			ss.peerOpened[k]++
		}
	}
	return ss.get(id), nil
}

// accept makes a stream of the peer's and queues it for Accept.
func (ss *streams) accept(id int64, k int) {
	h := ss.make(id)
	if k == uni {
		ss.uniQueue = append(ss.uniQueue, h.recv)
	} else {
		ss.bidiQueue = append(ss.bidiQueue, h.stream)
	}
	(*monitor)(ss.c).Rouse(ss.arrived[k])
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// receiver returns the receiving side that a frame of the given type names; nil if it
// is over.
func (ss *streams) receiver(id int64, frame uint64) (*ReceiveStream, error) {
	if id&uniBit != 0 && ss.ours(id) {
		return nil, &wire.Error{Code: wire.StreamStateError, FrameType: frame, Reason: "the stream is for sending only"}
	}
	h, err := ss.find(id, frame)
	if h == nil {
		return nil, err
	}
	return h.recv, nil
}

// sender is receiver for the sending side.
func (ss *streams) sender(id int64, frame uint64) (*SendStream, error) {
	if id&uniBit != 0 && !ss.ours(id) {
		return nil, &wire.Error{Code: wire.StreamStateError, FrameType: frame, Reason: "the stream is for receiving only"}
	}
	h, err := ss.find(id, frame)
	if h == nil {
		return nil, err
	}
	return h.send, nil
}

// get returns a stream that is not over, or nil.
func (ss *streams) get(id int64) *halves {
	if id == ss.last {
		return ss.lastHalves
	}
	h := ss.open[id]
	if h != nil {
		ss.last, ss.lastHalves = id, h
	}
	return h
}

func (ss *streams) sendByID(id int64) *SendStream {
	if h := ss.get(id); h != nil {
		return h.send
	}
	return nil
}

func (ss *streams) recvByID(id int64) *ReceiveStream {
	if h := ss.get(id); h != nil {
		return h.recv
	}
	return nil
}

// sendDone notes that a sending side is over.
func (ss *streams) sendDone(id int64) {
	if h := ss.get(id); h != nil && h.send != nil {
		ss.c.snd.Remove(&h.send.st)
		h.send = nil
		ss.ended(id, h)
	}
}

// dataSent notes that all that we send on a stream has left.
func (ss *streams) dataSent(id int64) {
	if h := ss.get(id); h != nil && h.send != nil {
		ss.endsEarly(id, h)
	}
}

// recvDone notes that a receiving side is over.
func (ss *streams) recvDone(id int64) {
	if h := ss.get(id); h != nil && h.recv != nil {
		h.recv = nil
		ss.endsEarly(id, h)
		ss.ended(id, h)
	}
}

// endsEarly lets the peer open a stream in place of one that only waits for ACKs: it learns
// that with the end of the answer, and not a round trip later. As long as it acknowledges
// nothing that holds for as many streams as it may have open.
func (ss *streams) endsEarly(id int64, h *halves) {
	k := kindOf(id&uniBit != 0)
	if h.counted && h.credit == nil && h.recv == nil && h.send != nil && h.send.send.FinSent() && ss.peerEarly[k] < ss.peerWindow[k] {
		h.counted, h.early = false, true
		ss.peerEarly[k]++
		ss.uncount(id)
	}
}

// ended forgets a stream whose sides are both over; the peer may open another then.
func (ss *streams) ended(id int64, h *halves) {
	if h.send != nil || h.recv != nil {
		return
	}
	delete(ss.open, id)
	if ss.last == id {
		ss.last, ss.lastHalves = -1, nil
	}
	if h.early {
		ss.peerEarly[kindOf(id&uniBit != 0)]--
	}
	if h.counted && (h.credit == nil || h.credit.end()) {
		ss.uncount(id)
	}
}

// streamCredit is what it takes until the peer may open a stream in place of one, with
// Config.RequireStreamCreditRelease.
type streamCredit struct{ ended, released, given bool }

func (s *streamCredit) end() bool     { s.ended = true; return s.give() }
func (s *streamCredit) release() bool { s.released = true; return s.give() }

func (s *streamCredit) give() bool {
	if !s.ended || !s.released || s.given {
		return false
	}
	s.given = true
	return true
}

// uncount lets the peer open a stream in place of id.
func (ss *streams) uncount(id int64) {
	k := kindOf(id&uniBit != 0)
	ss.peerEnded[k]++
	// Every stream that ends is given back at once if few are left, else with the next
	// ones: one frame for many.
	if ss.peerAllowed[k]-ss.peerOpened[k] <= max(ss.peerWindow[k]/2, fewStreams) {
		ss.giveBack(k)
	}
}

// fewStreams is how many streams the peer should have left before it waits for more.
// We see only those that it has used, not those that it has opened.
const fewStreams = 8

// giveBack makes MAX_STREAMS due if it would tell the peer more than it knows.
func (ss *streams) giveBack(k int) {
	if ss.peerEnded[k]+ss.peerWindow[k] > ss.peerAllowed[k] {
		ss.c.control.add(frameMaxStreams, int64(k))
		ss.c.wakeUp()
	}
}

// closeAll ends every stream with err.
func (ss *streams) closeAll(err error) {
	ss.closeErr = err
	for _, h := range ss.open {
		if h.send != nil {
			h.send.send.ConnClosed(err)
		}
		if h.recv != nil {
			h.recv.recv.ConnClosed(err)
		}
	}
	ss.serveAll()
	for k := range ss.arrived {
		ss.arrived[k].Signal()
	}
}

// forget drops every stream: the server never saw them.
func (ss *streams) forget() {
	for _, h := range ss.open {
		if h.send != nil {
			ss.c.snd.Remove(&h.send.st)
		}
	}
	clear(ss.open)
	ss.last, ss.lastHalves = -1, nil
	ss.opened, ss.allowed, ss.told = [2]int64{}, [2]int64{}, [2]int64{}
}

// wakeWriters makes every writer look again whether the connection's buffer has room.
func (ss *streams) wakeWriters() {
	for _, h := range ss.open {
		if h.send != nil {
			h.send.send.Wake()
		}
	}
}

// openStream opens a stream of ours, if the peer allows one.
func (ss *streams) openStream(k int) (*halves, error) {
	if ss.closeErr != nil {
		return nil, ss.closeErr
	}
	if ss.opened[k] >= ss.allowed[k] {
		return nil, errStreamLimit
	}
	id := ss.opened[k]<<2 | int64(k)<<1
	if !ss.c.isClient {
		id |= serverBit
	}
	ss.opened[k]++
	return ss.make(id), nil
}

// tryOpen is openStream, without the mutex. It does not overtake those who wait.
func (ss *streams) tryOpen(k int) (*halves, error) {
	ss.c.mu.Lock()
	defer ss.c.mu.Unlock()
	if ss.closeErr == nil && len(ss.waiters[k]) > 0 {
		return nil, errStreamLimit
	}
	return ss.openStream(k)
}

// waitOpen opens a stream as soon as the peer allows one. Callers are served in order.
// It is called without the mutex.
func (ss *streams) waitOpen(ctx context.Context, k int) (*halves, error) {
	ss.c.mu.Lock()
	defer ss.c.mu.Unlock()
	if ss.closeErr != nil {
		return nil, ss.closeErr
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(ss.waiters[k]) == 0 {
		if h, err := ss.openStream(k); err != errStreamLimit {
			return h, err
		}
	}
	w := &streamWaiter{served: make(chan struct{})}
	ss.waiters[k] = append(ss.waiters[k], w)
	ss.serve(k)
	ss.c.mu.Unlock()
	r := ss.c.elsewhere()
	select {
	case <-w.served:
	case <-ctx.Done():
	}
	r.notElsewhere()
	ss.c.mu.Lock()
	if i := slices.Index(ss.waiters[k], w); i >= 0 {
		ss.waiters[k] = slices.Delete(ss.waiters[k], i, i+1)
		return nil, ctx.Err()
	}
	return w.h, w.err
}

// OpenStream opens a bidirectional stream. The peer hears of it with the first data, or
// when it is closed. If the peer allows no more streams, the error is a
// *[StreamLimitReachedError].
func (c *Conn) OpenStream() (*Stream, error) {
	h, err := c.streams.tryOpen(bidi)
	if err != nil {
		return nil, err
	}
	return h.stream, nil
}

// OpenStreamSync is OpenStream, but waits until the peer allows a stream. When ctx ends,
// the error is ctx.Err().
func (c *Conn) OpenStreamSync(ctx context.Context) (*Stream, error) {
	h, err := c.streams.waitOpen(ctx, bidi)
	if err != nil {
		return nil, err
	}
	return h.stream, nil
}

// OpenUniStream opens a unidirectional stream; see [Conn.OpenStream].
func (c *Conn) OpenUniStream() (*SendStream, error) {
	h, err := c.streams.tryOpen(uni)
	if err != nil {
		return nil, err
	}
	return h.send, nil
}

// OpenUniStreamSync is OpenUniStream, but waits until the peer allows a stream.
func (c *Conn) OpenUniStreamSync(ctx context.Context) (*SendStream, error) {
	h, err := c.streams.waitOpen(ctx, uni)
	if err != nil {
		return nil, err
	}
	return h.send, nil
}

// AcceptStream returns the next bidirectional stream that the peer opened, in the order
// of their IDs. It waits for one.
func (c *Conn) AcceptStream(ctx context.Context) (*Stream, error) {
	return accept(ctx, c, bidi, &c.streams.bidiQueue)
}

// AcceptUniStream returns the next unidirectional stream that the peer opened, in the
// order of their IDs. It waits for one.
func (c *Conn) AcceptUniStream(ctx context.Context) (*ReceiveStream, error) {
	return accept(ctx, c, uni, &c.streams.uniQueue)
}

func accept[S any](ctx context.Context, c *Conn, k int, queue *[]*S) (*S, error) {
	arrived := c.streams.arrived[k]
	for {
		c.mu.Lock()
		if err := c.streams.closeErr; err != nil {
			c.mu.Unlock()
			arrived.Signal() // for the next caller
			return nil, err
		}
		if q := *queue; len(q) > 0 {
			s := q[0]
			q[0] = nil
			*queue = q[1:]
			if len(q) > 1 {
				arrived.Signal()
			}
			c.mu.Unlock()
			return s, nil
		}
		c.mu.Unlock()
		// Not c.ctx: the application may have derived it from one that ends earlier.
		c.await(arrived, ctx)
		if err := ctx.Err(); err != nil {
			arrived.Signal() // for the next caller: the token may have been taken
			return nil, err
		}
	}
}
