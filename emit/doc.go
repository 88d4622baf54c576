// Package emit is what an application implements and tunes to have a stream's
// bytes taken from a source instead of pushed with Write.
//
// # Sources
//
// A source is an [io.ReaderAt]. An [os.File], an [io.SectionReader] or a
// memory-mapped file works as it is, and [OnEmit] turns a function into one:
//
//	n, err := stream.SendFrom(ctx, file, 0, size, emit.End())
//
// Volley builds the frames of up to [MaxDatagrams] datagrams in one pass, asks
// the source once for exactly the bytes that they carry, and moves the slices to
// where they belong. The source is called by the goroutine that called SendFrom
// (or ReadFrom), while no lock of the connection is held: a disk that sleeps
// holds up its own stream and nothing else, and a source may use any method of
// the stream and the connection. [Single], [Lend] and [Vector] are called while
// the connection is being served; their sources must answer from memory or
// nearly so.
//
// # What a source answers
//
// A source is asked for the len(dst) > 0 bytes that begin at off, its own
// offset, not the stream's:
//
//	(len(dst), nil or io.EOF)   taken
//	(n, nil), 0 < n             n bytes are taken, the rest is asked for again
//	(0, nil)                    asked again; the second time in a row is
//	                            io.ErrNoProgress
//	(n, ErrNotReady)            n bytes are taken, the stream rests until its
//	                            Ready method is called
//	(n, io.EOF), n < len(dst)   n bytes are taken and the source is at its end.
//	                            Before the n bytes that SendFrom was told to
//	                            send that is io.ErrUnexpectedEOF
//	(n, another error)          n bytes are taken, and the error is returned with
//	                            the count. The stream stays usable
//
// The end of a source is not the end of the stream: that takes the option [End],
// or Close. A count outside 0..len(dst) is an error. dst belongs to the source
// until it returns and not a moment longer.
//
// # Asking again
//
// By default the bytes are kept until the peer has them. The source is asked for
// each byte once, in order, and never touched after SendFrom has returned, so
// that a deferred Close is right. With [Tuning].Reread nothing is kept; lost
// ranges are read again at their offsets, and SendFrom returns when its last
// byte is acknowledged. Then the same offset must give the same byte every time
// (RFC 9000 §2.2): bytes that changed never leave, the stream is reset with
// [ErrSourceChanged] instead. [Single], [Lend] and [Vector] always work that way.
//
// Package emittest checks a source against all this.
//
// This package imports the standard library only and knows nothing of QUIC.
package emit

// MaxDatagrams is how many datagrams one pass, and so one call of a source,
// fills at most.
const MaxDatagrams = 10
