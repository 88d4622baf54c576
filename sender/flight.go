package sender

import (
	"sync"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/udp"
	"github.com/volley-quic/volley/internal/wire"
)

const (
	// maxSegments and maxFlightBytes are what one sendmsg with UDP_SEGMENT takes:
	// UDP_MAX_SEGMENTS of older Linux kernels, and the largest UDP payload over IPv4.
	maxSegments    = 64
	maxFlightBytes = 65507

	overhead = 16 // the AEAD tag of every cipher suite of TLS 1.3 (RFC 9001 §5.3)

	// tinyTail is the room in an open datagram that is not worth a frame of its own:
	// it is padded when what comes next does not fit in it whole.
	tinyTail = 64
)

// A Flight is what one system call carries: datagrams of one size, of which only
// the last may be shorter. Its owner is the token's holder.
//
// The last datagram stays open until it is full: while it is open its frames are
// self-delimiting, so that padding or another frame may follow.
type Flight struct {
	x   *Sender
	buf []byte // of maxFlightBytes: datagram i starts at i*size

	// What is frozen for the whole flight.
	udp   *udp.Conn
	route *udp.Route
	dst   []byte
	early *earlyKey
	size  int // bytes of every datagram but the last
	hdr   int // bytes of the header, packet number included
	pnLen int
	max   int // datagrams this flight may have

	// The datagrams so far.
	n     int  // opened
	w     int  // where the next frame of the last datagram goes
	limit int  // where its payload ends
	open  bool // it can take another frame

	framed bool // the last datagram belongs to the last train already
	robbed bool // another flight has taken over what was here: see token

	trains   []*recovery.Train // recovery's from flush on
	trainEnd int64             // offset at which the last train's data ends
	passes   []Pass            // only if there is a Trace

	// Set by flush.
	first  int64 // packet number of the first datagram
	total  int   // bytes handed to the kernel
	sealer *protect.Sealer
	ecn    udp.ECN
	probe  bool // of the path MTU
	apart  bool // it leaves by another path than the one in use
	sent   int  // datagrams that the kernel took
	held   bool // it was refused before
}

var flights = sync.Pool{New: func() any {
	return &Flight{buf: make([]byte, maxFlightBytes), trains: make([]*recovery.Train, 0, maxSegments)}
}}

// newFlight begins a flight of at most most datagrams of the given size.
func (x *Sender) newFlight(size, most int) *Flight {
	f := flights.Get().(*Flight)
	f.x = x
	f.udp, f.route, f.dst = x.udp, x.route, x.dst
	f.early, f.size = x.early, size
	f.hdr, f.pnLen = x.header()
	f.max = min(most, segments(size))
	return f
}

func (f *Flight) release() {
	f.clear()
	flights.Put(f)
}

func (f *Flight) clear() {
	clear(f.trains)
	*f = Flight{buf: f.buf, trains: f.trains[:0]}
}

// take moves what a flight holds so far into another one, with memory of its own. A source
// may still be writing behind it, and keeps f for that.
func (f *Flight) take() *Flight {
	g := flights.Get().(*Flight)
	buf, trains := g.buf, g.trains
	*g = *f
	g.buf, f.trains = buf, trains
	copy(g.buf, f.buf[:f.w])
	f.clear()
	f.robbed = true
	g.dropEmpty()
	return g
}

// dropEmpty takes back a datagram that was opened and got no frame.
func (f *Flight) dropEmpty() {
	if f.n > 0 && f.open && !f.framed {
		f.n--
		f.open = false
		f.w = f.n*f.size - overhead
		f.limit = f.w
	}
}

// segments is how many datagrams of the given size a flight holds: as many as the
// kernel takes in one call, and a whole number of full passes when that is one or more.
func segments(size int) int {
	n := min(maxSegments, maxFlightBytes/size)
	if n > fullPass {
		n -= n % fullPass
	}
	return n
}

// room returns the payload bytes left in the open datagram, 0 if there is none.
func (f *Flight) room() int {
	if !f.open {
		return 0
	}
	return f.limit - f.w
}

// next opens another datagram and reports whether there is one. What is left of
// the datagram before is padded: all but the last must be of one size.
func (f *Flight) next() bool {
	if f.n == f.max {
		return false
	}
	if f.open {
		f.pad(f.limit - f.w)
	}
	f.w = f.n*f.size + f.hdr
	f.limit = (f.n+1)*f.size - overhead
	f.n++
	f.open = true
	f.framed = false
	return true
}

// fits makes sure that n bytes fit in the open datagram, opening one if needed, and
// reports whether they do. It leaves a datagram behind only if little of it is lost:
// otherwise the flight ends there, a short last datagram being free of charge.
func (f *Flight) fits(n int) bool {
	if room := f.room(); room >= n {
		return true
	} else if f.open && room > tinyTail {
		return false
	}
	return f.next() && f.room() >= n
}

