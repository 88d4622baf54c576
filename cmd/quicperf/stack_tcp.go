package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

func init() { stacks["tcp"] = tcpStack{} }

// tcpStack is crypto/tls over TCP. A stream is a TLS connection of its own;
// what makes a tcpConn of them is an identifier that the client draws at
// random and sends first on each.
type tcpStack struct{}

// tcpPreamble is the first thing on every TLS connection.
type tcpPreamble struct {
	first byte // 1: this connection is the first of its tcpConn
	id    [16]byte
}

const tcpPreambleSize = 17

func (p *tcpPreamble) bytes() []byte { return append([]byte{p.first}, p.id[:]...) }

func (tcpStack) Listen(addr string, conf *tls.Config, _ netOptions) (listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	tl := &tcpListener{
		l: l, conf: conf,
		ctx: ctx, cancel: cancel,
		conns:    make(map[[16]byte]*tcpConn),
		accepted: make(chan *tcpConn),
	}
	tl.wg.Go(tl.acceptLoop)
	return tl, nil
}

func (tcpStack) Dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, _ netOptions) (conn, error) {
	c := &tcpConn{addr: addr.String(), conf: conf, done: make(chan struct{})}
	rand.Read(c.id[:])
	first, err := c.dial(ctx, 1)
	if err != nil {
		return nil, err
	}
	c.first = first
	return c, nil
}

type tcpListener struct {
	l        net.Listener
	conf     *tls.Config
	accepted chan *tcpConn
	ctx      context.Context // ends with the listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[[16]byte]*tcpConn
}

func (l *tcpListener) Addr() net.Addr { return l.l.Addr() }

func (l *tcpListener) Accept(ctx context.Context) (conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *tcpListener) Close() error {
	l.cancel()
	err := l.l.Close()
	l.mu.Lock()
	conns := slices.Collect(maps.Values(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		c.CloseWithError(0, "")
	}
	l.wg.Wait()
	return err
}

func (l *tcpListener) acceptLoop() {
	for {
		c, err := l.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, mostly: others may close theirs.
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		l.wg.Go(func() { l.welcome(c) })
	}
}

// welcome does the handshake and finds out which tcpConn raw belongs to.
func (l *tcpListener) welcome(raw net.Conn) {
	stop := context.AfterFunc(l.ctx, func() { raw.Close() })
	defer stop()
	t := tls.Server(raw, l.conf)
	t.SetDeadline(time.Now().Add(handshakeTimeout))
	var b [tcpPreambleSize]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		t.Close()
		return
	}
	t.SetDeadline(time.Time{})
	p := tcpPreamble{b[0], [16]byte(b[1:])}
	s := &tcpStream{t}

	l.mu.Lock()
	c, known := l.conns[p.id]
	isNew := p.first == 1 && !known && l.ctx.Err() == nil
	if isNew {
		c = &tcpConn{id: p.id, listener: l, first: s, streams: make(chan *tcpStream), done: make(chan struct{}), all: []*tls.Conn{t}}
		l.conns[p.id] = c
	}
	l.mu.Unlock()

	switch {
	case isNew:
		select {
		case l.accepted <- c:
		case <-l.ctx.Done():
			c.CloseWithError(0, "")
		}
	case p.first == 0 && known && c.adopt(t):
		select {
		case c.streams <- s:
		case <-c.done:
		}
	default:
		t.Close()
	}
}

// tcpConn is a group of TLS connections.
type tcpConn struct {
	id       [16]byte
	listener *tcpListener    // server
	streams  chan *tcpStream // server
	addr     string          // client
	conf     *tls.Config     // client

	done chan struct{} // closed by CloseWithError

	mu    sync.Mutex
	first *tcpStream // until someone opens or accepts it
	all   []*tls.Conn
	ended bool
}

// dial adds a TLS connection to the group.
func (c *tcpConn) dial(ctx context.Context, first byte) (*tcpStream, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	d := tls.Dialer{Config: c.conf}
	raw, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, tcpError(err)
	}
	t := raw.(*tls.Conn)
	p := tcpPreamble{first, c.id}
	if _, err := t.Write(p.bytes()); err != nil {
		t.Close()
		return nil, tcpError(err)
	}
	if !c.adopt(t) {
		t.Close()
		return nil, net.ErrClosed
	}
	return &tcpStream{t}, nil
}

// adopt makes t end with c; false if c has ended.
func (c *tcpConn) adopt(t *tls.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.all = append(c.all, t)
	return true
}

func (c *tcpConn) takeFirst() *tcpStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.first
	c.first = nil
	return s
}

func (c *tcpConn) OpenStream(ctx context.Context) (stream, error) {
	if s := c.takeFirst(); s != nil {
		return s, nil
	}
	return c.dial(ctx, 0)
}

func (c *tcpConn) AcceptStream(ctx context.Context) (stream, error) {
	if s := c.takeFirst(); s != nil {
		return s, nil
	}
	select {
	case s := <-c.streams:
		return s, nil
	case <-c.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *tcpConn) TLS() tls.ConnectionState { return c.any().ConnectionState() }
func (c *tcpConn) RemoteAddr() net.Addr     { return c.any().RemoteAddr() }

func (c *tcpConn) any() *tls.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[0]
}

// Done is closed by CloseWithError alone: TCP tells of the other side's end
// only to those who read.
func (c *tcpConn) Done() <-chan struct{} { return c.done }

func (c *tcpConn) Counters() counters { return counters{} }

// CloseWithError cannot send the code and the reason: TCP has no place for
// them. The control stream's Error message says it instead.
func (c *tcpConn) CloseWithError(uint64, string) error {
	c.mu.Lock()
	already := c.ended
	c.ended = true
	c.mu.Unlock()
	if already {
		return nil
	}
	close(c.done)
	for _, t := range c.all { // nothing is appended any more
		t.Close()
	}
	if l := c.listener; l != nil {
		l.mu.Lock()
		delete(l.conns, c.id)
		l.mu.Unlock()
	}
	return nil
}

type tcpStream struct{ t *tls.Conn }

func (s *tcpStream) Read(p []byte) (int, error) {
	n, err := s.t.Read(p)
	return n, tcpError(err)
}

func (s *tcpStream) Write(p []byte) (int, error) {
	n, err := s.t.Write(p)
	return n, tcpError(err)
}

func (s *tcpStream) CloseWrite() error { return tcpError(s.t.CloseWrite()) }

// tcpError says in quicperf's words what the errors of net and crypto/tls mean.
func tcpError(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if e, ok := errors.AsType[*tlsError](err); ok {
		return e // from our own check of the certificate
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return &tlsError{remote: true, noALPN: alert == alertNoALPN, text: alert.Error()}
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		// crypto/tls keeps the type of alerts over TCP to itself.
		return &tlsError{remote: true, noALPN: e.Err.Error() == tls.AlertError(alertNoALPN).Error(), text: e.Err.Error()}
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &tlsError{text: fmt.Sprintf("the other side does not speak TLS (%s)", e.Msg)}
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &tlsError{text: e.Err.Error()}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errRefused
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return errNoAnswer
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return &closedError{}
	}
	return err
}

// errorText is the message a stack gives, or all it has to say.
func errorText(message string, err error) string {
	if message != "" {
		return message
	}
	return err.Error()
}
