package udp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
)

// The table has what the kernel may say to a flight of 5 datagrams (4×1200, 1×300)
// on a fast socket, what Send must make of it, and which calls it must make.
func TestWhatTheKernelRefuses(t *testing.T) {
	if !listen(t, "udp4", "127.0.0.1:0").CanGSO() {
		return // nothing is segmented here: see TestRefusalsOfPlainSockets
	}
	always := func(err error) func(int, Sending) Verdict {
		return func(int, Sending) Verdict { return Verdict{Err: err} }
	}
	segmented := func(err error) func(int, Sending) Verdict {
		return func(_ int, s Sending) Verdict {
			if s.Datagrams() > 1 {
				return Verdict{Err: err}
			}
			return Verdict{}
		}
	}
	// after refuses segmented calls by EIO, so that the rest goes singly, and the
	// single number k by err.
	after := func(k int, err error) func(int, Sending) Verdict {
		return func(call int, s Sending) Verdict {
			if s.Datagrams() > 1 {
				return Verdict{Err: syscall.EIO}
			}
			if call-1 >= k {
				return Verdict{Err: err}
			}
			return Verdict{}
		}
	}
	first := func(err error) func(int, Sending) Verdict {
		return func(call int, _ Sending) Verdict {
			if call == 0 {
				return Verdict{Err: err}
			}
			return Verdict{}
		}
	}
	partly := func(k int, err error) func(int, Sending) Verdict {
		return func(int, Sending) Verdict { return Verdict{Err: err, Take: k} }
	}
	for _, tc := range []struct {
		name    string
		answer  func(int, Sending) Verdict
		sent    int
		err     error
		calls   []int // datagrams in each
		keepGSO bool
	}{
		{"nothing wrong", nil, 5, nil, []int{5}, true},
		{"EIO when segmented", segmented(syscall.EIO), 5, nil, []int{5, 1, 1, 1, 1, 1}, false},
		{"EINVAL when segmented", segmented(syscall.EINVAL), 5, nil, []int{5, 1, 1, 1, 1, 1}, false},
		{"EIO always", always(syscall.EIO), 0, syscall.EIO, []int{5, 1}, true},
		{"EINVAL always", always(syscall.EINVAL), 0, syscall.EINVAL, []int{5, 1}, true},
		{"EIO, then the third single fails", after(2, syscall.EIO), 2, syscall.EIO, []int{5, 1, 1, 1}, true},
		{"EIO, then no room for the third", after(2, syscall.EAGAIN), 2, ErrBlocked, []int{5, 1, 1, 1}, false},
		{"EIO, then no room at all", after(0, syscall.ENOBUFS), 0, ErrBlocked, []int{5, 1}, true},
		{"EIO, then the first is too large", after(0, syscall.EMSGSIZE), 0, ErrTooLarge, []int{5, 1}, true},
		{"EIO, then the fourth is too large", after(3, syscall.EMSGSIZE), 3, ErrTooLarge, []int{5, 1, 1, 1, 1}, true},
		{"EMSGSIZE", always(syscall.EMSGSIZE), 0, ErrTooLarge, []int{5}, true},
		{"EMSGSIZE after three", partly(3, syscall.EMSGSIZE), 3, ErrTooLarge, []int{5}, true},
		{"EAGAIN", always(syscall.EAGAIN), 0, ErrBlocked, []int{5}, true},
		{"EAGAIN after two", partly(2, syscall.EAGAIN), 2, ErrBlocked, []int{5}, true},
		{"ENOBUFS", always(syscall.ENOBUFS), 0, ErrBlocked, []int{5}, true},
		{"ENOBUFS after four", partly(4, syscall.ENOBUFS), 4, ErrBlocked, []int{5}, true},
		{"EPERM for the first datagram of a Route", first(syscall.EPERM), 5, nil, []int{5, 5}, true},
		{"EPERM always", always(syscall.EPERM), 0, syscall.EPERM, []int{5, 5}, true},
		{"ECONNREFUSED by an earlier datagram", first(syscall.ECONNREFUSED), 5, nil, []int{5, 5}, true},
		{"no route", always(syscall.ENETUNREACH), 0, syscall.ENETUNREACH, []int{5}, true},
		{"wrapped as package net does", always(&net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", syscall.EMSGSIZE)}), 0, ErrTooLarge, []int{5}, true},
		{"closed", always(&net.OpError{Op: "write", Err: net.ErrClosed}), 0, net.ErrClosed, []int{5}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
			s := &script{answer: tc.answer}
			Inject(from, s.hook())
			r := &Route{Remote: addrOf(to)}
			b := train(1, 4*1200+300, 1200)
			sent, err := from.Send(r, b, 1200, ECT0)
			if sent != tc.sent || !errors.Is(err, tc.err) {
				t.Errorf("sent %d, %v; want %d, %v", sent, err, tc.sent, tc.err)
			}
			if got := s.datagrams(); !slices.Equal(got, tc.calls) {
				t.Errorf("calls of %v datagrams, want %v", got, tc.calls)
			}
			if r.GSO() != tc.keepGSO {
				t.Errorf("segmentation afterwards: %v", r.GSO())
			}
			if got := from.Stats().SentDatagrams; got != uint64(tc.sent) {
				t.Errorf("%d datagrams counted", got)
			}

			// Whoever tries the rest again, when there is nothing wrong any more, brings
			// every byte over once and in order.
			Inject(from, nil)
			if rest := b[min(len(b), sent*1200):]; len(rest) > 0 {
				if _, err := from.Send(r, rest, 1200, ECT0); err != nil {
					t.Fatal(err)
				}
			}
			sameDatagrams(t, receive(t, to, 5), cut(b, 1200))
			assertQuiet(t, from, to)
		})
	}
}

// assertQuiet shows that nothing but a last word is under way from one to the other.
func assertQuiet(t *testing.T, from, to *Conn) {
	t.Helper()
	if _, err := from.Send(&Route{Remote: addrOf(to)}, []byte("last word"), 0, NotECT); err != nil {
		t.Fatal(err)
	}
	sameDatagrams(t, receive(t, to, 1), [][]byte{[]byte("last word")})
}

// A07, G1: the card of one destination has no checksum offload. G5: sending goes on.
func TestGSOGoesOffForTheRouteToBlameOnly(t *testing.T) {
	from := listen(t, "udp4", "127.0.0.1:0")
	if !from.CanGSO() {
		return
	}
	bad, good := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	s := &script{answer: func(_ int, s Sending) Verdict {
		if s.Datagrams() > 1 && s.Remote == addrOf(bad) {
			return Verdict{Err: syscall.EIO}
		}
		return Verdict{}
	}}
	Inject(from, s.hook())
	toBad, toGood := &Route{Remote: addrOf(bad)}, &Route{Remote: addrOf(good)}
	for i := range 5 {
		b := train(byte(i), 10*1300, 1300)
		for _, r := range []*Route{toBad, toGood} {
			if sent, err := from.Send(r, b, 1300, NotECT); sent != 10 || err != nil {
				t.Fatalf("sent %d, %v", sent, err)
			}
		}
		sameDatagrams(t, receive(t, bad, 10), cut(b, 1300))
		sameDatagrams(t, receive(t, good, 10), cut(b, 1300))
	}
	if toBad.GSO() || !toGood.GSO() {
		t.Errorf("segmentation: bad route %v, good route %v", toBad.GSO(), toGood.GSO())
	}
	refused := 0
	for _, c := range s.calls {
		if c.Remote == addrOf(bad) && c.Datagrams() > 1 {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d segmented sends where the first had failed", refused)
	}
	if got := from.Stats(); got.SegmentedSends != 5 {
		t.Errorf("stats: %+v", got)
	}
}

func TestAFlightIsCutToWhatOneCallMayCarry(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	if !from.CanGSO() {
		return
	}
	for _, tc := range []struct {
		size, segment int
		want          []int
	}{
		{64 * 1000, 1000, []int{64}},
		{64*1000 + 1, 1000, []int{64, 1}},
		{45 * 1452, 1452, []int{45}},
		{45*1452 + 1, 1452, []int{45, 1}},
		{46 * 1452, 1452, []int{45, 1}},
		{65507, 65507, []int{1}},
		{9 * 16376, 16376, []int{4, 4, 1}},
		{3 * 40000, 40000, []int{1, 1, 1}},
		{200, 1, []int{64, 64, 64, 8}},
		{1200, 0, []int{1}},
		{1200, 1500, []int{1}},
	} {
		t.Run(fmt.Sprintf("%d by %d", tc.size, tc.segment), func(t *testing.T) {
			s := &script{answer: func(int, Sending) Verdict { return Verdict{Lose: true} }}
			Inject(from, s.hook())
			if _, err := from.Send(&Route{Remote: addrOf(to)}, make([]byte, tc.size), tc.segment, NotECT); err != nil {
				t.Fatal(err)
			}
			if got := s.datagrams(); !slices.Equal(got, tc.want) {
				t.Errorf("calls of %v datagrams, want %v", got, tc.want)
			}
		})
	}
	Inject(from, nil)
	assertQuiet(t, from, to)
}

// A16 (iv): what the kernel says about one datagram does not end the reading.
func TestReadingGoesOn(t *testing.T) {
	from, to := listen(t, "udp4", "127.0.0.1:0"), listen(t, "udp4", "127.0.0.1:0")
	complaints := []error{syscall.EMSGSIZE, syscall.ECONNREFUSED, syscall.EINTR, syscall.EHOSTUNREACH, syscall.ENETDOWN,
		&net.OpError{Op: "read", Err: os.NewSyscallError("recvmmsg", syscall.ECONNRESET)}}
	for range 40 {
		complaints = append(complaints, syscall.ENOMEM) // longer than what goes without a pause
	}
	i := 0
	Inject(to, &Hook{Read: func() error {
		if i++; i <= len(complaints) {
			return complaints[i-1]
		}
		return nil
	}})
	if _, err := from.Send(&Route{Remote: addrOf(to)}, []byte("x"), 0, NotECT); err != nil {
		t.Fatal(err)
	}
	sameDatagrams(t, receive(t, to, 1), [][]byte{[]byte("x")})
	if i <= len(complaints) {
		t.Errorf("only %d reads", i)
	}
	for _, fatal := range []error{syscall.EBADF, os.ErrDeadlineExceeded, errors.New("odd"), &net.OpError{Op: "read", Err: net.ErrClosed}} {
		Inject(to, &Hook{Read: func() error { return fatal }})
		if _, err := to.ReadBatch(make([]Message, 1)); err == nil || !errors.Is(fatal, err) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v became %v", fatal, err)
		}
	}
}

func TestCloseEndsAPauseInReading(t *testing.T) {
	c := listen(t, "udp4", "127.0.0.1:0")
	reads := 0
	Inject(c, &Hook{Read: func() error {
		if reads++; reads == 30 {
			c.Close()
		}
		return syscall.ENOMEM
	}})
	if _, err := c.ReadBatch(make([]Message, 1)); err != net.ErrClosed {
		t.Errorf("ended with %v", err)
	}
}
