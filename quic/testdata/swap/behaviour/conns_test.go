package behaviour

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// all says what every call on a connection returns that is over.
func (w *world) all(c *quic.Conn) {
	ctx := w.Context()
	_, err := c.OpenStream()
	w.say("OpenStream: %v", err)
	_, err = c.OpenUniStream()
	w.say("OpenUniStream: %v", err)
	_, err = c.OpenStreamSync(ctx)
	w.say("OpenStreamSync: %v", err)
	_, err = c.OpenUniStreamSync(ctx)
	w.say("OpenUniStreamSync: %v", err)
	_, err = c.AcceptStream(ctx)
	w.say("AcceptStream: %v", err)
	_, err = c.AcceptUniStream(ctx)
	w.say("AcceptUniStream: %v", err)
	w.say("SendDatagram: %v", c.SendDatagram([]byte("x")))
	_, err = c.ReceiveDatagram(ctx)
	w.say("ReceiveDatagram: %v", err)
	w.say("context: %v, %v", c.Context().Err(), context.Cause(c.Context()))
	w.say("CloseWithError: %v, cause still %v", c.CloseWithError(99, "too late"), context.Cause(c.Context()))
}

func withDatagrams() *quic.Config { return &quic.Config{EnableDatagrams: true} }

// dialTo lets a server answer a dial that it need not like.
func (w *world) dialTo(serverTLS, clientTLS *tls.Config, serverConf, clientConf *quic.Config) {
	l, err := w.server.Listen(serverTLS, serverConf)
	w.must(err)
	start := time.Now()
	_, err = w.client.Dial(w.Context(), serverAddr, clientTLS, clientConf)
	w.say("Dial: %v after %v", err, time.Since(start).Round(time.Second))
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	_, err = l.Accept(ctx)
	w.say("Accept: %v", err)
}

