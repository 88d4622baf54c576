package quic

import (
	"context"
	"io"
	"net"

	"github.com/volley-quic/volley/emit"
)

// waysToSend are all the ways in which an application can send size bytes of a pattern
// and end the stream.
var waysToSend = []struct {
	name string
	send func(s *SendStream, p pattern, size int64) error
}{
	{"write", func(s *SendStream, p pattern, size int64) error {
		if _, err := io.CopyBuffer(writeOnly{s}, readOnly{p.reader(size)}, make([]byte, 50000)); err != nil {
			return err
		}
		return s.Close()
	}},
	{"small writes", func(s *SendStream, p pattern, size int64) error {
		if _, err := io.CopyBuffer(writeOnly{s}, readOnly{p.reader(size)}, make([]byte, 777)); err != nil {
			return err
		}
		return s.Close()
	}},
	{"unbuffered write", func(s *SendStream, p pattern, size int64) error {
		if err := s.SetWriteBuffer(0, 0); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(writeOnly{s}, readOnly{p.reader(size)}, make([]byte, 50000)); err != nil {
			return err
		}
		return s.Close()
	}},
	{"write buffers", func(s *SendStream, p pattern, size int64) error {
		for off := int64(0); off < size; {
			var bufs net.Buffers
			for _, n := range []int64{1, 100, 1452, 9000, 70000} {
				b := make([]byte, min(n, size-off))
				p.fill(b, off)
				off += int64(len(b))
				bufs = append(bufs, b)
			}
			if _, err := s.WriteBuffers(&bufs); err != nil {
				return err
			}
		}
		return s.Close()
	}},
	{"owned", func(s *SendStream, p pattern, size int64) error {
		for off := int64(0); off < size; {
			b := make([]byte, min(40000, size-off))
			p.fill(b, off)
			off += int64(len(b))
			// What is released may be overwritten.
			if _, err := s.WriteOwned(b, func() { clear(b) }); err != nil {
				return err
			}
		}
		return s.Close()
	}},
	{"read from", func(s *SendStream, p pattern, size int64) error {
		if _, err := s.ReadFrom(p.reader(size)); err != nil {
			return err
		}
		return s.Close()
	}},
	{"scatter", func(s *SendStream, p pattern, size int64) error {
		return sendFrom(s, p.source(size), size, emit.Tuning{Mode: emit.Scatter})
	}},
	{"scatter reread", func(s *SendStream, p pattern, size int64) error {
		return sendFrom(s, p.source(size), size, emit.Tuning{Mode: emit.Scatter, Reread: true})
	}},
	{"single", func(s *SendStream, p pattern, size int64) error {
		return sendFrom(s, p.source(size), size, emit.Tuning{Mode: emit.Single})
	}},
	{"lend", func(s *SendStream, p pattern, size int64) error {
		return sendFrom(s, &lender{*p.source(size)}, size, emit.Tuning{Mode: emit.Lend})
	}},
	{"vector", func(s *SendStream, p pattern, size int64) error {
		return sendFrom(s, &vectors{*p.source(size)}, size, emit.Tuning{Mode: emit.Vector})
	}},
}

func sendFrom(s *SendStream, src io.ReaderAt, size int64, tuning emit.Tuning) error {
	s.SetEmission(tuning)
	_, err := s.SendFrom(context.Background(), src, 0, size, emit.End())
	return err
}
