package quic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// demuxTest is a demux with connections that it knows, and a record of what it
// hands over.
type demuxTest struct {
	*testing.T
	*demux
	calls []string // "name: data,data;…" one per hand-over
	names map[*Conn]string
	bufs  []*udp.Buffer // that were handed over
}

func newDemuxTest(t *testing.T, idLen int) *demuxTest {
	d := &demuxTest{T: t, names: map[*Conn]string{}}
	tr := &Transport{connIDLen: idLen, ids: map[ConnectionID]*Conn{}, held: map[ConnectionID][]packet{}, byToken: map[[16]byte]*Conn{}}
	tr.resets = newResetKeys(nil)
	tr.nonQUIC = make(chan nonQUICPacket, maxNonQUICPackets)
	d.demux = &demux{t: tr, deliver: func(c *Conn, ps []packet) {
		var what []string
		for _, p := range ps {
			var cut []string
			for b := range slices.Chunk(p.data, p.segment) {
				cut = append(cut, string(b[len(b)-2:]))
			}
			what = append(what, strings.Join(cut, ","))
			d.bufs = append(d.bufs, p.buf)
		}
		d.calls = append(d.calls, d.names[c]+": "+strings.Join(what, ";"))
	}}
	return d
}

// conn registers a connection with these IDs.
func (d *demuxTest) conn(name string, ids ...string) *Conn {
	c := new(Conn)
	d.names[c] = name
	for _, id := range ids {
		if !d.t.addID(ConnectionIDFromBytes([]byte(id)), c) {
			d.Fatalf("cannot add %q", id)
		}
	}
	return c
}

// want compares what was handed over since the last call.
func (d *demuxTest) want(calls ...string) {
	d.Helper()
	if !slices.Equal(d.calls, calls) {
		d.Errorf("hand-overs:\n got %q\nwant %q", d.calls, calls)
	}
	d.calls = nil
}

// short is a packet with a short header that ends in tag.
func short(id, tag string) []byte {
	return []byte("\x40" + id + strings.Repeat(".", 20) + tag)
}

// long is an Initial that ends in tag.
func long(id, tag string) []byte {
	b := []byte{0xc0, 0, 0, 0, 1, byte(len(id))}
	return append(b, id+"\x00\x00\x40\x20"+strings.Repeat(".", 30)+tag...)
}

// message joins datagrams of one size, the last of which may be shorter.
func message(datagrams ...[]byte) udp.Message {
	buf := udp.CopyBuffer(bytes.Join(datagrams, nil))
	return udp.Message{
		Buf: buf, Data: buf.Bytes(), Segment: len(datagrams[0]),
		Remote: netip.MustParseAddrPort("192.0.2.1:4433"), ECN: udp.ECT0,
	}
}

func TestDemuxGroups(t *testing.T) {
	d := newDemuxTest(t, 4)
	d.conn("A", "aaaa", "AAAA", "original destination")
	d.conn("B", "bbbb")

	// One message of one connection: one packet, uncut.
	d.batch([]udp.Message{message(short("aaaa", "01"), short("aaaa", "02"), short("aaaa", "03"))}, time.Now())
	d.want("A: 01,02,03")

	// Two connections that alternate: two hand-overs, order kept.
	d.batch([]udp.Message{
		message(short("aaaa", "01")), message(short("bbbb", "02")),
		message(short("aaaa", "03"), short("aaaa", "04")), message(short("bbbb", "05")),
	}, time.Now())
	d.want("A: 01;03,04", "B: 02;05")

	// Several connections behind one address, in one coalesced message.
	d.batch([]udp.Message{message(short("aaaa", "01"), short("bbbb", "02"), short("bbbb", "03"), short("aaaa", "04"))}, time.Now())
	d.want("A: 01;04", "B: 02,03")

	// Two IDs of one connection are two packets, of one hand-over.
	d.batch([]udp.Message{message(short("aaaa", "01"), short("AAAA", "02"))}, time.Now())
	d.want("A: 01;02")

	// Long headers say how long their ID is; those of one ID stay together with
	// short ones.
	d.batch([]udp.Message{message(long("original destination", "01"))}, time.Now())
	d.want("A: 01")
	l := long("aaaa", "01")
	d.batch([]udp.Message{message(l, append(short("aaaa", ""), bytes.Repeat([]byte("2"), len(l)-len(short("aaaa", "")))...), l[:len(l)-1])}, time.Now())
	d.want("A: 01,22,.0")

	// Unknown, empty-handed and foreign ones are dropped, and do not end a run wrongly.
	d.batch([]udp.Message{
		message(short("aaaa", "01"), short("xxxx", "02"), short("aaaa", "03")),
		message([]byte("\x40aa")), message([]byte("\xc0\x00\x00")), message([]byte{0x80, 0, 0, 0, 1, 255, 1, 2}),
		message([]byte("\x00 a STUN message, for example")),
	}, time.Now())
	d.want("A: 01;03")

	// What one batch has found is not true in the next.
	d.t.removeID(ConnectionIDFromBytes([]byte("aaaa")))
	d.batch([]udp.Message{message(short("aaaa", "01"))}, time.Now())
	d.want()
	d.batch(nil, time.Now())
	d.want()
}

