package protect

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/volley-quic/volley/internal/wire"
)

// samples reads the vectors of RFC 9001, appendix A.
func samples(t testing.TB) func(name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../testdata/rfc9001-appendix-a.txt")
	if err != nil {
		t.Fatal(err)
	}
	digits := map[string]string{}
	var name string
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimRight(line, "\r\n"); {
		case strings.HasPrefix(line, "  "):
			digits[name] += strings.TrimSpace(line)
		case line != "" && line[0] != '#':
			name = line
		}
	}
	return func(name string) []byte {
		t.Helper()
		b, err := hex.DecodeString(digits[name])
		if err != nil || len(b) == 0 {
			t.Fatalf("sample %s: %q, %v", name, digits[name], err)
		}
		return b
	}
}

func equal(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s\n got %x\nwant %x", what, got, want)
	}
}

func label(t *testing.T, secret []byte, label string, n int) []byte {
	t.Helper()
	b, err := expandLabel(sha256.New, secret, label, n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSampleKeys(t *testing.T) {
	want := samples(t)
	client, server := InitialSecrets(wire.Version1, want("dst"))
	equal(t, "client secret", client, want("client_secret"))
	equal(t, "server secret", server, want("server_secret"))
	for side, secret := range map[string][]byte{"client": client, "server": server} {
		equal(t, side+" key", label(t, secret, "quic key", 16), want(side+"_key"))
		equal(t, side+" iv", label(t, secret, "quic iv", 12), want(side+"_iv"))
		equal(t, side+" hp", label(t, secret, "quic hp", 16), want(side+"_hp"))
	}
	secret := want("chacha_secret")
	equal(t, "ChaCha20 key", label(t, secret, "quic key", 32), want("chacha_key"))
	equal(t, "ChaCha20 iv", label(t, secret, "quic iv", 12), want("chacha_iv"))
	equal(t, "ChaCha20 hp", label(t, secret, "quic hp", 32), want("chacha_hp"))
	equal(t, "ChaCha20 ku", label(t, secret, "quic ku", 32), want("chacha_ku"))
}

// A packet of the samples is sealed to what the RFC prints, and opened again.
func TestSamplePackets(t *testing.T) {
	want := samples(t)
	aes, chacha := uint16(tls.TLS_AES_128_GCM_SHA256), uint16(tls.TLS_CHACHA20_POLY1305_SHA256)
	for _, p := range []struct {
		name, secret string
		suite        uint16
		pnLen        int
		pn, largest  int64
		payloadLen   int // with PADDING; 0: as it is
	}{
		{"client", "client_secret", aes, 4, 2, -1, 1162},
		{"server", "server_secret", aes, 2, 1, -1, 0},
		{"chacha", "chacha_secret", chacha, 3, 654360564, 654360563, 0},
	} {
		t.Run(p.name, func(t *testing.T) {
			header, payload := want(p.name+"_header"), want(p.name+"_payload")
			if p.payloadLen > 0 {
				payload = append(payload, make([]byte, p.payloadLen-len(payload))...)
			}
			pnOff := len(header) - p.pnLen

			sealer, err := NewSealer(p.suite, want(p.secret), wire.Version1)
			if err != nil {
				t.Fatal(err)
			}
			pkt := append(append(header[:len(header):len(header)], payload...), make([]byte, sealer.Overhead())...)
			sealer.Seal(pkt, pnOff, p.pnLen, p.pn)
			equal(t, "sealed packet", pkt, want(p.name+"_packet"))

			opener, err := NewOpener(p.suite, want(p.secret), wire.Version1)
			if err != nil {
				t.Fatal(err)
			}
			pn, got, err := opener.Open(want(p.name+"_packet"), pnOff, p.largest)
			if err != nil || pn != p.pn {
				t.Fatalf("opened packet %d, %v; want %d", pn, err, p.pn)
			}
			equal(t, "opened payload", got, payload)
		})
	}
}

func TestSampleMasks(t *testing.T) {
	want := samples(t)
	var m mask
	packet := want("client_packet")
	hp, _ := newAESMask(want("client_hp"))
	hp.mask(&m, packet[18+sampleOff:18+sampleOff+sampleLen])
	equal(t, "AES mask", m[:5], want("client_mask"))

	packet = want("chacha_packet")
	hp, _ = newChaChaMask(want("chacha_hp"))
	hp.mask(&m, packet[1+sampleOff:1+sampleOff+sampleLen])
	equal(t, "ChaCha20 mask", m[:5], want("chacha_mask"))

	var nonce [nonceLen]byte
	key := packetKey{iv: [nonceLen]byte(want("chacha_iv"))}
	key.nonce(&nonce, 654360564)
	equal(t, "nonce", nonce[:], want("chacha_nonce"))
}

func TestSampleRetry(t *testing.T) {
	want := samples(t)
	packet := want("retry_packet")
	tag := RetryTag(wire.Version1, want("dst"), packet[:len(packet)-16])
	equal(t, "Retry tag", tag[:], packet[len(packet)-16:])
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The keys of version 2 in RFC 9369, appendix A.1.
func TestVersion2Keys(t *testing.T) {
	client, server := InitialSecrets(wire.Version2, samples(t)("dst"))
	equal(t, "client secret", client, unhex(t, "14ec9d6eb9fd7af83bf5a668bc17a7e283766aade7ecd0891f70f9ff7f4bf47b"))
	equal(t, "server secret", server, unhex(t, "0263db1782731bf4588e7e4d93b7463907cb8cd8200b5da55a8bd488eafc37c1"))
	s, l := suites[tls.TLS_AES_128_GCM_SHA256], labelsOf(wire.Version2)
	equal(t, "client key", label(t, client, l.key, 16), unhex(t, "8b1a0bc121284290a29e0971b5cd045d"))
	key, err := newPacketKey(s, l, server)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "server iv", key.iv[:], unhex(t, "dd13c276499c0249d3310652"))

	// A.2: of the client's Initial, the sample and the masked packet number.
	sealer, err := NewSealer(tls.TLS_AES_128_GCM_SHA256, client, wire.Version2)
	if err != nil {
		t.Fatal(err)
	}
	header := unhex(t, "d36b3343cf088394c8f03e5157080000449e00000002")
	pkt := append(header, samples(t)("client_payload")...)
	pkt = append(pkt, make([]byte, len(header)+1162+16-len(pkt))...)
	sealer.Seal(pkt, 18, 4, 2)
	equal(t, "client packet", pkt[:38], unhex(t, "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de806071"))
}

// The Retry keys of both versions are themselves derived from secrets that the RFCs
// print (RFC 9001 §5.8, RFC 9369 §3.3.3).
func TestRetryKeys(t *testing.T) {
	for version, secret := range map[uint32]string{
		wire.Version1: "d9c9943e6101fd200021506bcc02814c73030f25c79d71ce876eca876e6fca8e",
		wire.Version2: "c4dd2484d681aefa4ff4d69c2c20299984a765a5d3c31982f38fc74162155e9f",
	} {
		l := labelsOf(version)
		key, err := newPacketKey(suites[tls.TLS_AES_128_GCM_SHA256], l, unhex(t, secret))
		if err != nil {
			t.Fatal(err)
		}
		dst, retry := []byte("origdst!"), []byte("a Retry packet")
		want := key.aead.Seal(nil, key.iv[:], nil, append(append([]byte{byte(len(dst))}, dst...), retry...))
		got := RetryTag(version, dst, retry)
		equal(t, "Retry tag", got[:], want)
	}
}
