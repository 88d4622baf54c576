package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go/quicvarint"
)

// The transport parameters' identifiers.
const (
	paramOriginalDst            = 0x00 // RFC 9000 §18.2
	paramMaxIdleTimeout         = 0x01
	paramStatelessResetToken    = 0x02
	paramMaxUDPPayload          = 0x03
	paramMaxData                = 0x04
	paramMaxStreamDataBidiLocal = 0x05
	paramMaxStreamDataBidiRem   = 0x06
	paramMaxStreamDataUni       = 0x07
	paramMaxStreamsBidi         = 0x08
	paramMaxStreamsUni          = 0x09
	paramAckDelayExponent       = 0x0a
	paramMaxAckDelay            = 0x0b
	paramDisableActiveMigration = 0x0c
	paramPreferredAddress       = 0x0d
	paramActiveConnIDLimit      = 0x0e
	paramInitialSrc             = 0x0f
	paramRetrySrc               = 0x10
	paramVersionInformation     = 0x11       // RFC 9368 §3
	paramResetStreamAt          = 0x1d       // draft-ietf-quic-reliable-stream-reset
	paramMaxDatagramFrame       = 0x20       // RFC 9221 §3
	paramGreaseQUICBit          = 0x2ab2     // RFC 9287 §3
	paramMinAckDelay            = 0xff04de1b // draft-ietf-quic-ack-frequency

	// What reset_stream_at was up to version 07 of the draft: there are peers that know
	// nothing else, and the frame is the same.
	paramOldResetStreamAt = 0x17f7586d2cb571
)

// What an absent parameter means (RFC 9000 §18.2).
const (
	DefaultMaxUDPPayload     = 65527 // bytes
	DefaultAckDelayExponent  = 3
	DefaultMaxAckDelay       = 25 * time.Millisecond
	DefaultActiveConnIDLimit = 2
)

// The limits of RFC 9000 §18.2.
const (
	minMaxUDPPayload     = 1200
	maxAckDelayExponent  = 20
	maxMaxAckDelayMillis = 1<<14 - 1
	minActiveConnIDLimit = 2
)

// maxIdleMillis is the longest idle timeout a time.Duration can hold; a longer
// one, of more than 292 years, is read as this.
const maxIdleMillis = uint64(1<<63-1) / uint64(time.Millisecond)

// TransportParams are the transport parameters of one endpoint (RFC 9000 §18.2).
// In what ParseTransportParams returns absent parameters have their default
// value. A field's zero value stands for absence, but for AckDelayExponent and
// MaxAckDelay, where zero is a value like any other: whoever makes a
// TransportParams sets them.
type TransportParams struct {
	OriginalDst []byte // nil: absent, which differs from empty; server only
	InitialSrc  []byte // nil: absent
	RetrySrc    []byte // nil: absent; server only

	MaxIdleTimeout      time.Duration // whole milliseconds; 0: no timeout
	StatelessResetToken *[16]byte     // server only
	MaxUDPPayload       int64         // bytes; at least 1200

	InitialMaxData                 int64 // bytes
	InitialMaxStreamDataBidiLocal  int64 // bytes; streams opened by the sender of the parameters
	InitialMaxStreamDataBidiRemote int64 // bytes; streams opened by the receiver of the parameters
	InitialMaxStreamDataUni        int64 // bytes
	InitialMaxStreamsBidi          int64 // at most MaxStreamCount
	InitialMaxStreamsUni           int64 // at most MaxStreamCount

	AckDelayExponent       int           // 0 to 20
	MaxAckDelay            time.Duration // whole milliseconds, less than 2^14
	DisableActiveMigration bool
	PreferredAddress       *PreferredAddress // server only
	ActiveConnIDLimit      int64             // at least 2

	MaxDatagramFrame   int64          // bytes, the largest DATAGRAM frame welcome; 0: none (RFC 9221)
	ResetStreamAt      bool           // RESET_STREAM_AT frames are welcome
	GreaseQUICBit      bool           // packets without the fixed bit are welcome (RFC 9287)
	MinAckDelay        *time.Duration // whole microseconds; not nil: ACK_FREQUENCY frames are welcome
	VersionInformation *VersionInformation
}

