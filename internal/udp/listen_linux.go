package udp

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Listen is net.ListenUDP, but the socket is one that Go's poller watches for what arrives
// and not for room to send. Of a *net.UDPConn it watches both, by edges, and a datagram that
// the kernel is done with is such an edge: while one goroutine sends in bulk, another
// processor that has nothing to do is woken for every flight, for nothing. Room to send is
// waited for in a system call, which is rare.
//
// The poller has no such mode, so it is given an epoll instance to watch that watches the
// socket.
func Listen(network string, addr *net.UDPAddr) (net.PacketConn, error) {
	u, err := net.ListenUDP(network, addr)
	if err != nil {
		return nil, err
	}
	raw, err := u.SyscallConn()
	if err != nil {
		u.Close()
		return nil, err
	}
	w, err := watchReads(raw, u.LocalAddr())
	if err != nil {
		// Slower, not worse. What makes the socket blocking is not the descriptor's alone.
		return u, raw.Control(func(fd uintptr) { unix.SetNonblock(int(fd), true) })
	}
	u.Close() // the socket lives on in w, and the poller has forgotten it
	return w, nil
}

// arrivals is what the poller is to hear of.
const arrivals = unix.EPOLLIN | unix.EPOLLET

// readWatched is the socket of Listen. At most one goroutine reads at a time, but for
// ReadFrom.
type readWatched struct {
	local  net.Addr
	sock   *os.File // blocking, so that it is not given to the poller; each call says MSG_DONTWAIT
	epoll  *os.File
	closed atomic.Bool

	plain   fastSocket // for the methods of net.PacketConn
	stats   counters
	reading sync.Mutex // many may call ReadFrom

	control, wait syscall.RawConn // of sock and of epoll

	// Of Read. Two closures for each call would be two allocations for each batch.
	try      func(fd uintptr) bool
	done     bool
	gone     error // of the socket, which was closed since the poller said that there is something
	tryOnce  func(fd uintptr)
	tryAgain func(uintptr) bool

	// Of watch, for the same reason.
	event    unix.EpollEvent
	modify   func(fd uintptr)
	modifyIn func(epoll uintptr)
}

// asFile is os.NewFile, but for tests.
var asFile = os.NewFile

// watchReads makes a readWatched of a socket, of which the caller closes what he has.
func watchReads(raw syscall.RawConn, local net.Addr) (*readWatched, error) {
	fd, err := -1, error(nil)
	if cerr := raw.Control(func(orig uintptr) { fd, err = unix.FcntlInt(orig, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	} else if err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: arrivals, Fd: int32(fd)})
		if err == nil {
			err = unix.SetNonblock(ep, true) // this one is the poller's
		}
		if err == nil {
			err = unix.SetNonblock(fd, false)
		}
		if err != nil {
			unix.Close(ep)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	w := &readWatched{
		local: local,
		sock:  asFile(uintptr(fd), "udp"),
		epoll: asFile(uintptr(ep), "epoll"),
	}
	w.tryOnce = func(fd uintptr) { w.done = w.try(fd) }
	w.tryAgain = func(uintptr) bool {
		w.gone = w.Control(w.tryOnce)
		return w.gone != nil || w.done
	}
	w.event.Fd = int32(fd)
	w.modifyIn = func(ep uintptr) { unix.EpollCtl(int(ep), unix.EPOLL_CTL_MOD, int(w.event.Fd), &w.event) }
	w.modify = func(uintptr) { w.wait.Control(w.modifyIn) }
	w.plain.raw, w.plain.v6 = w, isV6(fd)
	w.plain.in.init()
	if w.control, err = w.sock.SyscallConn(); err == nil {
		w.wait, err = w.epoll.SyscallConn()
	}
	if err == nil {
		err = w.SetReadDeadline(time.Time{}) // fails if the poller does not take the instance
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// SyscallConn gives access to the socket. Read of the RawConn waits for datagrams, and
// Write for room.
func (w *readWatched) SyscallConn() (syscall.RawConn, error) { return w, nil }

func (w *readWatched) Control(f func(fd uintptr)) error { return w.failure(w.control.Control(f)) }

func (w *readWatched) Read(f func(fd uintptr) bool) error {
	w.try, w.gone = f, nil
	if err := w.wait.Read(w.tryAgain); err != nil {
		return w.failure(err)
	}
	return w.gone
}

// watch has the poller look at the socket, or not: it hears of every datagram, whether
// anybody waits or not. Switched on again, it hears of those that are there.
func (w *readWatched) watch(on bool) {
	w.event.Events = 0
	if on {
		w.event.Events = arrivals
	}
	w.Control(w.modify)
}

// longestPoll bounds a wait for room, and with it how long the socket may outlive Close.
const longestPoll = 20 // milliseconds

func (w *readWatched) Write(f func(fd uintptr) bool) error {
	for done := false; !done; {
		err := w.Control(func(fd uintptr) {
			if done = f(fd); !done {
				unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, longestPoll)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// failure says as package net would that the socket is closed.
func (w *readWatched) failure(err error) error {
	if err != nil && w.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// The methods of net.PacketConn are for those who have no Conn: they move one datagram.

func (w *readWatched) ReadFrom(b []byte) (int, net.Addr, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	var m [1]Message
	for {
		n, err := w.plain.read(m[:], &w.stats, noLock{})
		if err != nil {
			return 0, nil, w.opError("read", nil, err)
		}
		if n > 0 {
			defer m[0].Buf.Release()
			return copy(b, m[0].Data), net.UDPAddrFromAddrPort(m[0].Remote), nil
		}
	}
}

func (w *readWatched) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, w.opError("write", addr, syscall.EINVAL)
	}
	for {
		err := w.plain.send(&Route{Remote: to.AddrPort()}, b, len(b), NotECT)
		if errors.Is(err, syscall.EAGAIN) {
			if err = w.plain.awaitWritable(); err == nil {
				continue
			}
		}
		if err != nil {
			return 0, w.opError("write", addr, err)
		}
		return len(b), nil
	}
}

func (w *readWatched) opError(op string, addr net.Addr, err error) error {
	if closed := w.failure(err); closed == net.ErrClosed {
		err = closed
	}
	return &net.OpError{Op: op, Net: "udp", Source: w.local, Addr: addr, Err: err}
}

func (w *readWatched) LocalAddr() net.Addr { return w.local }

func (w *readWatched) SetReadDeadline(t time.Time) error {
	return w.failure(w.epoll.SetReadDeadline(t))
}

// SetWriteDeadline has no effect: WriteTo waits for the kernel's own buffer alone, which
// empties by itself.
func (w *readWatched) SetWriteDeadline(time.Time) error { return w.failure(nil) }

func (w *readWatched) SetDeadline(t time.Time) error { return w.SetReadDeadline(t) }

func (w *readWatched) Close() error {
	if w.closed.Swap(true) {
		return w.opError("close", nil, net.ErrClosed)
	}
	w.epoll.Close() // ends a Read
	return w.sock.Close()
}
