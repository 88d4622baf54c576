package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/wire"
)

// clientInitial is the Initial of a client that has nothing to say: a PING, padded
// so that the datagram has size bytes.
func clientInitial(t *testing.T, version Version, dst, src, token []byte, size int) []byte {
	t.Helper()
	secret, _ := protect.InitialSecrets(uint32(version), dst)
	sealer, err := protect.NewSealer(tls.TLS_AES_128_GCM_SHA256, secret, uint32(version))
	if err != nil {
		t.Fatal(err)
	}
	const pnLen = 2
	header := wire.LongHeaderLen(wire.Initial, len(dst), len(src), len(token), pnLen)
	b := wire.AppendLong(nil, wire.Initial, uint32(version), dst, src, token, size-header+pnLen, 0, pnLen)
	b = append(b, 1)
	b = append(b, make([]byte, size-len(b))...)
	sealer.Seal(b, header-pnLen, pnLen, 0)
	return b
}

// closeCode opens a server's Initial and returns the code of its CONNECTION_CLOSE.
func closeCode(t *testing.T, b []byte, version Version, dst, src []byte) TransportErrorCode {
	t.Helper()
	h, err := wire.ParseLong(b)
	if err != nil || h.Type != wire.Initial || h.Len != len(b) {
		t.Fatalf("no Initial: %x", b)
	}
	if !bytes.Equal(h.Dst, src) || !bytes.Equal(h.Src, dst) || len(h.Token) > 0 {
		t.Errorf("wrong header: %+v", h)
	}
	_, secret := protect.InitialSecrets(uint32(version), dst)
	o, err := protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, secret, uint32(version))
	if err != nil {
		t.Fatal(err)
	}
	_, payload, err := o.Open(b, h.PNOffset, -1)
	if err != nil {
		t.Fatalf("cannot open the answer: %v", err)
	}
	f, n, err := wire.ParseFrame(payload)
	if err != nil || n != len(payload) {
		t.Fatalf("payload %x: %v", payload, err)
	}
	cc, ok := f.(wire.ConnectionClose)
	if !ok || cc.App {
		t.Fatalf("got %v, want CONNECTION_CLOSE", f)
	}
	return TransportErrorCode(cc.Code)
}

// listen starts a listener across from a new peer. Connections are refused by the
// application, so that there are none: then it is CONNECTION_REFUSED that tells
// what reached it.
func listen(t *testing.T, tr *Transport, conf *Config) (*peer, *atomic.Pointer[ClientInfo]) {
	p := newPeer(t, tr)
	asked := new(atomic.Pointer[ClientInfo])
	if conf == nil {
		conf = &Config{}
	}
	conf.GetConfigForClient = func(info *ClientInfo) (*Config, error) {
		asked.Store(info)
		return nil, errors.New("no")
	}
	if _, err := tr.Listen(&tls.Config{}, conf); err != nil {
		t.Fatal(err)
	}
	return p, asked
}

var (
	testDst = []byte("server's first ID")
	testSrc = []byte("client")
)

func TestServerNegotiatesVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, asked := listen(t, new(Transport), &Config{Versions: []Version{Version2}})
		greased := map[uint32]bool{}
		for _, version := range []Version{Version1, 0xff00001d, 0x1a2a3a4a, 0xbabababa} {
			for _, n := range []int{0, 8, 20, 21, 255} { // RFC 8999: later versions may have longer IDs
				dst, src := bytes.Repeat([]byte{7}, n), bytes.Repeat([]byte{9}, n)
				b := append(wire.AppendLong(nil, wire.Initial, uint32(version), dst, src, nil, 1000, 0, 1), make([]byte, 1200)...)[:1200]
				p.send(b)
				gotDst, gotSrc, versions, err := wire.ParseVersionNegotiation(p.receiveNow())
				if n > 20 && version == Version1 {
					// Of a version that we know (if not here), but no ID of its.
					if err == nil {
						t.Errorf("an ID of %d bytes in version 1 is answered", n)
					}
					continue
				}
				if err != nil {
					t.Fatalf("version %v, IDs of %d bytes: no Version Negotiation", version, n)
				}
				if !bytes.Equal(gotDst, src) || !bytes.Equal(gotSrc, dst) {
					t.Errorf("IDs %q and %q", gotDst, gotSrc)
				}
				if !slices.Contains(versions, uint32(Version2)) || slices.Contains(versions, uint32(version)) {
					t.Errorf("a client of %v is offered %x", version, versions)
				}
				for _, v := range versions {
					greased[v] = greased[v] || v&0x0f0f0f0f == 0x0a0a0a0a
				}
				if len(versions) != 2 {
					t.Errorf("offer %x", versions)
				}
			}
		}
		if asked.Load() != nil {
			t.Error("the application was asked")
		}
		n := 0
		for _, reserved := range greased {
			if reserved {
				n++
			}
		}
		if n < 2 {
			t.Errorf("always the same reserved version: %v", greased)
		}
	})
}

