package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// hq is HTTP/0.9 on QUIC as the interop runner speaks it: each request is one line on a
// stream of its own, and its answer is the file and nothing else.
type hq struct{}

func (hq) alpn() string                      { return "hq-interop" }
func (hq) done() uint64                      { return 0 }
func (hq) start(context.Context, conn) error { return nil }

func (hq) ask(ctx context.Context, c conn, u *url.URL) (stream, error) {
	return request(ctx, c, fmt.Appendf(nil, "GET %s\r\n", u.Path))
}

func (hq) receive(s stream, w io.Writer) error {
	_, err := io.Copy(w, struct{ io.Reader }{s})
	return err
}

func (hq) answer(ctx context.Context, s stream, www *os.Root) error {
	request, err := io.ReadAll(io.LimitReader(s, maxRequest))
	s.release()
	if err != nil {
		return err
	}
	path, isGet := strings.CutPrefix(strings.TrimRight(string(request), "\r\n"), "GET ")
	if !isGet {
		s.reset()
		return errors.New("a request that is no GET")
	}
	f, size, err := openFile(www, path)
	if err != nil {
		s.reset()
		return err
	}
	defer f.Close()
	return s.send(ctx, f, size)
}
