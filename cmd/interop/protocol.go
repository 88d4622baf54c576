package main

import (
	"context"
	"io"
	"net/url"
	"os"
)

// A protocol is a way to ask for files on a QUIC connection.
type protocol interface {
	alpn() string
	// start readies a new connection, on either side, and returns at once.
	start(ctx context.Context, c conn) error
	// ask asks for the file u names, on a stream of its own.
	ask(ctx context.Context, c conn, u *url.URL) (stream, error)
	// receive writes to w what comes in answer.
	receive(s stream, w io.Writer) error
	// answer serves the request on s with a file of www.
	answer(ctx context.Context, s stream, www *os.Root) error
	// done is the code to close a connection with when all is well.
	done() uint64
}

// maxRequest bounds what a server reads of a request, in bytes.
const maxRequest = 16 << 10

// openFile opens the file that a URL's path names; www keeps it from pointing elsewhere.
func openFile(www *os.Root, path string) (f *os.File, size int64, err error) {
	for len(path) > 0 && path[0] == '/' {
		path = path[1:]
	}
	if f, err = www.Open(path); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: os.ErrInvalid}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// request opens a stream that carries b and nothing else that way.
func request(ctx context.Context, c conn, b []byte) (stream, error) {
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.Write(b); err != nil {
		return nil, err
	}
	return s, s.closeWrite()
}
