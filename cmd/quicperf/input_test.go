package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	quic "github.com/quic-go/quic-go"
)

func TestBadInputIsOneClearLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	missing := filepath.Join(dir, "missing")
	empty := write("empty", "")
	small := write("small", "0123456789")

	quicServer, _ := startServer(t, "-stack", "quic-go")
	tcpServer, _ := startServer(t, "-stack", "tcp")
	withFile, _ := startServer(t, "-stack", "quic-go", "-file", small)

	for _, c := range []struct {
		about  string // what the line has to mention
		status int
		args   []string
	}{
		{"unknown command \"sever\"", 2, []string{"sever"}},
		{"-nonsense", 2, []string{"-nonsense"}},
		{"-direction", 2, []string{"server", "-direction", "upload"}}, // not a server's to say
		{"unexpected argument \"extra\"", 2, []string{"server", "extra"}},
		{"needs the server's ADDR", 2, []string{"client"}},
		{"takes one ADDR", 2, []string{"client", quicServer, tcpServer}},
		{"unknown stack \"sctp\"", 2, []string{"-stack", "sctp"}},
		{"unknown -emission \"gather\"", 2, []string{"-emission", "gather"}},
		{"unknown -direction \"sideways\"", 2, []string{"client", quicServer, "-direction", "sideways"}},
		{"unknown -source \"tape\"", 2, []string{"-source", "tape"}},
		{"unknown -sink \"drain\"", 2, []string{"-sink", "drain"}},
		{"-streams 0", 2, []string{"-streams", "0"}},
		{"-streams 1001", 2, []string{"-streams", "1001"}},
		{"many", 2, []string{"-streams", "many"}},
		{"-max-datagrams 0", 2, []string{"-max-datagrams", "0"}},
		{"-max-datagrams 11", 2, []string{"-max-datagrams", "11"}},
		{"-max-packet-size 100", 2, []string{"-max-packet-size", "100"}},
		{"not a size", 2, []string{"-size", "big"}},
		{"not a size", 2, []string{"-size", "12XB"}},
		{"not a size", 2, []string{"-size", "-1"}},
		{"not a size", 2, []string{"-size", "99999999999TiB"}},
		{"at least 1 byte", 2, []string{"-size", "0"}},
		{"not a size", 2, []string{"-size", "1.5"}},
		{"not a size", 2, []string{"-size", "1.5.0KiB"}},
		{"not a size", 2, []string{"-size", ".KiB"}},
		{"not a size", 2, []string{"-size", "1e3KiB"}},
		{"not a size", 2, []string{"-size", "99999999.5TiB"}},
		{"bad address \"localhost\"", 2, []string{"client", "localhost"}},
		{"bad address \"localhost:http3\"", 2, []string{"client", "localhost:http3"}},
		{"bad address \"localhost:70000\"", 2, []string{"client", "localhost:70000"}},
		{"bad address \":4433\"", 2, []string{"client", ":4433"}},
		{"bad address \"1:2:3\"", 2, []string{"server", "-addr", "1:2:3"}},
		{"-addr", 2, []string{"-addr", "127.0.0.1:4433"}}, // the self-test has a port of its own
		{"-emission is for Volley: -stack tcp", 2, []string{"-stack", "tcp", "-emission", "lend"}},
		{"-emission is for Volley: -stack quic-go", 2, []string{"server", "-stack", "quic-go", "-emission", "lend"}},
		{"-max-datagrams is for Volley", 2, []string{"client", quicServer, "-stack", "quic-go", "-direction", "upload", "-max-datagrams", "3"}},
		{"-max-packet-size is for Volley", 2, []string{"-stack", "tcp", "-max-packet-size", "9000"}},
		{"-emission is about asking a source", 2, []string{"-source", "write", "-emission", "lend"}},
		{"-cert and -key", 2, []string{"server", "-cert", small}},
		{"-direction upload", 2, []string{"client", quicServer, "-file", small}},

		{"-cert " + small + " -key " + small, 1, []string{"server", "-cert", small, "-key", small}},
		{missing, 1, []string{"-stack", "quic-go", "-file", missing}},
		{missing, 1, []string{"server", "-stack", "quic-go", "-addr", "127.0.0.1:0", "-file", missing}},
		{missing, 1, []string{"client", quicServer, "-stack", "quic-go", "-direction", "upload", "-file", missing}},
		{"no regular file", 1, []string{"-stack", "quic-go", "-file", dir}},
		{"is empty", 1, []string{"-stack", "quic-go", "-file", empty}},
		{"has only 10 bytes, not 11", 1, []string{"-stack", "quic-go", "-file", small, "-size", "11"}},
		{"has only 10 bytes, not 11", 1, []string{"client", withFile, "-stack", "quic-go", "-size", "11"}},
		{"1GiB at most", 1, []string{"client", tcpServer, "-stack", "tcp", "-sink", "memory", "-size", "2GiB", "-source", "memory"}},
		{"address already in use", 1, []string{"server", "-stack", "quic-go", "-addr", quicServer}},
		{"address already in use", 1, []string{"server", "-stack", "tcp", "-addr", tcpServer}},
		{"quicperf.invalid", 1, []string{"client", "quicperf.invalid:4433", "-stack", "quic-go"}},
		{"quicperf.invalid", 1, []string{"server", "-stack", "tcp", "-addr", "quicperf.invalid:4433"}},

		{"dial udp [fe80::1]:4433", 1, []string{"client", "[fe80::1]:4433"}}, // link-local, and of no link
		{"no answer", 1, []string{"client", deafAddr(t), "-stack", "quic-go"}},
		{"nothing listens on that TCP port", 1, []string{"client", deafAddr(t), "-stack", "tcp"}},
		{"does not speak TLS", 1, []string{"client", plainTCP(t), "-stack", "tcp"}},
		{"TLS refused: no protocol in common", 1, []string{"client", quicOf(t, "h3"), "-stack", "quic-go"}},
		{"TLS refused: no protocol in common", 1, []string{"client", tlsOf(t, "http/1.1", ""), "-stack", "tcp"}},
		{"does not speak quicperf", 1, []string{"client", tlsOf(t, alpn, "220 mail.example ESMTP\n"), "-stack", "tcp"}},
		{"does not speak quicperf", 1, []string{"client", tlsOf(t, alpn, strings.Repeat("x", 2*maxMessage)), "-stack", "tcp"}},
		{"does not speak quicperf", 1, []string{"client", tlsOf(t, alpn, greetingWord+" 1\n[]\n"), "-stack", "tcp"}},
		{"does not speak quicperf", 1, []string{"client", tlsOf(t, alpn, greetingWord+" 1\n{\"done\":true}\n"), "-stack", "tcp"}},
		{"speaks version \"2\"", 1, []string{"client", tlsOf(t, alpn, greetingWord+" 2\n"), "-stack", "tcp"}},
		{"ended before", 1, []string{"client", tlsOf(t, alpn, ""), "-stack", "tcp"}},
		{"TLS refused: the server's certificate has fingerprint", 1,
			[]string{"client", tcpServer, "-stack", "tcp", "-fingerprint", strings.Repeat("00", 32)}},
		{"TLS refused: the server's certificate has fingerprint", 1,
			[]string{"client", quicServer, "-stack", "quic-go", "-fingerprint", strings.Repeat("00", 32)}},
		{"TLS refused", 1, []string{"client", tcpServer, "-stack", "tcp", "-ca", otherCA(t, dir)}},
		{"TLS refused", 1, []string{"client", quicServer, "-stack", "quic-go", "-ca", otherCA(t, dir)}},
		{"64 hexadecimal digits", 1, []string{"client", tcpServer, "-stack", "tcp", "-fingerprint", "12ab"}},
		{"no PEM certificate", 1, []string{"client", tcpServer, "-stack", "tcp", "-ca", small}},
		{missing, 1, []string{"client", tcpServer, "-stack", "tcp", "-ca", missing}},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			runProgram(t, c.args...).wantOneLine(t, c.status, c.about)
		})
	}
}

