// Package recovery keeps the record of what was sent and decides what was
// lost (RFC 9002).
//
// The record is made of trains: up to sixteen packets with consecutive
// numbers, sent at one time, that carry one run of one stream's bytes. What
// became of each packet is a bit. An ACK frame therefore costs by the ranges
// it has and by the trains it settles, not by the packets it names; trains
// that were settled before are jumped over.
//
// Nothing here reads a clock: every method is told the time. Nothing here
// locks: everything is called with the connection's mutex held, and so are
// Data and Owner, which must not call back.
package recovery
