package quic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// A journal keeps the qlog of one connection in memory, as events or as the file that
// they make.
type journal struct {
	client bool
	id     ConnectionID

	mu     sync.Mutex
	events []qlogwriter.Event
	after  []qlogwriter.Event // those recorded after Close
	closed int
	onEnd  func() // called by Close

	file bytes.Buffer
	seq  qlogwriter.Recorder
}

// journals is a Config.Tracer, and what it has made.
type journals struct {
	mu  sync.Mutex
	all []*journal
}

func (js *journals) tracer(_ context.Context, isClient bool, id ConnectionID) qlogwriter.Trace {
	j := &journal{client: isClient, id: id}
	f := qlogwriter.NewConnectionFileSeq(nopCloser{&j.file}, isClient, id)
	go f.Run()
	j.seq = f.AddProducer()
	js.mu.Lock()
	defer js.mu.Unlock()
	js.all = append(js.all, j)
	return j
}

// of returns the journal of the client, or of the server.
func (js *journals) of(client bool) *journal {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.all {
		if j.client == client {
			return j
		}
	}
	return nil
}

type nopCloser struct{ *bytes.Buffer }

func (nopCloser) Close() error { return nil }

func (j *journal) AddProducer() qlogwriter.Recorder { return j }

func (j *journal) RecordEvent(e qlogwriter.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed > 0 {
		j.after = append(j.after, e)
		return
	}
	j.events = append(j.events, e)
	j.seq.RecordEvent(e)
}

func (j *journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed++; j.onEnd != nil {
		j.onEnd()
	}
	return j.seq.Close()
}

// all returns the events so far.
func (j *journal) all() []qlogwriter.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// eventsOf are the events of one type.
func eventsOf[E qlogwriter.Event](j *journal) (es []E) {
	for _, e := range j.all() {
		if e, ok := e.(E); ok {
			es = append(es, e)
		}
	}
	return es
}

// ended fails the test unless the recorder was closed once, and let alone then.
func (j *journal) ended(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed != 1 {
		t.Errorf("the recorder was closed %d times", j.closed)
	}
	if len(j.after) > 0 {
		t.Errorf("%d events after Close, first %#v", len(j.after), j.after[0])
	}
}

// logged is a record of a qlog file.
type logged struct {
	Time float64         `json:"time"`
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

// into decodes the record's data.
func into[T any](t *testing.T, e logged) (v T) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &v); err != nil {
		t.Fatalf("%s: %v in %s", e.Name, err, e.Data)
	}
	return v
}

type loggedHeader struct {
	Type   string `json:"packet_type"`
	Number *int64 `json:"packet_number"`
	Dst    string `json:"dcid"`
	Src    string `json:"scid"`
}

type loggedPacket struct {
	Header  loggedHeader            `json:"header"`
	Raw     struct{ Length int }    `json:"raw"`
	Frames  json.RawMessage         `json:"frames"`
	Trigger string                  `json:"trigger"`
	Tuple   string                  `json:"tuple"`
	ECN     string                  `json:"ecn"`
	Details struct{ Reason string } `json:"details"`
}

func (p *loggedPacket) key() string {
	if p.Header.Number == nil {
		return p.Header.Type + " without a number"
	}
	return fmt.Sprintf("%s %d", p.Header.Type, *p.Header.Number)
}

type loggedFrame struct {
	Type   string `json:"frame_type"`
	Stream int64  `json:"stream_id"`
	Offset int64  `json:"offset"`
	Length int    `json:"length"`
	Fin    bool   `json:"fin"`
}

// readLog reads a file of JSON text sequences (RFC 7464).
func readLog(t *testing.T, file []byte) (header map[string]any, events []logged) {
	t.Helper()
	records := bytes.Split(file, []byte{qlogwriter.RecordSeparator})
	if len(records) < 2 || len(records[0]) > 0 {
		t.Fatalf("%d bytes are no JSON-SEQ file", len(file))
	}
	if err := json.Unmarshal(records[1], &header); err != nil {
		t.Fatalf("header: %v", err)
	}
	last := 0.
	for i, r := range records[2:] {
		var e logged
		if err := json.Unmarshal(r, &e); err != nil {
			t.Fatalf("record %d: %v in %s", i, err, r)
		}
		if !bytes.HasSuffix(r, []byte{'\n'}) {
			t.Errorf("record %d does not end with a newline", i)
		}
		if e.Time < last {
			t.Errorf("record %d is of %v, and the one before of %v", i, e.Time, last)
		}
		last = e.Time
		events = append(events, e)
	}
	return header, events
}

