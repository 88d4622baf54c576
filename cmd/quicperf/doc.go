// Command quicperf moves real bytes between two processes over Volley, over
// quic-go or over TCP with TLS, proves that they arrived, and says how fast it
// went and how well the volleys worked.
//
//	quicperf [flags]               self-test: a server and a client on loopback
//	quicperf server [flags]        wait for clients
//	quicperf client ADDR [flags]   one transfer with a server
//
// Every stack runs the same code of this program but for one file,
// stack_NAME.go, and all stacks run with the same windows, write size and
// cipher (see stack.go). A client of one QUIC stack works with a server of
// the other.
//
// # What the clock covers
//
// The clock is the client's. It starts when everything is prepared on both
// sides (connection and streams open, content made and hashed, the receiver's
// memory or file written once) and stops when the client knows that the
// receiver has the last byte. The CPU figures are user and system time of the
// whole process on each side over the same stretch. Inside are therefore: the
// stack, the source (reading the file), and the sink (writing the file, or
// leaving the bytes in memory). Outside are: the handshake, making the
// content, and SHA-256 on both sides. Files are read from and written to the
// page cache; the disk is not what is measured.
//
// A CPU figure of a server that had another transfer at the same time is
// reported as null, because nobody can tell whose it was; so are the figures
// a stack does not know, and CPU figures on systems that do not count them.
//
// # What is compared
//
// The sender hashes the content before the transfer, the receiver hashes what
// it kept afterwards. Each side tells the other its hash, and the transfer
// counts as right only if both are equal.
package main
