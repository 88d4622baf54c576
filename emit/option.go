package emit

// Option changes one call of SendFrom.
type Option func(*Options)

// Options is what a list of Option says.
type Options struct {
	End        bool
	Detach     bool
	Unchanging bool
	OnAcked    func(off int64)
	OnRelease  func(error)
}

// Apply gathers opts. Of two that set the same thing the later wins; nil options
// are passed over.
func Apply(opts ...Option) Options {
	if len(opts) == 0 {
		return Options{} // the options below are on the heap
	}
	var o Options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// End ends the stream with the source's last byte: FIN rides on its frame.
func End() Option { return func(o *Options) { o.End = true } }

// Detach makes SendFrom return at once, with a count of 0, and send on its own.
// How it ended is what OnRelease is told.
func Detach() Option { return func(o *Options) { o.Detach = true } }

// Unchanging promises that the source's bytes do not change while they are sent: it is a
// slice, an embedded file, or a mapping of one that nobody writes to. It saves time in the
// modes in which lost bytes are asked for again ([Tuning].Reread and those that imply it):
// they are taken as they come, where otherwise a hash of all that was sent tells whether
// they are the same. If the promise is broken, the peer may get two values for one byte, and
// take either (RFC 9000 §2.2).
func Unchanging() Option { return func(o *Options) { o.Unchanging = true } }

// OnAcked has f called as the peer acknowledges: it has all bytes of the source
// from where SendFrom began up to, not including, the source offset off, which
// grows from call to call. f runs outside all locks and off the receive path, at
// most once for each ACK; calls do not overlap.
func OnAcked(f func(off int64)) Option { return func(o *Options) { o.OnAcked = f } }

// OnRelease has f called exactly once, whatever happens, when the source will
// not be touched any more, after every call of OnAcked's function. Its error is
// nil if all bytes were taken, and else what SendFrom returns, or with Detach
// would have returned; a panic in a detached source is such an error too. f runs
// outside all locks.
func OnRelease(f func(error)) Option { return func(o *Options) { o.OnRelease = f } }
