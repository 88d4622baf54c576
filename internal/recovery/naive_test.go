package recovery

import (
	"time"

	"github.com/volley-quic/volley/internal/congestion"
	"github.com/volley-quic/volley/internal/wire"
)

// naive is loss recovery as RFC 9002 appendix A writes it: one record per
// packet, and every rule applied to every record. It is what trains are held
// against. Only one thing is added: which records were sent together, since
// that decides how long late ACKs are understood.
type naive struct {
	spaces   [NumSpaces]naiveSpace
	inFlight int
	rtt      RTT
	firstRTT time.Time
	ptoCount int
	ptoAt    time.Time
	newMin   bool
	maxDelay time.Duration
	owner    *frames
	acks     []congestion.Ack
	losses   []congestion.Loss
	spurious []congestion.Spurious
}

type naiveSpace struct {
	next          int64
	largestAcked  int64
	sent          []*naivePacket // all, for ever
	neverSent     map[int64]bool
	groups        [][]*naivePacket // in memory, oldest first
	lastEliciting time.Time
	lossTime      time.Time
}

type naivePacket struct {
	pn                  int64
	time                time.Time
	size                int
	eliciting, inFlight bool
	probe               bool
	acked, lost, unsent bool
	lostAt              time.Time
	forgotten           bool
	tell                func(acked bool)
	frames              []Frame // of those that tell reports
}

func (p *naivePacket) undecided() bool { return !p.acked && !p.lost && !p.unsent }

func newNaive() *naive {
	n := &naive{owner: newFrames(), rtt: RTT{Smoothed: 333 * ms, Var: 333 * ms / 2}, maxDelay: 25 * ms}
	for i := range n.spaces {
		n.spaces[i].largestAcked = -1
		n.spaces[i].neverSent = map[int64]bool{}
	}
	return n
}

func (n *naive) pto() time.Duration { return n.rtt.Smoothed + max(4*n.rtt.Var, ms) }

func (n *naive) send(sp Space, groups [][]*naivePacket, now time.Time) {
	s := &n.spaces[sp]
	n.expire(s, now)
	for _, g := range groups {
		for _, p := range g {
			p.pn, p.time = s.next, now
			s.next++
			s.sent = append(s.sent, p)
			if p.inFlight {
				n.inFlight += p.size
			}
			if p.eliciting {
				s.lastEliciting = now
			}
		}
		s.groups = append(s.groups, g)
	}
}

func (n *naive) drop(p *naivePacket) {
	if p.inFlight {
		n.inFlight -= p.size
	}
}

func (n *naive) expire(s *naiveSpace, now time.Time) {
	keep := 3 * (n.pto() + n.maxDelay)
	for len(s.groups) > 0 {
		g := s.groups[0]
		done := true
		for _, p := range g {
			if p.undecided() && p.inFlight {
				return
			}
		}
		for _, p := range g {
			if p.undecided() && now.Sub(p.time) < keep {
				return
			}
			done = done && (p.acked || p.unsent || p.lost)
		}
		for _, p := range g {
			if p.undecided() {
				p.lost = true
				n.drop(p)
				p.tell(false)
			}
		}
		// The latest loss of the group counts for all of it.
		var latest time.Time
		late := false
		for _, p := range g {
			if p.lost && p.lostAt.After(latest) {
				latest = p.lostAt
			}
			late = late || p.lost && !p.acked
		}
		if late && now.Sub(latest) < keep {
			return
		}
		for _, p := range g {
			p.forgotten = true
		}
		s.groups = s.groups[1:]
	}
}

func (n *naive) unsent(sp Space, first, last int64) {
	s := &n.spaces[sp]
	for _, p := range s.sent {
		if p.pn >= first && p.pn <= last && p.undecided() && !p.forgotten {
			p.unsent = true
			s.neverSent[p.pn] = true
			n.drop(p)
			p.tell(false)
		}
	}
}

