package udp

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxBatch bounds the messages of one recvmmsg; each has a 64 KiB buffer waiting.
const maxBatch = 16

// receiver is all that recvmmsg points at. The slots from 0 to ready-1 are set up.
type receiver struct {
	hdrs    [maxBatch]unix.Mmsghdr
	iovs    [maxBatch]unix.Iovec
	names   [maxBatch]unix.RawSockaddrInet6
	control [maxBatch][roomForReceiving / 8]uint64
	bufs    [maxBatch]*Buffer
	ready   int

	// batch grows while reads fill it, so that a quiet socket has one buffer waiting
	// and not a megabyte.
	batch int

	ask   int // slots offered to the call in progress
	got   int // slots it filled
	errno syscall.Errno

	// Of the reader, who may wait while others read: how much it wants, and its lock.
	most int
	lock sync.Locker

	// Built once.
	wait func(fd uintptr) bool // for read
	once func(fd uintptr)      // for readNow

	zones map[uint32]string // interface names; a handful
}

func (in *receiver) init() {
	in.batch = 1
	in.wait = func(fd uintptr) bool {
		in.lock.Lock()
		in.offer(in.most)
		if in.recvmmsg(fd) {
			return true
		}
		in.lock.Unlock()
		return false
	}
	in.once = func(fd uintptr) { in.recvmmsg(fd) }
	for i := range in.hdrs {
		h := &in.hdrs[i].Hdr
		h.Iov = &in.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&in.names[i]))
		h.Control = (*byte)(unsafe.Pointer(&in.control[i]))
	}
}

// recvmmsg reports whether the call has an answer: false means that nothing has arrived.
func (in *receiver) recvmmsg(fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&in.hdrs)), uintptr(in.ask), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		in.got, in.errno = int(n), errno
		if errno != 0 {
			in.got = 0
		}
		return true
	}
}

// prepare sets slot i up for the kernel, which has overwritten the lengths.
func (in *receiver) prepare(i int) {
	if in.bufs[i] == nil {
		in.bufs[i] = newBuffer(&bigBuffers)
		in.iovs[i].Base = &in.bufs[i].mem[0]
		in.iovs[i].SetLen(bigSize)
	}
	h := &in.hdrs[i].Hdr
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(roomForReceiving)
	h.Flags = 0
}

func (s *fastSocket) read(ms []Message, stats *counters, l sync.Locker) (int, error) {
	in := &s.in
	in.most, in.lock = len(ms), l
	if err := s.raw.Read(in.wait); err != nil {
		return 0, err
	}
	n, err := s.taken(ms, stats)
	if n == 0 {
		l.Unlock()
	}
	return n, err
}

func (s *fastSocket) readNow(ms []Message, stats *counters) (int, error) {
	s.in.offer(len(ms))
	if err := s.raw.Control(s.in.once); err != nil {
		return 0, err
	}
	return s.taken(ms, stats)
}

// napTime is what is asked for; the kernel adds some 50 µs.
const napTime = 20 * time.Microsecond

// nap sleeps in the system: Go's timers are kept by the poller, to the millisecond. It is a
// raw system call, for the reasons of [sendOp.sendmsg] and as the runtime's monitor wakes up
// for any other that begins while it sleeps, and looks every 20 µs and more what goes on, for
// some milliseconds. A signal, as of a garbage collector that wants all to stop, ends the nap.
func (s *fastSocket) nap() {
	t := unix.NsecToTimespec(int64(napTime))
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// offer makes room for the next call, which may bring nothing.
func (in *receiver) offer(most int) {
	in.got, in.errno = 0, 0
	in.ask = min(in.batch, most)
	for ; in.ready < in.ask; in.ready++ {
		in.prepare(in.ready)
	}
}

// taken makes messages of what the call brought.
func (s *fastSocket) taken(ms []Message, stats *counters) (int, error) {
	in := &s.in
	if in.errno != 0 {
		return 0, os.NewSyscallError("recvmmsg", in.errno)
	}
	if in.got == in.batch {
		in.batch = min(2*in.batch, maxBatch)
	}
	n, datagrams, coalesced := 0, 0, 0
	for i := range in.got {
		if in.take(i, &ms[n], stats) {
			k := (len(ms[n].Data) + ms[n].Segment - 1) / ms[n].Segment
			datagrams += k
			if k > 1 {
				coalesced++
			}
			n++
		}
		in.prepare(i)
	}
	if n > 0 {
		stats.received(n, datagrams, coalesced)
	}
	return n, nil
}

// take makes a Message of what the kernel put into slot i. It is false if that is
// of no use: cut, empty, or from nowhere.
func (in *receiver) take(i int, m *Message, stats *counters) bool {
	h, n := &in.hdrs[i].Hdr, int(in.hdrs[i].Len)
	if h.Flags&unix.MSG_TRUNC != 0 {
		stats.truncations.Add(1)
		return false
	}
	remote := in.remote(i)
	if n == 0 || n > bigSize || !remote.IsValid() {
		return false
	}
	control := unsafe.Slice((*byte)(unsafe.Pointer(&in.control[i])), roomForReceiving)
	said := parseControl(control[:min(int(h.Controllen), roomForReceiving)])
	in.bufs[i], m.Buf = handOver(in.bufs[i], n)
	m.Data = m.Buf.Bytes()
	m.Segment = said.segment
	if m.Segment <= 0 || m.Segment > n {
		m.Segment = n
	}
	m.Remote, m.RemoteAddr = remote, nil
	m.Local, m.ECN = said.local, said.ecn
	return true
}

func (in *receiver) remote(i int) netip.AddrPort {
	switch name := &in.names[i]; name.Family {
	case unix.AF_INET:
		name := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), getPort(&name.Port))
	case unix.AF_INET6:
		addr := netip.AddrFrom16(name.Addr).Unmap()
		if name.Scope_id != 0 {
			addr = addr.WithZone(in.zone(name.Scope_id))
		}
		return netip.AddrPortFrom(addr, getPort(&name.Port))
	}
	return netip.AddrPort{}
}

// zone names an interface as package net does.
func (in *receiver) zone(scope uint32) string {
	name, ok := in.zones[scope]
	if !ok {
		name = strconv.FormatUint(uint64(scope), 10)
		if i, err := net.InterfaceByIndex(int(scope)); err == nil {
			name = i.Name
		}
		if in.zones == nil {
			in.zones = make(map[uint32]string)
		}
		in.zones[scope] = name
	}
	return name
}
