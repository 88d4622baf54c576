package quic

import (
	"bytes"

	"github.com/quic-go/quic-go/qlog"

	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
	"github.com/volley-quic/volley/sender"
)

// Flight implements sender.Trace: the passes, then the flight, then its packets.
func (q *connTrace) Flight(f *sender.Flight) {
	q.sendGeneration()
	for _, p := range f.Passes() {
		q.record(QlogPassPacked{
			StreamID: StreamID(p.Stream), Offset: p.Off, Length: p.Bytes, Slots: p.Slots,
			Fin: p.Fin, Lost: p.Lost, Probe: p.Probe, Source: p.Mode,
		})
	}
	ecn := qlogECN(f.ECN())
	e := QlogFlightSent{
		PacketType: qlog.PacketType1RTT, FirstPacketNumber: qlog.PacketNumber(f.First()), Datagrams: f.Datagrams(),
		Length: f.Bytes(), DatagramSize: f.Size(), Passes: len(f.Passes()), GSO: f.Segmented(), ECN: ecn, IsMTUProbe: f.Probe(),
	}
	if f.Early() {
		e.PacketType = qlog.PacketType0RTT
		q.lastEarly = f.First() + int64(f.Datagrams()) - 1
	}
	q.record(e)
	tuple := q.routeTuple(f.Route())
	for i := range f.Datagrams() {
		b, header := f.Packet(i)
		q.sent(qlog.PacketSent{ECN: ecn, IsMTUProbePacket: f.Probe(), Tuple: tuple}, b, header, f.First()+int64(i))
	}
}

// SourceCall implements sender.Trace.
func (q *connTrace) SourceCall(s sender.SourceCall) {
	q.record(QlogSourceCalled{
		StreamID: StreamID(s.Stream), Offset: s.Off, Asked: s.Asked, Answered: s.Got, Mode: s.Mode, Again: s.Again,
	})
}

// Refused implements sender.Trace.
func (q *connTrace) Refused(first, last int64) {
	q.record(QlogPacketsRefused{PacketType: qlog.PacketType1RTT, First: qlog.PacketNumber(first), Last: qlog.PacketNumber(last)})
}

// refusedLong is Refused for a datagram of the handshake.
func (q *connTrace) refusedLong(d *longDatagram) {
	for _, p := range d.packets[:d.n] {
		pn := qlog.PacketNumber(p.pn)
		q.record(QlogPacketsRefused{PacketType: qlog.EncryptionLevelToPacketType(levels[p.sp]), First: pn, Last: pn})
	}
}

// routeTuple is the name of the path by which a flight leaves.
func (q *connTrace) routeTuple(r *udp.Route) string {
	for _, p := range q.c.paths.all {
		if &p.route == r {
			return q.tuple(p)
		}
	}
	return ""
}

// sentLong records the packets of a datagram that is about to be sealed.
func (q *connTrace) sentLong(d *longDatagram) {
	if c := q.c; c.isClient && c.stats.PacketsSent == 0 {
		q.state(qlog.ConnectionStateAttempted)
	}
	for _, p := range d.packets[:d.n] {
		q.sent(qlog.PacketSent{}, d.buf[p.start:p.end+sealTag], p.payload, p.pn)
	}
}

// sent records a packet that is about to be sealed: header, frames, and room for the tag.
// e has what it does not show.
func (q *connTrace) sent(e qlog.PacketSent, b []byte, header int, pn int64) {
	e.Header, e.Raw = q.header(b, header, pn)
	e.Frames = qlogFrames(b[header:len(b)-sealTag], ackDelayExponent)
	q.record(e)
}

// received records a packet that was decrypted in place.
func (q *connTrace) received(by *path, b []byte, header int, pn int64, ecn udp.ECN) {
	exponent := ackDelayExponent
	if p := q.c.params; p != nil && !wire.IsLong(b[0]) {
		exponent = p.AckDelayExponent
	}
	h, raw := q.header(b, header, pn)
	q.record(qlog.PacketReceived{
		Header: h, Raw: raw, ECN: qlogECN(ecn),
		Frames: qlogFrames(b[header:len(b)-sealTag], exponent),
		Tuple:  q.tuple(by),
	})
}

