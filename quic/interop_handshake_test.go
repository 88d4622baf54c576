package quic

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/emit"
)

// A client that has to prove its address does so, and is served.
func TestInteropRetry(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{retry: true})
		errands(t, interopContext(t), testSeed(t), 5, 100<<10, c, s)
	})
}

func TestInteropIPv6(t *testing.T) {
	pc, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Logf("nothing to test: %v", err)
		return
	}
	pc.Close()
	eachStack(t, func(t *testing.T, client, server *stack) {
		v6 := stackConfig{network: "udp6"}
		c, s := connectStacks(t, client, server, v6, v6)
		errands(t, interopContext(t), testSeed(t), 5, 1<<20, c, s)
	})
}

// A certificate of 8 KiB is more than the server may send to a client that it does not
// know yet, and its chain takes several CRYPTO frames.
func TestInteropLargeCertificate(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		pair := largeTLSPair()
		c, s := connectStacksTLS(t, client, server, pair.server, pair.client, stackConfig{}, stackConfig{})
		errands(t, interopContext(t), testSeed(t), 2, 100<<10, c, s)
	})
}

// A client that begins with a version that the server does not speak is told so, and
// begins again.
func TestInteropVersionNegotiation(t *testing.T) {
	prefers2, speaks1 := stackConfig{versions: []Version{Version2, Version1}}, stackConfig{versions: []Version{Version1}}
	for _, who := range []struct{ client, server *stack }{
		{volleyStack, quicGoStack},
		{quicGoStack, volleyStack},
		{volleyStack, xNetStack}, // which has no other
	} {
		t.Run(who.client.name+" to "+who.server.name, func(t *testing.T) {
			c, s := connectStacks(t, who.client, who.server, prefers2, speaks1)
			errands(t, interopContext(t), testSeed(t), 2, 100<<10, c, s)
			for _, side := range []stackConn{c, s} {
				if v, ok := side.(volleyConn); ok && v.ConnectionState().Version != Version1 {
					t.Errorf("version %v", v.ConnectionState().Version)
				}
			}
		})
	}
}

// Version 2 has other keys, packet types and Retry tags.
func TestInteropVersion2(t *testing.T) {
	only2 := stackConfig{versions: []Version{Version2}}
	retry := only2
	retry.retry = true
	for _, who := range []struct{ client, server *stack }{{volleyStack, quicGoStack}, {quicGoStack, volleyStack}} {
		t.Run(who.client.name+" to "+who.server.name, func(t *testing.T) {
			c, s := connectStacks(t, who.client, who.server, only2, retry)
			errands(t, interopContext(t), testSeed(t), 5, 1<<20, c, s)
		})
	}
}

// Either side, or both, may do without connection IDs.
func TestInteropNoConnectionIDs(t *testing.T) {
	none, some := stackConfig{noIDs: true}, stackConfig{}
	for _, who := range []struct{ client, server *stack }{{volleyStack, quicGoStack}, {quicGoStack, volleyStack}} {
		for _, conf := range []struct {
			name           string
			client, server stackConfig
		}{{"client", none, some}, {"server", some, none}, {"both", none, none}} {
			t.Run(who.client.name+" to "+who.server.name+", "+conf.name+" has none", func(t *testing.T) {
				c, s := connectStacks(t, who.client, who.server, conf.client, conf.server)
				errands(t, interopContext(t), testSeed(t), 5, 1<<20, c, s)
			})
		}
	}
}

// chaCha20Child is set in the environment of the process in which crypto/tls believes
// that there are no AES instructions.
const chaCha20Child = "VOLLEY_TEST_CHACHA20"

// Without AES instructions crypto/tls chooses ChaCha20. As it looks for them when the
// process begins, this test runs itself once more.
func TestInteropChaCha20(t *testing.T) {
	if os.Getenv(chaCha20Child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInteropChaCha20$", "-test.v")
		cmd.Env = append(os.Environ(), chaCha20Child+"=1", "GODEBUG=cpu.aes=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	eachStack(t, func(t *testing.T, client, server *stack) {
		c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{})
		for _, side := range []stackConn{c, s} {
			v, ok := side.(volleyConn)
			if !ok {
				continue
			}
			// Elsewhere than on these the instructions cannot be switched off.
			suite := v.ConnectionState().TLS.CipherSuite
			if suite != tls.TLS_CHACHA20_POLY1305_SHA256 && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") {
				t.Errorf("cipher suite %s", tls.CipherSuiteName(suite))
			}
		}
		errands(t, interopContext(t), testSeed(t), 5, 2<<20, c, s)
	})
}

