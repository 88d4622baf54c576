// Package emittest checks sources of package emit, as testing/iotest checks
// readers.
package emittest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/volley-quic/volley/emit"
)

// An Option tells TestSource more about a source.
type Option func(*tester)

// Sequential is for a source that can be asked for each byte only once, in
// order. That is enough for the default, where bytes are kept until they are
// acknowledged; it is not enough for Tuning.Reread and the modes that imply it.
// The source's ReadAt is read through once, and nothing else is tested.
func Sequential() Option { return func(t *tester) { t.sequential = true } }

// Prefix is for a source that goes on after content: nothing beyond content is
// asked for, nor is its end looked for.
func Prefix() Option { return func(t *tester) { t.prefix = true } }

// Concurrent is for a source that several streams send from at once: it is also
// called from several goroutines. Run such a test with the race detector. It
// means nothing beside Sequential.
func Concurrent() Option { return func(t *tester) { t.concurrent = true } }

// OnNotReady has wait called whenever the source answers emit.ErrNotReady; it
// returns when the source is worth another try. Without this option the source
// is asked again at once. A source that was not ready 1000 times in a row fails
// in either case. With Concurrent, wait is called from several goroutines.
func OnNotReady(wait func()) Option { return func(t *tester) { t.wait = wait } }

// TestSource calls src in all the ways in which Volley does, and returns an error
// that says what is wrong, or nil. content is all that the source has. Beside the
// rules of package emit it checks that the source
//
//   - gives the same bytes whenever, and in whatever portions, it is asked,
//   - says how many bytes it gave, and leaves dst alone beyond them, which is more
//     than io.ReaderAt asks,
//   - ends with io.EOF, where content ends and not before,
//   - neither reads nor writes dst after it has returned,
//   - if it is an emit.Lender or an emit.VectorSource, gives the same bytes there,
//     leaves lent bytes as they are until the next call, and leaves the slice of
//     buffers as it was.
//
// A panic of the source is not recovered. The calls are the same every time.
func TestSource(src io.ReaderAt, content []byte, opts ...Option) error {
	t := &tester{src: src, content: content, wait: runtime.Gosched, rand: rand.New(rand.NewPCG(1, 2))}
	for _, o := range opts {
		if o != nil {
			o(t)
		}
	}
	if err := t.run(); err != nil {
		return fmt.Errorf("emittest: %w", err)
	}
	return nil
}

// What Volley asks for: up to a datagram in place, up to a pass at once.
const (
	datagram = 1452
	pass     = emit.MaxDatagrams * datagram
)

type tester struct {
	src     io.ReaderAt
	content []byte
	rand    *rand.Rand
	phase   string // for messages

	sequential, prefix, concurrent bool
	wait                           func()

	buffers
	lent
}

// A way is one of a source's methods: a call of it that asks for n bytes at off
// and checks what came. More than one is there only for what src implements.
type way struct {
	name string
	call func(off int64, n int) (int, error)
}

func (t *tester) ways() []way {
	ws := []way{{"ReadAt", t.readAt}}
	if _, ok := t.src.(emit.Lender); ok {
		ws = append(ws, way{"LendAt", t.lendAt})
	}
	if _, ok := t.src.(emit.VectorSource); ok {
		ws = append(ws, way{"ReadVecAt", t.readVecAt})
	}
	return ws
}

func (t *tester) run() error {
	ways := t.ways()
	for _, w := range ways {
		t.phase = "in order"
		if err := t.through(w); err != nil {
			return err
		}
		if t.sequential {
			return t.left()
		}
		t.phase = "asked again from the beginning"
		if err := t.through(w); err != nil {
			return err
		}
		t.phase = "asked again backwards"
		if err := t.backwards(w); err != nil {
			return err
		}
	}
	t.phase = "asked again anywhere"
	if err := t.anywhere(ways); err != nil {
		return err
	}
	if t.concurrent {
		if err := t.together(); err != nil {
			return err
		}
	}
	return t.left()
}

func (t *tester) len() int64 { return int64(len(t.content)) }

// through reads the whole content in portions of any size up to a pass, and finds
// its end.
func (t *tester) through(w way) error {
	for off, n := int64(0), pass; off < t.len(); off, n = off+int64(n), 1+t.rand.IntN(pass) {
		if err := t.fetch(w, off, n); err != nil {
			return err
		}
	}
	return t.fetch(w, t.len(), datagram)
}

// backwards reads the whole content a datagram at a time, the last one first.
func (t *tester) backwards(w way) error {
	for end := t.len(); end > 0; end -= datagram {
		off := max(end-datagram, 0)
		if err := t.fetch(w, off, int(end-off)); err != nil {
			return err
		}
	}
	return nil
}

// anywhere mixes ways, offsets and portions.
func (t *tester) anywhere(ways []way) error {
	sizes := []int{1, 2, 3, 100, datagram - 1, datagram, 2 * datagram, pass}
	for range 300 {
		w, n := ways[t.rand.IntN(len(ways))], sizes[t.rand.IntN(len(sizes))]
		if err := t.fetch(w, t.rand.Int64N(t.len()+1), n); err != nil {
			return err
		}
	}
	return nil
}

// together does the same from several goroutines.
func (t *tester) together() error {
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			one := &tester{src: t.src, content: t.content, prefix: t.prefix, wait: t.wait}
			one.rand = rand.New(rand.NewPCG(3, uint64(i)))
			one.phase = "asked by several goroutines at once"
			if errs[i] = one.anywhere(one.ways()); errs[i] == nil {
				errs[i] = one.left()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fetch asks in one way until n bytes have come, or the content's end, as Volley
// would.
func (t *tester) fetch(w way, off int64, n int) error {
	if t.prefix {
		n = int(min(int64(n), t.len()-off))
	}
	empty, notReady := 0, 0
	for n > 0 {
		fail := func(format string, a ...any) error {
			return fmt.Errorf("%s, %s of %d bytes at offset %d: %w", t.phase, w.name, n, off, fmt.Errorf(format, a...))
		}
		got, err := w.call(off, n)
		if w := (wrong{}); errors.As(err, &w) {
			return fail("%w", err)
		}
		end := off + int64(got)
		switch {
		case err == io.EOF:
			if end < t.len() {
				return fail("%d bytes and io.EOF, but the end is at offset %d", got, t.len())
			}
			return nil
		case errors.Is(err, emit.ErrNotReady):
			if got > 0 {
				notReady = 0
			}
			if notReady++; notReady > 1000 {
				return fail("not ready 1000 times in a row: %w", err)
			}
			if got < n {
				t.wait()
			}
		case err != nil:
			return fail("%w", err)
		case got == 0:
			if empty++; empty == 2 {
				return fail("no bytes and no error, twice: %w", io.ErrNoProgress)
			}
		}
		if got > 0 {
			empty = 0
		}
		off, n = end, n-got
	}
	return nil
}

// wrong is what a source must not do, as against an error of its own.
type wrong struct{ what string }

func (w wrong) Error() string { return w.what }

func wrongf(format string, a ...any) error { return wrong{fmt.Sprintf(format, a...)} }

// compare holds bytes that came from off against the content.
func (t *tester) compare(got []byte, off int64) error {
	if end := off + int64(len(got)); end > t.len() {
		return wrongf("bytes up to offset %d, but the end is at %d", end, t.len())
	}
	if bytes.Equal(got, t.content[off:off+int64(len(got))]) {
		return nil
	}
	for i, c := range got {
		if want := t.content[off+int64(i)]; c != want {
			return wrongf("the byte at offset %d is %#02x, want %#02x", off+int64(i), c, want)
		}
	}
	return nil
}
