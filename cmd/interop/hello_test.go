package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/quic-go/quic-go/quicvarint"
)

func TestCryptoStream(t *testing.T) {
	var c cryptoStream
	c.add(5, []byte("lo"))
	if c.message(2) != nil {
		t.Error("a message without its beginning")
	}
	c.add(0, []byte{1, 0, 0, 0, 2, 0}) // an empty message, and one that overlaps
	c.add(6, []byte{0, 3})
	c.add(8, []byte("abcd"))
	c.data[5], c.data[6] = 0, 0
	if got := c.message(2); string(got) != "abc" {
		t.Errorf("%q", got)
	}
	if got := c.message(1); got == nil || len(got) != 0 {
		t.Errorf("%q", got)
	}
	c.add(maxCryptoStream, []byte{1})
	if len(c.data) > 100 {
		t.Error("a far offset takes memory")
	}
}

func FuzzHello(f *testing.F) {
	f.Add(int64(0), append(append([]byte{1, 0, 0, 43, 3, 3}, make([]byte, 33)...), 0, 2, 0x13, 3, 1, 0, 0, 0))
	f.Add(int64(0), []byte{8, 0, 0, 8, 0, 6, 0, 0x39, 0, 2, 1, 2})
	f.Add(int64(3), []byte{2, 0, 0, 200, 1})
	f.Fuzz(func(t *testing.T, off int64, b []byte) {
		var c cryptoStream
		if off >= 0 {
			c.add(off, b)
		}
		c.add(0, b)
		for _, typ := range []byte{msgClientHello, msgServerHello, msgEncryptedExtensions, msgCertificate} {
			m := c.message(typ)
			helloRandom(m)
			helloSuites(m)
			helloSuite(m)
			extension(m, extTransportParams)
		}
	})
}

// pipe is a stream whose answer is given.
type pipe struct {
	io.Reader
	out bytes.Buffer
}

func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *pipe) flush() error                { return nil }
func (p *pipe) closeWrite() error           { return nil }
func (p *pipe) reset()                      {}
func (p *pipe) release()                    {}
func (p *pipe) send(_ context.Context, src io.ReaderAt, n int64) error {
	return copyFrom(p, src, n)
}

// frame makes an HTTP/3 frame.
func frame(typ uint64, payload string) string {
	b := quicvarint.Append(nil, typ)
	b = quicvarint.Append(b, uint64(len(payload)))
	return string(b) + payload
}

func TestH3Responses(t *testing.T) {
	ok := string(appendHeaders(nil, ":status", "200"))
	grease := frame(0x21, "ignore me")
	for _, c := range []struct{ name, response, body string }{
		{"plain", ok + frame(h3Data, "body"), "body"},
		{"empty", ok, ""},
		{"in pieces, with frames nobody knows", grease + ok + grease + frame(h3Data, "bo") + grease + frame(h3Data, "dy"), "body"},
		{"with trailers", ok + frame(h3Data, "body") + string(appendHeaders(nil, "etag", "1")), "body"},
	} {
		var w bytes.Buffer
		err := h3{}.receive(&pipe{Reader: bytes.NewBufferString(c.response)}, &w)
		if err != nil || w.String() != c.body {
			t.Errorf("%s: %q, %v", c.name, w.String(), err)
		}
	}
	for _, c := range []struct{ name, response string }{
		{"nothing", ""},
		{"not found", string(appendHeaders(nil, ":status", "404"))},
		{"data first", frame(h3Data, "body")},
		{"cut in DATA", ok + frame(h3Data, "body")[:4]},
		{"cut in a length", ok + "\x00"},
		{"headers that want a dynamic table", frame(h3Headers, "\x01\x00\x80")},
		{"huge headers", "\x01\xbf\xff\xff\xff"},
	} {
		err := h3{}.receive(&pipe{Reader: bytes.NewBufferString(c.response)}, io.Discard)
		if err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
}

func FuzzH3Response(f *testing.F) {
	f.Add(append(appendHeaders(nil, ":status", "200"), "\x00\x04body"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h3{}.receive(&pipe{Reader: bytes.NewReader(b)}, io.Discard)
	})
}
