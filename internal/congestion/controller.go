package congestion

import "time"

// A Controller owns one path's congestion window. It hears of one event per
// flight sent and a few per ACK frame received, never of single packets, so
// that an interface call costs nothing that counts.
//
// All sizes are bytes of UDP payload. Packets that are not in flight in the
// sense of RFC 9002 §2 (ACK-only ones) are never counted.
type Controller interface {
	// OnSent reports a flight of bytes; inFlight includes it.
	OnSent(now time.Time, bytes, inFlight int)
	// OnAck reports what one ACK frame newly acknowledged. When the same
	// frame also proved losses, OnLoss comes first.
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
	Bytes           int       // newly acknowledged, and in flight until now
	InFlightBefore  int       // bytes in flight before this ACK
	LargestSentTime time.Time // when the largest newly acknowledged packet left

	// LargestPN is the largest packet number acknowledged so far and SentPN
	// the largest one sent: they mark HyStart++'s rounds. LargestPN is -1
	// outside the application space, the only one whose numbers can be
	// compared over the connection's life.
	LargestPN, SentPN int64

	RTT                 time.Duration // this frame's RTT sample; 0: none
	MinRTT, SmoothedRTT time.Duration // after the sample was taken in
	AppLimited          bool          // the window was not what limited the sender (RFC 9002 §7.8)
}

// A Loss is a set of packets declared lost together.
type Loss struct {
	Now             time.Time
	Bytes           int
	Packets         int
	LargestSentTime time.Time // when the last of them left
	Persistent      bool      // persistent congestion (RFC 9002 §7.6)
}

// Spurious reports packets that had been declared lost and were then
// acknowledged.
type Spurious struct {
	Now      time.Time
	Packets  int
	SentTime time.Time // when the first of them left
}
