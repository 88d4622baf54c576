// Package stream holds one QUIC stream: its sending half, a queue of blocks
// with the byte ranges that are pending, in flight or acknowledged ([Send]),
// and its receiving half, which puts frames back in order ([Recv]).
//
// # Concurrency
//
// A connection is a monitor. Both halves take it through [Host]; methods
// whose comment begins with "Monitor held" are called with it, all others
// take it themselves. Memory of the application is copied without it.
//
// # Memory
//
// Bytes lie in pooled blocks ([Block]). An idle stream holds none: a block of
// the send side goes back to the pool when its last byte is acknowledged,
// also out of order; one of the receive side when its last byte is read.
// Neither half has a goroutine, and each makes its one channel when a call
// has to wait for the first time.
package stream
