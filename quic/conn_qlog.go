package quic

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/volley-quic/volley/internal/wire"
)

// connTrace tells a connection's qlog what happens. A connection that is not traced has
// none, and pays for that with a comparison for each flight, pass and batch of packets
// received.
//
// Events of which the order matters are recorded with the connection's mutex held: a
// Recorder is the one piece of the application's code that may run under it. The trace's
// own mutex keeps RecordEvent and Close apart, and is a leaf.
type connTrace struct {
	c     *Conn
	trace qlogwriter.Trace

	mu  sync.Mutex
	rec qlogwriter.Recorder // nil: closed

	// What was told last. The connection's mutex guards it.
	metrics   qlog.MetricsUpdated
	ptos      int
	timer     lossTimer
	ecn       qlog.ECNState
	mtu       qlog.MTUUpdated
	keys      keyPhases
	lastEarly int64 // largest number of a 0-RTT packet sent, -1: none
	tuples    int   // paths that were given a number
}

// startTrace asks the application for a trace.
func (c *Conn) startTrace(p *connParams) {
	if p.config.Tracer == nil {
		return
	}
	trace := p.config.Tracer(p.ctx, p.isClient, p.origDst)
	if trace == nil {
		return
	}
	c.qlog = &connTrace{c: c, trace: trace, rec: trace.AddProducer(), lastEarly: -1}
	local, remote := endpoints(c.LocalAddr(), p.remote)
	c.qlog.record(qlog.StartedConnection{Local: local, Remote: remote})
}

// record hands an event to the recorder.
func (q *connTrace) record(e qlogwriter.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rec != nil {
		q.rec.RecordEvent(e)
	}
}

// end closes the recorder. What happens later is not told.
func (q *connTrace) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rec != nil {
		q.rec.Close()
		q.rec = nil
	}
}

// state records how far the connection is.
func (q *connTrace) state(s qlog.ConnectionState) { q.record(qlog.ConnectionStateUpdated{State: s}) }

// closed records why the connection is over.
func (q *connTrace) closed(err error) {
	e := qlog.ConnectionClosed{Initiator: qlog.InitiatorLocal}
	var app *ApplicationError
	var transport *TransportError
	switch {
	case errors.As(err, new(*IdleTimeoutError)), errors.As(err, new(*HandshakeTimeoutError)):
		e.Trigger = qlog.ConnectionCloseTriggerIdleTimeout
	case errors.As(err, new(*StatelessResetError)):
		e.Trigger, e.Initiator = qlog.ConnectionCloseTriggerStatelessReset, qlog.InitiatorRemote
	case errors.As(err, new(*VersionNegotiationError)), errors.As(err, new(*errRecreate)):
		e.Trigger = qlog.ConnectionCloseTriggerVersionMismatch
	case errors.As(err, &app):
		e.ApplicationError, e.Reason = &app.ErrorCode, app.ErrorMessage
		if app.Remote {
			e.Initiator = qlog.InitiatorRemote
		}
	case errors.As(err, &transport):
		e.ConnectionError, e.Reason = &transport.ErrorCode, transport.ErrorMessage
		if transport.Remote {
			e.Initiator = qlog.InitiatorRemote
		}
	}
	q.record(e)
	q.state(qlog.ConnectionStateClosed)
}

// firstPacket records what is known with the first authentic packet.
func (q *connTrace) firstPacket() {
	c := q.c
	if !c.negotiated {
		e := qlog.VersionInformation{ChosenVersion: c.version}
		if c.isClient {
			e.ClientVersions = c.config.Versions
		} else {
			e.ServerVersions = c.config.Versions
		}
		q.record(e)
	}
	if !c.isClient {
		q.state(qlog.ConnectionStateAttempted)
	}
}

// parameters records transport parameters, ours or the peer's.
func (q *connTrace) parameters(p *wire.TransportParams, ours bool) {
	e := qlog.ParametersSet{
		Initiator:                       qlog.InitiatorRemote,
		SentBy:                          sentByServer,
		OriginalDestinationConnectionID: ConnectionIDFromBytes(p.OriginalDst),
		InitialSourceConnectionID:       ConnectionIDFromBytes(p.InitialSrc),
		DisableActiveMigration:          p.DisableActiveMigration,
		MaxIdleTimeout:                  p.MaxIdleTimeout,
		AckDelayExponent:                uint8(p.AckDelayExponent),
		MaxAckDelay:                     p.MaxAckDelay,
		ActiveConnectionIDLimit:         uint64(p.ActiveConnIDLimit),
		InitialMaxStreamsBidi:           p.InitialMaxStreamsBidi,
		InitialMaxStreamsUni:            p.InitialMaxStreamsUni,
		EnableResetStreamAt:             p.ResetStreamAt,
	}
	if ours {
		e.Initiator = qlog.InitiatorLocal
	}
	if ours == q.c.isClient {
		e.SentBy = sentByClient
	}
	if p.RetrySrc != nil {
		e.RetrySourceConnectionID = ConnectionIDFromBytes(p.RetrySrc)
	}
	if p.StatelessResetToken != nil {
		setToken(&e.StatelessResetToken, *p.StatelessResetToken)
	}
	set(&e.MaxUDPPayloadSize, p.MaxUDPPayload)
	set(&e.InitialMaxData, p.InitialMaxData)
	set(&e.InitialMaxStreamDataBidiLocal, p.InitialMaxStreamDataBidiLocal)
	set(&e.InitialMaxStreamDataBidiRemote, p.InitialMaxStreamDataBidiRemote)
	set(&e.InitialMaxStreamDataUni, p.InitialMaxStreamDataUni)
	set(&e.MaxDatagramFrameSize, orNone(p.MaxDatagramFrame))
	if a := p.PreferredAddress; a != nil {
		e.PreferredAddress = &qlog.PreferredAddress{
			IPv4: a.IPv4, IPv6: a.IPv6,
			ConnectionID:        ConnectionIDFromBytes(a.ConnID),
			StatelessResetToken: a.ResetToken,
		}
	}
	q.record(e)
}

