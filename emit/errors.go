package emit

import "errors"

var (
	// ErrNotReady is a source's answer when it has no more bytes for now. The
	// stream rests, and others go on, until its Ready method is called. A Ready
	// that comes before the source has returned ErrNotReady is not lost.
	ErrNotReady = errors.New("emit: source not ready")

	// ErrSourceChanged is why a stream was reset: its source was asked again for
	// bytes that had been sent, and gave different ones.
	ErrSourceChanged = errors.New("emit: source changed: bytes that were sent before came back different")

	// ErrBusy is what a call that would add bytes to a stream returns while
	// SendFrom or ReadFrom is running on it.
	ErrBusy = errors.New("emit: stream is sending from a source")
)
