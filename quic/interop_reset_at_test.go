package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// What these tests want of a stream, on both stacks.
type (
	partialSender interface {
		io.Writer
		SetReliableBoundary()
	}
	partialSide struct {
		openUni   func(context.Context) (partialSender, func(code uint64), error)
		acceptUni func(context.Context) (io.Reader, error)
		supports  func() (local, remote bool)
	}
)

func volleySide(c *Conn) partialSide {
	return partialSide{
		func(ctx context.Context) (partialSender, func(uint64), error) {
			s, err := c.OpenUniStreamSync(ctx)
			return s, func(code uint64) { s.CancelWrite(StreamErrorCode(code)) }, err
		},
		func(ctx context.Context) (io.Reader, error) { return c.AcceptUniStream(ctx) },
		func() (bool, bool) {
			s := c.ConnectionState().SupportsStreamResetPartialDelivery
			return s.Local, s.Remote
		},
	}
}

func quicgoSide(c *quicgo.Conn) partialSide {
	return partialSide{
		func(ctx context.Context) (partialSender, func(uint64), error) {
			s, err := c.OpenUniStreamSync(ctx)
			return s, func(code uint64) { s.CancelWrite(quicgo.StreamErrorCode(code)) }, err
		},
		func(ctx context.Context) (io.Reader, error) { return c.AcceptUniStream(ctx) },
		func() (bool, bool) {
			s := c.ConnectionState().SupportsStreamResetPartialDelivery
			return s.Local, s.Remote
		},
	}
}

// partialSides connects two stacks over the sockets; kind says which is which, client first.
func partialSides(t *testing.T, kind string, st, ct *tls.Config, here, there net.PacketConn) (client, server partialSide) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ours := &Config{EnableStreamResetPartialDelivery: true}
	theirs := &quicgo.Config{EnableStreamResetPartialDelivery: true}
	accepted := make(chan partialSide, 1)
	if kind == "quic-go to Volley" {
		tr := &Transport{Conn: there}
		t.Cleanup(func() { tr.Close() })
		l, err := tr.Listen(st, ours)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(ctx); err == nil {
				accepted <- volleySide(c)
			}
		}()
		tc := &quicgo.Transport{Conn: here}
		t.Cleanup(func() { tc.Close() })
		c, err := tc.Dial(ctx, there.LocalAddr(), ct, theirs)
		if err != nil {
			t.Fatal(err)
		}
		return quicgoSide(c), <-accepted
	}
	tr := &quicgo.Transport{Conn: there}
	t.Cleanup(func() { tr.Close() })
	l, err := tr.Listen(st, theirs)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := l.Accept(ctx); err == nil {
			accepted <- quicgoSide(c)
		}
	}()
	tc := &Transport{Conn: here}
	t.Cleanup(func() { tc.Close() })
	c, err := tc.Dial(ctx, there.LocalAddr(), ct, ours)
	if err != nil {
		t.Fatal(err)
	}
	return volleySide(c), <-accepted
}

// exchangePartial resets n streams each way behind a boundary of random size. Up to there at
// least everything arrives, and nothing that was not written.
func exchangePartial(t *testing.T, rnd *rand.Rand, n int, most int, client, server partialSide) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, side := range []partialSide{client, server} {
		if local, remote := side.supports(); !local || !remote {
			t.Fatalf("partial delivery: local %v, remote %v", local, remote)
		}
	}
	for i := range n {
		for way, p := range [][2]partialSide{{client, server}, {server, client}} {
			boundary, more := rnd.IntN(most), rnd.IntN(most)
			data := patternOf(uint64(i), uint64(way)).bytes(boundary + more)
			wait := time.Duration(rnd.IntN(20)) * time.Millisecond
			s, reset, err := p[0].openUni(ctx)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				s.Write(data[:boundary])
				s.SetReliableBoundary()
				// The rest may wait for credit that does not come.
				time.AfterFunc(wait, func() { reset(uint64(i)) })
				s.Write(data[boundary:])
			}()
			r, err := p[1].acceptUni(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if code, remote := streamCode(err); !remote || code != uint64(i) {
				t.Fatalf("stream %d, way %d: %v, want code %d from the peer", i, way, err, i)
			}
			if len(got) < boundary || !bytes.HasPrefix(data, got) {
				t.Fatalf("stream %d, way %d: %d bytes arrived of %d, reliable are %d", i, way, len(got), len(data), boundary)
			}
		}
	}
}

