package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

// errorsServer closes the connection with what it reads, and waits for its end if that is
// nothing.
func errorsServer(ctx context.Context, conn *quic.Conn) error {
	str, err := conn.AcceptStream(ctx)
	if err != nil {
		return err
	}
	b := make([]byte, 100)
	n, err := str.Read(b)
	if err != nil && err != io.EOF {
		return err
	}
	if n == 0 {
		<-conn.Context().Done()
		return context.Cause(conn.Context())
	}
	return conn.CloseWithError(42, string(b[:n]))
}

func errorsClient(ctx context.Context, addr string) error {
	// The server ends the connection.
	conn, err := quic.DialAddr(ctx, addr, clientTLS("errors"), nil)
	if err != nil {
		return err
	}
	str, err := conn.OpenStream()
	if err != nil {
		return err
	}
	str.Write([]byte("go away"))
	_, err = io.ReadAll(str)
	var e *quic.ApplicationError
	if errors.As(err, &e) {
		fmt.Println("application error:", e.ErrorCode, e.Remote, e.ErrorMessage)
	}
	fmt.Println("read:", err, errors.Is(err, net.ErrClosed), errors.Is(err, &quic.ApplicationError{ErrorCode: 42, Remote: true}))
	_, err = str.Write([]byte("too late"))
	fmt.Println("write:", err)
	_, err = conn.AcceptStream(ctx)
	fmt.Println("accept:", err)
	fmt.Println("context:", context.Cause(conn.Context()))

	// We end it.
	conn, err = quic.DialAddr(ctx, addr, clientTLS("errors"), nil)
	if err != nil {
		return err
	}
	str, err = conn.OpenStream()
	if err != nil {
		return err
	}
	str.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = str.Read(make([]byte, 1))
	var ne net.Error
	fmt.Println("deadline:", errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &ne) && ne.Timeout())
	str.SetReadDeadline(time.Time{})
	str.CancelRead(3)
	_, err = str.Read(make([]byte, 1))
	fmt.Println("cancelled:", err, errors.Is(err, &quic.StreamError{StreamID: 0, ErrorCode: 3}))
	str.Close()
	_, err = str.Write([]byte("x"))
	fmt.Println("closed:", err == quic.ErrStreamClosed)
	conn.CloseWithError(7, "mine")
	_, err = conn.OpenStream()
	fmt.Println("open:", err)

	// The handshake fails.
	_, err = quic.DialAddr(ctx, addr, clientTLS("unheard of"), nil)
	var te *quic.TransportError
	if errors.As(err, &te) {
		fmt.Println("transport error:", te.ErrorCode.IsCryptoError(), te.ErrorCode, te.Remote, te.FrameType)
	}
	conf := clientTLS("errors")
	conf.InsecureSkipVerify = false
	_, err = quic.DialAddr(ctx, addr, conf, nil)
	fmt.Println("certificate:", errors.As(err, &te), te.ErrorCode, te.Remote)

	// Nobody is there.
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer pc.Close()
	_, err = quic.DialAddr(ctx, pc.LocalAddr().String(), clientTLS("errors"), &quic.Config{HandshakeIdleTimeout: 300 * time.Millisecond})
	fmt.Println("nobody:", err, errors.As(err, &ne) && ne.Timeout())
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = quic.DialAddr(soon, pc.LocalAddr().String(), clientTLS("errors"), nil)
	fmt.Println("no time:", err)

	// A transport that is closed.
	tr := &quic.Transport{Conn: pc}
	tr.Close()
	_, err = tr.Dial(ctx, pc.LocalAddr(), clientTLS("errors"), nil)
	fmt.Println("transport:", err, errors.Is(err, quic.ErrTransportClosed))
	l, err := quic.ListenAddr("127.0.0.1:0", serverTLS(), nil)
	if err != nil {
		return err
	}
	l.Close()
	_, err = l.Accept(ctx)
	fmt.Println("listener:", err, errors.Is(err, quic.ErrServerClosed))
	return nil
}
