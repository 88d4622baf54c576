package sender

import (
	"fmt"
	"slices"
	"testing"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// The modes in which a source can be emitted.
var modes = []emit.Tuning{
	{Mode: emit.Scatter},
	{Mode: emit.Scatter, Reread: true},
	{Mode: emit.Single},
	{Mode: emit.Lend},
	{Mode: emit.Vector},
}

func name(t emit.Tuning) string {
	if t.Reread {
		return t.Mode.String() + " reread"
	}
	return t.Mode.String()
}

// both is a source that can do everything.
type both struct {
	vector
	lends lender
}

func (b both) LendAt(off int64, n int) ([]byte, error) { return b.lends.LendAt(off, n) }

// begin starts a SendFrom whose steps the test makes, instead of a goroutine.
func (c *conn) begin(s *testStream, src *source, off, n int64, opts ...emit.Option) *asker {
	c.t.Helper()
	v := both{vector{src}, lender{src}}
	a := &asker{st: s.st, src: v, lender: v, vector: v, opts: emit.Apply(opts...)}
	if err := s.BeginSource(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	a.begin(off, n)
	return a
}

// step lets a do one thing, and reports whether there was one and whether there is more.
func (c *conn) step(a *asker) (did, more bool, err error) {
	c.do(func() { did = a.ready() })
	if !did {
		return false, true, nil
	}
	more, err = a.step()
	return true, more, err
}

// finish makes a's steps, and sends and acknowledges in between, until a is done.
func (c *conn) finish(a *asker) error {
	c.t.Helper()
	for range 100_000 {
		did, more, err := c.step(a)
		if !more || err != nil {
			c.run()
			return err
		}
		if !did {
			if !c.x.Run(1) {
				c.acked(c.pns()...)
			}
			c.later()
		}
	}
	c.t.Fatalf("source of stream %d does not come to an end", a.st.send.ID())
	return nil
}

// Field report A01: header sizes that change within a batch, and payloads that nearly fill
// a datagram.
func TestEveryLengthAtEveryBoundary(t *testing.T) {
	const cap = 1452 - 1 - 4 - 16 - 2 // about
	var lengths []int
	for _, k := range []int{0, 1, 2, 9, 10, 11} {
		for d := -2; d <= 2; d++ {
			if n := k*cap + d; n > 0 {
				lengths = append(lengths, n)
			}
		}
	}
	offsets := []int64{0, 1 << 29}
	for _, b := range []int64{64, 16384, 1 << 30} {
		for d := int64(-1); d <= 1; d++ {
			offsets = append(offsets, b+d)
		}
	}
	for _, id := range []int64{0, 63, 64, 16383, 16384, 1 << 30} {
		for _, tuning := range append([]emit.Tuning{{MaxDatagrams: -1}}, modes...) {
			writes := tuning.MaxDatagrams < 0
			t.Run(fmt.Sprintf("%d %s %v", id, name(tuning), writes), func(t *testing.T) {
				for _, off := range offsets {
					for i, n := range lengths {
						if off > 1<<20 && i%7 != 3 {
							continue // it takes some milliseconds to begin so far
						}
						c := newConn(t, setup{dst: 4, plain: n%2 == 0})
						s := c.openAt(id, off)
						if writes {
							if _, err := s.CloseWith(bytesOf(id, off, n)); err != nil {
								t.Fatal(err)
							}
							c.run()
						} else {
							c.do(func() { s.st.SetTuning(tuning) })
							src := c.source(s, off+int64(n))
							a := c.begin(s, src, off, int64(n), emit.End())
							if err := c.finish(a); err != nil {
								t.Fatal(err)
							}
							if src.total() != int64(n) {
								t.Errorf("%d bytes asked for, %d sent", src.total(), n)
							}
						}
						c.whole(id, int64(n), true)
						if fins := c.peer.fins(id); fins != 1 {
							t.Errorf("%d FINs", fins)
						}
						if t.Failed() {
							t.Fatalf("%d bytes at %d", n, off)
						}
						c.sock.Close()
					}
				}
			})
		}
	}
}

// plan is held against all its promises for every room and every number of bytes that
// could matter.
func TestPlan(t *testing.T) {
	for _, id := range []int64{0, 64, 16384} {
		for _, off := range []int64{0, 1, 63, 64, 16383, 16384, 1<<30 - 1, 1 << 30} {
			h := wire.StreamHeaderLen(id, off, -1)
			for _, room := range []int{0, 1, h - 1, h, h + 1, h + 2, h + 3, 30, 63, 64, 65, 66, 67, 68, 69, 70, 80, 1000} {
				lefts := []int{1, 2, 62, 63, 64, 65, 1399, 1400, 1401, 1 << 20}
				for d := -4; d <= 4; d++ {
					for _, full := range []int{room - h, 1200 - 5 - overhead - h} {
						lefts = append(lefts, full+d)
					}
				}
				for _, left := range lefts {
					if left > 0 {
						checkPlan(t, id, off, room, left)
					}
				}
			}
		}
	}
}

// checkPlan plans left bytes for a flight whose open datagram has that much room.
func checkPlan(t *testing.T, id, off int64, room, left int) {
	const size, hdr = 1200, 5
	f := &Flight{buf: make([]byte, 3*size), size: size, hdr: hdr, max: 2}
	f.next()
	f.w = f.limit - room
	f.framed = false
	for i := range f.buf {
		f.buf[i] = 0xee
	}
	before, filled := f.w, f.limit
	n, length, ok := f.plan(id, off, left)
	h := wire.StreamHeaderLen(id, off, -1)
	what := fmt.Sprintf("id %d, offset %d, room %d, %d bytes: %d, %v, %v", id, off, room, left, n, length, ok)
	if !ok {
		t.Fatal(what)
	}
	if n < 1 || n > left {
		t.Fatal(what)
	}
	if f.n == 2 {
		// It was left behind: it had no room, or little and not enough for all.
		if room > 64 || room >= h+left {
			t.Errorf("%s: left behind", what)
		}
		for _, b := range f.buf[before:filled] {
			if b != 0 {
				t.Fatalf("%s: not padded", what)
			}
		}
		before = size + hdr
	}
	for _, b := range f.buf[before:f.w] { // PADDING goes before the frame
		if b != 0 {
			t.Fatalf("%s: not padded", what)
		}
	}
	dst := f.stream(id, off, n, length, false)
	switch {
	case len(dst) != n || f.w > f.limit:
		t.Errorf("%s: %d bytes beyond the end", what, f.w-f.limit)
	case !length && f.w != f.limit:
		t.Errorf("%s: without a Length field, %d bytes before the end", what, f.limit-f.w)
	case length && n < left:
		t.Errorf("%s: cut before the end", what)
	case length && f.limit-f.w < 0:
		t.Errorf("%s: cut", what)
	}
	if n < left && f.room() != 0 {
		t.Errorf("%s: bytes are left, and so is room", what)
	}
}

// ahead foresees what plan does, as long as a source fills what it is given.
func TestAhead(t *testing.T) {
	for _, off := range []int64{0, 50, 63, 64, 16000, 16384, 1<<30 - 3000} {
		for _, room := range []int{0, 1, 5, 20, 64, 65, 66, 100, 900} {
			for _, left := range []int{1, 10, 50, 63, 64, 100, 1100, 1170, 1175, 1180, 3000, 100_000} {
				for k := 1; k <= 10; k++ {
					off, left := off, left
					f := &Flight{buf: make([]byte, 12*1200), size: 1200, hdr: 5, max: 6}
					f.next()
					f.w = f.limit - room
					var bufs [10][]byte
					slots, bytes := f.ahead(64, off, int64(left), bufs[:k])
					what := fmt.Sprintf("offset %d, room %d, %d bytes, %d slots", off, room, left, k)
					for i := range slots {
						n, length, ok := f.plan(64, off, left)
						if !ok {
							t.Fatalf("%s: slot %d has no room", what, i)
						}
						p := f.stream(64, off, n, length, false)
						if n != len(bufs[i]) {
							t.Fatalf("%s: slot %d has %d bytes, not %d", what, i, n, len(bufs[i]))
						}
						if !length && &p[0] != &bufs[i][0] && n < left {
							t.Fatalf("%s: slot %d lies elsewhere", what, i)
						}
						off += int64(n)
						left -= n
						bytes -= n
					}
					if bytes != 0 || slots == 0 {
						t.Fatalf("%s: %d slots, %d bytes over", what, slots, bytes)
					}
				}
			}
		}
	}
}

// All modes give the same datagrams: only the calls differ.
func TestModesGiveTheSameDatagrams(t *testing.T) {
	for _, size := range []int{1200, 1452, 16376} {
		for _, off := range []int64{0, 60, 16300} {
			const n = 300_000
			var want [][]string
			for _, tuning := range modes {
				c := newConn(t, setup{size: size, dst: 8})
				c.do(func() {
					for range 1000 { // so that all numbers are of one length
						c.rec.Skip(recovery.App)
					}
				})
				s := c.openAt(4, off)
				c.do(func() { s.st.SetTuning(tuning) })
				src := c.source(s, off+n)
				a := c.begin(s, src, off, n, emit.End())
				if err := c.finish(a); err != nil {
					t.Fatal(err)
				}
				c.whole(4, n, true)
				var got [][]string
				for _, p := range c.take() {
					var fs []string
					for _, f := range p.frames {
						if f, ok := f.(wire.Stream); ok {
							fs = append(fs, fmt.Sprintf("%d+%d %v %v", f.Off, len(f.Data), f.HasLen, f.Fin))
						}
					}
					got = append(got, fs)
				}
				if want == nil {
					want = got
				}
				if !slices.EqualFunc(got, want, slices.Equal) {
					t.Errorf("%s at %d in datagrams of %d: others than %s", name(tuning), off, size, name(modes[0]))
				}
				st := s.st.Stats()
				if st.Bytes != n || st.Asked != n || int(st.Datagrams) != len(got) || int(st.Calls) != len(src.calls) {
					t.Errorf("%s: %+v for %d datagrams and %d calls", name(tuning), st, len(got), len(src.calls))
				}
				if tuning.Mode != emit.Single && st.Calls != st.Passes || st.Mode != tuning.Mode {
					t.Errorf("%s: %+v", name(tuning), st)
				}
			}
		}
	}
}

// The modes are real: they differ in how a source is called.
func TestModesCallDifferently(t *testing.T) {
	const n = 40 * 1400
	for _, most := range []int{0, 1, 3, 10} {
		for _, tuning := range modes {
			tuning.MaxDatagrams = most
			c := newConn(t, setup{dst: 8})
			s := c.open(0, plenty)
			c.do(func() { s.st.SetTuning(tuning) })
			src := c.source(s, n)
			if err := c.finish(c.begin(s, src, 0, -1)); err != nil {
				t.Fatal(err)
			}
			c.whole(0, n, false)
			k := tuning.Effective().MaxDatagrams
			datagrams := len(c.take())
			for i, call := range src.calls[:len(src.calls)-1] {
				slots := (call.n + 1424) / 1425
				switch want := k; {
				case call.n > 10*1452:
					t.Errorf("%s: asked for %d bytes", name(tuning), call.n)
				case tuning.Mode == emit.Single && (slots != 1 || call.slices != 0),
					tuning.Mode == emit.Lend && (slots > want || call.slices != -1),
					tuning.Mode == emit.Vector && (call.slices < 1 || call.slices > k),
					tuning.Mode == emit.Scatter && (slots > want || call.slices != 0):
					t.Errorf("%s, %d datagrams: call %d was %+v", name(tuning), most, i, call)
				case tuning.Mode == emit.Vector && i < 2 && call.slices != k:
					t.Errorf("vector, %d datagrams: call %d was %+v", most, i, call)
				}
			}
			if tuning.Mode == emit.Single {
				k = 1
			}
			if want := (datagrams + k - 1) / k; len(src.calls) < want || len(src.calls) > want+2 {
				t.Errorf("%s, %d datagrams: %d calls for %d datagrams", name(tuning), most, len(src.calls), datagrams)
			}
		}
	}
}

// SetEmission changes the calls in mid-stream, from the next pass on.
func TestEmissionChangesInMidStream(t *testing.T) {
	const n = 1 << 20
	for _, from := range modes {
		for _, to := range modes {
			for _, inside := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s to %s, within a call %v", name(from), name(to), inside), func(t *testing.T) {
					c := newConn(t, setup{dst: 8})
					s := c.open(0, plenty)
					c.do(func() { s.st.SetTuning(from) })
					src := c.source(s, n)
					changed := 0
					if inside {
						src.answer = func(k call) (int, error) {
							if len(src.calls) == 23 {
								c.do(func() { s.st.SetTuning(to) })
								changed = 23
							}
							return src.all(k)
						}
					}
					a := c.begin(s, src, 0, n, emit.End())
					for !inside && len(src.calls) < 20 {
						if did, _, err := c.step(a); err != nil {
							t.Fatal(err)
						} else if !did && !c.x.Run(1) {
							c.acked(c.pns()...)
						}
					}
					if !inside {
						c.do(func() { s.st.SetTuning(to) })
						changed = len(src.calls)
					}
					if err := c.finish(a); err != nil {
						t.Fatal(err)
					}
					c.whole(0, n, true)
					// The pass that was under way may call as before, ten times at most.
					for i, call := range src.calls {
						kind := map[int]emit.Mode{0: emit.Scatter, -1: emit.Lend}[min(call.slices, 1)]
						if call.slices > 0 {
							kind = emit.Vector
						} else if call.slices == 0 && call.n < 1452 && i < len(src.calls)-1 {
							kind = emit.Single
						}
						want := from.Mode
						if i >= changed+10 {
							want = to.Mode
						}
						if kind != want && (i < changed || i >= changed+10) && i < len(src.calls)-1 {
							t.Fatalf("call %d of %d, changed at %d: %+v, want %v", i, len(src.calls), changed, call, want)
						}
					}
				})
			}
		}
	}
}
