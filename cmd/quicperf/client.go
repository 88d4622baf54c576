package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// runClient does one transfer and prints what came of it.
func runClient(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	r, err := transfer(ctx, o, stderr)
	if err != nil {
		return err
	}
	if o.json {
		err = r.writeJSON(stdout)
	} else {
		err = writeTable(stdout, []*result{r})
	}
	if err == nil && !r.OK {
		err = errWrongContent
	}
	return err
}

var errWrongContent = errors.New("the content that arrived is not the content that was sent")

// transfer is the client's side of one transfer. A result says itself whether
// the content was right.
func transfer(ctx context.Context, o *options, terminal io.Writer) (*result, error) {
	j := o.request()
	var c *content
	if j.Direction == "upload" {
		var err error
		if c, err = newContent(ctx, &j, o.file); err != nil {
			return nil, err
		}
		defer c.Close()
	}

	s, err := dial(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", o.server, describe(err))
	}
	r, err := s.client(&j, c, o.stack, newProgress(terminal))
	if err := s.end(err); err != nil {
		return nil, fmt.Errorf("%s: %s", o.server, describe(err))
	}
	return r, nil
}

// dial finds the server, does the handshake, and opens the control stream.
func dial(ctx context.Context, o *options) (*session, error) {
	addr, err := net.ResolveUDPAddr("udp", o.server)
	if err != nil {
		return nil, err
	}
	conf, err := clientTLS(o, addr)
	if err != nil {
		return nil, err
	}
	// The kernel knows at once if there is no way to the server. QUIC would go on trying
	// for as long as a handshake may take, and then know no more than that nobody answers.
	way, err := net.DialUDP("udp", nil, addr)
	if err != nil {
		return nil, err
	}
	way.Close()
	dialCtx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c, err := stacks[o.stack].Dial(dialCtx, addr, conf, o.net())
	if err == nil {
		var ctrl stream
		if ctrl, err = c.OpenStream(dialCtx); err == nil {
			return newSession(ctx, c, ctrl), nil
		}
		c.CloseWithError(1, "")
	}
	if t, ok := errors.AsType[*tlsError](err); ok && !t.remote && !conf.InsecureSkipVerify && o.ca == "" {
		return nil, fmt.Errorf("%w (see -fingerprint, -ca and -insecure)", err)
	}
	if errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer: is a quicperf server running there, with %s?", sameTransport(o.stack))
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the other side closed the connection in the handshake")
	}
	return nil, err
}

// sameTransport is what the server of a client with this stack must have.
func sameTransport(stack string) string {
	if stack == "tcp" {
		return "-stack tcp"
	}
	return "a QUIC stack"
}

// client asks for j, moves the content and compares. c is what to upload.
func (s *session) client(j *job, c *content, stack string, p *progress) (*result, error) {
	if err := s.greet(message{Request: j}); err != nil {
		return nil, err
	}
	m, err := s.next()
	if err != nil {
		return nil, err
	}
	asked := *j
	if j = m.Job; j == nil || !j.answers(&asked) {
		return nil, fmt.Errorf("%w: it answers what was not asked", errNotQuicperf)
	}

	var k *sink
	if j.Direction == "download" {
		if k, err = newSink(s.ctx, j); err != nil {
			return nil, err
		}
		defer k.Close()
		j.Sink = k.kind
	}
	streams, err := s.openStreams(j)
	if err != nil {
		return nil, err
	}

	p.begin(j.Size)
	defer p.end()
	meter := startMeter(s.conn)
	if err := s.ctrl.send(message{Go: true}); err != nil {
		return nil, err
	}
	var mine *report
	if k != nil {
		if err := s.receive(streams, k, j, p); err != nil {
			return nil, err
		}
		mine = meter.stop()
		if err := s.ctrl.send(message{Done: true}); err != nil {
			return nil, err
		}
		p.end()
		if mine.SHA256, err = k.hash(s.ctx); err != nil {
			return nil, err
		}
	} else {
		emitters, err := s.send(streams, c, j, p)
		if err != nil {
			return nil, err
		}
		if m, err := s.next(); err != nil || !m.Done {
			return nil, unexpected(err)
		}
		mine = meter.stop()
		p.end()
		mine.Emission, mine.SHA256 = emitted(emitters), c.sha256
	}

	mine.Stack = stack
	if err := s.ctrl.send(message{Report: mine}); err != nil {
		return nil, err
	}
	m, err = s.next()
	if err != nil || m.Report == nil {
		return nil, unexpected(err)
	}
	return newResult(j, mine, m.Report, s.conn.TLS()), nil
}

// unexpected is err, or what to say of a message that does not belong here.
func unexpected(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: a message out of turn", errNotQuicperf)
}