// PreferredAddress is the preferred_address transport parameter (RFC 9000
// §9.6). Its connection ID has sequence number 1.
type PreferredAddress struct {
	IPv4, IPv6 netip.AddrPort // the zero AddrPort: none of that family
	ConnID     []byte         // 1 to 20 bytes
	ResetToken [16]byte
}

// VersionInformation is the version_information transport parameter (RFC 9368 §3).
type VersionInformation struct {
	Chosen    uint32
	Available []uint32
}

// Append appends the parameters' encoding. Those with their default value are
// left out. Which parameters only a server may send is the caller's business:
// it leaves them unset.
func (p *TransportParams) Append(b []byte) []byte {
	if p.OriginalDst != nil {
		b = appendParam(b, paramOriginalDst, p.OriginalDst)
	}
	b = appendIntParam(b, paramMaxIdleTimeout, uint64(p.MaxIdleTimeout/time.Millisecond), 0)
	if p.StatelessResetToken != nil {
		b = appendParam(b, paramStatelessResetToken, p.StatelessResetToken[:])
	}
	if p.MaxUDPPayload != 0 {
		b = appendIntParam(b, paramMaxUDPPayload, uint64(p.MaxUDPPayload), DefaultMaxUDPPayload)
	}
	b = appendIntParam(b, paramMaxData, uint64(p.InitialMaxData), 0)
	b = appendIntParam(b, paramMaxStreamDataBidiLocal, uint64(p.InitialMaxStreamDataBidiLocal), 0)
	b = appendIntParam(b, paramMaxStreamDataBidiRem, uint64(p.InitialMaxStreamDataBidiRemote), 0)
	b = appendIntParam(b, paramMaxStreamDataUni, uint64(p.InitialMaxStreamDataUni), 0)
	b = appendIntParam(b, paramMaxStreamsBidi, uint64(p.InitialMaxStreamsBidi), 0)
	b = appendIntParam(b, paramMaxStreamsUni, uint64(p.InitialMaxStreamsUni), 0)
	b = appendIntParam(b, paramAckDelayExponent, uint64(p.AckDelayExponent), DefaultAckDelayExponent)
	b = appendIntParam(b, paramMaxAckDelay, uint64(p.MaxAckDelay/time.Millisecond), uint64(DefaultMaxAckDelay/time.Millisecond))
	if p.DisableActiveMigration {
		b = appendParam(b, paramDisableActiveMigration, nil)
	}
	if p.PreferredAddress != nil {
		b = appendParam(b, paramPreferredAddress, p.PreferredAddress.append(nil))
	}
	if p.ActiveConnIDLimit != 0 {
		b = appendIntParam(b, paramActiveConnIDLimit, uint64(p.ActiveConnIDLimit), DefaultActiveConnIDLimit)
	}
	if p.InitialSrc != nil {
		b = appendParam(b, paramInitialSrc, p.InitialSrc)
	}
	if p.RetrySrc != nil {
		b = appendParam(b, paramRetrySrc, p.RetrySrc)
	}
	if p.VersionInformation != nil {
		b = appendParam(b, paramVersionInformation, p.VersionInformation.append(nil))
	}
	if p.ResetStreamAt {
		b = appendParam(b, paramResetStreamAt, nil)
		b = appendParam(b, paramOldResetStreamAt, nil)
	}
	b = appendIntParam(b, paramMaxDatagramFrame, uint64(p.MaxDatagramFrame), 0)
	if p.GreaseQUICBit {
		b = appendParam(b, paramGreaseQUICBit, nil)
	}
	if p.MinAckDelay != nil {
		v := uint64(*p.MinAckDelay / time.Microsecond)
		b = appendParam(b, paramMinAckDelay, quicvarint.Append(nil, v))
	}
	return b
}

func appendParam(b []byte, id uint64, value []byte) []byte {
	b = quicvarint.Append(b, id)
	b = quicvarint.Append(b, uint64(len(value)))
	return append(b, value...)
}

func appendIntParam(b []byte, id, v, absent uint64) []byte {
	if v == absent {
		return b
	}
	b = quicvarint.Append(b, id)
	b = quicvarint.Append(b, uint64(quicvarint.Len(v)))
	return quicvarint.Append(b, v)
}

