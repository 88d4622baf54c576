// Package recovery keeps the record of what was sent and decides what was
// lost (RFC 9002).
package recovery

import (
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

// Space is a packet number space.
type Space uint8

const (
	Initial Space = iota
	Handshake
	App
	NumSpaces = 3
)

// Config is what New needs.
type Config struct {
	IsClient   bool
	Owner      Owner                 // hears of Frames; may be nil if no train carries any
	Controller congestion.Controller // never nil
}

// AckResult says what one ACK frame did.
type AckResult struct {
	NewlyAcked        bool  // at least one packet was acknowledged for the first time
	LargestNewlyAcked bool  // … and the frame's largest was among them
	Eliciting         bool  // … and an ack-eliciting packet was among them
	LargestAcked      int64 // the space's largest acknowledged number, afterwards
	AckedPackets      int
	AckedBytes        int // in flight until now
	LostPackets       int
	LostBytes         int
	SpuriousPackets   int  // declared lost earlier, acknowledged now
	RTTSample         bool // RTT() changed
	Persistent        bool // persistent congestion was established
	CE                bool // the count of CE marks grew and was believed
	ECNFailed         bool // ECN validation failed now: stop marking (RFC 9000 §13.4.2.2)
}

// Stats counts over the whole connection.
type Stats struct {
	PacketsSent, BytesSent uint64 // all packets, ACK-only ones too
	PacketsAcked           uint64
	PacketsLost, BytesLost uint64 // in flight when declared lost
	PacketsSpurious        uint64 // declared lost, acknowledged later
	PacketsUnsent          uint64 // refused by the kernel
	PTOs                   uint64
	PersistentCongestions  uint64
}

// RTT is the path's round-trip time (RFC 9002 §5).
type RTT struct {
	Latest, Min, Smoothed, Var time.Duration
	Has                        bool // a sample was taken; until then Smoothed and Var are the initial ones
}

// Recovery is one connection's loss recovery.
type Recovery struct {
	rtt   RTT
	stats Stats
	next  [NumSpaces]int64
}

func New(cfg Config) *Recovery                                         { return &Recovery{} }
func (r *Recovery) NewTrain() *Train                                   { return &Train{} }
func (r *Recovery) NextPN(sp Space) int64                              { return r.next[sp] }
func (r *Recovery) LargestAcked(sp Space) int64                        { return -1 }
func (r *Recovery) Skip(sp Space)                                      { r.next[sp]++ }
func (r *Recovery) OnSent(sp Space, trains []*Train, now time.Time)    {}
func (r *Recovery) OnUnsent(sp Space, first, last int64)               {}
func (r *Recovery) Restamp(sp Space, first, last int64, now time.Time) {}
func (r *Recovery) OnAck(sp Space, ack *wire.Ack, ackDelay time.Duration, now time.Time) (AckResult, error) {
	return AckResult{}, nil
}
func (r *Recovery) Timer() time.Time                             { return time.Time{} }
func (r *Recovery) OnTimer(now time.Time) (probe bool, sp Space) { return false, Initial }
func (r *Recovery) Probes(sp Space) int                          { return 0 }
func (r *Recovery) Discard(sp Space, now time.Time)              {}
func (r *Recovery) ResetForRetry(now time.Time)                  {}
func (r *Recovery) SetMaxAckDelay(d time.Duration)               {}
func (r *Recovery) SetHandshakeConfirmed()                       {}
func (r *Recovery) SetPeerAddressValidated()                     {}
func (r *Recovery) SetHandshakeKeys(have bool)                   {}
func (r *Recovery) SetAmplificationLimited(limited bool)         {}
func (r *Recovery) SetSendBlocked(blocked bool)                  {}
func (r *Recovery) SetAppLimited(limited bool)                   {}
func (r *Recovery) BytesInFlight() int                           { return 0 }
func (r *Recovery) PTO(sp Space) time.Duration                   { return time.Second }
func (r *Recovery) RTT() *RTT                                    { return &r.rtt }
func (r *Recovery) Stats() Stats                                 { return r.stats }
func (r *Recovery) ECNCapable() bool                             { return false }
