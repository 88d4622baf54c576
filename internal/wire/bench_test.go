package wire

import "testing"

// The hot parsers and writers, one frame per iteration. None of them may
// allocate: TestHotPathDoesNotAllocate holds them to it.

var hotPath = map[string]func(){}

var (
	hotBuf    = make([]byte, 0, 2048)
	hotPN     int64 // keeps a result alive
	hotRanges = make([]AckRange, 0, MaxAckRanges)
	hotStream = Stream{ID: 4, Off: 1 << 21, Data: make([]byte, 1300)}.Append(nil)
	hotShort  = AppendShort(nil, make([]byte, 8), 1<<20, 3, false)
	hotLong   = append(AppendLong(nil, Handshake, Version1, make([]byte, 8), make([]byte, 8), nil, 1200, 7, 2), make([]byte, 1198)...)
	hotAck1   = Ack{Ranges: []AckRange{{Lo: 0, Hi: 1 << 20}}, Delay: 40}.Append(nil)
	hotAck32  = Ack{Ranges: spacedRanges(32), Delay: 40}.Append(nil)
)

// spacedRanges is n ranges of three packets with three lost ones between them.
func spacedRanges(n int) []AckRange {
	var rs []AckRange
	for i := range n {
		hi := int64(1<<20 - 6*i)
		rs = append(rs, AckRange{Lo: hi - 2, Hi: hi})
	}
	return rs
}

func init() {
	hotPath["ParseStream"] = func() { ParseStream(hotStream) }
	hotPath["AppendStreamHeader"] = func() { AppendStreamHeader(hotBuf, 4, 1<<21, 1300, true) }
	hotPath["ParseAck/1"] = func() { ParseAck(hotAck1, hotRanges) }
	hotPath["ParseAck/32"] = func() { ParseAck(hotAck32, hotRanges) }
	hotPath["AppendAck/1"] = func() { Ack{Ranges: hotRanges[:1], Delay: 40}.Append(hotBuf) }
	hotPath["AppendShort"] = func() { AppendShort(hotBuf, hotShort[1:9], 1<<20, 3, true) }
	hotPath["DstConnID"] = func() { DstConnID(hotShort, 8) }
	hotPath["ParseLong"] = func() { ParseLong(hotLong) }
	hotPath["AppendPadding"] = func() { Padding{N: 40}.Append(hotBuf) }
	hotPath["FrameType"] = func() { FrameType(hotStream) }
	hotPath["DecodePN"] = func() { hotPN = DecodePN(1<<20, 0x1234, 2) }
}

func BenchmarkParseStream(b *testing.B)        { benchHot(b, "ParseStream") }
func BenchmarkAppendStreamHeader(b *testing.B) { benchHot(b, "AppendStreamHeader") }
func BenchmarkParseAck(b *testing.B) {
	b.Run("1", func(b *testing.B) { benchHot(b, "ParseAck/1") })
	b.Run("32", func(b *testing.B) { benchHot(b, "ParseAck/32") })
}
func BenchmarkAppendShort(b *testing.B) { benchHot(b, "AppendShort") }

func benchHot(b *testing.B, name string) {
	f := hotPath[name]
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	for name, f := range hotPath {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
