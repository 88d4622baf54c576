package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLongHeaderRoundTrip(t *testing.T) {
	r := newRandom(t)
	for range 200 {
		typ := []PacketType{Initial, ZeroRTT, Handshake}[r.IntN(3)]
		version := []uint32{Version1, Version2}[r.IntN(2)]
		dst, src := r.bytes(0, MaxConnIDLen), r.bytes(0, MaxConnIDLen)
		var token []byte
		if typ == Initial {
			token = r.bytes(0, 100)
		}
		pn, pnLen := r.int63(), 1+r.IntN(4)
		payload := r.bytes(20, 1200)
		b := AppendLong([]byte("before"), typ, version, dst, src, token, pnLen+len(payload), pn, pnLen)[6:]
		if want := LongHeaderLen(typ, len(dst), len(src), len(token), pnLen); len(b) != want {
			t.Fatalf("%v: %d bytes written, LongHeaderLen is %d", typ, len(b), want)
		}
		pnEnd := len(b)
		b = append(b, payload...)
		whole := len(b)
		b = append(b, r.bytes(0, 100)...) // a coalesced packet

		h, err := ParseLong(b)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		if h.Type != typ || h.Version != version || !bytes.Equal(h.Dst, dst) || !bytes.Equal(h.Src, src) ||
			!bytes.Equal(h.Token, token) || h.PNOffset != pnEnd-pnLen || h.Len != whole {
			t.Fatalf("written %v %x %x %x, number at %d, %d bytes; read %+v", typ, dst, src, token, pnEnd-pnLen, whole, h)
		}
		if got := int(b[0]&3) + 1; got != pnLen || b[0]&0x0c != 0 {
			t.Fatalf("first byte 0x%x: packet number length %d, want %d, and no reserved bits", b[0], got, pnLen)
		}
		if !bytes.Equal(b[h.PNOffset:pnEnd], AppendPN(nil, pn, pnLen)) {
			t.Fatalf("packet number %d is written as %x", pn, b[h.PNOffset:pnEnd])
		}
		if id, ok := DstConnID(b, 0); !ok || !bytes.Equal(id, dst) {
			t.Fatalf("DstConnID: %x, %t; want %x", id, ok, dst)
		}
		for n := range whole {
			if _, err := ParseLong(b[:n:n]); !errors.Is(err, ErrInvalidHeader) {
				t.Fatalf("%v packet cut from %d to %d bytes: %v", typ, whole, n, err)
			}
		}
	}
}

func TestLongHeaderTypeBits(t *testing.T) {
	// RFC 9000 §17.2 and RFC 9369 §3.2.
	for _, tt := range []struct {
		version uint32
		first   map[PacketType]byte
	}{
		{Version1, map[PacketType]byte{Initial: 0xc0, ZeroRTT: 0xd0, Handshake: 0xe0, Retry: 0xf0}},
		{Version2, map[PacketType]byte{Initial: 0xd0, ZeroRTT: 0xe0, Handshake: 0xf0, Retry: 0xc0}},
	} {
		for typ, want := range tt.first {
			var b []byte
			if typ == Retry {
				b = AppendRetry(nil, tt.version, nil, nil, []byte("token"))
			} else {
				b = AppendLong(nil, typ, tt.version, nil, nil, nil, 20, 0, 1)
			}
			if b[0]&0xf0 != want {
				t.Errorf("version 0x%x, %v: first byte 0x%x, want 0x%x", tt.version, typ, b[0], want)
			}
			if h, err := ParseLong(append(b, make([]byte, 20)...)); err != nil || h.Type != typ {
				t.Errorf("version 0x%x, %v: read as %v, %v", tt.version, typ, h.Type, err)
			}
		}
	}
}

func TestAppendLongRefusesWhatItsLengthFieldCannotHold(t *testing.T) {
	b := AppendLong(nil, Handshake, Version1, nil, nil, nil, maxLongPayload, 0, 1)
	if h, err := ParseLong(append(b, make([]byte, maxLongPayload-1)...)); err != nil || h.Len-h.PNOffset != maxLongPayload {
		t.Errorf("16383 bytes: %+v, %v", h, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("16384 bytes: no panic")
		}
	}()
	AppendLong(nil, Handshake, Version1, nil, nil, nil, maxLongPayload+1, 0, 1)
}

