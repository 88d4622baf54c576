package quic

import (
	"bytes"
	"context"
	"errors"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
	"github.com/volley-quic/volley/stream"
)

const (
	// maxDatagramFrame is what we tell the peer to keep to (RFC 9221 §3); it is what
	// quic-go says.
	maxDatagramFrame = 16383

	// maxDatagramsOut and maxDatagramsIn bound the messages that wait to be sent and
	// to be received.
	maxDatagramsOut = 32
	maxDatagramsIn  = 128
)

// datagrams are a connection's unreliable messages (RFC 9221).
type datagrams struct {
	out  [][]byte
	room *stream.Wake // out has room again
	in   [][]byte
	come *stream.Wake // in has something
}

// over wakes everybody who waits: the connection is over. Who is woken wakes the next.
func (d *datagrams) over() {
	d.room.Signal()
	d.come.Signal()
}

func (d *datagrams) init() {
	d.room, d.come = stream.NewWake(), stream.NewWake()
	d.room.ForRoom = true
}

var errNoDatagrams = errors.New("datagram support disabled")

// SendDatagram sends p as an unreliable message, if the peer takes them (RFC 9221): it
// may be lost, and is not sent again. It waits while too many messages wait to be sent.
// A message that does not fit into a packet is a [DatagramTooLargeError]; one that fitted
// when it was queued is dropped if packets have become smaller since.
func (c *Conn) SendDatagram(p []byte) error {
	msg := bytes.Clone(p)
	for {
		c.mu.Lock()
		if err := c.closeErr; err != nil {
			c.mu.Unlock()
			c.datagrams.room.Signal() // for the next caller
			return err
		}
		if c.params == nil || c.params.MaxDatagramFrame == 0 {
			c.mu.Unlock()
			return errNoDatagrams
		}
		if most := c.maxDatagram(); len(p) > most {
			c.mu.Unlock()
			return &DatagramTooLargeError{MaxDatagramPayloadSize: int64(most)}
		}
		if len(c.datagrams.out) < maxDatagramsOut {
			c.datagrams.out = append(c.datagrams.out, msg)
			if len(c.datagrams.out) < maxDatagramsOut {
				c.datagrams.room.Signal() // for the next caller
			}
			c.mu.Unlock()
			c.wakeUp()
			return nil
		}
		c.mu.Unlock()
		c.await(c.datagrams.room, nil)
	}
}

// maxDatagram is the longest message that fits now. The mutex is held.
func (c *Conn) maxDatagram() int {
	const frame = 1 + 2 // type and length
	most := int(c.params.MaxDatagramFrame) - frame
	room := c.snd.DatagramSize() - wire.ShortHeaderLen(len(c.ids.dst()), longPNLen) - sealTag - frame
	return max(min(most, room), 0)
}

// ReceiveDatagram returns the next message of the peer, and waits for one. Of more than
// a few that nobody receives, the later ones are dropped.
func (c *Conn) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	if !c.config.EnableDatagrams {
		return nil, errNoDatagrams
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for {
		c.mu.Lock()
		if in := c.datagrams.in; len(in) > 0 {
			c.datagrams.in = in[1:]
			if len(in) > 1 {
				c.datagrams.come.Signal()
			}
			c.mu.Unlock()
			return in[0], nil
		}
		err := c.closeErr
		c.mu.Unlock()
		if err != nil {
			c.datagrams.come.Signal()
			return nil, err
		}
		c.await(c.datagrams.come, ctx)
		if ctx.Err() != nil {
			c.datagrams.come.Signal() // for the next caller: the token may have been taken
			return nil, context.Cause(ctx)
		}
	}
}

// onDatagram takes in a DATAGRAM frame.
func (c *Conn) onDatagram(f wire.Datagram) error {
	if !c.config.EnableDatagrams || f.Len() > maxDatagramFrame {
		return violation(wire.FrameDatagram, "DATAGRAM frame that was not welcome") // RFC 9221 §3
	}
	if len(c.datagrams.in) < maxDatagramsIn {
		c.datagrams.in = append(c.datagrams.in, bytes.Clone(f.Data))
		c.datagrams.come.Signal()
	} else if c.qlog != nil {
		c.qlog.datagramDropped(qlog.DirectionReceiving, len(f.Data), "buffer_full")
	}
	return nil
}

// appendDatagrams writes the messages that wait, in order, into the flight. They go before
// streams, as nobody waits for what is late; but bulk data on streams still gets on, as
// the queue is short.
func (c *Conn) appendDatagrams(f *sender.Flight) {
	d := &c.datagrams
	n := 0
	for _, msg := range d.out {
		if len(msg) > c.maxDatagram() {
			n++ // packets have become smaller
			if c.qlog != nil {
				c.qlog.datagramDropped(qlog.DirectionSending, len(msg), "too_large")
			}
			continue
		}
		fr := wire.Datagram{Data: msg, HasLen: true}
		b := f.Tail(fr.Len())
		if b == nil {
			break
		}
		fr.Append(b)
		f.Wrote(fr.Len(), true, recovery.Frame{}) // never sent again (RFC 9221 §5.2)
		n++
	}
	if n > 0 {
		clear(d.out[:n])
		if d.out = d.out[n:]; len(d.out) == 0 {
			d.out = nil
		}
		d.room.Signal()
	}
}
