package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// The control protocol, the same over every stack. The client's first stream
// carries it: one greeting line from each side, then one JSON message a line.
//
//	client                          server
//	greeting, Request         →
//	                          ←     greeting, Job (or Error)
//	streams with a header     →
//	Go                        →
//	          the content on the streams, one way or the other
//	          Done, from whoever received the last byte
//	Report                    ⇄     Report
//
// Data streams are opened by the client in both directions; each starts with
// a header, the number of the stream's part of the content (see part).

// alpn is quicperf's own name for the protocol in TLS. It has no version, so
// that programs of different versions get as far as telling each other.
const alpn = "volley-quicperf"

const (
	greetingWord    = "volley-quicperf"
	protocolVersion = "1"
	maxMessage      = 64 << 10
)

// job is what one transfer consists of. In a request, empty fields are for the
// server to fill; the job it answers with has them all.
type job struct {
	Direction    string `json:"direction"`
	Size         int64  `json:"size,omitempty"` // bytes
	Streams      int    `json:"streams"`
	Source       string `json:"source,omitempty"`
	Sink         string `json:"sink"`
	Emission     string `json:"emission,omitempty"`
	MaxDatagrams int    `json:"max_datagrams,omitempty"`
}

// fill takes from d what j leaves open.
func (j *job) fill(d job) {
	if j.Size == 0 {
		j.Size = d.Size
	}
	if j.Source == "" {
		j.Source = d.Source
	}
	if j.Emission == "" {
		j.Emission = d.Emission
	}
	if j.MaxDatagrams == 0 {
		j.MaxDatagrams = d.MaxDatagrams
	}
}

// check refuses values that no side knows. A size of 0 passes: it is open.
func (j *job) check() error {
	for _, c := range []struct {
		name, value string
		known       []string
	}{
		{"direction", j.Direction, directions},
		{"source", j.Source, sources},
		{"sink", j.Sink, sinks},
		{"emission", j.Emission, emissions},
	} {
		if !slices.Contains(c.known, c.value) {
			return fmt.Errorf("unknown -%s %q: want %s", c.name, c.value, strings.Join(c.known, ", "))
		}
	}
	if j.Streams < 1 || j.Streams > maxStreams {
		return fmt.Errorf("-streams %d: want 1 to %d", j.Streams, maxStreams)
	}
	if j.MaxDatagrams < 1 || j.MaxDatagrams > maxDatagramsPerCall {
		return fmt.Errorf("-max-datagrams %d: want 1 to %d", j.MaxDatagrams, maxDatagramsPerCall)
	}
	if j.Size < 0 {
		return fmt.Errorf("-size %d: want at least 1 byte", j.Size)
	}
	return nil
}

// answers reports whether j is what a server may make of the request asked.
func (j *job) answers(asked *job) bool {
	return j.check() == nil && j.Size > 0 &&
		j.Direction == asked.Direction && j.Streams == asked.Streams &&
		(asked.Size == 0 || j.Size == asked.Size)
}

// part is the range of the content that one stream carries, in bytes.
type part struct{ off, n int64 }

// part i of the content: ranges of equal size, but for the last bytes.
func (j *job) part(i int) part {
	each := j.Size / int64(j.Streams)
	p := part{int64(i) * each, each}
	if i == j.Streams-1 {
		p.n = j.Size - p.off
	}
	return p
}

// message is one line of the control stream; one field is set.
type message struct {
	Request *job    `json:"request,omitempty"`
	Job     *job    `json:"job,omitempty"`
	Go      bool    `json:"go,omitempty"`
	Done    bool    `json:"done,omitempty"`
	Report  *report `json:"report,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// report is what one side knows when the transfer is over. Figures that a
// side does not know are nil.
type report struct {
	Stack      string         `json:"stack"`
	SHA256     string         `json:"sha256"`
	Seconds    float64        `json:"seconds"` // this side's clock
	CPUSeconds *float64       `json:"cpu_seconds"`
	Socket     *socketStats   `json:"socket"`
	LostBytes  *uint64        `json:"lost_bytes"`
	Emission   *emissionStats `json:"emission"`
}

// peerError is a failure that the other side told us about.
type peerError struct{ text string }

func (e *peerError) Error() string { return "the other side says: " + e.text }

var errNotQuicperf = errors.New("the other side does not speak quicperf's protocol")

// control is the control stream. One goroutine may read and any may write.
type control struct {
	r *bufio.Reader

	mu sync.Mutex
	w  io.Writer
}

func newControl(s stream) *control {
	return &control{w: s, r: bufio.NewReaderSize(s, maxMessage)}
}

func (c *control) writeGreeting() error {
	return c.write([]byte(greetingWord + " " + protocolVersion))
}

func (c *control) send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.write(line)
}

func (c *control) write(line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.w.Write(append(line, '\n'))
	return err
}

// readGreeting returns an error that says so if the other side is no quicperf,
// or one of another version.
func (c *control) readGreeting() error {
	line, err := c.readLine()
	if err != nil {
		return err
	}
	version, ok := strings.CutPrefix(string(line), greetingWord+" ")
	if !ok {
		return errNotQuicperf
	}
	if version != protocolVersion {
		return fmt.Errorf("the other side speaks version %.20q of quicperf's protocol, this program version %s", version, protocolVersion)
	}
	return nil
}

// receive returns the next message, or a *peerError if it is an error.
func (c *control) receive() (message, error) {
	line, err := c.readLine()
	if err != nil {
		return message{}, err
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, errNotQuicperf
	}
	if m.Error != "" {
		return message{}, &peerError{m.Error}
	}
	return m, nil
}

// readLine returns the next line, valid until the next read.
func (c *control) readLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errNotQuicperf
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return line[:len(line)-1], nil
}
