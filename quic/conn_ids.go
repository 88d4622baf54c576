package quic

import (
	"slices"

	"github.com/volley-quic/volley/internal/wire"
)

// connIDs are the connection IDs of both sides (RFC 9000 §5.1).
type connIDs struct {
	local     []localID // ours, those not retired by the peer
	nextLocal int64     // sequence number
	remote    []remoteID
	active    int64   // sequence number of the one we send to
	retired   int64   // the peer's largest Retire Prior To
	retiring  []int64 // RETIRE_CONNECTION_ID frames not acknowledged
	fixed     bool    // the peer has chosen its first ID
	active0   ConnectionID
}

type localID struct {
	seq int64
	id  ConnectionID
}

type remoteID struct {
	seq   int64
	id    ConnectionID
	token *[16]byte
}

func (ids *connIDs) init(src, dst ConnectionID) {
	ids.local = []localID{{0, src}}
	ids.nextLocal = 1
	ids.remote = []remoteID{{id: dst}}
}

func (ids *connIDs) current() *remoteID {
	for i := range ids.remote {
		if ids.remote[i].seq == ids.active {
			return &ids.remote[i]
		}
	}
	return &ids.remote[0]
}

// dst is the connection ID that packets are sent to. The slice stays good: an ID
// never changes in place.
func (ids *connIDs) dst() []byte {
	id := ids.current().id
	return connIDBytes(&id)
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
	return all
}

func (ids *connIDs) resetTokens() (all [][16]byte) {
	for _, r := range ids.remote {
		if r.token != nil {
			all = append(all, *r.token)
		}
	}
	return all
}

// setResetToken notes the stateless reset token of the peer's ID number seq.
func (ids *connIDs) setResetToken(seq int64, token [16]byte, c *Conn) {
	for i := range ids.remote {
		if r := &ids.remote[i]; r.seq == seq {
			r.token = &token
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
		if err != nil || !c.transport.addID(id, c) {
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
	if ids.current().id.Len() == 0 {
		return violation(wire.FrameNewConnectionID, "NEW_CONNECTION_ID from a peer that uses no connection IDs")
	}
	known := false
	for i := range ids.remote {
		r := &ids.remote[i]
		same := string(connIDBytes(&r.id)) == string(f.ID)
		if r.seq == f.Seq {
			if !same || r.token != nil && *r.token != f.ResetToken {
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
	if !known {
		token := f.ResetToken
		ids.remote = append(ids.remote, remoteID{f.Seq, ConnectionIDFromBytes(f.ID), &token})
	}
	if f.RetirePriorTo > ids.retired {
		ids.retired = f.RetirePriorTo
		for i := 0; i < len(ids.remote); i++ {
			r := ids.remote[i]
			if r.seq >= ids.retired {
				continue
			}
			if r.token != nil && r.seq == ids.active {
				c.transport.removeResetToken(*r.token)
			}
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
	if ids.current().seq != ids.active {
		r := ids.current()
		ids.active = r.seq
		if r.token != nil {
			c.transport.addResetToken(*r.token, c)
		}
		c.snd.SetDst(ids.dst())
	}
	return nil
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
	if f.Seq >= c.ids.nextLocal {
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
		c.transport.removeID(l.id)
		if c.params != nil {
			c.issueConnIDs()
		}
		break
	}
	return nil
}
