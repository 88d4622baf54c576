package quic

import (
	"context"
	"crypto/sha256"
	"io"
	"testing"

	"github.com/volley-quic/volley/emit"
)

// bulkSize is what one stream carries in one direction, in bytes.
var bulkSize = less[int64](100 << 20)

// sendPattern sends size bytes and ends the stream: Volley with an emission, the others
// by Write.
func sendPattern(s stackStream, p pattern, size int64, tuning emit.Tuning) error {
	if v, ok := s.(volleyStream); ok {
		v.SetEmission(tuning)
		_, err := v.SendFrom(context.Background(), p.source(size), 0, size, emit.End())
		return err
	}
	if _, err := io.CopyBuffer(writeOnly{s}, readOnly{p.reader(size)}, make([]byte, 64<<10)); err != nil {
		return err
	}
	return s.closeWrite()
}

func patternHash(p pattern, size int64) (h [32]byte) {
	w := sha256.New()
	io.Copy(w, p.reader(size))
	return [32]byte(w.Sum(nil))
}

// One stream carries 100 MiB from either side to the other, to and from every stack.
func TestInteropOneStreamCarriesMuch(t *testing.T) {
	up, down := patternOf(1, 0), patternOf(2, 0)
	wantUp, wantDown := patternHash(up, bulkSize), patternHash(down, bulkSize)
	receive := func(t *testing.T, s io.Reader, want [32]byte) {
		t.Helper()
		h := sha256.New()
		n, err := io.CopyBuffer(writeOnly{h}, readOnly{s}, make([]byte, 256<<10))
		if err != nil || n != bulkSize {
			t.Errorf("%d of %d bytes arrived: %v", n, bulkSize, err)
		} else if [32]byte(h.Sum(nil)) != want {
			t.Error("the content has another hash")
		}
	}
	eachStack(t, func(t *testing.T, client, server *stack) {
		ctx := interopContext(t)
		c, s := connectStacks(t, client, server, stackConfig{}, stackConfig{})
		served := make(chan error, 1)
		go func() {
			in, err := s.accept(ctx)
			if err == nil {
				receive(t, in, wantUp)
				err = sendPattern(in, down, bulkSize, emit.Tuning{})
			}
			served <- err
		}()
		out, err := c.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := sendPattern(out, up, bulkSize, emit.Tuning{}); err != nil {
			t.Fatalf("sending up: %v", err)
		}
		receive(t, out, wantDown)
		if err := <-served; err != nil {
			t.Fatalf("sending down: %v", err)
		}
	})
}

// Every emission mode, and every way to write, gives another stack the same stream.
func TestInteropEmissionModes(t *testing.T) {
	const size = 8 << 20
	ctx := interopContext(t)
	c, s := connectStacks(t, volleyStack, quicGoStack, stackConfig{}, stackConfig{})
	for i, way := range waysToSend {
		t.Run(way.name, func(t *testing.T) {
			p := patternOf(3, uint64(i))
			received := make(chan error, 1)
			go func() {
				in, err := s.acceptUni(ctx)
				if err == nil {
					err = p.check(in, size)
				}
				received <- err
			}()
			out, err := c.openUni(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := way.send(out.(volleyStream).SendStream, p, size); err != nil {
				t.Fatalf("sending: %v", err)
			}
			if err := <-received; err != nil {
				t.Fatal(err)
			}
		})
	}
}
