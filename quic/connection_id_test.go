package quic

import (
	"bytes"
	"testing"
)

func TestConnectionID(t *testing.T) {
	seen := map[ConnectionID]bool{}
	all := []byte("0123456789abcdefghij")
	for n := range len(all) + 1 {
		id := ConnectionIDFromBytes(all[:n])
		if !id.Valid() || id.Len() != n || !bytes.Equal(id.Bytes(), all[:n]) || !bytes.Equal(connIDBytes(&id), all[:n]) {
			t.Errorf("%d bytes became %v", n, id)
		}
		if id != ConnectionIDFromBytes(bytes.Clone(all[:n])) {
			t.Errorf("equal bytes, different IDs: %v", id)
		}
		seen[id] = true
	}
	if len(seen) != len(all)+1 {
		t.Errorf("%d different IDs, want %d", len(seen), len(all)+1)
	}
	if (ConnectionID{}).Valid() || ConnectionIDFromBytes(nil) == (ConnectionID{}) {
		t.Error("the zero value is taken for the empty ID")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("21 bytes are accepted")
			}
		}()
		ConnectionIDFromBytes(make([]byte, 21))
	}()

	lens := map[int]bool{}
	for range 500 {
		lens[initialDestID().Len()] = true
	}
	for n := range lens {
		if n < 8 || n > 20 {
			t.Errorf("the client's first choice has %d bytes", n)
		}
	}
	if len(lens) < 2 {
		t.Error("the client's first choice always has the same length")
	}
}

func TestConnectionIDAllocatesNothing(t *testing.T) {
	b := []byte{1, 2, 3, 4}
	n := testing.AllocsPerRun(100, func() {
		id := ConnectionIDFromBytes(b)
		if len(connIDBytes(&id)) != 4 {
			t.Fatal("wrong length")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for looking at an ID", n)
	}
}
