package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quic-go/quic-go"
)

// datagramsServer sends every message back.
func datagramsServer(ctx context.Context, conn *quic.Conn) error {
	for {
		b, err := conn.ReceiveDatagram(ctx)
		if err != nil {
			return err
		}
		if err := conn.SendDatagram(b); err != nil {
			return err
		}
	}
}

func datagramsClient(ctx context.Context, addr string) error {
	conn, err := quic.DialAddr(ctx, addr, clientTLS("datagrams"), &quic.Config{EnableDatagrams: true})
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	st := conn.ConnectionState().SupportsDatagrams
	fmt.Println("support:", st.Local, st.Remote)

	// Messages may be lost: each is sent until its echo is there.
	for i := range 20 {
		msg := fmt.Sprintf("message %d %0*d", i, i*50, i)
		if !echoed(ctx, conn, msg) {
			return errors.New("no echo of " + msg)
		}
	}
	fmt.Println("all came back")

	var large *quic.DatagramTooLargeError
	err = conn.SendDatagram(make([]byte, 10000))
	fmt.Println("too large:", errors.As(err, &large), err)
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for {
		if _, err = conn.ReceiveDatagram(ctx); err != nil {
			fmt.Println("nothing more:", err)
			return nil
		}
	}
}

func echoed(ctx context.Context, conn *quic.Conn, msg string) bool {
	for ctx.Err() == nil {
		if err := conn.SendDatagram([]byte(msg)); err != nil {
			return false
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		for {
			b, err := conn.ReceiveDatagram(soon)
			if err != nil {
				break
			}
			if string(b) == msg {
				cancel()
				return true
			}
		}
		cancel()
	}
	return false
}
