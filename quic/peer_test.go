package quic

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volley-quic/volley/internal/handshake"
	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// Tests of connections are conversations. An [actor] plays the peer: it has keys of its
// own from a real handshake, says exactly what the script makes it say, and queues what
// Volley answers, frame by frame, for the script to expect. It never does anything of
// its own accord, acknowledging included. All happens in virtual time, which passes
// only where the script lets it.
//
// In the background it watches every packet: see watch.

// role is Volley's part in a test. The actor plays the other one.
type role uint8

const (
	asClient role = iota
	asServer
)

func (r role) String() string { return [...]string{"client", "server"}[r] }

// eachRole runs f for Volley as a client and as a server.
func eachRole(t *testing.T, f func(t *testing.T, volley role)) {
	for _, r := range []role{asClient, asServer} {
		t.Run("as "+r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, r) })
		})
	}
}

// actor is the peer of one Volley connection.
type actor struct {
	*testing.T
	volley    role
	sock      *actorSocket
	into      *actorSocket // another socket of Volley's, which the actor sends to now
	from      net.Addr     // another address of the actor's, from which it sends now
	transport *Transport   // Volley's
	config    *Config      // Volley's
	tlsConfig *tls.Config
	early     bool // Volley's listener is an EarlyListener

	c        *Conn // Volley's end, as soon as there is one
	dialing  *call[*Conn]
	accepted func(context.Context) (*Conn, error)

	// This end.
	tls     *handshake.TLS
	tlsErr  error
	done    bool // the handshake is complete here
	params  wire.TransportParams
	rawTP   func([]byte) []byte   // changes the encoded parameters
	theirs  *wire.TransportParams // Volley's
	version uint32
	scid    []byte           // ours
	ids     map[int64][]byte // ours by sequence number, those that Volley may use
	dcid    []byte           // Volley's
	origDst []byte           // first Destination Connection ID of the client
	keyDst  []byte           // the one that Initial keys come from
	token   []byte           // of Initial packets, as a client
	greased bool             // the actor's packets lack the QUIC bit
	rtt     time.Duration    // passes before each datagram that the actor sends

	keys     [2]levelKeys    // Initial, Handshake
	oneRTT   *protect.OneRTT // both directions
	sealKey  *protect.Sealer // used instead of oneRTT's, if set …
	phase    bool            // … with this key phase
	nextPN   [recovery.NumSpaces]int64
	sentPN   [recovery.NumSpaces]spans // that Volley may acknowledge
	out      [recovery.NumSpaces]cryptoOut
	in       [recovery.NumSpaces]tape // Volley's CRYPTO streams
	inDone   [recovery.NumSpaces]int  // bytes of them that TLS has
	got      [recovery.NumSpaces]spans
	largest  [recovery.NumSpaces]int64
	acked    int64                   // highest 1-RTT number that the actor has acknowledged; -1: none
	unacked  [recovery.NumSpaces]int // ack-eliciting packets that the actor has not acknowledged
	ignored  map[uint64]bool
	queue    []said
	packets  []*sentPacket // all of them
	watching watch

	transcript []string
}

type levelKeys struct {
	seal *protect.Sealer
	open *protect.Opener
}

// cryptoOut are the actor's handshake bytes of one level.
type cryptoOut struct {
	data []byte
	sent int
}

// newActor prepares a Volley endpoint and its peer. Options are functions that change
// Volley's *Config, *Transport or *tls.Config, the actor's *wire.TransportParams, or
// the *actor itself.
func newActor(t *testing.T, volley role, opts ...any) *actor {
	t.Helper()
	p := &actor{
		T: t, volley: volley,
		config:  &Config{DisablePathMTUDiscovery: true}, // a subject of its own
		version: wire.Version1,
		scid:    []byte{0xac, 0x70, 0, 0},
		ids:     map[int64][]byte{},
		ignored: map[uint64]bool{wire.FramePadding: true},
		params: wire.TransportParams{
			MaxIdleTimeout:                 time.Minute,
			InitialMaxData:                 1 << 20,
			InitialMaxStreamDataBidiLocal:  256 << 10,
			InitialMaxStreamDataBidiRemote: 256 << 10,
			InitialMaxStreamDataUni:        256 << 10,
			InitialMaxStreamsBidi:          100,
			InitialMaxStreamsUni:           100,
			AckDelayExponent:               wire.DefaultAckDelayExponent,
			MaxAckDelay:                    wire.DefaultMaxAckDelay,
			ActiveConnIDLimit:              4,
		},
	}
	p.largest = [recovery.NumSpaces]int64{-1, -1, -1}
	p.acked = -1
	if volley == asServer {
		p.sock = newActorSocket(hereAddr, thereAddr)
		p.tlsConfig = endpointTLS().Clone()
	} else {
		p.sock = newActorSocket(thereAddr, hereAddr)
		p.tlsConfig = endpointClientTLS()
	}
	// Small handshake messages, unless the test wants others.
	p.tlsConfig.CurvePreferences = []tls.CurveID{tls.X25519}
	p.transport = &Transport{Conn: p.sock}
	var setParams []func(*wire.TransportParams)
	for _, o := range opts {
		switch f := o.(type) {
		case func(*Config):
			f(p.config)
		case func(*Transport):
			f(p.transport)
		case func(*tls.Config):
			f(p.tlsConfig)
		case func(*wire.TransportParams):
			setParams = append(setParams, f)
		case func(*actor):
			f(p)
		default:
			t.Fatalf("option of type %T", o)
		}
	}
	p.ids[0] = p.scid
	p.watching.init(p)
	t.Cleanup(p.end)

	if volley == asServer {
		listen := func() error {
			l, err := p.transport.Listen(p.tlsConfig, p.config)
			if err == nil {
				p.accepted = l.Accept
			}
			return err
		}
		if p.early {
			listen = func() error {
				l, err := p.transport.ListenEarly(p.tlsConfig, p.config)
				if err == nil {
					p.accepted = l.Accept
				}
				return err
			}
		}
		if err := listen(); err != nil {
			t.Fatal(err)
		}
		p.origDst = make([]byte, 8)
		rand.Read(p.origDst)
		p.dcid = p.origDst
		p.setInitialKeys(p.origDst)
	}
	p.params.InitialSrc = p.scid
	for _, f := range setParams {
		f(&p.params)
	}
	if a := p.params.PreferredAddress; a != nil && a.IPv4.IsValid() {
		p.sock.others = append(p.sock.others, net.UDPAddrFromAddrPort(a.IPv4))
	}
	p.watching.setParams(&p.params)
	return p
}

