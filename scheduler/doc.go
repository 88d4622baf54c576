// Package scheduler decides which stream of a connection sends next.
//
// The scheduler that [New] makes follows the extensible prioritization scheme
// of RFC 9218. A stream has an urgency, 0 (first) to 7 (last), and is
// incremental (its receiver can use it in parts) or not. Streams start at
// urgency 3, incremental.
//
//   - A stream of lower urgency value goes before every stream of a higher one
//     (RFC 9218 §10). This is strict: as long as urgency 0 has something it can
//     send, urgency 1 waits.
//   - Incremental streams of one urgency share: each in turn sends one quantum,
//     by default [emit.MaxDatagrams] datagrams, which is one pass, and more on paths that
//     are so fast that it takes no time (see [Turner]).
//   - Non-incremental streams of one urgency go one by one in ascending order of
//     stream ID, the order in which a client asked for them. The second sends
//     nothing until the first is done or cannot go on.
//   - Where both kinds meet at one urgency, RFC 9218 §10 recommends that neither
//     starves the other and leaves the way open. The rule here: all
//     non-incremental streams together form one line, and the line takes turns
//     as a single incremental stream would. With three incremental streams and
//     any number of non-incremental ones, each of the three has a quarter of the
//     bandwidth, and so has the first of the line.
//
// # Turns
//
// A turn is worth one quantum of datagrams, however many passes and flights it
// takes: a stream whose pass was cut short because the flight was full sends
// the rest of its turn in the next flight, before its equals. Otherwise flights
// of an unlucky size would give one of two equal streams most of the bandwidth.
// A stream that has nobody to share with is always offered a whole quantum, so
// that its passes stay long.
//
// A stream that was named and sent nothing keeps its turn, and is passed over
// until [Scheduler.FlightEnd]: the next stream is not held up, and the one
// passed over is first again in the flight after.
//
// # A scheduler of your own
//
// [Scheduler] is small on purpose: an application can implement it, from scratch
// or around the one that [New] returns, and give it to the connection.
package scheduler
