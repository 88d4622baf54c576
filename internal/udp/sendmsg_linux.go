package udp

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendOp is all that one sendmsg points at. They are pooled rather than one per
// socket or Route: many goroutines send at once, and Routes are copied.
type sendOp struct {
	hdr     unix.Msghdr
	iov     unix.Iovec
	name    unix.RawSockaddrInet6 // or a RawSockaddrInet4 in its place
	control [maxSendControl / 8]uint64
	errno   syscall.Errno
	call    func(fd uintptr) // built once: a closure per call would be an allocation per call
}

var sendOps = sync.Pool{New: func() any {
	op := new(sendOp)
	op.hdr.Iov = &op.iov
	op.hdr.SetIovlen(1)
	op.hdr.Name = (*byte)(unsafe.Pointer(&op.name))
	op.call = op.sendmsg
	return op
}}

// sendmsg is a raw system call, as is recvmmsg: neither waits. Of one that might, the runtime
// takes its processor away and gives it to another thread, which has to be woken; where all
// processors are busy that happens again and again.
func (op *sendOp) sendmsg(fd uintptr) {
	for {
		_, _, op.errno = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&op.hdr)), unix.MSG_DONTWAIT)
		if op.errno != unix.EINTR {
			return
		}
	}
}

// send uses RawConn.Control, not Write: Write lets one sender in at a time, and
// minds the application's write deadline.
func (s *fastSocket) send(r *Route, b []byte, segment int, ecn ECN) error {
	op := sendOps.Get().(*sendOp)
	defer sendOps.Put(op)
	v4, err := op.address(r, s.v6)
	if err != nil {
		return err
	}
	w := controlWriter{buf: unsafe.Slice((*byte)(unsafe.Pointer(&op.control)), maxSendControl)}
	if segment < len(b) {
		w.segment(segment)
	}
	if ecn != NotECT {
		w.ecn(v4, ecn)
	}
	if r.Local.Addr.IsValid() {
		w.source(v4, r.Local)
	}
	op.hdr.Control = nil
	if w.n > 0 {
		op.hdr.Control = &w.buf[0]
	}
	op.hdr.SetControllen(w.n)
	op.iov.Base = unsafe.SliceData(b)
	op.iov.SetLen(len(b))
	err = s.raw.Control(op.call)
	op.iov.Base = nil // the pool must not keep the flight alive
	if err != nil {
		return err
	}
	if op.errno != 0 {
		return os.NewSyscallError("sendmsg", op.errno)
	}
	return nil
}

// address writes r.Remote as the socket's family wants it. v4 tells which version
// the packets will have.
func (op *sendOp) address(r *Route, v6Socket bool) (v4 bool, err error) {
	addr, port := r.Remote.Addr().Unmap(), r.Remote.Port()
	v4 = addr.Is4()
	switch {
	case !addr.IsValid():
		return false, os.NewSyscallError("sendmsg", syscall.EDESTADDRREQ)
	case v4 && !v6Socket:
		name := (*unix.RawSockaddrInet4)(unsafe.Pointer(&op.name))
		*name = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: addr.As4()}
		putPort(&name.Port, port)
		op.hdr.Namelen = unix.SizeofSockaddrInet4
	case v6Socket:
		op.name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: addr.As16()}
		putPort(&op.name.Port, port)
		if addr.Zone() != "" {
			op.name.Scope_id = r.addr.scope(addr)
		}
		op.hdr.Namelen = unix.SizeofSockaddrInet6
	default:
		return false, os.NewSyscallError("sendmsg", syscall.EAFNOSUPPORT)
	}
	return v4, nil
}

// putPort writes a port in network byte order, whatever the host's is.
func putPort(dst *uint16, port uint16) {
	*(*[2]byte)(unsafe.Pointer(dst)) = [2]byte{byte(port >> 8), byte(port)}
}

func getPort(src *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(src))
	return uint16(b[0])<<8 | uint16(b[1])
}

// scope is the interface index of a link-local address's zone, looked up when
// the zone changes.
func (c *addrCache) scope(a netip.Addr) uint32 {
	if zone := a.Zone(); c.zone != zone {
		c.zone, c.scopeID = zone, 0
		if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
			c.scopeID = uint32(n)
		} else if i, err := net.InterfaceByName(zone); err == nil {
			c.scopeID = uint32(i.Index)
		}
	}
	return c.scopeID
}