var _ = add(
	row{"CloseWithError here", func(w *world) {
		client, server := w.conns(withDatagrams(), withDatagrams())
		s, r := w.uni(server, client)
		w.say("%v", client.CloseWithError(42, "that's it"))
		w.all(client)
		_, err := r.Read(make([]byte, 1))
		w.say("Read: %v", err)
		settle()
		_, err = s.Write([]byte("x"))
		w.say("the peer's Write: %v", err)
		w.say("the peer's Close: %v", s.Close())
	}},
	row{"CloseWithError there", func(w *world) {
		client, server := w.conns(withDatagrams(), withDatagrams())
		server.CloseWithError(42, "that's it")
		settle()
		w.all(client)
	}},
	row{"CloseWithError while calls wait", func(w *world) {
		client, server := w.conns(&quic.Config{MaxIncomingStreams: -1, EnableDatagrams: true}, withDatagrams())
		s, _ := w.uni(client, server)
		_, r := w.uni(client, server)
		_, r2 := w.uni(client, server)
		said := make(chan string, 10)
		wait := func(what string, call func() error) {
			go func() { said <- fmt.Sprintf("%s: %s", what, tell(call())) }()
			settle()
		}
		ctx := w.Context()
		wait("OpenStreamSync", func() error { _, err := client.OpenStreamSync(ctx); return err })
		wait("AcceptStream", func() error { _, err := client.AcceptStream(ctx); return err })
		wait("ReceiveDatagram", func() error { _, err := client.ReceiveDatagram(ctx); return err })
		wait("the peer's Read", func() error { _, err := r.Read(make([]byte, 1)); return err })
		wait("the peer's Peek", func() error { _, err := r2.Peek(make([]byte, 1)); return err })
		wait("Write", func() error { _, err := s.Write(make([]byte, 10<<20)); return err })
		client.CloseWithError(42, "")
		lines := map[string]bool{}
		for range 6 {
			lines[<-said] = true
		}
		w.say("%v", lines)
	}},
	row{"CloseWithError with bytes unsent", func(w *world) {
		client, server := w.conns(narrow(), nil)
		s, r := w.uni(client, server)
		time.AfterFunc(time.Second, func() { client.CloseWithError(1, "") })
		n, err := s.Write(make([]byte, 1<<20))
		w.say("Write: %v, %v", n > 0 && n < 1<<20, err)
		settle()
		_, err = io.ReadAll(r)
		w.say("the peer reads: %v", err)
	}},
	row{"idle timeout", func(w *world) {
		client, _ := w.conns(withDatagrams(), withDatagrams())
		settle()
		start := time.Now()
		w.router.cutPath()
		<-client.Context().Done()
		w.say("after %v", (time.Since(start) + settleTime).Round(time.Second))
		w.all(client)
	}},
	row{"keep alive", func(w *world) {
		client, _ := w.conns(nil, &quic.Config{KeepAlivePeriod: 10 * time.Second})
		time.Sleep(10 * time.Minute)
		w.say("%v", client.Context().Err())
	}},
	row{"Transport.Close", func(w *world) {
		client, server := w.conns(withDatagrams(), withDatagrams())
		w.say("%v, again %v", w.client.Close(), w.client.Close())
		w.all(client)
		_, err := w.client.Dial(w.Context(), serverAddr, clientTLS(), nil)
		w.say("Dial: %v", err)
		_, err = w.client.Listen(serverTLS(), nil)
		w.say("Listen: %v", err)
		settle()
		w.say("the peer: %v", server.Context().Err())
		server.CloseWithError(0, "")
	}},
	row{"Listen", func(w *world) {
		_, err := w.server.Listen(nil, nil)
		w.say("without a tls.Config: %v", err)
		_, err = w.server.Listen(serverTLS(), &quic.Config{Versions: []quic.Version{0x1234}})
		w.say("with a version that there is not: %v", err)
		_, err = w.client.Dial(w.Context(), serverAddr, clientTLS(), &quic.Config{Versions: []quic.Version{0x1234}})
		w.say("Dial with a version that there is not: %v", err)
	}},
	row{"Listen twice", func(w *world) {
		l, err := w.server.Listen(serverTLS(), nil)
		w.must(err)
		_, err = w.server.Listen(serverTLS(), nil)
		w.say("fails: %v", err != nil)
		l.Close()
		_, err = w.server.Listen(serverTLS(), nil)
		w.say("after Close of the first: %v", err)
	}},
	row{"Listener.Close", func(w *world) {
		l, err := w.server.Listen(serverTLS(), nil)
		w.must(err)
		dial := func() *quic.Conn {
			c, err := w.client.Dial(w.Context(), serverAddr, clientTLS(), nil)
			w.must(err)
			return c
		}
		client := dial()
		accepted, err := l.Accept(w.Context())
		w.must(err)
		waiting := dial()
		settle()
		var got error
		done := make(chan struct{})
		w.say("%v, again %v", l.Close(), l.Close())
		settle()
		w.say("accepted: %v, %v", client.Context().Err(), accepted.Context().Err())
		w.say("not accepted: %v", waiting.Context().Err())
		c, err := l.Accept(w.Context())
		w.say("Accept: a connection %v, %v", c != nil, err)
		go func() {
			defer close(done)
			_, got = l.Accept(w.Context())
		}()
		<-done
		w.say("Accept again: %v", got)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err = w.client.Dial(ctx, serverAddr, clientTLS(), nil)
		w.say("Dial: %v", err)
	}},
	row{"Accept with a context", func(w *world) {
		l, err := w.server.Listen(serverTLS(), nil)
		w.must(err)
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("my cause")) })
		_, err = l.Accept(ctx)
		w.say("%v", err)
		time.AfterFunc(time.Second, func() { l.Close() })
		_, err = l.Accept(w.Context())
		w.say("Close while it waits: %v", err)
	}},
	row{"nobody there", func(w *world) {
		start := time.Now()
		_, err := w.client.Dial(w.Context(), serverAddr, clientTLS(), nil)
		w.say("%v after %v", err, time.Since(start).Round(time.Second))
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("my cause")) })
		_, err = w.client.Dial(ctx, serverAddr, clientTLS(), nil)
		w.say("cancelled: %v", err)
		_, err = w.client.Dial(ctx, serverAddr, clientTLS(), nil)
		w.say("cancelled before: %v", err)
		ctx, cancel2 := context.WithTimeout(w.Context(), time.Second)
		defer cancel2()
		_, err = w.client.Dial(ctx, serverAddr, clientTLS(), nil)
		w.say("timeout: %v", err)
	}},
	row{"no protocol in common", func(w *world) {
		c := clientTLS()
		c.NextProtos = []string{"another"}
		w.dialTo(serverTLS(), c, nil, nil)
	}},
	row{"certificate of nobody", func(w *world) {
		c := clientTLS()
		c.InsecureSkipVerify, c.ServerName = false, "localhost"
		w.dialTo(serverTLS(), c, nil, nil)
	}},
	row{"client without a certificate", func(w *world) {
		s := serverTLS().Clone()
		s.ClientAuth = tls.RequireAnyClientCert
		w.dialTo(s, clientTLS(), nil, nil)
	}},
	row{"GetConfigForClient refuses", func(w *world) {
		w.dialTo(serverTLS(), clientTLS(), &quic.Config{
			GetConfigForClient: func(*quic.ClientInfo) (*quic.Config, error) { return nil, errors.New("no") },
		}, nil)
	}},
	row{"no version in common", func(w *world) {
		_, err := w.server.Listen(serverTLS(), &quic.Config{Versions: []quic.Version{quic.Version1}})
		w.must(err)
		_, err = w.client.Dial(w.Context(), serverAddr, clientTLS(), &quic.Config{Versions: []quic.Version{quic.Version2}})
		var e *quic.VersionNegotiationError
		w.say("%v", errors.As(err, &e))
		w.say("ours %v, theirs has v1 %v", e.Ours, slices.Contains(e.Theirs, quic.Version1))
	}},
	row{"OpenStream at the limit", func(w *world) {
		client, server := w.conns(&quic.Config{MaxIncomingStreams: 2, MaxIncomingUniStreams: -1}, nil)
		for i := range 3 {
			_, err := client.OpenStream()
			w.say("%d: %v", i, err)
		}
		_, err := client.OpenUniStream()
		_, isPointer := err.(*quic.StreamLimitReachedError)
		w.say("none: %v, a pointer %v", err, isPointer)
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("my cause")) })
		_, err = client.OpenStreamSync(ctx)
		w.say("OpenStreamSync, cancelled: %v", err)
		_, err = client.OpenStreamSync(ctx)
		w.say("OpenStreamSync, cancelled before: %v", err)
		short, cancel2 := context.WithTimeout(w.Context(), time.Second)
		defer cancel2()
		_, err = client.OpenUniStreamSync(short)
		w.say("OpenUniStreamSync, timeout: %v", err)
		_, err = server.OpenStreamSync(ctx)
		w.say("OpenStreamSync below the limit, cancelled before: %v", err)
		client.CloseWithError(0, "")
		_, err = client.OpenStreamSync(ctx)
		w.say("connection closed, and cancelled before: %v", err)
	}},
	row{"a stream that ends makes room", func(w *world) {
		client, server := w.conns(&quic.Config{MaxIncomingStreams: 1}, nil)
		s, err := client.OpenStream()
		w.must(err)
		s.Close()
		s.CancelRead(0)
		settle()
		_, err = client.OpenStream()
		w.say("before it is accepted: %v", err)
		peer, err := server.AcceptStream(w.Context())
		w.must(err)
		_, err = io.ReadAll(peer)
		w.say("the peer reads %v", err)
		settle()
		_, err = client.OpenStream()
		w.say("before the peer closes it: %v", err)
		peer.Close()
		settle()
		_, err = client.OpenStream()
		w.say("after: %v", err)
	}},
	row{"AcceptStream with a context", func(w *world) {
		client, server := w.conns(nil, nil)
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("my cause")) })
		_, err := server.AcceptStream(ctx)
		w.say("%v", err)
		s, err := client.OpenStream()
		w.must(err)
		s.Write([]byte("x"))
		settle()
		got, err := server.AcceptStream(ctx)
		w.say("with one there: %v, %v", got != nil, err)
	}},
	row{"AcceptStream when the connection is over and one is there", func(w *world) {
		client, server := w.conns(nil, nil)
		s, err := client.OpenStream()
		w.must(err)
		s.Write([]byte("x"))
		settle()
		client.CloseWithError(3, "")
		settle()
		got, err := server.AcceptStream(w.Context())
		w.say("%v, %v", got != nil, err)
	}},
	row{"RequireStreamCreditRelease", func(w *world) {
		client, server := w.conns(&quic.Config{MaxIncomingUniStreams: 1, RequireStreamCreditRelease: true}, nil)
		w.say("in the state: %v", server.ConnectionState().RequireStreamCreditRelease)
		s, r := w.uni(client, server)
		s.Close()
		_, err := io.ReadAll(r)
		w.must(err)
		settle()
		_, err = client.OpenUniStream()
		w.say("before it is released: %v", err)
		r.ReleaseStreamCredit()
		settle()
		_, err = client.OpenUniStream()
		w.say("after: %v", err)
	}},
	row{"AllowConnectionWindowIncrease", func(w *world) {
		var asked atomic.Pointer[quic.Conn]
		client, server := w.conns(&quic.Config{
			InitialConnectionReceiveWindow: window,
			AllowConnectionWindowIncrease: func(c *quic.Conn, delta uint64) bool {
				asked.Store(c)
				return false
			},
		}, nil)
		s, r := w.uni(client, server)
		go s.Write(make([]byte, 1<<20))
		_, err := io.ReadFull(r, make([]byte, 1<<20))
		w.must(err)
		settle()
		w.say("asked for the server's connection: %v", asked.Load() == server)
		noBuffer(s)
		s.SetWriteDeadline(time.Now().Add(2 * time.Second))
		n, _ := s.Write(make([]byte, 1<<20))
		w.say("the window has not grown: %v", n <= window)
	}},
	row{"RESET_STREAM_AT", func(w *world) {
		conf := &quic.Config{EnableStreamResetPartialDelivery: true}
		client, server := w.conns(conf, conf)
		st := client.ConnectionState().SupportsStreamResetPartialDelivery
		w.say("local %v, remote %v", st.Local, st.Remote)
		s, r := w.uni(client, server)
		s.Write([]byte("reliable"))
		s.SetReliableBoundary()
		s.Write([]byte("not"))
		s.CancelWrite(5)
		settle()
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
	}},
	row{"SetReliableBoundary with a peer that has no RESET_STREAM_AT", func(w *world) {
		s, r := w.streams(nil)
		s.Write([]byte("reliable"))
		s.SetReliableBoundary()
		settle()
		s.CancelWrite(5)
		settle()
		b, err := io.ReadAll(r)
		w.say("%q, %v", b, err)
	}},
	row{"NextConnection without 0-RTT", func(w *world) {
		client, server := w.conns(nil, nil)
		for _, c := range []*quic.Conn{client, server} {
			next, err := c.NextConnection(w.Context())
			w.say("the same %v, %v", next == c, err)
		}
	}},
	row{"default limits", func(w *world) {
		client, server := w.conns(nil, nil)
		n := 0
		for ; ; n++ {
			if _, err := client.OpenStream(); err != nil {
				break
			}
		}
		w.say("%d streams", n)
		for n = 0; ; n++ {
			if _, err := client.OpenUniStream(); err != nil {
				break
			}
		}
		w.say("%d unidirectional streams", n)
		// The other way the streams are still free: what is taken before anybody reads?
		took := func() int {
			s, err := server.OpenUniStream()
			w.must(err)
			noBuffer(s)
			s.SetWriteDeadline(time.Now().Add(2 * time.Second))
			n, _ := s.Write(make([]byte, 10<<20))
			return n
		}
		w.say("%d bytes on a stream, %d on the next", took(), took())
	}},
	row{"datagrams", func(w *world) {
		client, server := w.conns(withDatagrams(), withDatagrams())
		st := client.ConnectionState().SupportsDatagrams
		w.say("local %v, remote %v", st.Local, st.Remote)
		w.must(client.SendDatagram([]byte("one")))
		w.must(client.SendDatagram(nil))
		w.must(client.SendDatagram([]byte("three")))
		for range 3 {
			b, err := server.ReceiveDatagram(w.Context())
			w.say("%q, %v", b, err)
		}
		w.say("too large: %v", client.SendDatagram(make([]byte, 5000)))
		ctx, cancel := context.WithCancelCause(w.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("my cause")) })
		_, err := server.ReceiveDatagram(ctx)
		w.say("ReceiveDatagram, cancelled: %v", err)
		w.must(client.SendDatagram([]byte("four")))
		settle()
		_, err = server.ReceiveDatagram(ctx)
		w.say("ReceiveDatagram, cancelled before, with one there: %v", err)
	}},
	row{"datagrams nobody receives", func(w *world) {
		client, server := w.conns(withDatagrams(), withDatagrams())
		for range 1000 {
			w.must(client.SendDatagram([]byte("x")))
			time.Sleep(time.Millisecond)
		}
		settle()
		client.CloseWithError(0, "")
		settle()
		n := 0
		for ; ; n++ {
			if _, err := server.ReceiveDatagram(w.Context()); err != nil {
				w.say("%v", err)
				break
			}
		}
		w.say("%d of 1000 are kept", n)
	}},
	row{"datagrams that are not enabled", func(w *world) {
		client, server := w.conns(nil, withDatagrams())
		st := client.ConnectionState().SupportsDatagrams
		w.say("local %v, remote %v", st.Local, st.Remote)
		w.say("there: %v", client.SendDatagram([]byte("x")))
		w.say("here: %v", server.SendDatagram([]byte("x")))
		_, err := server.ReceiveDatagram(w.Context())
		w.say("here: %v", err)
	}},
	row{"the largest datagram", func(w *world) {
		client, _ := w.conns(withDatagrams(), withDatagrams())
		var e *quic.DatagramTooLargeError
		err := client.SendDatagram(make([]byte, 5000))
		w.say("%v", errors.As(err, &e))
		w.say("%d", e.MaxDatagramPayloadSize)
	}},
	row{"contexts carry the application's values", func(w *world) {
		type key struct{}
		w.server.ConnContext = func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
			return context.WithValue(ctx, key{}, info.RemoteAddr), nil
		}
		l, err := w.server.Listen(serverTLS(), nil)
		w.must(err)
		client, err := w.client.Dial(context.WithValue(w.Context(), key{}, "dial"), serverAddr, clientTLS(), nil)
		w.must(err)
		server, err := l.Accept(w.Context())
		w.must(err)
		for _, c := range []*quic.Conn{client, server} {
			s, err := c.OpenUniStream()
			w.must(err)
			w.say("%v, the stream's %v", c.Context().Value(key{}), s.Context().Value(key{}))
		}
	}},
	row{"ConnContext refuses", func(w *world) {
		w.server.ConnContext = func(context.Context, *quic.ClientInfo) (context.Context, error) { return nil, errors.New("no") }
		w.dialTo(serverTLS(), clientTLS(), nil, nil)
	}},
	row{"connection state before the handshake is over", func(w *world) {
		l, err := w.server.ListenEarly(serverTLS(), nil)
		w.must(err)
		go w.client.Dial(w.Context(), serverAddr, clientTLS(), nil)
		server, err := l.Accept(w.Context())
		w.must(err)
		tell := func() {
			st := server.ConnectionState()
			w.say("complete %v, %q, %v, cipher suite known %v", st.TLS.HandshakeComplete, st.TLS.NegotiatedProtocol, st.Version, st.TLS.CipherSuite != 0)
		}
		tell()
		<-server.HandshakeComplete()
		tell()
	}},
	row{"connection state", func(w *world) {
		client, server := w.conns(nil, nil)
		settle()
		for _, c := range []*quic.Conn{client, server} {
			st := c.ConnectionState()
			w.say("%s, %v, 0-RTT %v, complete %v, %v, %v", st.TLS.NegotiatedProtocol, st.Version, st.Used0RTT,
				st.TLS.HandshakeComplete, c.LocalAddr(), c.RemoteAddr())
		}
	}},
)

const settleTime = time.Second
