package quic

import (
	"slices"
	"time"

	"github.com/quic-go/quic-go/qlog"

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
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.checkRetry(h, b); why != "" {
		c.dropped(b, why)
		return
	}
	if c.qlog != nil {
		c.qlog.retried(b)
	}
	c.retried = true
	src := ConnectionIDFromBytes(h.Src)
	c.retry = &src
	c.token = slices.Clone(h.Token)
	c.setGrease(false) // it rested on another token (RFC 9287 §3.1)
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

// checkRetry says why a Retry packet is not followed, "" if it is.
func (c *Conn) checkRetry(h wire.LongHeader, b []byte) qlog.PacketDropReason {
	if !c.isClient || c.retried || c.gotFirst || h.Version != uint32(c.version) || len(b) < sealTag || len(h.Token) == 0 {
		return qlog.PacketDropUnexpectedPacket
	}
	if c.phase != phaseOpen || !c.ids.isLocal(h.Dst) || len(h.Src) > maxConnIDLen || string(h.Src) == string(c.ids.dst()) {
		return qlog.PacketDropUnexpectedPacket
	}
	tag := protect.RetryTag(uint32(c.version), connIDBytes(&c.origDst), b[:len(b)-sealTag])
	if string(tag[:]) != string(b[len(b)-sealTag:]) {
		return qlog.PacketDropPayloadDecryptError
	}
	return ""
}

// versionNegotiation takes in a Version Negotiation packet (RFC 9000 §6.2).
func (c *Conn) versionNegotiation(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	versions, why := c.offeredVersions(b)
	if why != "" {
		c.dropped(b, why)
		return
	}
	if c.qlog != nil {
		c.qlog.versionNegotiation(b, versions)
	}
	for _, v := range c.config.Versions {
		if slices.Contains(versions, v) {
			if c.qlog != nil {
				c.qlog.record(qlog.VersionInformation{ChosenVersion: v, ClientVersions: c.config.Versions, ServerVersions: versions})
			}
			c.abandon(&errRecreate{v, c.rec.NextPN(recovery.Initial)})
			return
		}
	}
	c.abandon(&VersionNegotiationError{Ours: c.config.Versions, Theirs: versions})
}

// offeredVersions returns what a Version Negotiation packet lists, or says why it does not
// count.
func (c *Conn) offeredVersions(b []byte) (versions []Version, why qlog.PacketDropReason) {
	if !c.isClient || c.gotFirst || c.retried || c.negotiated || c.phase != phaseOpen {
		return nil, qlog.PacketDropUnexpectedPacket
	}
	dst, src, theirs, err := wire.ParseVersionNegotiation(b)
	switch {
	case err != nil:
		return nil, qlog.PacketDropHeaderParseError
	// Only who saw our packet knows both IDs (RFC 8999 §6).
	case !c.ids.isLocal(dst):
		return nil, qlog.PacketDropUnknownConnectionID
	case string(src) != string(connIDBytes(&c.origDst)):
		return nil, qlog.PacketDropUnexpectedSourceConnectionID
	// RFC 9000 §6.2: a server would not list the version that we chose.
	case slices.Contains(theirs, uint32(c.version)):
		return nil, qlog.PacketDropUnexpectedVersion
	}
	for _, v := range theirs {
		versions = append(versions, Version(v))
	}
	return versions, ""
}
