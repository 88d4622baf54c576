package quic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The same script on quic-go and on Volley gives events of the same kinds, but for the
// exceptions here.
func TestQlogHasTheEventsOfQUICGo(t *testing.T) {
	of := map[string]map[string]bool{} // side and stack → kinds
	for _, st := range []*stack{quicGoStack, volleyStack} {
		js := &journals{}
		conf := stackConfig{trace: js.tracer, ourTrace: js.tracer, datagrams: true}
		c, s := connectStacks(t, st, st, conf, conf)
		qlogScript(t, c, s)
		for side, client := range map[string]bool{"client": true, "server": false} {
			j := js.of(client)
			j.ended(t)
			of[side+" of "+st.name] = eventKinds(t, j.file.Bytes())
		}
	}
	for _, side := range []string{"client", "server"} {
		theirs, ours := of[side+" of quic-go"], of[side+" of volley"]
		if len(theirs) < 30 {
			t.Errorf("%d kinds of events only of quic-go's %s: %v", len(theirs), side, slices.Sorted(maps.Keys(theirs)))
		}
		for _, kind := range slices.Sorted(maps.Keys(theirs)) {
			if !ours[kind] && !excepted(kind, qlogByChance, qlogNotOfVolley) {
				t.Errorf("%s: missing %s", side, kind)
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(ours)) {
			if !theirs[kind] && !excepted(kind, qlogByChance, qlogNotOfQUICGo) {
				t.Errorf("%s: quic-go has no %s", side, kind)
			}
		}
	}
}

// The beginnings of kinds of events …
var (
	// … that there may be or not, as it happens.
	qlogByChance = []string{
		"recovery:packet_lost", "recovery:spurious_loss", "recovery:congestion_state_updated",
		"recovery:loss_timer_updated", "recovery:mtu_updated", "recovery:metrics_updated pto",
		"transport:packet_dropped", "transport:packet_buffered", "quic:datagram_dropped",
		// Some time after a key update, and quic-go makes its first one early.
		"security:key_discarded client_1rtt", "security:key_discarded server_1rtt",
		// Whether anything waits for credit is a matter of time, and so is what an ACK
		// rides on, and whether a 1-RTT ACK is needed before the end.
		"transport:packet_sent 1RTT data_blocked", "transport:packet_received 1RTT data_blocked",
		"transport:packet_sent 1RTT stream_data_blocked", "transport:packet_received 1RTT stream_data_blocked",
		"transport:packet_sent 1RTT max_", "transport:packet_received 1RTT max_",
		"transport:packet_sent 1RTT ping", "transport:packet_received 1RTT ping", // MTU probes
		"transport:packet_sent initial ping", "transport:packet_received initial ping", // PTO probes …
		"transport:packet_sent handshake ping", "transport:packet_received handshake ping",
		"transport:packet_sent handshake ack", "transport:packet_received handshake ack",
		"transport:packet_sent 1RTT ack", "transport:packet_received 1RTT ack",
	}
	qlogNotOfVolley = []string{
		"recovery:ecn_state_updated unknown", // Volley goes on marking until an answer comes, it has no such state
		// quic-go changes connection IDs now and then, Volley if there is a reason.
		"transport:packet_sent 1RTT retire_connection_id", "transport:packet_received 1RTT retire_connection_id",
	}
	qlogNotOfQUICGo = []string{
		"volley:", // flights, passes, source calls
		"transport:packet_sent 1RTT immediate_ack", "transport:packet_received 1RTT immediate_ack",
		"transport:packet_sent 1RTT ack_frequency", "transport:packet_received 1RTT ack_frequency",
	}
)

func excepted(kind string, lists ...[]string) bool {
	return slices.ContainsFunc(slices.Concat(lists...), func(begin string) bool { return strings.HasPrefix(kind, begin) })
}

// qlogScript has two sides exchange something of everything.
func qlogScript(t *testing.T, c, s stackConn) {
	t.Helper()
	ctx := interopContext(t)
	for _, way := range [][2]stackConn{{c, s}, {s, c}} {
		out, err := way[0].open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		setPriority(out)
		go func() {
			out.Write(make([]byte, 1<<20))
			out.closeWrite()
		}()
		in, err := way[1].accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, in); n != 1<<20 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		in.Write([]byte("thanks"))
		in.closeWrite()
		if b, err := io.ReadAll(out); string(b) != "thanks" || err != nil {
			t.Fatalf("answer %q, %v", b, err)
		}
		up, err := way[0].openUni(ctx)
		if err != nil {
			t.Fatal(err)
		}
		up.Write([]byte("for nobody"))
		down, err := way[1].acceptUni(ctx)
		if err != nil {
			t.Fatal(err)
		}
		down.Read(make([]byte, 4))
		up.reset(7)
		if _, err := io.ReadAll(down); err == nil {
			t.Fatal("no reset")
		}
		other, err := way[0].open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other.Write([]byte("stop"))
		that, err := way[1].accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		that.stop(8)
		<-endOf(other).Done()
		exchangeDatagram(t, way[0], way[1])
	}
	c.closeWith(5, "the end")
	s.wait(ctx)
}

func setPriority(s stackStream) {
	switch s := s.(type) {
	case volleyStream:
		s.SetPriority(2, false)
	case quicGoStream:
		s.send.(interface{ SetPriority(int8, bool) }).SetPriority(2, false)
	}
}

// endOf is done when the stream's sending side is over.
func endOf(s stackStream) context.Context {
	if s, ok := s.(quicGoStream); ok {
		return s.send.(interface{ Context() context.Context }).Context()
	}
	return s.(interface{ Context() context.Context }).Context()
}

func exchangeDatagram(t *testing.T, from, to stackConn) {
	t.Helper()
	type datagrams interface {
		SendDatagram([]byte) error
		ReceiveDatagram(context.Context) ([]byte, error)
	}
	if err := from.(datagrams).SendDatagram([]byte("unreliable")); err != nil {
		t.Fatal(err)
	}
	if b, err := to.(datagrams).ReceiveDatagram(interopContext(t)); string(b) != "unreliable" || err != nil {
		t.Fatalf("datagram %q, %v", b, err)
	}
}

// eventKinds are the names of a log's events, each with what tells kinds of it apart:
// packet and frame types, keys, states.
func eventKinds(t *testing.T, file []byte) map[string]bool {
	t.Helper()
	_, events := readLog(t, file)
	kinds := map[string]bool{}
	for _, e := range events {
		fields := into[map[string]json.RawMessage](t, e)
		kind := e.Name
		for _, name := range []string{"new", "initiator", "key_type", "direction", "event_type", "timer_type", "packet_number_space"} {
			var v string
			if json.Unmarshal(fields[name], &v) == nil && v != "" {
				kind += " " + v
			}
		}
		if e.Name == "recovery:metrics_updated" && fields["pto_count"] != nil {
			kind += " pto"
		}
		var h loggedHeader
		json.Unmarshal(fields["header"], &h)
		if h.Type != "" {
			kind += " " + h.Type
		}
		var frames []loggedFrame
		json.Unmarshal(fields["frames"], &frames)
		if len(frames) == 0 {
			kinds[kind] = true
		}
		for _, f := range frames {
			kinds[fmt.Sprint(kind, " ", f.Type)] = true
		}
	}
	return kinds
}
