package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quic-go/quic-go"
)

// earlyServer answers a stream with what it brings, in capitals.
func earlyServer(ctx context.Context, conn *quic.Conn) error {
	for {
		str, err := conn.AcceptStream(ctx)
		if err != nil {
			return err
		}
		go func() {
			b, _ := io.ReadAll(str)
			io.WriteString(str, strings.ToUpper(string(b)))
			str.Close()
		}()
	}
}

// earlyClient connects twice to a server, the second time with data in the first packets,
// and then to one that knows the session but takes no 0-RTT data. addr is both addresses.
func earlyClient(ctx context.Context, addr string) error {
	addr, refuses, _ := strings.Cut(addr, ",")
	conf := clientTLS("early")
	stored := make(chan struct{}, 100)
	conf.ClientSessionCache = &notifyingCache{tls.NewLRUClientSessionCache(10), stored}

	for i := range 2 {
		conn, err := quic.DialAddrEarly(ctx, addr, conf, nil)
		if err != nil {
			return err
		}
		answer, err := ask(conn, "hello early world")
		if err != nil {
			return err
		}
		<-conn.HandshakeComplete()
		st := conn.ConnectionState()
		fmt.Println(i, answer, "resumed:", st.TLS.DidResume, "0-RTT:", st.Used0RTT)
		<-stored // the ticket for the next connection
		conn.CloseWithError(0, "")
	}

	conn, err := quic.DialAddrEarly(ctx, refuses, conf, nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	_, err = ask(conn, "refused")
	fmt.Println("refused:", err, errors.Is(err, quic.Err0RTTRejected))
	_, err = conn.OpenStream()
	fmt.Println("a stream:", err)
	next, err := conn.NextConnection(ctx)
	if err != nil {
		return err
	}
	answer, err := ask(next, "once more")
	st := next.ConnectionState()
	fmt.Println(answer, err, "resumed:", st.TLS.DidResume, "0-RTT:", st.Used0RTT)
	return nil
}

func ask(conn *quic.Conn, question string) (string, error) {
	str, err := conn.OpenStream()
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(str, question); err != nil {
		return "", err
	}
	if err := str.Close(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(str)
	return string(b), err
}

// notifyingCache tells when a session was put in.
type notifyingCache struct {
	tls.ClientSessionCache
	stored chan struct{}
}

func (c *notifyingCache) Put(key string, s *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, s)
	c.stored <- struct{}{}
}
