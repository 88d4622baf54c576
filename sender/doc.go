// Package sender builds what a QUIC connection sends in 1-RTT packets: it runs
// passes over streams, gathers them into flights, and hands every flight to the
// kernel in one system call.
//
// A pass takes one contiguous range of one stream and cuts it into at most
// [emit.MaxDatagrams] slots, each a STREAM frame in a datagram of its own. Every
// slot but the last fills its datagram and so needs no Length field. A flight is a
// run of such datagrams, all of one size but the last, as UDP segmentation offload
// wants them.
//
// Who holds the token sends. The token is a flag under the connection's mutex:
// callers of Write, SendFrom and ReadFrom try to take it and leave the work to its
// holder when it is taken; the connection's goroutine does the same. Planning,
// copying into packets and the bookkeeping of a flight happen under the mutex, in
// one hold; sealing, the system call and every call of a source happen without it.
//
// A source that scatters is called without the token. One that fills packets in place
// is called with it, by its own asker, who waits in line for it; if the source keeps it
// for longer than a millisecond the next who wants to send robs it of the token, and its
// bytes go as if they had been scattered. So no source holds up another stream, and
// any source may wait for what only a flight brings.
//
// The way of a byte through this package:
//
//	stream.Send ─ Next ─► pass ─ header, memmove ─► Flight ─► flush ─► Seal ─► udp.Send
//	   ▲                                              │
//	   └── ask: one source call per pass ─────────────┴─► recovery.Train
package sender
