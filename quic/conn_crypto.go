package quic

import (
	"github.com/volley-quic/volley/internal/wire"
)

// maxCryptoBuffer is how far ahead of what TLS has read a peer may send handshake
// bytes: at least 4096 (RFC 9000 §7.5). Certificate chains of 64 KiB still pass.
const maxCryptoBuffer = 64 << 10

// maxCryptoGaps bounds the gaps in them, so that a frame of one byte does not cost a search
// through 32,768. The 4096 bytes may be in any order.
const maxCryptoGaps = 2048

// cryptoSend is the sending side of one space's CRYPTO stream. It keeps its bytes
// until the keys of the space are discarded: there are few.
type cryptoSend struct {
	data  []byte
	sent  int64
	acked spans
	lost  spans
	ready func() // something is to be sent; mutex held
	// probed is where the next probe goes on.
	probed int64
}

func (s *cryptoSend) write(p []byte) { s.data = append(s.data, p...) }

// next is the next run of bytes to send: lost ones first.
func (s *cryptoSend) next() (off int64, p []byte) {
	if len(s.lost) > 0 {
		l := s.lost[0]
		return l.lo, s.data[l.lo : l.hi+1]
	}
	return s.sent, s.data[s.sent:]
}

func (s *cryptoSend) pending() bool { return len(s.lost) > 0 || s.sent < int64(len(s.data)) }

// packed notes that n bytes at off went into a packet.
func (s *cryptoSend) packed(off int64, n int) {
	end := off + int64(n)
	s.lost.remove(off, end-1)
	s.sent = max(s.sent, end)
}

// OnAcked implements recovery.Data.
func (s *cryptoSend) OnAcked(off int64, n int, _ bool) {
	s.acked.add(off, off+int64(n)-1)
	s.lost.remove(off, off+int64(n)-1)
}

// OnLost implements recovery.Data. To resend is what was lost and is not acknowledged.
func (s *cryptoSend) OnLost(off int64, n int, _ bool) {
	s.lost.add(off, off+int64(n)-1)
	for _, a := range s.acked {
		s.lost.remove(a.lo, a.hi)
	}
	if s.ready != nil {
		s.ready()
	}
}

// again makes everything due that is not acknowledged.
func (s *cryptoSend) again() {
	if s.sent > 0 {
		s.OnLost(0, int(s.sent), false)
	}
}

// probe is the next run of bytes for a probe that has nothing else to carry: they are
// in flight, but what an earlier packet brought a probe need not bring (RFC 9002 §6.2.4).
// After a probe timeout it begins with the first.
func (s *cryptoSend) probe() (off int64, p []byte) {
	for range 2 {
		lo, hi := s.probed, s.sent
		for _, a := range s.acked {
			if a.hi < lo {
				continue
			}
			if a.lo > lo {
				hi = a.lo
				break
			}
			lo = a.hi + 1
		}
		if lo < hi {
			return lo, s.data[lo:hi]
		}
		s.probed = 0
	}
	return 0, nil
}

// cryptoRecv puts one space's CRYPTO frames back in order.
type cryptoRecv struct {
	off  int64 // of data[0]: everything before was given to TLS
	data []byte
	got  spans // offsets present beyond off
}

// push takes in a frame's bytes.
func (r *cryptoRecv) push(f wire.Crypto) error {
	end := f.Off + int64(len(f.Data))
	if end > r.off+maxCryptoBuffer {
		return &wire.Error{Code: wire.CryptoBufferExceeded, FrameType: wire.FrameCrypto, Reason: "too much handshake data ahead of its turn"}
	}
	if end <= r.off || len(f.Data) == 0 {
		return nil
	}
	off, p := f.Off, f.Data
	if off < r.off {
		p = p[r.off-off:]
		off = r.off
	}
	if n := int(end - r.off); n > len(r.data) {
		r.data = append(r.data, make([]byte, n-len(r.data))...)
	}
	copy(r.data[off-r.off:], p)
	if r.got.add(off, end-1); len(r.got) > maxCryptoGaps {
		return &wire.Error{Code: wire.CryptoBufferExceeded, FrameType: wire.FrameCrypto, Reason: "handshake data with too many gaps"}
	}
	return nil
}

// pop returns the bytes that are next in order; they are the caller's.
func (r *cryptoRecv) pop() []byte {
	if len(r.got) == 0 || r.got[0].lo != r.off {
		return nil
	}
	n := r.got[0].hi + 1 - r.off
	p := r.data[:n:n]
	r.data = append([]byte(nil), r.data[n:]...)
	r.off += n
	r.got = append(r.got[:0], r.got[1:]...)
	return p
}
