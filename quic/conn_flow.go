package quic

import (
	"time"

	"github.com/volley-quic/volley/internal/wire"
)

// connFlow is the connection's receive window (RFC 9000 §4.1): what the peer may
// send on all streams together.
type connFlow struct {
	limit    int64 // MAX_DATA as last sent
	highest  int64 // sum of the streams' highest offsets
	consumed int64 // bytes read or discarded
	window   int64
	most     int64
	ask      bool  // the application has a say in whether the window grows
	asking   int64 // the window it is to be asked for; 0: none

	// Auto-tuning: when half the window goes within two round trips, it is the
	// window that limits the peer, and it doubles.
	epoch time.Time
}

func (f *connFlow) init(conf *Config) {
	f.window = int64(conf.InitialConnectionReceiveWindow)
	f.most = max(f.window, int64(conf.MaxConnectionReceiveWindow))
	f.limit = f.window
	f.ask = conf.AllowConnectionWindowIncrease != nil
}

// askWindow asks the application whether the receive window may grow, if it is about to.
// It is the connection's goroutine that asks, as no lock may be held.
func (c *Conn) askWindow() {
	c.mu.Lock()
	f := &c.flow
	delta := f.asking - f.window
	f.asking = 0
	c.mu.Unlock()
	if delta <= 0 || !c.config.AllowConnectionWindowIncrease(c, uint64(delta)) {
		return
	}
	c.mu.Lock()
	f.window += delta
	c.mu.Unlock()
}

// received notes that the streams' highest offsets grew by n.
func (f *connFlow) received(n int64) error {
	if n == 0 {
		return nil
	}
	f.highest += n
	if f.highest > f.limit {
		return &wire.Error{Code: wire.FlowControlError, Reason: "more data than MAX_DATA allows"}
	}
	return nil
}

// read notes that n bytes were consumed and reports whether MAX_DATA is due: when
// half the window has been read since it was last sent.
func (f *connFlow) read(n int64, now func() time.Time, rtt time.Duration) (due bool) {
	f.consumed += n
	if f.limit-f.consumed > f.window/2 {
		return false
	}
	t := now()
	if !f.epoch.IsZero() && rtt > 0 && t.Sub(f.epoch) < 2*rtt && f.window < f.most {
		if grown := min(2*f.window, f.most); f.ask {
			f.asking = grown
		} else {
			f.window = grown
		}
	}
	f.epoch = t
	return f.consumed+f.window > f.limit
}

// scarce reports whether the peer has used up most of what it was given.
func (f *connFlow) scarce() bool { return f.limit-f.highest <= f.window/4 }

// grant raises the limit and returns it, for a MAX_DATA frame.
func (f *connFlow) grant() int64 {
	f.limit = max(f.limit, f.consumed+f.window)
	return f.limit
}
