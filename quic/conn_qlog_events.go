package quic

import (
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/qlogwriter/jsontext"

	"github.com/volley-quic/volley/emit"
)

// QlogEventSchema names the events that Volley adds to those of package qlog:
// [QlogPassPacked], [QlogFlightSent], [QlogSourceCalled] and [QlogPacketsRefused]. Their
// names begin with "volley:". Not in quic-go.
const QlogEventSchema = "https://github.com/volley-quic/volley#qlog-emission-00"

func init() { qlogwriter.RegisterEventSchema(QlogEventSchema) }

// QlogPassPacked is the qlog event of one pass over a stream: a contiguous run of its
// bytes that went into consecutive datagrams of the [QlogFlightSent] that follows. Not in
// quic-go.
type QlogPassPacked struct {
	StreamID StreamID
	Offset   int64     // in the stream
	Length   int       // bytes of the stream
	Slots    int       // STREAM frames, each in a datagram of its own
	Fin      bool      // the stream ends with it
	Lost     bool      // the bytes were sent before
	Probe    bool      // … and sent again on a probe timeout (RFC 9002 §6.2.4)
	Source   emit.Mode // in which they came from a source; Auto: they were written
}

// QlogFlightSent is the qlog event of one flight, which the system is given in one call:
// datagrams of one size, of which only the last may be shorter, each with one packet. An
// event qlog.PacketSent for each of them follows. Not in quic-go.
type QlogFlightSent struct {
	PacketType        qlog.PacketType
	FirstPacketNumber qlog.PacketNumber // the others follow
	Datagrams         int
	Length            int // bytes of UDP payload
	DatagramSize      int // bytes of every datagram but the last
	Passes            int // events QlogPassPacked before this one
	GSO               bool
	ECN               qlog.ECN
	IsMTUProbe        bool
}

// QlogSourceCalled is the qlog event of one call of the source of a SendFrom or ReadFrom.
// Not in quic-go.
type QlogSourceCalled struct {
	StreamID StreamID
	Offset   int64 // in the stream
	Asked    int   // bytes
	Answered int   // bytes that count
	Mode     emit.Mode
	Again    bool // the bytes were lost, and are asked for once more
}

// QlogPacketsRefused is the qlog event of packets that were recorded as sent and that the
// system refused as too large: they never left. Their content goes again in smaller ones,
// and their numbers are not used again. Not in quic-go.
type QlogPacketsRefused struct {
	PacketType  qlog.PacketType
	First, Last qlog.PacketNumber
}

// Name implements qlogwriter.Event.
func (QlogPassPacked) Name() string     { return "volley:pass_packed" }
func (QlogFlightSent) Name() string     { return "volley:flight_sent" }
func (QlogSourceCalled) Name() string   { return "volley:source_called" }
func (QlogPacketsRefused) Name() string { return "volley:packets_refused" }

// Encode implements qlogwriter.Event.
func (e QlogPassPacked) Encode(enc *jsontext.Encoder, _ time.Time) error {
	o := jsonObject{enc: enc}
	o.begin()
	o.int("stream_id", int64(e.StreamID))
	o.int("offset", e.Offset)
	o.int("length", int64(e.Length))
	o.int("slots", int64(e.Slots))
	o.flag("fin", e.Fin)
	o.flag("lost", e.Lost)
	o.flag("probe", e.Probe)
	if e.Source != emit.Auto {
		o.string("source", e.Source.String())
	}
	return o.end()
}

// Encode implements qlogwriter.Event.
func (e QlogFlightSent) Encode(enc *jsontext.Encoder, _ time.Time) error {
	o := jsonObject{enc: enc}
	o.begin()
	o.string("packet_type", string(e.PacketType))
	o.int("first_packet_number", int64(e.FirstPacketNumber))
	o.int("datagrams", int64(e.Datagrams))
	o.int("length", int64(e.Length))
	o.int("datagram_size", int64(e.DatagramSize))
	o.int("passes", int64(e.Passes))
	o.flag("gso", e.GSO)
	if e.ECN != qlog.ECNUnsupported {
		o.string("ecn", string(e.ECN))
	}
	o.flag("is_mtu_probe", e.IsMTUProbe)
	return o.end()
}

// Encode implements qlogwriter.Event.
func (e QlogSourceCalled) Encode(enc *jsontext.Encoder, _ time.Time) error {
	o := jsonObject{enc: enc}
	o.begin()
	o.int("stream_id", int64(e.StreamID))
	o.int("offset", e.Offset)
	o.int("asked", int64(e.Asked))
	o.int("answered", int64(e.Answered))
	o.string("mode", e.Mode.String())
	o.flag("again", e.Again)
	return o.end()
}

// Encode implements qlogwriter.Event.
func (e QlogPacketsRefused) Encode(enc *jsontext.Encoder, _ time.Time) error {
	o := jsonObject{enc: enc}
	o.begin()
	o.string("packet_type", string(e.PacketType))
	o.int("first_packet_number", int64(e.First))
	o.int("last_packet_number", int64(e.Last))
	return o.end()
}

// jsonObject writes one JSON object and remembers the first error.
type jsonObject struct {
	enc *jsontext.Encoder
	err error
}

func (o *jsonObject) token(t jsontext.Token) {
	if o.err == nil {
		o.err = o.enc.WriteToken(t)
	}
}

func (o *jsonObject) field(name string, value jsontext.Token) {
	o.token(jsontext.String(name))
	o.token(value)
}

func (o *jsonObject) begin()                    { o.token(jsontext.BeginObject) }
func (o *jsonObject) int(name string, n int64)  { o.field(name, jsontext.Int(n)) }
func (o *jsonObject) string(name, value string) { o.field(name, jsontext.String(value)) }

// flag leaves out what is not so.
func (o *jsonObject) flag(name string, set bool) {
	if set {
		o.field(name, jsontext.True)
	}
}

func (o *jsonObject) end() error {
	o.token(jsontext.EndObject)
	return o.err
}
