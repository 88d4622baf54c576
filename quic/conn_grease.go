package quic

import (
	"math/rand/v2"
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// The QUIC bit (RFC 9287): every packet of versions 1 and 2 has it, so that other
// protocols on the same port can be told from QUIC, and nothing but that can be relied
// on. An end that does not need it says so, and is sent packets with and without.
//
// What comes without it and has no long header looks like another protocol's. Unless
// the application reads those with [Transport.ReadNonQUICPacket], all are taken for
// QUIC's. If it does, only what is for a connection ID of a connection that was made
// before is: with IDs of 4 bytes, one datagram in 2^32 is mistaken. Connections made later
// ask for the bit (RFC 9443 §2).
//
// Retry, Version Negotiation and refusals have the bit always, as they leave before the
// client's parameters are known, and so have stateless resets, which leave after they were
// forgotten (RFC 9287 §3.1).

// greaseMemory is how long a client may rely on what a server said along with a token
// (RFC 9287 §3.1).
const greaseMemory = 7 * 24 * time.Hour

// mayGrease reports whether packets without the QUIC bit would find their connection. A
// socket with other protocols needs the bit, and one without connection IDs has nothing
// else to go by, if it is not for one connection alone.
func (t *Transport) mayGrease() bool {
	return !t.readingNonQUIC.Load() && (t.connIDLen > 0 || t.singleUse)
}

// setGrease notes whether the peer takes packets without the QUIC bit. The mutex is held.
func (c *Conn) setGrease(on bool) {
	c.grease = on && !c.config.DisableQUICBitGreasing
	c.snd.SetGrease(c.grease)
}

// greaseBit is what the first byte of a packet is to be changed by. The mutex is held.
func (c *Conn) greaseBit() byte {
	if !c.grease {
		return 0
	}
	return byte(rand.Uint32()) & wire.QUICBit
}