// end leaves nothing behind, and tells what was said if the test has failed.
func (p *actor) end() {
	defer func() {
		p.transport.Close()
		if p.tls != nil {
			p.tls.Close()
		}
	}()
	if !p.Failed() {
		p.collect()
	}
	if p.Failed() || testing.Verbose() {
		const most = 400
		lines := p.transcript
		if len(lines) > most {
			lines = append([]string{"…"}, lines[len(lines)-most:]...)
		}
		p.Log("the conversation:\n" + strings.Join(lines, "\n"))
	}
}

// logf adds a line to the transcript, about something that happened at the given time.
func (p *actor) logf(at time.Time, format string, args ...any) {
	d := at.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	p.transcript = append(p.transcript, fmt.Sprintf("%14v  ", d)+fmt.Sprintf(format, args...))
}

// setInitialKeys derives the Initial keys from a connection ID of the client's choice.
func (p *actor) setInitialKeys(dst []byte) {
	p.keyDst = dst
	client, server := protect.InitialSecrets(p.version, dst)
	read, write := server, client
	if p.volley == asClient {
		read, write = client, server
	}
	p.keys[recovery.Initial] = p.levelKeys(tls.TLS_AES_128_GCM_SHA256, read, write)
}

func (p *actor) levelKeys(suite uint16, read, write []byte) (k levelKeys) {
	var err error
	if read != nil {
		if k.open, err = protect.NewOpener(suite, read, p.version); err != nil {
			p.Fatal(err)
		}
	}
	if write != nil {
		if k.seal, err = protect.NewSealer(suite, write, p.version); err != nil {
			p.Fatal(err)
		}
	}
	return k
}

// start begins the handshake on both sides; nothing is said yet but Volley's ClientHello.
func (p *actor) start() {
	p.Helper()
	if p.volley == asClient {
		p.dialing = start(func() (*Conn, error) {
			return p.transport.Dial(context.Background(), hereAddr, p.tlsConfig, p.config)
		})
		p.collect() // which starts TLS, when the ClientHello is there
		return
	}
	p.startTLS()
}

// startTLS makes this end of the handshake.
func (p *actor) startTLS() {
	p.Helper()
	if p.volley == asClient && p.params.OriginalDst == nil {
		p.params.OriginalDst = p.origDst
	}
	params := p.params.Append(nil)
	if p.rawTP != nil {
		params = p.rawTP(params)
	}
	if p.volley == asServer {
		conf := endpointClientTLS()
		conf.ServerName = hereAddr.IP.String()
		conf.CurvePreferences = []tls.CurveID{tls.X25519}
		p.tls = handshake.NewClient(conf, params)
	} else {
		p.tls = handshake.NewServer(endpointTLS(), params)
	}
	p.onTLS(p.tls.Start(p.Context()))
}

// onTLS acts on what a step of the handshake produced at this end.
func (p *actor) onTLS(evs []handshake.Event, err error) {
	p.Helper()
	if err != nil && p.tlsErr == nil {
		p.tlsErr = err
	}
	for _, ev := range evs {
		sp := spaceOfLevel(ev.Level)
		switch ev.Kind {
		case handshake.WriteData:
			p.out[sp].data = append(p.out[sp].data, ev.Data...)
		case handshake.ReadSecret:
			if sp != recovery.App {
				p.keys[sp].open = p.levelKeys(ev.Suite, ev.Secret, nil).open
				continue
			}
			p.make1RTT(ev.Suite)
			p.oneRTT.SetReadSecret(ev.Secret)
		case handshake.WriteSecret:
			if sp != recovery.App {
				p.keys[sp].seal = p.levelKeys(ev.Suite, nil, ev.Secret).seal
				continue
			}
			p.make1RTT(ev.Suite)
			p.oneRTT.SetWriteSecret(ev.Secret)
		case handshake.PeerParams:
			tp, err := wire.ParseTransportParams(ev.Data, p.volley == asServer)
			if err != nil {
				p.Fatalf("Volley's transport parameters: %v", err)
			}
			p.theirs = tp
		case handshake.HandshakeDone:
			p.done = true
		}
	}
}

