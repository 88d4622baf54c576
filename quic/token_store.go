package quic

import (
	"container/list"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// A ClientToken is a token that a server gave to a client in a NEW_TOKEN frame:
// with it, the next connection need not prove its address (RFC 9000 §8.1.3).
type ClientToken struct {
	data        []byte
	greaseUntil time.Time // see greaseMemory; zero: the server did not say that it may be greased
}

// A TokenStore keeps tokens from one connection for the next. Its methods are
// called by several goroutines at once.
type TokenStore interface {
	// Pop returns a token for key and forgets it: a token is to be used once
	// (RFC 9000 §8.1.3). It returns nil if there is none.
	Pop(key string) (token *ClientToken)

	// Put adds a token for key. A connection may call it several times.
	Put(key string, token *ClientToken)
}

// NewLRUTokenStore returns a [TokenStore] in memory. It keeps tokens of up to
// maxOrigins servers, forgetting the one not used for the longest time, and up to
// tokensPerOrigin tokens of each, the newest of which is used first.
func NewLRUTokenStore(maxOrigins, tokensPerOrigin int) TokenStore {
	return &lruTokenStore{
		maxOrigins:      maxOrigins,
		tokensPerOrigin: tokensPerOrigin,
		origins:         make(map[string]*list.Element),
	}
}

type lruTokenStore struct {
	maxOrigins, tokensPerOrigin int

	mu      sync.Mutex
	origins map[string]*list.Element // of *originTokens
	recent  list.List                // the front was used last
}

type originTokens struct {
	key    string
	tokens []*ClientToken // the last is the newest
}

func (s *lruTokenStore) Put(key string, token *ClientToken) {
	if s.maxOrigins <= 0 || s.tokensPerOrigin <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	e := s.origins[key]
	if e == nil {
		if s.recent.Len() == s.maxOrigins {
			s.forget(s.recent.Back())
		}
		e = s.recent.PushFront(&originTokens{key: key})
		s.origins[key] = e
	}
	s.recent.MoveToFront(e)
	o := e.Value.(*originTokens)
	if len(o.tokens) == s.tokensPerOrigin {
		o.tokens = slices.Delete(o.tokens, 0, 1)
	}
	o.tokens = append(o.tokens, token)
}

func (s *lruTokenStore) Pop(key string) *ClientToken {
	s.mu.Lock()
	defer s.mu.Unlock()

	e := s.origins[key]
	if e == nil {
		return nil
	}
	s.recent.MoveToFront(e)
	o := e.Value.(*originTokens)
	last := len(o.tokens) - 1
	token := o.tokens[last]
	o.tokens[last] = nil
	o.tokens = o.tokens[:last]
	if last == 0 {
		s.forget(e)
	}
	return token
}

func (s *lruTokenStore) forget(e *list.Element) {
	s.recent.Remove(e)
	delete(s.origins, e.Value.(*originTokens).key)
}

// tokenStoreKey is the key for a server's tokens: its name, or else its address.
func tokenStoreKey(tlsConf *tls.Config, remote net.Addr) string {
	if tlsConf.ServerName != "" {
		return tlsConf.ServerName
	}
	return remote.String()
}
