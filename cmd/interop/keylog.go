package main

import (
	"bytes"
	"encoding/hex"
	"strings"
	"sync"
)

// A keyLog is the key log of crypto/tls, kept for reading packets with.
type keyLog struct {
	mu      sync.Mutex
	secrets map[[32]byte]map[string][]byte // by client random and label
}

// The labels of the key log (draft-ietf-tls-keylogfile).
const (
	clientEarly     = "CLIENT_EARLY_TRAFFIC_SECRET"
	clientHandshake = "CLIENT_HANDSHAKE_TRAFFIC_SECRET"
	serverHandshake = "SERVER_HANDSHAKE_TRAFFIC_SECRET"
	clientTraffic   = "CLIENT_TRAFFIC_SECRET_0"
	serverTraffic   = "SERVER_TRAFFIC_SECRET_0"
)

// Write takes lines of the log; crypto/tls writes whole ones.
func (k *keyLog) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 3 {
			continue
		}
		random, err1 := hex.DecodeString(f[1])
		secret, err2 := hex.DecodeString(f[2])
		if err1 != nil || err2 != nil || len(random) != 32 {
			continue
		}
		if k.secrets == nil {
			k.secrets = map[[32]byte]map[string][]byte{}
		}
		key := [32]byte(random)
		if k.secrets[key] == nil {
			k.secrets[key] = map[string][]byte{}
		}
		k.secrets[key][f[0]] = secret
	}
	return len(b), nil
}

func (k *keyLog) secret(random [32]byte, label string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secrets[random][label]
}
