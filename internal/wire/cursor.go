package wire

import "github.com/quic-go/quic-go/quicvarint"

// MaxVarint is the largest value of a variable-length integer (RFC 9000 §16),
// and so of a stream offset, a stream ID and a packet number.
const MaxVarint = 1<<62 - 1

// cursor reads fields one after the other. The first one that does not fit sets
// short; all that follow then read as zero, so that a parser looks at short only
// once, after its last field.
type cursor struct {
	b     []byte
	n     int // bytes read
	short bool
}

func (c *cursor) varint() uint64 {
	// Most values take one byte: the gaps and lengths of an ACK above all.
	if p := c.b[c.n:]; len(p) > 0 && p[0] < 0x40 {
		c.n++
		return uint64(p[0])
	}
	return c.longVarint()
}

func (c *cursor) longVarint() uint64 {
	v, n, err := quicvarint.Parse(c.b[c.n:])
	if err != nil {
		c.fail()
	}
	c.n += n
	return v
}

// int63 is varint for the fields that are kept as int64: 62 bits always fit.
func (c *cursor) int63() int64 { return int64(c.varint()) }

// bytes returns the next n bytes, aliased and with no room to append.
func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)-c.n) {
		c.fail()
		return nil
	}
	p := c.b[c.n : c.n+int(n) : c.n+int(n)]
	c.n += int(n)
	return p
}

func (c *cursor) byte() byte {
	if p := c.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

// rest returns all that is left.
func (c *cursor) rest() []byte { return c.bytes(uint64(len(c.b) - c.n)) }

func (c *cursor) fail() {
	c.short = true
	c.b, c.n = nil, 0
}