// checkFlights holds a log against itself: every packet number once; what a flight says
// against the packets that follow it; and what passes say against the STREAM frames in
// them. It returns how many of each there were.
func checkFlights(t *testing.T, events []logged) (flights, passes, slots int) {
	t.Helper()
	var waiting []loggedPass // of the next flight
	var frames []loggedFrame // STREAM frames of the flight
	var of []loggedPass
	var f loggedFlight
	left, bytes := 0, 0
	seen := map[string]bool{}
	for _, e := range events {
		switch e.Name {
		case "volley:pass_packed":
			if left > 0 {
				t.Fatalf("a pass within flight %+v", f)
			}
			waiting = append(waiting, into[loggedPass](t, e))
			passes++
		case "volley:flight_sent":
			if left > 0 {
				t.Fatalf("%d packets of flight %+v are missing", left, f)
			}
			f = into[loggedFlight](t, e)
			of, waiting = waiting, nil
			left, bytes, frames = f.Datagrams, 0, nil
			if f.Passes != len(of) || f.Datagrams < 1 {
				t.Errorf("flight %+v follows %d passes", f, len(of))
			}
			flights++
		case "transport:packet_sent":
			p := into[loggedPacket](t, e)
			if seen[p.key()] {
				t.Errorf("%s twice", p.key())
			}
			seen[p.key()] = true
			if left == 0 {
				if p.Header.Type == "1RTT" || p.Header.Type == "0RTT" {
					if fs := framesOf(t, p); len(fs) != 1 || fs[0].Type != "connection_close" {
						t.Errorf("%s is of no flight: %s", p.key(), p.Frames)
					}
				}
				continue
			}
			if want := f.First + int64(f.Datagrams-left); p.Header.Type != f.Type || *p.Header.Number != want {
				t.Errorf("%s in flight %+v, want %d", p.key(), f, want)
			}
			bytes += p.Raw.Length
			if left--; left > 0 && p.Raw.Length != f.Size || p.Raw.Length > f.Size {
				t.Errorf("%s has %d bytes, in flight %+v", p.key(), p.Raw.Length, f)
			}
			for _, fr := range framesOf(t, p) {
				if fr.Type == "stream" {
					frames = append(frames, fr)
				}
			}
			if left == 0 {
				if bytes != f.Length {
					t.Errorf("%d bytes in flight %+v", bytes, f)
				}
				slots += len(frames)
				checkPasses(t, of, frames)
			}
		}
	}
	if left > 0 || len(waiting) > 0 {
		t.Errorf("the log ends within flight %+v, with %d passes of no flight", f, len(waiting))
	}
	return flights, passes, slots
}

type loggedFlight struct {
	Type      string `json:"packet_type"`
	First     int64  `json:"first_packet_number"`
	Datagrams int    `json:"datagrams"`
	Length    int    `json:"length"`
	Size      int    `json:"datagram_size"`
	Passes    int    `json:"passes"`
}

type loggedPass struct {
	Stream int64  `json:"stream_id"`
	Offset int64  `json:"offset"`
	Length int    `json:"length"`
	Slots  int    `json:"slots"`
	Fin    bool   `json:"fin"`
	Source string `json:"source"`
}

func framesOf(t *testing.T, p loggedPacket) (fs []loggedFrame) {
	t.Helper()
	if p.Frames == nil {
		return nil
	}
	if err := json.Unmarshal(p.Frames, &fs); err != nil {
		t.Fatal(err)
	}
	return fs
}

// checkPasses finds every pass in a flight's STREAM frames, one after the other.
func checkPasses(t *testing.T, passes []loggedPass, frames []loggedFrame) {
	t.Helper()
	for _, p := range passes {
		if p.Slots < 1 || p.Slots > 10 || p.Slots > len(frames) {
			t.Errorf("pass %+v, and %d frames are left", p, len(frames))
			return
		}
		n := 0
		for i, f := range frames[:p.Slots] {
			if f.Stream != p.Stream || f.Offset != p.Offset+int64(n) || f.Fin != (p.Fin && i == p.Slots-1) {
				t.Errorf("frame %+v is not slot %d of pass %+v", f, i, p)
			}
			n += f.Length
		}
		if n != p.Length {
			t.Errorf("%d bytes in pass %+v", n, p)
		}
		frames = frames[p.Slots:]
	}
	if len(frames) > 0 {
		t.Errorf("%d frames of no pass, first %+v", len(frames), frames[0])
	}
}

// triggers are the reasons for which packets were dropped.
func (j *journal) triggers() (why []qlog.PacketDropReason) {
	for _, e := range eventsOf[qlog.PacketDropped](j) {
		if !slices.Contains(why, e.Trigger) {
			why = append(why, e.Trigger)
		}
	}
	return why
}
