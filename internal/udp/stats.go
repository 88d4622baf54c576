package udp

import "sync/atomic"

// Stats counts what went through a Conn.
type Stats struct {
	Sends             uint64 // system calls the kernel took
	SentDatagrams     uint64
	SegmentedSends    uint64 // of Sends, those with more than one datagram
	Reads             uint64 // messages received
	ReceivedDatagrams uint64
	CoalescedReads    uint64 // of Reads, those with more than one datagram
	Truncated         uint64 // messages cut by the kernel, dropped, in no other counter
}

type counters struct {
	sends, sentDatagrams, segmentedSends atomic.Uint64

	_ [64]byte // the reader works on another core than the senders

	reads, receivedDatagrams, coalescedReads, truncations atomic.Uint64
}

// Stats may be called at any time from any goroutine.
func (c *Conn) Stats() Stats {
	return Stats{
		Sends:             c.stats.sends.Load(),
		SentDatagrams:     c.stats.sentDatagrams.Load(),
		SegmentedSends:    c.stats.segmentedSends.Load(),
		Reads:             c.stats.reads.Load(),
		ReceivedDatagrams: c.stats.receivedDatagrams.Load(),
		CoalescedReads:    c.stats.coalescedReads.Load(),
		Truncated:         c.stats.truncations.Load(),
	}
}

// GSO reports whether a send with more than one datagram has succeeded.
func (c *Conn) GSO() bool { return c.stats.segmentedSends.Load() > 0 }

// GRO reports whether a read has brought more than one datagram.
func (c *Conn) GRO() bool { return c.stats.coalescedReads.Load() > 0 }

func (s *counters) sent(datagrams int) {
	s.sends.Add(1)
	s.sentDatagrams.Add(uint64(datagrams))
	if datagrams > 1 {
		s.segmentedSends.Add(1)
	}
}

// received counts a batch at once: one round of atomics for many messages.
func (s *counters) received(messages, datagrams, coalesced int) {
	s.reads.Add(uint64(messages))
	s.receivedDatagrams.Add(uint64(datagrams))
	if coalesced > 0 {
		s.coalescedReads.Add(uint64(coalesced))
	}
}
