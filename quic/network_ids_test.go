package quic

import "testing"

// A long connection does not go by one connection ID: the sender takes the next of the
// peer's, retires the one before, and the peer makes up for it.
func TestNetworkRotatesConnectionIDs(t *testing.T) {
	virtual(t, func(w *world) {
		c, s := w.connect(nil, nil)
		c.mu.Lock()
		spare := len(c.ids.local)
		c.mu.Unlock()
		const size = 4 * packetsPerID * 1200
		w.transfer(s, c, waysToSend[0].send, patternOf(6, 1), size)
		s.mu.Lock()
		if n := s.ids.active; n < 2 || n > 2*size/packetsPerID/1200 {
			t.Errorf("connection ID %d is used after %d packets", n, size/1200)
		}
		if s.ids.bySeq(0) != nil {
			t.Error("the first one is not retired")
		}
		s.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.ids.local) != spare {
			t.Errorf("the peer has %d connection IDs, and had %d", len(c.ids.local), spare)
		}
	})
}
