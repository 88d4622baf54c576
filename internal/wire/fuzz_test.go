package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// Each target asks: whatever the bytes, no panic, an error of the right kind or
// a value that stays the same when it is written and read again.

func FuzzParseFrame(f *testing.F) {
	for _, s := range []string{
		"", "000000", "01", "0205000005", "02050001000300", "030a000000010203", "0401020a", "050102", "060003616263",
		"0703616263", "0804", "0f0440100261620000", "0b0400", "1044d2", "110444d2", "120a", "130a", "1401", "150102",
		"1601", "1701", "1901", "1a0102030405060708", "1b0102030405060708", "1c0a0003616263", "1d0a03616263", "1e", "1f",
		"240401050500", "30616263", "3103616263", "40af01020304", "4001", "ffffffffffffffff",
		"1801000401020304000102030405060708090a0b0c0d0e0f",
	} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, n, err := ParseFrame(b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || n != 0 || fr != nil {
				t.Fatalf("got %v, %d, %v", fr, n, err)
			}
			switch e.Code {
			case FrameEncodingError, ProtocolViolation, StreamLimitError:
			default:
				t.Fatalf("unexpected code: %v", err)
			}
			return
		}
		if n < 1 || n > len(b) {
			t.Fatalf("%v takes %d of %d bytes", fr, n, len(b))
		}
		_ = fr.String()
		canonical := fr.Append(nil)
		if len(canonical) != fr.Len() || len(canonical) > n {
			t.Fatalf("%v: read from %d bytes, written in %d, Len %d", fr, n, len(canonical), fr.Len())
		}
		again, m, err := ParseFrame(canonical)
		if err != nil || m != len(canonical) || !reflect.DeepEqual(again, fr) {
			t.Fatalf("%v becomes %v, %v", fr, again, err)
		}
	})
}

func FuzzParseLong(f *testing.F) {
	pad := make([]byte, 40)
	for _, version := range []uint32{Version1, Version2} {
		f.Add(append(AppendLong(nil, Initial, version, []byte("dst"), []byte("src"), []byte("token"), 24, 7, 2), pad...))
		f.Add(append(AppendLong(nil, Handshake, version, nil, []byte("src"), nil, 24, 7, 4), pad...))
		f.Add(append(AppendLong(nil, ZeroRTT, version, []byte("dst"), nil, nil, 24, 7, 1), pad...))
		f.Add(append(AppendRetry(nil, version, []byte("dst"), []byte("src"), []byte("token")), pad...))
	}
	greased := append(AppendLong(nil, Handshake, Version1, []byte("dst"), []byte("src"), nil, 24, 7, 2), pad...)
	greased[0] ^= QUICBit
	f.Add(greased)
	f.Add(AppendVersionNegotiation(nil, []byte("dst"), []byte("src"), []uint32{Version1}))
	f.Add(appendInvariants([]byte{0xc0}, 0x0a0a0a0a, pad, pad))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseLong(b)
		if err != nil {
			if !errors.Is(err, ErrInvalidHeader) {
				t.Fatal(err)
			}
			return
		}
		if h.PNOffset < 7 || h.PNOffset > h.Len || h.Len > len(b) {
			t.Fatalf("%+v in %d bytes", h, len(b))
		}
		if id, ok := DstConnID(b, 0); !ok || !bytes.Equal(id, h.Dst) {
			t.Fatalf("DstConnID: %x, %t; ParseLong: %x", id, ok, h.Dst)
		}
		rest := b[h.PNOffset:h.Len] // packet number and payload, if any
		var canonical []byte
		switch h.Type {
		case Initial, ZeroRTT, Handshake:
			pnLen := int(b[0]&3) + 1
			if len(rest) < pnLen || len(rest) > maxLongPayload {
				return
			}
			canonical = AppendLong(nil, h.Type, h.Version, h.Dst, h.Src, h.Token, len(rest), 0, pnLen)
			canonical = append(canonical[:len(canonical)-pnLen], rest...)
		case Retry:
			canonical = append(AppendRetry(nil, h.Version, h.Dst, h.Src, h.Token), b[len(b)-retryTagLen:]...)
		case VersionNegotiation, UnknownVersion:
			canonical = append(appendInvariants([]byte{b[0]}, h.Version, h.Dst, h.Src), rest...)
			if !bytes.Equal(canonical, b) {
				t.Fatalf("%x becomes %x", b, canonical)
			}
		default:
			t.Fatalf("type %v in a long header", h.Type)
		}
		if h.Greased {
			canonical[0] &^= QUICBit
		}
		again, err := ParseLong(canonical)
		if err != nil || again.Len != len(canonical) || !bytes.Equal(canonical[again.PNOffset:], rest) && h.Type != Retry {
			t.Fatalf("%+v becomes %+v, %v", h, again, err)
		}
		// Lengths may have been written in more bytes than needed.
		h.PNOffset, h.Len = again.PNOffset, again.Len
		if !reflect.DeepEqual(again, h) {
			t.Fatalf("%+v becomes %+v", h, again)
		}
	})
}

func FuzzParseVersionNegotiation(f *testing.F) {
	f.Add(AppendVersionNegotiation(nil, []byte("dst"), []byte("src"), []uint32{Version1, Version2}))
	f.Add(AppendVersionNegotiation(nil, make([]byte, 255), nil, []uint32{0x1a2a3a4a}))
	f.Add(AppendVersionNegotiation(nil, nil, nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		dst, src, versions, err := ParseVersionNegotiation(b)
		if err != nil {
			if !errors.Is(err, ErrInvalidHeader) {
				t.Fatal(err)
			}
			return
		}
		canonical := AppendVersionNegotiation(nil, dst, src, versions)
		canonical[0] = b[0] // whose other bits are arbitrary
		if !bytes.Equal(canonical, b) {
			t.Fatalf("%x becomes %x", b, canonical)
		}
	})
}

func FuzzParseTransportParams(f *testing.F) {
	f.Add(unhex(f, clientMust), false)
	f.Add(unhex(f, serverMust), true)
	f.Add((&TransportParams{
		InitialSrc:          []byte("src"),
		OriginalDst:         []byte("dst"),
		RetrySrc:            []byte{},
		MaxIdleTimeout:      30e9,
		StatelessResetToken: new([16]byte),
		MaxUDPPayload:       1452,
		InitialMaxData:      1 << 20,
		PreferredAddress:    &PreferredAddress{ConnID: []byte("id")},
		MaxDatagramFrame:    1200,
		VersionInformation:  &VersionInformation{Version1, []uint32{Version2, Version1}},
		ResetStreamAt:       true,
		GreaseQUICBit:       true,
	}).Append(nil), true)
	f.Fuzz(func(t *testing.T, b []byte, fromServer bool) {
		p, err := ParseTransportParams(b, fromServer)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Code != TransportParameterError || p != nil {
				t.Fatalf("got %+v, %v", p, err)
			}
			return
		}
		again, err := ParseTransportParams(p.Append(nil), fromServer)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%+v becomes %+v, %v", p, again, err)
		}
	})
}
