package quic

import (
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// A peer says the same things without end and acknowledges nothing. What Volley keeps of it
// is bounded, and so is what it answers: a packet for each of the peer's at most, but for a
// few.
func TestFloodsAreBounded(t *testing.T) {
	const packets, each = 300, 40
	for _, tt := range []struct {
		name  string
		frame func(p *actor, n int64) wire.Frame
	}{
		{"IMMEDIATE_ACK", func(*actor, int64) wire.Frame { return wire.ImmediateAck{} }},
		{"ACK_FREQUENCY for each packet", func(_ *actor, n int64) wire.Frame {
			return wire.AckFrequency{Seq: n, MaxDelay: 1000}
		}},
		{"ACK_FREQUENCY, never", func(_ *actor, n int64) wire.Frame {
			return wire.AckFrequency{Seq: n, Threshold: 1<<62 - 1, MaxDelay: 1<<14*1000 - 1, Reordering: 1<<62 - 1}
		}},
		{"PATH_CHALLENGE", func(_ *actor, n int64) wire.Frame { return wire.PathChallenge{Data: [8]byte{byte(n), byte(n >> 8)}} }},
		{"PATH_RESPONSE", func(*actor, int64) wire.Frame { return wire.PathResponse{} }},
		{"MAX_DATA", func(_ *actor, n int64) wire.Frame { return wire.MaxData{Max: 1<<62 - 1 - n} }},
		{"MAX_STREAMS", func(_ *actor, n int64) wire.Frame { return wire.MaxStreams{Max: 1<<60 - n} }},
		{"STREAMS_BLOCKED", func(*actor, int64) wire.Frame { return wire.StreamsBlocked{Max: 100} }},
		{"STREAM_DATA_BLOCKED", func(p *actor, n int64) wire.Frame {
			return wire.StreamDataBlocked{ID: p.mine(bidi, n%100)}
		}},
		{"RESET_STREAM", func(p *actor, n int64) wire.Frame { return wire.ResetStream{ID: p.mine(uni, n%100)} }},
		{"STOP_SENDING", func(p *actor, n int64) wire.Frame { return wire.StopSending{ID: p.mine(bidi, n%100)} }},
		{"streams that end at once", func(p *actor, n int64) wire.Frame { return stream0(p.mine(uni, n%100), 0, "", true) }},
		{"bytes with gaps", func(p *actor, n int64) wire.Frame { return stream0(p.mine(bidi, 0), 2*n, "x", false) }},
		{"datagrams", func(*actor, int64) wire.Frame { return wire.Datagram{Data: []byte("nobody wants it"), HasLen: true} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachRole(t, func(t *testing.T, volley role) {
				p := newActor(t, volley, func(c *Config) { c.EnableDatagrams, c.EnableStreamResetPartialDelivery = true, true }).handshake()
				p.settle()
				said := len(p.packets)
				n := int64(0)
				for range packets {
					var fs []wire.Frame
					for range each {
						fs = append(fs, tt.frame(p, n))
						n++
					}
					p.writeFrames(wire.OneRTT, fs...)
				}
				p.wantAlive("that is no crime")
				p.collect()
				if answers := len(p.packets) - said; answers > packets+20 {
					t.Errorf("%d packets are answered by %d", packets, answers)
				}
				c := p.c
				c.mu.Lock()
				defer c.mu.Unlock()
				for what, n := range map[string][2]int{
					"frames due":       {len(c.control.queue), 250},
					"open streams":     {len(c.streams.open), 200},
					"streams to come":  {len(c.streams.bidiQueue) + len(c.streams.uniQueue), 200},
					"messages":         {len(c.datagrams.in), maxDatagramsIn},
					"answers due":      {len(c.paths.answers), maxPathAnswers},
					"paths":            {len(c.paths.all), maxPaths},
					"connection IDs":   {len(c.ids.remote) + len(c.ids.local), 8},
					"ranges to be ack": {len(c.spaces[2].acks.got), maxAckRanges},
					"callbacks":        {len(c.after), 0},
				} {
					if n[0] > n[1] {
						t.Errorf("%s: %d, want %d at most", what, n[0], n[1])
					}
				}
			})
		})
	}
}
