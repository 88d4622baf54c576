package sender

import "time"

// patience is how long a source that is called in place may keep the token.
const patience = time.Millisecond

// token is the right to build and send. It belongs to whoever set taken, but while its
// holder is in a source that fills packets in place: if that takes long, the next who
// wants to send robs it of the token and of the flight, as far as that got. So no source
// holds up anything but its own stream, and may itself wait for what only a flight brings.
type token struct {
	taken  bool
	turns  uint64    // how often it changed hands: whoever was robbed finds another number
	away   *Flight   // what its holder was building when it called a source in place
	awayAt time.Time // when that was

	// In-place askers whose turn it is wait in line; when the token becomes free it is
	// promised to the first of them, and is not for others until that one came.
	first, last *asker
	promised    *asker
}

// patience is when the token may be robbed; zero: its holder is at work.
func (t *token) patience() time.Time {
	if t.away == nil {
		return time.Time{}
	}
	return t.awayAt.Add(patience)
}

// free reports whether self may take the token, nil being anybody who calls no source.
func (x *Sender) free(self *asker) bool {
	if x.token.promised != nil {
		return x.token.promised == self // nobody has it then
	}
	return !x.token.taken && !x.apart
}

// Run takes the token, sends up to most flights while there is something to send,
// and gives the token back. It reports whether more is due. If somebody else holds
// the token that one does the work: Run returns false at once.
//
// Run is called WITHOUT the connection's mutex.
func (x *Sender) Run(most int) (more bool) {
	x.host.Lock()
	defer x.host.Unlock()
	if !x.token.taken && x.token.promised == nil {
		x.apart = false // SendApart had its chance
	}
	return x.run(most, nil)
}

// run is Run with the mutex held on entry and exit, and let go in between. self is
// the asker that calls, whose source may be called in place; nil otherwise.
//
// No wake-up is lost: whoever finds the token taken has changed the state under the
// mutex before, and the holder looks at the state under the mutex before it lets go.
func (x *Sender) run(most int, self *asker) (more bool) {
	if !x.ready {
		return false
	}
	var f *Flight
	if p := x.token.patience(); !p.IsZero() {
		if time.Now().Before(p) {
			x.host.SetTimer(p)
			return false
		}
		f = x.rob()
	} else if !x.free(self) {
		return false
	}
	turn := x.take()
	if x.held != nil && x.waiting == nil {
		g := x.held
		x.held = nil
		x.transmit(g)
	}
	for range most {
		if !x.ready || x.held != nil {
			break
		}
		if f == nil {
			f = x.build(time.Now(), self)
		}
		if x.token.turns != turn {
			return true // robbed, and perhaps not of everything that is due
		}
		if f == nil {
			x.release()
			return false
		}
		x.send(f, time.Now())
		f = nil
	}
	x.release()
	return x.ready && x.held == nil
}

// take takes the token, which must be free.
func (x *Sender) take() (turn uint64) {
	x.token.taken, x.token.promised = true, nil
	x.token.turns++
	return x.token.turns
}

// release gives the token back.
func (x *Sender) release() {
	x.token.taken = false
	if !x.ready || x.apart {
		x.host.Wake() // who closes the connection waits for the token, or SendApart
	}
	if !x.apart {
		x.handOver()
	}
}

// rob takes the token from a holder that is in a source, and returns the flight that it
// was building; nil if there is nothing in it.
func (x *Sender) rob() *Flight {
	f := x.token.away.take()
	x.token.taken, x.token.away = false, nil
	x.token.turns++
	x.sched.FlightEnd()
	if f.n == 0 {
		f.release()
		return nil
	}
	return f
}

// MayClose reports whether nobody is sealing or sending: then the keys may be used for
// the CONNECTION_CLOSE. It is asked after [Sender.Stop], and stays so once it is.
func (x *Sender) MayClose() bool { return !x.token.taken }

// queue notes that it is a's turn to take the token.
func (x *Sender) queue(a *asker) {
	a.turn = true
	if p := x.token.patience(); !p.IsZero() {
		x.host.SetTimer(p)
	}
	if a.queued {
		return
	}
	a.queued = true
	if x.token.first == nil {
		x.token.first = a
	} else {
		x.token.last.next = a
	}
	x.token.last = a
}

// handOver promises the free token to the first in line who waits for it. Others in the
// line are about to look for themselves.
func (x *Sender) handOver() bool {
	t := &x.token
	for t.first != nil {
		a := t.first
		t.first, a.next, a.queued = a.next, nil, false
		if !a.idle {
			continue
		}
		t.promised = a
		if a.canGoOn() {
			if a.st.send.Wake(); !a.idle {
				return true
			}
		}
		t.promised = nil
	}
	return false
}

// passOn gives a promise on, which a does not make use of.
func (x *Sender) passOn(a *asker) {
	if x.token.promised != a {
		return
	}
	x.token.promised = nil
	if x.apart || !x.handOver() {
		x.host.Wake()
	}
}