func TestMalformedLongHeaders(t *testing.T) {
	id20, id21 := strings.Repeat("aa", 20), strings.Repeat("aa", 21)
	pad := strings.Repeat("00", 20)
	for _, tt := range []struct{ what, hex string }{
		{"nothing", ""},
		{"a short header", "40" + "00000001" + "00" + "00" + "00" + "14" + pad},
		{"21-byte destination ID", "c0" + "00000001" + "15" + id21 + "00" + "00" + "14" + pad},
		{"21-byte source ID", "c0" + "00000001" + "00" + "15" + id21 + "00" + "14" + pad},
		{"destination ID beyond the end", "c0" + "00000001" + "14" + id20[2:]},
		{"source ID beyond the end", "c0" + "00000001" + "00" + "14" + id20[2:]},
		{"token beyond the end", "c0" + "00000001" + "00" + "00" + "15" + pad},
		{"token of 2^62-1 bytes", "c0" + "00000001" + "00" + "00" + "ffffffffffffffff" + pad},
		{"length beyond the end", "c0" + "00000001" + "00" + "00" + "00" + "15" + pad},
		{"length of 2^62-1", "e0" + "00000001" + "00" + "00" + "ffffffffffffffff" + pad},
		{"no length", "e0" + "00000001" + "00" + "00"},
		{"Retry shorter than its tag", "f0" + "00000001" + "00" + "00" + pad[:30]},
		{"Retry without a token", "f0" + "00000001" + "00" + "00" + pad[:32]},
		{"unknown version, destination ID beyond the end", "c0" + "0a0a0a0a" + "ff" + id20 + "00"},
		{"unknown version, no source ID", "c0" + "0a0a0a0a" + "14" + id20},
	} {
		if h, err := ParseLong(unhex(t, tt.hex)); !errors.Is(err, ErrInvalidHeader) || !reflect.DeepEqual(h, LongHeader{}) {
			t.Errorf("%s: read %+v, %v", tt.what, h, err)
		}
	}
}

// RFC 9287: whether the fixed bit may be 0 is for the connection to say.
func TestLongHeadersWithoutTheFixedBit(t *testing.T) {
	for _, version := range []uint32{Version1, Version2} {
		for _, typ := range []PacketType{Initial, ZeroRTT, Handshake, Retry} {
			var b []byte
			if typ == Retry {
				b = AppendRetry(nil, version, []byte("dst"), []byte("src"), []byte("token"))
			} else {
				b = AppendLong(nil, typ, version, []byte("dst"), []byte("src"), nil, 20, 7, 4)
			}
			b = append(b, make([]byte, 16)...)
			set, err := ParseLong(b)
			if err != nil || set.Greased {
				t.Errorf("version %#x, %v: %+v, %v", version, typ, set, err)
			}
			b[0] ^= QUICBit
			clear, err := ParseLong(b)
			if err != nil || !clear.Greased {
				t.Errorf("version %#x, %v, fixed bit 0: %+v, %v", version, typ, clear, err)
			}
			if clear.Greased = false; !reflect.DeepEqual(clear, set) {
				t.Errorf("version %#x, %v: the bit makes\n%+v of\n%+v", version, typ, clear, set)
			}
		}
	}
	b := appendInvariants([]byte{0x80}, 0x1a2a3a4a, nil, nil)
	if h, err := ParseLong(b); err != nil || h.Greased {
		t.Errorf("a version that has no such bit: %+v, %v", h, err)
	}
}

func TestUnknownVersionsKeepTheirInvariants(t *testing.T) {
	// RFC 8999 §5.1: connection IDs of up to 255 bytes, and no fixed bit.
	r := newRandom(t)
	dst, src := r.bytes(255, 255), r.bytes(21, 255)
	b := appendInvariants([]byte{0x80}, 0x1a2a3a4a, dst, src)
	idsEnd := len(b)
	b = append(b, "whatever that version does"...)
	h, err := ParseLong(b)
	if err != nil || h.Type != UnknownVersion || h.Version != 0x1a2a3a4a || !bytes.Equal(h.Dst, dst) ||
		!bytes.Equal(h.Src, src) || h.Token != nil || h.PNOffset != idsEnd || h.Len != len(b) {
		t.Errorf("got %+v, %v", h, err)
	}
	if id, ok := DstConnID(b, 8); !ok || !bytes.Equal(id, dst) {
		t.Errorf("DstConnID: %x, %t", id, ok)
	}
}

