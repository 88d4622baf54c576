package quic

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/qlogwriter/jsontext"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

// Every frame is told with its name and its values.
func TestQlogFrames(t *testing.T) {
	token := [16]byte{0xab, 15: 0xcd}
	ms := time.Millisecond
	for _, tt := range []struct {
		frame wire.Frame
		want  string // "": nothing
	}{
		{wire.Padding{N: 3}, ""},
		{wire.Ping{}, `{"frame_type":"ping"}`},
		{wire.Ack{Ranges: []wire.AckRange{{Lo: 7, Hi: 9}, {Lo: 2, Hi: 2}}, Delay: 250, ECN: true, ECT0: 3, ECT1: 4, CE: 5},
			`{"frame_type":"ack","ack_delay":2,"acked_ranges":[[7,9],[2]],"ect0":3,"ect1":4,"ce":5}`},
		{wire.ResetStream{ID: 4, Code: 5, FinalSize: 6}, `{"frame_type":"reset_stream","stream_id":4,"error_code":5,"final_size":6}`},
		{wire.ResetStreamAt{ID: 4, Code: 5, FinalSize: 6, ReliableSize: 3}, `{"frame_type":"reset_stream_at","stream_id":4,"error_code":5,"final_size":6,"reliable_size":3}`},
		{wire.StopSending{ID: 8, Code: 9}, `{"frame_type":"stop_sending","stream_id":8,"error_code":9}`},
		{wire.Crypto{Off: 10, Data: []byte("hello")}, `{"frame_type":"crypto","offset":10,"length":5}`},
		{wire.NewToken{Token: []byte{1, 2}}, `{"frame_type":"new_token","token":{"raw":{"data":"0102"}}}`},
		{wire.Stream{ID: 3, Off: 70, Data: []byte("data"), Fin: true, HasLen: true}, `{"frame_type":"stream","stream_id":3,"offset":70,"length":4,"fin":true}`},
		{wire.Stream{ID: 3, HasLen: true}, `{"frame_type":"stream","stream_id":3,"offset":0,"length":0}`},
		{wire.MaxData{Max: 11}, `{"frame_type":"max_data","maximum":11}`},
		{wire.MaxStreamData{ID: 1, Max: 12}, `{"frame_type":"max_stream_data","stream_id":1,"maximum":12}`},
		{wire.MaxStreams{Max: 13}, `{"frame_type":"max_streams","stream_type":"bidirectional","maximum":13}`},
		{wire.MaxStreams{Uni: true, Max: 14}, `{"frame_type":"max_streams","stream_type":"unidirectional","maximum":14}`},
		{wire.DataBlocked{Max: 15}, `{"frame_type":"data_blocked","limit":15}`},
		{wire.StreamDataBlocked{ID: 2, Max: 16}, `{"frame_type":"stream_data_blocked","stream_id":2,"limit":16}`},
		{wire.StreamsBlocked{Max: 17}, `{"frame_type":"streams_blocked","stream_type":"bidirectional","limit":17}`},
		{wire.StreamsBlocked{Uni: true, Max: 18}, `{"frame_type":"streams_blocked","stream_type":"unidirectional","limit":18}`},
		{wire.NewConnectionID{Seq: 5, RetirePriorTo: 2, ID: []byte{9, 8}, ResetToken: token},
			`{"frame_type":"new_connection_id","sequence_number":5,"retire_prior_to":2,"connection_id":"0908","stateless_reset_token":"ab0000000000000000000000000000cd"}`},
		{wire.RetireConnectionID{Seq: 19}, `{"frame_type":"retire_connection_id","sequence_number":19}`},
		{wire.PathChallenge{Data: [8]byte{1}}, `{"frame_type":"path_challenge","data":"0100000000000000"}`},
		{wire.PathResponse{Data: [8]byte{2}}, `{"frame_type":"path_response","data":"0200000000000000"}`},
		{wire.ConnectionClose{Code: uint64(wire.FlowControlError), FrameType: wire.FrameCrypto, Reason: []byte("why")},
			`{"frame_type":"connection_close","error_space":"transport","error":"flow_control_error","reason":"why","trigger_frame_type":"crypto"}`},
		{wire.ConnectionClose{App: true, Code: 20, Reason: []byte("bye")},
			`{"frame_type":"connection_close","error_space":"application","error":"unknown","error_code":20,"reason":"bye"}`},
		{wire.HandshakeDone{}, `{"frame_type":"handshake_done"}`},
		{wire.Datagram{Data: []byte("abc"), HasLen: true}, `{"frame_type":"datagram","length":3}`},
		{wire.AckFrequency{Seq: 1, Threshold: 2, MaxDelay: 3000, Reordering: 4},
			`{"frame_type":"ack_frequency","sequence_number":1,"ack_eliciting_threshold":2,"request_max_ack_delay":3,"reordering_threshold":4}`},
		{wire.ImmediateAck{}, `{"frame_type":"immediate_ack"}`},
	} {
		b := tt.frame.Append(nil)
		frames := qlogFrames(b, 3)
		clear(b) // as if it were encrypted now
		got := ""
		for _, f := range frames {
			got += encode(t, f.Encode)
		}
		if !sameJSON(got, tt.want) {
			t.Errorf("%v is\n%s, want\n%s", tt.frame, got, tt.want)
		}
	}
	// Frames follow each other, and what is none ends them.
	b := wire.Ping{}.Append(wire.Padding{N: 2}.Append(wire.MaxData{Max: 1}.Append(nil)))
	if fs := qlogFrames(append(b, 0x3f), 3); len(fs) != 2 {
		t.Errorf("frames %v", fs)
	}
	if d := qlogFrame(wire.Ack{Ranges: []wire.AckRange{{}}, Delay: 1000}, 0).(*qlog.AckFrame).DelayTime; d != ms {
		t.Errorf("delay %v", d)
	}
}

