package recovery

import "time"

const (
	granularity  = time.Millisecond       // kGranularity (RFC 9002 A.2)
	initialRTT   = 333 * time.Millisecond // kInitialRtt
	defaultDelay = 25 * time.Millisecond  // max_ack_delay until the peer says otherwise (RFC 9000 §18.2)
)

// RTT is the estimate of the path's round-trip time (RFC 9002 §5).
type RTT struct {
	Latest, Min, Smoothed, Var time.Duration
	Has                        bool // a sample was taken; until then Smoothed and Var are the initial ones
}

// sample takes one measurement in. ackDelay is already limited to what may be
// believed.
func (r *RTT) sample(latest, ackDelay time.Duration) {
	latest = max(latest, 1) // 0 would read as "no sample"
	r.Latest = latest
	if !r.Has {
		*r = RTT{Latest: latest, Min: latest, Smoothed: latest, Var: latest / 2, Has: true}
		return
	}
	r.Min = min(r.Min, latest) // §5.2: without regard to the delay
	adjusted := latest
	if ackDelay > 0 && latest-r.Min >= ackDelay { // §5.3: never below min_rtt
		adjusted -= ackDelay
	}
	// A.7: the variation first, against the old average.
	r.Var += ((r.Smoothed - adjusted).Abs() - r.Var) / 4
	r.Smoothed += (adjusted - r.Smoothed) / 8
}

// pto is the probe timeout's base, without the peer's delay and without
// backoff (RFC 9002 §6.2.1).
func (r *RTT) pto() time.Duration { return r.Smoothed + max(4*r.Var, granularity) }
