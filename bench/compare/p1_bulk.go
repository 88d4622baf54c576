package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/volley-quic/volley/bench/internal/bare"
)

// warmUp is sent, and checked, before the clock starts: windows are open then and the
// path MTU is found.
const warmUp = 16 << 20

// jumbo is the MaxPacketSize of P5: four of these fill one system call.
const jumbo = 16376

// slowness is by how much less x/net/quic is given to send.
const slowness = 8

// bulk is what one bulk transfer found.
type bulk struct {
	bytes            int64
	sender, receiver sideReport
}

func (x bulk) gb() float64          { return float64(x.bytes) / 1e9 }
func (x bulk) gbit() float64        { return 8 * x.gb() / x.sender.Elapsed.Seconds() }
func (x bulk) senderCPU() float64   { return x.sender.CPU.Seconds() / x.gb() }
func (x bulk) receiverCPU() float64 { return x.receiver.CPU.Seconds() / x.gb() }

func (x bulk) say() string { return fmt.Sprintf("%.2f", x.gbit()) }

// bulkOf measures a stack; change says how its task differs from one stream.
func (b *bench) bulkOf(job, name, stack string, change func(*task)) contestant[bulk] {
	return contestant[bulk]{name, func(round int) (x bulk, err error) {
		t := task{Stack: stack, Cert: b.cert, Warm: warmUp, Size: b.size, Streams: 1}
		server, client := "receive", "send"
		if stack == "bare" {
			server, client = "bare-receive", "bare-send"
		}
		if change != nil {
			change(&t)
		}
		x.bytes = t.Size * int64(t.Streams)
		x.receiver, x.sender, err = duel[sideReport, sideReport](t, server, client, b.profileOf(job, name, round))
		return x, err
	}}
}

// The contestants of P1 to P5.
const (
	volley      = "volley"
	volleyAcks  = "volley without the ACK frequency extension"
	volleyJumbo = "volley 16376"
	quicgo      = "quic-go"
	xnet        = "x/net"
	tcp         = "tcp"
	bareLoop    = "bare"
	bareKernel  = "bare, kernel only"
)

// bulkRounds runs P1 to P5, as many of them as are selected, in the same rounds.
func (b *bench) bulkRounds() (map[string][]bulk, error) {
	if b.bulk != nil {
		return b.bulk, nil
	}
	want := func(ids ...string) bool {
		for _, id := range ids {
			if b.selected[id] {
				return true
			}
		}
		return false
	}
	var cs []contestant[bulk]
	if want("P1", "P2", "P3", "P4") {
		cs = append(cs, b.bulkOf("P1", volley, "volley", nil))
	}
	if want("P1", "P2", "P3") {
		cs = append(cs,
			b.bulkOf("P1", quicgo, "quic-go", nil),
			b.bulkOf("P1", xnet, "x/net", func(t *task) { t.Size /= slowness }))
	}
	if want("P1") {
		cs = append(cs, b.bulkOf("P1", volleyAcks, "volley", func(t *task) { t.PlainAcks = true }))
	}
	if haveBare && want("P1", "P2", "P3", "P4") {
		cs = append(cs, b.bulkOf("P4", bareLoop, "bare", nil))
	}
	if haveBare && want("P4") {
		cs = append(cs, b.bulkOf("P4", bareKernel, "bare", func(t *task) { t.Bare = bare.Config{Bare: true} }))
	}
	if want("P5") {
		cs = append(cs, b.bulkOf("P5", volleyJumbo, "volley", func(t *task) { t.MaxPacket = jumbo }))
	}
	if want("P1", "P5") {
		cs = append(cs, b.bulkOf("P5", tcp, "tcp", nil))
	}
	all, err := turns(b, "bulk, Gbit/s", b.rounds, cs, bulk.say)
	b.bulk = all
	return all, err
}

// haveBare: the bare loop runs here.
const haveBare = runtime.GOOS == "linux"

// against makes a check of one of bulk's figures.
func against(all map[string][]bulk, ours, peer, unit string, f func(bulk) float64) check {
	return check{unit: unit, ours: each(all[ours], f), peer: each(all[peer], f), peerName: peer}
}

func p1(b *bench, r *result) error {
	all, err := b.bulkRounds()
	if err != nil {
		return err
	}
	c := against(all, volley, quicgo, "Gbit/s", bulk.gbit)
	c.must, c.aim = atLeast(3), atLeast(5)
	c.roof = ratios(c.ours, each(all[bareLoop], bulk.gbit))
	r.checks = append(r.checks, c)
	x := all[volley][0]
	r.notes = append(r.notes, "cipher: "+x.sender.Cipher)
	for _, name := range []string{volley, volleyAcks, volleyJumbo, quicgo, xnet, tcp, bareLoop} {
		xs := all[name]
		if xs == nil {
			continue
		}
		s := summary{Name: name}
		for i, p := range []float64{0.25, 0.5, 0.75} {
			s.Gbit[i] = quantile(each(xs, bulk.gbit), p)
			s.Sender[i] = quantile(each(xs, bulk.senderCPU), p)
			s.Receiver[i] = quantile(each(xs, bulk.receiverCPU), p)
		}
		r.stacks = append(r.stacks, s)
		r.notes = append(r.notes, fmt.Sprintf("%-13s %6.2f Gbit/s; CPU-s per GB: sender %.3f, receiver %.3f%s",
			name, s.Gbit[1], s.Sender[1], s.Receiver[1], filled(xs)))
	}
	return nil
}

