package quicgo

import (
	"errors"
	"fmt"

	quicgo "github.com/quic-go/quic-go"

	"github.com/volley-quic/volley/quic"
)

// ConfigToVolley makes a Config of Volley's that means what c means; nil for nil. What
// the functions in c return is converted, too.
//
// Two fields have types that cannot be converted: TokenStore, whose tokens only the
// package reads that made them, and AllowConnectionWindowIncrease, which is told a
// connection. If one is set, the error says so and wraps [errors.ErrUnsupported]: take it
// out of a Clone first, and set one of Volley's on the result.
func ConfigToVolley(c *quicgo.Config) (*quic.Config, error) {
	if c == nil {
		return nil, nil
	}
	if c.TokenStore != nil {
		return nil, unsupported("TokenStore")
	}
	if c.AllowConnectionWindowIncrease != nil {
		return nil, unsupported("AllowConnectionWindowIncrease")
	}
	v := &quic.Config{
		Versions:                         c.Versions,
		HandshakeIdleTimeout:             c.HandshakeIdleTimeout,
		MaxIdleTimeout:                   c.MaxIdleTimeout,
		InitialStreamReceiveWindow:       c.InitialStreamReceiveWindow,
		MaxStreamReceiveWindow:           c.MaxStreamReceiveWindow,
		InitialConnectionReceiveWindow:   c.InitialConnectionReceiveWindow,
		MaxConnectionReceiveWindow:       c.MaxConnectionReceiveWindow,
		MaxIncomingStreams:               c.MaxIncomingStreams,
		MaxIncomingUniStreams:            c.MaxIncomingUniStreams,
		RequireStreamCreditRelease:       c.RequireStreamCreditRelease,
		KeepAlivePeriod:                  c.KeepAlivePeriod,
		InitialPacketSize:                c.InitialPacketSize,
		DisablePathMTUDiscovery:          c.DisablePathMTUDiscovery,
		Allow0RTT:                        c.Allow0RTT,
		EnableDatagrams:                  c.EnableDatagrams,
		EnableStreamResetPartialDelivery: c.EnableStreamResetPartialDelivery,
		Tracer:                           c.Tracer,
	}
	if choose := c.GetConfigForClient; choose != nil {
		v.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
			c, err := choose((*quicgo.ClientInfo)(info))
			if err != nil {
				return nil, err
			}
			return ConfigToVolley(c)
		}
	}
	return v, nil
}

// ConfigFromVolley is the way back from [ConfigToVolley]. Beside TokenStore and
// AllowConnectionWindowIncrease, Scheduler, CongestionControl, MaxPacketSize and
// PreferredAddresses have nothing to go to, and are an error unless they have the zero value.
// DisableQUICBitGreasing is not an error: quic-go does not grease.
func ConfigFromVolley(v *quic.Config) (*quicgo.Config, error) {
	if v == nil {
		return nil, nil
	}
	switch {
	case v.TokenStore != nil:
		return nil, unsupported("TokenStore")
	case v.AllowConnectionWindowIncrease != nil:
		return nil, unsupported("AllowConnectionWindowIncrease")
	case v.Scheduler != nil:
		return nil, unsupported("Scheduler")
	case v.CongestionControl != 0:
		return nil, unsupported("CongestionControl")
	case v.MaxPacketSize != 0:
		return nil, unsupported("MaxPacketSize")
	case len(v.PreferredAddresses) > 0:
		return nil, unsupported("PreferredAddresses")
	}
	c := &quicgo.Config{
		Versions:                         v.Versions,
		HandshakeIdleTimeout:             v.HandshakeIdleTimeout,
		MaxIdleTimeout:                   v.MaxIdleTimeout,
		InitialStreamReceiveWindow:       v.InitialStreamReceiveWindow,
		MaxStreamReceiveWindow:           v.MaxStreamReceiveWindow,
		InitialConnectionReceiveWindow:   v.InitialConnectionReceiveWindow,
		MaxConnectionReceiveWindow:       v.MaxConnectionReceiveWindow,
		MaxIncomingStreams:               v.MaxIncomingStreams,
		MaxIncomingUniStreams:            v.MaxIncomingUniStreams,
		RequireStreamCreditRelease:       v.RequireStreamCreditRelease,
		KeepAlivePeriod:                  v.KeepAlivePeriod,
		InitialPacketSize:                v.InitialPacketSize,
		DisablePathMTUDiscovery:          v.DisablePathMTUDiscovery,
		Allow0RTT:                        v.Allow0RTT,
		EnableDatagrams:                  v.EnableDatagrams,
		EnableStreamResetPartialDelivery: v.EnableStreamResetPartialDelivery,
		Tracer:                           v.Tracer,
	}
	if choose := v.GetConfigForClient; choose != nil {
		c.GetConfigForClient = func(info *quicgo.ClientInfo) (*quicgo.Config, error) {
			v, err := choose((*quic.ClientInfo)(info))
			if err != nil {
				return nil, err
			}
			return ConfigFromVolley(v)
		}
	}
	return c, nil
}

func unsupported(field string) error {
	return fmt.Errorf("quicgo: Config.%s has no counterpart: %w", field, errors.ErrUnsupported)
}
