package quic

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/udp"
)

// These tests run over real sockets, as segmentation and coalescing are the kernel's.

// realPairs connects n clients, each from a socket of its own, to one server.
func realPairs(t *testing.T, n int, clientConf, serverConf *Config) (server *Transport, clients, accepted []*Conn) {
	t.Helper()
	ctx := interopContext(t)
	st, ct := peerTLS()
	server = &Transport{Conn: loopbackSocket(t, "")}
	t.Cleanup(func() { server.Close() })
	l, err := server.Listen(st, serverConf)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		tr := &Transport{Conn: loopbackSocket(t, "")}
		t.Cleanup(func() { tr.Close() })
		c, err := tr.Dial(ctx, l.Addr(), ct, clientConf)
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		clients, accepted = append(clients, c), append(accepted, s)
	}
	return server, clients, accepted
}

// carry sends size bytes over a new stream.
func carry(t *testing.T, ctx context.Context, from, to *Conn, p pattern, size int64) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		s, err := from.OpenUniStreamSync(ctx)
		if err == nil {
			err = sendPattern(volleyStream{s, nil}, p, size, emit.Tuning{})
		}
		sent <- err
	}()
	in, err := to.AcceptUniStream(ctx)
	if err != nil {
		t.Errorf("accepting: %v", err)
		return
	}
	if err := p.check(in, size); err != nil {
		t.Errorf("receiving: %v", err)
	}
	if err := <-sent; err != nil {
		t.Errorf("sending: %v", err)
	}
}

// noOffload is a kernel whose network card does not do what the kernel promised: EIO for
// segmented sends to some peers from the n-th on. It wants the same bytes one by one
// right after, and nothing segmented to that peer ever again.
type noOffload struct {
	t     *testing.T
	mu    sync.Mutex
	from  int
	fails func(netip.AddrPort) bool
	peers map[netip.AddrPort]*noOffloadPeer
}

type noOffloadPeer struct {
	segmented int
	failed    bool
	want      []byte // the rest of the refused call
	size      int
}

func (k *noOffload) send(s udp.Sending) udp.Verdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.peers[s.Remote]
	if p == nil {
		p = &noOffloadPeer{}
		k.peers[s.Remote] = p
	}
	if len(p.want) > 0 {
		if n := min(p.size, len(p.want)); s.Datagrams() != 1 || !bytes.Equal(s.B, p.want[:n]) {
			k.t.Errorf("after EIO %d datagrams leave that are not the next of those refused", s.Datagrams())
			p.want = nil
		} else {
			p.want = p.want[n:]
		}
		return udp.Verdict{}
	}
	if s.Datagrams() == 1 {
		return udp.Verdict{}
	}
	if p.failed {
		k.t.Error("a segmented send to a peer where they fail")
	}
	if p.segmented++; p.segmented < k.from || !k.fails(s.Remote) {
		return udp.Verdict{}
	}
	p.failed = true
	p.want, p.size = append([]byte(nil), s.B...), s.Segment
	return udp.Verdict{Err: syscall.EIO}
}

