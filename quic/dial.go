package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/volley-quic/volley/internal/udp"
)

// DialAddr opens a UDP socket and dials addr ("host:port") from it. The socket is
// closed when the connection is over. tlsConf must have NextProtos; if it has no
// ServerName, host is taken. conf may be nil. When ctx ends before the handshake is
// complete, the error is its cause.
//
// A [Transport] dials any number of connections from one socket.
func DialAddr(ctx context.Context, addr string, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return dialAddr(ctx, addr, tlsConf, conf, false)
}

// DialAddrEarly is [DialAddr] with [Transport.DialEarly].
func DialAddrEarly(ctx context.Context, addr string, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return dialAddr(ctx, addr, tlsConf, conf, true)
}

// Dial dials addr from pc, as [DialAddr] does from a socket of its own. pc is read
// until the connection is over; it is not closed.
func Dial(ctx context.Context, pc net.PacketConn, addr net.Addr, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return (&Transport{Conn: pc, singleUse: true}).dialOnce(ctx, addr, "", tlsConf, conf, false)
}

// DialEarly is [Dial] with [Transport.DialEarly].
func DialEarly(ctx context.Context, pc net.PacketConn, addr net.Addr, tlsConf *tls.Config, conf *Config) (*Conn, error) {
	return (&Transport{Conn: pc, singleUse: true}).dialOnce(ctx, addr, "", tlsConf, conf, true)
}

func dialAddr(ctx context.Context, addr string, tlsConf *tls.Config, conf *Config, early bool) (*Conn, error) {
	to, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	network := "udp6"
	if to.Addr().Is4() {
		network = "udp4"
	}
	pc, err := ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	t := &Transport{Conn: pc, createdConn: true, singleUse: true}
	return t.dialOnce(ctx, net.UDPAddrFromAddrPort(to), addr, tlsConf, conf, early)
}

// resolve is net.ResolveUDPAddr, but ends with ctx.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		host = "localhost" // where net.Dial goes, too
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return netip.AddrPort{}, err
	}
	best := ips[0].Unmap()
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() {
			best = ip
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(port)), nil
}

// dialOnce is dial on a transport that ends with its connection.
func (t *Transport) dialOnce(ctx context.Context, addr net.Addr, host string, tlsConf *tls.Config, conf *Config, early bool) (*Conn, error) {
	c, err := t.dial(ctx, addr, host, tlsConf, conf, early)
	if err != nil {
		t.Close()
		return nil, err
	}
	return c, nil
}

// dial opens a connection. host is what addr was resolved from, "host:port", or
// empty.
func (t *Transport) dial(ctx context.Context, addr net.Addr, host string, tlsConf *tls.Config, conf *Config, early bool) (*Conn, error) {
	if tlsConf == nil {
		return nil, errNoTLSConfig
	}
	if err := conf.validate(); err != nil {
		return nil, err
	}
	if err := t.init(t.singleUse); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	conf = conf.populate()
	tlsConf = withServerName(tlsConf, addr, host)
	p := connParams{
		transport: t,
		isClient:  true,
		config:    conf,
		tls:       tlsConf,
		version:   conf.Versions[0],
		remote:    addr,
		route:     routeTo(addr),
		early:     early,
	}
	if store := conf.TokenStore; store != nil {
		if tok := store.Pop(tokenStoreKey(tlsConf, addr)); tok != nil {
			p.token = tok.data
			p.greased = time.Now().Before(tok.greaseUntil)
		}
	}
	c, err := t.tryDial(ctx, p)
	var other *errRecreate
	if errors.As(err, &other) {
		// RFC 9000 §6.2. A server that goes back on what it said is not worth a third
		// try, and a token is for the version it was given in (RFC 9369 §5).
		p.version, p.token, p.greased = other.version, nil, false
		p.nextPN = other.nextPN
		p.negotiated = true
		c, err = t.tryDial(ctx, p)
	}
	return c, err
}

// tryDial makes one connection and waits for it. p lacks connection IDs
// and context.
func (t *Transport) tryDial(ctx context.Context, p connParams) (*Conn, error) {
	src, err := t.newConnID()
	if err != nil {
		return nil, err
	}
	if err := t.hold(src); err != nil {
		return nil, err
	}
	p.ctx = withVersion(context.WithoutCancel(ctx), p.version)
	p.srcID = src
	p.destID = initialDestID()
	p.origDst = p.destID
	gone := make(chan struct{})
	p.done = func(_ *Conn, err error) {
		close(gone)
		if t.singleUse && !errors.As(err, new(*errRecreate)) {
			t.shutdown(nil)
		}
	}
	c, err := newConn(p)
	if err != nil {
		t.settle(src, nil)
		return nil, err
	}
	if !t.settle(src, c) {
		c.destroy(ErrTransportClosed)
	}

	var early <-chan struct{}
	if p.early {
		early = c.zeroRTT.ready
	}
	select {
	case <-early:
		return c, nil // 0-RTT data may be sent
	case <-c.HandshakeComplete():
		// It is complete, or never will be.
		if c.Context().Err() == nil {
			return c, nil
		}
	case <-c.Context().Done():
	case <-ctx.Done():
		c.CloseWithError(0, "")
		// The server has been told then.
		<-c.Context().Done()
		return nil, context.Cause(ctx)
	}
	err = context.Cause(c.Context())
	if errors.As(err, new(*errRecreate)) {
		<-gone // so that its IDs are free: on a transport without IDs there is but one
	}
	return nil, err
}

func routeTo(addr net.Addr) udp.Route {
	r := udp.Route{RemoteAddr: addr}
	if a, ok := addr.(*net.UDPAddr); ok {
		ap := a.AddrPort()
		r.Remote = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return r
}

// withServerName returns a copy of conf with a ServerName, if there is anything to
// make one of.
func withServerName(conf *tls.Config, addr net.Addr, host string) *tls.Config {
	conf = conf.Clone()
	if conf.ServerName != "" {
		return conf
	}
	if a, ok := addr.(*net.UDPAddr); ok && host == "" {
		conf.ServerName = a.IP.String()
		return conf
	}
	conf.ServerName = host
	if h, _, err := net.SplitHostPort(host); err == nil {
		conf.ServerName = h
	}
	return conf
}
