package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/wire"
)

// A trace is a capture with its packets opened, which takes the key log of one side. It
// is to the checks of this program what a pcap and Wireshark are to those of the runner.
type trace struct {
	server    string // name of the player
	datagrams []*datagram
	conns     []*connTrace
	sealed    int // packets that no key opened
}

// A connTrace is one connection's part of a trace. A Retry or a Version Negotiation does
// not make it another one.
type connTrace struct {
	keys *keyLog

	datagrams []*datagram
	packets   []packet
	flows     map[int]bool

	clientHello, serverHello, serverFlight cryptoStream

	initial            []initialKeys
	clientID, serverID int                // lengths of connection IDs, -1: not known yet
	handshake          [2]*protect.Opener // client's, server's
	early              *protect.Opener
	app                [2]*protect.OneRTT
	largest            [2][3]int64 // by direction and space
	suite              uint16
	version            uint32 // of the last long header
	waiting            []waitingPacket
}

type initialKeys struct {
	version uint32
	dst     []byte
	openers [2]*protect.Opener
}

// A packet is one that a key opened, or that needs no key.
type packet struct {
	*datagram
	typ      wire.PacketType
	version  uint32 // of long headers
	dst, src []byte
	token    []byte // of an Initial or a Retry
	pn       int64
	phase    int // the Key Phase bit of a 1-RTT packet
	size     int // of the payload, in bytes
	frames   []wire.Frame
	sealed   bool // no key opened it
}

// A waitingPacket is a 1-RTT packet that came before its keys: what a server sends in answer
// to 0-RTT data may overtake its ServerHello.
type waitingPacket struct {
	index int // among the packets
	b     []byte
}

// The packet number spaces.
const (
	spaceInitial = iota
	spaceHandshake
	spaceApp
)

// openCapture opens what datagrams hold, in the order in which they came.
func openCapture(list []*datagram, keys *keyLog, server string) *trace {
	t := &trace{server: server, datagrams: list}
	byFlow := map[int]*connTrace{}
	for _, d := range list {
		c := byFlow[d.flow]
		if c == nil {
			if c = t.connOf(d); c == nil {
				c = &connTrace{keys: keys, flows: map[int]bool{}, clientID: -1, serverID: -1}
				for i := range c.largest {
					c.largest[i] = [3]int64{-1, -1, -1}
				}
				t.conns = append(t.conns, c)
			}
			byFlow[d.flow] = c
			c.flows[d.flow] = true
		}
		c.datagrams = append(c.datagrams, d)
		c.open(d)
	}
	for _, c := range t.conns {
		for _, p := range c.packets {
			// crypto/tls does not log the secret of 0-RTT.
			if p.sealed && !(p.typ == wire.ZeroRTT && c.early == nil) {
				t.sealed++
			}
		}
	}
	return t
}

// connOf finds the connection that has moved to a new socket with d, nil if d is no such
// datagram.
func (t *trace) connOf(d *datagram) *connTrace {
	if wire.IsLong(d.data[0]) {
		return nil
	}
	for _, c := range t.conns {
		if c.app[0] == nil {
			continue
		}
		b := bytes.Clone(d.data)
		if _, _, err := c.app[0].Open(b, 1+c.serverID, c.largest[0][spaceApp]); err == nil {
			return c
		}
	}
	return nil
}

// open takes a datagram apart.
func (c *connTrace) open(d *datagram) {
	for b := d.data; len(b) > 0; {
		if !wire.IsLong(b[0]) {
			// Zeros are what x/net/quic fills datagrams with.
			if len(bytes.TrimLeft(b, "\x00")) > 0 {
				c.openShort(d, b)
			}
			return
		}
		h, err := wire.ParseLong(b)
		if err != nil {
			return // no QUIC packet, padding perhaps
		}
		n := h.Len
		if n <= 0 || n > len(b) {
			n = len(b)
		}
		c.openLong(d, b[:n], h)
		b = b[n:]
	}
}

func way(up bool) int {
	if up {
		return 0
	}
	return 1
}

