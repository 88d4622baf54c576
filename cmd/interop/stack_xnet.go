package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	xquic "golang.org/x/net/quic"
)

type xNetStack struct{}

func (xNetStack) config(conf *tls.Config, o options) *xquic.Config {
	c := &xquic.Config{TLSConfig: conf, RequireAddressValidation: o.retry, HandshakeTimeout: 2 * handshakeSilence}
	if o.smallWindows {
		// Its windows do not grow, they only move on.
		c.MaxStreamReadBufferSize = smallStreamWindow
		c.MaxConnReadBufferSize = smallConnWindow
	}
	return c
}

func (x xNetStack) listen(pc *net.UDPConn, conf *tls.Config, o options) (listener, error) {
	e, err := xquic.NewEndpoint(pc, x.config(conf, o))
	if err != nil {
		return nil, err
	}
	return xNetListener{e}, nil
}

type xNetListener struct{ e *xquic.Endpoint }

func (l xNetListener) accept(ctx context.Context) (conn, error) {
	c, err := l.e.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return newXNetConn(c, nil), nil
}

func (l xNetListener) close() { closeXNet(l.e) }

// closeXNet closes an endpoint and its socket, and gives it a moment to tell peers.
func closeXNet(e *xquic.Endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	e.Close(ctx)
}

func (x xNetStack) dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, o options) (conn, error) {
	pc, err := clientSocket(addr)
	if err != nil {
		return nil, err
	}
	e, err := xquic.NewEndpoint(pc, nil)
	if err != nil {
		pc.Close()
		return nil, err
	}
	c, err := e.Dial(ctx, "udp", addr.String(), x.config(conf, o))
	if err != nil {
		closeXNet(e)
		return nil, err
	}
	return newXNetConn(c, e), nil
}

// xNetConn sorts the streams that its Conn accepts by kind.
type xNetConn struct {
	*xquic.Conn
	endpoint  *xquic.Endpoint // the one that dial made
	bidi, uni chan *xquic.Stream
}

func newXNetConn(c *xquic.Conn, e *xquic.Endpoint) *xNetConn {
	x := &xNetConn{c, e, make(chan *xquic.Stream, 100), make(chan *xquic.Stream, 100)}
	go func() {
		defer close(x.bidi)
		defer close(x.uni)
		for {
			s, err := c.AcceptStream(context.Background())
			if err != nil {
				return
			}
			if s.IsReadOnly() {
				x.uni <- s
			} else {
				x.bidi <- s
			}
		}
	}()
	return x
}

func (c *xNetConn) open(ctx context.Context) (stream, error) {
	s, err := c.NewStream(ctx)
	if err != nil {
		return nil, err
	}
	return xNetStream{s}, nil
}

func (c *xNetConn) openUni(ctx context.Context) (stream, error) {
	s, err := c.NewSendOnlyStream(ctx)
	if err != nil {
		return nil, err
	}
	return xNetStream{s}, nil
}

func (c *xNetConn) accept(ctx context.Context) (stream, error) {
	select {
	case s, ok := <-c.bidi:
		if !ok {
			return nil, net.ErrClosed
		}
		return xNetStream{s}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *xNetConn) acceptUni(ctx context.Context) (io.Reader, error) {
	select {
	case s, ok := <-c.uni:
		if !ok {
			return nil, net.ErrClosed
		}
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *xNetConn) close(code uint64) {
	c.Abort(&xquic.ConnectionCloseError{Code: code})
	if c.endpoint != nil {
		closeXNet(c.endpoint)
	}
}

func (c *xNetConn) wait(ctx context.Context) error {
	err := c.Wait(ctx)
	if err == nil {
		return errors.New("closed")
	}
	return err
}

type xNetStream struct{ *xquic.Stream }

func (s xNetStream) flush() error      { s.Flush(); return nil }
func (s xNetStream) closeWrite() error { s.CloseWrite(); return nil }
func (s xNetStream) reset()            { s.Reset(0) }
func (s xNetStream) release()          { s.CloseRead() }

func (s xNetStream) send(_ context.Context, src io.ReaderAt, n int64) error {
	return copyFrom(s, src, n)
}