// header describes a packet without protection.
func (q *connTrace) header(b []byte, header int, pn int64) (qlog.PacketHeader, qlog.RawInfo) {
	var h qlog.PacketHeader
	if wire.IsLong(b[0]) {
		h = q.outside(b)
	} else { // RFC 9000 §17.3.1
		pnLen := int(b[0]&0x03) + 1
		h = qlog.PacketHeader{
			PacketType:       qlog.PacketType1RTT,
			DestConnectionID: ConnectionIDFromBytes(b[1 : header-pnLen]),
			KeyPhaseBit:      qlog.KeyPhaseZero,
		}
		if b[0]&0x04 != 0 {
			h.KeyPhaseBit = qlog.KeyPhaseOne
		}
	}
	h.PacketNumber = qlog.PacketNumber(pn)
	return h, qlog.RawInfo{Length: len(b), PayloadLength: len(b) - header - sealTag}
}

// outside describes what protection does not hide of a packet that came, or of a long
// header.
func (q *connTrace) outside(b []byte) qlog.PacketHeader {
	h := qlog.PacketHeader{PacketNumber: noNumber}
	if !wire.IsLong(b[0]) {
		h.PacketType = qlog.PacketType1RTT
		if dst, ok := wire.DstConnID(b, q.c.transport.connIDLen); ok {
			h.DestConnectionID = ConnectionIDFromBytes(dst)
		}
		return h
	}
	l, err := wire.ParseLong(b)
	if err != nil {
		return h
	}
	h.PacketType = qlogPacketType(l.Type)
	h.Version = Version(l.Version)
	if len(l.Dst) <= maxConnIDLen && len(l.Src) <= maxConnIDLen {
		h.DestConnectionID, h.SrcConnectionID = ConnectionIDFromBytes(l.Dst), ConnectionIDFromBytes(l.Src)
	}
	if len(l.Token) > 0 {
		h.Token = &qlog.Token{Raw: bytes.Clone(l.Token)}
	}
	return h
}

// retried records the Retry that a client follows.
func (q *connTrace) retried(b []byte) {
	q.record(qlog.PacketReceived{Header: q.outside(b), Raw: qlog.RawInfo{Length: len(b), PayloadLength: qlog.OmitLength}})
}

// versionNegotiation records the Version Negotiation packet that a client follows.
func (q *connTrace) versionNegotiation(b []byte, versions []Version) {
	dst, src, _, _ := wire.ParseVersionNegotiation(b)
	q.record(qlog.VersionNegotiationReceived{
		Header:            qlog.PacketHeaderVersionNegotiation{SrcConnectionID: bytes.Clone(src), DestConnectionID: bytes.Clone(dst)},
		SupportedVersions: versions,
	})
}

// dropped records that a packet, whatever is known of it, is not looked at.
func (c *Conn) dropped(b []byte, why qlog.PacketDropReason) {
	if c.qlog != nil {
		c.qlog.dropped(b, noNumber, why)
	}
}

// dropped records that a packet, or the rest of a datagram, is not looked at. The number
// is noNumber if nobody knows it.
func (q *connTrace) dropped(b []byte, pn int64, why qlog.PacketDropReason) {
	h := q.outside(b)
	h.PacketNumber = qlog.PacketNumber(pn)
	h.Token = nil
	q.record(qlog.PacketDropped{Header: h, Raw: qlog.RawInfo{Length: len(b), PayloadLength: qlog.OmitLength}, Trigger: why})
}

// buffered records that a packet waits for its keys.
func (q *connTrace) buffered(b []byte) {
	h := q.outside(b)
	h.Token = nil
	q.record(qlog.PacketBuffered{Header: h, Raw: qlog.RawInfo{Length: len(b), PayloadLength: qlog.OmitLength}})
}

// messagesDropped records datagrams that nobody looked into.
func (q *connTrace) messagesDropped(ps []packet, why qlog.PacketDropReason) {
	for i := range ps {
		for b := ps[i].data; len(b) > 0; {
			n := min(ps[i].segment, len(b))
			q.dropped(b[:n], noNumber, why)
			b = b[n:]
		}
	}
}
