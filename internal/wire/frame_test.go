package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/quicvarint"
)

// toEnd says that a frame goes on to the end of its packet.
func toEnd(f Frame) bool {
	switch f := f.(type) {
	case Stream:
		return !f.HasLen
	case Datagram:
		return !f.HasLen
	}
	return false
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	r := newRandom(t)
	for range 500 {
		for _, f := range r.frames() {
			b := f.Append([]byte("before"))
			if string(b[:6]) != "before" {
				t.Fatalf("%v: Append changed what was there", f)
			}
			b = b[6:]
			if len(b) != f.Len() {
				t.Fatalf("%v: Len is %d, written %d", f, f.Len(), len(b))
			}
			packet := b
			if !toEnd(f) {
				packet = append(b[:len(b):len(b)], byte(FramePing)) // more follows
			}
			got, n, err := ParseFrame(packet)
			if err != nil || n != len(b) {
				t.Fatalf("%v: read %d of %d bytes, %v\n%x", f, n, len(b), err, b)
			}
			if !reflect.DeepEqual(got, f) {
				t.Fatalf("written %v, read %v\n%x", f, got, b)
			}
		}
	}
}

func TestFrameCutAnywhereIsAnError(t *testing.T) {
	r := newRandom(t)
	for range 50 {
		for _, f := range r.frames() {
			if _, isPadding := f.(Padding); isPadding || toEnd(f) {
				continue
			}
			b := f.Append(nil)
			for n := 1; n < len(b); n++ {
				_, _, err := ParseFrame(b[:n:n])
				wantCode(t, fmt.Sprintf("%v cut to %d bytes", f, n), err, FrameEncodingError)
			}
		}
	}
}

func TestFieldsMayUseLongerEncodings(t *testing.T) {
	// RFC 9000 §16: only the frame type must be in its shortest form.
	b := []byte{byte(FrameStream | streamOff | streamLen)}
	b = quicvarint.AppendWithLen(b, 4, 8)
	b = quicvarint.AppendWithLen(b, 0, 4)
	b = quicvarint.AppendWithLen(b, 2, 2)
	b = append(b, "hi"...)
	f, n, err := ParseStream(b)
	if err != nil || n != len(b) || f.ID != 4 || f.Off != 0 || string(f.Data) != "hi" {
		t.Errorf("got %v, %d bytes, %v", f, n, err)
	}
}

// wantCode checks that err is an *Error with the given code.
func wantCode(t *testing.T, what string, err error, code ErrorCode) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: got %v, want %v", what, err, code)
	}
	if e.Code != code {
		t.Errorf("%s: got %v, want %v", what, err, code)
	}
	if e.Error() == "" || e.Reason == "" {
		t.Errorf("%s: the error says nothing", what)
	}
}

