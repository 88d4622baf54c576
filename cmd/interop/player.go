package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
)

// A job is what a cell asks of its players.
type job struct {
	testcase  *testcase
	protocol  protocol
	dir       string // of the cell; with the subdirectories www, downloads and certs
	cert      tls.Certificate
	trust     *x509.CertPool
	keys      *keyLog
	client    plan
	server    plan
	urls      []*url.URL
	clientLog io.Writer
	serverLog io.Writer
}

func (j *job) sub(name string) string { return filepath.Join(j.dir, name) }

// A player plays one role of a cell.
type player interface {
	// serve serves www at addr, until stop is called.
	serve(ctx context.Context, j *job, addr *net.UDPAddr) (stop func() error, err error)
	// download fetches the job's files from addr.
	download(ctx context.Context, j *job, addr *net.UDPAddr) error
}

// players are those that the matrix knows.
var players = map[string]player{
	volleyName: library{volleyStack{}, true},
	quicGoName: quicGoHTTP3{library{quicGoStack{}, false}},
	xNetName:   library{xNetStack{}, false},
	ngtcp2Name: ngtcp2{},
}

// library is a player that is a stack in this process.
type library struct {
	stack stack
	// keys says whether it is the one whose keys are logged: Volley, which plays one
	// role of every cell.
	keys bool
}

func (l library) tls(j *job) *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{j.protocol.alpn()}}
	if l.keys {
		conf.KeyLogWriter = j.keys
	}
	return conf
}

func (l library) serve(ctx context.Context, j *job, addr *net.UDPAddr) (stop func() error, err error) {
	pc, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	conf := l.tls(j)
	conf.Certificates = []tls.Certificate{j.cert}
	listener, err := l.stack.listen(pc, conf, j.server.options)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(j.sub("www"))
	if err != nil {
		listener.close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- serve(ctx, listener, j.protocol, root, j.serverLog) }()
	return func() error {
		cancel()
		listener.close()
		return errors.Join(<-done, root.Close())
	}, nil
}

func (l library) download(ctx context.Context, j *job, addr *net.UDPAddr) error {
	root, err := os.OpenRoot(j.sub("downloads"))
	if err != nil {
		return err
	}
	defer root.Close()
	conf := l.tls(j)
	conf.RootCAs = j.trust
	conf.ServerName = "localhost"
	d := &download{
		stack: l.stack, protocol: j.protocol, tls: conf, options: j.client.options,
		addr: addr, dir: root,
	}
	return d.run(ctx, j.testcase.client, j.urls)
}
