package quic

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/recovery"
)

// A Path is a way from another socket of ours to the same server, made by [Conn.AddPath].
// Its methods may be called from any number of goroutines.
type Path struct {
	conn      *Conn
	transport *Transport

	// Guarded by conn's mutex.
	way       *path // nil before the first Probe
	validated bool
	closed    chan struct{} // closed by Close
}

var (
	errServerMoves   = errors.New("server cannot initiate connection migration")
	errMoveForbidden = errors.New("server disabled connection migration")
	errActivePath    = errors.New("cannot close active path")
	errPathIDLen     = errors.New("quic: the transport's connection IDs have another length than the connection's")
	errNoPeerID      = errors.New("quic: the server has given no connection ID for another path")
	errTooManyPaths  = errors.New("quic: too many paths")
)

// AddPath prepares a move of the connection to the socket of another Transport (RFC 9000
// §9): [Path.Probe] finds out whether the server can be reached from there, and
// [Path.Switch] moves. Nothing is sent before. Only a client may do so, and only if the
// server allows it.
//
// The connection IDs of t must be as long as those of the connection's first Transport;
// the zero value with Conn set will do.
func (c *Conn) AddPath(t *Transport) (*Path, error) {
	if !c.isClient {
		return nil, errServerMoves
	}
	c.mu.Lock()
	forbidden := c.mayNotMove()
	c.mu.Unlock()
	if forbidden {
		return nil, errMoveForbidden
	}
	if err := t.init(c.transport.connIDLen == 0); err != nil {
		return nil, err
	}
	if t.connIDLen != c.transport.connIDLen {
		return nil, errPathIDLen
	}
	return &Path{conn: c, transport: t, closed: make(chan struct{})}, nil
}

// mayNotMove reports whether the server wants no packets from another address of ours: it
// speaks of the address that was used during the handshake, not of its preferred one (RFC
// 9000 §18.2). The mutex is held.
func (c *Conn) mayNotMove() bool {
	return c.params != nil && c.params.DisableActiveMigration && c.paths.active.remote == c.paths.home.remote
}

// Probe sends challenges on the path, once the handshake is confirmed, until the server
// answers one: then the path is validated. It returns ctx's cause if ctx ends before,
// [ErrPathClosed] if the path is closed, and why the connection is over if it is. A path
// that was validated before has to prove itself again.
func (p *Path) Probe(ctx context.Context) error {
	c := p.conn
	// What the server allows may come later than the path.
	select {
	case <-c.handshakeDone:
	case <-p.closed:
		return ErrPathClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	done := make(chan struct{})
	c.mu.Lock()
	q, err := p.probe(done)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	c.wakeUp()
	select {
	case <-done:
		c.mu.Lock()
		p.validated = true
		c.mu.Unlock()
		return nil
	case <-p.closed:
		return ErrPathClosed
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w chan struct{}) bool { return w == done })
	if len(q.waiting) == 0 {
		q.trial = trial{}
		q.seen = time.Now()
		c.wakeUp()
	}
	return context.Cause(ctx)
}

// probe begins to validate the path, and closes done when that has worked.
func (p *Path) probe(done chan struct{}) (*path, error) {
	c := p.conn
	now := time.Now()
	switch {
	case p.isClosed():
		return nil, ErrPathClosed
	case c.closeErr != nil:
		return nil, c.closeErr
	case c.mayNotMove():
		return nil, errMoveForbidden
	}
	q, err := p.open(now)
	if err != nil {
		return nil, err
	}
	p.validated = false
	if len(q.waiting) == 0 {
		q.trial = trial{} // only the answer to a new challenge counts
	}
	q.waiting = append(q.waiting, done)
	c.try(q, now)
	return q, nil
}

// open finds or makes the path, and sees to it that packets from there are ours.
func (p *Path) open(now time.Time) (*path, error) {
	c := p.conn
	server := c.paths.active
	if q := p.way; q != nil && q.known {
		if q.remote == server.remote {
			return q, nil
		}
		// It leads to where the server was before we moved to its preferred address, and
		// listens no more (RFC 9000 §9.6.3).
		if q.handles--; q.handles == 0 {
			c.forgetPath(q)
		}
		p.way, p.validated = nil, false
	}
	if err := c.register(p.transport); err != nil {
		return nil, err
	}
	for _, q := range c.paths.all {
		if q.transport == p.transport && q.remote == server.remote && q.addr.String() == server.addr.String() {
			q.handles++
			p.way = q
			return q, nil
		}
	}
	q := &path{
		transport: p.transport, remote: server.remote, addr: server.addr, route: routeTo(server.addr),
		seq: -1, seen: now, handles: 1,
	}
	if c.addPath(q, true, now) == nil {
		return nil, errTooManyPaths
	}
	p.way = q
	return q, nil
}

func (p *Path) isClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// Switch moves the connection to the path, at once: everything leaves by it from now on.
// The window, the round-trip time and the packet size begin anew there. It returns
// [ErrPathNotValidated] if the path is not validated, [ErrPathClosed] if it is closed, and
// why the connection is over if it is. It is possible to switch back and forth without
// probing again, but not once the connection has moved to the server's preferred address: it
// does so of its own accord, soon after the handshake (RFC 9000 §9.6).
func (p *Path) Switch() error {
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.isClosed():
		return ErrPathClosed
	case !p.validated:
		return ErrPathNotValidated
	case c.closeErr != nil:
		return c.closeErr
	}
	now := time.Now()
	q, err := p.open(now)
	if err != nil {
		return err
	}
	if !p.validated {
		return ErrPathNotValidated
	}
	return c.moveTo(q, now)
}

// Close gives the path up. The path in use cannot be closed.
func (p *Path) Close() error {
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.isClosed() {
		return nil
	}
	if q := p.way; q != nil && q.known {
		if q == c.paths.active {
			return errActivePath
		}
		if q.handles--; q.handles == 0 {
			c.forgetPath(q)
			c.wakeUp() // to tell the server of the connection ID
		}
	}
	close(p.closed)
	return nil
}

// moveTo makes a client send by q. The mutex is held.
func (c *Conn) moveTo(q *path, now time.Time) error {
	if q == c.paths.active {
		return nil
	}
	if !c.takeID(q) {
		return errNoPeerID
	}
	c.paths.active.seen = now
	c.usePath(q)
	c.restart(q, c.rec.NextPN(recovery.App), now)
	c.control.add(framePing, 0) // the server follows a packet that is more than a probe
	c.wakeUp()
	return nil
}

// register makes packets that arrive at t ours.
func (c *Conn) register(t *Transport) error {
	if slices.Contains(c.paths.transports, t) {
		return nil
	}
	ids := c.ids.all()
	for i, id := range ids {
		if !t.addID(id, c) {
			for _, id := range ids[:i] {
				t.removeID(id)
			}
			t.mu.RLock()
			defer t.mu.RUnlock()
			if t.closeErr != nil {
				return t.closeErr
			}
			return errNoFreeConnID
		}
	}
	c.paths.transports = append(c.paths.transports, t)
	c.reads.Store(nil) // the other one has a socket of its own
	return nil
}