func TestDemuxCarriesEverything(t *testing.T) {
	d := newDemuxTest(t, 4)
	d.conn("A", "aaaa")
	var got packet
	d.deliver = func(_ *Conn, ps []packet) { got = ps[0] }
	m := message(short("aaaa", "01"), short("aaaa", "02"))
	m.Local = udp.Local{Addr: netip.MustParseAddr("192.0.2.9"), IfIndex: 3}
	m.RemoteAddr = &net.UnixAddr{Name: "somewhere"}
	now := time.Now()
	ms := []udp.Message{m}
	d.batch(ms, now)
	if got.buf != m.Buf || !bytes.Equal(got.data, m.Data) || got.segment != m.Segment || got.remote != m.Remote ||
		got.remoteAddr != m.RemoteAddr || got.local != m.Local || got.ecn != m.ECN || !got.at.Equal(now) {
		t.Errorf("got %+v\nof  %+v", got, m)
	}
	if got.addr() != m.RemoteAddr {
		t.Errorf("the address of a plain PacketConn became %v", got.addr())
	}
	if r := got.reply(); r.Remote != m.Remote || r.RemoteAddr != m.RemoteAddr || r.Local != m.Local {
		t.Errorf("the way back is %+v", r)
	}
	if ms[0].Buf != nil {
		t.Error("the message keeps its buffer")
	}
	got.remoteAddr = nil
	if a := got.addr().String(); a != "192.0.2.1:4433" {
		t.Errorf("address %s", a)
	}
}

// However a message is cut, each packet owns one reference of its buffer, and what
// is dropped gives its reference back.
func TestDemuxReferences(t *testing.T) {
	d := newDemuxTest(t, 4)
	d.conn("A", "aaaa")
	d.conn("B", "bbbb")
	panics := func(f func()) (yes bool) {
		defer func() { yes = recover() != nil }()
		f()
		return
	}
	for _, ids := range []string{"a", "ab", "aab", "abab", "axbx", "x", "xx", "xa", "0", "0a0", "a0"} {
		var parts [][]byte
		for _, c := range ids {
			b := short(strings.Repeat(string(c), 4), "..")
			if c == '0' {
				b[0] = 0
			}
			parts = append(parts, b)
		}
		m := message(parts...)
		d.bufs = nil
		d.batch([]udp.Message{m}, time.Now())
		// The buffer goes back to the pool with the last reference, not before.
		for range d.bufs {
			if panics(m.Buf.Retain) {
				t.Fatalf("%q: the buffer was released too early", ids)
			}
			m.Buf.Release()
			m.Buf.Release()
		}
		if !panics(m.Buf.Release) {
			t.Errorf("%q: a reference was kept", ids)
		}
	}
}

