package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A stack is a QUIC library that runs in this process.
type stack interface {
	// listen serves the socket pc and closes it with the listener.
	listen(pc *net.UDPConn, conf *tls.Config, o options) (listener, error)
	// dial opens a connection from a socket of its own, which is closed with it.
	dial(ctx context.Context, addr *net.UDPAddr, conf *tls.Config, o options) (conn, error)
}

// options is what a case wants of a stack beside its defaults.
type options struct {
	early        bool     // a client sends 0-RTT data; a server takes it
	retry        bool     // a server lets every client prove its address
	smallWindows bool     // a client's receive windows begin small, and must grow
	version2     bool     // QUIC version 2 from the first packet on
	keepAlive    bool     // a client speaks up when it has heard nothing for a second
	migrate      bool     // a client moves to another socket in mid-transfer
	preferred    bool     // a server would rather be reached at another address
	tap          *capture // Volley: write down what its sockets send and get

	// Of Volley's server: the hosts of the other address, at ports that it finds.
	preferredHosts []netip.Addr
}

// handshakeSilence is how long a peer may be silent during the handshake. Some cases lose
// several packets in a row, and a client that sends one at a time and doubles the wait is
// silent for longer than the usual 5 s.
const handshakeSilence = 30 * time.Second

// What receive windows begin with under options.smallWindows, in bytes.
const (
	smallStreamWindow = 32 << 10
	smallConnWindow   = 48 << 10
)

// A listener accepts connections until it is closed, which ends them too.
type listener interface {
	accept(context.Context) (conn, error)
	close()
}

// A conn is a connection; its methods may be called from several goroutines.
type conn interface {
	open(context.Context) (stream, error)
	accept(context.Context) (stream, error)
	openUni(context.Context) (stream, error) // which cannot be read
	acceptUni(context.Context) (io.Reader, error)
	close(code uint64)
	// wait waits for the end and says how it came.
	wait(context.Context) error
}

// A migrator is a conn that can move to another socket.
type migrator interface {
	migrate(context.Context) error
}

// A stream is a bidirectional stream.
type stream interface {
	io.Reader
	io.Writer
	flush() error // what was written goes now, where a stack waits for more
	closeWrite() error
	reset()
	// send sends n bytes of src, in the way that suits the stack best, and ends the
	// sending half.
	send(ctx context.Context, src io.ReaderAt, n int64) error
	// release says that the stream was read to its end.
	release()
}

// copyFrom is send for a stack that has nothing better than Write.
func copyFrom(s stream, src io.ReaderAt, n int64) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{s}, io.NewSectionReader(src, 0, n), make([]byte, 64<<10)); err != nil {
		return err
	}
	return s.closeWrite()
}

// clientSocket opens the socket of a client that talks to addr.
func clientSocket(addr *net.UDPAddr) (*net.UDPConn, error) {
	if addr.IP.To4() != nil {
		return net.ListenUDP("udp4", nil)
	}
	return net.ListenUDP("udp6", nil)
}

// sockets are those of a client, of which there are two after a move.
type sockets struct {
	mu    sync.Mutex
	close []func()
}

func (s *sockets) add(close func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close = append(s.close, close)
}

func (s *sockets) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, close := range s.close {
		close()
	}
	s.close = nil
}
