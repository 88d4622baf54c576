package quic

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// maxGone bounds the IDs that are kept for what is still on its way to them.
const maxGone = 16

// connIDs are the connection IDs of both sides (RFC 9000 §5.1).
type connIDs struct {
	local     []localID // ours, those not retired by the peer
	nextLocal int64     // sequence number
	told      int64     // the largest number that the peer was sent
	remote    []remoteID
	active    int64    // sequence number of the one we send to
	retired   int64    // the peer's largest Retire Prior To
	retiring  []int64  // RETIRE_CONNECTION_ID frames not acknowledged
	spent     spans    // … and those that we have retired of our own accord, above that
	gone      []goneID // ours that the peer has retired, and its first choice of one, in order of time
	fixed     bool     // the peer has chosen its first ID
	active0   ConnectionID
}

type localID struct {
	seq int64
	id  ConnectionID
}

// goneID is an ID that the peer sends to no more: what it sent before may still be on its
// way.
type goneID struct {
	id    ConnectionID
	until time.Time
}

type remoteID struct {
	seq      int64
	id       ConnectionID
	token    [16]byte // if hasToken: for stateless resets
	hasToken bool
	used     bool // on a path; it is not for another one (RFC 9000 §9.5)
}

func (ids *connIDs) init(src, dst ConnectionID) {
	ids.local = []localID{{0, src}}
	ids.nextLocal = 1
	ids.remote = []remoteID{{id: dst, used: true}}
}

// bySeq is the peer's ID of that number, nil if there is none.
func (ids *connIDs) bySeq(seq int64) *remoteID {
	for i := range ids.remote {
		if ids.remote[i].seq == seq {
			return &ids.remote[i]
		}
	}
	return nil
}

// dst is the connection ID that packets are sent to.
func (ids *connIDs) dst() []byte { return ids.dstOf(ids.active) }

// dstOf is the peer's ID of that number. The slice stays good: an ID never changes in
// place.
func (ids *connIDs) dstOf(seq int64) []byte {
	r := ids.bySeq(seq)
	if r == nil {
		r = &ids.remote[0]
	}
	id := r.id
	return connIDBytes(&id)
}

// unusedFrom is an ID of the peer's, of number seq or above, that was on no path yet; nil
// if there is none.
func (ids *connIDs) unusedFrom(seq int64) (r *remoteID) {
	for i := range ids.remote {
		if o := &ids.remote[i]; !o.used && o.seq >= seq && (r == nil || o.seq < r.seq) {
			r = o
		}
	}
	return r
}

func (ids *connIDs) isLocal(b []byte) bool {
	for i := range ids.local {
		if string(connIDBytes(&ids.local[i].id)) == string(b) {
			return true
		}
	}
	return false
}

// checkSrc compares a long header's Source Connection ID with the peer's. The first
// one to come is what the peer chose (RFC 9000 §7.2).
func (ids *connIDs) checkSrc(src []byte) bool {
	if !ids.fixed {
		if len(src) > maxConnIDLen {
			return false
		}
		ids.fixed = true
		ids.remote[0].id = ConnectionIDFromBytes(src)
		ids.active0 = ids.remote[0].id
		return true
	}
	return string(src) == string(connIDBytes(&ids.active0))
}

// all is every ID of ours that the transport knows.
func (ids *connIDs) all() (all []ConnectionID) {
	for _, l := range ids.local {
		all = append(all, l.id)
	}
	for _, g := range ids.gone {
		all = append(all, g.id)
	}
	return all
}

func (ids *connIDs) resetTokens() (all [][16]byte) {
	for _, r := range ids.remote {
		if r.hasToken {
			all = append(all, r.token)
		}
	}
	return all
}

// setResetToken notes the stateless reset token of the peer's ID number seq.
func (ids *connIDs) setResetToken(seq int64, token [16]byte, c *Conn) {
	for i := range ids.remote {
		if r := &ids.remote[i]; r.seq == seq {
			r.token, r.hasToken = token, true
			if seq == ids.active {
				c.transport.addResetToken(token, c)
			}
		}
	}
}

func (ids *connIDs) retireAcked(seq int64) {
	ids.retiring = slices.DeleteFunc(ids.retiring, func(s int64) bool { return s == seq })
}

// issueConnIDs gives the peer as many IDs as it keeps, up to a few.
func (c *Conn) issueConnIDs() {
	const most = 4
	if c.ids.local[0].id.Len() == 0 {
		return // RFC 9000 §5.1.1: who uses none has none to offer
	}
	for int64(len(c.ids.local)) < min(most, c.params.ActiveConnIDLimit) {
		id, err := c.transport.newConnID()
		if err != nil || !c.addID(id) {
			return
		}
		c.ids.local = append(c.ids.local, localID{c.ids.nextLocal, id})
		c.control.add(frameNewConnID, c.ids.nextLocal)
		c.ids.nextLocal++
	}
}

