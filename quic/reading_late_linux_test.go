package quic

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/volley-quic/volley/internal/udp"
)

// lateTest is the reading of a socket on loopback, and where to send to it from.
type lateTest struct {
	*demuxTest
	in   *reading
	peer *net.UDPConn
	addr netip.AddrPort
}

func newLateTest(t *testing.T) *lateTest {
	x := &lateTest{demuxTest: newDemuxTest(t, 4), in: new(reading)}
	open := func() *net.UDPConn {
		pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pc.Close() })
		return pc
	}
	pc := open()
	sock, err := udp.New(pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	x.peer, x.addr = open(), pc.LocalAddr().(*net.UDPAddr).AddrPort()
	x.in.init(x.t, sock)
	x.in.demux = *x.demux
	return x
}

func (x *lateTest) send(packet []byte) {
	x.Helper()
	if _, err := x.peer.WriteToUDPAddrPort(packet, x.addr); err != nil {
		x.Fatal(err)
	}
}

// after is a time that long after somebody has read last.
func (x *lateTest) after(d time.Duration) time.Time {
	return x.in.start.Add(time.Duration(x.in.at.Load()) + d)
}

func TestConnectionsReadForALateReader(t *testing.T) {
	x := newLateTest(t)
	x.conn("a", "aaaa")
	x.conn("b", "bbbb")
	x.send(short("aaaa", "01"))
	x.in.help(x.after(readerLate - 1))
	x.want() // the reader will do that
	x.in.help(x.after(readerLate))
	x.want("a: 01")

	// Somebody has read just now, and it is not known to be late.
	x.send(short("bbbb", "02"))
	x.in.help(x.after(readerLate - 1))
	x.want()
	if err := x.in.once(); err != nil {
		t.Fatal(err)
	}
	x.want("b: 02")
	x.in.help(x.after(readerLate - 1))
	x.want()

	// Who reads is not disturbed, and nobody waits for that.
	x.send(short("aaaa", "03"))
	x.in.mu.Lock()
	x.in.help(x.after(readerLate))
	x.in.mu.Unlock()
	x.want()
	x.in.help(x.after(readerLate))
	x.want("a: 03")

	// One call reads what is there, not a single batch.
	for range 3 * messagesPerRead {
		x.send(short("aaaa", "04"))
	}
	x.in.help(x.after(readerLate))
	if n := x.in.sock.ReadNow(x.in.ms); n > 0 {
		t.Errorf("%d messages were left", n)
	}
}

// What arrives is handed over in order, whoever reads it.
func TestHelpKeepsTheOrder(t *testing.T) {
	x := newLateTest(t)
	x.conn("a", "aaaa")
	const last = 5000
	done := make(chan struct{})
	highest := uint32(0)
	x.in.demux.deliver = func(_ *Conn, ps []packet) { // the lock is held
		for _, p := range ps {
			n := binary.BigEndian.Uint32(p.data[5:])
			if n <= highest {
				t.Errorf("packet %d after %d", n, highest)
			}
			highest = n
			p.buf.Release()
		}
		if highest == last {
			close(done)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for x.in.once() == nil {
		}
	})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					x.in.help(x.after(readerLate))
				}
			}
		})
	}
	b := short("aaaa", "")
	for n := uint32(1); n <= last; n++ {
		if n%100 == 0 { // a little at a time: none must be lost on the way, the last least of all
			for read := uint32(0); read < n-1; {
				x.in.mu.Lock()
				read = highest
				x.in.mu.Unlock()
			}
		}
		binary.BigEndian.PutUint32(b[5:], n)
		x.send(b)
	}
	<-done
	x.in.sock.(*udp.Conn).Close()
	wg.Wait()
}
