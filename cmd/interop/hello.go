package main

import "encoding/binary"

// What a trace reads of a TLS handshake (RFC 8446 §4), from the CRYPTO frames of one
// direction and level.

// The handshake's message types.
const (
	msgClientHello         = 1
	msgServerHello         = 2
	msgEncryptedExtensions = 8
	msgCertificate         = 11
)

// extTransportParams is the extension with the transport parameters (RFC 9001 §8.2).
const extTransportParams = 0x39

// A cryptoStream puts together what CRYPTO frames carry.
type cryptoStream struct {
	data []byte
	have []bool
}

// maxCryptoStream bounds the memory that a frame at a far offset can ask for.
const maxCryptoStream = 1 << 20

func (c *cryptoStream) add(off int64, b []byte) {
	end := off + int64(len(b))
	if end > maxCryptoStream {
		return
	}
	if n := int(end) - len(c.data); n > 0 {
		c.data = append(c.data, make([]byte, n)...)
		c.have = append(c.have, make([]bool, n)...)
	}
	copy(c.data[off:], b)
	for i := off; i < end; i++ {
		c.have[i] = true
	}
}

// message returns the body of the first message of a type, nil if there is none; it may
// be cut short by what is missing.
func (c *cryptoStream) message(typ byte) []byte {
	n := 0
	for n < len(c.have) && c.have[n] {
		n++
	}
	for b := c.data[:n]; len(b) >= 4; {
		size := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		body := b[4:min(4+size, len(b))]
		if b[0] == typ {
			return body
		}
		b = b[4+len(body):]
	}
	return nil
}

// random returns a ClientHello's.
func helloRandom(hello []byte) (r [32]byte, ok bool) {
	if len(hello) < 2+32 {
		return r, false
	}
	return [32]byte(hello[2:]), true
}

// afterSessionID returns what follows the session ID in a hello.
func afterSessionID(hello []byte) []byte {
	const at = 2 + 32
	if len(hello) <= at || len(hello) < at+1+int(hello[at]) {
		return nil
	}
	return hello[at+1+int(hello[at]):]
}

// helloSuites returns the cipher suites that a ClientHello offers.
func helloSuites(hello []byte) (suites []uint16) {
	b := afterSessionID(hello)
	if len(b) < 2 {
		return nil
	}
	n := int(binary.BigEndian.Uint16(b))
	for b = b[2:]; n >= 2 && len(b) >= 2; n, b = n-2, b[2:] {
		suites = append(suites, binary.BigEndian.Uint16(b))
	}
	return suites
}

// helloSuite returns the cipher suite that a ServerHello chose, 0 if it is not there.
func helloSuite(hello []byte) uint16 {
	b := afterSessionID(hello)
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// extension returns an extension of EncryptedExtensions, nil if it is not there.
func extension(encrypted []byte, typ uint16) []byte {
	if len(encrypted) < 2 {
		return nil
	}
	for b := encrypted[2:]; len(b) >= 4; {
		n := int(binary.BigEndian.Uint16(b[2:]))
		if len(b) < 4+n {
			return nil
		}
		if binary.BigEndian.Uint16(b) == typ {
			return b[4 : 4+n]
		}
		b = b[4+n:]
	}
	return nil
}
