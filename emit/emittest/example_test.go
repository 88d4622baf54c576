package emittest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/emit/emittest"
)

func ExampleTestSource() {
	content := bytes.Repeat([]byte("volley "), 1000)
	good := bytes.NewReader(content)
	fmt.Println(emittest.TestSource(good, content, emittest.Concurrent()))

	// A source that ignores the offset is enough for a stream that keeps its
	// bytes, and for nothing else.
	cursor := func() io.ReaderAt {
		r := bytes.NewReader(content)
		return emit.OnEmit(func(dst []byte, _ int64) (int, error) { return r.Read(dst) })
	}
	fmt.Println(emittest.TestSource(cursor(), content, emittest.Sequential()))
	fmt.Println(emittest.TestSource(cursor(), content))

	// The source's own errors can be looked for.
	broken := emit.OnEmit(func([]byte, int64) (int, error) { return 0, io.ErrClosedPipe })
	fmt.Println(errors.Is(emittest.TestSource(broken, content), io.ErrClosedPipe))
	// Output:
	// <nil>
	// <nil>
	// emittest: asked again from the beginning, ReadAt of 14520 bytes at offset 0: 0 bytes and io.EOF, but the end is at offset 7000
	// true
}