// newConnIDFrame announces ID number seq, unless it is retired already.
func (c *Conn) newConnIDFrame(seq int64) (wire.NewConnectionID, bool) {
	for i := range c.ids.local {
		if l := &c.ids.local[i]; l.seq == seq {
			return wire.NewConnectionID{Seq: seq, ID: connIDBytes(&l.id), ResetToken: c.transport.resetTokenFor(l.id)}, true
		}
	}
	return wire.NewConnectionID{}, false
}

// onNewConnectionID takes in one more ID of the peer (RFC 9000 §5.1.1, §19.15).
func (c *Conn) onNewConnectionID(f wire.NewConnectionID) error {
	ids := &c.ids
	if ids.bySeq(ids.active).id.Len() == 0 {
		return violation(wire.FrameNewConnectionID, "NEW_CONNECTION_ID from a peer that uses no connection IDs")
	}
	known := false
	for i := range ids.remote {
		r := &ids.remote[i]
		same := string(connIDBytes(&r.id)) == string(f.ID)
		if r.seq == f.Seq {
			if !same || r.hasToken && r.token != f.ResetToken {
				return violation(wire.FrameNewConnectionID, "a sequence number was used for two connection IDs")
			}
			known = true
		} else if same {
			return violation(wire.FrameNewConnectionID, "a connection ID was used for two sequence numbers")
		}
	}
	if f.Seq < ids.retired && !known {
		// Late: retired before it came (RFC 9000 §5.1.2).
		return c.retireRemote(f.Seq)
	}
	if !known && !ids.spent.contains(f.Seq) { // else a copy came late
		ids.remote = append(ids.remote, remoteID{seq: f.Seq, id: ConnectionIDFromBytes(f.ID), token: f.ResetToken, hasToken: true})
	}
	if f.RetirePriorTo > ids.retired {
		if !slices.ContainsFunc(ids.remote, func(r remoteID) bool { return r.seq >= f.RetirePriorTo }) {
			// All that there are, for one that we have given back already.
			return violation(wire.FrameNewConnectionID, "NEW_CONNECTION_ID that leaves no connection ID")
		}
		ids.retired = f.RetirePriorTo
		ids.spent.remove(0, ids.retired-1)
		c.movePathIDs()
		for i := 0; i < len(ids.remote); i++ {
			r := ids.remote[i]
			if r.seq >= ids.retired {
				continue
			}
			c.dropResetToken(&r)
			ids.remote = slices.Delete(ids.remote, i, i+1)
			i--
			if err := c.retireRemote(r.seq); err != nil {
				return err
			}
		}
	}
	if len(ids.remote) > activeConnIDLimit {
		return &wire.Error{Code: wire.ConnectionIDLimitError, FrameType: wire.FrameNewConnectionID, Reason: "more connection IDs than active_connection_id_limit"}
	}
	return nil
}

// movePathIDs gives new IDs to the paths whose ones the peer wants back. If there are not
// enough then the active path gets one.
func (c *Conn) movePathIDs() {
	ids := &c.ids
	active := c.paths.active
	for _, q := range c.paths.all {
		if q != active && q.seq < ids.retired {
			q.seq = -1
		}
	}
	if active.seq >= ids.retired {
		return
	}
	r := ids.unusedFrom(ids.retired)
	if r == nil {
		// What there is lies on other paths, which are not in use.
		for i := range ids.remote {
			if o := &ids.remote[i]; o.seq >= ids.retired {
				r = o
			}
		}
		for _, q := range c.paths.all {
			if q != active && q.seq == r.seq {
				q.seq = -1
			}
		}
	}
	c.putID(active, r)
	ids.active = r.seq
	c.snd.SetDst(ids.dst())
}

// packetsPerID is after how many packets, give or take a half, the next of the peer's
// connection IDs is used, which may be at any time (RFC 9000 §5.1.2): one ID shall not stand
// for the whole of a long connection. It is as often as in quic-go.
const packetsPerID = 10_000

// rotateID goes on with another of the peer's connection IDs when it is time to, unless a
// move, or the looking for one, needs them.
func (c *Conn) rotateID() {
	pn := c.rec.NextPN(recovery.App)
	if pn < c.rotateAt || !c.confirmed || len(c.paths.all) > 1 {
		return
	}
	if c.rotateAt > 0 { // the first time it is only decided when
		q := c.paths.active
		r := c.ids.unusedFrom(c.ids.retired)
		if r == nil || r.id.Len() == 0 {
			return
		}
		id := *r // releaseID moves what r points to
		c.releaseID(q)
		if c.phase != phaseOpen {
			return
		}
		c.putID(q, c.ids.bySeq(id.seq))
		c.ids.active = id.seq
		c.snd.SetDst(c.ids.dst())
	}
	c.rotateAt = pn + packetsPerID/2 + rand.Int64N(packetsPerID)
}