func TestMalformedFrames(t *testing.T) {
	const max8 = "ffffffffffffffff"   // 2^62-1
	const over60 = "d000000000000001" // 2^60+1
	token := strings.Repeat("00", 16)
	for _, tt := range []struct {
		what, hex string
		code      ErrorCode
	}{
		{"no frame at all", "", ProtocolViolation},
		{"PING as two bytes", "4001", ProtocolViolation},
		{"PING as eight bytes", "c000000000000001", ProtocolViolation},
		{"STREAM as two bytes", "400a0000", ProtocolViolation},
		{"ACK_FREQUENCY as four bytes", "800000af00000000", ProtocolViolation},
		{"half a frame type", "40", FrameEncodingError},
		{"unknown one-byte type", "20", FrameEncodingError},
		{"unknown two-byte type", "4040", FrameEncodingError},
		{"unknown eight-byte type", max8, FrameEncodingError},

		{"ACK without ranges", "020000", FrameEncodingError},
		{"ACK below zero in the first range", "0205000006", FrameEncodingError},
		{"ACK below zero by the gap", "020500010004", FrameEncodingError},
		{"ACK below zero by one", "02050001000400", FrameEncodingError},
		{"ACK below zero in the second range", "020500010302" + "01", FrameEncodingError},
		{"ACK below zero by the largest gap and length", "02050001" + "00" + max8 + max8, FrameEncodingError},
		{"ACK with a gap that wraps around", "02" + "00" + "00" + "02" + "00" + max8 + max8 + max8 + max8, FrameEncodingError},
		{"ACK with more ranges than bytes", "020a00" + max8 + "00" + "0000", FrameEncodingError},
		{"ACK with one range too many for the packet", "020a00" + "02" + "00" + "0000" + "00", FrameEncodingError},
		{"ACK with two of three ECN counts", "030a0000000102", FrameEncodingError},

		{"CRYPTO beyond 2^62-1", "06" + max8 + "0100", FrameEncodingError},
		{"CRYPTO longer than the packet", "0600020a", FrameEncodingError},
		{"CRYPTO of 2^62-1 bytes", "0600" + max8, FrameEncodingError},
		{"NEW_TOKEN without token", "0700", FrameEncodingError},
		{"NEW_TOKEN longer than the packet", "0701", FrameEncodingError},

		{"STREAM beyond 2^62-1", "0c04" + max8 + "00", FrameEncodingError},
		{"STREAM with Length beyond 2^62-1", "0e04" + max8 + "0100", FrameEncodingError},
		{"STREAM longer than the packet", "0a040300", FrameEncodingError},
		{"STREAM of 2^62-1 bytes", "0a04" + max8, FrameEncodingError},
		{"STREAM without an ID", "08", FrameEncodingError},
		{"STREAM without its offset", "0c04", FrameEncodingError},
		{"STREAM with half its length", "0a0440", FrameEncodingError},

		{"MAX_STREAMS bidi over 2^60", "12" + over60, FrameEncodingError},
		{"MAX_STREAMS uni over 2^60", "13" + over60, FrameEncodingError},
		{"STREAMS_BLOCKED bidi over 2^60", "16" + over60, StreamLimitError},
		{"STREAMS_BLOCKED uni over 2^60", "17" + over60, StreamLimitError},

		{"NEW_CONNECTION_ID of length 0", "180000" + "00" + token, FrameEncodingError},
		{"NEW_CONNECTION_ID of length 21", "180000" + "15" + strings.Repeat("aa", 21) + token, FrameEncodingError},
		{"NEW_CONNECTION_ID retiring itself and more", "180102" + "01aa" + token, FrameEncodingError},
		{"NEW_CONNECTION_ID with a short token", "180000" + "01aa" + token[2:], FrameEncodingError},
		{"PATH_CHALLENGE of 7 bytes", "1a00000000000000", FrameEncodingError},
		{"PATH_RESPONSE of 7 bytes", "1b00000000000000", FrameEncodingError},
		{"CONNECTION_CLOSE with a reason longer than the packet", "1c000002aa", FrameEncodingError},
		{"DATAGRAM longer than the packet", "310200", FrameEncodingError},
		{"RESET_STREAM_AT with more reliable than final", "2404000102", FrameEncodingError},
	} {
		f, n, err := ParseFrame(unhex(t, tt.hex))
		if f != nil || n != 0 {
			t.Errorf("%s: read %v in %d bytes", tt.what, f, n)
		}
		wantCode(t, tt.what, err, tt.code)
	}
}

func TestLimitsThemselvesAreFine(t *testing.T) {
	const max8 = "ffffffffffffffff"
	const at60 = "d000000000000000" // 2^60
	for _, tt := range []struct {
		hex  string
		want Frame
	}{
		{"12" + at60, MaxStreams{Max: MaxStreamCount}},
		{"17" + at60, StreamsBlocked{Uni: true, Max: MaxStreamCount}},
		{"0c04" + max8, Stream{ID: 4, Off: MaxVarint, Data: []byte{}}},
		{"0e04fffffffffffffffe0107", Stream{ID: 4, Off: MaxVarint - 1, Data: []byte{7}, HasLen: true}},
		{"06fffffffffffffffe0107", Crypto{Off: MaxVarint - 1, Data: []byte{7}}},
		{"0205000005", Ack{Ranges: []AckRange{{0, 5}}}},
		{"02050001000300", Ack{Ranges: []AckRange{{5, 5}, {0, 0}}}},
		{"02" + max8 + "0000" + max8, Ack{Ranges: []AckRange{{0, MaxVarint}}}},
		{"2404000202", ResetStreamAt{ID: 4, FinalSize: 2, ReliableSize: 2}},
		{"30", Datagram{Data: []byte{}}},
		{"1c4d0a00" + "00", ConnectionClose{Code: 0xd0a, Reason: []byte{}}},
	} {
		f, n, err := ParseFrame(unhex(t, tt.hex))
		if err != nil || n != len(tt.hex)/2 || !reflect.DeepEqual(f, tt.want) {
			t.Errorf("%s: read %v in %d bytes, %v; want %v", tt.hex, f, n, err, tt.want)
		}
	}
}

