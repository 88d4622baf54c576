package emit_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/emit/emittest"
)

// squares is a source that makes its bytes up: line i, of 16 bytes, is the square
// of i. Any offset can be asked for at any time, so every mode can use it.
func squares(lines int64) emit.OnEmit {
	return func(dst []byte, off int64) (n int, err error) {
		for n < len(dst) {
			i := (off + int64(n)) / 16
			if i >= lines {
				return n, io.EOF
			}
			line := fmt.Sprintf("%15d\n", i*i)
			n += copy(dst[n:], line[(off+int64(n))%16:])
		}
		return n, nil
	}
}

// A function is a source. To send it: stream.SendFrom(ctx, squares(5), 0, -1).
func ExampleOnEmit() {
	b := make([]byte, 32)
	n, err := squares(5).ReadAt(b, 16*3)
	fmt.Print(string(b[:n]))
	fmt.Println(err)

	n, err = squares(5).ReadAt(b, 16*4)
	fmt.Print(string(b[:n]))
	fmt.Println(err)
	// Output:
	//               9
	//              16
	// <nil>
	//              16
	// EOF
}

// A source that has bytes now and then answers ErrNotReady in between. Whoever
// makes the next bytes calls the stream's Ready method afterwards.
func ExampleOnEmit_notReady() {
	log := bytes.NewBufferString("started\n") // whatever grows at its own pace
	src := emit.OnEmit(func(dst []byte, off int64) (int, error) {
		n := copy(dst, log.Bytes()[off:])
		if n < len(dst) {
			return n, emit.ErrNotReady
		}
		return n, nil
	})

	b := make([]byte, 100)
	n, err := src.ReadAt(b, 0)
	fmt.Printf("%q, %v\n", b[:n], err)

	log.WriteString("listening\n") // then: stream.Ready()
	n, err = src.ReadAt(b, int64(n))
	fmt.Printf("%q, %v\n", b[:n], err)
	// Output:
	// "started\n", emit: source not ready
	// "listening\n", emit: source not ready
}

// page is a source in memory that lends: its bytes go straight into the packets.
type page struct{ *strings.Reader }

func (p page) LendAt(off int64, n int) ([]byte, error) {
	b := content
	if off >= int64(len(b)) {
		return nil, io.EOF
	}
	return b[off:min(off+int64(n), int64(len(b)))], nil
}

var content = []byte(strings.Repeat("the quick brown fox ", 1000))

func ExampleLender() {
	src := page{strings.NewReader(string(content))}
	b, _ := src.LendAt(4, 5)
	fmt.Printf("%s\n", b)

	t, _ := emit.Tuning{}.For(src)
	fmt.Println("auto is", t.Mode)
	fmt.Println("as it should be:", emittest.TestSource(src, content) == nil)
	// Output:
	// quick
	// auto is lend
	// as it should be: true
}

// shards is a source whose bytes lie in pieces; it fills a pass in one call.
type shards []string

func (s shards) ReadAt(dst []byte, off int64) (int, error) {
	return s.ReadVecAt([][]byte{dst}, off)
}

func (s shards) ReadVecAt(bufs [][]byte, off int64) (n int, err error) {
	r := strings.NewReader(strings.Join(s, ""))
	for _, b := range bufs {
		m, err := r.ReadAt(b, off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func ExampleVectorSource() {
	src := shards{"one piece, ", "another, ", "and a third"}
	a, b := make([]byte, 9), make([]byte, 9)
	n, err := src.ReadVecAt([][]byte{a, b}, 0)
	fmt.Printf("%q %q %d %v\n", a, b, n, err)
	fmt.Println("as it should be:", emittest.TestSource(src, []byte(strings.Join(src, ""))) == nil)
	// Output:
	// "one piece" ", another" 18 <nil>
	// as it should be: true
}

// A mode can be a flag.
func ExampleMode() {
	var mode emit.Mode
	fs := flag.NewFlagSet("quicperf", flag.ContinueOnError)
	fs.TextVar(&mode, "emission", emit.Auto, "how a source's bytes get into packets")
	_ = fs.Parse([]string{"-emission", "single"})
	fmt.Println(mode, mode == emit.Single)
	// Output: single true
}

func ExampleTuning() {
	for _, t := range []emit.Tuning{
		{},
		{Mode: emit.Single},
		{Mode: emit.Scatter, MaxDatagrams: 100, Reread: true},
	} {
		fmt.Printf("%+v works as %+v\n", t, t.Effective())
	}
	// Output:
	// {Mode:auto MaxDatagrams:0 Reread:false} works as {Mode:auto MaxDatagrams:10 Reread:false}
	// {Mode:single MaxDatagrams:0 Reread:false} works as {Mode:single MaxDatagrams:10 Reread:true}
	// {Mode:scatter MaxDatagrams:100 Reread:true} works as {Mode:scatter MaxDatagrams:10 Reread:true}
}
