package quic

import "github.com/volley-quic/volley/emit"

// idleSource is never ready.
type idleSource struct{ calls *int }

func (s idleSource) ReadAt([]byte, int64) (int, error) {
	*s.calls++
	return 0, emit.ErrNotReady
}