// pad writes n bytes of PADDING (RFC 9000 §19.1). The buffer holds old bytes, so
// they are written, not assumed. PADDING makes a packet count as in flight
// (RFC 9002 §2), which matters in packets that hold nothing but an ACK otherwise.
func (f *Flight) pad(n int) {
	if n <= 0 {
		return
	}
	clear(f.buf[f.w : f.w+n])
	f.w += n
	if f.framed {
		t := f.trains[len(f.trains)-1]
		t.InFlight |= 1 << (t.N - 1)
	}
}

// train returns the train of the open datagram, making it a new one if the
// datagram belongs to none.
func (f *Flight) train() *recovery.Train {
	if f.framed {
		return f.trains[len(f.trains)-1]
	}
	t := f.x.rec.NewTrain()
	t.N = 1
	f.trains = append(f.trains, t)
	f.framed = true
	return t
}

// slot records that n bytes of data at off lie in the open datagram. Slots of one
// pass share a train; a frame in a datagram that belongs to another is an extra of it.
func (f *Flight) slot(data recovery.Data, off int64, n int, fin bool) {
	var t *recovery.Train
	switch last := f.last(); {
	case !f.framed && last != nil && last.Data == data && last.N < recovery.MaxPackets && f.trainEnd == off && !last.Fin && n > 0:
		last.N++
		f.framed = true
		t = last
		t.Lens[t.N-1] = uint16(n)
		t.Fin = fin
	default:
		t = f.train()
		// A bare FIN is an extra: in a train it could not be told from a FIN
		// on the slot before.
		if t.Data == nil && n > 0 {
			t.Data, t.Off, t.Fin = data, off, fin
			t.Lens[t.N-1] = uint16(n)
		} else {
			t.Extra = append(t.Extra, recovery.Extra{I: uint8(t.N - 1), Data: data, Off: off, Len: n, Fin: fin})
			if t.Data == data {
				f.trainEnd = -1 // what follows is not contiguous with the train
			}
			t.Eliciting |= 1 << (t.N - 1)
			t.InFlight |= 1 << (t.N - 1)
			return
		}
	}
	f.trainEnd = off + int64(n)
	t.Eliciting |= 1 << (t.N - 1)
	t.InFlight |= 1 << (t.N - 1)
}

func (f *Flight) last() *recovery.Train {
	if len(f.trains) == 0 {
		return nil
	}
	return f.trains[len(f.trains)-1]
}

// eliciting reports whether the flight will be acknowledged.
func (f *Flight) eliciting() bool {
	for _, t := range f.trains {
		if t.Eliciting != 0 {
			return true
		}
	}
	return false
}

// Tail returns room for a frame of n bytes in the open datagram, opening one if it
// must, or nil if there is none. The frame is appended to what Tail returns and then
// reported by [Flight.Wrote].
//
// The connection's mutex is held, here and in the methods below.
func (f *Flight) Tail(n int) []byte {
	if !f.fits(n) {
		return nil
	}
	return f.buf[f.w:f.w:f.limit]
}

// Wrote takes in a frame of n bytes written to what [Flight.Tail] returned. record
// is what recovery tells the connection when the packet is acknowledged or lost; its
// zero value means nothing.
func (f *Flight) Wrote(n int, eliciting bool, record recovery.Frame) {
	f.w += n
	t := f.train()
	if eliciting {
		t.Eliciting |= 1 << (t.N - 1)
		t.InFlight |= 1 << (t.N - 1)
	}
	if record.Kind != 0 {
		t.Extra = append(t.Extra, recovery.Extra{I: uint8(t.N - 1), Frame: record})
	}
}

// Crypto appends a CRYPTO frame with as much of p as fits and returns how much that
// was. data hears of its fate.
func (f *Flight) Crypto(data recovery.Data, off int64, p []byte) int {
	const most = 1 + 8 + 2 // type, offset, length
	if !f.fits(most + 1) {
		return 0
	}
	n := min(len(p), f.room()-most)
	fr := wire.Crypto{Off: off, Data: p[:n]}
	f.w += len(fr.Append(f.buf[f.w:f.w:f.limit]))
	f.slot(data, off, n, false)
	return n
}

// stream writes the header of a STREAM frame and returns where its n bytes go.
// Without a Length field the frame runs to the end of the packet, so the datagram
// is closed (RFC 9000 §19.8).
func (f *Flight) stream(id, off int64, n int, length, fin bool) []byte {
	dataLen := n
	if !length {
		dataLen = -1
	}
	f.w += len(wire.AppendStreamHeader(f.buf[f.w:f.w:f.limit], id, off, dataLen, fin))
	dst := f.buf[f.w : f.w+n : f.w+n]
	f.w += n
	f.open = length
	return dst
}

// seal protects every datagram in place. No lock is held: the flight is the
// caller's alone and so is the sealer, through the token.
func (f *Flight) seal() {
	pnOff := f.hdr - f.pnLen
	for i := range f.n {
		start := i * f.size
		end := min(start+f.size, f.total)
		f.sealer.Seal(f.buf[start:end], pnOff, f.pnLen, f.first+int64(i))
	}
}

// rest is what the kernel has not taken yet.
func (f *Flight) rest() []byte { return f.buf[f.sent*f.size : f.total] }
