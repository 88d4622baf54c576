package handshake

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func udpAddr(s string) net.Addr {
	a, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		panic(err)
	}
	return a
}

type otherAddr string

func (otherAddr) Network() string  { return "carrier pigeon" }
func (a otherAddr) String() string { return string(a) }

var testKey = [32]byte{1, 2, 3}

func TestTokens(t *testing.T) {
	tokens := NewTokens(testKey)
	another := NewTokens(testKey) // of another server, with the same key
	v4, v4port, v6 := udpAddr("192.0.2.1:1000"), udpAddr("192.0.2.1:1001"), udpAddr("[2001:db8::1]:1000")
	mapped := &net.UDPAddr{IP: net.ParseIP("192.0.2.1").To16(), Port: 1000}
	short := &net.UDPAddr{IP: net.ParseIP("192.0.2.1").To4(), Port: 1000}
	for _, test := range []struct {
		to, from       net.Addr
		retry, regular error
	}{
		{v4, v4, nil, nil},
		{short, mapped, nil, nil},
		{v4, v4port, ErrTokenAddress, nil},
		{v4, udpAddr("192.0.2.2:1000"), ErrTokenAddress, ErrTokenAddress},
		{v6, v6, nil, nil},
		{v6, udpAddr("[2001:db8::2]:1000"), ErrTokenAddress, ErrTokenAddress},
		{v6, v4, ErrTokenAddress, ErrTokenAddress},
		{otherAddr("a"), otherAddr("a"), nil, nil},
		{otherAddr("a"), otherAddr("b"), ErrTokenAddress, ErrTokenAddress},
		{otherAddr("a"), v4, ErrTokenAddress, ErrTokenAddress},
	} {
		before := time.Now()
		retry := tokens.NewRetry(test.to, []byte("original"), []byte("retry"))
		tok, err := another.Open(retry, test.from)
		if !errors.Is(err, test.retry) || !tok.IsRetry || string(tok.OrigDst) != "original" || string(tok.RetrySrc) != "retry" {
			t.Errorf("Retry token for %v from %v: %+v, %v; want %v", test.to, test.from, tok, err, test.retry)
		}
		if tok.IssuedAt.Before(before.Truncate(0)) || tok.IssuedAt.After(time.Now()) {
			t.Errorf("issued at %v", tok.IssuedAt)
		}
		tok, err = another.Open(tokens.NewToken(test.to), test.from)
		if !errors.Is(err, test.regular) || tok.IsRetry || len(tok.OrigDst) != 0 {
			t.Errorf("token for %v from %v: %+v, %v; want %v", test.to, test.from, tok, err, test.regular)
		}
	}
	if bytes.Equal(tokens.NewToken(v4), tokens.NewToken(v4)) {
		t.Error("two tokens are equal: they would link connections (RFC 9000 §8.1.3)")
	}
	if n := len(tokens.NewRetry(v6, make([]byte, 20), make([]byte, 20))); n > 128 {
		t.Errorf("a Retry token has %d bytes", n)
	}
}

func TestTokensTampered(t *testing.T) {
	tokens, addr := NewTokens(testKey), udpAddr("192.0.2.1:1000")
	good := tokens.NewRetry(addr, []byte("original"), []byte("retry"))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if tok, err := tokens.Open(bad, addr); !errors.Is(err, ErrToken) {
			t.Errorf("byte %d changed: %+v, %v", i, tok, err)
		}
		if _, err := tokens.Open(good[:i], addr); !errors.Is(err, ErrToken) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := NewTokens([32]byte{9}).Open(good, addr); !errors.Is(err, ErrToken) {
		t.Errorf("another key: %v", err)
	}
	if _, err := tokens.Open(good, addr); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, addr := NewTokens(testKey), udpAddr("192.0.2.1:1000")
		retry, regular := tokens.NewRetry(addr, nil, nil), tokens.NewToken(addr)
		at := func(age time.Duration, wantRetry, wantRegular error) {
			t.Helper()
			if tok, err := tokens.Open(retry, addr); !errors.Is(err, wantRetry) || !tok.IsRetry {
				t.Errorf("Retry token after %v: %+v, %v", age, tok, err)
			}
			if _, err := tokens.Open(regular, addr); !errors.Is(err, wantRegular) {
				t.Errorf("token after %v: %v", age, err)
			}
		}
		at(0, nil, nil)
		time.Sleep(10 * time.Second)
		at(10*time.Second, nil, nil)
		time.Sleep(time.Nanosecond)
		at(10*time.Second+1, ErrTokenExpired, nil)
		tokens.MaxRetryAge = time.Minute
		at(10*time.Second+1, nil, nil)
		time.Sleep(24*time.Hour - 10*time.Second)
		at(24*time.Hour+1, ErrTokenExpired, ErrTokenExpired)
	})
}

func FuzzTokens(f *testing.F) {
	addr := udpAddr("192.0.2.1:1000")
	f.Add([]byte{})
	f.Add(NewTokens([32]byte{7}).NewRetry(addr, []byte("original"), []byte("retry")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tok, err := NewTokens(testKey).Open(b, addr); err == nil {
			t.Fatalf("a forged token is good: %+v", tok)
		}
	})
}
