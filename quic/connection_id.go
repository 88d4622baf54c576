package quic

import (
	"crypto/rand"
	"fmt"
	"unsafe"

	"github.com/quic-go/quic-go/qlog"
)

// A ConnectionID is a QUIC connection ID of 0 to 20 bytes (RFC 9000 §5.1). The
// zero value is no connection ID, not even the empty one. It is comparable.
type ConnectionID = qlog.ConnectionID

const maxConnIDLen = 20

// Package qlog gives ConnectionID its name but no way to make one: that is in
// quic-go's root package, which Volley must not import. So it is made here, from
// its two fields. The array bound below fails to compile if the size differs, and
// init fails if anything else does.
type connIDFields struct {
	b [maxConnIDLen]byte
	l uint8 // length + 1; 0: no connection ID
}

var _ = [1]struct{}{}[unsafe.Sizeof(ConnectionID{})-unsafe.Sizeof(connIDFields{})]

func init() {
	for _, s := range []string{"", "\x01", "\x01\x02\x03\x04", "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14"} {
		id := ConnectionIDFromBytes([]byte(s))
		if !id.Valid() || id.Len() != len(s) || string(id.Bytes()) != s {
			panic("quic: this version of github.com/quic-go/quic-go/qlog does not fit Volley: ConnectionID has changed")
		}
	}
}

// ConnectionIDFromBytes makes a ConnectionID of b. It panics if b is longer than
// 20 bytes.
func ConnectionIDFromBytes(b []byte) ConnectionID {
	if len(b) > maxConnIDLen {
		panic(fmt.Sprintf("quic: connection ID of %d bytes", len(b)))
	}
	f := connIDFields{l: uint8(len(b)) + 1}
	copy(f.b[:], b)
	return *(*ConnectionID)(unsafe.Pointer(&f))
}

// connIDBytes is id.Bytes without its allocation: the result aliases id.
func connIDBytes(id *ConnectionID) []byte {
	f := (*connIDFields)(unsafe.Pointer(id))
	return f.b[:id.Len():id.Len()]
}

func randomConnID(n int) ConnectionID {
	var b [maxConnIDLen]byte
	rand.Read(b[:n]) // never fails
	return ConnectionIDFromBytes(b[:n])
}

// initialDestID is what a client calls the server in its first packets, which the
// server's Initial keys are derived from: at least 8 unpredictable bytes
// (RFC 9000 §7.2).
func initialDestID() ConnectionID {
	var r [1]byte
	rand.Read(r[:])
	return randomConnID(8 + int(r[0])%(maxConnIDLen-8+1))
}
