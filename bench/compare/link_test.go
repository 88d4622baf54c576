package main

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// onLink runs f with two ends of a path in simulated time.
func onLink(t *testing.T, conf linkConfig, seed uint64, f func(a, b *linkConn)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		a, b := newPath(conf, seed)
		f(a, b)
		a.Close()
		b.Close()
	})
}

func TestLinkTakesItsTime(t *testing.T) {
	// 1 Mbit/s is 125 bytes a millisecond: 972 bytes and their headers take 8 ms.
	onLink(t, linkConfig{Rate: 1e6, Delay: 20 * time.Millisecond, Queue: 1 << 20}, 1, func(a, b *linkConn) {
		start := time.Now()
		for i := range 3 {
			a.WriteTo([]byte{byte(i), 971: 0}, b.LocalAddr())
		}
		buf := make([]byte, 2000)
		for i := range 3 {
			n, from, err := b.ReadFrom(buf)
			if n != 972 || from.String() != a.LocalAddr().String() || err != nil || buf[0] != byte(i) {
				t.Fatalf("datagram %d: %d bytes from %v, %v", i, n, from, err)
			}
			if took, want := time.Since(start), time.Duration(20+8*(i+1))*time.Millisecond; took != want {
				t.Errorf("datagram %d arrived after %v, want %v", i, took, want)
			}
		}
	})
}

func TestLinkDropsAndLoses(t *testing.T) {
	arrived := func(conf linkConfig, seed uint64, n int) (got []byte) {
		onLink(t, conf, seed, func(a, b *linkConn) {
			for i := range n {
				a.WriteTo([]byte{byte(i), 99: 0}, nil)
			}
			b.SetReadDeadline(time.Now().Add(time.Minute))
			buf := make([]byte, 2000)
			for {
				if _, _, err := b.ReadFrom(buf); err != nil {
					if !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				got = append(got, buf[0])
			}
		})
		return got
	}
	conf := linkConfig{Rate: 1e6, Delay: time.Millisecond, Queue: 1280}
	if got := arrived(conf, 1, 100); len(got) != 10 {
		t.Errorf("a queue of 10 datagrams let %d through", len(got))
	}
	conf.Queue, conf.Loss = 1<<20, 0.2
	one, again, other := arrived(conf, 1, 200), arrived(conf, 1, 200), arrived(conf, 2, 200)
	if len(one) < 120 || len(one) > 190 {
		t.Errorf("%d of 200 arrived with 20 %% lost", len(one))
	}
	if string(one) != string(again) {
		t.Error("the same seed loses other datagrams")
	}
	if string(one) == string(other) {
		t.Error("another seed loses the same")
	}
}

func TestLinkConnCloses(t *testing.T) {
	onLink(t, linkConfig{Rate: 1e6, Queue: 1 << 20}, 1, func(a, b *linkConn) {
		go func() {
			time.Sleep(time.Second)
			b.Close()
		}()
		if _, _, err := b.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read on a closed end: %v", err)
		}
		if _, err := b.WriteTo([]byte{1}, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write on a closed end: %v", err)
		}
	})
}
