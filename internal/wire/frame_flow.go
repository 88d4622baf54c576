package wire

import "fmt"

// MaxStreamCount is the largest number of streams of one type: their IDs must
// not exceed 2^62-1 (RFC 9000 §4.6).
const MaxStreamCount = 1 << 60

// MaxData is a MAX_DATA frame (RFC 9000 §19.9).
type MaxData struct{ Max int64 } // bytes, all streams together

// ParseMaxData reads a MAX_DATA frame.
func ParseMaxData(b []byte) (MaxData, int, error) {
	c := body(b, FrameMaxData)
	f := MaxData{Max: c.int63()}
	n, err := c.end(FrameMaxData)
	return f, n, err
}

// Append appends the frame.
func (f MaxData) Append(b []byte) []byte { return appendInt(append(b, byte(FrameMaxData)), f.Max) }

// Len is the frame's length in bytes.
func (f MaxData) Len() int { return 1 + varintLen(f.Max) }

func (f MaxData) String() string { return fmt.Sprintf("MAX_DATA{%d}", f.Max) }

// MaxStreamData is a MAX_STREAM_DATA frame (RFC 9000 §19.10).
type MaxStreamData struct{ ID, Max int64 } // Max: bytes

// ParseMaxStreamData reads a MAX_STREAM_DATA frame.
func ParseMaxStreamData(b []byte) (MaxStreamData, int, error) {
	c := body(b, FrameMaxStreamData)
	f := MaxStreamData{ID: c.int63(), Max: c.int63()}
	n, err := c.end(FrameMaxStreamData)
	return f, n, err
}

// Append appends the frame.
func (f MaxStreamData) Append(b []byte) []byte {
	b = appendInt(append(b, byte(FrameMaxStreamData)), f.ID)
	return appendInt(b, f.Max)
}

// Len is the frame's length in bytes.
func (f MaxStreamData) Len() int { return 1 + varintLen(f.ID) + varintLen(f.Max) }

func (f MaxStreamData) String() string {
	return fmt.Sprintf("MAX_STREAM_DATA{id %d, %d}", f.ID, f.Max)
}

// MaxStreams is a MAX_STREAMS frame (RFC 9000 §19.11).
type MaxStreams struct {
	Uni bool
	Max int64 // streams ever opened, at most MaxStreamCount
}

// ParseMaxStreams reads a MAX_STREAMS frame, of either type.
func ParseMaxStreams(b []byte) (MaxStreams, int, error) {
	c, typ := body2(b, FrameMaxStreamsBidi)
	f := MaxStreams{Uni: typ == FrameMaxStreamsUni, Max: c.int63()}
	n, err := c.end(typ)
	// §4.6, §19.11
	if err == nil && f.Max > MaxStreamCount {
		return MaxStreams{}, 0, encodingError(typ, "more than 2^60 streams")
	}
	return f, n, err
}

func (f MaxStreams) typ() uint64 {
	if f.Uni {
		return FrameMaxStreamsUni
	}
	return FrameMaxStreamsBidi
}

// Append appends the frame.
func (f MaxStreams) Append(b []byte) []byte { return appendInt(append(b, byte(f.typ())), f.Max) }

// Len is the frame's length in bytes.
func (f MaxStreams) Len() int { return 1 + varintLen(f.Max) }

func (f MaxStreams) String() string { return fmt.Sprintf("MAX_STREAMS{uni %t, %d}", f.Uni, f.Max) }

// DataBlocked is a DATA_BLOCKED frame (RFC 9000 §19.12).
type DataBlocked struct{ Max int64 } // bytes

// ParseDataBlocked reads a DATA_BLOCKED frame.
func ParseDataBlocked(b []byte) (DataBlocked, int, error) {
	c := body(b, FrameDataBlocked)
	f := DataBlocked{Max: c.int63()}
	n, err := c.end(FrameDataBlocked)
	return f, n, err
}

// Append appends the frame.
func (f DataBlocked) Append(b []byte) []byte {
	return appendInt(append(b, byte(FrameDataBlocked)), f.Max)
}

// Len is the frame's length in bytes.
func (f DataBlocked) Len() int { return 1 + varintLen(f.Max) }

func (f DataBlocked) String() string { return fmt.Sprintf("DATA_BLOCKED{%d}", f.Max) }

// StreamDataBlocked is a STREAM_DATA_BLOCKED frame (RFC 9000 §19.13).
type StreamDataBlocked struct{ ID, Max int64 } // Max: bytes

// ParseStreamDataBlocked reads a STREAM_DATA_BLOCKED frame.
func ParseStreamDataBlocked(b []byte) (StreamDataBlocked, int, error) {
	c := body(b, FrameStreamDataBlocked)
	f := StreamDataBlocked{ID: c.int63(), Max: c.int63()}
	n, err := c.end(FrameStreamDataBlocked)
	return f, n, err
}

// Append appends the frame.
func (f StreamDataBlocked) Append(b []byte) []byte {
	b = appendInt(append(b, byte(FrameStreamDataBlocked)), f.ID)
	return appendInt(b, f.Max)
}

// Len is the frame's length in bytes.
func (f StreamDataBlocked) Len() int { return 1 + varintLen(f.ID) + varintLen(f.Max) }

func (f StreamDataBlocked) String() string {
	return fmt.Sprintf("STREAM_DATA_BLOCKED{id %d, %d}", f.ID, f.Max)
}

// StreamsBlocked is a STREAMS_BLOCKED frame (RFC 9000 §19.14).
type StreamsBlocked struct {
	Uni bool
	Max int64 // streams, at most MaxStreamCount
}

// ParseStreamsBlocked reads a STREAMS_BLOCKED frame, of either type.
func ParseStreamsBlocked(b []byte) (StreamsBlocked, int, error) {
	c, typ := body2(b, FrameStreamsBlockedBidi)
	f := StreamsBlocked{Uni: typ == FrameStreamsBlockedUni, Max: c.int63()}
	n, err := c.end(typ)
	// §19.14: STREAM_LIMIT_ERROR or FRAME_ENCODING_ERROR.
	if err == nil && f.Max > MaxStreamCount {
		return StreamsBlocked{}, 0, &Error{Code: StreamLimitError, FrameType: typ, Reason: "more than 2^60 streams"}
	}
	return f, n, err
}

func (f StreamsBlocked) typ() uint64 {
	if f.Uni {
		return FrameStreamsBlockedUni
	}
	return FrameStreamsBlockedBidi
}

// Append appends the frame.
func (f StreamsBlocked) Append(b []byte) []byte { return appendInt(append(b, byte(f.typ())), f.Max) }

// Len is the frame's length in bytes.
func (f StreamsBlocked) Len() int { return 1 + varintLen(f.Max) }

func (f StreamsBlocked) String() string {
	return fmt.Sprintf("STREAMS_BLOCKED{uni %t, %d}", f.Uni, f.Max)
}
