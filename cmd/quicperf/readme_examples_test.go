package main

// The Go of README.md, word for word: TestReadmeShowsCodeThatCompiles holds the
// page to this file, and TestReadmeExamplesDeliver runs it.

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"os"

	"github.com/volley-quic/volley/emit"
)

import quic "github.com/volley-quic/volley/quic"

func sendFile(ctx context.Context, conn *quic.Conn, f *os.File, size int64) error {
	stream, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	// End puts the stream's end into the last packet of the file.
	_, err = stream.SendFrom(ctx, f, 0, size, emit.End())
	return err
}

// serve sends f to the next client, and waits until it has the file and closes.
func serve(ctx context.Context, l *quic.Listener, f *os.File, size int64) error {
	conn, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if err := sendFile(ctx, conn, f, size); err != nil {
		return err
	}
	<-conn.Context().Done()
	return nil
}

// fetch stores in f what a server sends. conf names the protocol, in NextProtos.
func fetch(ctx context.Context, addr string, conf *tls.Config, f *os.File) error {
	conn, err := quic.DialAddr(ctx, addr, conf, nil)
	if err != nil {
		return err
	}
	defer conn.CloseWithError(0, "")
	stream, err := conn.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, stream) // nil: all of it is here
	return err
}

func sendSquares(ctx context.Context, stream *quic.SendStream, n int64) error {
	squares := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		for i := range dst {
			dst[i] = byte((off + int64(i)) * (off + int64(i)))
		}
		return len(dst), nil
	})
	_, err := stream.SendFrom(ctx, squares, 0, n, emit.End())
	return err
}

func sendBytes(ctx context.Context, stream *quic.SendStream, b []byte) error {
	stream.SetEmission(emit.Tuning{Mode: emit.Single})
	_, err := stream.SendFrom(ctx, bytes.NewReader(b), 0, int64(len(b)), emit.End(), emit.Unchanging())
	return err
}
