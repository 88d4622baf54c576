package quic

import "testing"

func TestHandshake(t *testing.T) {
	eachRole(t, func(t *testing.T, volley role) {
		p := newActor(t, volley).handshake()
		p.wantAlive("the handshake is complete")
		p.wantIdle("the handshake is complete")
	})
}
