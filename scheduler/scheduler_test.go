package scheduler

import (
	"fmt"
	"strings"
	"testing"
)

// desk is a sender with a script: it asks the scheduler and writes down whom it
// named.
type desk struct {
	t   *testing.T
	s   Scheduler
	log []string
}

func newDesk(t *testing.T, opts ...Option) *desk {
	return &desk{t: t, s: New(opts...)}
}

// ready makes streams of the given IDs ready at one priority.
func (d *desk) ready(urgency int8, incremental bool, ids ...int64) []*Entry {
	var es []*Entry
	for _, id := range ids {
		e := NewEntry(id, nil)
		d.s.SetPriority(e, urgency, incremental)
		d.s.Ready(e)
		es = append(es, e)
	}
	return es
}

// send serves n turns: whoever is named sends all it may and has more.
func (d *desk) send(n int) {
	d.t.Helper()
	for range n {
		e, q := d.next()
		d.log = append(d.log, fmt.Sprintf("%d:%d", e.ID, q))
		d.s.Sent(e, q, true)
	}
}

func (d *desk) next() (*Entry, int) {
	d.t.Helper()
	e, q := d.s.Next()
	if e == nil {
		d.t.Fatalf("nobody was named after %v", d.log)
	}
	return e, q
}

// one serves one turn that must be id's, of which n datagrams leave.
func (d *desk) one(id int64, n int, more bool) {
	d.t.Helper()
	e, _ := d.next()
	if e.ID != id {
		d.t.Fatalf("stream %d was named, want %d", e.ID, id)
	}
	d.s.Sent(e, n, more)
}

func (d *desk) nobody() {
	d.t.Helper()
	if e, _ := d.s.Next(); e != nil {
		d.t.Fatalf("stream %d was named, want nobody", e.ID)
	}
}

// want compares what was logged, "id:datagrams" for each turn, and starts anew.
func (d *desk) want(log string) {
	d.t.Helper()
	if got := strings.Join(d.log, " "); got != log {
		d.t.Fatalf("turns %s\nwant  %s", got, log)
	}
	d.log = nil
}

func TestNobodyIsReady(t *testing.T) {
	d := newDesk(t)
	d.nobody()
	e := NewEntry(0, nil)
	d.s.Idle(e)
	d.s.Sent(e, 10, true)
	d.s.FlightEnd()
	d.nobody()
}

func TestDefaultIsUrgency3AndShared(t *testing.T) {
	d := newDesk(t)
	for _, id := range []int64{0, 4} {
		d.s.Ready(NewEntry(id, nil))
	}
	d.ready(2, true, 8)[0].Value = "goes before"
	d.ready(4, true, 12)
	d.one(8, 10, false)
	d.send(4)
	d.want("0:10 4:10 0:10 4:10")
}

func TestLowerUrgencyFirst(t *testing.T) {
	d := newDesk(t)
	for u := int8(7); u >= 0; u-- {
		d.ready(u, u%2 == 0, int64(u))
	}
	for u := range int64(8) {
		d.one(u, 3, true)
		d.one(u, 1, false)
	}
	d.nobody()
}

func TestUrgencyIsClipped(t *testing.T) {
	d := newDesk(t)
	d.ready(7, true, 4)
	d.ready(127, true, 0)
	d.ready(-128, true, 8)
	d.ready(0, true, 12)
	d.one(8, 10, false)
	d.one(12, 10, false)
	d.one(4, 10, false)
	d.one(0, 10, false)
}

func TestReadyTwiceIsOneTurn(t *testing.T) {
	d := newDesk(t)
	es := d.ready(3, true, 0, 4)
	d.s.Ready(es[0])
	d.s.Ready(es[1])
	d.one(0, 10, true)
	d.s.Ready(es[0])
	d.one(4, 10, false)
	d.one(0, 10, false)
	d.nobody()
}

func TestQuantum(t *testing.T) {
	for n, want := range map[int]int{-1: 1, 0: 1, 1: 1, 3: 3, 10: 10, 11: 10, 1000: 10} {
		d := newDesk(t, Quantum(n))
		d.ready(3, true, 0, 4)
		d.send(3)
		d.want(fmt.Sprintf("0:%d 4:%d 0:%d", want, want, want))
	}
}

