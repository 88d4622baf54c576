package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// segmentWatch looks at what one end hands to the kernel: every slice that the kernel will
// cut is to be one whole packet.
type segmentWatch struct {
	t       *testing.T
	label   string // of the secret, in the key log
	mu      sync.Mutex
	opener  *protect.Opener
	largest int64
	packets int
	bulk    int // calls with a full datagram
	carried int // datagrams in them
	frames  map[string]int
}

// Write takes a line of the key log.
func (w *segmentWatch) Write(line []byte) (int, error) {
	f := bytes.Fields(line)
	if len(f) != 3 || string(f[0]) != w.label {
		return len(line), nil
	}
	secret, err := hex.DecodeString(string(f[2]))
	if err != nil {
		return 0, err
	}
	suite := tls.TLS_AES_128_GCM_SHA256
	if len(secret) != 32 {
		suite = tls.TLS_AES_256_GCM_SHA384
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opener, err = protect.NewOpener(suite, secret, wire.Version1)
	return len(line), err
}

func (w *segmentWatch) send(s udp.Sending) udp.Verdict {
	if wire.IsLong(s.B[0]) {
		return udp.Verdict{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Segment >= 1200 {
		w.bulk++
		w.carried += s.Datagrams()
	}
	for piece := range slices.Chunk(bytes.Clone(s.B), s.Segment) {
		pn, payload, err := w.opener.Open(piece, 1+defaultConnIDLen, w.largest)
		if err != nil {
			w.t.Errorf("of %d datagrams of %d bytes one is no packet: %v", s.Datagrams(), s.Segment, err)
			return udp.Verdict{}
		}
		w.largest = max(w.largest, pn)
		w.packets++
		for len(payload) > 0 {
			f, n, err := wire.ParseFrame(payload)
			if err != nil {
				w.t.Errorf("packet %d: %v", pn, err)
				return udp.Verdict{}
			}
			w.frames[wire.FrameName(frameType(f))]++
			payload = payload[n:]
		}
	}
	return udp.Verdict{}
}

// A08: a bulk stream, many small ones that end in the middle of a datagram, DATAGRAM frames,
// and an upload that has ACKs and credit go between them: whatever a datagram holds, it is
// as long as its flight's others but the last, so that the kernel cuts where packets end;
// and flights stay large.
func TestNetworkSegmentsAreWholePackets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	ctx := interopContext(t)
	st, ct := peerTLS()
	w := &segmentWatch{t: t, label: "SERVER_TRAFFIC_SECRET_0", largest: -1, frames: map[string]int{}}
	st.KeyLogWriter = w
	conf := &Config{EnableDatagrams: true, MaxIncomingUniStreams: 1 << 20}
	server := &Transport{Conn: loopbackSocket(t, "")}
	t.Cleanup(func() { server.Close() })
	l, err := server.Listen(st, conf)
	if err != nil {
		t.Fatal(err)
	}
	udp.Inject(server.udpConn(), &udp.Hook{Send: w.send})
	client := &Transport{Conn: loopbackSocket(t, "")}
	t.Cleanup(func() { client.Close() })
	c, err := client.Dial(ctx, l.Addr(), ct, conf)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}

	const bulk, upload, small = 24 << 20, 4 << 20, 1500
	var sizes [small]int
	for i := range sizes {
		sizes[i] = 7 + rnd.IntN(894)
	}
	failed := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // the bulk, and the small ones
		out, err := s.OpenUniStream()
		if err != nil {
			t.Error(err)
			return
		}
		failed(waysToSend[0].send(out, patternOf(8, 0), bulk))
	})
	wg.Go(func() {
		for i, n := range sizes {
			out, err := s.OpenUniStreamSync(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = out.CloseWith(patternOf(8, uint64(1+i)).bytes(n))
			failed(err)
			if i%10 == 0 {
				failed(s.SendDatagram(make([]byte, rnd.IntN(1000))))
			}
		}
	})
	var got sync.Map
	wg.Go(func() {
		var readers sync.WaitGroup
		for range 1 + small {
			in, err := c.AcceptUniStream(ctx)
			if err != nil {
				t.Error(err)
				break
			}
			readers.Go(func() {
				b, err := io.ReadAll(in)
				failed(err)
				got.Store(string(b[:min(len(b), 7)]), len(b))
				if len(b) == bulk {
					failed(patternOf(8, 0).check(bytes.NewReader(b), bulk))
				}
			})
		}
		readers.Wait()
	})
	wg.Go(func() {
		out, err := c.OpenUniStream()
		if err != nil {
			t.Error(err)
			return
		}
		failed(waysToSend[0].send(out, patternOf(9, 0), upload))
	})
	wg.Go(func() {
		in, err := s.AcceptUniStream(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		failed(patternOf(9, 0).check(in, upload))
	})
	datagrams, stop := context.WithCancel(ctx)
	go func() {
		for {
			if _, err := c.ReceiveDatagram(datagrams); err != nil {
				return
			}
		}
	}()
	wg.Wait()
	stop()
	udp.Inject(server.udpConn(), nil)
	for i, n := range sizes {
		if m, _ := got.Load(string(patternOf(8, uint64(1+i)).bytes(7))); m != n {
			t.Errorf("stream %d has %v bytes, want %d", i, m, n)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d packets, %d calls with full ones, %v", w.packets, w.bulk, w.frames)
	if w.packets < bulk/defaultMaxPacketSize {
		t.Errorf("%d packets were seen", w.packets)
	}
	for _, f := range []uint64{wire.FrameAck, wire.FrameMaxData, wire.FrameDatagram, wire.FrameStream} {
		if w.frames[wire.FrameName(f)] == 0 {
			t.Errorf("no %s was among them", wire.FrameName(f))
		}
	}
	if server.udpConn().CanGSO() && w.carried < 5*w.bulk {
		t.Errorf("%d calls carried %d datagrams", w.bulk, w.carried)
	}
}
