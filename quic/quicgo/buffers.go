package quicgo

import "net"

// WriteBuffers writes the contents of b, and takes from b what was written, as
// net.Buffers.WriteTo does. Buffers of a volley's size and more go to quic-go as they
// are; smaller ones are gathered, so that quic-go's Write, which waits when more than a
// packet is unsent, is called once for many. Otherwise it is [SendStream.Write].
func (s *SendStream) WriteBuffers(b *net.Buffers) (n int64, err error) {
	if err := s.enter(aCall); err != nil {
		return 0, err
	}
	defer s.leave()
	if _, err := s.Stream.Write(nil); err != nil {
		return 0, err
	}
	buf := scratches.Get().(*scratch)
	defer scratches.Put(buf)
	for len(*b) > 0 && err == nil {
		p := (*b)[0]
		if len(p) < len(buf) && len(*b) > 1 {
			k := 0
			for i := 0; i < len(*b) && k < len(buf); i++ {
				k += copy(buf[k:], (*b)[i])
			}
			p = buf[:k]
		}
		var m int
		m, err = s.Stream.Write(p)
		n += int64(m)
		consume(b, m)
	}
	return n, err
}

// consume takes n bytes, and the empty buffers behind them, from the front of b.
func consume(b *net.Buffers, n int) {
	for len(*b) > 0 {
		p := (*b)[0]
		if len(p) > n {
			(*b)[0] = p[n:]
			return
		}
		n -= len(p)
		(*b)[0] = nil
		*b = (*b)[1:]
	}
}
