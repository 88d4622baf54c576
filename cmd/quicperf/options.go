package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// What the flags can say; the first of each is the default.
var (
	directions = []string{"download", "upload"}
	sources    = []string{"file", "memory", "write"}
	sinks      = []string{"auto", "file", "memory"}
	emissions  = []string{"auto", "scatter", "single", "lend", "vector"}
	commands   = []string{"server", "client"}
)

const (
	defaultSize         = 256 << 20
	defaultAddr         = "127.0.0.1:4433"
	defaultStack        = "volley"
	maxStreams          = 1000
	maxDatagramsPerCall = 10 // emit.MaxDatagrams, which stays unimported here: this file knows no stack
)

// options are the command line, checked.
type options struct {
	command string // "" for the self-test
	server  string // the client's ADDR

	addr        string
	file        string
	stack       string
	json        bool
	size        byteSize
	direction   string
	streams     int
	source      string
	sink        string
	emission    string
	datagrams   int
	packetSize  int
	insecure    bool
	ca          string
	fingerprint string
	cert        string
	key         string
	maxSize     byteSize

	set map[string]bool // flags that were given
}

// newFlagSet has the flags of one command. Flags that a command has no use for
// are unknown to it, so that nobody believes they did something.
func newFlagSet(command string, o *options) *flag.FlagSet {
	fs := flag.NewFlagSet("quicperf "+command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)

	o.size, o.maxSize = -1, 16<<30
	fs.StringVar(&o.stack, "stack", defaultStack, "transport: "+strings.Join(stackNames(), ", "))
	fs.StringVar(&o.file, "file", "", "`file` to send (default: random bytes)")
	fs.Var(&o.size, "size", "how much to send, as 1000000, 64KiB, 3.5MiB, 1GiB (default: the file, else 256MiB)")
	fs.StringVar(&o.source, "source", sources[0], "where the sender takes the bytes from: file (SendFrom on the file), memory (SendFrom on memory), write (Write in 64 KiB)")
	fs.StringVar(&o.emission, "emission", emissions[0], "how Volley asks the source: "+strings.Join(emissions, ", "))
	fs.IntVar(&o.datagrams, "max-datagrams", maxDatagramsPerCall, "datagrams per source call at most, 1 to 10")
	fs.IntVar(&o.packetSize, "max-packet-size", 0, "largest UDP payload in bytes that Volley may use (default: Volley's own)")
	fs.BoolVar(&o.json, "json", false, "print one JSON object per transfer, each on a line of its own")

	if command != "server" {
		fs.StringVar(&o.direction, "direction", directions[0], "download (the server sends) or upload (the client sends)")
		fs.IntVar(&o.streams, "streams", 1, "streams that share the content, 1 to 1000")
		fs.StringVar(&o.sink, "sink", sinks[0], "where the receiver keeps the bytes: file, memory, or auto (as the source; memory only up to 1 GiB)")
	}
	switch command {
	case "client":
		fs.BoolVar(&o.insecure, "insecure", false, "do not check the server's certificate (loopback addresses: never checked unless -ca or -fingerprint is given)")
		fs.StringVar(&o.ca, "ca", "", "PEM `file` with the authority that signed the server's certificate")
		fs.StringVar(&o.fingerprint, "fingerprint", "", "SHA-256 of the server's certificate in `hex`, as the server prints it")
	case "server":
		fs.StringVar(&o.addr, "addr", defaultAddr, "`address` to listen on")
		fs.StringVar(&o.cert, "cert", "", "PEM `file` with the certificate to show (default: one made at start)")
		fs.StringVar(&o.key, "key", "", "PEM `file` with its key")
		fs.Var(&o.maxSize, "max-size", "largest transfer a client may ask for")
	}
	return fs
}

// parseOptions reads the command line. The client's ADDR may stand before,
// between or after the flags.
func parseOptions(args []string) (*options, error) {
	o := &options{set: make(map[string]bool)}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.command, args = args[0], args[1:]
		if o.command == "help" {
			return nil, flag.ErrHelp
		}
		if !slices.Contains(commands, o.command) {
			return nil, fmt.Errorf("unknown command %q: want server, client ADDR, or no command for the self-test", o.command)
		}
	}

	fs := newFlagSet(o.command, o)
	var words []string
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			break
		}
		words, args = append(words, fs.Arg(0)), fs.Args()[1:]
	}
	fs.Visit(func(f *flag.Flag) { o.set[f.Name] = true })

	switch {
	case o.command != "client" && len(words) > 0:
		return nil, fmt.Errorf("unexpected argument %q", words[0])
	case o.command == "client" && len(words) == 0:
		return nil, errors.New("the client needs the server's ADDR, as in: quicperf client " + defaultAddr)
	case o.command == "client" && len(words) > 1:
		return nil, fmt.Errorf("the client takes one ADDR, got also %q", words[1])
	case o.command == "client":
		o.server = words[0]
	}
	return o, o.check()
}

