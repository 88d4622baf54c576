package quic

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// The other side learns code and reason of a close, whoever closes.
func TestInteropClose(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		for _, clientCloses := range []bool{true, false} {
			c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{})
			ctx := interopContext(t)
			errands(t, ctx, testSeed(t), 1, 1000, c, s)
			a, b := c, s
			if !clientCloses {
				a, b = s, c
			}
			a.closeWith(0x1234567, "that is all, folks")
			e := b.wait(ctx)
			if !e.app || !e.remote || e.code != 0x1234567 || e.reason != "that is all, folks" {
				t.Errorf("client closes: %v; the other side sees %+v", clientCloses, e)
			}
			if v, ok := a.(volleyConn); ok {
				if e := v.wait(ctx); !e.app || e.remote || e.code != 0x1234567 {
					t.Errorf("client closes: %v; its side sees %+v", clientCloses, e)
				}
				if _, err := v.OpenStream(); endingOf(err).code != 0x1234567 {
					t.Errorf("opening a stream after: %v", err)
				}
			}
		}
	})
}

// The smaller idle timeout counts, whoever has it. What the other stacks do about ours is
// their affair: quic-go believes no peer that wants less than 5 s, and x/net/quic does
// not tell of its own.
func TestInteropIdleTimeout(t *testing.T) {
	short := stackConfig{idle: 200 * time.Millisecond}
	eachStack(t, func(t *testing.T, client, server *stack) {
		for _, conf := range [][2]stackConfig{{short, {}}, {{}, short}} {
			c, s := connectStacks(t, client, server, conf[0], conf[1])
			ctx := interopContext(t)
			for _, side := range []struct {
				conn stackConn
				is   *stack
				conf stackConfig
			}{{c, client, conf[0]}, {s, server, conf[1]}} {
				told := side.is == volleyStack && client != xNetStack && server != xNetStack
				if side.conf.idle == 0 && !told {
					continue
				}
				if e := side.conn.wait(ctx); !e.timeout {
					t.Errorf("%s sees %+v", side.is.name, e)
				}
			}
		}
	})
}

// dialFails dials and wants it to fail on both sides with a TLS alert, found by the
// client (local) or by the server.
func dialFails(t *testing.T, client, server *stack, st, ct *tls.Config, alert uint64, local bool) error {
	t.Helper()
	ctx := interopContext(t)
	addr, accept := server.listen(t, st, stackConfig{})
	go accept(ctx)
	c, err := client.dial(t, ctx, addr, ct, stackConfig{})
	if err == nil {
		// The client's handshake may be complete before the server refuses.
		err = c.wait(ctx).err
	}
	if client == xNetStack {
		// Its errors have no code, only words.
		var want interface{ Error() string }
		if !errors.As(err, &want) {
			t.Errorf("x/net/quic is content: %v", err)
		}
		return err
	}
	if e := endingOf(err); e.app || e.code != 0x100+alert || e.remote == local {
		t.Errorf("dialing ended with %#v, want TLS alert %d", err, alert)
	}
	return err
}

const (
	alertBadCertificate        = 42
	alertCertificateRequired   = 116
	alertNoApplicationProtocol = 120
)

func TestInteropALPNMismatch(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		st, ct := peerTLS()
		ct.NextProtos = []string{"something-else"}
		dialFails(t, client, server, st, ct, alertNoApplicationProtocol, false)
	})
}

func TestInteropUntrustedServer(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		st, ct := peerTLS()
		ct.RootCAs = x509.NewCertPool()
		err := dialFails(t, client, server, st, ct, alertBadCertificate, true)
		if client == volleyStack && !errors.As(err, new(*tls.CertificateVerificationError)) {
			t.Errorf("the cause is lost: %v", err)
		}
	})
}

// A server that wants a certificate refuses a client whose handshake is complete
// already.
func TestInteropClientWithoutCertificate(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		st, ct := peerTLS()
		st.ClientAuth = tls.RequireAnyClientCert
		dialFails(t, client, server, st, ct, alertCertificateRequired, false)
	})
}

// With a certificate it is let in, and known.
func TestInteropClientCertificate(t *testing.T) {
	st, ct := peerTLS()
	st.ClientAuth = tls.RequireAnyClientCert
	ct.Certificates = st.Certificates
	ctx := interopContext(t)
	l, err := ListenAddr("127.0.0.1:0", st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := quicgo.DialAddr(ctx, l.Addr().String(), ct, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithError(0, "")
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.ConnectionState().TLS.PeerCertificates); n != 1 {
		t.Errorf("the server sees %d certificates", n)
	}
	errands(t, ctx, testSeed(t), 1, 1000, quicGoConn{c}, volleyConn{s})
}