func TestParserOfOneFrameRefusesAnother(t *testing.T) {
	r := newRandom(t)
	parsers := map[string]func([]byte) (Frame, int, error){
		"Padding":            func(b []byte) (Frame, int, error) { return boxed(ParsePadding(b)) },
		"Ping":               func(b []byte) (Frame, int, error) { return boxed(ParsePing(b)) },
		"Ack":                func(b []byte) (Frame, int, error) { return boxed(ParseAck(b, nil)) },
		"ResetStream":        func(b []byte) (Frame, int, error) { return boxed(ParseResetStream(b)) },
		"StopSending":        func(b []byte) (Frame, int, error) { return boxed(ParseStopSending(b)) },
		"Crypto":             func(b []byte) (Frame, int, error) { return boxed(ParseCrypto(b)) },
		"NewToken":           func(b []byte) (Frame, int, error) { return boxed(ParseNewToken(b)) },
		"Stream":             func(b []byte) (Frame, int, error) { return boxed(ParseStream(b)) },
		"MaxData":            func(b []byte) (Frame, int, error) { return boxed(ParseMaxData(b)) },
		"MaxStreamData":      func(b []byte) (Frame, int, error) { return boxed(ParseMaxStreamData(b)) },
		"MaxStreams":         func(b []byte) (Frame, int, error) { return boxed(ParseMaxStreams(b)) },
		"DataBlocked":        func(b []byte) (Frame, int, error) { return boxed(ParseDataBlocked(b)) },
		"StreamDataBlocked":  func(b []byte) (Frame, int, error) { return boxed(ParseStreamDataBlocked(b)) },
		"StreamsBlocked":     func(b []byte) (Frame, int, error) { return boxed(ParseStreamsBlocked(b)) },
		"NewConnectionID":    func(b []byte) (Frame, int, error) { return boxed(ParseNewConnectionID(b)) },
		"RetireConnectionID": func(b []byte) (Frame, int, error) { return boxed(ParseRetireConnectionID(b)) },
		"PathChallenge":      func(b []byte) (Frame, int, error) { return boxed(ParsePathChallenge(b)) },
		"PathResponse":       func(b []byte) (Frame, int, error) { return boxed(ParsePathResponse(b)) },
		"ConnectionClose":    func(b []byte) (Frame, int, error) { return boxed(ParseConnectionClose(b)) },
		"HandshakeDone":      func(b []byte) (Frame, int, error) { return boxed(ParseHandshakeDone(b)) },
		"Datagram":           func(b []byte) (Frame, int, error) { return boxed(ParseDatagram(b)) },
		"ResetStreamAt":      func(b []byte) (Frame, int, error) { return boxed(ParseResetStreamAt(b)) },
		"AckFrequency":       func(b []byte) (Frame, int, error) { return boxed(ParseAckFrequency(b)) },
		"ImmediateAck":       func(b []byte) (Frame, int, error) { return boxed(ParseImmediateAck(b)) },
	}
	frames := r.frames()
	if len(parsers) != len(frames) {
		t.Fatalf("%d parsers for %d frames", len(parsers), len(frames))
	}
	for _, f := range frames {
		kind := reflect.TypeOf(f).Name()
		for name, parse := range parsers {
			got, _, err := parse(f.Append(nil))
			if name == kind && (err != nil || !reflect.DeepEqual(got, f)) {
				t.Errorf("Parse%s reads %v as %v, %v", name, f, got, err)
			}
			if name != kind {
				wantCode(t, "Parse"+name+" given a "+kind, err, FrameEncodingError)
			}
		}
	}
	for name, parse := range parsers {
		if _, _, err := parse(nil); err == nil {
			t.Errorf("Parse%s reads a frame out of nothing", name)
		}
	}
}

func TestPaddingIsZeroWhateverTheBufferHeld(t *testing.T) {
	dirty := bytes.Repeat([]byte{0xee}, 64)
	b := Padding{N: 10}.Append(dirty[:3])
	if !bytes.Equal(b[3:], make([]byte, 10)) || dirty[2] != 0xee || dirty[13] != 0xee {
		t.Errorf("got %x", dirty)
	}
	if f, n, err := ParsePadding(b[3:]); f.N != 10 || n != 10 || err != nil {
		t.Errorf("read back as %v, %d bytes, %v", f, n, err)
	}
}

