package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volley-quic/volley/internal/protect"
)

// errLacking says that a case asks for what Volley, or this program, does not have.
var errLacking = errors.New("not supported")

// earlyKeyUpdate is after how many packets the client of the case keyupdate updates its
// keys: few, since a client that only downloads sends few.
const earlyKeyUpdate = 20

// plan is what TESTCASE means for an endpoint.
type plan struct {
	protocol protocol
	options  options
	// What no configuration can say, but only apply can do:
	chaCha20  bool // no other cipher suite
	keyUpdate bool // an early key update
}

// apply changes this process as the plan wants it. It comes before the first connection.
func (p plan) apply() {
	if p.chaCha20 {
		onlyChaCha20()
	}
	if p.keyUpdate {
		protect.DefaultUpdateInterval = earlyKeyUpdate
	}
}

// planFor reads TESTCASE for a role.
func planFor(role, testcase string) (plan, error) {
	p := plan{protocol: hq{}}
	client := role == "client"
	switch testcase {
	case "handshake", "multiconnect", "resumption", "ecn":
	case "transfer":
		p.options.smallWindows = client
		// In some of the cases of that name a NAT forgets the client, which notices only
		// if it says something, and may have nothing to say.
		p.options.keepAlive = client
	case "http3":
		p.protocol = h3{}
	case "retry":
		p.options.retry = !client
	case "zerortt":
		// A client sends its first request without: see download.run.
		p.options.early = !client
	case "chacha20":
		p.chaCha20 = true
	case "keyupdate":
		if !client {
			return plan{}, errLacking // the runner's server plays transfer
		}
		p.keyUpdate = true
	case "connectionmigration":
		if client {
			return plan{}, errLacking // the runner's client plays transfer
		}
		p.options.preferred = true
	default:
		return plan{}, errLacking
	}
	return p, nil
}

// endpoint plays one role for the interop runner: role is client or server.
func endpoint(ctx context.Context, role string, args []string) error {
	flags := flag.NewFlagSet("interop "+role, flag.ContinueOnError)
	addr := flags.String("addr", ":443", "server: `address` to listen on")
	www := flags.String("www", "/www", "server: `directory` of the files to serve")
	certs := flags.String("certs", "/certs", "server: `directory` of cert.pem and priv.key")
	downloads := flags.String("downloads", "/downloads", "client: `directory` for the files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p, err := planFor(role, os.Getenv("TESTCASE"))
	if err != nil {
		return fmt.Errorf("the case %q, as TESTCASE in the environment has it, is %w as %s", os.Getenv("TESTCASE"), err, role)
	}
	p.apply()
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{p.protocol.alpn()}}
	if name := os.Getenv("SSLKEYLOGFILE"); name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		conf.KeyLogWriter = f
	}
	if dir := os.Getenv("QLOGDIR"); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if role == "server" {
		return runServer(ctx, p, conf, *addr, *www, *certs, os.Stderr)
	}
	urls := flags.Args()
	if len(urls) == 0 {
		urls = strings.Fields(os.Getenv("REQUESTS"))
	}
	return runClient(ctx, p, conf, os.Getenv("TESTCASE"), urls, *downloads)
}

func runServer(ctx context.Context, p plan, conf *tls.Config, addr, www, certs string, log io.Writer) error {
	cert, err := tls.LoadX509KeyPair(filepath.Join(certs, "cert.pem"), filepath.Join(certs, "priv.key"))
	if err != nil {
		return err
	}
	conf.Certificates = []tls.Certificate{cert}
	root, err := os.OpenRoot(www)
	if err != nil {
		return err
	}
	defer root.Close()
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return err
	}
	pc, err := net.ListenUDP("udp", ua)
	if err != nil {
		return err
	}
	if p.options.preferred {
		if p.options.preferredHosts, err = otherHosts(pc.LocalAddr()); err != nil {
			return err
		}
	}
	l, err := volleyStack{}.listen(pc, conf, p.options)
	if err != nil {
		return err
	}
	defer l.close()
	fmt.Fprintf(log, "serving %s on %v\n", www, pc.LocalAddr())
	return serve(ctx, l, p.protocol, root, log)
}

// otherHosts are the hosts for a server's preferred address, at most one of each family: the
// one that it listens at, or else those of this machine that others can reach.
func otherHosts(listens net.Addr) (hosts []netip.Addr, err error) {
	if at := addrPort(listens).Addr(); !at.IsUnspecified() {
		return []netip.Addr{at}, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		host := p.Addr().Unmap()
		if host.IsGlobalUnicast() && !slices.ContainsFunc(hosts, func(o netip.Addr) bool { return o.Is4() == host.Is4() }) {
			hosts = append(hosts, host)
		}
	}
	if len(hosts) == 0 {
		return nil, errors.New("this machine has no address that others could reach, and so none to prefer")
	}
	return hosts, nil
}

func runClient(ctx context.Context, p plan, conf *tls.Config, testcase string, requests []string, downloads string) error {
	var urls []*url.URL
	for _, request := range requests {
		u, err := url.Parse(request)
		if err != nil {
			return err
		}
		urls = append(urls, u)
	}
	root, err := os.OpenRoot(downloads)
	if err != nil {
		return err
	}
	defer root.Close()
	// The runner makes the certificates anew each time, and looks at what arrived.
	conf.InsecureSkipVerify = true
	if len(urls) > 0 {
		conf.ServerName = urls[0].Hostname()
	}
	d := &download{stack: volleyStack{}, protocol: p.protocol, tls: conf, options: p.options, dir: root}
	return d.run(ctx, testcase, urls)
}
