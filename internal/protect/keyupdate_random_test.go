package protect

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// network delays, loses, doubles and damages packets.
type network struct {
	inFlight []struct {
		at     time.Time
		damage bool
		packet
	}
}

// Two ends update every 100 packets over a bad network. Every packet that arrives
// whole is opened, however late, nothing closes the connection, and the phases agree
// in the end (A21).
func TestKeyUpdatesOnABadNetwork(t *testing.T) {
	r := random(t)
	a, b, c := newEnds(t, aesSuite, 100)
	start := c.now
	ends := [2]*end{a, b}
	var nets [2]network // to a, to b
	step := func(lossy bool) {
		t.Helper()
		for i, e := range ends {
			e.MaybeUpdate(c.now, pto)
			to := &nets[1-i]
			for range 1 + r.IntN(20) {
				p := e.seal()
				copies, damage := 1, false
				delay := 10 * time.Millisecond
				if lossy {
					switch x := r.IntN(100); {
					case x < 1:
						copies = 0
					case x < 2:
						copies = 2
					case x < 3:
						damage = true
					case x < 8:
						delay += time.Duration(r.Int64N(int64(2 * pto)))
					}
				}
				for range copies {
					to.inFlight = append(to.inFlight, struct {
						at     time.Time
						damage bool
						packet
					}{c.now.Add(delay), damage, p})
				}
			}
		}
		c.wait(5 * time.Millisecond)
		for i, e := range ends {
			var batch []packet
			var damaged int
			rest := nets[i].inFlight[:0]
			for _, f := range nets[i].inFlight {
				if f.at.After(c.now) {
					rest = append(rest, f)
					continue
				}
				p := f.packet
				if f.damage {
					p.bytes = bytes.Clone(p.bytes)
					p.bytes[r.IntN(len(p.bytes))] ^= 1 << r.IntN(7)
					damaged++
				}
				batch = append(batch, p)
			}
			nets[i].inFlight = rest
			if dropped, err := e.take(batch...); dropped != damaged || err != nil {
				t.Fatalf("%s at %v: %d packets dropped of which %d were damaged, %v", e.name, c.now.Sub(start), dropped, damaged, err)
			}
			if s, r := e.Generations(); s-r+1 > 2 {
				t.Fatalf("%s is in generations %d and %d", e.name, s, r)
			}
		}
	}
	for range 20_000 {
		step(true)
	}
	a.SetUpdateInterval(0)
	b.SetUpdateInterval(0)
	for range 100 {
		step(false)
	}
	gen, _ := a.Generations()
	a.wantGen(gen, gen)
	b.wantGen(gen, gen)
	if gen < 200 { // once in 3 PTO and an RTT, and 100 s have passed
		t.Errorf("only %d updates", gen)
	}
}

// monitored is an end as a connection has it: a mutex for what is shared, a token
// for the right to send.
type monitored struct {
	*end
	mu    sync.Mutex
	token sync.Mutex
	out   chan []packet
}

// flight sends some packets, sealing them with no lock held. It tells their
// generation.
func (m *monitored) flight() (gen uint64) {
	const n = 10
	m.mu.Lock()
	m.MaybeUpdate(m.clock.now, 0)
	s, phase := m.SealKey()
	first := m.nextPN
	m.nextPN += n
	m.Sent(first, n)
	ack, gen := m.acked, m.send.gen
	m.mu.Unlock()

	ps := make([]packet, n)
	for i := range ps {
		ps[i] = m.sealWith(s, first+int64(i), phase)
		ps[i].ack = ack
	}
	m.out <- ps
	return gen
}

// sealWith reads nothing that another goroutine writes.
func (m *monitored) sealWith(s *Sealer, pn int64, phase bool) packet {
	e := end{payload: m.payload}
	return e.sealWith(s, pn, phase)
}

// receive is a connection's goroutine: it opens a batch with no lock held, acts on
// it with the monitor held, and sometimes sends.
func (m *monitored) receive(in <-chan []packet) {
	for batch := range in {
		acked := int64(-1)
		for _, p := range batch {
			pn, _, err := m.Open(p.bytes, 5, m.largest)
			if err != nil {
				m.t.Errorf("%s: packet %d: %v", m.name, p.pn, err)
			}
			m.largest, acked = pn, p.ack
		}
		m.mu.Lock()
		if acked >= 0 {
			if err := m.Acked(acked); err != nil {
				m.t.Error(err)
			}
		}
		if err := m.Received(m.clock.now, 0); err != nil {
			m.t.Error(err)
		}
		m.acked = m.largest
		m.mu.Unlock()
		if m.token.TryLock() {
			if len(m.out) < cap(m.out) { // or both ends might wait for each other
				m.flight()
			}
			m.token.Unlock()
		}
	}
}

// Opening, sealing and updates go on in parallel, at both ends. For the race
// detector.
func TestParallel(t *testing.T) {
	a, b, _ := newEnds(t, aesSuite, 50)
	ends := [2]*monitored{
		{end: a, out: make(chan []packet, 4)},
		{end: b, out: make(chan []packet, 4)},
	}
	var writers, readers sync.WaitGroup
	for i, m := range ends {
		writers.Go(func() {
			for gen := uint64(0); gen < 50 && !t.Failed(); {
				m.token.Lock()
				gen = m.flight()
				m.token.Unlock()
			}
		})
		readers.Go(func() { m.receive(ends[1-i].out) })
	}
	writers.Wait()
	for _, m := range ends {
		m.token.Lock() // no more flights
		close(m.out)
	}
	readers.Wait()
	sa, ra := a.Generations()
	sb, rb := b.Generations()
	t.Logf("generations: a %d/%d, b %d/%d", sa, ra, sb, rb)
}
