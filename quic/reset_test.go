package quic

import (
	"bytes"
	"crypto/rand"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
)

func TestStatelessResetTokens(t *testing.T) {
	key := &StatelessResetKey{1, 2, 3}
	id, other := ConnectionIDFromBytes([]byte("abcd")), ConnectionIDFromBytes([]byte("abce"))
	tok := newResetKeys(key).token(id)
	if tok != newResetKeys(key).token(id) {
		t.Error("the same key gives another token after a restart")
	}
	if tok == newResetKeys(key).token(other) || tok == newResetKeys(&StatelessResetKey{1}).token(id) {
		t.Error("another ID, or another key, gives the same token")
	}
	if a, b := newResetKeys(nil), newResetKeys(nil); a.token(id) == b.token(id) {
		t.Error("without a key, tokens can be foretold")
	}
}

// A token is made, or comes and is hidden, with every connection ID, and they change all the
// time while data moves.
func TestStatelessResetTokenAllocates(t *testing.T) {
	keys, id := newResetKeys(nil), ConnectionIDFromBytes([]byte("abcd"))
	keys.token(id) // makes what is kept
	if n := testing.AllocsPerRun(100, func() {
		tok := keys.token(id)
		keys.hide(tok[:])
	}); n > 0 {
		t.Errorf("%v allocations for a token", n)
	}
}

func TestStatelessResetIsRecognized(t *testing.T) {
	d := newDemuxTest(t, 4)
	c := new(Conn)
	tok := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	d.t.addResetToken(tok, c)
	for stored := range d.t.byToken {
		if stored == tok {
			t.Error("the token is stored as it is: the time of a look-up gives it away")
		}
	}

	packet := append(short("xxxx", ""), tok[:]...)
	if got := d.t.findByToken(packet); got != c {
		t.Error("a packet that ends in the token is not recognized")
	}
	if got := d.t.findByToken(append([]byte{0xff}, packet...)); got != c {
		t.Error("nor in a packet with a long header")
	}
	if d.t.findByToken(tok[:]) != nil || d.t.findByToken(packet[len(packet)-20:]) != nil {
		t.Error("what is too short for a packet resets a connection")
	}
	packet[len(packet)-1]++
	if d.t.findByToken(packet) != nil {
		t.Error("another token resets the connection")
	}
	packet[len(packet)-1]--
	d.t.removeResetToken(tok)
	if d.t.findByToken(packet) != nil {
		t.Error("a token that was removed resets the connection")
	}
}

func TestStatelessResetIsSent(t *testing.T) {
	key := &StatelessResetKey{42}
	run := func(key *StatelessResetKey, f func(t *testing.T, p *peer)) func(*testing.T) {
		return func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, &Transport{StatelessResetKey: key})
				p.t.init(false)
				f(t, p)
			})
		}
	}
	t.Run("for an unknown connection", run(key, func(t *testing.T, p *peer) {
		tok := newResetKeys(key).token(ConnectionIDFromBytes([]byte("abcd")))
		seen := map[string]bool{}
		for _, n := range []int{22, 23, 41, 42, 43, 44, 100, 1200} {
			b := make([]byte, n)
			rand.Read(b)
			copy(b, "\x40abcd")
			p.send(b)
			got := p.receive()
			switch {
			case got == nil:
				t.Errorf("no answer to %d bytes", n)
			case len(got) >= n || len(got) < 21 || n > 43 && len(got) < 41:
				t.Errorf("%d bytes in answer to %d", len(got), n)
			case got[0]&0xc0 != 0x40:
				t.Errorf("not a short header: %#x", got[0])
			case !bytes.Equal(got[len(got)-16:], tok[:]):
				t.Errorf("no token for %d bytes", n)
			case seen[string(got[:5])]:
				t.Error("the beginning is not random")
			default:
				seen[string(got[:5])] = true
			}
		}
	}))
	t.Run("not for what could be one", run(key, func(t *testing.T, p *peer) {
		p.send(make([]byte, 21))
		p.send(append([]byte("\x40abcd"), make([]byte, 16)...))
		p.send(append([]byte("\x40"), make([]byte, 3)...))
		if got := p.receive(); got != nil {
			t.Errorf("answer %x", got)
		}
	}))
	t.Run("not for a long header", run(key, func(t *testing.T, p *peer) {
		p.send(clientInitial(t, Version1, []byte("a server of old"), []byte("me"), nil, 1200))
		if got := p.receive(); got != nil {
			t.Errorf("answer %x", got)
		}
	}))
	t.Run("not without a key", run(nil, func(t *testing.T, p *peer) {
		p.send(append([]byte("\x40abcd"), make([]byte, 1000)...))
		if got := p.receive(); got != nil {
			t.Errorf("answer %x", got)
		}
	}))
	t.Run("not for ever so many", run(key, func(t *testing.T, p *peer) {
		count := func() (n int) {
			for range 1000 {
				p.send(append([]byte("\x40abcd"), make([]byte, 1000)...))
				if p.receiveNow() != nil {
					n++
				}
			}
			return n
		}
		if n := count(); n == 0 || n > 150 {
			t.Errorf("%d answers to a burst of 1000", n)
		}
		time.Sleep(time.Second)
		if n := count(); n == 0 || n > 150 {
			t.Errorf("%d answers to the next burst", n)
		}
	}))
}

// Two hosts without state, each with a key, tell each other to stop: they must.
func TestStatelessResetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := &simnet.PerfectRouter{}
		var trs []*Transport
		var socks []*simnet.SimConn
		for i := range 2 {
			s := simnet.NewSimConn(&net.UDPAddr{IP: net.IP{10, 0, 0, byte(i)}, Port: 443}, router)
			tr := &Transport{Conn: s, StatelessResetKey: &StatelessResetKey{byte(i)}}
			if err := tr.init(false); err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			trs, socks = append(trs, tr), append(socks, s)
		}
		trs[0].WriteTo(append([]byte("\x40abcd"), make([]byte, 1000)...), socks[1].LocalAddr())
		synctest.Wait()
		sent := socks[0].Stats().PacketsSent + socks[1].Stats().PacketsSent
		if sent < 3 || sent > 25 {
			t.Errorf("%d packets were sent", sent)
		}
	})
}
