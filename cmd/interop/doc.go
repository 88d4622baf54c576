// Interop shows that Volley works together with other QUIC stacks. It is an endpoint for
// the QUIC interop runner (https://github.com/quic-interop/quic-interop-runner), and it
// plays the runner's cases itself, without containers, against real peers.
//
// # The endpoint
//
//	interop client [flags] [URL …]
//	interop server [flags]
//
// The runner says by environment what it wants: ROLE (if no role is given as argument),
// TESTCASE, REQUESTS, SSLKEYLOGFILE, QLOGDIR. A client stores what the URLs name in
// /downloads; a server shows /certs/cert.pem with /certs/priv.key and serves /www on port
// 443. Flags (-www, -certs, -downloads, -addr) name other places, for a try without a
// container. Files travel by HTTP/0.9 (hq-interop), in the case http3 by HTTP/3.
//
// In the case connectionmigration a server asks clients to move to its preferred address: a
// port that it finds, of the host in -addr, or else of the first address of each family that
// this machine's interfaces have and others can reach.
//
// The exit status is 0 if all is well, 1 if not, and 127 for a case that this program or
// Volley lacks: v2, which wants compatible version negotiation (RFC 9368), and
// versionnegotiation, which the runner has given up.
//
// The Dockerfile builds the image:
//
//	docker build -t volley-interop -f cmd/interop/Dockerfile .
//
// # The matrix
//
//	interop matrix [-only words] [-json] [-j n]
//
// plays every case with Volley as client and as server of quic-go, of golang.org/x/net/quic
// and of ngtcp2's gtlsclient and gtlsserver (on Debian: apt-get install ngtcp2-client
// ngtcp2-server), over real UDP on loopback. A cell is a process of its own. The exit status
// is 1 if a cell fails, and a cell fails too if its peer is not installed.
//
//	interop matrix -only handshake,retry       # two cases
//	interop matrix -only quic-go               # with one peer
//	interop matrix -only ecn+ngtcp2            # both words at once
//	interop matrix -only 'ngtcp2 to volley'    # one column
//	interop cell -case ecn -client volley -server quic-go -v    # one cell, every packet told
//
// Between the two stands a relay that is what the runner's simulator is: a link of 10
// Mbit/s, 15 ms and a queue of 25 datagrams each way, which loses, damages, goes dark and
// gives the client new addresses as the case wants it. Where time matters files are smaller
// than in the runner; the matrix says so below the table. The relay writes down every
// datagram, and what the runner looks for in its captures is looked for there, with the
// packets opened by the keys that Volley's side logs: handshakes, versions, Retry and its
// token, certificates left out, 0-RTT packets, key phases, ECN marks and counts, path
// challenges and their answers, connection IDs. What arrives is compared by hash. In every
// case a server must keep the anti-amplification limit at every instant: Volley to the
// byte, peers with the tolerance that the runner grants.
package main