// takeID gives a path one of the peer's connection IDs, and reports false if there is none
// for it. If a client goes on with our ID then its NAT has changed the address, and we go
// on with its ID; else nobody shall see from the IDs who is who (RFC 9000 §9.5).
func (c *Conn) takeID(q *path) bool {
	if q.seq >= 0 {
		return true
	}
	a, ids := c.paths.active, &c.ids
	if r := ids.bySeq(a.seq); r != nil && (r.id.Len() == 0 ||
		!c.isClient && q.sameEnd(a) && q.ours.Valid() && q.ours == a.ours) {
		q.seq = a.seq
		return true
	}
	r := ids.unusedFrom(ids.retired)
	if r == nil {
		return false
	}
	c.putID(q, r)
	return true
}

// putID makes r the ID that is used on q. From now on a stateless reset may refer to it
// (RFC 9000 §10.3.1).
func (c *Conn) putID(q *path, r *remoteID) {
	r.used = true
	q.seq = r.seq
	if r.hasToken {
		q.transport.addResetToken(r.token, c)
	}
}

// releaseID gives the peer back the ID of a path that is not in use, unless it is used on
// another path.
func (c *Conn) releaseID(q *path) {
	seq := q.seq
	q.seq = -1
	r := c.ids.bySeq(seq)
	if r == nil || r.id.Len() == 0 {
		return
	}
	for _, o := range c.paths.all {
		if o.seq == seq {
			return
		}
	}
	c.dropResetToken(r)
	c.ids.remote = slices.DeleteFunc(c.ids.remote, func(o remoteID) bool { return o.seq == seq })
	c.ids.spent.add(seq, seq)
	if err := c.retireRemote(seq); err != nil {
		c.failLocked(err)
	}
}

func (c *Conn) dropResetToken(r *remoteID) {
	if r.hasToken {
		for _, t := range c.paths.transports {
			t.removeResetToken(r.token)
		}
	}
}

// addID makes packets to one of our IDs arrive, on every transport.
func (c *Conn) addID(id ConnectionID) bool {
	for i, t := range c.paths.transports {
		if !t.addID(id, c) {
			for _, t := range c.paths.transports[:i] {
				t.removeID(id)
			}
			return false
		}
	}
	return true
}

func (c *Conn) removeID(id ConnectionID) {
	for _, t := range c.paths.transports {
		t.removeIDOf(id, c)
	}
}

// retireRemote tells the peer that we use its ID number seq no more.
func (c *Conn) retireRemote(seq int64) error {
	// A peer that makes us retire more than it acknowledges floods us
	// (RFC 9000 §5.1.2).
	if len(c.ids.retiring) >= 8*activeConnIDLimit {
		return &wire.Error{Code: wire.ConnectionIDLimitError, FrameType: wire.FrameNewConnectionID, Reason: "too many connection IDs to retire"}
	}
	if !slices.Contains(c.ids.retiring, seq) {
		c.ids.retiring = append(c.ids.retiring, seq)
	}
	c.control.add(frameRetireConnID, seq)
	return nil
}

// onRetireConnectionID takes one of our IDs back and gives the peer another
// (RFC 9000 §19.16).
func (c *Conn) onRetireConnectionID(f wire.RetireConnectionID) error {
	// One that waits to be sent is none either. To replace it at once would let the peer
	// make them wait without end.
	if f.Seq > c.ids.told {
		return violation(wire.FrameRetireConnectionID, "RETIRE_CONNECTION_ID of an ID that was never issued")
	}
	for i, l := range c.ids.local {
		if l.seq != f.Seq {
			continue
		}
		if len(c.ids.local) == 1 {
			return violation(wire.FrameRetireConnectionID, "RETIRE_CONNECTION_ID of the only connection ID")
		}
		c.ids.local = slices.Delete(c.ids.local, i, i+1)
		c.lingerID(l.id)
		if c.params != nil {
			c.issueConnIDs()
		}
		break
	}
	return nil
}

// lingerID lets packets to an ID that the peer has retired, or the client's first choice,
// arrive for a while: they may take a longer way than what made it needless.
func (c *Conn) lingerID(id ConnectionID) {
	ids := &c.ids
	if len(ids.gone) == maxGone {
		c.removeID(ids.gone[0].id)
		ids.gone = slices.Delete(ids.gone, 0, 1)
	}
	ids.gone = append(ids.gone, goneID{id, time.Now().Add(3 * c.rec.PTO(recovery.App))})
}

// expiry is when the next of them goes for good, zero if there is none.
func (ids *connIDs) expiry() time.Time {
	if len(ids.gone) == 0 {
		return time.Time{}
	}
	return ids.gone[0].until
}

func (ids *connIDs) expire(c *Conn, now time.Time) {
	for len(ids.gone) > 0 && !now.Before(ids.gone[0].until) {
		c.removeID(ids.gone[0].id)
		ids.gone = slices.Delete(ids.gone, 0, 1)
	}
}
