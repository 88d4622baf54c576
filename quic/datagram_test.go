package quic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// Messages arrive as they were sent, in order on a path that keeps it, beside a stream
// whose bytes get on as well.
func TestDatagrams(t *testing.T) {
	client, server := pair(t, &Config{EnableDatagrams: true})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s := client.ConnectionState().SupportsDatagrams; !s.Local || !s.Remote {
		t.Fatalf("SupportsDatagrams: %+v", s)
	}
	s, err := server.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		s.Write(make([]byte, 4<<20))
		s.Close()
	}()
	// No more are under way than the receiver keeps: beyond, they are dropped.
	window := make(chan struct{}, maxDatagramsIn/2)
	go func() {
		for i := range 1000 {
			select {
			case window <- struct{}{}:
			case <-ctx.Done():
				return
			}
			if err := server.SendDatagram(fmt.Appendf(nil, "message %d", i)); err != nil {
				return // the test is over
			}
		}
	}()
	type result struct {
		n   int64
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := client.AcceptUniStream(ctx)
		if err != nil {
			done <- result{0, err}
			return
		}
		n, err := io.Copy(io.Discard, r)
		done <- result{n, err}
	}()
	last := -1
	for last < 900 { // the last ones may be lost, and so may others
		b, err := client.ReceiveDatagram(ctx)
		if err != nil {
			t.Fatalf("after message %d: %v", last, err)
		}
		var i int
		if _, err := fmt.Sscanf(string(b), "message %d", &i); err != nil || i <= last {
			t.Fatalf("message %q after number %d", b, last)
		}
		for ; last < i; last++ {
			<-window
		}
	}
	if r := <-done; r.n != 4<<20 || r.err != nil {
		t.Errorf("%d bytes of the stream arrived, %v", r.n, r.err)
	}
}

func TestDatagramLimits(t *testing.T) {
	client, server := pair(t, &Config{EnableDatagrams: true, DisablePathMTUDiscovery: true})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var large *DatagramTooLargeError
	if err := client.SendDatagram(make([]byte, 1400)); !errors.As(err, &large) {
		t.Fatalf("1400 bytes in packets of 1280: %v", err)
	}
	most := bytes.Repeat([]byte{7}, int(large.MaxDatagramPayloadSize))
	if err := client.SendDatagram(most); err != nil {
		t.Fatalf("%d bytes, which were said to fit: %v", len(most), err)
	}
	if b, err := server.ReceiveDatagram(ctx); err != nil || !bytes.Equal(b, most) {
		t.Fatalf("received %d bytes, %v", len(b), err)
	}
	if err := client.SendDatagram(nil); err != nil {
		t.Fatal(err)
	}
	if b, err := server.ReceiveDatagram(ctx); err != nil || len(b) != 0 {
		t.Fatalf("an empty message: received %d bytes, %v", len(b), err)
	}
	client.CloseWithError(3, "")
	if err := client.SendDatagram([]byte("x")); !errors.Is(err, &ApplicationError{ErrorCode: 3}) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := server.ReceiveDatagram(ctx); !errors.Is(err, &ApplicationError{ErrorCode: 3, Remote: true}) {
		t.Errorf("after the end: %v", err)
	}

	client, _ = pair(t, nil)
	if err := client.SendDatagram([]byte("x")); err == nil {
		t.Error("a message left although datagrams are not enabled")
	}
	if _, err := client.ReceiveDatagram(ctx); err == nil {
		t.Error("ReceiveDatagram succeeded although datagrams are not enabled")
	}
}

func TestDatagramsWithQuicGo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	st, ct := testTLS(t)
	ln, err := ListenAddr("127.0.0.1:0", st, &Config{EnableDatagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := quicgo.DialAddr(ctx, ln.Addr().String(), ct, &quicgo.Config{EnableDatagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithError(0, "")
	s, err := ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []string{"one", "", "three"} {
		if err := c.SendDatagram([]byte(msg)); err != nil {
			t.Fatal(err)
		}
		b, err := s.ReceiveDatagram(ctx)
		if err != nil || string(b) != msg {
			t.Fatalf("%q arrived as %q, %v", msg, b, err)
		}
		if err := s.SendDatagram(b); err != nil {
			t.Fatal(err)
		}
		if b, err := c.ReceiveDatagram(ctx); err != nil || string(b) != msg {
			t.Fatalf("%q came back as %q, %v", msg, b, err)
		}
	}
}

// The limiter sees every byte once, whatever happens to packets, and its word counts.
func TestWriteWithLimit(t *testing.T) {
	client, server := pair(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := client.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	p := bytes.Repeat([]byte("0123456789"), 30000)
	left := 100_000
	n, err := s.WriteWithLimit(p, func(most int) int {
		client.ConnectionStats() // no lock is held
		k := min(most, left)
		left -= k
		return k
	})
	if n != 100_000 || err != ErrWriteLimitReached {
		t.Fatalf("WriteWithLimit = %d, %v; want 100000, ErrWriteLimitReached", n, err)
	}
	if m, err := s.WriteWithLimit(p[n:], func(most int) int { return most + 5 }); m != len(p)-n || err != nil {
		t.Fatalf("the rest: %d, %v", m, err)
	}
	if m, err := s.WriteWithLimit(p[:1], func(int) int { return -1 }); m != 0 || err != ErrWriteLimitReached {
		t.Fatalf("a negative grant: %d, %v", m, err)
	}
	s.Close()
	r, err := server.AcceptUniStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, p) {
		t.Fatalf("%d bytes arrived, %v", len(b), err)
	}
}

// With RequireStreamCreditRelease a peer gets a stream back only when the application
// says so.
func TestStreamCreditRelease(t *testing.T) {
	client, server := pair(t, &Config{MaxIncomingStreams: 1, RequireStreamCreditRelease: true})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !server.ConnectionState().RequireStreamCreditRelease {
		t.Error("ConnectionState does not tell")
	}
	s, err := client.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	r, err := server.AcceptStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	io.ReadAll(r)
	r.Close()
	if _, err := io.ReadAll(s); err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := client.OpenStreamSync(short); err == nil {
		t.Fatal("a second stream was allowed before the first one's credit was released")
	}
	r.ReleaseStreamCredit()
	r.ReleaseStreamCredit()
	if _, err := client.OpenStreamSync(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.OpenStream(); err == nil {
		t.Fatal("releasing twice gave two streams")
	}
}
