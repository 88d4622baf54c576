package wire

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"
)

// The worked examples of RFC 9000, appendix A.

type appendixA struct {
	Varints []struct {
		Encoded  string
		Value    uint64
		Shortest bool
	}
	PacketNumberEncoding []struct{ PacketNumber, LargestAcked, Encoded string }
	PacketNumberDecoding []struct{ Largest, Truncated, PacketNumber string }
}

func readAppendixA(t *testing.T) (a appendixA) {
	b, err := os.ReadFile("../../testdata/rfc9000-appendix-a.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Varints) != 5 || len(a.PacketNumberEncoding) != 2 || len(a.PacketNumberDecoding) != 1 {
		t.Fatal("appendix A has 5 varints, 2 encodings and 1 decoding")
	}
	return a
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func hexInt(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAppendixAVarints(t *testing.T) {
	for _, v := range readAppendixA(t).Varints {
		enc := unhex(t, v.Encoded)
		// A field of a frame is where this package meets a varint.
		f, n, err := ParseMaxData(append([]byte{byte(FrameMaxData)}, enc...))
		if err != nil || n != 1+len(enc) || f.Max != int64(v.Value) {
			t.Errorf("%s: got %d, %d bytes, %v; want %d", v.Encoded, f.Max, n, err, v.Value)
		}
		if got := hex.EncodeToString(f.Append(nil)[1:]); v.Shortest && got != v.Encoded {
			t.Errorf("%d is written as %s, want %s", v.Value, got, v.Encoded)
		}
	}
}

func TestAppendixAPacketNumbers(t *testing.T) {
	a := readAppendixA(t)
	for _, v := range a.PacketNumberEncoding {
		pn := hexInt(t, v.PacketNumber)
		got := AppendPN(nil, pn, PNLen(pn, hexInt(t, v.LargestAcked)))
		if hex.EncodeToString(got) != v.Encoded {
			t.Errorf("0x%s after 0x%s is written as %x, want %s", v.PacketNumber, v.LargestAcked, got, v.Encoded)
		}
	}
	for _, v := range a.PacketNumberDecoding {
		got := DecodePN(hexInt(t, v.Largest), hexInt(t, v.Truncated), len(v.Truncated)/2)
		if got != hexInt(t, v.PacketNumber) {
			t.Errorf("0x%s after 0x%s is read as 0x%x, want 0x%s", v.Truncated, v.Largest, got, v.PacketNumber)
		}
	}
}
