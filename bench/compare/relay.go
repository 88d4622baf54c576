package main

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/internal/udp"
)

// relay stands between one client and the server at t.Addr, in a process of its own,
// and loses datagrams of both directions at random. Both ends keep their real
// sockets and all that the kernel does for them: the relay itself reads with GRO,
// and sends on with GSO what is left of each train.
func relay(p *proc.Peer, t task) (any, error) {
	to, err := netip.ParseAddrPort(t.Addr)
	if err != nil {
		return nil, err
	}
	open := func() (*udp.Conn, error) {
		pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		return udp.New(pc)
	}
	front, err := open()
	if err != nil {
		return nil, err
	}
	back, err := open()
	if err != nil {
		return nil, err
	}
	if err := p.Say(front.LocalAddr().String()); err != nil {
		return nil, err
	}
	var client atomic.Pointer[netip.AddrPort]
	go carry(back, front, t.Loss, 2, func(netip.AddrPort) netip.AddrPort {
		if c := client.Load(); c != nil {
			return *c
		}
		return netip.AddrPort{}
	})
	carry(front, back, t.Loss, 1, func(from netip.AddrPort) netip.AddrPort {
		if c := client.Load(); c == nil || *c != from {
			client.Store(&from)
		}
		return to
	})
	return nil, net.ErrClosed
}

// carry moves datagrams from in to out until in fails.
func carry(in, out *udp.Conn, loss float64, seed uint64, where func(from netip.AddrPort) netip.AddrPort) {
	r := rand.New(rand.NewPCG(seed, 0))
	var route udp.Route
	ms := make([]udp.Message, 16)
	for {
		n, err := in.ReadBatch(ms)
		if err != nil {
			return
		}
		for i := range ms[:n] {
			m := &ms[i]
			if route.Remote = where(m.Remote); route.Remote.IsValid() {
				// Runs of datagrams that are not lost go on together.
				run, rest := m.Data[:0], m.Data
				for len(rest) > 0 {
					k := min(m.Segment, len(rest))
					if r.Float64() < loss {
						out.Send(&route, run, m.Segment, m.ECN)
						run = rest[k:k]
					} else {
						run = run[:len(run)+k]
					}
					rest = rest[k:]
				}
				out.Send(&route, run, m.Segment, m.ECN)
			}
			m.Buf.Release()
		}
	}
}
