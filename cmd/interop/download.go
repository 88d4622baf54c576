package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"
)

// A download is the work of a client: to fetch files over QUIC, as a case of the
// interop runner wants it.
type download struct {
	stack    stack
	protocol protocol
	tls      *tls.Config
	options  options
	addr     *net.UDPAddr // of the server; nil: what the URLs say
	dir      *os.Root     // where the files go
}

// together is how many connections of a multiconnect case are open at a time: in turn
// they would take long, and all at once they would crowd each other out.
const together = 4

// ticketWait is how long a client waits for a session ticket after its first download.
const ticketWait = 10 * time.Second

// run fetches the files that urls name in the way of testcase.
func (d *download) run(ctx context.Context, testcase string, urls []*url.URL) error {
	if len(urls) == 0 {
		return errors.New("no URLs were given")
	}
	switch testcase {
	case "multiconnect":
		errs := make(chan error, len(urls))
		free := make(chan struct{}, together)
		for _, u := range urls {
			go func() {
				free <- struct{}{}
				errs <- d.fetch(ctx, u)
				<-free
			}()
		}
		var err error
		for range urls {
			err = errors.Join(err, <-errs)
		}
		return err
	case "resumption", "zerortt":
		if len(urls) < 2 {
			return errors.New("one URL is too few for two connections")
		}
		tickets := &ticketCache{ClientSessionCache: tls.NewLRUClientSessionCache(1), put: make(chan struct{})}
		d.tls = d.tls.Clone()
		d.tls.ClientSessionCache, d.tls.Time = tickets, tickets.now
		if err := d.fetchThen(ctx, tickets.wait, urls[0]); err != nil {
			return err
		}
		d.options.early = testcase == "zerortt"
		return d.fetch(ctx, urls[1:]...)
	}
	return d.fetch(ctx, urls...)
}

// fetch fetches files over one connection, each on a stream of its own.
func (d *download) fetch(ctx context.Context, urls ...*url.URL) error {
	return d.fetchThen(ctx, nil, urls...)
}

// fetchThen is fetch, and calls then before it closes the connection.
func (d *download) fetchThen(ctx context.Context, then func(context.Context) error, urls ...*url.URL) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addr := d.addr
	if addr == nil {
		var err error
		if addr, err = net.ResolveUDPAddr("udp", urls[0].Host); err != nil {
			return err
		}
	}
	c, err := d.stack.dial(ctx, addr, d.tls, d.options)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	code := uint64(1)
	defer func() { c.close(code) }()
	stop := context.AfterFunc(ctx, func() { c.close(1) }) // ends what cannot be cancelled
	defer stop()
	if err := d.protocol.start(ctx, c); err != nil {
		return err
	}

	var wg sync.WaitGroup
	errs := make(chan error, len(urls)+1)
	if d.options.migrate {
		wg.Go(func() {
			if err := move(ctx, c); err != nil {
				errs <- fmt.Errorf("moving to another socket: %w", err)
				cancel()
			}
		})
	}
	fails := func(u *url.URL, err error) {
		errs <- fmt.Errorf("fetching %s: %w", shorten(u.Path), err)
		cancel() // the first error says it all
	}
	for _, u := range urls {
		// In this goroutine, so that requests leave close together.
		s, err := d.protocol.ask(ctx, c, u)
		if err != nil {
			fails(u, err)
			break
		}
		wg.Go(func() {
			defer s.release()
			if err := d.store(s, u); err != nil {
				fails(u, err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	if then != nil {
		if err := then(ctx); err != nil {
			return err
		}
	}
	code = d.protocol.done()
	stop()
	return nil
}

// moveAfter is when a client moves to another socket, in the case migration.
const moveAfter = 300 * time.Millisecond

func move(ctx context.Context, c conn) error {
	m, ok := c.(migrator)
	if !ok {
		return errLacking
	}
	select {
	case <-time.After(moveAfter):
		return m.migrate(ctx)
	case <-ctx.Done():
		return nil
	}
}

// store writes the answer on s to u's file.
func (d *download) store(s stream, u *url.URL) error {
	f, err := d.dir.Create(path.Base(u.Path))
	if err != nil {
		return err
	}
	err = d.protocol.receive(s, struct{ io.Writer }{f})
	return errors.Join(err, f.Close())
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// ticketCache is a session cache that tells when it has a ticket.
type ticketCache struct {
	tls.ClientSessionCache
	once sync.Once
	put  chan struct{} // closed at the first
	slow atomic.Int64  // nanoseconds that now is behind
}

// now is a clock that showed a whole second when the last ticket came. crypto/tls keeps
// that time in seconds, so that by another clock it would tell the server of an age that
// is up to a second too high, and GnuTLS takes no 0-RTT data with a ticket that is older
// than it can be.
func (t *ticketCache) now() time.Time { return time.Now().Add(-time.Duration(t.slow.Load())) }

func (t *ticketCache) Put(key string, s *tls.ClientSessionState) {
	t.ClientSessionCache.Put(key, s)
	if s != nil {
		t.slow.Store(int64(time.Now().Nanosecond()))
		t.once.Do(func() { close(t.put) })
	}
}

func (t *ticketCache) wait(ctx context.Context) error {
	select {
	case <-t.put:
		return nil
	case <-time.After(ticketWait):
		return errors.New("the server gave no session ticket")
	case <-ctx.Done():
		return ctx.Err()
	}
}
