package handshake

import (
	"bytes"
	"testing"
)

// However the stream is cut, the same messages come out, and what the rules say of
// them is the same.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{4, 0, 0, 1, 9, 24, 0, 0, 0}, uint16(3), true)
	f.Add([]byte{1, 255, 255, 255, 0}, uint16(0), false)
	f.Add([]byte{1, 0, 0, 40}, uint16(2), false)
	f.Fuzz(func(t *testing.T, data []byte, cut uint16, client bool) {
		read := func(pieces ...[]byte) (msgs [][]byte, failed bool) {
			s := &TLS{isClient: client}
			if client {
				s.in.level = app
			}
			for _, piece := range pieces {
				for len(piece) > 0 {
					msg, rest, err := s.in.next(piece)
					if err != nil {
						return msgs, true
					}
					if msg == nil {
						break
					}
					if _, err := s.check(msg); err != nil {
						return msgs, true
					}
					msgs, piece = append(msgs, bytes.Clone(msg)), rest
				}
			}
			if len(s.in.part) > msgHeaderLen+maxMessage {
				t.Fatalf("%d bytes are kept", len(s.in.part))
			}
			return msgs, false
		}
		at := min(int(cut), len(data))
		whole, failed := read(data)
		cutUp, cutFailed := read(data[:at], data[at:])
		if failed != cutFailed || !bytes.Equal(bytes.Join(whole, nil), bytes.Join(cutUp, nil)) || len(whole) != len(cutUp) {
			t.Fatalf("whole: %x, %v; cut at %d: %x, %v", whole, failed, at, cutUp, cutFailed)
		}
		if joined := bytes.Join(whole, nil); !bytes.HasPrefix(data, joined) {
			t.Fatalf("messages %x out of %x", joined, data)
		}
	})
}