func (c *connTrace) openLong(d *datagram, b []byte, h wire.LongHeader) {
	p := packet{datagram: d, typ: h.Type, version: h.Version, dst: bytes.Clone(h.Dst), src: bytes.Clone(h.Src), token: bytes.Clone(h.Token), pn: -1}
	w := way(d.up)
	switch h.Type {
	case wire.Initial, wire.Handshake, wire.ZeroRTT:
	default:
		c.packets = append(c.packets, p)
		return
	}
	c.version = h.Version
	p.sealed = true
	try := func(o *protect.Opener, space int) bool {
		if o == nil {
			return false
		}
		pn, payload, err := o.Open(bytes.Clone(b), h.PNOffset, c.largest[w][space])
		if err != nil {
			return false
		}
		c.opened(&p, w, space, pn, payload)
		return true
	}
	switch h.Type {
	case wire.Initial:
		c.openInitial(d, h, try)
	case wire.ZeroRTT:
		if c.early == nil {
			c.early = c.earlyOpener(h.Version, b, h.PNOffset)
		}
		try(c.early, spaceApp)
	case wire.Handshake:
		c.needKeys(h.Version)
		try(c.handshake[w], spaceHandshake)
	}
	if !p.sealed {
		if d.up {
			c.clientID = len(p.src)
		} else {
			c.serverID = len(p.src)
		}
	}
	c.packets = append(c.packets, p)
}

// openInitial finds the keys of an Initial packet: those that others had, the last ones
// first, or new ones, since a Retry and a Version Negotiation make new ones.
func (c *connTrace) openInitial(d *datagram, h wire.LongHeader, try func(*protect.Opener, int) bool) {
	w := way(d.up)
	for i := len(c.initial) - 1; i >= 0; i-- {
		if k := c.initial[i]; k.version == h.Version && try(k.openers[w], spaceInitial) {
			return
		}
	}
	dsts := [][]byte{h.Dst}
	if !d.up {
		// A server that chose another version goes on with the client's connection ID
		// (RFC 9369 §4.1).
		dsts = nil
		for _, k := range c.initial {
			dsts = append(dsts, k.dst)
		}
	}
	for _, dst := range dsts {
		k := initialKeys{version: h.Version, dst: bytes.Clone(dst)}
		client, server := protect.InitialSecrets(h.Version, dst)
		for i, secret := range [][]byte{client, server} {
			o, err := protect.NewOpener(tls.TLS_AES_128_GCM_SHA256, secret, h.Version)
			if err != nil {
				return
			}
			k.openers[i] = o
		}
		if try(k.openers[w], spaceInitial) {
			c.initial = append(c.initial, k)
			return
		}
	}
}

// needKeys makes the keys that the key log and the hellos allow.
func (c *connTrace) needKeys(version uint32) {
	random, ok := helloRandom(c.clientHello.message(msgClientHello))
	if c.suite == 0 {
		c.suite = helloSuite(c.serverHello.message(msgServerHello))
	}
	if !ok || c.suite == 0 {
		return
	}
	for w, label := range []string{clientHandshake, serverHandshake} {
		if secret := c.keys.secret(random, label); c.handshake[w] == nil && secret != nil {
			c.handshake[w], _ = protect.NewOpener(c.suite, secret, version)
		}
	}
	client, server := c.keys.secret(random, clientTraffic), c.keys.secret(random, serverTraffic)
	if c.app[0] != nil || client == nil || server == nil {
		return
	}
	for w, secrets := range [][2][]byte{{client, server}, {server, client}} {
		k := protect.NewOneRTT(c.suite, version)
		// The write secret is never used, but makes Received follow key updates.
		if k.SetReadSecret(secrets[0]) == nil && k.SetWriteSecret(secrets[1]) == nil {
			c.app[w] = k
		}
	}
}

// earlyOpener finds out which suite 0-RTT packets use: that of the connection before,
// of which this one knows nothing.
func (c *connTrace) earlyOpener(version uint32, b []byte, pnOff int) *protect.Opener {
	random, _ := helloRandom(c.clientHello.message(msgClientHello))
	secret := c.keys.secret(random, clientEarly)
	for _, suite := range []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256} {
		o, err := protect.NewOpener(suite, secret, version)
		if secret == nil || err != nil {
			continue
		}
		if _, _, err := o.Open(bytes.Clone(b), pnOff, -1); err == nil {
			return o
		}
	}
	return nil
}

