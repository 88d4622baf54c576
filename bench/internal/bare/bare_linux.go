package bare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/volley-quic/volley/internal/protect"
)

const (
	socketBuffer = 7 << 20 // as the stacks ask for
	maxBatch     = 16      // messages of one recvmmsg
	silence      = 5       // seconds without news after which a side gives up
	ackLen       = headLen + 9 + tagLen
)

var errSilence = errors.New("the other side fell silent: datagrams were lost, or the socket buffers are too small")

// newSocket opens a UDP socket whose calls block: the loop has nothing else to do.
func newSocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	for _, opt := range [...]struct{ force, plain int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
	} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt.force, socketBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt.plain, socketBuffer)
		}
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: silence})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// inbox is what recvmmsg points at.
type inbox struct {
	hdrs    [maxBatch]unix.Mmsghdr
	iovs    [maxBatch]unix.Iovec
	bufs    [maxBatch][]byte
	control [maxBatch][64]byte
	from    [maxBatch]unix.RawSockaddrInet4
}

func newInbox(size int) *inbox {
	in := new(inbox)
	for i := range in.hdrs {
		in.bufs[i] = make([]byte, size)
		in.iovs[i].Base = &in.bufs[i][0]
		in.iovs[i].SetLen(size)
		h := &in.hdrs[i].Hdr
		h.Iov = &in.iovs[i]
		h.SetIovlen(1)
		h.Control = &in.control[i][0]
		h.Name = (*byte)(unsafe.Pointer(&in.from[i]))
	}
	return in
}

// read waits for one message and takes what else is there.
func (in *inbox) read(fd int) (int, error) {
	for i := range in.hdrs {
		h := &in.hdrs[i].Hdr
		h.SetControllen(len(in.control[i]))
		h.Namelen = unix.SizeofSockaddrInet4
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.hdrs)), maxBatch, unix.MSG_WAITFORONE, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errSilence
		default:
			return 0, fmt.Errorf("recvmmsg: %w", errno)
		}
	}
}

// message is the i-th message, and the size of all its datagrams but the last.
func (in *inbox) message(i int) (b []byte, segment int) {
	b = in.bufs[i][:in.hdrs[i].Len]
	segment = len(b)
	for c := in.control[i][:min(int(in.hdrs[i].Hdr.Controllen), len(in.control[i]))]; len(c) >= unix.SizeofCmsghdr; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		if int(h.Len) < unix.SizeofCmsghdr || int(h.Len) > len(c) {
			break
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO {
			segment = int(binary.NativeEndian.Uint32(c[unix.CmsgLen(0):]))
		}
		c = c[min(len(c), unix.CmsgSpace(int(h.Len)-unix.CmsgLen(0))):]
	}
	return b, segment
}

// Receiver is the receiving end.
type Receiver struct {
	fd   int
	addr string
	bare bool
	size int
}