// The sender makes turns longer than a pass, and shorter again, also in the middle of one;
// but not if the application has said how long they are.
func TestSetTurn(t *testing.T) {
	d := newDesk(t)
	turn := d.s.(Turner).SetTurn
	d.ready(3, true, 0, 4)
	turn(40)
	d.send(3)
	d.want("0:40 4:40 0:40")
	d.one(4, 10, true)
	d.send(2)
	d.want("4:30 0:40")
	d.one(4, 15, true)
	turn(10)
	d.one(4, 1, true) // its turn is over, but it was named
	d.send(2)
	d.want("0:10 4:10")
	for _, n := range []int{-1, 0, 5} {
		turn(n)
		d.send(1)
	}
	d.want("0:10 4:10 0:10")

	d = newDesk(t, Quantum(3))
	d.s.(Turner).SetTurn(40)
	d.ready(3, true, 0, 4)
	d.send(2)
	d.want("0:3 4:3")
}

func TestNextEndsNoTurn(t *testing.T) {
	d := newDesk(t)
	d.ready(3, true, 0, 4)
	a, _ := d.s.Next()
	b, _ := d.s.Next()
	if a != b {
		t.Fatalf("first %d was named, then %d", a.ID, b.ID)
	}
}

func TestRestOfATurnComesInTheNextFlight(t *testing.T) {
	// Flights of 13 datagrams: without this, stream 0 would send 10 of each and
	// stream 4 3.
	d := newDesk(t)
	d.ready(3, true, 0, 4)
	d.one(0, 10, true)
	d.one(4, 3, true)
	d.s.FlightEnd()
	d.send(3)
	d.want("4:7 0:10 4:10")
}

func TestAloneMeansWholePasses(t *testing.T) {
	d := newDesk(t)
	for _, incremental := range []bool{true, false} {
		e := d.ready(3, incremental, 0)[0]
		d.one(0, 3, true)
		d.s.FlightEnd()
		d.send(2)
		d.want("0:10 0:10")
		d.s.Idle(e)
	}
}

func TestNonIncrementalGoOneByOneInStreamIDOrder(t *testing.T) {
	d := newDesk(t)
	d.ready(3, false, 8, 0, 12, 4)
	d.send(3)
	d.want("0:10 0:10 0:10")
	d.one(0, 2, false)
	d.one(4, 10, true)
	d.ready(3, false, 2) // a lower ID gets ready late: asked for earlier, goes first
	d.one(2, 10, false)
	d.one(4, 10, false)
	d.one(8, 10, false)
	d.one(12, 10, false)
	d.nobody()
}

func TestMixedAtOneUrgencyTheLineTakesTurnsAsOne(t *testing.T) {
	d := newDesk(t)
	line := d.ready(3, false, 0, 4, 8)
	d.ready(3, true, 12, 16)
	d.send(6)
	d.want("0:10 12:10 16:10 0:10 12:10 16:10")

	// The line's turn goes on with its next stream.
	d.one(0, 4, false)
	e, q := d.next()
	if e != line[1] || q != 6 {
		t.Fatalf("stream %d may send %d, want stream 4 and the remaining 6", e.ID, q)
	}
	d.s.Sent(e, 6, true)
	d.send(3)
	d.want("12:10 16:10 4:10")
}

func TestSmallNonIncrementalStreamsCannotTakeOver(t *testing.T) {
	// A non-incremental stream that comes for one datagram, time and again, has
	// the line's turns and no more: as many datagrams as the other.
	d := newDesk(t)
	d.ready(3, true, 0)
	var small, bulk int
	for id := int64(4); bulk < 1000; id += 4 {
		d.ready(3, false, id)
		e, q := d.next()
		if e.ID == 0 {
			bulk += q
			d.s.Sent(e, q, true)
			e, _ = d.next()
		}
		d.s.Sent(e, 1, false)
		small++
	}
	if small < 990 || small > 1010 {
		t.Fatalf("%d datagrams of small streams beside %d of the other", small, bulk)
	}
}