func (c *connTrace) openShort(d *datagram, b []byte) {
	c.needKeys(c.version)
	c.packets = append(c.packets, packet{datagram: d, typ: wire.OneRTT, pn: -1, sealed: true})
	c.waiting = append(c.waiting, waitingPacket{len(c.packets) - 1, b})
	if c.app[0] == nil {
		return
	}
	for _, w := range c.waiting {
		c.openWaiting(&c.packets[w.index], bytes.Clone(w.b))
	}
	c.waiting = c.waiting[:0]
}

func (c *connTrace) openWaiting(p *packet, b []byte) {
	w := way(p.up)
	idLen := c.clientID
	if p.up {
		idLen = c.serverID
	}
	if idLen < 0 || len(b) <= idLen {
		return
	}
	p.dst = bytes.Clone(b[1 : 1+idLen])
	pn, payload, err := c.app[w].Open(b, 1+idLen, c.largest[w][spaceApp])
	if err != nil {
		return
	}
	p.phase = int(b[0] >> 2 & 1)
	c.opened(p, w, spaceApp, pn, payload)
	c.app[w].Received(p.at, time.Second)
}

// opened takes in what a key opened.
func (c *connTrace) opened(p *packet, w, space int, pn int64, payload []byte) {
	p.sealed, p.pn, p.size = false, pn, len(payload)
	c.largest[w][space] = max(c.largest[w][space], pn)
	for len(payload) > 0 {
		f, n, err := wire.ParseFrame(payload)
		if err != nil {
			p.sealed = true // what it says is not known
			break
		}
		payload = payload[n:]
		p.frames = append(p.frames, f)
		crypto, ok := f.(wire.Crypto)
		if !ok {
			continue
		}
		switch {
		case space == spaceInitial && w == 0:
			if old, isOld := helloRandom(c.clientHello.message(msgClientHello)); isOld && crypto.Off == 0 && len(crypto.Data) >= 4 {
				if new, isNew := helloRandom(crypto.Data[4:]); isNew && new != old {
					c.clientHello = cryptoStream{} // another attempt, after a Version Negotiation
				}
			}
			c.clientHello.add(crypto.Off, crypto.Data)
		case space == spaceInitial:
			c.serverHello.add(crypto.Off, crypto.Data)
		case space == spaceHandshake && w == 1:
			c.serverFlight.add(crypto.Off, crypto.Data)
		}
	}
}

// frames calls f with every frame of a kind that one direction carried.
func frames[F wire.Frame](c *connTrace, up bool, f func(*packet, F)) {
	for i := range c.packets {
		p := &c.packets[i]
		if p.up != up {
			continue
		}
		for _, frame := range p.frames {
			if x, ok := frame.(F); ok {
				f(p, x)
			}
		}
	}
}

// String tells a packet in one line.
func (p packet) String() string {
	arrow := "<-"
	if p.up {
		arrow = "->"
	}
	s := fmt.Sprintf("%s %s flow %d %v #%d", p.at.Format("05.000000"), arrow, p.flow, p.typ, p.pn)
	if p.typ == wire.OneRTT {
		s += fmt.Sprintf(" phase %d", p.phase)
	}
	if p.ecn != 0 {
		s += fmt.Sprintf(" %v", p.ecn)
	}
	if p.fate != passed {
		s += " " + p.fate.String()
	}
	if p.sealed {
		s += " not opened"
	}
	for _, f := range p.frames {
		s += " " + f.String()
	}
	return s
}

// print tells every packet, for a reader who looks for a fault.
func (t *trace) print(w io.Writer) {
	if w == io.Discard {
		return
	}
	for i, c := range t.conns {
		for _, p := range c.packets {
			fmt.Fprintf(w, "%d %v\n", i, p)
		}
	}
}