func TestDemuxEmptyIDs(t *testing.T) {
	d := newDemuxTest(t, 0)
	d.conn("A", "")
	d.batch([]udp.Message{message(short("", "01"), short("", "02")), message(long("", "03")), message(long("zz", "04"))}, time.Now())
	d.want("A: 01,02;03")
}

// Any cut of any message: what is handed over is what came, per connection, in
// order, and each packet has one ID.
func TestDemuxRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	d := newDemuxTest(t, 4)
	const ids = "abcdefgh"
	for i := 0; i < len(ids); i += 2 { // two IDs each
		d.conn(ids[i:i+1], strings.Repeat(ids[i:i+1], 4), strings.Repeat(ids[i+1:i+2], 4))
	}
	var got map[string][]string
	d.deliver = func(c *Conn, ps []packet) {
		name := d.names[c]
		if got[name] != nil {
			t.Fatal("two hand-overs to one connection in a batch")
		}
		for _, p := range ps {
			var id []byte
			for b := range slices.Chunk(p.data, p.segment) {
				dst, ok := wire.DstConnID(b, 4)
				if !ok || id != nil && !bytes.Equal(id, dst) {
					t.Fatalf("a packet with two IDs: %q", p.data)
				}
				id = dst
				got[name] = append(got[name], string(b))
			}
			p.buf.Release()
		}
	}
	for range 2000 {
		want := map[string][]string{}
		got = map[string][]string{}
		var ms []udp.Message
		for range rnd.IntN(messagesPerRead) {
			var parts [][]byte
			for range 1 + rnd.IntN(12) {
				c := rnd.IntN(len(ids) + 2)
				id, name := "????", ""
				if c < len(ids) {
					id, name = strings.Repeat(ids[c:c+1], 4), ids[c&^1:c&^1+1]
				}
				b := short(id, fmt.Sprint(rnd.IntN(10), rnd.IntN(10)))
				if rnd.IntN(3) == 0 {
					b = slices.Concat([]byte("\x80\x00\x00\x00\x01\x04"), []byte(id), b[:len(b)-10])
				}
				if rnd.IntN(20) == 0 {
					b[0], name = 0, ""
				}
				if name != "" {
					want[name] = append(want[name], string(b))
				}
				parts = append(parts, b)
			}
			ms = append(ms, message(parts...))
		}
		d.batch(ms, time.Now())
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	}
}

// A batch of a busy connection costs no allocation.
func BenchmarkDemux(b *testing.B) {
	tr := &Transport{connIDLen: 4, ids: map[ConnectionID]*Conn{}}
	tr.addID(ConnectionIDFromBytes([]byte("aaaa")), new(Conn))
	d := demux{t: tr, deliver: func(*Conn, []packet) {}}
	var parts [][]byte
	for range 40 {
		parts = append(parts, append(short("aaaa", ""), make([]byte, 1400)...))
	}
	m := message(parts...)
	ms := make([]udp.Message, 4)
	b.ReportAllocs()
	b.SetBytes(int64(len(ms) * len(m.Data)))
	for b.Loop() {
		for i := range ms {
			ms[i] = m
		}
		d.batch(ms, time.Time{})
	}
}

func FuzzDemux(f *testing.F) {
	f.Add(uint16(27), short("aaaa", "01"))
	f.Add(uint16(27), append(short("aaaa", "01"), short("bbbb", "02")...))
	f.Add(uint16(1200), long("original destination", "01"))
	f.Add(uint16(9), []byte{0xc0, 1, 2, 3, 4, 255, 0, 0, 0})
	f.Add(uint16(27), append([]byte("\x00aaaa......................"), short("aaaa", "02")...))
	f.Fuzz(func(t *testing.T, segment uint16, b []byte) {
		if len(b) == 0 || len(b) > 60<<10 {
			return
		}
		d := newDemuxTest(t, 4)
		d.conn("A", "aaaa", "original destination").greases = true
		d.conn("B", "bbbb")
		d.t.readingNonQUIC.Store(segment%2 == 0)
		m := message(b)
		m.Segment = min(max(int(segment), 1), len(b))
		d.batch([]udp.Message{m}, time.Now())
	})
}