// deafAddr is an address where nothing answers.
func deafAddr(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// plainTCP is a server that speaks before it is asked, and not in TLS.
func plainTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "220 mail.example ESMTP\r\n")
			bufio.NewReader(c).ReadByte()
			c.Close()
		}
	}()
	return l.Addr().String()
}

func testTLS(t *testing.T, protocol string) *tls.Config {
	t.Helper()
	cert, err := selfSigned("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{protocol}}
}

// quicOf is a QUIC server of another protocol.
func quicOf(t *testing.T, protocol string) string {
	t.Helper()
	l, err := quic.ListenAddr("127.0.0.1:0", testTLS(t, protocol), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

// tlsOf is a TLS server that says its own thing to everyone and hangs up when
// the client has said something.
func tlsOf(t *testing.T, protocol, says string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", testTLS(t, protocol))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, says)
				if says == "" {
					c.(*tls.Conn).CloseWrite()
				}
				io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().String()
}

// otherCA is a file with an authority that signed nothing here.
func otherCA(t *testing.T, dir string) string {
	t.Helper()
	cert, err := selfSigned("elsewhere.example:1")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "ca-*.pem")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writePEM(t, f, "CERTIFICATE", cert.Certificate[0])
	return f.Name()
}

func TestSizesReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1000000": 1e6, "17B": 17, "64KiB": 64 << 10, "256MiB": 256 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40,
		"3.5MiB": 7 << 19, "0.5kb": 500, "1.GiB": 1 << 30, "5kb": 5000, "5MB": 5e6, "1gb": 1e9, "256mib": 256 << 20,
	} {
		var s byteSize
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s is %d (%v), want %d", text, s, err, want)
		}
		var again byteSize
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s prints as %s, which reads as %d", text, s, again)
		}
	}
}

