package udp

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ReadNow takes what is there and never waits, on the sockets that are read without waiting;
// on loopback, what was sent is there.
func TestReadNow(t *testing.T) {
	for name, a := range map[string]*Conn{
		"listened":      wrap(t, listenLocal(t)),
		"application's": listenAsApplications(t, "udp4", "127.0.0.1:0"),
	} {
		t.Run(name, func(t *testing.T) {
			b := listen(t, "udp4", "127.0.0.1:0")
			if !a.CanReadNow() {
				t.Fatal("the socket cannot be read without waiting")
			}
			ms := make([]Message, 16)
			if n := a.ReadNow(ms); n != 0 {
				t.Fatalf("%d messages, and nothing was sent", n)
			}
			for _, n := range []int{1, 3} {
				want := train(byte(n), n*100, 100)
				if _, err := b.Send(&Route{Remote: addrOf(a)}, want, 100, NotECT); err != nil {
					t.Fatal(err)
				}
				var got []byte
				for k := a.ReadNow(ms); k > 0; k = a.ReadNow(ms) {
					for _, m := range ms[:k] {
						got = append(got, m.Data...)
						m.Buf.Release()
					}
				}
				if string(got) != string(want) {
					t.Errorf("%d bytes are there, not the %d that were sent", len(got), len(want))
				}
			}
			a.Nap()
			if n := a.ReadNow(nil); n != 0 {
				t.Errorf("%d messages with room for none", n)
			}
			a.Close()
			if n := a.ReadNow(ms); n != 0 {
				t.Errorf("%d messages from a closed socket", n)
			}
		})
	}

	plain := wrap(t, struct{ net.PacketConn }{listenLocal(t)})
	if plain.CanReadNow() || plain.ReadNow(make([]Message, 1)) != 0 {
		t.Error("a PacketConn that we do not know is read without waiting")
	}
}

// Room is what the kernel says, and without end where it is not the kernel's to say.
func TestRoom(t *testing.T) {
	pc := listenLocal(t)
	c := wrap(t, pc)
	said := 0
	control(pc, func(fd uintptr) { said, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	if c.Room() != said/2 || said == 0 {
		t.Errorf("room for %d bytes, and the kernel has %d", c.Room(), said)
	}
	plain := wrap(t, struct{ net.PacketConn }{listenLocal(t)})
	if plain.Room() != math.MaxInt {
		t.Errorf("room for %d bytes in what is no socket", plain.Room())
	}
}

// What arrives while the poller does not watch the socket is found when it does again, and
// so is what comes after.
func TestWatch(t *testing.T) {
	a, b := wrap(t, listenLocal(t)), listen(t, "udp4", "127.0.0.1:0")
	r := &Route{Remote: addrOf(a)}
	for round := range 20 {
		a.Watch(false)
		if _, err := b.Send(r, train(byte(round), 100, 100), 100, NotECT); err != nil {
			t.Fatal(err)
		}
		a.Watch(true)
		receive(t, a, 1)

		read := make(chan []arrived, 1)
		go func() { read <- receive(t, a, 1) }()
		if _, err := b.Send(r, train(byte(round+100), 100, 100), 100, NotECT); err != nil {
			t.Fatal(err)
		}
		if got := <-read; len(got) != 1 {
			t.Fatalf("%d datagrams", len(got))
		}
	}
	// It can be read all the same.
	a.Watch(false)
	if _, err := b.Send(r, train(1, 100, 100), 100, NotECT); err != nil {
		t.Fatal(err)
	}
	if n := a.ReadNow(make([]Message, 4)); n != 1 {
		t.Errorf("%d messages are there, want 1", n)
	}
	a.SetReadDeadline(time.Now())
	if _, err := a.ReadBatch(make([]Message, 1)); err == nil {
		t.Error("a read past its deadline returns a message that is not there")
	}
	// Who receives in bulk does so for every batch.
	if n := testing.AllocsPerRun(100, func() { a.Watch(true); a.Watch(false) }); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}

// say sends one datagram to the host and to's port.
func say(t *testing.T, from *Conn, host string, to *Conn, text string) {
	t.Helper()
	r := &Route{Remote: netip.AddrPortFrom(netip.MustParseAddr(host), portOf(to))}
	if _, err := from.Send(r, []byte(text), len(text), NotECT); err != nil {
		t.Fatal(err)
	}
}

// heard releases what a read brought and returns it.
func heard(ms []Message) (texts []string) {
	for _, m := range ms {
		texts = append(texts, string(m.Data))
		m.Buf.Release()
	}
	return texts
}

// Whoever has the lock reads, though the reader waits for the same datagrams; what
// the reader gets, it gets with the lock.
func TestReadLock(t *testing.T) {
	for _, p := range pairings(t) {
		t.Run(p.name, func(t *testing.T) {
			from, to := p.from(t), p.to(t)
			var mu sync.Mutex
			to.SetReadLock(&mu)
			read := make(chan []Message)
			go func() {
				for {
					ms := make([]Message, 4)
					n, err := to.ReadBatch(ms)
					if err != nil {
						close(read)
						return
					}
					read <- ms[:n]
				}
			}()
			ms := make([]Message, 4)
			for range 100 {
				mu.Lock()
				say(t, from, p.host, to, "ours")
				if got := fmt.Sprint(heard(ms[:to.ReadNow(ms)])); got != "[ours]" {
					t.Fatalf("with the lock, read %v", got)
				}
				mu.Unlock()
				say(t, from, p.host, to, "the reader's")
				if got := fmt.Sprint(heard(<-read)); got != "[the reader's]" {
					t.Fatalf("the reader read %v", got)
				}
				if mu.TryLock() {
					t.Fatal("the reader read without the lock")
				}
				mu.Unlock()
			}
			to.Close()
			if _, ok := <-read; ok || !mu.TryLock() {
				t.Error("an error came with the lock")
			}
		})
	}
}
