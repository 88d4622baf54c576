package udp

import (
	"net"
	"net/netip"
)

// ECN is the two-bit congestion mark of an IP packet (RFC 3168 §5, RFC 9000 §13.4).
type ECN uint8

// The code points have the values they have on the wire.
const (
	NotECT ECN = 0
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

func (e ECN) String() string {
	return [...]string{"Not-ECT", "ECT(1)", "ECT(0)", "CE"}[e&3]
}

// Local says at which of this host's addresses a message arrived, so that the
// answer can leave from there. The zero value leaves the choice to the kernel.
type Local struct {
	Addr    netip.Addr // never v4-mapped
	IfIndex uint32     // 0: any interface
}

// Message is what one read gave: one datagram, or a train of datagrams of one
// sender that the kernel joined (GRO).
type Message struct {
	Buf        *Buffer        // the caller's; Data lies in it
	Data       []byte         // never empty
	Segment    int            // bytes of each datagram in Data but the last, which may be shorter; len(Data) if there is one
	Remote     netip.AddrPort // never v4-mapped; the zero value if the PacketConn's addresses are no UDP addresses
	RemoteAddr net.Addr       // as a plain PacketConn gave it; nil on the fast path, which has only Remote
	Local      Local          // filled when the socket is bound to no particular address
	ECN        ECN            // of every datagram in Data
}
