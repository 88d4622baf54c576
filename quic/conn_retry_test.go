package quic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// What comes without keys of the handshake: Retry, Version Negotiation, stateless reset.

// retryPacket makes a Retry. The client is to go on with connection ID src.
func (p *actor) retryPacket(src, token string) []byte {
	p.Helper()
	b := wire.AppendRetry(nil, p.version, p.dcid, []byte(src), []byte(token))
	tag := protect.RetryTag(p.version, p.origDst, b)
	return append(b, tag[:]...)
}

// retry makes a Volley client begin again.
func (p *actor) retry(src, token string) {
	p.Helper()
	p.retryWith(src, p.retryPacket(src, token))
}

// retryWith is retry with a packet that the script has made.
func (p *actor) retryWith(src string, retry []byte) {
	p.Helper()
	p.collect()
	p.params.RetrySrc = []byte(src)
	p.tls.Close()
	p.tls = nil
	p.out, p.in = [3]cryptoOut{}, [3]tape{}
	p.inDone = [3]int{}
	p.queue = nil
	p.setInitialKeys([]byte(src))
	p.deliver(retry, "Retry")
}

// A client follows a Retry: with the token, to the connection ID, with keys made of
// it, and with packet numbers that go on (RFC 9000 §17.2.5).
func TestFollowRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.retry("retry.id", "token")
		d := p.wantDatagram("the ClientHello again")
		pkt := d.packets[0]
		if string(pkt.dst) != "retry.id" || string(pkt.token) != "token" || pkt.pn == 0 || d.size < 1200 {
			t.Errorf("%v to %q with token %q", d, pkt.dst, pkt.token)
		}
		if f, ok := pkt.frames[0].(wire.Crypto); !ok || f.Off != 0 {
			t.Errorf("%v", d)
		}
		p.advanceToSend()
		for _, pkt := range p.packets[1:] {
			if string(pkt.token) != "token" {
				t.Errorf("Initial %d has token %q", pkt.pn, pkt.token)
			}
		}
		p.handshake()
	})
}

// A token for which no Initial has room leads nowhere, in peace.
func TestRetryWithHugeToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		before := rounds(p.c)
		p.deliver(p.retryPacket("retry.id", strings.Repeat("t", 1270)), "Retry")
		p.queue = nil
		if _, err := p.dialing.result(); !errors.Is(err, &IdleTimeoutError{}) {
			t.Errorf("Dial returned %v", err)
		}
		if n := rounds(p.c) - before; n > 100 {
			t.Errorf("the connection's goroutine ran %d times", n)
		}
	})
}

// RFC 9000 §17.2.5.2: one Retry is followed, and only at the very beginning.
func TestIgnoreRetry(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(p *actor)
		change func(p *actor, b []byte) []byte
	}{
		{"second Retry", func(p *actor) { p.retry("retry.id", "token") }, func(p *actor, _ []byte) []byte {
			return p.retryPacket("id.other", "two")
		}},
		{"after an Initial", func(p *actor) { p.writeFrames(wire.Initial, wire.Ping{}) }, nil},
		{"bad tag", nil, func(p *actor, b []byte) []byte {
			b[len(b)-1] ^= 1
			return b
		}},
		{"changed token", nil, func(p *actor, b []byte) []byte {
			b[len(b)-17] ^= 1
			return b
		}},
		{"no token", nil, func(p *actor, b []byte) []byte { return p.retryPacket("id.other", "") }},
		{"the same connection ID", nil, func(p *actor, b []byte) []byte { return p.retryPacket(string(p.origDst), "token") }},
		{"for somebody else", nil, func(p *actor, _ []byte) []byte {
			b := wire.AppendRetry(nil, p.version, []byte("who?"), []byte("id.other"), []byte("token"))
			tag := protect.RetryTag(p.version, p.origDst, b)
			return append(b, tag[:]...)
		}},
		{"of another version", nil, func(p *actor, _ []byte) []byte {
			b := wire.AppendRetry(nil, wire.Version2, p.dcid, []byte("id.other"), []byte("token"))
			tag := protect.RetryTag(wire.Version2, p.origDst, b)
			return append(b, tag[:]...)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newActor(t, asClient)
				p.start()
				if tt.before != nil {
					tt.before(p)
				}
				p.collect()
				p.queue = nil
				b := p.retryPacket("id.other", "token")
				if tt.change != nil {
					b = tt.change(p, b)
				}
				p.deliver(b, "Retry")
				p.wantIdle("this Retry is not followed")
				if p.tls == nil {
					p.advanceToSend()
				}
				p.handshake()
			})
		})
	}
	t.Run("by a server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer).handshake()
			p.deliver(p.retryPacket("id.other", "token"), "Retry")
			p.wantIdle("servers get no Retry")
			p.wantAlive("servers get no Retry")
		})
	})
}

