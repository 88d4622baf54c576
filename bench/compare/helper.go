package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/volley-quic/volley/bench/internal/bare"
	"github.com/volley-quic/volley/bench/internal/proc"
	"github.com/volley-quic/volley/internal/experiment"
)

// task is what a helper process is started for.
type task struct {
	Role    string
	Stack   string
	Addr    string // of the server, for a client
	Cert    identity
	Profile string // file for a CPU profile of what is measured

	// Bulk transfers.
	Warm, Size int64 // bytes of each stream: outside the clock, then within it
	Streams    int
	MaxPacket  int
	Emission   *emission
	PlainAcks  bool // without the ACK frequency extension (Volley)

	// Requests and handshakes.
	Span       time.Duration
	Concurrent int
	Ask        string // echo, lines or pieces
	HandOver   bool   // writes leave through the connection's goroutine (Volley)
	Lone       bool   // every small write leaves alone

	Conns int
	Loss  float64 // of the relay
	Path  *pathTask
	Bare  bare.Config
}

// emission is how a Volley sender asks a source.
type emission struct {
	Mode      string // of package emit, or "auto"
	Datagrams int
	Reread    bool
	Stays     bool // the source promises not to change
	Source    string
	File      string
}

// roles by name. A role may say things before; what it returns is said last.
var roles map[string]func(p *proc.Peer, t task) (any, error)

func init() {
	roles = map[string]func(p *proc.Peer, t task) (any, error){
		"receive":       receive,
		"send":          send,
		"bare-receive":  bareReceive,
		"bare-send":     bareSend,
		"echo-server":   echoServer,
		"echo-client":   echoClient,
		"accept":        acceptHandshakes,
		"dial":          dialHandshakes,
		"idle-server":   idleServer,
		"idle-client":   idleClient,
		"relay":         relay,
		"many-receive":  manyReceive,
		"many-send":     manySend,
		"path":          pathRuns,
		"write-pieces":  writePieces,
		"write-buffer":  writeBuffer,
		"measure-parts": measureParts,
	}
}

func help(p *proc.Peer, t task) error {
	role := roles[t.Role]
	if role == nil {
		return fmt.Errorf("no role is called %q", t.Role)
	}
	// The size of the socket buffers is no news among results.
	os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	experiment.HandOver.Store(t.HandOver)
	experiment.AckFrequencyOff.Store(t.PlainAcks)
	v, err := role(p, t)
	if err != nil {
		return err
	}
	if err := p.Say(v); err != nil {
		return err
	}
	// The other side may still want an answer from the network: who started us ends us.
	for {
		var ignored any
		if err := p.Hear(&ignored, 0); err != nil {
			return err
		}
	}
}

// limit is how long anything may take.
const limit = 15 * time.Minute

// duel starts a server, learns its address, starts a client for it, and returns
// what both found. t is for both but for role and address.
func duel[S, C any](t task, server, client string, profile func(role string) string) (s S, c C, err error) {
	t.Role, t.Profile = server, profile(server)
	sp, err := proc.Start(t)
	if err != nil {
		return s, c, err
	}
	defer sp.Close()
	if err := sp.Hear(&t.Addr, limit); err != nil {
		return s, c, fmt.Errorf("%s: %w", server, err)
	}
	t.Role, t.Profile = client, profile(client)
	cp, err := proc.Start(t)
	if err != nil {
		return s, c, err
	}
	defer cp.Close()
	if err := cp.Hear(&c, limit); err != nil {
		return s, c, fmt.Errorf("%s: %w", client, err)
	}
	if err := sp.Say(true); err != nil { // for those that wait for it
		return s, c, err
	}
	if err := sp.Hear(&s, limit); err != nil {
		return s, c, fmt.Errorf("%s: %w", server, err)
	}
	return s, c, nil
}

// alone runs one helper.
func alone[T any](t task) (v T, err error) {
	p, err := proc.Start(t)
	if err != nil {
		return v, err
	}
	defer p.Close()
	err = p.Hear(&v, limit)
	return v, err
}

// profileOf names the profiles of one measurement; only the first round has any.
func (b *bench) profileOf(job, contestant string, round int) func(role string) string {
	return func(role string) string {
		if b.profile == "" || round > 0 {
			return ""
		}
		name := strings.NewReplacer("/", "", " ", "-").Replace(job + "-" + contestant + "-" + role)
		return filepath.Join(b.profile, name+".pprof")
	}
}

// usage is what a process used while the clock ran.
type usage struct {
	Elapsed time.Duration
	CPU     time.Duration
	Mallocs uint64
	GCs     uint32
	MaxRSS  int64 // of its whole life so far
}

// meter measures usage. It is started and stopped once.
type meter struct {
	profile *os.File
	mem     runtime.MemStats
	cpu     time.Duration
	start   time.Time
}

func (m *meter) begin(profile string) {
	runtime.GC() // nobody pays for what was before
	if profile != "" {
		if f, err := os.Create(profile); err == nil {
			m.profile = f
			pprof.StartCPUProfile(f)
		}
	}
	runtime.ReadMemStats(&m.mem)
	m.cpu = proc.CPU()
	m.start = time.Now()
}

func (m *meter) end() (u usage) {
	u.Elapsed = time.Since(m.start)
	u.CPU = proc.CPU() - m.cpu
	before, gcs := m.mem.Mallocs, m.mem.NumGC
	runtime.ReadMemStats(&m.mem)
	u.Mallocs, u.GCs = m.mem.Mallocs-before, m.mem.NumGC-gcs
	u.MaxRSS = proc.MaxRSS()
	if m.profile != nil {
		pprof.StopCPUProfile()
		m.profile.Close()
	}
	return u
}

// identity is a server's certificate and key, which clients trust.
type identity struct{ Cert, Key []byte }

func newIdentity() (id identity, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return id, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Unix(0, 0), // good for simulated clocks, too
		NotAfter:     time.Now().Add(48 * time.Hour),
	}
	if id.Cert, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		return id, err
	}
	id.Key, err = x509.MarshalPKCS8PrivateKey(key)
	return id, err
}

// options makes what a stack is given.
func (t *task) options() (o options, err error) {
	cert, err := x509.ParseCertificate(t.Cert.Cert)
	if err != nil {
		return o, err
	}
	key, err := x509.ParsePKCS8PrivateKey(t.Cert.Key)
	if err != nil {
		return o, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	const protocol = "bench"
	return options{
		server: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{t.Cert.Cert}, PrivateKey: key, Leaf: cert}},
			NextProtos:   []string{protocol}, MinVersion: tls.VersionTLS13,
		},
		client:    &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13},
		maxPacket: t.MaxPacket,
		streams:   t.Streams,
	}, nil
}

// server listens and tells the address.
func server(p *proc.Peer, t task, change func(*options)) (listener, error) {
	o, err := t.options()
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&o)
	}
	l, err := stacks[t.Stack].listen(o)
	if err != nil {
		return nil, err
	}
	return l, p.Say(l.Addr().String())
}

// connect dials the server.
func connect(t task, change func(*options)) (conn, error) {
	d, err := dialFrom(t, false, change)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return d.dial(ctx, t.Addr)
}

// dialFrom is where connections are dialled from: from one socket if that is shared.
func dialFrom(t task, shared bool, change func(*options)) (dialer, error) {
	o, err := t.options()
	if err != nil {
		return nil, err
	}
	o.shared = shared
	if change != nil {
		change(&o)
	}
	return stacks[t.Stack].client(o)
}