var partialPairs = []string{"Volley to quic-go", "quic-go to Volley"}

func TestInteropPartialDelivery(t *testing.T) {
	for _, kind := range partialPairs {
		t.Run(kind, func(t *testing.T) {
			st, ct := testTLS(t)
			var socks [2]net.PacketConn
			for i := range socks {
				s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				socks[i] = s
			}
			client, server := partialSides(t, kind, st, ct, socks[0], socks[1])
			// quic-go writes what it has buffered, up to a packet, into no credit at all:
			// within the window it need not.
			exchangePartial(t, testSeed(t), less(60), 100_000, client, server)
		})
	}
}

// The same over a path that loses a tenth of all datagrams.
func TestInteropPartialDeliveryWithLoss(t *testing.T) {
	for _, kind := range partialPairs {
		t.Run(kind, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %#x", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			synctest.Test(t, func(t *testing.T) {
				pair := smallTLSPair()
				here, there := newWire(rnd)
				for _, d := range []*direction{here.out, there.out} {
					d.delay = 10 * time.Millisecond
				}
				t.Cleanup(func() {
					here.Close()
					there.Close()
					time.Sleep(10 * time.Minute)
				})
				client, server := partialSides(t, kind, pair.server.Clone(), pair.client.Clone(), here, there)
				for _, d := range []*direction{here.out, there.out} {
					d.set(func(d *direction) { d.lose = 0.1 })
				}
				exchangePartial(t, rnd, less(30), 50_000, client, server)
			})
		})
	}
}

// A server that does not take RESET_STREAM_AT any more must not accept 0-RTT data of a client
// that remembers otherwise (§3 of the draft). One that does gets it in 0-RTT packets.
func TestZeroRTTRemembersPartialDelivery(t *testing.T) {
	for _, still := range []bool{true, false} {
		t.Run(fmt.Sprintf("still offered: %v", still), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			st, ct := testTLS(t)
			cache := newTicketCache()
			ct.ClientSessionCache = cache
			type result struct {
				data string
				err  error
			}
			results := make(chan result, 10)
			serve := func(conf *Config) string {
				ln, err := ListenAddrEarly("127.0.0.1:0", st, conf)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ln.Close() })
				go func() {
					for {
						c, err := ln.Accept(ctx)
						if err != nil {
							return
						}
						go func() {
							if r, err := c.AcceptUniStream(ctx); err == nil {
								b, err := io.ReadAll(r)
								results <- result{string(b), err}
							}
						}()
					}
				}()
				return ln.Addr().String()
			}
			c, err := DialAddrEarly(ctx, serve(&Config{Allow0RTT: true, EnableStreamResetPartialDelivery: true}), ct, nil)
			if err != nil {
				t.Fatal(err)
			}
			<-cache.put
			c.CloseWithError(0, "")

			c, socket := dialDeaf(t, ctx, serve(&Config{Allow0RTT: true, EnableStreamResetPartialDelivery: still}), ct)
			defer c.CloseWithError(0, "")
			s, err := c.OpenUniStream()
			if err != nil {
				t.Fatal(err)
			}
			s.Write([]byte("reliable"))
			s.SetReliableBoundary()
			s.CancelWrite(7)
			socket.hear()
			<-c.HandshakeComplete()
			if used := c.ConnectionState().Used0RTT; used != still {
				t.Errorf("Used0RTT is %v", used)
			}
			if !still {
				return
			}
			select {
			case got := <-results:
				if got.data != "reliable" || !errors.Is(got.err, &StreamError{StreamID: s.StreamID(), ErrorCode: 7, Remote: true}) {
					t.Errorf("read %q, %v", got.data, got.err)
				}
			case <-ctx.Done():
				t.Error("nothing was read")
			}
		})
	}
}
