package behaviour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/testutils/simnet"
)

// trace is a qlog trace that notes the names of events.
type trace struct {
	mu     sync.Mutex
	names  map[string]bool
	events []qlogwriter.Event
	open   int
}

func (t *trace) AddProducer() qlogwriter.Recorder {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
	return t
}

func (t *trace) RecordEvent(e qlogwriter.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[e.Name()] = true
	t.events = append(t.events, e)
}

func (t *trace) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	return nil
}

func (*trace) SupportsSchemas(string) bool { return true }

// generator makes connection IDs of 7 bytes that begin with 'G'.
type generator struct {
	mu sync.Mutex
	n  byte
}

func (g *generator) ConnectionIDLen() int { return 7 }

func (g *generator) GenerateConnectionID() (quic.ConnectionID, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	return quic.ConnectionIDFromBytes([]byte{'G', 'G', 'G', 'G', 'G', 'G', g.n}), nil
}

var _ = add(
	row{"Tracer", func(w *world) {
		traces := map[bool]*trace{}
		var ids []quic.ConnectionID
		var mu sync.Mutex
		conf := &quic.Config{Tracer: func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
			mu.Lock()
			defer mu.Unlock()
			t := &trace{names: map[string]bool{}}
			traces[isClient] = t
			ids = append(ids, id)
			return t
		}}
		client, server := w.conns(conf, conf)
		s, r := w.uni(client, server)
		s.Close()
		io.ReadAll(r)
		w.say("the connection's trace: %v, %v", client.QlogTrace() == traces[true], server.QlogTrace() == traces[false])
		w.say("the same connection ID: %v", len(ids) == 2 && ids[0] == ids[1])
		client.CloseWithError(0, "")
		settle()
		for _, isClient := range []bool{true, false} {
			t := traces[isClient]
			t.mu.Lock()
			for _, name := range []string{
				qlog.PacketSent{}.Name(), qlog.PacketReceived{}.Name(), qlog.ConnectionClosed{}.Name(), qlog.ParametersSet{}.Name(),
				qlog.StartedConnection{}.Name(), qlog.MetricsUpdated{}.Name(),
			} {
				w.say("client %v, %s: %v", isClient, name, t.names[name])
			}
			w.say("closed: %v", t.open == 0)
			t.mu.Unlock()
		}
	}},
	row{"ConnectionIDGenerator", func(w *world) {
		g := &generator{}
		w.server.ConnectionIDGenerator = g
		client, server := w.conns(nil, nil)
		w.uni(client, server)
		settle()
		g.mu.Lock()
		w.say("used: %v", g.n > 1)
		g.mu.Unlock()
	}},
	row{"ConnectionIDLength", func(w *world) {
		w.server.ConnectionIDLength, w.client.ConnectionIDLength = 18, 5
		client, server := w.conns(nil, nil)
		w.uni(client, server)
	}},
	row{"VerifySourceAddress", func(w *world) {
		w.server.VerifySourceAddress = func(net.Addr) bool { return true }
		var infos []quic.ClientInfo
		store := quic.NewLRUTokenStore(1, 10)
		client, _ := w.conns(&quic.Config{GetConfigForClient: func(info *quic.ClientInfo) (*quic.Config, error) {
			infos = append(infos, *info)
			return nil, nil
		}}, &quic.Config{TokenStore: store})
		settle()
		w.say("%v, %v", infos[0].AddrVerified, infos[0].RemoteAddr)
		client.CloseWithError(0, "")
		w.server.VerifySourceAddress = nil
	}},
	row{"a token from the connection before", func(w *world) {
		var infos []quic.ClientInfo
		store := quic.NewLRUTokenStore(1, 10)
		conf := &quic.Config{TokenStore: store}
		l, err := w.server.Listen(serverTLS(), &quic.Config{GetConfigForClient: func(info *quic.ClientInfo) (*quic.Config, error) {
			infos = append(infos, *info)
			return nil, nil
		}})
		w.must(err)
		for range 2 {
			client, err := w.client.Dial(w.Context(), serverAddr, clientTLS(), conf)
			w.must(err)
			_, err = l.Accept(w.Context())
			w.must(err)
			settle()
			client.CloseWithError(0, "")
			settle()
		}
		w.say("the first %v, the second %v", infos[0].AddrVerified, infos[1].AddrVerified)
		w.say("nothing under another name: %v", store.Pop("another") == nil)
	}},
	row{"packets that are not QUIC", func(w *world) {
		client, server := w.conns(nil, nil)
		_, err := w.client.WriteTo([]byte{0, 1, 2, 3}, serverAddr)
		w.must(err)
		// From the first call on, packets are kept.
		got := make(chan string)
		go func() {
			b := make([]byte, 100)
			n, from, err := w.server.ReadNonQUICPacket(w.Context(), b)
			got <- fmt.Sprintf("%v from %v, %v", b[:n], from, err)
		}()
		settle()
		w.client.WriteTo([]byte{0, 1, 2, 3, 4}, serverAddr)
		w.say("%s", <-got)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, _, err = w.server.ReadNonQUICPacket(ctx, nil)
		w.say("timeout: %v", err)
		w.uni(client, server)
	}},
	row{"ReadNonQUICPacket after Close", func(w *world) {
		w.conns(nil, nil)
		w.server.Close()
		_, _, err := w.server.ReadNonQUICPacket(w.Context(), make([]byte, 10))
		w.say("%v", err)
	}},
	row{"Accept's queue", func(w *world) {
		l, err := w.server.Listen(serverTLS(), nil)
		w.must(err)
		refused := 0
		for range 140 {
			c, err := w.client.Dial(w.Context(), serverAddr, clientTLS(), nil)
			if err == nil {
				settle()
				err = context.Cause(c.Context())
			}
			var e *quic.TransportError
			if errors.As(err, &e) && e.ErrorCode == quic.ConnectionRefused && e.Remote {
				refused++
			}
			time.Sleep(10 * time.Millisecond)
			if c != nil && c.Context().Err() != nil {
				continue
			}
		}
		w.say("%d of 140 refused", refused)
		n := 0
		for {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			c, err := l.Accept(ctx)
			cancel()
			if err != nil {
				break
			}
			n++
			c.CloseWithError(0, "")
		}
		w.say("%d accepted", n)
	}},
	row{"datagrams that wait to be sent", func(w *world) {
		client, _ := w.conns(withDatagrams(), withDatagrams())
		settle()
		w.router.cutPath()
		sent := 0
		go func() {
			for client.SendDatagram(make([]byte, 1000)) == nil {
				sent++
			}
		}()
		settle()
		w.say("SendDatagram waits before 200: %v", sent < 200)
		client.CloseWithError(0, "")
	}},
	row{"paths", func(w *world) {
		client, server := w.conns(nil, nil)
		s, r := w.uni(client, server)
		settle()
		_, err := server.AddPath(w.server)
		w.say("a server's AddPath: %v", err)
		newAddr := &net.UDPAddr{IP: net.IPv4(1, 0, 0, 3), Port: 3333}
		tr := &quic.Transport{Conn: simnet.NewSimConn(newAddr, w.router)}
		w.cleanup = append(w.cleanup, func() { tr.Close() })
		p, err := client.AddPath(tr)
		w.must(err)
		w.say("Switch before Probe: %v", p.Switch())
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		w.say("Probe: %v", p.Probe(ctx))
		w.say("Probe again: %v", p.Probe(ctx))
		w.say("Switch: %v", p.Switch())
		s.Write([]byte("there"))
		b := make([]byte, 5)
		_, err = io.ReadFull(r, b)
		w.say("%s, %v", b, err)
		settle()
		w.say("the server sees %v, the client is at %v", server.RemoteAddr(), client.LocalAddr())
		w.say("Close of the active path fails: %v", p.Close() != nil)

		other := &quic.Transport{Conn: simnet.NewSimConn(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 4), Port: 4444}, w.router)}
		w.cleanup = append(w.cleanup, func() { other.Close() })
		q, err := client.AddPath(other)
		w.must(err)
		w.say("Close of another: %v, again %v", q.Close(), q.Close())
		w.say("Switch: %v", q.Switch())
		w.say("Probe: %v", q.Probe(ctx))
		client.CloseWithError(0, "")
	}},
	row{"a path to nowhere", func(w *world) {
		client, server := w.conns(nil, nil)
		w.uni(client, server)
		settle()
		tr := &quic.Transport{Conn: simnet.NewSimConn(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 3), Port: 3333}, &simnet.PerfectRouter{})}
		w.cleanup = append(w.cleanup, func() { tr.Close() })
		p, err := client.AddPath(tr)
		w.must(err)
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("my cause")) })
		w.say("Probe: %v", p.Probe(ctx))
		w.say("Switch: %v", p.Switch())
		w.say("Close: %v", p.Close())
		client.CloseWithError(0, "")
	}},
	row{"NAT rebinding", func(w *world) {
		client, server := w.conns(nil, nil)
		s, r := w.uni(client, server)
		settle()
		w.router.rename(clientAddr, &net.UDPAddr{IP: clientAddr.IP, Port: 1234})
		s.Write([]byte("there"))
		b := make([]byte, 5)
		_, err := io.ReadFull(r, b)
		settle()
		w.say("%s, %v, from %v", b, err, server.RemoteAddr())
	}},
	row{"statistics", func(w *world) {
		client, server := w.conns(nil, nil)
		s, r := w.uni(client, server)
		go s.Write(make([]byte, 100_000))
		io.ReadFull(r, make([]byte, 100_000))
		settle()
		st := client.ConnectionStats()
		w.say("RTT %v %v %v", st.MinRTT.Round(time.Millisecond), st.SmoothedRTT.Round(5*time.Millisecond), st.LatestRTT >= st.MinRTT)
		w.say("sent more than the stream: %v, received less: %v, lost none: %v", st.BytesSent > 100_000, st.BytesReceived < 50_000, st.PacketsLost == 0 && st.BytesLost == 0)
		w.say("packets: %v", st.PacketsSent > 60 && st.PacketsSent < 200 && st.PacketsReceived > 5)
		w.say("window: %v", st.CongestionWindow > 10_000)
	}},
	row{"SupportedVersions", func(w *world) {
		w.say("%v", quic.SupportedVersions())
		conf := &quic.Config{Versions: []quic.Version{quic.Version2}}
		client, _ := w.conns(nil, conf)
		w.say("%v", client.ConnectionState().Version)
		slices.Reverse(quic.SupportedVersions()) // a copy
		w.say("%v", quic.SupportedVersions()[0])
	}},
)
