package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go/quicvarint"
)

// h3 is as much of HTTP/3 (RFC 9114) as it takes to ask for files and to serve them:
// GET, no trailers, no push, header compression with the static table only (so that
// QPACK's own streams are not needed).
type h3 struct{}

// RFC 9114 §6.2.1, §7.2, §8.1.
const (
	h3ControlStream = 0x00
	h3Data          = 0x00
	h3Headers       = 0x01
	h3Settings      = 0x04
	h3NoError       = 0x100
)

func (h3) alpn() string { return "h3" }
func (h3) done() uint64 { return h3NoError }

// start opens the control stream, with empty SETTINGS as its first frame (RFC 9114
// §6.2.1), and reads the peer's streams of that kind, whatever they say.
func (h3) start(ctx context.Context, c conn) error {
	s, err := c.openUni(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte{h3ControlStream, h3Settings, 0}); err != nil {
		return err
	}
	go func() {
		for {
			r, err := c.acceptUni(ctx)
			if err != nil {
				return
			}
			go io.Copy(io.Discard, r)
		}
	}()
	return s.flush()
}

// appendHeaders appends a HEADERS frame.
func appendHeaders(b []byte, fields ...string) []byte {
	var block bytes.Buffer
	e := qpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(qpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	b = append(b, h3Headers)
	b = quicvarint.Append(b, uint64(block.Len()))
	return append(b, block.Bytes()...)
}

// readFrame reads up to a frame's payload, skipping what it does not know (RFC 9114 §9).
func readFrame(r *bufio.Reader) (typ uint64, payload *io.LimitedReader, err error) {
	for {
		if typ, err = quicvarint.Read(r); err != nil {
			return 0, nil, err // io.EOF: the message is over
		}
		n, err := quicvarint.Read(r)
		if err != nil {
			return 0, nil, io.ErrUnexpectedEOF
		}
		payload = &io.LimitedReader{R: r, N: int64(n)}
		if typ == h3Data || typ == h3Headers {
			return typ, payload, nil
		}
		if _, err := io.Copy(io.Discard, payload); err != nil {
			return 0, nil, err
		}
	}
}

// readHeaders reads a HEADERS frame, which must come next.
func readHeaders(r *bufio.Reader) (map[string]string, error) {
	typ, payload, err := readFrame(r)
	if err != nil {
		return nil, err
	}
	if typ != h3Headers || payload.N > maxRequest {
		return nil, fmt.Errorf("a frame of type %d and %d bytes where HEADERS belong", typ, payload.N)
	}
	block := make([]byte, payload.N)
	if _, err := io.ReadFull(payload, block); err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for next := qpack.NewDecoder().Decode(block); ; {
		f, err := next()
		if err == io.EOF {
			return fields, nil
		}
		if err != nil {
			return nil, err
		}
		fields[f.Name] = f.Value
	}
}

func (h3) ask(ctx context.Context, c conn, u *url.URL) (stream, error) {
	return request(ctx, c, appendHeaders(nil, ":method", "GET", ":scheme", "https", ":authority", u.Host, ":path", u.Path))
}

func (h3) receive(s stream, w io.Writer) error {
	r := bufio.NewReader(struct{ io.Reader }{s})
	fields, err := readHeaders(r)
	if err != nil {
		return err
	}
	if status := fields[":status"]; status != "200" {
		return fmt.Errorf("status %s", status)
	}
	for {
		typ, payload, err := readFrame(r)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		to := w
		if typ != h3Data {
			to = io.Discard // trailers
		}
		if _, err := io.Copy(to, payload); err != nil {
			return err
		}
		if payload.N > 0 {
			return io.ErrUnexpectedEOF
		}
	}
}

func (h3) answer(ctx context.Context, s stream, www *os.Root) error {
	r := bufio.NewReader(struct{ io.Reader }{s})
	fields, err := readHeaders(r)
	if err != nil {
		s.reset()
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	s.release()
	if method := fields[":method"]; method != "GET" {
		s.reset()
		return errors.New("a request that is no GET")
	}
	f, size, err := openFile(www, fields[":path"])
	if err != nil {
		if _, err := s.Write(appendHeaders(nil, ":status", "404")); err != nil {
			return err
		}
		return s.closeWrite()
	}
	defer f.Close()
	b := appendHeaders(nil, ":status", "200", "content-length", strconv.FormatInt(size, 10))
	b = append(b, h3Data)
	if _, err := s.Write(quicvarint.Append(b, uint64(size))); err != nil {
		return err
	}
	return s.send(ctx, f, size)
}
