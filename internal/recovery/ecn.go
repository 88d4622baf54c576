package recovery

import "github.com/volley-quic/volley/internal/wire"

// ecnSpace are the marks of one space: what we set and what the peer counted
// in the last ACK that was taken in.
type ecnSpace struct {
	sent           uint64
	ect0, ect1, ce uint64
	anew           bool // the next counts are what those of a new path build upon
}

// ecnPath is whether marks survive the path (RFC 9000 §13.4.2).
type ecnPath struct {
	failed            bool
	why               string
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
	if e.anew && ack.ECN {
		// RFC 9000 A.4: counts of the path before are remembered as a baseline.
		e.anew = false
		e.ect0, e.ect1, e.ce = ack.ECT0, ack.ECT1, ack.CE
		e.sent = max(e.sent, ack.ECT0+ack.CE)
		return false, true
	}
	switch {
	case !ack.ECN && ect0 == 0:
		return false, true
	case !ack.ECN: // marked packets, and the peer did not see the marks
		r.ecn.fail("ACK of marked packets without ECN counts")
	case ack.ECT0 < e.ect0, ack.ECT1 < e.ect1, ack.CE < e.ce:
		r.ecn.fail("ECN counts fell")
	case ack.ECT0-e.ect0+ack.CE-e.ce < ect0:
		r.ecn.fail("marks were taken off")
	case ack.ECT0+ack.CE > e.sent, ack.ECT1 > e.ect1:
		r.ecn.fail("marks were put on")
	}
	if r.ecn.failed {
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
	r.ecn.fail("no marked packet arrived")
	return true
}

func (p *ecnPath) fail(why string) { p.failed, p.why = true, why }
