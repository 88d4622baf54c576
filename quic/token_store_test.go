package quic

import (
	"crypto/tls"
	"net"
	"testing"
)

func TestTokenStore(t *testing.T) {
	tok := func(s string) *ClientToken { return &ClientToken{data: []byte(s)} }
	s := NewLRUTokenStore(2, 3)
	pop := func(key, want string) {
		t.Helper()
		got := ""
		if tok := s.Pop(key); tok != nil {
			got = string(tok.data)
		}
		if got != want {
			t.Errorf("Pop(%q) = %q, want %q", key, got, want)
		}
	}

	pop("a", "")

	// The newest token first, each once.
	s.Put("a", tok("1"))
	s.Put("a", tok("2"))
	pop("a", "2")
	pop("a", "1")
	pop("a", "")

	// Only so many of one server: the oldest goes.
	for _, v := range []string{"1", "2", "3", "4"} {
		s.Put("a", tok(v))
	}
	for _, v := range []string{"4", "3", "2", ""} {
		pop("a", v)
	}

	// Only so many servers: the one not used for longest goes.
	s.Put("a", tok("a1"))
	s.Put("a", tok("a2"))
	s.Put("b", tok("b1"))
	pop("a", "a2") // a is now used more recently than b
	s.Put("c", tok("c1"))
	pop("b", "")
	pop("a", "a1")
	pop("c", "c1")

	// A server that is out of tokens takes no place.
	s.Put("d", tok("d"))
	s.Put("e", tok("e"))
	pop("d", "d")
	s.Put("f", tok("f"))
	pop("e", "e")
	pop("f", "f")

	NewLRUTokenStore(0, 0).Put("a", tok("1")) // keeps nothing, and does not mind
}

func TestTokenStoreKey(t *testing.T) {
	addr := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	if k := tokenStoreKey(&tls.Config{ServerName: "example.com"}, addr); k != "example.com" {
		t.Errorf("key %q", k)
	}
	if k := tokenStoreKey(&tls.Config{}, addr); k != "192.0.2.1:443" {
		t.Errorf("key %q", k)
	}
}
