package scheduler

// Scheduler orders the streams of one connection that have something to send.
//
// The connection calls it with its mutex held: an implementation needs no lock,
// must not block, must not call back into the connection, and should not
// allocate. It is called once or twice per pass, not per packet.
//
// One round of the sender looks like this, until the flight is full or Next
// names nobody:
//
//	e, quantum := s.Next()
//	n, more := … // at most quantum datagrams of e's stream
//	s.Sent(e, n, more)
//
// and then FlightEnd. The connection may let go of its mutex between Next and
// Sent, so any other method, also for the named entry, may be called between
// them.
type Scheduler interface {
	// Ready says that e has something to send. Calling it again is harmless and
	// changes nothing.
	Ready(e *Entry)

	// Next names the entry whose turn it is and how many datagrams it may send
	// at most; 0 leaves that to the sender, which takes one pass. A nil entry
	// means that nobody can go: the ready set is empty, or all of it was passed
	// over in this flight. Next does not end a turn: until Sent it names the
	// same entry, unless a more urgent one became ready.
	Next() (e *Entry, quantum int)

	// Sent ends what Next began. datagrams is how many datagrams hold bytes of e
	// from this turn, and more whether e still has something to send.
	// With 0 datagrams and more, e keeps its turn and Next passes it over until
	// FlightEnd. Without more, e leaves the ready set. Sent never brings an
	// entry into the ready set: one that left it since Next stays out.
	Sent(e *Entry, datagrams int, more bool)

	// FlightEnd says that the flight is closed, whether or not it was sent:
	// entries that were passed over can be named again, before their equals.
	FlightEnd()

	// Idle takes e out of the ready set: it has nothing to send any more, or its
	// stream is gone. Nothing refers to e afterwards.
	Idle(e *Entry)

	// SetPriority gives e another place. urgency is clipped to 0..7. An entry
	// whose priority really changes loses its turn, and goes behind its new
	// equals if it is incremental.
	SetPriority(e *Entry, urgency int8, incremental bool)
}

// A Turner is a Scheduler whose turns can be made longer, as those that [New] makes. Before
// each flight the sender sets how many datagrams a turn is worth: as many as take the path so
// short a time that nobody else notices the wait, and at least one pass. Streams that change
// less often cost their writers and readers less.
type Turner interface {
	Scheduler
	SetTurn(datagrams int)
}

// What a stream has before SetPriority. RFC 9218 §4.2 makes HTTP responses
// non-incremental by default; a transport does not know what it carries and
// shares, as quic-go does.
const (
	DefaultUrgency     = 3
	DefaultIncremental = true
)

// LeastUrgent is the largest urgency value (RFC 9218 §4.1).
const LeastUrgent = 7

// Entry is one stream's place in a Scheduler; NewEntry or Init makes it. It belongs to
// one Scheduler, which may keep it from Ready until it leaves the ready set.
type Entry struct {
	ID    int64 // the stream ID
	Value any   // whatever the sender wants to find again: its stream

	// A ring or the list of those passed over uses prev and next; the heap uses
	// all three. An entry is never in two of them.
	prev, next, child *Entry

	used        int // datagrams of the current turn that are sent
	urgency     uint8
	incremental bool
	state       state
}

type state uint8

const (
	idle    state = iota
	ready         // in the ring or the heap of its level
	skipped       // passed over until the flight ends
)

// NewEntry returns an entry of default priority that is not ready.
func NewEntry(id int64, v any) *Entry {
	e := new(Entry)
	e.Init(id, v)
	return e
}

// Init makes the zero Entry what [NewEntry] returns.
func (e *Entry) Init(id int64, v any) {
	e.ID, e.Value, e.urgency, e.incremental = id, v, DefaultUrgency, DefaultIncremental
}