// Volley's own events.
func TestQlogOwnEvents(t *testing.T) {
	for _, tt := range []struct {
		event qlogwriter.Event
		name  string
		want  string
	}{
		{QlogPassPacked{StreamID: 4, Offset: 5, Length: 6, Slots: 7}, "volley:pass_packed",
			`{"stream_id":4,"offset":5,"length":6,"slots":7}`},
		{QlogPassPacked{StreamID: 4, Slots: 1, Fin: true, Lost: true, Probe: true, Source: emit.Lend}, "volley:pass_packed",
			`{"stream_id":4,"offset":0,"length":0,"slots":1,"fin":true,"lost":true,"probe":true,"source":"` + emit.Lend.String() + `"}`},
		{QlogFlightSent{PacketType: qlog.PacketType1RTT, FirstPacketNumber: 1, Datagrams: 2, Length: 3, DatagramSize: 4, Passes: 5, GSO: true, ECN: qlog.ECT0}, "volley:flight_sent",
			`{"packet_type":"1RTT","first_packet_number":1,"datagrams":2,"length":3,"datagram_size":4,"passes":5,"gso":true,"ecn":"ECT(0)"}`},
		{QlogFlightSent{PacketType: qlog.PacketType0RTT, IsMTUProbe: true}, "volley:flight_sent",
			`{"packet_type":"0RTT","first_packet_number":0,"datagrams":0,"length":0,"datagram_size":0,"passes":0,"is_mtu_probe":true}`},
		{QlogSourceCalled{StreamID: 1, Offset: 2, Asked: 3, Answered: 4, Mode: emit.Vector, Again: true}, "volley:source_called",
			`{"stream_id":1,"offset":2,"asked":3,"answered":4,"mode":"` + emit.Vector.String() + `","again":true}`},
		{QlogPacketsRefused{qlog.PacketType1RTT, 5, 6}, "volley:packets_refused",
			`{"packet_type":"1RTT","first_packet_number":5,"last_packet_number":6}`},
	} {
		got := encode(t, func(enc *jsontext.Encoder) error { return tt.event.Encode(enc, time.Time{}) })
		if tt.event.Name() != tt.name || !sameJSON(got, tt.want) {
			t.Errorf("%s %s, want %s %s", tt.event.Name(), got, tt.name, tt.want)
		}
	}
}

// The values that qlog does not export are what it takes them for.
func TestQlogValues(t *testing.T) {
	for level, want := range map[qlog.EncryptionLevel]qlog.PacketType{
		levelInitial: qlog.PacketTypeInitial, levelHandshake: qlog.PacketTypeHandshake,
		level0RTT: qlog.PacketType0RTT, level1RTT: qlog.PacketType1RTT,
	} {
		if got := qlog.EncryptionLevelToPacketType(level); got != want {
			t.Errorf("level %v is %s, want %s", level, got, want)
		}
	}
	for sp, want := range map[recovery.Space]string{recovery.Initial: "initial", recovery.Handshake: "handshake", recovery.App: "application_data"} {
		e := qlog.TimerUpdated{Type: qlog.TimerEventTypeExpired, EncLevel: levels[sp]}
		if got := encode(t, func(enc *jsontext.Encoder) error { return e.Encode(enc, time.Time{}) }); !strings.Contains(got, `"packet_number_space":"`+want+`"`) {
			t.Errorf("space %d is %s", sp, got)
		}
	}
	// Only a server's parameters tell the original ID.
	for sentBy, want := range map[int]bool{sentByServer: true, sentByClient: false} {
		e := qlog.ParametersSet{}
		setInt(&e.SentBy, sentBy)
		set(&e.MaxDatagramFrameSize, noLimit)
		got := encode(t, func(enc *jsontext.Encoder) error { return e.Encode(enc, time.Time{}) })
		if strings.Contains(got, "original_destination") != want || strings.Contains(got, "max_datagram_frame_size") {
			t.Errorf("sent by %d: %s", sentBy, got)
		}
	}
	e := qlog.PacketDropped{Header: qlog.PacketHeader{PacketType: qlog.PacketType1RTT, PacketNumber: noNumber}}
	if got := encode(t, func(enc *jsontext.Encoder) error { return e.Encode(enc, time.Time{}) }); strings.Contains(got, "packet_number") {
		t.Errorf("packet without a number: %s", got)
	}
	for ecn, want := range map[udp.ECN]qlog.ECN{udp.NotECT: qlog.ECNUnsupported, udp.ECT0: qlog.ECT0, udp.ECT1: qlog.ECT1, udp.CE: qlog.ECNCE} {
		if got := qlogECN(ecn); got != want {
			t.Errorf("mark %d is %q", ecn, got)
		}
	}
}

func setInt[T ~int](field *T, n int) { *field = T(n) }

// encode is what f writes.
func encode(t *testing.T, f func(*jsontext.Encoder) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(jsontext.NewEncoder(&b)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func sameJSON(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