// check refuses what no server and no file system needs to be asked about.
func (o *options) check() error {
	if _, ok := stacks[o.stack]; !ok {
		return fmt.Errorf("unknown stack %q: want %s", o.stack, strings.Join(stackNames(), ", "))
	}
	switch o.command {
	case "client":
		if err := checkAddr(o.server, false); err != nil {
			return err
		}
	case "server":
		if err := checkAddr(o.addr, true); err != nil {
			return err
		}
	}
	if o.set["size"] && o.size < 1 {
		return errors.New("-size must be at least 1 byte")
	}
	if o.set["max-packet-size"] && (o.packetSize < 1200 || o.packetSize > 65507) {
		return fmt.Errorf("-max-packet-size %d: want 1200 to 65507 bytes", o.packetSize)
	}
	if (o.cert == "") != (o.key == "") {
		return errors.New("-cert and -key go together")
	}
	if o.command == "client" && o.file != "" && o.direction == "download" {
		return errors.New("-file names what the sender sends: give it to the server, or add -direction upload")
	}
	j := o.job()
	if err := j.check(); err != nil {
		return err
	}
	return o.checkUse()
}

// checkUse refuses flags that would do nothing: nobody is to believe they did something.
func (o *options) checkUse() error {
	if o.set["max-packet-size"] && o.stack != "volley" {
		return fmt.Errorf("-max-packet-size is for Volley: -stack %s does not have it", o.stack)
	}
	// Who downloads tells the server how to ask the source; its stack may be Volley.
	sends := o.command != "client" || o.direction == "upload"
	for _, name := range []string{"emission", "max-datagrams"} {
		switch {
		case !o.set[name]:
		case sends && o.stack != "volley":
			return fmt.Errorf("-%s is for Volley: -stack %s does not have it", name, o.stack)
		case o.command != "server" && o.source == "write": // a server's clients may name another source
			return fmt.Errorf("-%s is about asking a source: with -source write none is asked", name)
		}
	}
	return nil
}

// job is the transfer as these options describe it, with every default.
// A server leaves to its clients what only they can say.
func (o *options) job() job {
	j := job{
		Direction: directions[0], Streams: 1, Sink: sinks[0],
		Source: o.source, Emission: o.emission, MaxDatagrams: o.datagrams,
		Size: max(0, int64(o.size)),
	}
	if o.command != "server" {
		j.Direction, j.Streams, j.Sink = o.direction, o.streams, o.sink
	}
	return j
}

// request is the job as a client asks for it: what the command line leaves
// open is for the server's flags to say, if the server is the sender.
func (o *options) request() job {
	j := o.job()
	if j.Direction == "upload" {
		return j
	}
	if !o.set["source"] {
		j.Source = ""
	}
	if !o.set["emission"] {
		j.Emission = ""
	}
	if !o.set["max-datagrams"] {
		j.MaxDatagrams = 0
	}
	return j
}

// net is what the stacks get to know.
func (o *options) net() netOptions { return netOptions{maxPacketSize: o.packetSize} }

// checkAddr looks at the form of an address only.
func checkAddr(addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("bad address %q: want HOST:PORT, as in %s", addr, defaultAddr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || (n == 0 && !listen) {
		return fmt.Errorf("bad address %q: %q is no port number", addr, port)
	}
	if host == "" && !listen {
		return fmt.Errorf("bad address %q: the host is missing", addr)
	}
	return nil
}

// byteSize is a number of bytes that reads as people write them.
type byteSize int64

// sizeUnits are tried in this order: longer names before their own endings.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

func (s *byteSize) Set(text string) error {
	digits, unit := text, int64(1)
	for _, u := range sizeUnits {
		if len(text) > len(u.name) && strings.EqualFold(text[len(text)-len(u.name):], u.name) {
			digits, unit = text[:len(text)-len(u.name)], u.bytes
			break
		}
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/unit {
		*s = byteSize(n * unit)
		return nil
	}
	// No signs, exponents, infinities, nor parts of a byte.
	if strings.Trim(digits, ".0123456789") == "" && strings.Contains(digits, ".") && unit > 1 {
		if f, err := strconv.ParseFloat(digits, 64); err == nil && f*float64(unit) < math.MaxInt64 {
			*s = byteSize(f * float64(unit))
			return nil
		}
	}
	return errors.New("not a size: want bytes or a number with KiB, MiB, GiB, TiB, KB, MB, GB, TB")
}

func (s byteSize) String() string {
	if s <= 0 {
		return ""
	}
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// printHelp lists the commands, and the flags of the one that args name: without one,
// of all.
func printHelp(w io.Writer, args []string) {
	fmt.Fprint(w, `quicperf moves bytes between two processes, proves that they arrived, and says how fast.

  quicperf [flags]               self-test: a server and a client on loopback
  quicperf server [flags]        wait for clients
  quicperf client ADDR [flags]   one transfer with a server

What the server's -size, -source, -emission and -max-datagrams say holds for
clients that do not say it themselves.
`)
	for _, c := range []struct{ name, title string }{
		{"", "Flags of the self-test"}, {"server", "Flags of the server"}, {"client", "Flags of the client"},
	} {
		if len(args) > 0 && slices.Contains(commands, args[0]) && c.name != args[0] {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", c.title)
		fs := newFlagSet(c.name, new(options))
		fs.SetOutput(w)
		fs.PrintDefaults()
	}
}
