package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// result is one transfer, as both sides saw it. Fields that a stack or a
// system does not know are null in JSON.
type result struct {
	Stack        string  `json:"stack"`      // the client's
	PeerStack    string  `json:"peer_stack"` // the server's
	Direction    string  `json:"direction"`
	Source       string  `json:"source"`
	Sink         string  `json:"sink"`
	Streams      int     `json:"streams"`
	Emission     *string `json:"emission"`      // the mode the sender used; null: none
	Asked        *string `json:"emission_flag"` // the mode it was told to use
	MaxDatagrams *int    `json:"max_datagrams"` // per source call, at most
	Cipher       string  `json:"cipher"`

	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Gbps    float64 `json:"gbps"` // 10^9 bits of content per second
	OK      bool    `json:"sha256_ok"`
	SHA256  string  `json:"sha256"` // of what was sent

	SourceCalls         *uint64  `json:"source_calls"`
	DatagramsPerCall    *float64 `json:"datagrams_per_call"`
	Fallbacks           *uint64  `json:"emission_fallbacks"`
	FallbackReason      string   `json:"emission_fallback_reason,omitempty"`
	DatagramsPerSendmsg *float64 `json:"datagrams_per_sendmsg"`
	GSO                 *bool    `json:"gso"` // a send of the sender had several segments
	GRO                 *bool    `json:"gro"` // a read of the receiver had several datagrams
	RetransmittedBytes  *uint64  `json:"retransmitted_bytes"`
	SenderCPU           *float64 `json:"sender_cpu_seconds"`
	ReceiverCPU         *float64 `json:"receiver_cpu_seconds"`
}

func newResult(j *job, client, server *report, state tls.ConnectionState) *result {
	sender, receiver := server, client
	if j.Direction == "upload" {
		sender, receiver = client, server
	}
	r := &result{
		Stack: client.Stack, PeerStack: server.Stack,
		Direction: j.Direction, Source: j.Source, Sink: j.Sink, Streams: j.Streams,
		Cipher: tls.CipherSuiteName(state.CipherSuite),
		Bytes:  j.Size, Seconds: client.Seconds,
		OK:                 sender.SHA256 != "" && sender.SHA256 == receiver.SHA256,
		SHA256:             sender.SHA256,
		RetransmittedBytes: sender.LostBytes,
		SenderCPU:          sender.CPUSeconds,
		ReceiverCPU:        receiver.CPUSeconds,
	}
	if r.Seconds > 0 {
		r.Gbps = float64(r.Bytes) * 8 / r.Seconds / 1e9
	}
	if e := sender.Emission; e != nil {
		r.Emission, r.Asked, r.MaxDatagrams = &e.Mode, &j.Emission, &j.MaxDatagrams
		r.SourceCalls, r.Fallbacks, r.FallbackReason = &e.Calls, &e.Fallbacks, e.FallbackReason
		r.DatagramsPerCall = ratio(e.Datagrams, e.Calls)
	}
	if s := sender.Socket; s != nil {
		segmented := s.SegmentedSends > 0
		r.GSO = &segmented
		r.DatagramsPerSendmsg = ratio(s.Datagrams, s.Sends)
	}
	if s := receiver.Socket; s != nil {
		coalesced := s.CoalescedReads > 0
		r.GRO = &coalesced
	}
	return r
}

// ratio is a/b, nil if b is 0.
func ratio(a, b uint64) *float64 {
	if b == 0 {
		return nil
	}
	q := float64(a) / float64(b)
	return &q
}

func (r *result) writeJSON(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// line is the result in a few words.
func (r *result) line() string {
	content := "content right"
	if !r.OK {
		content = "CONTENT WRONG"
	}
	return fmt.Sprintf("%s of %s in %.3f s, %.2f Gbit/s, %s", r.Direction, humanBytes(r.Bytes), r.Seconds, r.Gbps, content)
}

// writeTable shows results to people.
func writeTable(w io.Writer, rs []*result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stacks\tsource\temission\tseconds\tGbit/s\tcalls\tdatagrams/call\tdatagrams/sendmsg\tGSO\tGRO\tresent\tCPU s/GB send\treceive\tSHA-256")
	for _, r := range rs {
		content := "right"
		if !r.OK {
			content = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.path(), r.Source, r.emission(), r.Seconds, r.Gbps,
			known(r.SourceCalls, func(n uint64) string { return strconv.FormatUint(n, 10) }),
			known(r.DatagramsPerCall, oneDecimal), known(r.DatagramsPerSendmsg, oneDecimal),
			known(r.GSO, yesNo), known(r.GRO, yesNo),
			known(r.RetransmittedBytes, func(n uint64) string { return humanBytes(int64(n)) }),
			known(r.SenderCPU, r.perGB), known(r.ReceiverCPU, r.perGB), content)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rs {
		if r.FallbackReason == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s instead of %s\n", *r.Emission, r.FallbackReason); err != nil {
			return err
		}
	}
	return nil
}

// path names the stacks in the direction of the bytes.
func (r *result) path() string {
	if r.Direction == "upload" {
		return r.Stack + " → " + r.PeerStack
	}
	return r.PeerStack + " → " + r.Stack
}

func (r *result) emission() string {
	if r.Emission == nil {
		return "-"
	}
	if *r.Emission == "single" {
		return *r.Emission // always one, whatever the limit
	}
	return fmt.Sprintf("%s ≤ %d", *r.Emission, *r.MaxDatagrams)
}

// perGB is for people: of less than a megabyte it would say nothing, in large figures.
func (r *result) perGB(seconds float64) string {
	if r.Bytes < 1e6 {
		return "-"
	}
	return fmt.Sprintf("%.2f", seconds/(float64(r.Bytes)/1e9))
}

// known formats what may not be known.
func known[T any](v *T, format func(T) string) string {
	if v == nil {
		return "-"
	}
	return format(*v)
}

func oneDecimal(f float64) string { return fmt.Sprintf("%.1f", f) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// humanBytes is n in the largest binary unit that leaves a number ≥ 1.
func humanBytes(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return fmt.Sprintf("%.4g %s", f, unit)
}
