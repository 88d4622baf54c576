package quic_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/quic"
)

// openStream opens a stream to a server that keeps what it reads. received waits for the
// stream's end and says what came; done ends the connection.
func openStream(conf *quic.Config) (s *quic.SendStream, received func() string, done func()) {
	l, err := quic.ListenAddr("127.0.0.1:0", exampleTLS(), conf)
	if err != nil {
		log.Fatal(err)
	}
	came := make(chan string, 1)
	go func() {
		conn, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		str, err := conn.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		b, err := io.ReadAll(str)
		if err != nil {
			came <- err.Error()
			return
		}
		came <- string(b)
	}()
	conn, err := quic.DialAddr(context.Background(), l.Addr().String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"example"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	s, err = conn.OpenUniStream()
	if err != nil {
		log.Fatal(err)
	}
	return s, func() string { return <-came }, func() {
		conn.CloseWithError(0, "")
		l.Close()
	}
}

func exampleTLS() *tls.Config {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		log.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, tmpl, tmpl, public, private)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		NextProtos:   []string{"example"},
	}
}

// A file, or whatever else has a ReadAt, is sent without a loop of Read and Write.
func ExampleSendStream_SendFrom() {
	s, received, done := openStream(nil)
	defer done()
	file := strings.NewReader(strings.Repeat("line\n", 20000))
	n, err := s.SendFrom(context.Background(), file, 0, file.Size(), emit.End())
	fmt.Println("sent:", n, err)
	fmt.Println("received:", len(received()))
	st := s.EmissionStats()
	fmt.Println("several packets to a call:", st.DatagramsPerCall() > 3)
	// Output:
	// sent: 100000 <nil>
	// received: 100000
	// several packets to a call: true
}

// io.Copy needs no change: it finds ReadFrom.
func ExampleSendStream_ReadFrom() {
	s, received, done := openStream(nil)
	defer done()
	n, err := io.Copy(s, io.LimitReader(strings.NewReader(strings.Repeat("x", 50000)), 40000))
	fmt.Println("copied:", n, err)
	s.Close()
	fmt.Println("received:", len(received()))
	fmt.Println("the source was asked:", s.EmissionStats().Bytes)
	// Output:
	// copied: 40000 <nil>
	// received: 40000
	// the source was asked: 40000
}

// A source that has nothing for now rests, and Ready wakes it.
func ExampleSendStream_Ready() {
	s, received, done := openStream(nil)
	defer done()
	words := make(chan string, 3)
	rest := ""
	src := emit.OnEmit(func(dst []byte, _ int64) (int, error) {
		if rest == "" {
			select {
			case w, ok := <-words:
				if !ok {
					return 0, io.EOF
				}
				rest = w
			default:
				return 0, emit.ErrNotReady
			}
		}
		n := copy(dst, rest)
		rest = rest[n:]
		return n, nil
	})
	go func() {
		for _, w := range []string{"slowly ", "but ", "surely"} {
			words <- w
			s.Ready()
		}
		close(words)
		s.Ready()
	}()
	_, err := s.SendFrom(context.Background(), src, 0, -1, emit.End())
	fmt.Println(received(), err)
	// Output: slowly but surely <nil>
}

// A message of several pieces goes out without being put together first.
func ExampleSendStream_WriteBuffers() {
	s, received, done := openStream(nil)
	defer done()
	b := net.Buffers{[]byte("header, "), []byte("body, "), []byte("trailer")}
	n, err := s.WriteBuffers(&b)
	s.Close()
	fmt.Println(n, err, len(b))
	fmt.Println(received())
	// Output:
	// 21 <nil> 0
	// header, body, trailer
}

// A large buffer that is not needed any more is handed over instead of copied.
func ExampleSendStream_WriteOwned() {
	s, received, done := openStream(nil)
	defer done()
	buf := bytes.Repeat([]byte("payload "), 1000)
	released := make(chan struct{})
	n, err := s.WriteOwned(buf, func() { close(released) })
	s.Close()
	fmt.Println(n, err, len(received()))
	<-released // the peer has it: buf may be used again
	// Output: 8000 <nil> 8000
}

// SetWriteBuffer(0, 0) makes Write return when quic-go's would: when at most one packet of
// it is unsent.
func ExampleSendStream_SetWriteBuffer() {
	const window = 100_000 // what the peer takes before it reads, which it does not here
	for _, likeQUICGo := range []bool{false, true} {
		s, _, done := openUnread(window)
		if likeQUICGo {
			s.SetWriteBuffer(0, 0)
		}
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := s.Write(make([]byte, window+30_000))
		fmt.Println(n > window, errors.Is(err, os.ErrDeadlineExceeded))
		done()
	}
	// Output:
	// true false
	// false true
}

// openUnread opens a stream to a server that does not read it.
func openUnread(window uint64) (*quic.SendStream, *quic.Conn, func()) {
	l, err := quic.ListenAddr("127.0.0.1:0", exampleTLS(), &quic.Config{
		InitialStreamReceiveWindow: window, MaxStreamReceiveWindow: window,
	})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := quic.DialAddr(context.Background(), l.Addr().String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"example"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	s, err := conn.OpenUniStream()
	if err != nil {
		log.Fatal(err)
	}
	return s, conn, func() {
		conn.CloseWithError(0, "")
		l.Close()
	}
}

// A writer that must not wait asks when it may go on.
func ExampleSendStream_Writable() {
	s, received, done := openStream(nil)
	defer done()
	s.SetWriteBuffer(4<<10, 8<<10)
	for left := 1 << 20; left > 0; {
		switch err := s.TryWriteAll(make([]byte, 1<<10)); err {
		case nil:
			left -= 1 << 10
		case quic.ErrWouldBlock:
			<-s.Writable() // or do something else until then
		default:
			log.Fatal(err)
		}
	}
	s.Close()
	fmt.Println(len(received()))
	// Output: 1048576
}

// The last bytes and the end of the stream leave in one frame.
func ExampleSendStream_CloseWith() {
	s, received, done := openStream(nil)
	defer done()
	n, err := s.CloseWith([]byte("that is all"))
	fmt.Println(n, err)
	fmt.Println(received())
	// Output:
	// 11 <nil>
	// that is all
}

// Small writes that belong together leave together.
func ExampleSendStream_Cork() {
	s, received, done := openStream(nil)
	defer done()
	s.Cork()
	for _, word := range []string{"one ", "packet ", "for ", "all"} {
		io.WriteString(s, word)
	}
	s.Uncork()
	s.Close()
	fmt.Println(received())
	// Output: one packet for all
}

// Errors are looked for as before, with the types of this package.
func ExampleConn_CloseWithError() {
	_, conn, done := openUnread(1000)
	defer done()
	conn.CloseWithError(7, "enough")
	_, err := conn.OpenStream()
	var e *quic.ApplicationError
	if errors.As(err, &e) {
		fmt.Println(e.ErrorCode, e.Remote, e.ErrorMessage)
	}
	fmt.Println(errors.Is(err, net.ErrClosed))
	// Output:
	// 7 false enough
	// true
}

// More than quic-go's Config: large packets where the path has room, and a congestion
// controller.
func ExampleConfig() {
	s, received, done := openStream(&quic.Config{
		MaxIncomingStreams: 1000,
		MaxPacketSize:      16376,
		CongestionControl:  quic.CongestionNewReno,
	})
	defer done()
	s.CloseWith([]byte("hello"))
	fmt.Println(received())
	// Output: hello
}