func TestTheAddressMayStandAnywhere(t *testing.T) {
	for _, line := range []string{
		"client 127.0.0.1:1 -stack tcp -streams 3",
		"client -stack tcp 127.0.0.1:1 -streams 3",
		"client -stack tcp -streams 3 127.0.0.1:1",
	} {
		o, err := parseOptions(strings.Fields(line))
		if err != nil || o.server != "127.0.0.1:1" || o.stack != "tcp" || o.streams != 3 {
			t.Errorf("%s: %+v, %v", line, o, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"256MiB", "1", "9223372036854775807", "B", "-1KiB", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s byteSize
		if s.Set(text) == nil && s < 0 {
			t.Errorf("%q is %d bytes", text, s)
		}
	})
}

// FuzzControl gives a server anything at all to read on the control stream.
func FuzzControl(f *testing.F) {
	f.Add([]byte(greetingWord + " 1\n" + `{"request":{"direction":"download","streams":3,"sink":"auto","size":100}}` + "\n"))
	f.Add([]byte(greetingWord + " 1\n" + `{"report":{"sha256":"00"}}` + "\n" + `{"error":"no"}`))
	f.Add([]byte(greetingWord + " 2\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		c := newControl(saidStream{strings.NewReader(string(said))})
		if c.readGreeting() != nil {
			return
		}
		for {
			m, err := c.receive()
			if err != nil {
				return
			}
			if m.Request == nil {
				continue
			}
			j := *m.Request
			j.fill(job{Size: 1000, Source: "file", Emission: "auto", MaxDatagrams: 10})
			if j.check() == nil {
				checkParts(t, &j)
			}
		}
	})
}

type saidStream struct{ io.Reader }

func (saidStream) Write(p []byte) (int, error) { return len(p), nil }
func (saidStream) CloseWrite() error           { return nil }

// checkParts checks that the parts of j are its content: all of it, once.
func checkParts(t *testing.T, j *job) {
	t.Helper()
	next := int64(0)
	for i := range j.Streams {
		p := j.part(i)
		if p.off != next || p.n < 0 {
			t.Fatalf("%d bytes on %d streams: part %d is %+v, but the last ended at %d", j.Size, j.Streams, i, p, next)
		}
		next += p.n
	}
	if next != j.Size {
		t.Fatalf("%d bytes on %d streams: the parts end at %d", j.Size, j.Streams, next)
	}
}

func TestPartsAreTheWholeContent(t *testing.T) {
	for size := range int64(40) {
		for streams := 1; streams <= 12; streams++ {
			checkParts(t, &job{Size: size, Streams: streams})
		}
	}
	checkParts(t, &job{Size: 1<<62 + 1, Streams: 1000})
}

func TestAPatternIsTheSameHoweverItIsRead(t *testing.T) {
	for _, size := range []int64{1, 7, 1000, maxLend, maxLend + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := randomPattern(size)
			for _, off := range []int64{0, 1, size - 1, size, 3*size + 5} {
				for _, n := range []int{1, 9, 1500, 70000} {
					read := make([]byte, n)
					p.ReadAt(read, off)
					for i, b := range read {
						if want := p.mem[(off+int64(i))%p.period]; b != want {
							t.Fatalf("byte %d read at %d is %#x, want %#x", i, off, b, want)
						}
					}
					if lent, err := p.LendAt(off, n); err != nil || string(lent) != string(read) {
						t.Fatalf("lent at %d: %d bytes that differ from what is read (%v)", off, len(lent), err)
					}
					pieces := make([]byte, n)
					if m, err := p.ReadVecAt([][]byte{pieces[:n/3], pieces[n/3 : n/2], pieces[n/2:]}, off); m != n || err != nil || string(pieces) != string(read) {
						t.Fatalf("read in pieces at %d: %d bytes, %v", off, m, err)
					}
				}
			}
		})
	}
}

func mustResolve(t *testing.T, addr string) *net.UDPAddr {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
