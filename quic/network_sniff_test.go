package quic

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/wire"
)

// sniffer reads along what both sides of a world put on the wire in 1-RTT packets,
// whether it arrives or not, and holds it against what no sender may ever do:
//   - a packet number is used once, and numbers go up,
//   - an offset of a stream carries one value, however often it is sent,
//   - nothing goes beyond a final size, which never changes, and nothing follows a reset,
//   - every packet has frames, which parse.
type sniffer struct {
	w *world

	mu      sync.Mutex
	secrets map[string][]byte // by label, as crypto/tls logs them
	sides   [2]sniffedSide    // client, server
}

type sniffedSide struct {
	name    string
	opener  *protect.Opener
	largest int64
	streams map[int64]*sniffedStream
	packets int
}

type sniffedStream struct {
	tape  []byte
	known spans
	final int64 // -1: unknown
	reset bool
}

// sniff reads along from the connection that is made next, the only one on the wire.
func (w *world) sniff() *sniffer {
	s := &sniffer{w: w, secrets: map[string][]byte{}}
	for i, d := range []*direction{w.up, w.down} {
		side := &s.sides[i]
		*side = sniffedSide{name: []string{"client", "server"}[i], largest: -1, streams: map[int64]*sniffedStream{}}
		d.tap = func(b []byte) { s.datagram(side, b) }
	}
	w.pair.server, w.pair.client = w.pair.server.Clone(), w.pair.client.Clone()
	w.pair.server.KeyLogWriter, w.pair.client.KeyLogWriter = s, s
	w.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sides[0].packets == 0 || s.sides[1].packets == 0 {
			w.Error("nothing was read along")
		}
	})
	return s
}

// Write takes a line of the key log.
func (s *sniffer) Write(line []byte) (int, error) {
	if f := bytes.Fields(line); len(f) == 3 {
		if secret, err := hex.DecodeString(string(f[2])); err == nil {
			s.mu.Lock()
			s.secrets[string(f[0])] = secret
			s.mu.Unlock()
		}
	}
	return len(line), nil
}

// datagram looks for a 1-RTT packet, which is the last of a datagram if there is one.
func (s *sniffer) datagram(side *sniffedSide, b []byte) {
	for len(b) > 0 && wire.IsLong(b[0]) {
		h, err := wire.ParseLong(b)
		if err != nil || h.Len <= 0 {
			return
		}
		b = b[h.Len:]
	}
	if len(b) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if side.opener == nil {
		label := map[string]string{"client": "CLIENT_TRAFFIC_SECRET_0", "server": "SERVER_TRAFFIC_SECRET_0"}[side.name]
		secret := s.secrets[label]
		if secret == nil {
			s.w.Errorf("the %s sends a 1-RTT packet before there are keys", side.name)
			return
		}
		suite := tls.TLS_AES_128_GCM_SHA256
		if len(secret) != 32 {
			suite = tls.TLS_AES_256_GCM_SHA384
		}
		var err error
		if side.opener, err = protect.NewOpener(suite, secret, wire.Version1); err != nil {
			s.w.Error(err)
			return
		}
	}
	pn, payload, err := side.opener.Open(slices.Clone(b), 1+defaultConnIDLen, side.largest)
	if err != nil {
		s.w.Errorf("a 1-RTT packet of the %s does not open: %v", side.name, err)
		return
	}
	if pn <= side.largest {
		s.w.Errorf("the %s sends packet %d after %d", side.name, pn, side.largest)
	}
	side.largest = max(side.largest, pn)
	side.packets++
	if len(payload) == 0 {
		s.w.Errorf("packet %d of the %s is empty", pn, side.name)
	}
	for len(payload) > 0 {
		f, n, err := wire.ParseFrame(payload)
		if err != nil {
			s.w.Errorf("packet %d of the %s: %v", pn, side.name, err)
			return
		}
		payload = payload[n:]
		switch f := f.(type) {
		case wire.Stream:
			side.stream(s.w, pn, &f)
		case wire.ResetStream:
			side.onReset(s.w, &f)
		}
	}
}

func (side *sniffedSide) find(id int64) *sniffedStream {
	st := side.streams[id]
	if st == nil {
		st = &sniffedStream{final: -1}
		side.streams[id] = st
	}
	return st
}

func (side *sniffedSide) stream(w *world, pn int64, f *wire.Stream) {
	st := side.find(f.ID)
	end := f.Off + int64(len(f.Data))
	if st.reset {
		w.Errorf("the %s sends of stream %d after its reset", side.name, f.ID)
	}
	if len(f.Data) == 0 && !f.Fin && f.Off > 0 {
		w.Errorf("packet %d of the %s: a frame of stream %d with nothing in it", pn, side.name, f.ID)
	}
	if st.final >= 0 && (end > st.final || f.Fin && end != st.final) {
		w.Errorf("the %s sends up to %d of stream %d, which ends at %d", side.name, end, f.ID, st.final)
	}
	if f.Fin {
		if int64(len(st.tape)) > end {
			w.Errorf("the %s ends stream %d at %d, and has sent %d bytes", side.name, f.ID, end, len(st.tape))
		}
		st.final = end
	}
	if len(f.Data) == 0 {
		return
	}
	if n := int(end) - len(st.tape); n > 0 {
		st.tape = append(st.tape, make([]byte, n)...)
	}
	for _, k := range st.known {
		if lo, hi := max(k.lo, f.Off), min(k.hi+1, end); lo < hi && !bytes.Equal(st.tape[lo:hi], f.Data[lo-f.Off:hi-f.Off]) {
			w.Errorf("packet %d of the %s: stream %d, bytes %d to %d are not what they were", pn, side.name, f.ID, lo, hi)
		}
	}
	copy(st.tape[f.Off:], f.Data)
	st.known.add(f.Off, end-1)
}

func (side *sniffedSide) onReset(w *world, f *wire.ResetStream) {
	st := side.find(f.ID)
	if f.FinalSize < int64(len(st.tape)) || st.final >= 0 && f.FinalSize != st.final {
		w.Errorf("the %s resets stream %d at %d, and has sent %d bytes; its end was %d", side.name, f.ID, f.FinalSize, len(st.tape), st.final)
	}
	st.final, st.reset = f.FinalSize, true
}
