package quic

import (
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/stream"
)

const (
	// heldLeast is how long a message must be for its stream data to stay in its buffer
	// of 64 KiB: a little data must not keep much memory.
	heldLeast = 32 << 10

	// So many buffers, of that size, one connection keeps that way, or as many as its receive
	// window would fill. Beyond, data is copied: a peer that lets one frame of each buffer
	// wait for its turn gains 4 MiB, or what it might have us keep anyway.
	leastHeldBuffers = 64
	heldSize         = 64 << 10
)

// heldBuffer is a message's buffer in which frames wait to be read. The connection's
// mutex guards it.
type heldBuffer struct {
	c    *Conn
	buf  *udp.Buffer
	refs int // frames, and the batch while it is being looked at
}

// Hold implements stream.Memory.
func (h *heldBuffer) Hold() { h.refs++ }

// Release implements stream.Memory.
func (h *heldBuffer) Release() {
	if h.refs--; h.refs > 0 {
		return
	}
	h.buf.Release()
	h.buf = nil
	h.c.held--
	h.c.heldFree = append(h.c.heldFree, h)
}

// hold makes streams keep data in a message's buffer rather than copy it, if the message
// is worth it. The connection's mutex is held.
func (c *Conn) hold(p *packet) {
	if len(p.data) < heldLeast || c.held >= max(leastHeldBuffers, int(c.flow.window/heldSize)) {
		return
	}
	var h *heldBuffer
	if n := len(c.heldFree); n > 0 {
		h = c.heldFree[n-1]
		c.heldFree = c.heldFree[:n-1]
	} else {
		h = &heldBuffer{c: c}
	}
	h.buf, h.refs = p.buf, 1
	c.held++
	p.held = h
}

// memory is h as the streams see it: nil if there is nothing to hold.
func (h *heldBuffer) memory() stream.Memory {
	if h == nil {
		return nil
	}
	return h
}
