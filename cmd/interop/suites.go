package main

import (
	"crypto/tls"
	_ "unsafe" // for linkname
)

// crypto/tls does not let applications choose among the cipher suites of TLS 1.3. These
// are its lists for hosts with and without AES instructions, which it keeps reachable
// for this purpose (see the comments in crypto/tls/defaults.go).
//
//go:linkname defaultCipherSuitesTLS13 crypto/tls.defaultCipherSuitesTLS13
var defaultCipherSuitesTLS13 []uint16

//go:linkname defaultCipherSuitesTLS13NoAES crypto/tls.defaultCipherSuitesTLS13NoAES
var defaultCipherSuitesTLS13NoAES []uint16

// onlyChaCha20 lets this process offer and accept ChaCha20-Poly1305 and nothing else. It
// has to be called before the first handshake.
func onlyChaCha20() {
	defaultCipherSuitesTLS13 = []uint16{tls.TLS_CHACHA20_POLY1305_SHA256}
	defaultCipherSuitesTLS13NoAES = defaultCipherSuitesTLS13
}
