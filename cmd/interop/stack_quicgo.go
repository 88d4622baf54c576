package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"

	quicgo "github.com/quic-go/quic-go"
)

type quicGoStack struct{}

func (quicGoStack) config(o options) *quicgo.Config {
	c := &quicgo.Config{Allow0RTT: o.early, HandshakeIdleTimeout: handshakeSilence}
	if o.smallWindows {
		c.InitialStreamReceiveWindow = smallStreamWindow
		c.InitialConnectionReceiveWindow = smallConnWindow
	}
	if o.version2 {
		c.Versions = []quicgo.Version{quicgo.Version2}
	}
	return c
}

func (q quicGoStack) listen(pc *net.UDPConn, conf *tls.Config, o options) (listener, error) {
	tr := &quicgo.Transport{Conn: pc}
	if o.retry {
		tr.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	l, err := tr.ListenEarly(conf, q.config(o))
	if err != nil {
		return nil, err
	}
	return &quicGoListener{tr, l}, nil
}

type quicGoListener struct {
	tr *quicgo.Transport
	l  *quicgo.EarlyListener
}

func (l *quicGoListener) accept(ctx context.Context) (conn, error) {
	c, err := l.l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &quicGoConn{Conn: c}, nil
}

func (l *quicGoListener) close() {
	l.tr.Close()
	l.tr.Conn.Close()
}

func (q quicGoStack) dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, o options) (conn, error) {
	pc, err := clientSocket(addr)
	if err != nil {
		return nil, err
	}
	tr := &quicgo.Transport{Conn: pc}
	dial := tr.Dial
	if o.early {
		dial = tr.DialEarly
	}
	c, err := dial(ctx, addr, conf, q.config(o))
	if err != nil {
		tr.Close()
		pc.Close()
		return nil, err
	}
	opened := &quicGoConn{Conn: c}
	opened.sockets.add(func() { tr.Close(); pc.Close() })
	return opened, nil
}

type quicGoConn struct {
	*quicgo.Conn
	sockets sockets
}

func (c *quicGoConn) open(ctx context.Context) (stream, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicGoStream{s, s, s}, nil
}

func (c *quicGoConn) accept(ctx context.Context) (stream, error) {
	s, err := c.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return quicGoStream{s, s, s}, nil
}

func (c *quicGoConn) openUni(ctx context.Context) (stream, error) {
	s, err := c.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicGoStream{nil, s, s}, nil
}

func (c *quicGoConn) acceptUni(ctx context.Context) (io.Reader, error) {
	return c.AcceptUniStream(ctx)
}

func (c *quicGoConn) close(code uint64) {
	c.CloseWithError(quicgo.ApplicationErrorCode(code), "")
	c.sockets.closeAll()
}

func (c *quicGoConn) migrate(ctx context.Context) error {
	pc, err := clientSocket(c.RemoteAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	tr := &quicgo.Transport{Conn: pc}
	c.sockets.add(func() { tr.Close(); pc.Close() })
	p, err := c.AddPath(tr)
	if err != nil {
		return err
	}
	if err := p.Probe(ctx); err != nil {
		return err
	}
	return p.Switch()
}

func (c *quicGoConn) wait(ctx context.Context) error {
	select {
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

type quicGoStream struct {
	io.Reader
	io.Writer
	sending interface {
		Close() error
		CancelWrite(quicgo.StreamErrorCode)
	}
}

func (s quicGoStream) flush() error      { return nil }
func (s quicGoStream) closeWrite() error { return s.sending.Close() }
func (s quicGoStream) reset()            { s.sending.CancelWrite(0) }
func (s quicGoStream) release()          {}

func (s quicGoStream) send(_ context.Context, src io.ReaderAt, n int64) error {
	return copyFrom(s, src, n)
}
