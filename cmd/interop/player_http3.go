package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// quicGoHTTP3 is a player that is quic-go with its own HTTP/3, not with that of this
// program.
type quicGoHTTP3 struct{ library }

func (q quicGoHTTP3) serve(ctx context.Context, j *job, addr *net.UDPAddr) (stop func() error, err error) {
	if j.testcase.client != "http3" {
		return q.library.serve(ctx, j, addr)
	}
	pc, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	conf := q.tls(j)
	conf.Certificates = append(conf.Certificates, j.cert)
	s := &http3.Server{TLSConfig: conf, Handler: http.FileServer(http.Dir(j.sub("www")))}
	go s.Serve(pc)
	return func() error { return errors.Join(s.Close(), pc.Close()) }, nil
}

func (q quicGoHTTP3) download(ctx context.Context, j *job, addr *net.UDPAddr) error {
	if j.testcase.client != "http3" {
		return q.library.download(ctx, j, addr)
	}
	conf := q.tls(j)
	conf.RootCAs = j.trust
	tr := &http3.Transport{TLSClientConfig: conf, QUICConfig: &quic.Config{}}
	defer tr.Close()
	errs := make(chan error, len(j.urls))
	for _, u := range j.urls {
		go func() {
			u := *u
			u.Host = fmt.Sprintf("localhost:%d", addr.Port)
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
			if err != nil {
				errs <- err
				return
			}
			response, err := tr.RoundTrip(request)
			if err != nil {
				errs <- err
				return
			}
			defer response.Body.Close()
			b, err := io.ReadAll(response.Body)
			if err == nil && response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
			errs <- errors.Join(err, os.WriteFile(path.Join(j.sub("downloads"), path.Base(u.Path)), b, 0o644))
		}()
	}
	var err error
	for range j.urls {
		err = errors.Join(err, <-errs)
	}
	return err
}
