package quic

import "sync/atomic"

// turn is the right to do a connection's work: to take in what has arrived, keep the time
// and send what is due. Mostly the connection's goroutine has it while it is awake, but a
// caller that reads the socket itself takes it, too (see [reading]). Nobody waits for it:
// whoever finds it taken tells the one who has it to go round once more.
type turn struct{ state atomic.Int32 }

const (
	turnFree  int32 = iota
	turnTaken       // somebody is at work …
	turnAgain       // … and was told that there is more
	turnOver        // the connection is over: nobody gets it any more
)

// take takes the turn if it is free.
func (t *turn) take() bool { return t.state.CompareAndSwap(turnFree, turnTaken) }

// tell tells whoever has the turn that there is more to do. It reports false if nobody
// has it.
func (t *turn) tell() bool {
	for {
		switch t.state.Load() {
		case turnTaken:
			if t.state.CompareAndSwap(turnTaken, turnAgain) {
				return true
			}
		case turnAgain:
			return true
		default:
			return false
		}
	}
}

// takeOrTell does either, unless the connection is over.
func (t *turn) takeOrTell() (taken bool) {
	for !t.over() {
		if t.take() {
			return true
		}
		if t.tell() {
			return false
		}
	}
	return false
}

// giveBack ends a turn, but not if its holder was told of more: then it reports false.
func (t *turn) giveBack() bool {
	if t.state.CompareAndSwap(turnTaken, turnFree) {
		return true
	}
	t.state.Store(turnTaken)
	return false
}

// drop ends a turn whatever there is left to do.
func (t *turn) drop() { t.state.Store(turnFree) }

// end ends the last turn.
func (t *turn) end() { t.state.Store(turnOver) }

func (t *turn) over() bool { return t.state.Load() == turnOver }
