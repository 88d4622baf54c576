package quic

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/volley-quic/volley/emit"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// Callers send in goroutines of their own, and the connection's goroutine is not woken for
// that. Its timer must be right all the same: whoever has sent, what is lost is found out
// at the probe timeout to the nanosecond, an ACK is not late, and silence ends the
// connection when it is due.
func TestTimersWhoeverSends(t *testing.T) {
	ways := []struct {
		name string
		send func(p *actor, s *SendStream)
	}{
		{"a small write", func(_ *actor, s *SendStream) { s.Write([]byte("small")) }},
		{"a bulk write that stops", func(_ *actor, s *SendStream) {
			s.Write(make([]byte, 9000))
		}},
		{"SendFrom", func(_ *actor, s *SendStream) {
			s.SendFrom(context.Background(), bytes.NewReader(make([]byte, 3000)), 0, -1)
		}},
		{"SendFrom in place", func(p *actor, s *SendStream) {
			s.SetEmission(emit.Tuning{Mode: emit.Single})
			s.SendFrom(context.Background(), bytes.NewReader(make([]byte, 3000)), 0, -1, emit.Detach())
		}},
		{"a datagram", func(p *actor, _ *SendStream) {
			if err := p.c.SendDatagram([]byte("message")); err != nil {
				p.Fatal(err)
			}
		}},
		{"many writers", func(p *actor, s *SendStream) {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { s.Write([]byte("one of many")) })
			}
			all.Wait()
		}},
	}
	for _, idle := range []time.Duration{0, time.Hour} {
		for _, w := range ways {
			t.Run(fmt.Sprintf("%s after %v", w.name, idle), func(t *testing.T) {
				eachRole(t, func(t *testing.T, volley role) {
					p := newActor(t, volley, func(c *Config) { c.MaxIdleTimeout = 5 * time.Hour; c.EnableDatagrams = true },
						func(tp *wire.TransportParams) { tp.MaxIdleTimeout = 5 * time.Hour; tp.MaxDatagramFrame = 1200 }).handshake()
					s, err := p.c.OpenUniStream()
					if err != nil {
						t.Fatal(err)
					}
					s.Write([]byte("the first goes another way"))
					p.settle()
					p.advance(idle)
					drain := func() {
						p.collect()
						p.queue = nil
						select {
						case <-p.sock.wrote:
						default:
						}
					}
					drain()

					begin := time.Now()
					w.send(p, s)
					p.advance(0)
					if p.collect(); len(p.queue) == 0 {
						t.Fatal("nothing is sent at once")
					}
					p.advance(time.Millisecond) // for the pacer
					drain()
					p.c.mu.Lock()
					pto := time.Until(p.c.rec.Timer())
					if most := p.c.rec.PTO(recovery.App); pto <= 0 || pto > most {
						t.Errorf("the probe is due in %v, want less than %v", pto, most)
					}
					p.c.mu.Unlock()
					if d := p.advanceToSend(); d != pto {
						t.Errorf("the probe is sent after %v, want %v", d, pto)
					}
					drain()
					// An ACK is due while we probe, and is not forgotten.
					p.writeFrames(wire.OneRTT, wire.Ping{})
					if d := p.advanceToSend(); d > maxAckDelay {
						t.Errorf("the ACK is sent after %v", d)
					}
					last := time.Now()
					select {
					case <-p.c.Context().Done():
					case <-time.After(6 * time.Hour):
						t.Fatal("the connection never ends")
					}
					// Since the PING, the first probe after it has restarted the timer once.
					if d := time.Since(last); d < 5*time.Hour-time.Second || d > 5*time.Hour+time.Minute {
						t.Errorf("it ends %v after the last packet came, %v after it was sent to", d, time.Since(begin))
					}
				})
			})
		}
	}
}
