package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxSessions is how many transfers a server has at the same time.
const maxSessions = 16

// runServer serves until ctx ends, which is its good end.
func runServer(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	if err := checkFile(o.file, int64(o.size)); err != nil {
		return err
	}
	conf, fingerprint, err := serverTLS(o)
	if err != nil {
		return err
	}
	l, err := stacks[o.stack].Listen(o.addr, conf, o.net())
	if err != nil {
		return err
	}

	hello := stdout
	if o.json {
		hello = stderr
	}
	fmt.Fprintf(hello, "listening on %s (%s), certificate fingerprint %s\n", l.Addr(), o.stack, fingerprint)
	srv := &server{o: o, out: stdout, log: stderr}
	return srv.serve(ctx, l)
}

// server serves transfers of one listener.
type server struct {
	o   *options
	out io.Writer // results
	log io.Writer // failures

	mu     sync.Mutex // also for out and log
	active int        // transfers going on
	total  int        // transfers so far
}

// serve closes l, and returns when every transfer is over.
func (srv *server) serve(ctx context.Context, l listener) error {
	var wg sync.WaitGroup
	defer l.Close()
	defer wg.Wait()
	for {
		c, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			r, err := srv.transfer(ctx, c)
			srv.mu.Lock()
			defer srv.mu.Unlock()
			switch {
			case err != nil:
				complain(srv.log, fmt.Errorf("%s: %s", c.RemoteAddr(), describe(err)))
			case srv.o.json:
				r.writeJSON(srv.out)
			default:
				fmt.Fprintf(srv.out, "%s: %s\n", c.RemoteAddr(), r.line())
			}
		})
	}
}

// transfer is the server's side of one transfer, which ends with c closed.
func (srv *server) transfer(ctx context.Context, c conn) (*result, error) {
	acceptCtx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ctrl, err := c.AcceptStream(acceptCtx)
	if err != nil {
		c.CloseWithError(1, describe(err))
		return nil, err
	}
	s := newSession(ctx, c, ctrl)
	r, err := s.server(srv)
	return r, s.end(err)
}

// enter counts a transfer in. The returned function counts it out, and says
// whether it had the process for itself.
func (srv *server) enter() (leave func() (alone bool), err error) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.active == maxSessions {
		return nil, fmt.Errorf("the server is busy with %d transfers", maxSessions)
	}
	srv.active++
	srv.total++
	first, number := srv.active == 1, srv.total
	return func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		srv.active--
		return first && srv.total == number
	}, nil
}

// server does what the client asks for.
func (s *session) server(srv *server) (*result, error) {
	if err := s.greet(); err != nil {
		return nil, err
	}
	leave, err := srv.enter()
	if err != nil {
		return nil, err
	}
	leave = sync.OnceValue(leave)
	defer leave()

	m, err := s.next()
	if err != nil || m.Request == nil {
		return nil, unexpected(err)
	}
	j := *m.Request
	j.fill(srv.o.job())
	if err := j.check(); err != nil {
		return nil, err
	}
	if j.Size > int64(srv.o.maxSize) {
		return nil, fmt.Errorf("the server moves %s at most (see its -max-size)", srv.o.maxSize)
	}

	var c *content
	var k *sink
	if j.Direction == "download" {
		if c, err = newContent(s.ctx, &j, srv.o.file); err != nil {
			return nil, err
		}
		defer c.Close()
	} else {
		if j.Size == 0 {
			return nil, errors.New("an upload of no bytes")
		}
		if k, err = newSink(s.ctx, &j); err != nil {
			return nil, err
		}
		defer k.Close()
		j.Sink = k.kind
	}
	if err := s.ctrl.send(message{Job: &j}); err != nil {
		return nil, err
	}

	var streams []stream
	err = s.within(3*answerTimeout, func() (err error) {
		streams, err = s.acceptStreams(&j)
		return err
	})
	if err != nil {
		return nil, err
	}
	meter := startMeter(s.conn)
	if m, err := s.next(); err != nil || !m.Go {
		return nil, unexpected(err)
	}

	p := new(progress) // nobody watches
	var mine *report
	if c != nil {
		emitters, err := s.send(streams, c, &j, p)
		if err != nil {
			return nil, err
		}
		if m, err := s.next(); err != nil || !m.Done {
			return nil, unexpected(err)
		}
		mine = meter.stop()
		mine.Emission, mine.SHA256 = emitted(emitters), c.sha256
	} else {
		if err := s.receive(streams, k, &j, p); err != nil {
			return nil, err
		}
		mine = meter.stop()
		if err := s.ctrl.send(message{Done: true}); err != nil {
			return nil, err
		}
		if mine.SHA256, err = k.hash(s.ctx); err != nil {
			return nil, err
		}
	}
	if !leave() {
		mine.CPUSeconds, mine.Socket = nil, nil
	}

	mine.Stack = srv.o.stack
	m, err = s.next()
	if err != nil || m.Report == nil {
		return nil, unexpected(err)
	}
	if err := s.ctrl.send(message{Report: mine}); err != nil {
		return nil, err
	}
	// The client hangs up when it has that; until then it must not be lost.
	select {
	case <-s.ctrlEnded:
	case <-time.After(lingerTime):
	}
	return newResult(&j, m.Report, mine, s.conn.TLS()), nil
}