func (a *PreferredAddress) append(b []byte) []byte {
	var ip4 [4]byte
	var ip6 [16]byte
	if a.IPv4.IsValid() {
		ip4 = a.IPv4.Addr().As4()
	}
	if a.IPv6.IsValid() {
		ip6 = a.IPv6.Addr().As16()
	}
	b = append(b, ip4[:]...)
	b = binary.BigEndian.AppendUint16(b, a.IPv4.Port())
	b = append(b, ip6[:]...)
	b = binary.BigEndian.AppendUint16(b, a.IPv6.Port())
	b = append(b, byte(len(a.ConnID)))
	b = append(b, a.ConnID...)
	return append(b, a.ResetToken[:]...)
}

func (v *VersionInformation) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, v.Chosen)
	for _, a := range v.Available {
		b = binary.BigEndian.AppendUint32(b, a)
	}
	return b
}

// ParseTransportParams reads the transport parameters sent by the server, if
// fromServer, or by the client, and checks all that RFC 9000 §7.3, §7.4 and §18
// ask for that can be judged without the connection's state. Comparing the
// connection IDs with those of the handshake is left to the caller. Nothing
// aliases b. The error is an *Error with TransportParameterError.
func ParseTransportParams(b []byte, fromServer bool) (*TransportParams, error) {
	p := &TransportParams{
		MaxUDPPayload:     DefaultMaxUDPPayload,
		AckDelayExponent:  DefaultAckDelayExponent,
		MaxAckDelay:       DefaultMaxAckDelay,
		ActiveConnIDLimit: DefaultActiveConnIDLimit,
	}
	seen := make(map[uint64]bool)
	c := cursor{b: b}
	for c.n < len(c.b) {
		id := c.varint()
		value := c.bytes(c.varint())
		if c.short {
			return nil, paramError("truncated")
		}
		// §7.4: duplicates SHOULD be refused.
		if seen[id] {
			return nil, paramError("parameter 0x%x appears twice", id)
		}
		seen[id] = true
		if err := p.set(id, value, fromServer); err != nil {
			return nil, err
		}
	}
	if err := p.check(fromServer); err != nil {
		return nil, err
	}
	return p, nil
}

// set stores one parameter.
func (p *TransportParams) set(id uint64, value []byte, fromServer bool) error {
	switch id {
	case paramOriginalDst, paramStatelessResetToken, paramPreferredAddress, paramRetrySrc:
		if !fromServer {
			// §18.2
			return paramError("client sent parameter 0x%x, which is the server's", id)
		}
	}
	v := paramValue{cursor: cursor{b: value}}
	switch id {
	case paramOriginalDst:
		p.OriginalDst = v.connID()
	case paramMaxIdleTimeout:
		p.MaxIdleTimeout = time.Duration(min(v.int(0, MaxVarint), maxIdleMillis)) * time.Millisecond
	case paramStatelessResetToken:
		p.StatelessResetToken = new([16]byte)
		copy(p.StatelessResetToken[:], v.bytes(16))
	case paramMaxUDPPayload:
		p.MaxUDPPayload = int64(v.int(minMaxUDPPayload, MaxVarint))
	case paramMaxData:
		p.InitialMaxData = int64(v.int(0, MaxVarint))
	case paramMaxStreamDataBidiLocal:
		p.InitialMaxStreamDataBidiLocal = int64(v.int(0, MaxVarint))
	case paramMaxStreamDataBidiRem:
		p.InitialMaxStreamDataBidiRemote = int64(v.int(0, MaxVarint))
	case paramMaxStreamDataUni:
		p.InitialMaxStreamDataUni = int64(v.int(0, MaxVarint))
	case paramMaxStreamsBidi:
		p.InitialMaxStreamsBidi = int64(v.int(0, MaxStreamCount)) // §4.6
	case paramMaxStreamsUni:
		p.InitialMaxStreamsUni = int64(v.int(0, MaxStreamCount))
	case paramAckDelayExponent:
		p.AckDelayExponent = int(v.int(0, maxAckDelayExponent))
	case paramMaxAckDelay:
		p.MaxAckDelay = time.Duration(v.int(0, maxMaxAckDelayMillis)) * time.Millisecond
	case paramDisableActiveMigration:
		p.DisableActiveMigration = true
	case paramPreferredAddress:
		p.PreferredAddress = v.preferredAddress()
	case paramActiveConnIDLimit:
		p.ActiveConnIDLimit = int64(v.int(minActiveConnIDLimit, MaxVarint))
	case paramInitialSrc:
		p.InitialSrc = v.connID()
	case paramRetrySrc:
		p.RetrySrc = v.connID()
	case paramVersionInformation:
		p.VersionInformation = v.versions(fromServer)
	case paramResetStreamAt, paramOldResetStreamAt:
		p.ResetStreamAt = true
	case paramMaxDatagramFrame:
		p.MaxDatagramFrame = int64(v.int(0, MaxVarint))
	case paramGreaseQUICBit:
		p.GreaseQUICBit = true
	case paramMinAckDelay:
		// It must not exceed max_ack_delay, so the limit of that holds here:
		// nothing overflows.
		d := time.Duration(v.int(0, maxMaxAckDelayMillis*1000)) * time.Microsecond
		p.MinAckDelay = &d
	default:
		return nil // §7.4.2: unknown parameters are ignored
	}
	if v.short || v.n != len(value) {
		return paramError("parameter 0x%x has the wrong length", id)
	}
	if v.invalid {
		return paramError("parameter 0x%x has an invalid value", id)
	}
	return nil
}

