package stream

import "testing"

// What one packet carried is probed in one packet, however many writes it came from.
func TestProbeGoesOnThroughBlocks(t *testing.T) {
	h := newHost(t)
	s := NewSend(0, h, plenty)
	s.Write(pattern(0, 13))
	h.do(func() { s.Packed(0, 13, false) })
	s.Write(pattern(13, 1000))
	s.Write(pattern(1013, 500))
	s.Close()
	h.do(func() {
		s.Packed(13, 1300, false)
		off, n, fin, ok := s.Probe(5000)
		if off != 0 || n != 1313 || fin || !ok {
			t.Fatal(off, n, fin, ok)
		}
		buf := make([]byte, n)
		if !s.Copy(buf, off) {
			t.Fatal("not at hand")
		}
		checkPattern(t, buf, off)
		if off, n, _, _ := s.Probe(700); off != 0 || n != 700 {
			t.Error(off, n)
		}
		s.OnAcked(500, 100, false)
		if off, n, _, _ := s.Probe(5000); off != 0 || n != 500 {
			t.Error("beyond what is acknowledged:", off, n)
		}
		s.OnAcked(0, 500, false)
		s.Packed(1313, 200, true)
		if off, n, fin, _ := s.Probe(5000); off != 600 || n != 913 || !fin {
			t.Error(off, n, fin)
		}
	})
}