// RFC 9000 §7.3: after a Retry its connection ID is authenticated as well.
func TestRetryIsAuthenticated(t *testing.T) {
	for name, id := range map[string][]byte{"another": []byte("else"), "none": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newActor(t, asClient)
				p.start()
				p.rawTP = func([]byte) []byte {
					tp := p.params
					tp.RetrySrc = id
					return tp.Append(nil)
				}
				p.retry("retry.id", "token")
				p.writeCrypto(wire.Initial)
				p.writeCrypto(wire.Handshake)
				p.wantClosed("retry_source_connection_id", wire.TransportParameterError)
			})
		})
	}
}

// A server that asks for a Retry knows the address afterwards: a long chain comes at
// once.
func TestRetryByScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer, longChain(10), func(tr *Transport) {
			tr.VerifySourceAddress = func(net.Addr) bool { return true }
		})
		p.start()
		hello := p.cryptoFrame(wire.Initial)
		p.writeFrames(wire.Initial, hello)
		f := wantA[retryFrame](p, "the address is to be proved", wire.Retry)
		pkt := p.packets[len(p.packets)-1]
		p.token = f.token
		p.dcid = pkt.src
		p.setInitialKeys(pkt.src)
		p.writeFrames(wire.Initial, hello)
		p.collect()
		p.mustTLS()
		if p.theirs == nil {
			p.handshake()
		}
		if string(p.theirs.RetrySrc) != string(pkt.src) || string(p.theirs.OriginalDst) != string(p.origDst) {
			t.Errorf("the server's parameters: %+v", p.theirs)
		}
		p.handshake()
	})
}

func (p *actor) versionNegotiation(dst, src []byte, versions ...uint32) {
	p.Helper()
	p.deliver(wire.AppendVersionNegotiation(nil, dst, src, versions), fmt.Sprintf("versions %x", versions))
}

// again makes the actor the server of a client that begins again.
func (p *actor) again() {
	p.tls.Close()
	p.tls, p.origDst, p.theirs, p.c = nil, nil, nil, nil
	p.params.OriginalDst = nil
	p.out, p.in = [3]cryptoOut{}, [3]tape{}
	p.inDone = [3]int{}
	p.largest[recovery.Initial] = -1
	p.got = [3]spans{}
	p.queue = nil
}

// A client that is told of other versions begins again with one of them (RFC 9000 §6.2).
func TestFollowVersionNegotiation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		dst, src := p.dcid, p.origDst
		p.again()
		p.versionNegotiation(dst, src, 0x1a2a3a4a, wire.Version2)
		d := p.wantDatagram("the ClientHello in version 2")
		if p.version != wire.Version2 {
			t.Fatalf("version %x", p.version)
		}
		// Packet numbers go on, whatever is sealed with the keys of another version.
		if d.packets[0].pn == 0 {
			t.Errorf("%v", d)
		}
		// A second one would let an attacker move the client on to where it wants.
		p.versionNegotiation(p.dcid, p.origDst, wire.Version1)
		p.wantIdle("one Version Negotiation packet is enough")
		p.handshake()
		if v := p.c.ConnectionState().Version; v != Version2 {
			t.Errorf("version %v", v)
		}
	})
}

func TestNoCommonVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asClient)
		p.start()
		p.queue = nil
		p.versionNegotiation(p.dcid, p.origDst, 0x1a2a3a4a, 0xff00001d)
		_, err := p.dialing.result()
		var vn *VersionNegotiationError
		if !errors.As(err, &vn) || !slices.Equal(vn.Theirs, []Version{0x1a2a3a4a, 0xff00001d}) || len(vn.Ours) != 2 {
			t.Errorf("Dial returned %v", err)
		}
		p.wantIdle("there is nobody to talk to")
	})
}

// RFC 9000 §6.2: what looks forged, or comes too late, is ignored.
func TestIgnoreVersionNegotiation(t *testing.T) {
	for _, tt := range []struct {
		name     string
		before   func(p *actor)
		dst, src string
		versions []uint32
	}{
		{name: "the version in use is listed", versions: []uint32{wire.Version2, wire.Version1}},
		{name: "after an Initial", versions: []uint32{wire.Version2}, before: func(p *actor) { p.writeFrames(wire.Initial, wire.Ping{}) }},
		{name: "after a Retry", versions: []uint32{wire.Version2}, before: func(p *actor) {
			p.retry("retry.id", "token")
			p.collect()
		}},
		{name: "for somebody else", versions: []uint32{wire.Version2}, dst: "else"},
		{name: "from somebody else", versions: []uint32{wire.Version2}, src: "else"},
		{name: "no versions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newActor(t, asClient)
				p.start()
				if tt.before != nil {
					tt.before(p)
				}
				p.collect()
				p.queue = nil
				dst, src := p.dcid, p.origDst
				if tt.dst != "" {
					dst = []byte(tt.dst)
				}
				if tt.src != "" {
					src = []byte(tt.src)
				}
				p.versionNegotiation(dst, src, tt.versions...)
				p.wantIdle("ignored")
				p.handshake()
			})
		})
	}
	t.Run("by a server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asServer).handshake()
			p.versionNegotiation(p.dcid, p.scid, wire.Version2)
			p.wantIdle("ignored")
			p.wantAlive("ignored")
		})
	})
	t.Run("when connected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient).handshake()
			p.versionNegotiation(p.dcid, p.origDst, wire.Version2)
			p.wantAlive("ignored")
		})
	})
}

// A server lists its versions, and answers only what is large enough (RFC 9000 §6.1).
func TestSendVersionNegotiation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newActor(t, asServer)
		p.start()
		hello := make([]byte, 1200)
		hello[0] = 0xc0
		binary.BigEndian.PutUint32(hello[1:], 0x1a2a3a4a)
		copy(hello[5:], "\x08to.whom.\x05me...")
		p.deliver(slices.Clone(hello[:1199]), "unknown version, short")
		p.wantIdle("too short to begin a connection")
		p.deliver(hello, "unknown version")
		f := wantA[versionsFrame](p, "what it speaks", wire.VersionNegotiation)
		for _, v := range []uint32{wire.Version1, wire.Version2} {
			if !slices.Contains(f.versions, v) {
				t.Errorf("%v", f)
			}
		}
		pkt := p.packets[len(p.packets)-1]
		if string(pkt.dst) != "me..." || string(pkt.src) != "to.whom." {
			t.Errorf("from %q to %q", pkt.src, pkt.dst)
		}
	})
}

// reset is a stateless reset with the given token.
func (p *actor) reset(token [16]byte, n int) {
	p.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) * 7
	}
	b[0] = 0x40 | b[0]&0x3f
	copy(b[1:], p.dcid)
	copy(b[n-16:], token[:])
	p.deliver(b, fmt.Sprintf("reset %x", token))
}

var aToken = [16]byte{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 121, 98, 219}

