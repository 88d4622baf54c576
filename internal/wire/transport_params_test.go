package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/quicvarint"
)

func (r random) transportParams(server bool) *TransportParams {
	p := &TransportParams{
		InitialSrc:                     r.bytes(0, MaxConnIDLen),
		MaxIdleTimeout:                 time.Duration(r.upTo(int64(maxIdleMillis))) * time.Millisecond,
		MaxUDPPayload:                  max(minMaxUDPPayload, r.int63()),
		InitialMaxData:                 r.int63(),
		InitialMaxStreamDataBidiLocal:  r.int63(),
		InitialMaxStreamDataBidiRemote: r.int63(),
		InitialMaxStreamDataUni:        r.int63(),
		InitialMaxStreamsBidi:          r.upTo(MaxStreamCount),
		InitialMaxStreamsUni:           r.upTo(MaxStreamCount),
		AckDelayExponent:               int(r.upTo(maxAckDelayExponent)),
		MaxAckDelay:                    time.Duration(r.upTo(maxMaxAckDelayMillis)) * time.Millisecond,
		DisableActiveMigration:         r.bool(),
		ActiveConnIDLimit:              max(minActiveConnIDLimit, r.int63()),
		MaxDatagramFrame:               r.int63(),
		ResetStreamAt:                  r.bool(),
		GreaseQUICBit:                  r.bool(),
	}
	if r.bool() {
		d := time.Duration(r.upTo(int64(p.MaxAckDelay/time.Microsecond))) * time.Microsecond
		p.MinAckDelay = &d
	}
	if r.bool() {
		v := &VersionInformation{Chosen: 1 + r.Uint32N(1<<31)}
		v.Available = []uint32{1 + r.Uint32N(1<<31), v.Chosen}
		p.VersionInformation = v
	}
	if !server {
		return p
	}
	p.OriginalDst = r.bytes(0, MaxConnIDLen)
	if r.bool() {
		p.RetrySrc = r.bytes(0, MaxConnIDLen)
	}
	if r.bool() {
		p.StatelessResetToken = new([16]byte)
		r.fill(p.StatelessResetToken[:])
	}
	if r.bool() && len(p.InitialSrc) > 0 {
		a := &PreferredAddress{ConnID: r.bytes(1, MaxConnIDLen)}
		r.fill(a.ResetToken[:])
		if r.bool() {
			ip, _ := netip.AddrFromSlice(append(r.bytes(3, 3), 1))
			a.IPv4 = netip.AddrPortFrom(ip, 443)
		}
		if r.bool() {
			ip, _ := netip.AddrFromSlice(append(r.bytes(15, 15), 1))
			a.IPv6 = netip.AddrPortFrom(ip, 8443)
		}
		p.PreferredAddress = a
	}
	return p
}

func TestTransportParamsRoundTrip(t *testing.T) {
	r := newRandom(t)
	for range 1000 {
		for _, server := range []bool{false, true} {
			p := r.transportParams(server)
			b := p.Append([]byte("before"))[6:]
			got, err := ParseTransportParams(b, server)
			if err != nil {
				t.Fatalf("server %t, %+v: %v", server, p, err)
			}
			if !reflect.DeepEqual(got, p) {
				t.Fatalf("server %t:\nwritten %+v\nread    %+v", server, p, got)
			}
			clear(b)
			if !reflect.DeepEqual(got, p) {
				t.Fatal("the parsed parameters alias their encoding")
			}
		}
	}
}

// Encodings of the parameters that each endpoint must send.
var (
	clientMust = param(paramInitialSrc, "c0")
	serverMust = param(paramInitialSrc, "c1") + param(paramOriginalDst, "c2c3")
)

// param is a parameter in hexadecimal; so is value.
func param(id uint64, value string) string {
	b := quicvarint.Append(nil, id)
	b = quicvarint.Append(b, uint64(len(value)/2))
	return fmt.Sprintf("%x%s", b, value)
}