func TestServerNegotiatesVersionsSparingly(t *testing.T) {
	foreign := func(n int) []byte {
		return append(wire.AppendLong(nil, wire.Initial, 0xff00001d, testDst, testSrc, nil, 1000, 0, 1), make([]byte, 2000)...)[:n]
	}
	synctest.Test(t, func(t *testing.T) {
		p, _ := listen(t, new(Transport), nil)
		for _, n := range []int{7, 60, 1199} {
			p.send(foreign(n))
			if got := p.receiveNow(); got != nil {
				t.Errorf("%d bytes are answered with %x", n, got)
			}
		}
		p.send(wire.AppendVersionNegotiation(nil, testDst, testSrc, make([]uint32, 400)))
		if got := p.receiveNow(); got != nil {
			t.Errorf("Version Negotiation is answered with %x", got)
		}
		answers := 0
		for range 1000 {
			p.send(foreign(1200))
			if p.receiveNow() != nil {
				answers++
			}
		}
		if answers == 0 || answers > 150 {
			t.Errorf("%d answers to a burst of 1000", answers)
		}
		time.Sleep(time.Second)
		p.send(foreign(1200))
		if p.receiveNow() == nil {
			t.Error("no answer ever after")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, _ := listen(t, &Transport{DisableVersionNegotiationPackets: true}, nil)
		p.send(foreign(1200))
		if got := p.receive(); got != nil {
			t.Errorf("answer %x, although switched off", got)
		}
	})
}

func TestReservedVersion(t *testing.T) {
	for _, random := range []uint32{0, 0x12345678, 0xffffffff} {
		v := reservedVersion(random, 1)
		if v&0x0f0f0f0f != 0x0a0a0a0a || v&0xf0f0f0f0 != random&0xf0f0f0f0 {
			t.Errorf("%#x became %#x", random, v)
		}
		if w := reservedVersion(random, v); w&0x0f0f0f0f != 0x0a0a0a0a || w == v {
			t.Errorf("a client of version %#x is offered %#x", v, w)
		}
	}
}

// The packets that may begin a connection, and those that may not.
func TestServerFirstPackets(t *testing.T) {
	big := clientInitial(t, Version1, testDst, testSrc, nil, 1200)
	handshakePacket := append(wire.AppendLong(nil, wire.Handshake, 1, testDst, testSrc, nil, 1000, 0, 1), make([]byte, 1200)...)[:1200]
	zeroRTT := append(wire.AppendLong(nil, wire.ZeroRTT, 1, testDst, testSrc, nil, 1000, 0, 1), make([]byte, 1200)...)[:1200]
	noFixedBit := bytes.Clone(big)
	noFixedBit[0] &^= 0x40
	tests := []struct {
		name    string
		packet  []byte
		answers bool
	}{
		{"an Initial of 1200 bytes", big, true},
		{"of 1199 bytes", clientInitial(t, Version1, testDst, testSrc, nil, 1199), false},
		{"padded outside of the packet", append(clientInitial(t, Version1, testDst, testSrc, nil, 300), make([]byte, 900)...), true},
		{"of version 2", clientInitial(t, Version2, testDst, testSrc, nil, 1200), true},
		{"an ID of 8 bytes", clientInitial(t, Version1, testDst[:8], testSrc, nil, 1200), true},
		{"an ID of 7 bytes", clientInitial(t, Version1, testDst[:7], testSrc, nil, 1200), false},
		{"an empty ID of the client", clientInitial(t, Version1, testDst, nil, nil, 1200), true},
		{"a token from elsewhere", clientInitial(t, Version1, testDst, testSrc, bytes.Repeat([]byte{1}, 60), 1200), true},
		{"such a token with a short ID", clientInitial(t, Version1, testDst[:4], testSrc, bytes.Repeat([]byte{1}, 60), 1200), false},
		{"Handshake", handshakePacket, false},
		{"0-RTT", zeroRTT, false},
		{"a Retry", append(wire.AppendRetry(nil, 1, testDst, testSrc, make([]byte, 1200)), make([]byte, 16)...), false},
		{"no fixed bit", noFixedBit, false},
		{"cut short", big[:1199], false},
		{"a short header", append([]byte{0x40}, big...), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, asked := listen(t, new(Transport), nil)
				p.send(bytes.Clone(tt.packet))
				got := p.receive()
				if tt.answers != (got != nil) {
					t.Fatalf("answer: %x", got)
				}
				if !tt.answers {
					if asked.Load() != nil {
						t.Error("the application was asked")
					}
					return
				}
				h, _ := wire.ParseLong(tt.packet)
				if code := closeCode(t, got, Version(h.Version), h.Dst, h.Src); code != ConnectionRefused {
					t.Errorf("closed with %v", code)
				}
				if info := asked.Load(); info.AddrVerified || info.RemoteAddr.String() != thereAddr.String() {
					t.Errorf("the application was told %+v", info)
				}
			})
		})
	}
}

