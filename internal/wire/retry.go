package wire

// AppendRetry appends a Retry packet of version 1 or 2 without its integrity tag
// (RFC 9000 §17.2.5): dst is the client's Source Connection ID, src the one the
// server wants to be called by. Package protect computes the 16 bytes that
// follow. ParseLong reads it.
func AppendRetry(b []byte, version uint32, dst, src, token []byte) []byte {
	// The four unused bits are arbitrary; set, the packet is that of RFC 9001
	// A.4 and RFC 9369 A.4.
	b = append(b, headerFormBit|fixedBit|typeBits(Retry, version)|0x0f)
	b = appendInvariants(b, version, dst, src)
	return append(b, token...)
}