// intParam is an integer parameter in hexadecimal.
func intParam(id, v uint64) string { return param(id, fmt.Sprintf("%x", quicvarint.Append(nil, v))) }

func TestAbsentTransportParams(t *testing.T) {
	p, err := ParseTransportParams(unhex(t, serverMust), true)
	if err != nil {
		t.Fatal(err)
	}
	want := &TransportParams{
		InitialSrc:        []byte{0xc1},
		OriginalDst:       []byte{0xc2, 0xc3},
		MaxUDPPayload:     65527,
		AckDelayExponent:  3,
		MaxAckDelay:       25 * time.Millisecond,
		ActiveConnIDLimit: 2,
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if b := p.Append(nil); len(b) != len(serverMust)/2 {
		t.Errorf("defaults are written: %x", b)
	}
}

func TestZeroLengthConnectionIDIsNotAbsence(t *testing.T) {
	b := (&TransportParams{InitialSrc: []byte{}, OriginalDst: []byte{}, RetrySrc: []byte{}}).Append(nil)
	p, err := ParseTransportParams(b, true)
	if err != nil || p.InitialSrc == nil || p.OriginalDst == nil || p.RetrySrc == nil {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestTransportParamLimits(t *testing.T) {
	token := strings.Repeat("ab", 16)
	id20, id21 := strings.Repeat("aa", 20), strings.Repeat("aa", 21)
	address := func(ids string) string { return "0a000001" + "01bb" + strings.Repeat("00", 18) + ids + token }
	for _, tt := range []struct {
		what       string
		fromServer bool
		hex        string
		ok         bool
	}{
		{"a client's minimum", false, clientMust, true},
		{"a server's minimum", true, serverMust, true},
		{"client without initial_source_connection_id", false, "", false},
		{"server without initial_source_connection_id", true, param(paramOriginalDst, "c2"), false},
		{"server without original_destination_connection_id", true, clientMust, false},

		{"client sends original_destination_connection_id", false, serverMust, false},
		{"client sends stateless_reset_token", false, clientMust + param(paramStatelessResetToken, token), false},
		{"client sends preferred_address", false, clientMust + param(paramPreferredAddress, address("01aa")), false},
		{"client sends retry_source_connection_id", false, clientMust + param(paramRetrySrc, "aa"), false},
		{"server sends all four", true, serverMust + param(paramStatelessResetToken, token) +
			param(paramPreferredAddress, address("01aa")) + param(paramRetrySrc, "aa"), true},

		{"20-byte connection IDs", true, param(paramInitialSrc, id20) + param(paramOriginalDst, id20) + param(paramRetrySrc, id20), true},
		{"21-byte initial_source_connection_id", false, param(paramInitialSrc, id21), false},
		{"21-byte original_destination_connection_id", true, clientMust + param(paramOriginalDst, id21), false},
		{"21-byte retry_source_connection_id", true, serverMust + param(paramRetrySrc, id21), false},

		{"15-byte stateless_reset_token", true, serverMust + param(paramStatelessResetToken, token[2:]), false},
		{"17-byte stateless_reset_token", true, serverMust + param(paramStatelessResetToken, token+"00"), false},

		{"max_udp_payload_size 1199", false, clientMust + intParam(paramMaxUDPPayload, 1199), false},
		{"max_udp_payload_size 1200", false, clientMust + intParam(paramMaxUDPPayload, 1200), true},
		{"max_udp_payload_size 2^62-1", false, clientMust + intParam(paramMaxUDPPayload, MaxVarint), true},
		{"max_idle_timeout 2^62-1", false, clientMust + intParam(paramMaxIdleTimeout, MaxVarint), true},
		{"initial_max_data 2^62-1", false, clientMust + intParam(paramMaxData, MaxVarint), true},
		{"initial_max_streams_bidi 2^60", false, clientMust + intParam(paramMaxStreamsBidi, 1<<60), true},
		{"initial_max_streams_bidi 2^60+1", false, clientMust + intParam(paramMaxStreamsBidi, 1<<60+1), false},
		{"initial_max_streams_uni 2^60", false, clientMust + intParam(paramMaxStreamsUni, 1<<60), true},
		{"initial_max_streams_uni 2^60+1", false, clientMust + intParam(paramMaxStreamsUni, 1<<60+1), false},
		{"ack_delay_exponent 20", false, clientMust + intParam(paramAckDelayExponent, 20), true},
		{"ack_delay_exponent 21", false, clientMust + intParam(paramAckDelayExponent, 21), false},
		{"max_ack_delay 2^14-1", false, clientMust + intParam(paramMaxAckDelay, 1<<14-1), true},
		{"max_ack_delay 2^14", false, clientMust + intParam(paramMaxAckDelay, 1<<14), false},
		{"active_connection_id_limit 1", false, clientMust + intParam(paramActiveConnIDLimit, 1), false},
		{"active_connection_id_limit 2", false, clientMust + intParam(paramActiveConnIDLimit, 2), true},

		{"disable_active_migration with a value", false, clientMust + param(paramDisableActiveMigration, "00"), false},
		{"reset_stream_at with a value", false, clientMust + param(paramResetStreamAt, "00"), false},
		{"reset_stream_at as of old with a value", false, clientMust + param(paramOldResetStreamAt, "00"), false},
		{"reset_stream_at in both codepoints", false, clientMust + param(paramResetStreamAt, "") + param(paramOldResetStreamAt, ""), true},
		{"reset_stream_at twice", false, clientMust + param(paramResetStreamAt, "") + param(paramResetStreamAt, ""), false},
		{"grease_quic_bit with a value", false, clientMust + param(paramGreaseQUICBit, "00"), false},

		{"preferred_address with a 20-byte ID", true, serverMust + param(paramPreferredAddress, address("14"+id20)), true},
		{"preferred_address with an empty ID", true, serverMust + param(paramPreferredAddress, address("00")), false},
		{"preferred_address with a 21-byte ID", true, serverMust + param(paramPreferredAddress, address("15"+id21)), false},
		{"preferred_address cut off", true, serverMust + param(paramPreferredAddress, address("01aa")[2:]), false},
		{"preferred_address with more behind it", true, serverMust + param(paramPreferredAddress, address("01aa")+"00"), false},
		{"preferred_address cut off in the address", true, serverMust + param(paramPreferredAddress, "0a0000"), false},
		{"preferred_address of a server with an empty ID", true,
			param(paramInitialSrc, "") + param(paramOriginalDst, "c2") + param(paramPreferredAddress, address("01aa")), false},

		{"min_ack_delay up to the default max_ack_delay", false, clientMust + intParam(paramMinAckDelay, 25000), true},
		{"min_ack_delay over the default max_ack_delay", false, clientMust + intParam(paramMinAckDelay, 25001), false},
		{"min_ack_delay before a larger max_ack_delay", false, clientMust + intParam(paramMinAckDelay, 30000) + intParam(paramMaxAckDelay, 30), true},
		{"min_ack_delay over a smaller max_ack_delay", false, clientMust + intParam(paramMinAckDelay, 3000) + intParam(paramMaxAckDelay, 2), false},
		{"min_ack_delay 2^62-1", false, clientMust + intParam(paramMinAckDelay, MaxVarint), false},

		{"version_information", false, clientMust + param(paramVersionInformation, "00000001"+"6b3343cf00000001"), true},
		{"version_information, empty", false, clientMust + param(paramVersionInformation, ""), false},
		{"version_information, half a version", false, clientMust + param(paramVersionInformation, "00000001"+"000000016b33"), false},
		{"version_information, chosen 0", true, serverMust + param(paramVersionInformation, "00000000"+"00000001"), false},
		{"version_information, available 0", true, serverMust + param(paramVersionInformation, "00000001"+"00000000"), false},
		{"version_information, server lists nothing", true, serverMust + param(paramVersionInformation, "00000001"), true},
		{"version_information, client chose what it does not list", false, clientMust + param(paramVersionInformation, "00000001"+"6b3343cf"), false},

		{"integer longer than its length", false, clientMust + "040140", false},
		{"integer shorter than its length", false, clientMust + param(paramMaxData, "0000"), false},
		{"integer without bytes", false, clientMust + param(paramMaxData, ""), false},
		{"integer not in its shortest form", false, clientMust + param(paramMaxData, "4001"), true},

		{"a known parameter twice", false, clientMust + clientMust, false},
		{"an unknown parameter", false, clientMust + param(31*7+27, "0102"), true},
		{"an unknown parameter twice", false, clientMust + param(31*7+27, "") + param(31*7+27, ""), false},
		{"half an identifier", false, clientMust + "40", false},
		{"no length", false, clientMust + "04", false},
		{"a value beyond the end", false, clientMust + "040201", false},
		{"a length of 2^62-1", false, clientMust + "04ffffffffffffffff", false},
	} {
		p, err := ParseTransportParams(unhex(t, tt.hex), tt.fromServer)
		if tt.ok {
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			continue
		}
		if p != nil {
			t.Errorf("%s: got %+v", tt.what, p)
		}
		wantCode(t, tt.what, err, TransportParameterError)
	}
}

// Version 08 of the draft has a codepoint of its own; peers know one of the two, or both.
func TestResetStreamAtHasTwoCodepoints(t *testing.T) {
	const now, before = "1d00", "c017f7586d2cb57100"
	b := (&TransportParams{InitialSrc: []byte{0xc0}, ResetStreamAt: true}).Append(nil)
	for _, said := range []string{now, before} {
		if !bytes.Contains(b, unhex(t, said)) {
			t.Errorf("%x does not say %s", b, said)
		}
		if p, err := ParseTransportParams(unhex(t, clientMust+said), false); err != nil || !p.ResetStreamAt {
			t.Errorf("%s is read as %+v, %v", said, p, err)
		}
	}
}

func TestIdleTimeoutDoesNotOverflow(t *testing.T) {
	p, err := ParseTransportParams(unhex(t, clientMust+intParam(paramMaxIdleTimeout, MaxVarint)), false)
	if err != nil || p.MaxIdleTimeout < 292*365*24*time.Hour {
		t.Errorf("got %v, %v", p.MaxIdleTimeout, err)
	}
}

func TestPreferredAddressOfOneFamily(t *testing.T) {
	a := &PreferredAddress{
		IPv6:       netip.MustParseAddrPort("[2001:db8::1]:443"),
		ConnID:     []byte{1, 2, 3},
		ResetToken: [16]byte{9},
	}
	b := (&TransportParams{InitialSrc: []byte{1}, OriginalDst: []byte{2}, PreferredAddress: a}).Append(nil)
	if !bytes.Contains(b, append(make([]byte, 6), 0x20, 0x01, 0x0d, 0xb8)) {
		t.Errorf("RFC 9000 §18.2: the other family is 0.0.0.0:0, got %x", b)
	}
	p, err := ParseTransportParams(b, true)
	if err != nil || !reflect.DeepEqual(p.PreferredAddress, a) {
		t.Errorf("got %+v, %v", p.PreferredAddress, err)
	}
}

func TestPreferredAddressWithoutPortIsNone(t *testing.T) {
	value := "0a000001" + "0000" + strings.Repeat("00", 16) + "01bb" + "01aa" + strings.Repeat("00", 16)
	p, err := ParseTransportParams(unhex(t, serverMust+param(paramPreferredAddress, value)), true)
	if err != nil || p.PreferredAddress.IPv4.IsValid() || p.PreferredAddress.IPv6.IsValid() {
		t.Errorf("got %+v, %v", p.PreferredAddress, err)
	}
}
