package protect

// Sealer protects the packets of one direction with one key. It serves one
// goroutine at a time.
type Sealer struct {
	key   *packetKey
	hp    masker
	nonce [nonceLen]byte
	mask  mask
}

// NewSealer derives the keys of secret (RFC 9001 §5.1). suite is the TLS 1.3
// cipher suite (tls.TLS_AES_128_GCM_SHA256 …), which for Initial packets is
// always TLS_AES_128_GCM_SHA256. It fails for a suite that it does not know.
func NewSealer(suite uint16, secret []byte, version uint32) (*Sealer, error) {
	s, err := suiteByID(suite)
	if err != nil {
		return nil, err
	}
	l := labelsOf(version)
	key, err := newPacketKey(s, l, secret)
	if err != nil {
		return nil, err
	}
	hp, err := newHeaderKey(s, l, secret)
	if err != nil {
		return nil, err
	}
	return &Sealer{key: key, hp: hp}, nil
}

// Overhead is the number of bytes that sealing adds: 16 for every suite.
func (s *Sealer) Overhead() int { return tagLen }

// Seal protects a packet in place (RFC 9001 §5.3, §5.4). pkt is header, payload
// and Overhead spare bytes; the packet number lies at pnOff, is pnLen bytes long,
// and ends the header. Packet number and payload must come to 4 bytes or more, for
// the sample (§5.4.2). Sealing two packets with one pn breaks the cryptography.
func (s *Sealer) Seal(pkt []byte, pnOff, pnLen int, pn int64) {
	s.SealTo(pkt, pkt[pnOff+pnLen:len(pkt)-tagLen], pnOff, pnLen, pn)
}

// SealTo is Seal with the payload elsewhere: pkt has room for it and need not
// hold it. Payload and packet must not overlap, unless the payload lies exactly
// in its place.
func (s *Sealer) SealTo(pkt, plaintext []byte, pnOff, pnLen int, pn int64) {
	header := pnOff + pnLen
	if len(pkt) != header+len(plaintext)+tagLen {
		panic("protect: the packet's length is not that of header, payload and tag")
	}
	s.key.nonce(&s.nonce, pn)
	s.key.aead.Seal(pkt[header:header:len(pkt)], s.nonce[:], plaintext, pkt[:header])
	s.hp.protect(&s.mask, pkt, pnOff, pnLen)
}
