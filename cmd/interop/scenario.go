package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A scenario is what a relay does to the datagrams between client and server, in the
// terms of the runner's simulator.
type scenario struct {
	delay time.Duration // one way
	mbps  float64       // 10^6 bits per second, each way
	queue int           // datagrams that may wait for the link; more are lost

	lose, damage trouble       // both ways
	loseUp       []int         // datagrams to the server that are lost, counted from 1
	on, off      time.Duration // the link works for on, and loses all for off,
	holes        int           // that often: for ever, probes at doubling intervals might never meet it working

	// From firstRebind after the first 1-RTT packet on, and every rebindEvery from
	// then, the server sees the client at another port, and with rebindAddr at another
	// address as well. The old ones lead nowhere.
	firstRebind, rebindEvery time.Duration
	rebindAddr               bool
}

// A trouble befalls datagrams at a rate, but not more than burst of one client's in a row.
// (Of anybody's in the runner, where clients make one connection after the other.)
type trouble struct {
	rate  float64
	burst int
}

// heavy is what befalls handshakes.
var heavy = trouble{rate: 0.30, burst: 3}

func (t trouble) milder() trouble {
	if t == heavy {
		return trouble{rate: 0.20, burst: 2}
	}
	return t
}

// plain is the runner's usual link.
var plain = scenario{delay: 15 * time.Millisecond, mbps: 10, queue: 25}

// with returns a copy that f has changed.
func (s scenario) with(f func(*scenario)) scenario {
	f(&s)
	return s
}

// hurts says whether datagrams are lost on purpose, or damaged.
func (s scenario) hurts() bool {
	return s.lose.rate > 0 || s.damage.rate > 0 || len(s.loseUp) > 0 || s.off > 0
}

// fate is what becomes of a datagram.
type fate uint8

const (
	passed  fate = iota
	lost         // on purpose
	damaged      // arrives with a wrong bit
	crowded      // found the queue full
	stale        // went to an address that the client has no more
)

// fates deals out fates to the datagrams of one direction.
type fates struct {
	*scenario
	up  bool
	rnd *rand.Rand
	n   int // datagrams so far
	// How many of a flow's last datagrams were lost, and damaged, in a row.
	lost, damaged map[int]int
}

func newFates(s *scenario, up bool, rnd *rand.Rand) *fates {
	return &fates{s, up, rnd, 0, map[int]int{}, map[int]int{}}
}

// next is the fate of a flow's next datagram, since after the first one of all.
func (f *fates) next(flow int, since time.Duration) fate {
	f.n++
	if f.up && slices.Contains(f.loseUp, f.n) {
		return lost
	}
	if period := f.on + f.off; f.off > 0 && since%period >= f.on && int(since/period) < f.holes {
		return lost
	}
	if f.lose.befalls(f.rnd, f.lost, flow) {
		return lost
	}
	if f.damage.befalls(f.rnd, f.damaged, flow) {
		return damaged
	}
	return passed
}

func (t trouble) befalls(rnd *rand.Rand, row map[int]int, flow int) bool {
	if t.rate == 0 || row[flow] >= t.burst || rnd.Float64() >= t.rate {
		row[flow] = 0
		return false
	}
	row[flow]++
	return true
}

func (f fate) String() string {
	return [...]string{"passed", "lost", "damaged", "crowded", "stale"}[f]
}
