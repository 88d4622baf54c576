package wire

// PacketType tells the packets of RFC 9000 §17 apart, in every version.
type PacketType uint8

// The packet types. UnknownVersion is a long header packet of a version that
// this package does not know: only its invariant fields have a meaning.
const (
	Initial PacketType = iota
	ZeroRTT
	Handshake
	Retry
	VersionNegotiation
	OneRTT
	UnknownVersion PacketType = 0xff
)

// String is the type's name.
func (t PacketType) String() string {
	switch t {
	case Initial:
		return "Initial"
	case ZeroRTT:
		return "0-RTT"
	case Handshake:
		return "Handshake"
	case Retry:
		return "Retry"
	case VersionNegotiation:
		return "Version Negotiation"
	case OneRTT:
		return "1-RTT"
	}
	return "unknown"
}

// The versions whose packets this package reads and writes.
const (
	Version1 uint32 = 0x00000001 // RFC 9000
	Version2 uint32 = 0x6b3343cf // RFC 9369
)

// MaxConnIDLen is the longest connection ID of versions 1 and 2, in bytes
// (RFC 9000 §17.2).
const MaxConnIDLen = 20

const (
	headerFormBit = 0x80 // RFC 8999 §5: set in long headers
	fixedBit      = QUICBit
)

// QUICBit of a packet's first byte is 1 in versions 1 and 2 (RFC 9000 §17.2, §17.3),
// unless both ends have agreed that it has no meaning (RFC 9287). Header protection
// leaves it as it is, but it is part of what a packet's tag covers: it is to be changed
// before the packet is sealed.
const QUICBit = 0x40

// IsLong reports whether b0 begins a packet with a long header (RFC 8999 §5).
func IsLong(b0 byte) bool { return b0&headerFormBit != 0 }

// DstConnID finds the Destination Connection ID of a datagram's first packet,
// of whatever version and form: what a receiver needs to route it. shortLen is
// the length of the receiver's own connection IDs, in bytes, which short headers
// do not tell. dst aliases b; ok is false if b is too short to hold it.
func DstConnID(b []byte, shortLen int) (dst []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	start, n := 1, shortLen
	if IsLong(b[0]) {
		if len(b) < 6 {
			return nil, false
		}
		start, n = 6, int(b[5])
	}
	if len(b) < start+n {
		return nil, false
	}
	return b[start : start+n : start+n], true
}

// typeBits gives the two type bits of a long header, in place (mask 0x30).
// RFC 9369 §3.2 turns version 1's numbers on by one.
func typeBits(t PacketType, version uint32) byte {
	n := byte(t)
	if version == Version2 {
		n++
	}
	return (n & 0x03) << 4
}

func typeFromBits(b0 byte, version uint32) PacketType {
	n := b0 >> 4
	if version == Version2 {
		n--
	}
	return PacketType(n & 0x03)
}