func (n *naive) restamp(sp Space, first, last int64, now time.Time) {
	s := &n.spaces[sp]
	for i := 0; i < len(s.groups); i++ {
		g := s.groups[i]
		for k := 1; k < len(g); k++ {
			if g[k].pn == first || g[k].pn == last+1 {
				s.groups = append(s.groups[:i], append([][]*naivePacket{g[:k], g[k:]}, s.groups[i+1:]...)...)
				break
			}
		}
	}
	for _, p := range s.sent {
		if p.pn >= first && p.pn <= last && !p.forgotten {
			p.time = now
			if p.undecided() && p.eliciting {
				s.lastEliciting = now
			}
		}
	}
}

func (n *naive) ack(sp Space, ranges []wire.AckRange, delay time.Duration, now time.Time, appLimited bool) {
	s := &n.spaces[sp]
	n.expire(s, now)
	before := n.inFlight
	s.largestAcked = max(s.largestAcked, ranges[0].Hi)
	named := func(pn int64) bool {
		for _, r := range ranges {
			if pn >= r.Lo && pn <= r.Hi {
				return true
			}
		}
		return false
	}
	var largest *naivePacket
	var spurious congestion.Spurious
	bytes, eliciting, fresh := 0, false, 0
	for _, p := range s.sent {
		if p.forgotten || p.acked || !named(p.pn) {
			continue
		}
		if p.lost {
			if p.inFlight && !p.probe {
				if spurious.Packets == 0 {
					spurious.SentTime = p.time
				}
				spurious.Packets++
			}
		} else {
			fresh++
			largest = p
			n.drop(p)
			if p.inFlight {
				bytes += p.size
			}
			eliciting = eliciting || p.eliciting
		}
		p.acked = true
		p.tell(true)
	}
	if fresh+spurious.Packets == 0 {
		return
	}
	var sample time.Duration
	if fresh > 0 && largest.pn == ranges[0].Hi && eliciting {
		sample = n.updateRTT(now.Sub(largest.time), min(delay, n.maxDelay), now)
	}
	n.detectLost(sp, now)
	if spurious.Packets > 0 {
		spurious.Now = now
		n.spurious = append(n.spurious, spurious)
	}
	if bytes > 0 {
		a := congestion.Ack{Now: now, Bytes: bytes, InFlightBefore: before, LargestSentTime: largest.time,
			LargestPN: -1, SentPN: s.next - 1, RTT: sample, MinRTT: n.rtt.Min, SmoothedRTT: n.rtt.Smoothed, AppLimited: appLimited}
		if sp == App {
			a.LargestPN = s.largestAcked
		}
		n.acks = append(n.acks, a)
	}
	n.ptoCount = 0
	n.expire(s, now)
}

func (n *naive) updateRTT(latest, delay time.Duration, now time.Time) time.Duration {
	latest = max(latest, 1)
	n.rtt.Latest = latest
	if !n.rtt.Has {
		n.rtt = RTT{latest, latest, latest, latest / 2, true}
		n.firstRTT = now
		return latest
	}
	if n.newMin {
		n.rtt.Min, n.newMin = latest, false
	}
	n.rtt.Min = min(n.rtt.Min, latest)
	adjusted := latest
	if latest >= n.rtt.Min+delay {
		adjusted = latest - delay
	}
	n.rtt.Var += ((n.rtt.Smoothed - adjusted).Abs() - n.rtt.Var) / 4
	n.rtt.Smoothed += (adjusted - n.rtt.Smoothed) / 8
	return latest
}

func (n *naive) detectLost(sp Space, now time.Time) {
	s := &n.spaces[sp]
	s.lossTime = time.Time{}
	delay := max(n.rtt.Latest, n.rtt.Smoothed)
	delay = max(delay+delay/8, ms)
	loss := congestion.Loss{Now: now}
	var lost []*naivePacket
	for _, p := range s.sent {
		if !p.undecided() || p.forgotten || p.pn > s.largestAcked {
			continue
		}
		after := 0 // packets sent after p, up to the largest acknowledged
		for pn := s.largestAcked; pn > p.pn && after < 3; pn-- {
			if !s.neverSent[pn] {
				after++
			}
		}
		switch {
		case after >= 3 || !p.time.After(now.Add(-delay)):
			p.lost, p.lostAt = true, now
			n.drop(p)
			lost = append(lost, p)
			if p.inFlight && !p.probe {
				loss.Packets++
				loss.Bytes += p.size
				loss.LargestSentTime = p.time
			}
		case p.inFlight && s.lossTime.IsZero():
			s.lossTime = p.time.Add(delay)
		}
	}
	for _, p := range lost {
		p.tell(false)
	}
	if loss.Packets > 0 {
		loss.Persistent = n.persistent(sp, lost)
		n.newMin = n.newMin || loss.Persistent
		n.losses = append(n.losses, loss)
	}
}

