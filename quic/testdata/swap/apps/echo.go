package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/quic-go/quic-go"
)

// echoServer sends back what comes, while it comes.
func echoServer(ctx context.Context, conn *quic.Conn) error {
	for {
		str, err := conn.AcceptStream(ctx)
		if err != nil {
			return err
		}
		go func() {
			io.Copy(str, str)
			str.Close()
		}()
	}
}

func echoClient(ctx context.Context, addr string) error {
	conn, err := quic.DialAddr(ctx, addr, clientTLS("echo"), nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "bye")
	fmt.Println("protocol:", conn.ConnectionState().TLS.NegotiatedProtocol, conn.ConnectionState().Version)
	for _, size := range []int{0, 1, 1000, 100_000, 5_000_000} {
		str, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return err
		}
		sent := bytes.Repeat([]byte("echo echo!"), size/10+1)[:size]
		go func() {
			str.Write(sent)
			str.Close()
		}()
		got, err := io.ReadAll(str)
		if err != nil {
			return err
		}
		fmt.Printf("stream %d: %d bytes, %x\n", str.StreamID(), len(got), sha256.Sum256(got))
	}
	return nil
}
