package quic

import (
	"slices"
	"time"

	"github.com/volley-quic/volley/internal/protect"
	"github.com/volley-quic/volley/internal/recovery"
	"github.com/volley-quic/volley/internal/wire"
)

// errRecreate ends a client's connection that begins again with another version.
type errRecreate struct {
	version Version
	nextPN  int64 // of the Initial space
}

func (e *errRecreate) Error() string {
	return "version negotiation: begin again with " + e.version.String()
}

// followRetry takes in a Retry packet (RFC 9000 §17.2.5.2): the client begins again
// with the token and the connection ID that it brought, once.
func (c *Conn) followRetry(h wire.LongHeader, b []byte) {
	if !c.isClient || c.retried || c.gotFirst || h.Version != uint32(c.version) || len(b) < sealTag || len(h.Token) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phaseOpen || !c.ids.isLocal(h.Dst) || len(h.Src) > maxConnIDLen || string(h.Src) == string(c.ids.dst()) {
		return
	}
	tag := protect.RetryTag(uint32(c.version), connIDBytes(&c.origDst), b[:len(b)-sealTag])
	if string(tag[:]) != string(b[len(b)-sealTag:]) {
		return
	}
	c.retried = true
	src := ConnectionIDFromBytes(h.Src)
	c.retry = &src
	c.token = slices.Clone(h.Token)
	c.ids.remote[0].id = src
	if err := c.setInitialKeys(src); err != nil {
		return
	}
	// The same bytes go again in packets of new numbers, 0-RTT data included: a server
	// that answers with Retry has kept nothing (RFC 9002 §6.3).
	c.rec.ResetForRetry(time.Now())
	c.spaces[recovery.Initial].send.again()
	c.snd.SetDst(c.ids.dst())
}

// versionNegotiation takes in a Version Negotiation packet (RFC 9000 §6.2).
func (c *Conn) versionNegotiation(b []byte) {
	if !c.isClient || c.gotFirst || c.retried || c.negotiated {
		return
	}
	dst, src, theirs, err := wire.ParseVersionNegotiation(b)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Only who saw our packet knows both IDs (RFC 8999 §6).
	if c.phase != phaseOpen || !c.ids.isLocal(dst) || string(src) != string(connIDBytes(&c.origDst)) {
		return
	}
	if slices.Contains(theirs, uint32(c.version)) {
		return // RFC 9000 §6.2: a server would not list the version that we chose
	}
	versions := make([]Version, len(theirs))
	for i, v := range theirs {
		versions[i] = Version(v)
	}
	for _, v := range c.config.Versions {
		if slices.Contains(versions, v) {
			c.abandon(&errRecreate{v, c.rec.NextPN(recovery.Initial)})
			return
		}
	}
	c.abandon(&VersionNegotiationError{Ours: c.config.Versions, Theirs: versions})
}