func (p *actor) make1RTT(suite uint16) {
	if p.oneRTT == nil {
		p.oneRTT = protect.NewOneRTT(suite, p.version)
	}
}

// driveTLS gives TLS what has arrived.
func (p *actor) driveTLS() {
	p.Helper()
	for p.tls != nil && p.tlsErr == nil {
		level := p.tls.ReadLevel()
		sp := spaceOfLevel(level)
		n := p.in[sp].prefix()
		if n == p.inDone[sp] {
			return
		}
		data := p.in[sp].data[p.inDone[sp]:n]
		p.inDone[sp] = n
		p.onTLS(p.tls.HandleData(level, data))
	}
}

// handshake completes the handshake, on a path where nothing is lost, and
// acknowledges everything. Then there is nothing to be said on either side.
func (p *actor) handshake() *actor {
	p.Helper()
	if p.tls == nil && p.dialing == nil {
		p.start()
	}
	if p.volley == asServer {
		p.writeCrypto(wire.Initial)
		p.collect()
		p.mustTLS()
		p.send(p.packet(wire.Initial, p.ackFrame(wire.Initial)),
			p.packet(wire.Handshake, p.ackFrame(wire.Handshake), p.cryptoFrame(wire.Handshake)))
		p.collect()
		c, err := p.accepted(p.Context())
		if err != nil {
			p.Fatalf("Accept: %v", err)
		}
		p.c = c
	} else {
		p.writeServerFlight()
		p.collect()
		p.mustTLS()
		if !p.done {
			p.Fatal("the handshake is not complete")
		}
		p.writeFrames(wire.Handshake, p.ackFrame(wire.Handshake))
		p.writeFrames(wire.OneRTT, wire.HandshakeDone{})
		c, err := p.dialing.result()
		if err != nil {
			p.Fatalf("Dial: %v", err)
		}
		p.c = c
	}
	p.oneRTT.SetHandshakeConfirmed()
	p.collect()
	p.settle()
	return p
}

func (p *actor) mustTLS() {
	p.Helper()
	if p.tlsErr != nil {
		p.Fatalf("the actor's TLS: %v", p.tlsErr)
	}
	if p.oneRTT == nil {
		p.Fatal("the handshake got stuck")
	}
}

// writeServerFlight sends a server's whole first flight, coalesced as far as it goes.
func (p *actor) writeServerFlight() {
	p.Helper()
	if p.tls == nil {
		p.Fatal("no ClientHello has come")
	}
	first := p.packet(wire.Initial, p.ackFrame(wire.Initial), p.cryptoFrame(wire.Initial))
	room := max(1200-len(p.seal(first, false))-100, 100)
	p.send(first, p.packet(wire.Handshake, p.cryptoFrameOf(wire.Handshake, room)))
	p.writeCrypto(wire.Handshake)
}

// settle acknowledges what Volley has sent, lets a second pass for what is delayed,
// and forgets it.
func (p *actor) settle() {
	p.Helper()
	p.ackAll()
	p.advance(time.Second)
	p.ackAll()
	p.queue = nil
}

// mine is the ID of the actor's stream number n, bidi or uni.
func (p *actor) mine(kind int, n int64) int64 {
	id := n<<2 | int64(kind)<<1
	if p.volley == asClient {
		id |= serverBit
	}
	return id
}

// yours is the ID of Volley's stream number n.
func (p *actor) yours(kind int, n int64) int64 { return p.mine(kind, n) ^ serverBit }

// A call is a function under way in a goroutine of its own.
type call[T any] struct {
	done chan struct{}
	v    T
	err  error
}

func start[T any](f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.v, c.err = f()
	}()
	return c
}

// finished reports whether the function has returned by now.
func (c *call[T]) finished() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// result is what the function returned. It lets time pass until it has.
func (c *call[T]) result() (T, error) {
	<-c.done
	synctest.Wait()
	return c.v, c.err
}

// tape is a stream put together from its pieces.
type tape struct {
	data []byte
	have []bool
	done int // bytes from the start without a gap
}

// put adds a piece, and reports false if it contradicts an earlier one.
func (s *tape) put(off int64, p []byte) bool {
	if end := int(off) + len(p); end > len(s.data) {
		s.data = append(s.data, make([]byte, end-len(s.data))...)
		s.have = append(s.have, make([]bool, end-len(s.have))...)
	}
	for i, b := range p {
		at := int(off) + i
		if s.have[at] && s.data[at] != b {
			return false
		}
		s.data[at], s.have[at] = b, true
	}
	return true
}

func (s *tape) prefix() int {
	for s.done < len(s.have) && s.have[s.done] {
		s.done++
	}
	return s.done
}