func TestParsedDataCannotBeAppendedTo(t *testing.T) {
	// What follows in the packet must not be overwritten by append.
	stream, _, _ := ParseStream(Stream{Data: []byte("abc"), HasLen: true}.Append(make([]byte, 0, 64)))
	crypto, _, _ := ParseCrypto(Crypto{Data: []byte("abc")}.Append(make([]byte, 0, 64)))
	for _, b := range [][]byte{stream.Data, crypto.Data} {
		if string(b) != "abc" || cap(b) != 3 {
			t.Errorf("got %q with capacity %d", b, cap(b))
		}
	}
}

func TestStreamHeader(t *testing.T) {
	r := newRandom(t)
	for range 2000 {
		id, fin := r.int63(), r.bool()
		dataLen := -1
		if r.bool() {
			dataLen = r.IntN(1 << 15)
		}
		off := r.upTo(MaxVarint - 1<<15)
		b := AppendStreamHeader(nil, id, off, dataLen, fin)
		if len(b) != StreamHeaderLen(id, off, dataLen) {
			t.Fatalf("StreamHeaderLen(%d, %d, %d) is %d, written %d", id, off, dataLen, StreamHeaderLen(id, off, dataLen), len(b))
		}
		data := make([]byte, max(dataLen, 0))
		f, n, err := ParseStream(append(b, data...))
		if err != nil || n != len(b)+len(data) || f.ID != id || f.Off != off || f.Fin != fin ||
			f.HasLen != (dataLen >= 0) || len(f.Data) != len(data) {
			t.Fatalf("id %d, off %d, length %d, fin %t: read %v in %d bytes, %v", id, off, dataLen, fin, f, n, err)
		}
	}
}

func TestManyAckRanges(t *testing.T) {
	// An ACK that fills a datagram of 64 KiB: what is handed over is bounded,
	// begins at the largest number, and the frame is read to its end.
	all := spacedRanges(30000)
	ack := Ack{Ranges: all, ECN: true, CE: 7}
	b := ack.Append(nil)
	room := make([]AckRange, 0, MaxAckRanges)
	got, n, err := ParseAck(b, room)
	if err != nil || n != len(b) || got.CE != 7 {
		t.Fatalf("read %d of %d bytes, CE %d, %v", n, len(b), got.CE, err)
	}
	if !reflect.DeepEqual(got.Ranges, all[:MaxAckRanges]) {
		t.Errorf("got %d ranges", len(got.Ranges))
	}
	if &got.Ranges[0] != &room[:1][0] {
		t.Error("the caller's slice was not used")
	}
	if got.Largest() != all[0].Hi {
		t.Errorf("largest is %d, want %d", got.Largest(), all[0].Hi)
	}
	// The ranges that are not handed over are checked all the same.
	last := len(all) - 1
	all[last] = AckRange{Lo: -1, Hi: all[last].Hi}
	_, _, err = ParseAck(Ack{Ranges: all}.Append(nil), room)
	wantCode(t, "a last range below zero", err, FrameEncodingError)
}

func TestAckReusesRanges(t *testing.T) {
	old := []AckRange{{1, 2}, {3, 4}, {5, 6}}
	f, _, err := ParseAck(Ack{Ranges: []AckRange{{10, 20}}}.Append(nil), old)
	if err != nil || len(f.Ranges) != 1 || f.Ranges[0] != (AckRange{10, 20}) {
		t.Errorf("got %v, %v", f, err)
	}
}

