package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/quic"
)

type volleyStack struct{}

func (volleyStack) config(o options) *quic.Config {
	c := &quic.Config{
		Allow0RTT: o.early, Tracer: qlog.DefaultConnectionTracer,
		HandshakeIdleTimeout: handshakeSilence,
	}
	if o.smallWindows {
		c.InitialStreamReceiveWindow = smallStreamWindow
		c.InitialConnectionReceiveWindow = smallConnWindow
	}
	if o.keepAlive {
		c.KeepAlivePeriod = time.Second
	}
	if o.version2 {
		c.Versions = []quic.Version{quic.Version2}
	}
	return c
}

func (v volleyStack) listen(pc *net.UDPConn, conf *tls.Config, o options) (listener, error) {
	l := &volleyListener{}
	tr := l.transport(pc, o)
	if o.retry {
		tr.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	c := v.config(o)
	for _, host := range o.preferredHosts {
		pc, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, 0)))
		if err != nil {
			l.close()
			return nil, err
		}
		at := quic.PreferredAddress{Addr: addrPort(pc.LocalAddr()), Transport: l.transport(pc, o)}
		c.PreferredAddresses = append(c.PreferredAddresses, at)
	}
	// Early: what comes right behind the handshake is answered right behind it, and
	// 0-RTT data before.
	var err error
	if l.l, err = tr.ListenEarly(conf, c); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

type volleyListener struct {
	trs []*quic.Transport // the first is the one that listens
	l   *quic.EarlyListener
}

func (l *volleyListener) transport(pc *net.UDPConn, o options) *quic.Transport {
	tr := &quic.Transport{Conn: pc}
	if o.tap != nil {
		tr.Conn = &tap{UDPConn: pc, capture: o.tap, server: true}
	}
	l.trs = append(l.trs, tr)
	return tr
}

func (l *volleyListener) accept(ctx context.Context) (conn, error) {
	c, err := l.l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &volleyConn{Conn: c}, nil
}

func (l *volleyListener) close() {
	for _, tr := range l.trs {
		tr.Close()
		tr.Conn.Close()
	}
}

func (v volleyStack) dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, o options) (conn, error) {
	udp, err := clientSocket(addr)
	if err != nil {
		return nil, err
	}
	var pc net.PacketConn = udp
	if o.tap != nil {
		pc = &tap{UDPConn: udp, capture: o.tap}
	}
	tr := &quic.Transport{Conn: pc}
	dial := tr.Dial
	if o.early {
		dial = tr.DialEarly
	}
	c, err := dial(ctx, addr, conf, v.config(o))
	if err != nil {
		tr.Close()
		pc.Close()
		return nil, err
	}
	opened := &volleyConn{Conn: c}
	opened.sockets.add(func() { tr.Close(); pc.Close() })
	return opened, nil
}

type volleyConn struct {
	*quic.Conn
	sockets sockets // that dial and migrate opened
}

func (c *volleyConn) open(ctx context.Context) (stream, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return volleyStream{s.SendStream, s.ReceiveStream}, nil
}

func (c *volleyConn) accept(ctx context.Context) (stream, error) {
	s, err := c.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return volleyStream{s.SendStream, s.ReceiveStream}, nil
}

func (c *volleyConn) openUni(ctx context.Context) (stream, error) {
	s, err := c.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return volleyStream{SendStream: s}, nil
}

func (c *volleyConn) acceptUni(ctx context.Context) (io.Reader, error) {
	return c.AcceptUniStream(ctx)
}

func (c *volleyConn) close(code uint64) {
	c.CloseWithError(quic.ApplicationErrorCode(code), "")
	c.sockets.closeAll()
}

func (c *volleyConn) migrate(ctx context.Context) error {
	pc, err := clientSocket(c.RemoteAddr().(*net.UDPAddr))
	if err != nil {
		return err
	}
	tr := &quic.Transport{Conn: pc}
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

func (c *volleyConn) wait(ctx context.Context) error {
	select {
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

type volleyStream struct {
	*quic.SendStream
	*quic.ReceiveStream
}

func (s volleyStream) flush() error      { return nil }
func (s volleyStream) closeWrite() error { return s.SendStream.Close() }
func (s volleyStream) reset()            { s.CancelWrite(0) }
func (s volleyStream) release()          {}

// send lets the file be read straight into packets.
func (s volleyStream) send(ctx context.Context, src io.ReaderAt, n int64) error {
	_, err := s.SendFrom(ctx, src, 0, n, emit.End())
	return err
}