func TestStreamThatSentNothingKeepsItsTurn(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		t.Run(fmt.Sprint("incremental=", incremental), func(t *testing.T) {
			d := newDesk(t)
			es := d.ready(3, incremental, 0, 4, 8)
			d.one(0, 0, true)
			d.one(4, 0, true)
			d.s.Ready(es[0]) // no news about a stream that is passed over
			d.one(8, 10, true)
			d.one(8, 0, true)
			d.nobody()
			d.s.FlightEnd()
			d.one(0, 0, true)
			d.one(4, 10, false)
			d.one(8, 10, false)
			d.nobody()
			d.s.FlightEnd()
			d.one(0, 10, false)
			d.nobody()
		})
	}
}

func TestPassedOverStreamKeepsTheRestOfItsTurn(t *testing.T) {
	d := newDesk(t)
	d.ready(3, true, 0, 4)
	d.one(0, 4, true)
	d.one(0, 0, true)
	d.one(4, 10, true)
	d.s.FlightEnd()
	d.send(3)
	d.want("0:6 4:10 0:10")
}

func TestPassedOverGivesWayToLessUrgent(t *testing.T) {
	d := newDesk(t)
	d.ready(0, true, 0)
	d.ready(7, false, 4)
	d.one(0, 0, true)
	d.one(4, 10, true)
	d.s.FlightEnd()
	d.one(0, 10, true)
}

func TestLineKeepsItsTurnWhenAllOfItIsPassedOver(t *testing.T) {
	d := newDesk(t)
	d.ready(3, false, 0, 4)
	d.ready(3, true, 8, 12)
	d.one(0, 0, true)
	d.one(4, 0, true)
	d.one(8, 10, true)
	d.s.FlightEnd()
	d.send(3)
	d.want("0:10 12:10 8:10")
}

func TestReprioritiseInMidFlight(t *testing.T) {
	d := newDesk(t)
	es := d.ready(3, true, 0, 4, 8)

	d.s.SetPriority(es[2], 1, false)
	d.one(8, 10, true)
	d.s.SetPriority(es[2], 5, true)
	d.one(0, 10, true)

	// The same priority again costs no turn.
	d.s.SetPriority(es[1], 3, true)
	d.one(4, 10, true)

	// While named: what was sent counts, wherever the stream stands now.
	e, q := d.next()
	d.s.SetPriority(e, 5, true)
	d.s.Sent(e, q, true)
	d.one(4, 10, false)
	d.send(2)
	d.want("8:10 0:10")

	// While passed over: the new place counts at once.
	d.s.SetPriority(es[0], 6, true)
	d.one(8, 0, true)
	d.one(0, 0, true)
	d.nobody()
	d.s.SetPriority(es[0], 2, true)
	d.one(0, 10, false)
	d.nobody()
	d.s.FlightEnd()
	d.one(8, 1, false)
}

func TestPriorityOfAnIdleStreamIsForLater(t *testing.T) {
	d := newDesk(t)
	d.ready(3, true, 0)
	e := NewEntry(4, nil)
	d.s.SetPriority(e, 0, false)
	d.one(0, 10, true)
	d.s.Ready(e)
	d.one(4, 10, true)
}

func TestRemovedWhileNamed(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		d := newDesk(t)
		es := d.ready(3, incremental, 0, 4)
		e, q := d.next()
		d.s.Idle(e)
		d.one(4, 10, true)
		d.s.Sent(e, q, true) // too late to come back
		d.s.Sent(e, 0, true)
		d.s.FlightEnd()
		d.one(4, 10, true)

		// Gone and ready again between Next and Sent: it is in.
		e, q = d.next()
		d.s.Idle(e)
		d.s.Ready(e)
		d.s.Sent(e, q, true)
		d.one(4, 10, false)
		d.nobody()

		// Removed while passed over.
		d.s.Ready(es[0])
		d.one(0, 0, true)
		d.s.Idle(es[0])
		d.s.FlightEnd()
		d.nobody()
	}
}

func TestNothingRefersToAnIdleEntry(t *testing.T) {
	d := newDesk(t)
	for _, e := range append(d.ready(3, true, 0, 4, 8), d.ready(3, false, 12, 16, 20, 24)...) {
		if e.ID%8 == 0 {
			d.s.Sent(e, 0, true) // passed over: in another list
		}
		d.s.Idle(e)
		if e.prev != nil || e.next != nil || e.child != nil {
			t.Fatalf("stream %d is idle and linked", e.ID)
		}
		check(t, d.s.(*rfc9218))
	}
	d.nobody()
}