// A07: EIO for a segmented send is not the application's affair, nor is it a loss: the
// same datagrams leave one by one, and there are no more segmented sends to that peer.
// Other peers of the same socket keep theirs.
func TestNetworkSegmentationFails(t *testing.T) {
	for _, from := range []int{1, 50} {
		for _, peers := range []int{1, 2} {
			server, clients, accepted := realPairs(t, peers, nil, nil)
			if !server.udpConn().CanGSO() {
				t.Log("nothing to test: this system has no segmentation")
				return
			}
			first := clients[0].LocalAddr().(*net.UDPAddr).AddrPort()
			k := &noOffload{t: t, from: from, peers: map[netip.AddrPort]*noOffloadPeer{},
				fails: func(to netip.AddrPort) bool { return to.Port() == first.Port() }}
			udp.Inject(server.udpConn(), &udp.Hook{Send: k.send})
			ctx := interopContext(t)
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() { carry(t, ctx, accepted[i], clients[i], patternOf(70, uint64(i)), 16<<20) })
			}
			wg.Wait()
			udp.Inject(server.udpConn(), nil)
			k.mu.Lock() // an ACK may be on its way to it
			for to, p := range k.peers {
				if failing := to.Port() == first.Port(); p.failed != failing {
					t.Errorf("EIO: %v, want %v", p.failed, failing)
				} else if !failing && p.segmented < 60 {
					t.Errorf("only %d segmented sends to the other peer", p.segmented)
				}
				if len(p.want) > 0 {
					t.Errorf("%d bytes of the refused call never left", len(p.want))
				}
			}
			k.mu.Unlock()
			if a, b := accepted[0].ConnectionState().GSO, accepted[peers-1].ConnectionState().GSO; a || b != (peers > 1) {
				t.Errorf("segmentation is on: %v and %v", a, b)
			}
		}
	}
}

// A15: trains that the kernel joins, of small and large datagrams with a short last one,
// and from two peers that take turns, are taken apart as they were sent: nothing is lost
// in a socket whose buffer has room for all that may be in flight.
func TestNetworkCoalescedReads(t *testing.T) {
	for _, size := range []uint16{1200, 1452, 9000, 16376, 65507} {
		conf := &Config{InitialPacketSize: 1200, MaxPacketSize: size,
			InitialStreamReceiveWindow: 64 << 10, MaxStreamReceiveWindow: 64 << 10,
			InitialConnectionReceiveWindow: 64 << 10, MaxConnectionReceiveWindow: 64 << 10}
		server, clients, accepted := realPairs(t, 2, conf, conf)
		ctx := interopContext(t)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { carry(t, ctx, clients[i], accepted[i], patternOf(71, uint64(i)), 8<<20) })
		}
		wg.Wait()
		for _, c := range clients {
			c.mu.Lock()
			stats := c.rec.Stats()
			c.mu.Unlock()
			// Sizes that are too large for the path are found out by loss; and on a busy
			// machine an ACK may come so late that a few packets count as lost until then.
			if n := stats.PacketsLost - min(stats.PacketsSpurious, stats.PacketsLost); n > 20 && size < 60_000 {
				t.Errorf("of packets of %d bytes, %d are lost", size, n)
			}
		}
		if stats := server.udpConn().Stats(); stats.Truncated > 0 {
			t.Errorf("of packets of %d bytes, %d messages were cut", size, stats.Truncated)
		} else if runtime.GOOS == "linux" && size < 60_000 && stats.CoalescedReads == 0 {
			t.Errorf("packets of %d bytes were never joined", size)
		}
	}
}

// quic-go#3840: a byte that nobody reads keeps its own memory, and not that of the train
// that it came in.
func TestNetworkUnreadByteKeepsLittle(t *testing.T) {
	const n = 500
	conf := &Config{MaxIncomingUniStreams: 2 * n}
	_, clients, accepted := realPairs(t, 1, conf, conf)
	c, s := clients[0], accepted[0]
	ctx := interopContext(t)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what pools let go of
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	carry(t, ctx, c, s, patternOf(72, 0), 1<<20)
	before := heap()
	for i := range n {
		// Written at once, the byte goes along with a flight that is read.
		bulk, err := c.OpenUniStreamSync(ctx)
		if err != nil {
			t.Fatal(err)
		}
		small, err := c.OpenUniStreamSync(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p := patternOf(72, uint64(i))
		const size = 40_000
		go func() {
			bulk.Write(p.bytes(size)[:size/2])
			small.Write([]byte{1})
			bulk.CloseWith(p.bytes(size)[size/2:])
		}()
		in, err := s.AcceptUniStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.AcceptUniStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if in.StreamID() > other.StreamID() {
			in = other
		}
		if err := p.check(in, size); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > n*12<<10 {
		t.Errorf("%d unread bytes keep %d bytes", n, grown)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(c)
}