// restored records the parameters that 0-RTT data relies on.
func (q *connTrace) restored(p *wire.TransportParams) {
	e := qlog.ParametersRestored{
		ActiveConnectionIDLimit: uint64(p.ActiveConnIDLimit),
		InitialMaxStreamsBidi:   p.InitialMaxStreamsBidi,
		InitialMaxStreamsUni:    p.InitialMaxStreamsUni,
		EnableResetStreamAt:     p.ResetStreamAt,
	}
	set(&e.InitialMaxData, p.InitialMaxData)
	set(&e.InitialMaxStreamDataBidiLocal, p.InitialMaxStreamDataBidiLocal)
	set(&e.InitialMaxStreamDataBidiRemote, p.InitialMaxStreamDataBidiRemote)
	set(&e.InitialMaxStreamDataUni, p.InitialMaxStreamDataUni)
	set(&e.MaxDatagramFrameSize, orNone(p.MaxDatagramFrame))
	q.record(e)
}

// tuple is the name of a path: "" is the one in use, whichever that is. The mutex is held.
func (q *connTrace) tuple(p *path) string {
	if p == nil || p == q.c.paths.active {
		return ""
	}
	if p.tuple == 0 {
		q.tuples++
		p.tuple = q.tuples
		q.assigned(strconv.Itoa(p.tuple), p)
	}
	return strconv.Itoa(p.tuple)
}

func (q *connTrace) assigned(id string, p *path) {
	socket := p.transport.Conn.LocalAddr()
	if u, ok := socket.(*net.UDPAddr); ok && p.local.IsValid() {
		socket = &net.UDPAddr{IP: p.local.AsSlice(), Port: u.Port}
	}
	local, remote := endpoints(socket, p.addr)
	q.record(qlog.TupleAssigned{TupleID: id, Local: local, Remote: remote})
}

// moved records that the path in use is another one. The mutex is held.
func (q *connTrace) moved(from *path) {
	q.tuple(from)
	q.assigned("", q.c.paths.active)
}

// priority records that the application has changed a stream's.
func (q *connTrace) priority(id StreamID, urgency int8, incremental bool) {
	q.record(qlog.StreamPriorityUpdated{StreamID: id, Urgency: urgency, Incremental: incremental})
}

// datagramDropped records a message that is not sent, or not delivered.
func (q *connTrace) datagramDropped(d qlog.Direction, n int, why string) {
	q.record(qlog.DatagramDropped{
		Direction: d,
		Raw:       qlog.RawInfo{Length: n, PayloadLength: qlog.OmitLength},
		Trigger:   why,
	})
}

// Values of types of quic-go's that have no exported name. A test holds them against
// what qlog makes of them.
const (
	sentByServer = 1
	sentByClient = 2

	kindUni  = 0
	kindBidi = 1

	noNumber = -1 // of a packet
	noLimit  = -1 // … of bytes
)

// orNone is a limit as qlog wants it, where 0 would be told as a limit of 0.
func orNone(n int64) int64 {
	if n == 0 {
		return noLimit
	}
	return n
}

// set stores a number in a field whose type has no exported name.
func set[T ~int64](field *T, n int64) { *field = T(n) }

func setToken[T ~[16]byte](field **T, token [16]byte) {
	t := T(token)
	*field = &t
}

// endpoints are the two ends of a path. A socket that listens on all addresses says so, in
// the family of the peer's.
func endpoints(local, remote net.Addr) (ours, theirs qlog.TupleEndpointInfo) {
	l, r := addrPort(local), addrPort(remote)
	if l.IsValid() && r.IsValid() && l.Addr().IsUnspecified() {
		any := netip.IPv6Unspecified()
		if r.Addr().Is4() {
			any = netip.IPv4Unspecified()
		}
		l = netip.AddrPortFrom(any, l.Port())
	}
	return endpoint(l), endpoint(r)
}

// addrPort is the address of a UDP socket, invalid for any other.
func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func endpoint(a netip.AddrPort) (e qlog.TupleEndpointInfo) {
	switch {
	case a.Addr().Is4():
		e.IPv4 = a
	case a.IsValid():
		e.IPv6 = a
	}
	return e
}