func TestServerRetry(t *testing.T) {
	for _, version := range SupportedVersions() {
		synctest.Test(t, func(t *testing.T) {
			verified := 0
			p, asked := listen(t, &Transport{VerifySourceAddress: func(a net.Addr) bool {
				if a.String() != thereAddr.String() {
					t.Errorf("asked for %v", a)
				}
				verified++
				return true
			}}, nil)

			// An unknown client has to come back …
			p.send(clientInitial(t, version, testDst, testSrc, nil, 1200))
			b := p.receive()
			h, err := wire.ParseLong(b)
			if err != nil || h.Type != wire.Retry {
				t.Fatalf("no Retry: %x", b)
			}
			body := b[:len(b)-16]
			if tag := protect.RetryTag(uint32(version), testDst, body); !bytes.Equal(tag[:], b[len(b)-16:]) {
				t.Error("wrong integrity tag")
			}
			if !bytes.Equal(h.Dst, testSrc) || len(h.Src) != 4 || bytes.Equal(h.Src, testDst) {
				t.Errorf("header %+v", h)
			}
			if asked.Load() != nil {
				t.Error("the application was asked for a connection")
			}

			// … and is welcome then, without another question.
			p.send(clientInitial(t, version, h.Src, testSrc, h.Token, 1200))
			if code := closeCode(t, p.receive(), version, h.Src, testSrc); code != ConnectionRefused {
				t.Errorf("closed with %v", code)
			}
			if info := asked.Load(); info == nil || !info.AddrVerified {
				t.Errorf("the application was told %+v", info)
			}
			if verified != 1 {
				t.Errorf("VerifySourceAddress was called %d times", verified)
			}

			// A token is no good with another ID than that of its Retry …
			p.send(clientInitial(t, version, testDst, testSrc, h.Token, 1200))
			if code := closeCode(t, p.receive(), version, testDst, testSrc); code != InvalidToken {
				t.Errorf("another ID: closed with %v", code)
			}
			// … or from another address …
			p.send(clientInitial(t, version, h.Src, testSrc, p.t.tokens.NewRetry(hereAddr, testDst, h.Src), 1200))
			if code := closeCode(t, p.receive(), version, h.Src, testSrc); code != InvalidToken {
				t.Errorf("another address: closed with %v", code)
			}
			// … or after a while.
			time.Sleep(11 * time.Second)
			p.send(clientInitial(t, version, h.Src, testSrc, h.Token, 1200))
			if code := closeCode(t, p.receive(), version, h.Src, testSrc); code != InvalidToken {
				t.Errorf("too late: closed with %v", code)
			}
			// A damaged packet says nothing.
			bad := clientInitial(t, version, h.Src, testSrc, h.Token, 1200)
			bad[len(bad)-1]++
			p.send(bad)
			if got := p.receive(); got != nil {
				t.Errorf("a damaged packet is answered with %x", got)
			}
			if verified != 1 {
				t.Errorf("VerifySourceAddress was called %d times", verified)
			}
		})
	}
}

func TestServerTokens(t *testing.T) {
	key := TokenGeneratorKey{1, 2, 3}
	synctest.Test(t, func(t *testing.T) {
		p, asked := listen(t, &Transport{
			TokenGeneratorKey:   &key,
			MaxTokenAge:         time.Hour,
			VerifySourceAddress: func(net.Addr) bool { return true },
		}, nil)
		retried := func(token []byte) bool {
			t.Helper()
			p.send(clientInitial(t, Version1, testDst, testSrc, token, 1200))
			h, err := wire.ParseLong(p.receive())
			if err != nil {
				t.Fatal(err)
			}
			return h.Type == wire.Retry
		}
		// Any host with the same key may have given it.
		token := handshake.NewTokens(key).NewToken(thereAddr)
		if retried(token) || !asked.Load().AddrVerified {
			t.Error("a good token is not accepted")
		}
		if retried(p.t.newToken(thereAddr)) {
			t.Error("our own token is not accepted")
		}
		if !retried(p.t.newToken(hereAddr)) {
			t.Error("another host's token is accepted")
		}
		if !retried(handshake.NewTokens(TokenGeneratorKey{}).NewToken(thereAddr)) {
			t.Error("a forged token is accepted")
		}
		if !retried([]byte{1}) {
			t.Error("one byte is accepted for a token")
		}
		time.Sleep(time.Hour + time.Second)
		if !retried(token) {
			t.Error("an old token is accepted")
		}
	})
}

