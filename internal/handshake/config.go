package handshake

import (
	"crypto/tls"
	"errors"
	"net"
	"time"
)

func clientConfig(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	conf.MinVersion = tls.VersionTLS13 // RFC 9001 §4.2
	return conf
}

func (t *TLS) serverConfig(conf *tls.Config) *tls.Config {
	// crypto/tls makes its session ticket keys when they are first needed. They must
	// be there, and fresh, before the clone, or every connection would make its own
	// and no ticket would ever be good (golang/go#60506). This call has no other effect.
	conf.DecryptTicket(nil, tls.ConnectionState{})
	return t.adapt(conf)
}

// adapt clones a server's configuration, and those that it leads to.
func (t *TLS) adapt(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	conf.MinVersion = tls.VersionTLS13 // RFC 9001 §4.2
	if get := conf.GetConfigForClient; get != nil {
		conf.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			info.Conn = &t.addrs
			c, err := get(info)
			if c != nil {
				c = t.adapt(c)
			}
			return c, err
		}
	}
	if get := conf.GetCertificate; get != nil {
		conf.GetCertificate = func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
			info.Conn = &t.addrs
			return get(info)
		}
	}
	return conf
}

// addrConn is the net.Conn that callbacks find in a ClientHelloInfo: it has
// addresses and nothing else.
type addrConn struct{ local, remote net.Addr }

var errNoConn = errors.New("handshake: a QUIC connection is no net.Conn")

func (c *addrConn) LocalAddr() net.Addr              { return c.local }
func (c *addrConn) RemoteAddr() net.Addr             { return c.remote }
func (c *addrConn) Read([]byte) (int, error)         { return 0, errNoConn }
func (c *addrConn) Write([]byte) (int, error)        { return 0, errNoConn }
func (c *addrConn) Close() error                     { return errNoConn }
func (c *addrConn) SetDeadline(time.Time) error      { return errNoConn }
func (c *addrConn) SetReadDeadline(time.Time) error  { return errNoConn }
func (c *addrConn) SetWriteDeadline(time.Time) error { return errNoConn }
