package udp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// open counts what the process has open. Other tests of this package are not running.
func open(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func listenLocal(t *testing.T) net.PacketConn {
	t.Helper()
	pc, err := Listen("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return pc
}

// Sockets that are closed while somebody reads, writes, waits for room and sets deadlines
// leave neither descriptors nor goroutines behind, and nobody waits for ever.
func TestListenAndClose(t *testing.T) {
	before, goroutines := 0, 0
	for round := range 50 {
		if round == 10 { // the poller has opened what it needs
			before, goroutines = open(t), runtime.NumGoroutine()
		}
		pc := listenLocal(t)
		if _, ok := pc.(*readWatched); !ok {
			t.Fatalf("Listen gives a %T", pc)
		}
		c, err := New(pc)
		if err != nil {
			t.Fatal(err)
		}
		to := addrOf(c)
		var all sync.WaitGroup
		all.Go(func() {
			ms := make([]Message, 4)
			for {
				n, err := c.ReadBatch(ms)
				for _, m := range ms[:n] {
					m.Buf.Release()
				}
				if errors.Is(err, net.ErrClosed) {
					return
				}
			}
		})
		for range 2 {
			all.Go(func() {
				r := Route{Remote: to}
				for {
					if _, err := c.Send(&r, []byte("x"), 0, NotECT); err == net.ErrClosed {
						return
					}
				}
			})
		}
		all.Go(func() {
			for c.sock.awaitWritable() == nil {
				runtime.Gosched()
			}
		})
		all.Go(func() {
			for !c.isClosed() {
				pc.SetReadDeadline(time.Now().Add(-1))
				pc.SetReadDeadline(time.Time{})
			}
		})
		for range round {
			runtime.Gosched()
		}
		c.Close()
		all.Wait()
	}
	for range 1000 {
		listenLocal(t).Close()
	}
	if after := open(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	if after := runtime.NumGoroutine(); after > goroutines {
		t.Errorf("%d goroutines run, %d did before", after, goroutines)
	}
}

// Every datagram wakes a reader that waits for it: of many pairs each waits for the other's,
// so that one wake-up that is lost ends the conversation.
func TestNoWakeUpIsLost(t *testing.T) {
	const pairs, rounds = 8, 1500
	end := time.Now().Add(30 * time.Second)
	var all sync.WaitGroup
	for range pairs {
		a, b := listenLocal(t), listenLocal(t)
		defer a.Close()
		defer b.Close()
		a.SetReadDeadline(end)
		b.SetReadDeadline(end)
		talk := func(self, other net.PacketConn, first bool) {
			p := make([]byte, 8)
			for i := range rounds {
				if first {
					if _, err := self.WriteTo(p[:1], other.LocalAddr()); err != nil {
						t.Error(err)
						return
					}
				}
				if _, _, err := self.ReadFrom(p); err != nil {
					t.Errorf("round %d: %v", i, err)
					return
				}
				if !first {
					if _, err := self.WriteTo(p[:1], other.LocalAddr()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}
		all.Go(func() { talk(a, b, true) })
		all.Go(func() { talk(b, a, false) })
	}
	all.Wait()
}

// A net.PacketConn may be read by many at a time.
func TestManyReadFrom(t *testing.T) {
	const readers, each = 4, 50
	pc := listenLocal(t)
	defer pc.Close()
	pc.SetReadDeadline(time.Now().Add(10 * time.Second))
	var mu sync.Mutex
	got := map[byte]int{}
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for range each {
				p := make([]byte, 4)
				n, from, err := pc.ReadFrom(p)
				if err != nil || n != 2 || p[0] != p[1] || from.String() != pc.LocalAddr().String() {
					t.Errorf("ReadFrom: %x from %v, %v", p[:n], from, err)
					return
				}
				mu.Lock()
				got[p[0]]++
				mu.Unlock()
			}
		})
	}
	for i := range byte(readers * each) {
		if _, err := pc.WriteTo([]byte{i, i}, pc.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if len(got) != readers*each {
		t.Errorf("%d different datagrams were read, %d were sent", len(got), readers*each)
	}
}

// Where the poller does not take the epoll instance, Listen gives a socket of package net
// that is as good as any: deadlines and Close end its calls.
func TestListenWithoutWatch(t *testing.T) {
	defer func() { asFile = os.NewFile }()
	asFile = func(fd uintptr, name string) *os.File {
		unix.SetNonblock(int(fd), false) // as if it was not for the poller
		return os.NewFile(fd, name)
	}
	before := open(t)
	pc := listenLocal(t)
	u, ok := pc.(*net.UDPConn)
	if !ok {
		t.Fatalf("Listen gives a %T", pc)
	}
	if after := open(t); after > before+1 {
		t.Errorf("%d descriptors for one socket", after-before)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags int
	raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Fatalf("the socket blocks: flags %x, %v", flags, err)
	}
	u.SetReadDeadline(time.Now().Add(-1))
	if _, _, err := u.ReadFrom(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	u.Close()
}

// One Conn after the other uses the same socket, and the application itself between them,
// who gets one datagram per read.
func TestListenedSocketIsHandedOn(t *testing.T) {
	pc := listenLocal(t)
	defer pc.Close()
	to := netip.MustParseAddrPort(pc.LocalAddr().String())
	from := listen(t, "udp4", "127.0.0.1:0")
	send := func() {
		if _, err := from.Send(&Route{Remote: to}, []byte("aabbccd"), 2, NotECT); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		c, err := New(pc)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := c.ReadBatch(make([]Message, 4))
			ended <- err
		}()
		c.SetReadDeadline(time.Unix(1, 0))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Time{})
		c.Detach()

		pc.SetReadDeadline(time.Now().Add(10 * time.Second))
		send()
		p := make([]byte, 10)
		for _, want := range []string{"aa", "bb", "cc", "d"} {
			if n, _, err := pc.ReadFrom(p); err != nil || string(p[:n]) != want {
				t.Fatalf("ReadFrom: %q, %v", p[:n], err)
			}
		}
		pc.SetReadDeadline(time.Time{})
	}
}
