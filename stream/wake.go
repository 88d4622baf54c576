package stream

import (
	"context"
	"sync/atomic"
)

// A Wake is where a call waits for something to happen. Who waits does so by Host.Await,
// and so may be at work for the connection meanwhile.
type Wake struct {
	// ForRoom says that who waits has something to send.
	ForRoom bool

	c chan struct{} // capacity 1

	// recall brings back who is at work; nil while nobody is. It is called whenever there
	// is a token, perhaps with the monitor held, and must not block.
	recall atomic.Pointer[func()]
}

// NewWake returns a Wake without a token.
func NewWake() *Wake {
	w := new(Wake)
	w.init()
	return w
}

func (w *Wake) init() {
	if w.c == nil {
		w.c = make(chan struct{}, 1)
	}
}

// Signal leaves a token, if there is none: one call that waits returns.
func (w *Wake) Signal() {
	select {
	case w.c <- struct{}{}:
	default:
	}
	if f := w.recall.Load(); f != nil {
		(*f)()
	}
}

// Take takes the token, and reports whether there was one.
func (w *Wake) Take() bool {
	select {
	case <-w.c:
		return true
	default:
		return false
	}
}

// Wait takes the token, and waits for it or for the end of ctx, which may be nil.
func (w *Wake) Wait(ctx context.Context) {
	if ctx == nil || ctx.Done() == nil {
		<-w.c
		return
	}
	select {
	case <-w.c:
	case <-ctx.Done():
	}
}

// Away says that who waits is somewhere else from now on, and returns at a call of recall;
// or, with nil, that it is back. To miss no token it takes one, if there is one, after Away
// and before it goes.
func (w *Wake) Away(recall *func()) { w.recall.Store(recall) }
