// Package protect is QUIC packet protection (RFC 9001 §5, §6): the AEAD, header
// protection, Initial keys, the Retry integrity tag, and the key phases of 1-RTT.
// Versions 1 (RFC 9001) and 2 (RFC 9369) differ in salts and labels only.
//
// Nothing here locks. A [Sealer] and an [Opener] each keep the nonce and mask of
// the packet at hand in themselves, so that the hot path allocates nothing: one
// of them serves one goroutine at a time, while different ones run in parallel.
package protect