func TestVersionNegotiationRoundTrip(t *testing.T) {
	r := newRandom(t)
	for range 200 {
		dst, src := r.bytes(0, 255), r.bytes(0, 255)
		versions := make([]uint32, 1+r.IntN(10))
		for i := range versions {
			versions[i] = r.Uint32()
		}
		b := AppendVersionNegotiation(nil, dst, src, versions)
		if b[0]&fixedBit == 0 {
			t.Fatal("RFC 9000 §17.2.1: 0x40 should be set")
		}
		gotDst, gotSrc, got, err := ParseVersionNegotiation(b)
		if err != nil || !bytes.Equal(gotDst, dst) || !bytes.Equal(gotSrc, src) || !slices.Equal(got, versions) {
			t.Fatalf("written %x %x %x, read %x %x %x, %v", dst, src, versions, gotDst, gotSrc, got, err)
		}
		b[0] &^= 0x7f // the unused bits do not matter
		if _, _, got, err := ParseVersionNegotiation(b); err != nil || !slices.Equal(got, versions) {
			t.Fatalf("with zero unused bits: %x, %v", got, err)
		}
	}
}

func TestMalformedVersionNegotiation(t *testing.T) {
	good := AppendVersionNegotiation(nil, []byte{1}, []byte{2}, []uint32{Version1})
	for what, b := range map[string][]byte{
		"nothing":             nil,
		"no versions":         good[:len(good)-4],
		"a truncated version": good[:len(good)-1],
		"a version and half":  append(slices.Clone(good), 0, 0),
		"a short header":      append([]byte{0x40}, good[1:]...),
		"an Initial packet":   append(AppendLong(nil, Initial, Version1, nil, nil, nil, 21, 0, 1), make([]byte, 20)...),
	} {
		if _, _, _, err := ParseVersionNegotiation(b); !errors.Is(err, ErrInvalidHeader) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRetry(t *testing.T) {
	// The Retry packets of RFC 9001 A.4 and RFC 9369 A.4; the last 16 bytes are
	// the integrity tag.
	for version, packet := range map[uint32]string{
		Version1: "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba",
		Version2: "cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6",
	} {
		b := unhex(t, packet)
		src := unhex(t, "f067a5502a4262b5")
		h, err := ParseLong(b)
		if err != nil || h.Type != Retry || h.Version != version || len(h.Dst) != 0 ||
			!bytes.Equal(h.Src, src) || string(h.Token) != "token" || h.Len != len(b) {
			t.Errorf("read %+v, %v", h, err)
		}
		got := AppendRetry(nil, version, nil, src, []byte("token"))
		if want := b[:len(b)-retryTagLen]; !bytes.Equal(got, want) {
			t.Errorf("written %s, want %x", hex.EncodeToString(got), want)
		}
	}
}

func TestPacketTypesAreReadable(t *testing.T) {
	for typ, want := range map[PacketType]string{
		Initial: "Initial", ZeroRTT: "0-RTT", Handshake: "Handshake", Retry: "Retry",
		VersionNegotiation: "Version Negotiation", OneRTT: "1-RTT", UnknownVersion: "unknown",
	} {
		if typ.String() != want {
			t.Errorf("got %q, want %q", typ, want)
		}
	}
}

func TestShortHeader(t *testing.T) {
	r := newRandom(t)
	for range 1000 {
		dst := r.bytes(0, MaxConnIDLen)
		pn, pnLen, phase := r.int63(), 1+r.IntN(4), r.bool()
		b := AppendShort([]byte("before"), dst, pn, pnLen, phase)[6:]
		if len(b) != ShortHeaderLen(len(dst), pnLen) {
			t.Fatalf("%d bytes written, ShortHeaderLen is %d", len(b), ShortHeaderLen(len(dst), pnLen))
		}
		// RFC 9000 §17.3.1: fixed bit, no spin, nothing reserved, key phase, length.
		want := byte(0x40 | pnLen - 1)
		if phase {
			want |= 0x04
		}
		if b[0] != want || IsLong(b[0]) {
			t.Fatalf("first byte 0x%x, want 0x%x", b[0], want)
		}
		if !bytes.Equal(b[1+len(dst):], AppendPN(nil, pn, pnLen)) {
			t.Fatalf("packet number %d is written as %x", pn, b[1+len(dst):])
		}
		if id, ok := DstConnID(b, len(dst)); !ok || !bytes.Equal(id, dst) {
			t.Fatalf("DstConnID: %x, %t; want %x", id, ok, dst)
		}
	}
	for what, b := range map[string][]byte{
		"nothing":                             nil,
		"a cut off short connection ID":       {0x40, 1, 2, 3},
		"a cut off version":                   {0xc0, 0, 0, 0, 1},
		"a cut off destination connection ID": {0xc0, 0, 0, 0, 1, 4, 1, 2, 3},
	} {
		if id, ok := DstConnID(b, 4); ok {
			t.Errorf("%s: DstConnID found %x", what, id)
		}
	}
}