// RFC 9000 §10.3.1: a peer that has forgotten the connection says so with its token.
func TestStatelessReset(t *testing.T) {
	wantReset := func(p *actor) {
		p.Helper()
		p.collect()
		if err := p.cause(); !errors.Is(err, &StatelessResetError{}) {
			p.Fatalf("want a stateless reset, got %v", err)
		}
		p.wantIdle("nothing is sent any more")
	}
	t.Run("as client, token of the handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, func(tp *wire.TransportParams) { tp.StatelessResetToken = &aToken }).handshake()
			p.reset(aToken, 21)
			wantReset(p)
		})
	})
	t.Run("to a connection ID that nobody has", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, func(tp *wire.TransportParams) { tp.StatelessResetToken = &aToken }).handshake()
			p.dcid = []byte("none")
			p.reset(aToken, 42)
			wantReset(p)
		})
	})
	t.Run("token of a connection ID that came later", func(t *testing.T) {
		eachRole(t, func(t *testing.T, volley role) {
			p := newActor(t, volley).handshake()
			p.writeFrames(wire.OneRTT, wire.NewConnectionID{Seq: 1, RetirePriorTo: 1, ID: []byte("id.1"), ResetToken: aToken})
			p.settle()
			p.reset(aToken, 42)
			wantReset(p)
		})
	})
	t.Run("it drains", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newActor(t, asClient, func(tp *wire.TransportParams) { tp.StatelessResetToken = &aToken },
				func(tr *Transport) { tr.StatelessResetKey = &StatelessResetKey{1} }).handshake()
			p.reset(aToken, 42)
			wantReset(p)
			p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Padding{N: 100})
			p.wantIdle("nor is what still arrives answered with a reset")
			p.advance(time.Minute)
			p.wantIdle("the end")
		})
	})
	for _, tt := range []struct {
		name string
		try  func(p *actor)
	}{
		{"another token", func(p *actor) {
			token := aToken
			token[15] ^= 1
			p.reset(token, 42)
		}},
		{"too short", func(p *actor) { p.reset(aToken, 20) }},
		{"token of a connection ID that is not in use", func(p *actor) {
			token := [16]byte{5}
			p.writeFrames(wire.OneRTT, wire.NewConnectionID{Seq: 1, ID: []byte("id.1"), ResetToken: token})
			p.reset(token, 42)
		}},
		{"token of a connection ID that is retired", func(p *actor) {
			p.writeFrames(wire.OneRTT, wire.NewConnectionID{Seq: 1, RetirePriorTo: 1, ID: []byte("id.1"), ResetToken: [16]byte{5}})
			p.settle()
			p.reset(aToken, 42)
		}},
		{"the token amid a packet that is authentic", func(p *actor) {
			// It is the last 16 bytes of the payload, before the tag.
			p.writeFrames(wire.OneRTT, wire.Ping{}, wire.Stream{ID: p.mine(uni, 0), Data: aToken[:]})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newActor(t, asClient, func(tp *wire.TransportParams) { tp.StatelessResetToken = &aToken }).handshake()
				tt.try(p)
				p.advance(time.Second)
				p.wantAlive("this is no reset")
			})
		})
	}
}

// A host that has forgotten a connection resets it, with the token that it gave out,
// if it has a key to know it by (RFC 9000 §10.3.2).
func TestForgottenConnection(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley, func(tr *Transport) { tr.StatelessResetKey = &StatelessResetKey{1} })
		p.start()
		var id wire.NewConnectionID
		p.handshake()
		for _, pkt := range p.packets {
			for _, f := range pkt.frames {
				if f, ok := f.(wire.NewConnectionID); ok {
					id = f
				}
			}
		}
		p.advance(5 * time.Minute) // the connection times out
		if p.cause() == nil {
			t.Fatal("the connection lives on")
		}
		p.queue = nil
		s := p.packet(wire.OneRTT, wire.Ping{}, wire.Padding{N: 100})
		s.dst = id.ID
		p.send(s)
		f := wantA[garbageFrame](p, "a stateless reset", wire.OneRTT)
		if string(f.b[len(f.b)-16:]) != string(id.ResetToken[:]) {
			t.Errorf("it ends in %x, want %x", f.b, id.ResetToken)
		}
		if context.Cause(p.c.Context()) == nil {
			t.Error("the connection lives")
		}
	})
}