// frameTable is table 3 of RFC 9000 §12.4, as printed there ("ih" is spelt out
// per type), with the extensions below it.
var frameTable = []struct {
	first, last uint64
	pkts        string
	n           bool // marked N: not ack-eliciting
}{
	{0x00, 0x00, "IH01", true},
	{0x01, 0x01, "IH01", false},
	{0x02, 0x03, "IH_1", true},
	{0x04, 0x04, "__01", false},
	{0x05, 0x05, "__01", false},
	{0x06, 0x06, "IH_1", false},
	{0x07, 0x07, "___1", false},
	{0x08, 0x0f, "__01", false},
	{0x10, 0x10, "__01", false},
	{0x11, 0x11, "__01", false},
	{0x12, 0x13, "__01", false},
	{0x14, 0x14, "__01", false},
	{0x15, 0x15, "__01", false},
	{0x16, 0x17, "__01", false},
	{0x18, 0x18, "__01", false},
	{0x19, 0x19, "__01", false},
	{0x1a, 0x1a, "__01", false},
	{0x1b, 0x1b, "___1", false},
	{0x1c, 0x1c, "IH01", true},
	{0x1d, 0x1d, "__01", true},
	{0x1e, 0x1e, "___1", false},
	{0x1f, 0x1f, "___1", false}, // IMMEDIATE_ACK
	{0x24, 0x24, "__01", false}, // RESET_STREAM_AT
	{0x30, 0x31, "__01", false}, // DATAGRAM
	{0xaf, 0xaf, "___1", false}, // ACK_FREQUENCY
}

func TestWhereFramesMayAppear(t *testing.T) {
	packets := []PacketType{Initial, Handshake, ZeroRTT, OneRTT}
	known := map[uint64]bool{}
	for _, row := range frameTable {
		for typ := row.first; typ <= row.last; typ++ {
			known[typ] = true
			for i, pt := range packets {
				want := row.pkts[i] != '_'
				if AllowedIn(typ, pt) != want {
					t.Errorf("%s in %v packets: AllowedIn is %t", FrameName(typ), pt, !want)
				}
				err := CheckFrameType(typ, pt)
				if want && err != nil {
					t.Errorf("%s in %v packets: %v", FrameName(typ), pt, err)
				}
				if !want {
					wantCode(t, FrameName(typ)+" in "+pt.String(), err, ProtocolViolation)
				}
			}
			for _, pt := range []PacketType{Retry, VersionNegotiation, UnknownVersion} {
				if AllowedIn(typ, pt) {
					t.Errorf("%s is allowed in %v packets, which have no frames", FrameName(typ), pt)
				}
			}
			if IsAckEliciting(typ) == row.n {
				t.Errorf("%s: IsAckEliciting is %t", FrameName(typ), row.n)
			}
			if IsStream(typ) != (row.first == 0x08) {
				t.Errorf("%s: IsStream is %t", FrameName(typ), IsStream(typ))
			}
		}
	}
	for typ := range uint64(0x200) {
		if known[typ] {
			continue
		}
		for _, pt := range packets {
			if AllowedIn(typ, pt) {
				t.Errorf("unknown type 0x%x is allowed in %v packets", typ, pt)
			}
			wantCode(t, fmt.Sprintf("unknown type 0x%x", typ), CheckFrameType(typ, pt), FrameEncodingError)
		}
		_, _, err := ParseFrame(quicvarint.Append(nil, typ))
		wantCode(t, fmt.Sprintf("unknown type 0x%x", typ), err, FrameEncodingError)
	}
}

func TestFramesAreReadable(t *testing.T) {
	// String of each frame begins with the name the RFC gives its type.
	r := newRandom(t)
	for _, f := range r.frames() {
		typ, _, err := FrameType(f.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(FrameName(typ), " ")
		if got, _, _ := strings.Cut(f.String(), "{"); got != name {
			t.Errorf("%v should begin with %s", f, name)
		}
	}
	if s := (NewConnectionID{ID: []byte{1}, ResetToken: [16]byte{0xde, 0xad}}).String(); strings.Contains(s, "dead") {
		t.Errorf("a reset token is a secret: %s", s)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("the cause")
	err := error(&Error{Code: CryptoError(40), FrameType: FrameCrypto, Reason: "bad certificate", Err: cause})
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if got, want := err.Error(), "CRYPTO_ERROR 0x128 (CRYPTO): bad certificate"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for c, want := range map[ErrorCode]string{
		NoError:                 "NO_ERROR",
		FrameEncodingError:      "FRAME_ENCODING_ERROR",
		NoViablePath:            "NO_VIABLE_PATH",
		VersionNegotiationError: "VERSION_NEGOTIATION_ERROR",
		0x12:                    "error code 0x12",
		0x100:                   "CRYPTO_ERROR 0x100",
		0x1ff:                   "CRYPTO_ERROR 0x1ff",
		0x200:                   "error code 0x200",
	} {
		if c.String() != want {
			t.Errorf("0x%x: got %q, want %q", uint64(c), c, want)
		}
	}
}
