package recovery

import "github.com/volley-quic/volley/internal/wire"

// ecnSpace are the marks of one space: what we set and what the peer counted
// in the last ACK that was taken in.
type ecnSpace struct {
	sent           uint64
	ect0, ect1, ce uint64
}

// ecnPath is whether marks survive the path (RFC 9000 §13.4.2).
type ecnPath struct {
	failed            bool
	sent, acked, lost uint64 // marked packets
}

// ecnProof is how many marked packets must get lost, and none through, before
// the marks are held to be the cause.
const ecnProof = 10

// validateECN checks the counts of an ACK that raised the largest acknowledged
// number (RFC 9000 §13.4.2.1) and newly acknowledged ect0 marked packets. ce
// says whether more CE marks are reported; ok is false if validation failed
// just now. After a failure counts mean nothing.
func (r *Recovery) validateECN(s *space, ack *wire.Ack, ect0 uint64) (ce, ok bool) {
	if r.ecn.failed {
		return false, true
	}
	e := &s.ecn
	switch {
	case !ack.ECN:
		if ect0 == 0 {
			return false, true
		}
		fallthrough // marked packets, and the peer did not see the marks
	case ack.ECT0 < e.ect0, ack.ECT1 < e.ect1, ack.CE < e.ce, // counts never fall
		ack.ECT0-e.ect0+ack.CE-e.ce < ect0,     // marks were taken off
		ack.ECT0+ack.CE > e.sent, ack.ECT1 > 0: // marks were put on
		r.ecn.failed = true
		return false, false
	}
	ce = ack.CE > e.ce
	e.ect0, e.ect1, e.ce = ack.ECT0, ack.ECT1, ack.CE
	return ce, true
}

// allMarkedLost fails validation when marked packets never arrive.
func (r *Recovery) allMarkedLost() bool {
	if r.ecn.failed || r.ecn.acked > 0 || r.ecn.lost < ecnProof {
		return false
	}
	r.ecn.failed = true
	return true
}