// filled says how much a packet carried, and how many of them a system call.
func filled(xs []bulk) string {
	var flights, datagrams uint64
	for _, x := range xs {
		flights += x.sender.Traffic.Flights
		datagrams += x.sender.Traffic.FlightFilled
	}
	var b strings.Builder
	if x := xs[len(xs)-1]; x.sender.Traffic.Sent > 0 {
		fmt.Fprintf(&b, "; %.0f bytes of payload per packet", float64(x.bytes)/float64(x.sender.Traffic.Sent))
		if x.sender.Traffic.Received > 0 {
			fmt.Fprintf(&b, ", %.1f packets back for 1000", 1000*float64(x.sender.Traffic.Received)/float64(x.sender.Traffic.Sent))
		}
	}
	if flights > 0 {
		fmt.Fprintf(&b, "; %.1f datagrams per sendmsg", float64(datagrams)/float64(flights))
	}
	return b.String()
}

func p2(b *bench, r *result) error {
	all, err := b.bulkRounds()
	if err != nil {
		return err
	}
	c := against(all, volley, quicgo, "CPU-s per GB", bulk.senderCPU)
	c.must, c.aim = atMost(0.40), atMost(0.25)
	c.roof = ratios(each(all[bareLoop], bulk.senderCPU), c.ours)
	r.checks = append(r.checks, c)
	return nil
}

func p3(b *bench, r *result) error {
	all, err := b.bulkRounds()
	if err != nil {
		return err
	}
	c := against(all, volley, quicgo, "CPU-s per GB", bulk.receiverCPU)
	c.must, c.aim = atMost(0.40), atMost(0.30)
	c.roof = ratios(each(all[bareLoop], bulk.receiverCPU), c.ours)
	r.checks = append(r.checks, c)
	return nil
}

func p4(b *bench, r *result) error {
	if !haveBare {
		return bare.ErrUnsupported
	}
	all, err := b.bulkRounds()
	if err != nil {
		return err
	}
	c := against(all, volley, bareLoop, "Gbit/s", bulk.gbit)
	c.must, c.aim = atLeast(0.75), atLeast(0.90)
	r.checks = append(r.checks, c)

	// The roof must be one: what the bare sender spends is hardly more than the sum of
	// what sealing, copying and the system call cost alone.
	parts, err := alone[bare.Parts](task{Role: "measure-parts"})
	if err != nil {
		return err
	}
	perPacket := func(x bulk) float64 {
		return float64(x.sender.CPU.Nanoseconds()) / float64(x.sender.Traffic.Sent)
	}
	whole, kernel := median(each(all[bareLoop], perPacket)), median(each(all[bareKernel], perPacket))
	sum := float64((parts.Seal+parts.Copy)/time.Nanosecond) + kernel
	verdict := "as it should be"
	if whole/sum > 1.15 {
		verdict = "MORE THAN 1.15"
	}
	r.notes = append(r.notes, fmt.Sprintf("the bare sender takes %.0f ns a datagram, its parts %.0f (seal and mask %d, copy %d, sendmsg and ACKs %.0f): %.2f, %s",
		whole, sum, parts.Seal, parts.Copy, kernel, whole/sum, verdict))
	if math.IsNaN(whole / sum) {
		return errors.New("the bare loop has not been measured")
	}
	return nil
}

func p5(b *bench, r *result) error {
	all, err := b.bulkRounds()
	if err != nil {
		return err
	}
	c := against(all, volleyJumbo, tcp, "Gbit/s", bulk.gbit)
	c.must, c.aim = atLeast(0.8), atLeast(1.2)
	r.checks = append(r.checks, c)
	r.notes = append(r.notes, fmt.Sprintf("CPU-s per GB: sender %.3f against %.3f, receiver %.3f against %.3f%s",
		median(each(all[volleyJumbo], bulk.senderCPU)), median(each(all[tcp], bulk.senderCPU)),
		median(each(all[volleyJumbo], bulk.receiverCPU)), median(each(all[tcp], bulk.receiverCPU)), filled(all[volleyJumbo])))
	return nil
}

func p6(b *bench, r *result) error {
	const streams = 100
	split := func(t *task) {
		t.Streams = streams
		t.Size = b.size / streams
		t.Warm = warmUp / streams
	}
	all, err := turns(b, "100 streams, Gbit/s", b.rounds, []contestant[bulk]{
		b.bulkOf("P6", volley, "volley", split),
		b.bulkOf("P6", quicgo, "quic-go", split),
	}, bulk.say)
	if err != nil {
		return err
	}
	c := against(all, volley, quicgo, "Gbit/s", bulk.gbit)
	c.must, c.aim = atLeast(3), atLeast(5)
	r.checks = append(r.checks, c)
	r.notes = append(r.notes, fmt.Sprintf("CPU-s per GB: sender %.3f against %.3f, receiver %.3f against %.3f%s",
		median(each(all[volley], bulk.senderCPU)), median(each(all[quicgo], bulk.senderCPU)),
		median(each(all[volley], bulk.receiverCPU)), median(each(all[quicgo], bulk.receiverCPU)), filled(all[volley])))
	return nil
}
