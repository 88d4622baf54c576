package wire

import "fmt"

// PathChallenge is a PATH_CHALLENGE frame (RFC 9000 §19.17).
type PathChallenge struct{ Data [8]byte }

// ParsePathChallenge reads a PATH_CHALLENGE frame.
func ParsePathChallenge(b []byte) (PathChallenge, int, error) {
	c := body(b, FramePathChallenge)
	var f PathChallenge
	copy(f.Data[:], c.bytes(uint64(len(f.Data))))
	n, err := c.end(FramePathChallenge)
	return f, n, err
}

// Append appends the frame.
func (f PathChallenge) Append(b []byte) []byte {
	return append(append(b, byte(FramePathChallenge)), f.Data[:]...)
}

// Len is the frame's length in bytes.
func (f PathChallenge) Len() int { return 1 + len(f.Data) }

func (f PathChallenge) String() string { return fmt.Sprintf("PATH_CHALLENGE{%x}", f.Data) }

// PathResponse is a PATH_RESPONSE frame (RFC 9000 §19.18).
type PathResponse struct{ Data [8]byte }

// ParsePathResponse reads a PATH_RESPONSE frame.
func ParsePathResponse(b []byte) (PathResponse, int, error) {
	c := body(b, FramePathResponse)
	var f PathResponse
	copy(f.Data[:], c.bytes(uint64(len(f.Data))))
	n, err := c.end(FramePathResponse)
	return f, n, err
}

// Append appends the frame.
func (f PathResponse) Append(b []byte) []byte {
	return append(append(b, byte(FramePathResponse)), f.Data[:]...)
}

// Len is the frame's length in bytes.
func (f PathResponse) Len() int { return 1 + len(f.Data) }

func (f PathResponse) String() string { return fmt.Sprintf("PATH_RESPONSE{%x}", f.Data) }