// keyWatch is a qlog trace that counts a quic-go connection's key updates.
type keyWatch struct {
	mu            sync.Mutex
	local, remote int
}

func (k *keyWatch) AddProducer() qlogwriter.Recorder { return k }
func (k *keyWatch) SupportsSchemas(string) bool      { return true }
func (k *keyWatch) Close() error                     { return nil }

func (k *keyWatch) trace(context.Context, bool, ConnectionID) qlogwriter.Trace { return k }

// updates returns how many began here and there.
func (k *keyWatch) updates() (local, remote int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.local / 2, k.remote / 2 // an event for each direction's key
}

func (k *keyWatch) RecordEvent(e qlogwriter.Event) {
	u, ok := e.(qlog.KeyUpdated)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch u.Trigger {
	case qlog.KeyUpdateLocal:
		k.local++
	case qlog.KeyUpdateRemote:
		k.remote++
	}
}

// quic-go updates its keys after 100 packets, and every 100,000 from there on. Volley
// follows, as the sender of most packets and as their receiver, and nothing is lost.
func TestInteropKeyUpdates(t *testing.T) {
	size := less[int64](160 << 20) // in packets of 1452 bytes: 116,000
	least := max(less(3), 1)
	for _, who := range []struct{ client, server *stack }{{volleyStack, quicGoStack}, {quicGoStack, volleyStack}} {
		t.Run(who.client.name+" to "+who.server.name, func(t *testing.T) {
			ctx := interopContext(t)
			watch := &keyWatch{}
			traced := stackConfig{trace: watch.trace}
			c, s := connectStacks(t, who.client, who.server, traced, traced)
			for i, way := range []struct{ from, to stackConn }{{c, s}, {s, c}} {
				p := patternOf(5, uint64(i))
				sent := make(chan error, 1)
				go func() {
					s, err := way.from.openUni(ctx)
					if err == nil {
						err = sendPattern(s, p, size, emit.Tuning{})
					}
					sent <- err
				}()
				in, err := way.to.acceptUni(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.check(in, size); err != nil {
					t.Error(err)
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
			}
			local, remote := watch.updates()
			if local < least {
				t.Errorf("quic-go updated its keys %d times only", local)
			}
			v, ok := c.(volleyConn)
			if !ok {
				v = s.(volleyConn)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if send, recv := v.oneRTT.Generations(); send != uint64(local+remote) || recv != send {
				t.Errorf("quic-go updated %d times and followed %d times; volley is at generations %d and %d", local, remote, send, recv)
			}
		})
	}
}

// A client whose data comes right behind its Finished, and goes at once, is served all
// the same.
func TestInteropShortVisits(t *testing.T) {
	eachStack(t, func(t *testing.T, client, server *stack) {
		ctx := interopContext(t)
		st, ct := peerTLS()
		addr, accept := server.listen(t, st, stackConfig{})
		go func() {
			for {
				s, err := accept(ctx)
				if err != nil {
					return
				}
				go func() {
					if st, err := s.accept(ctx); err == nil {
						serveErrand(st)
					}
				}()
			}
		}()
		rnd := testSeed(t)
		var wg sync.WaitGroup
		for i := range 20 {
			e := errand{uint64(i), uint64(rnd.Int64N(20 << 10)), uint64(rnd.Int64N(20 << 10))}
			wg.Go(func() {
				c, err := client.dial(t, ctx, addr, ct, stackConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				s, err := c.open(ctx)
				if err == nil {
					err = e.run(s)
				}
				if err != nil {
					t.Error(err)
				}
				c.closeWith(0, "")
			})
		}
		wg.Wait()
	})
}
