package quic

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
)

// A03: a FIN is an item of its own, with an acknowledgement of its own. It arrives though
// all bytes before it were acknowledged long ago, is sent again if it was lost, and needs
// no credit; and the stream that it ends makes room for the next.
func TestNetworkFINArrives(t *testing.T) {
	const size = 1000
	ends := []struct {
		name string
		// write writes size bytes, or none, and returns what ends the stream.
		write func(w *world, s *SendStream, p pattern) (size int64, end func() error)
		asked bool // a source has to be asked once more to learn of the end
	}{
		{"close after the bytes are acknowledged", func(w *world, s *SendStream, p pattern) (int64, func() error) {
			s.Write(p.bytes(size))
			return size, s.Close
		}, false},
		{"close with the last bytes", func(w *world, s *SendStream, p pattern) (int64, func() error) {
			s.Write(p.bytes(size)[:size-1])
			return size, func() error { _, err := s.CloseWith(p.bytes(size)[size-1:]); return err }
		}, false},
		{"close without bytes", func(w *world, s *SendStream, p pattern) (int64, func() error) {
			return 0, s.Close
		}, false},
		{"a source ends late", func(w *world, s *SendStream, p pattern) (int64, func() error) {
			src := &lateEnd{src: p.source(size)}
			sent := make(chan error, 1)
			go func() {
				_, err := s.SendFrom(w.Context(), src, 0, -1, emit.End())
				sent <- err
			}()
			return size, func() error { src.over = true; s.Ready(); return <-sent }
		}, true},
		{"a source that is read again ends late", func(w *world, s *SendStream, p pattern) (int64, func() error) {
			src := &lateEnd{src: p.source(size)}
			s.SetEmission(emit.Tuning{Mode: emit.Single})
			go s.SendFrom(w.Context(), src, 0, -1, emit.End()) // returns when it is acknowledged
			return size, func() error { src.over = true; s.Ready(); return nil }
		}, true},
	}
	for _, end := range ends {
		for _, trouble := range []struct {
			name   string
			lost   int  // datagrams from the FIN on
			credit bool // there is no more than the bytes need
			busy   bool // another stream sends all the time: ACKs, not probes, find the loss
		}{
			{"", 0, false, false}, {", lost once", 1, false, false}, {", lost twice", 2, false, false},
			{", without credit", 0, true, false}, {", without credit, lost once", 1, true, false},
			{", lost in traffic", 1, false, true},
		} {
			if trouble.credit && end.asked {
				continue // without credit there is nothing to ask for
			}
			for _, settle := range []time.Duration{time.Second, 5 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s%s, after %v", end.name, trouble.name, settle), func(t *testing.T) {
					virtual(t, func(w *world) {
						conf := patient()
						conf.MaxIncomingUniStreams = 1
						if trouble.credit {
							conf.InitialStreamReceiveWindow, conf.InitialConnectionReceiveWindow = size, size
							conf.MaxStreamReceiveWindow, conf.MaxConnectionReceiveWindow = size, size
						}
						c, s := w.connect(patient(), conf)
						if trouble.busy {
							other, err := c.OpenStream()
							if err != nil {
								t.Fatal(err)
							}
							go func() {
								for {
									if _, err := other.Write(make([]byte, 100)); err != nil {
										return
									}
									time.Sleep(2 * time.Millisecond)
								}
							}()
						}
						for i := range 3 { // the second needs the place of the first
							p := patternOf(9, uint64(i))
							out, err := c.OpenUniStreamSync(w.Context())
							if err != nil {
								t.Fatal(err)
							}
							n, finish := end.write(w, out, p)
							time.Sleep(settle) // all is acknowledged, or on its way
							left := trouble.lost
							w.up.set(func(d *direction) {
								d.hook = func(int, []byte) fate {
									if left--; left >= 0 {
										return lose
									}
									return pass
								}
							})
							begin := time.Now()
							if err := finish(); err != nil {
								t.Fatalf("ending: %v", err)
							}
							in, err := s.AcceptUniStream(w.Context())
							if err != nil {
								t.Fatal(err)
							}
							ended := make(chan time.Duration, 1)
							in.SetReceiveFinalSizeCallback(func(int64) { ended <- time.Since(begin) })
							// A round trip, and a probe timeout for each datagram lost (the second
							// probe of two is not).
							within := 30 * time.Millisecond
							switch {
							case trouble.busy:
								within += 60 * time.Millisecond
							case trouble.lost > 0:
								within += 200 * time.Millisecond
							}
							if trouble.lost > 1 {
								within += 400 * time.Millisecond
							}
							if took := <-ended; took > within {
								t.Errorf("the end took %v", took)
							}
							if err := p.check(in, n); err != nil {
								t.Fatal(err)
							}
						}
					})
				})
			}
		}
	}
}

// lateEnd is a source that does not know yet, when all its bytes are taken, that there
// are no more.
type lateEnd struct {
	src  *patternSource
	over bool
}

func (l *lateEnd) ReadAt(b []byte, off int64) (int, error) {
	n, err := l.src.ReadAt(b, off)
	if err == io.EOF && !l.over {
		err = emit.ErrNotReady
	}
	return n, err
}