// check looks at what concerns several parameters, or absent ones.
func (p *TransportParams) check(fromServer bool) error {
	// §7.3
	if p.InitialSrc == nil {
		return paramError("initial_source_connection_id is missing")
	}
	if fromServer && p.OriginalDst == nil {
		return paramError("original_destination_connection_id is missing")
	}
	// §18.2: a server with a zero-length connection ID has no preferred address.
	if p.PreferredAddress != nil && len(p.InitialSrc) == 0 {
		return paramError("preferred_address with a zero-length connection ID")
	}
	if p.MinAckDelay != nil && *p.MinAckDelay > p.MaxAckDelay {
		return paramError("min_ack_delay exceeds max_ack_delay")
	}
	return nil
}

// paramValue reads one parameter's value.
type paramValue struct {
	cursor
	invalid bool
}

// int reads an integer that must lie between lo and hi.
func (v *paramValue) int(lo, hi uint64) uint64 {
	n := v.varint()
	if n < lo || n > hi {
		v.invalid = true
		return 0
	}
	return n
}

// connID reads the connection ID that fills the value. It is not nil.
func (v *paramValue) connID() []byte {
	if len(v.b) > MaxConnIDLen {
		v.invalid = true
	}
	return append([]byte{}, v.rest()...)
}

func (v *paramValue) preferredAddress() *PreferredAddress {
	a := new(PreferredAddress)
	if ip, port := v.bytes(4), v.bytes(2); !v.short {
		a.IPv4 = addrPort(ip, port)
	}
	if ip, port := v.bytes(16), v.bytes(2); !v.short {
		a.IPv6 = addrPort(ip, port)
	}
	idLen := v.byte()
	if idLen < 1 || idLen > MaxConnIDLen {
		v.invalid = true
	}
	a.ConnID = bytes.Clone(v.bytes(uint64(idLen)))
	copy(a.ResetToken[:], v.bytes(16))
	return a
}

// addrPort makes the zero AddrPort of an address nobody can send to. The RFC
// wants address and port to be zero both for a family that is not there; to
// send to one of the two would hit the own host, or nothing.
func addrPort(ip, port []byte) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	p := binary.BigEndian.Uint16(port)
	if addr.IsUnspecified() || p == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, p)
}

// versions reads version_information (RFC 9368 §3, §4).
func (v *paramValue) versions(fromServer bool) *VersionInformation {
	vi := new(VersionInformation)
	if p := v.bytes(4); p != nil {
		vi.Chosen = binary.BigEndian.Uint32(p)
	}
	v.invalid = vi.Chosen == 0
	for !v.short && v.n < len(v.b) {
		if p := v.bytes(4); p != nil {
			a := binary.BigEndian.Uint32(p)
			v.invalid = v.invalid || a == 0
			vi.Available = append(vi.Available, a)
		}
	}
	// A client's chosen version is one of those it offers.
	if !fromServer && !slices.Contains(vi.Available, vi.Chosen) {
		v.invalid = true
	}
	return vi
}

func paramError(format string, args ...any) *Error {
	return &Error{Code: TransportParameterError, Reason: fmt.Sprintf(format, args...)}
}
