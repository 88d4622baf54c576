package quic

import "time"

// mtuState is the size of a connection's datagrams. Path MTU discovery (RFC 8899) is
// not there yet: datagrams keep to InitialPacketSize, and fall back to 1200 bytes if
// the system refuses that.
type mtuState struct {
	c    *Conn
	peer int // the peer's max_udp_payload_size
}

func (m *mtuState) init(c *Conn)         { m.c, m.peer = c, maxPacketSize }
func (m *mtuState) start(time.Time)      {}
func (m *mtuState) tick(time.Time)       {}
func (m *mtuState) timer() (t time.Time) { return t }

// setPeerLimit keeps to what the peer takes (RFC 9000 §18.2, max_udp_payload_size).
func (m *mtuState) setPeerLimit(n int) {
	m.peer = n
	if m.c.snd.DatagramSize() > n {
		m.c.snd.SetDatagramSize(max(n, minPacketSize))
	}
}

// tooLarge notes that the kernel refused datagrams of size bytes. A forged ICMP
// message may be behind that, so it goes no lower than 1200 (RFC 9000 §14.2.1).
func (m *mtuState) tooLarge(size int) {
	if size > minPacketSize && m.c.snd.DatagramSize() > minPacketSize {
		m.c.snd.SetDatagramSize(minPacketSize)
	}
}

// sendProbe sends a path MTU probe if one is due.
func (c *Conn) sendProbe(time.Time) {}