// Listen opens a receiver's socket on the loopback interface. Of c it looks at Size
// and Bare.
func Listen(c Config) (*Receiver, error) {
	fd, err := newSocket()
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("UDP_GRO: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	port := sa.(*unix.SockaddrInet4).Port
	return &Receiver{fd: fd, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String(), bare: c.Bare, size: c.withDefaults().Size}, nil
}

// Addr is where the receiver listens.
func (r *Receiver) Addr() string { return r.addr }

// Receive takes in warm and then size payload bytes from one sender, and closes the
// socket. begin is called between the two, end after.
func (r *Receiver) Receive(warm, size int64, begin, end func()) (rep Report, err error) {
	defer unix.Close(r.fd)
	in := newInbox(64 << 10)
	open, seal := newOpener(), newSealer()
	ring := contentRing(r.size)
	ack := make([]byte, ackLen)
	var got, largest, ackPN int64 = 0, -1, 0
	total := warm + size
	connected := false
	for got < total {
		n, err := in.read(r.fd)
		if err != nil {
			return rep, err
		}
		if !connected {
			from := &in.from[0]
			port := (*[2]byte)(unsafe.Pointer(&from.Port))
			if err := unix.Connect(r.fd, &unix.SockaddrInet4{Addr: from.Addr, Port: int(port[0])<<8 | int(port[1])}); err != nil {
				return rep, fmt.Errorf("connect: %w", err)
			}
			connected = true
		}
		before := got
		for i := range n {
			b, segment := in.message(i)
			rep.Calls++
			for len(b) > 0 {
				p := b[:min(segment, len(b))]
				b = b[len(p):]
				rep.Packets++
				if r.bare {
					got += int64(len(p) - Overhead)
					continue
				}
				pn, payload, err := open.Open(p, pnOff, largest)
				if err != nil || len(payload) < frameLen {
					rep.Failed++
					continue
				}
				largest = max(largest, pn)
				// During the warm-up, outside the clock, every byte is looked at.
				data := payload[frameLen:]
				if off := int64(binary.BigEndian.Uint64(payload[2:])); before < warm && string(data) != string(ring[off%251:][:len(data)]) {
					rep.Failed++
				}
				got += int64(len(data))
			}
		}
		if before < warm && got >= warm {
			rep = Report{Failed: rep.Failed}
			begin()
		}
		if before < warm {
			rep.Packets, rep.Calls = 0, 0
		}
		if got >= total {
			end()
		}
		packet(ack, ackPN)
		ack[headLen] = 2 // an ACK frame's type
		binary.BigEndian.PutUint64(ack[headLen+1:], uint64(got))
		if !r.bare {
			seal.Seal(ack, pnOff, pnLen, ackPN)
		}
		ackPN++
		if _, err := unix.SendmsgN(r.fd, ack, nil, nil, 0); err != nil {
			return rep, fmt.Errorf("sendmsg: %w", err)
		}
	}
	rep.Bytes = size
	return rep, nil
}

// packet writes a short header.
func packet(b []byte, pn int64) {
	b[0] = 0x40 | pnLen - 1
	copy(b[1:pnOff], "bare")
	binary.BigEndian.PutUint32(b[pnOff:], uint32(pn))
}

// sender is what Send keeps between flights.
type sender struct {
	c    Config
	fd   int
	seal *protect.Sealer
	ring []byte
	buf  []byte // the flight
	pn   int64
	off  int64 // payload bytes sent

	blocks [][]byte // what a source fills, each with room for a frame header in front
	block  int

	oob []byte
	hdr unix.Msghdr
	iov unix.Iovec
}

// Send sends warm and then size payload bytes to a receiver, rounded up to whole
// datagrams. begin is called between the two, end after.
func Send(addr string, c Config, warm, size int64, begin, end func()) (rep Report, err error) {
	if err := c.Validate(); err != nil {
		return rep, err
	}
	c = c.withDefaults()
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return rep, err
	}
	fd, err := newSocket()
	if err != nil {
		return rep, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return rep, fmt.Errorf("connect: %w", err)
	}
	n := c.Size - Overhead
	x := &sender{c: c, fd: fd, seal: newSealer(), buf: make([]byte, c.Datagrams*c.Size), ring: contentRing(c.Datagrams * n)}
	if c.Source != nil {
		each := frameLen + c.PerCall*n
		for range max(1, c.Retain/each) {
			x.blocks = append(x.blocks, make([]byte, each))
		}
	}
	x.oob = make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&x.oob[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(x.oob[unix.CmsgLen(0):], uint16(c.Size))
	x.hdr.Iov = &x.iov
	x.hdr.SetIovlen(1)
	x.iov.Base = &x.buf[0]

	in, open := newInbox(2048), newOpener()
	var acked, largest int64 = 0, -1
	total := warm + size
	var start time.Time
	warmed := false
	for acked < total {
		if !warmed && acked >= warm {
			warmed = true
			rep = Report{}
			begin()
			start = time.Now()
		}
		// What remains of the warm-up leaves alone, so that the clock starts with
		// nothing under way.
		goal := total
		if !warmed {
			goal = warm
		}
		flight := min(int64(c.Datagrams), (goal-x.off+int64(n)-1)/int64(n))
		if flight > 0 && x.off-acked+flight*int64(n) <= int64(c.Window) {
			x.build(int(flight), goal)
			if err := x.send(); err != nil {
				return rep, err
			}
			rep.Packets += flight
			rep.Calls++
			continue
		}
		k, err := in.read(fd)
		if err != nil {
			return rep, err
		}
		for i := range k {
			p, _ := in.message(i)
			if len(p) != ackLen {
				return rep, errors.New("an ACK of an unexpected size")
			}
			payload := p[headLen:]
			if !c.Bare {
				var pn int64
				if pn, payload, err = open.Open(p, pnOff, largest); err != nil {
					return rep, err
				}
				largest = max(largest, pn)
			}
			acked = max(acked, int64(binary.BigEndian.Uint64(payload[1:])))
		}
	}
	rep.Elapsed = time.Since(start)
	end()
	rep.Bytes = size
	return rep, nil
}

// build makes a flight of k datagrams, of which only the last may be short: the
// payload ends at goal.
func (x *sender) build(k int, goal int64) {
	c, n := &x.c, x.c.Size-Overhead
	total := 0
	for i := 0; i < k; {
		// One pass: as many datagrams as one call of the source fills.
		slots := 1
		var block []byte
		if c.Source != nil {
			slots = min(c.PerCall, k-i)
			block = x.blocks[x.block]
			x.block = (x.block + 1) % len(x.blocks)
			want := int(min(int64(slots*n), goal-x.off))
			c.Source(block[frameLen:frameLen+want], x.off)
		}
		for j := range slots {
			m := int(min(int64(n), goal-x.off))
			pkt := x.buf[i*c.Size : i*c.Size+headLen+frameLen+m+tagLen]
			x.datagram(pkt, m, block, j*n)
			x.off += int64(m)
			x.pn++
			total += len(pkt)
			i++
		}
	}
	x.iov.SetLen(total)
	x.hdr.Control = nil
	x.hdr.SetControllen(0)
	if total > c.Size {
		x.hdr.Control = &x.oob[0]
		x.hdr.SetControllen(len(x.oob))
	}
}

// datagram makes the next packet, with m bytes of payload that lie at block[frameLen+at:].
func (x *sender) datagram(pkt []byte, m int, block []byte, at int) {
	if x.c.Bare {
		return
	}
	packet(pkt, x.pn)
	if x.c.Through && block != nil {
		// The header goes over the bytes in front of the slice, which are sealed already;
		// they are put back if the block is kept.
		p := block[at : at+frameLen+m]
		var under [frameLen]byte
		copy(under[:], p)
		frame(p, x.off)
		x.seal.SealTo(pkt, p, pnOff, pnLen, x.pn)
		if x.c.Retain > 0 {
			copy(p, under[:])
		}
		return
	}
	frame(pkt[headLen:], x.off)
	dst := pkt[headLen+frameLen : len(pkt)-tagLen]
	if block != nil {
		copy(dst, block[frameLen+at:])
	} else {
		copy(dst, x.ring[x.off%(251*4096):])
	}
	x.seal.Seal(pkt, pnOff, pnLen, x.pn)
}

// frame writes a STREAM frame's header: 0x08 with an offset and no length, an
// 8-byte offset. (Its two highest bits would be the varint's; offsets are
// smaller, and nobody parses it as one.)
func frame(b []byte, off int64) {
	b[0], b[1] = 0x0c, 0
	binary.BigEndian.PutUint64(b[2:], uint64(off))
}

func (x *sender) send() error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(x.fd), uintptr(unsafe.Pointer(&x.hdr)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("sendmsg: %w", errno)
		}
	}
}