// persistent tries every pair of lost packets of which one was lost just now.
func (n *naive) persistent(sp Space, lost []*naivePacket) bool {
	s := &n.spaces[sp]
	counts := func(p *naivePacket) bool {
		return p.lost && !p.acked && p.eliciting && !p.probe && n.rtt.Has && p.time.After(n.firstRTT)
	}
	for _, b := range lost {
		if !counts(b) {
			continue
		}
		for i := b.pn - 1; i >= 0; i-- {
			a := s.find(i)
			if a == nil {
				continue
			}
			if a.acked {
				break
			}
			if counts(a) && b.time.Sub(a.time) > 3*(n.pto()+n.maxDelay) && !n.ackedElsewhere(sp, a.time, b.time) {
				return true
			}
		}
	}
	return false
}

// ackedElsewhere says whether a packet of another space sent in from..to was
// acknowledged. One that is out of memory counts also when it was sent later.
func (n *naive) ackedElsewhere(sp Space, from, to time.Time) bool {
	for i := range n.spaces {
		for _, p := range n.spaces[i].sent {
			if Space(i) != sp && p.acked && !p.time.Before(from) && (p.forgotten || !p.time.After(to)) {
				return true
			}
		}
	}
	return false
}

func (s *naiveSpace) find(pn int64) *naivePacket {
	// sent is ordered, but numbers that were skipped have no record.
	lo, hi := 0, len(s.sent)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.sent[mid].pn < pn {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.sent) && s.sent[lo].pn == pn {
		return s.sent[lo]
	}
	return nil
}

// timer is SetLossDetectionTimer of a confirmed connection.
func (n *naive) timer() time.Time {
	var t time.Time
	for i := range n.spaces {
		if l := n.spaces[i].lossTime; !l.IsZero() && (t.IsZero() || l.Before(t)) {
			t = l
		}
	}
	if !t.IsZero() {
		return t
	}
	for i := range n.spaces {
		s := &n.spaces[i]
		waiting := false
		for _, p := range s.sent {
			waiting = waiting || p.undecided() && p.eliciting && !p.forgotten
		}
		if !waiting {
			continue
		}
		d := n.pto()
		if Space(i) == App {
			d += n.maxDelay
		}
		for range n.ptoCount {
			if d < 60*time.Second {
				d = min(2*d, 60*time.Second)
			}
		}
		from := s.lastEliciting
		if n.ptoAt.After(from) {
			from = n.ptoAt
		}
		if f := from.Add(d); t.IsZero() || f.Before(t) {
			t = f
		}
	}
	return t
}

func (n *naive) onTimer(now time.Time) {
	for i := range n.spaces {
		s := &n.spaces[i]
		if !s.lossTime.IsZero() {
			// The earliest of them; ties by order of spaces.
			best := i
			for j := range n.spaces {
				if l := n.spaces[j].lossTime; !l.IsZero() && l.Before(n.spaces[best].lossTime) {
					best = j
				}
			}
			if !n.spaces[best].lossTime.After(now) {
				n.detectLost(Space(best), now)
				n.expire(&n.spaces[best], now)
			}
			return
		}
	}
	if t := n.timer(); !t.IsZero() && !t.After(now) {
		n.ptoCount++
		n.ptoAt = now
		left := 2
		for _, p := range n.spaces[App].sent {
			if left > 0 && p.undecided() && p.eliciting && !p.forgotten && !p.probe && len(p.frames) > 0 {
				for _, f := range p.frames {
					n.owner.FrameLost(f)
				}
				left--
			}
		}
	}
}
