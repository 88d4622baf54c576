//go:build !linux

package bare

// Receiver is the receiving end.
type Receiver struct{}

// Listen opens a receiver's socket on the loopback interface.
func Listen(Config) (*Receiver, error) { return nil, ErrUnsupported }

// Addr is where the receiver listens.
func (*Receiver) Addr() string { return "" }

// Receive takes in warm and then size payload bytes from one sender.
func (*Receiver) Receive(warm, size int64, begin, end func()) (Report, error) {
	return Report{}, ErrUnsupported
}

// Send sends warm and then size payload bytes to a receiver.
func Send(addr string, c Config, warm, size int64, begin, end func()) (Report, error) {
	return Report{}, ErrUnsupported
}