// Applications refuse connections in several ways.
func TestServerRefuses(t *testing.T) {
	no := errors.New("no")
	var given context.Context
	tests := []struct {
		name string
		tr   Transport
		conf Config
	}{
		{"GetConfigForClient", Transport{}, Config{GetConfigForClient: func(*ClientInfo) (*Config, error) { return nil, no }}},
		{"a bad config", Transport{}, Config{GetConfigForClient: func(*ClientInfo) (*Config, error) { return &Config{Versions: []Version{7}}, nil }}},
		{"ConnContext", Transport{ConnContext: func(ctx context.Context, _ *ClientInfo) (context.Context, error) {
			given = ctx
			return nil, no
		}}, Config{}},
		{"ConnectionIDGenerator", Transport{ConnectionIDGenerator: fakeIDs{length: 4, err: no}}, Config{}},
	}
	for i := range tests {
		tt := &tests[i]
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, &tt.tr)
				ln, err := tt.tr.Listen(&tls.Config{}, &tt.conf)
				if err != nil {
					t.Fatal(err)
				}
				p.send(clientInitial(t, Version1, testDst, testSrc, nil, 1200))
				if code := closeCode(t, p.receive(), Version1, testDst, testSrc); code != ConnectionRefused {
					t.Errorf("closed with %v", code)
				}
				ln.Close()
				p.send(clientInitial(t, Version1, testDst, testSrc, nil, 1200))
				if got := p.receive(); got != nil {
					t.Errorf("after Close, an answer: %x", got)
				}
			})
		})
	}
	if context.Cause(given) != no {
		t.Errorf("the context of a refused connection ends with %v", context.Cause(given))
	}
}

// An application that takes its time holds up new connections, and nothing else.
func TestSlowCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, new(Transport))
		release := make(chan struct{})
		calls := new(atomic.Int32)
		ln, err := p.t.Listen(&tls.Config{}, &Config{GetConfigForClient: func(*ClientInfo) (*Config, error) {
			calls.Add(1)
			<-release
			return nil, errors.New("no")
		}})
		if err != nil {
			t.Fatal(err)
		}
		p.t.readingNonQUIC.Store(true)
		for i := range 3000 {
			p.send(clientInitial(t, Version1, append([]byte{byte(i), byte(i >> 8)}, testDst...), testSrc, nil, 1200))
			synctest.Wait()
		}
		if n := len(ln.s.in); n != maxServerQueue {
			t.Errorf("%d packets wait, want %d", n, maxServerQueue)
		}
		p.send([]byte("\x00hello"))
		synctest.Wait()
		if len(p.t.nonQUIC) != 1 {
			t.Error("the reader waits for the application")
		}
		// Close does not, either.
		ln.Close()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d callbacks", n)
		}
		close(release)
	})
}

// What waits for the server's goroutine is bounded in memory, however it came in.
func TestServerQueueMemory(t *testing.T) {
	tr := &Transport{}
	s := &server{t: tr, in: make(chan packet, maxServerQueue)}
	small := message(long("cccc", "01"), long("cccc", "02"), long("cccc", "03"))
	s.enqueue(packet{buf: small.Buf, data: small.Data, segment: small.Segment})
	if len(s.in) != 3 || s.queued.Load() != 3*2<<10 {
		t.Errorf("%d packets of %d bytes", len(s.in), s.queued.Load())
	}
	for p := range 3 {
		p := p
		if got := <-s.in; !bytes.HasSuffix(got.data, []byte{'0', '1' + byte(p)}) || got.segment != len(got.data) {
			t.Errorf("packet %d is %q", p, got.data)
		}
	}
	s.queued.Store(0)
	for range 3000 {
		m := message(append(long("cccc", ""), make([]byte, 3000)...))
		s.enqueue(packet{buf: m.Buf, data: m.Data, segment: m.Segment})
	}
	if n := len(s.in); n == 0 || n*64<<10 > maxServerQueueBytes {
		t.Errorf("%d buffers of 64 KiB wait", n)
	}
}

// What a token says is kept as long as the connection, and nothing of the packet with it, which
// may lie in 64 KiB.
func TestTokenKeepsNoPacket(t *testing.T) {
	s := &server{tokens: handshake.NewTokens([32]byte{})}
	id := ConnectionIDFromBytes([]byte("retried"))
	f := &firstPacket{dst: id}
	f.remoteAddr = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	f.header.Dst = id.Bytes()
	f.header.Token = s.tokens.NewRetry(f.addr(), []byte("original"), id.Bytes())
	if v := s.checkToken(f); v != tokenRetry {
		t.Fatalf("the token says %v", v)
	}
	f.dst = ConnectionID{}
	if *f.retrySrc != id {
		t.Error("what is kept is a part of the packet")
	}
}
