// Package quicgo brings emission in volleys to applications that stay on
// github.com/quic-go/quic-go.
//
//	str, err := conn.OpenStream()            // quic-go's
//	s := quicgo.Wrap(str)
//	n, err := s.SendFrom(ctx, file, 0, size, emit.End())
//
// [Wrap] gives a quic-go stream the methods SendFrom, ReadFrom, Ready, WriteBuffers,
// SetEmission and EmissionStats of Volley's streams, with the rules of package emit: a
// source is asked once for ten datagrams' worth of bytes, into one block, and the block
// goes to quic-go's Write in one piece. quic-go copies it into its frames; the block is
// filled again only after Write has returned.
//
// # What is different from a stream of Volley's
//
//   - quic-go cuts the bytes into packets, so what ten datagrams hold is a good guess
//     (ten times 1424 bytes), and so are the datagrams that EmissionStats counts.
//   - There is one mode, Scatter, and Lend for a source that lends: its memory goes to
//     Write as it is. Single and Vector would write into quic-go's packets, and Reread
//     would keep quic-go from keeping a copy: neither can be had. They fall back, which
//     EmissionStats counts, and SendFrom returns when quic-go has taken the last byte,
//     not when it is acknowledged.
//   - quic-go does not tell what the peer has acknowledged. SendFrom with emit.OnAcked
//     fails with [ErrOnAcked] before the source is asked anything.
//   - SendFrom asks before it knows whether the peer gives credit. Bytes that the
//     source has given and that Write did not take, as the stream ended before, are
//     not in SendFrom's count.
//
// Everything but adding bytes may be done on the quic-go stream itself, too, except
// SetWriteDeadline: see there.
//
// [ConfigToVolley] and [ConfigFromVolley] convert between the two packages' Config.
package quicgo
