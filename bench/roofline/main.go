// Command roofline measures the bare loop: "copy, seal, mask, GSO send → GRO receive,
// open", in two processes over loopback, with a fixed window and one ACK packet
// for each batch received. It is how fast this machine could send if a transport
// cost nothing.
//
//	go run ./bench/roofline
//	go run ./bench/roofline -datagrams 10 -size 1452
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/volley-quic/volley/bench/internal/bare"
	"github.com/volley-quic/volley/bench/internal/proc"
)

// task is one process's part.
type task struct {
	Send         bool
	Addr         string
	Config       bare.Config
	Warm, Amount int64
}

// side is what one process reports.
type side struct {
	bare.Report
	CPU time.Duration
}

func main() {
	var t task
	starter, helper, err := proc.Task(&t)
	if helper {
		if err == nil {
			err = help(starter, t)
		}
		if err != nil {
			starter.Fail(err)
			os.Exit(1)
		}
		return
	}

	var c bare.Config
	flag.IntVar(&c.Datagrams, "datagrams", 40, "datagrams per sendmsg")
	flag.IntVar(&c.Size, "size", 1452, "bytes of a datagram")
	flag.IntVar(&c.Window, "window", 1<<20, "bytes of payload that may be unacknowledged")
	flag.BoolVar(&c.Bare, "bare", false, "neither copy nor seal nor open: the kernel's part alone")
	amount := flag.Int64("bytes", 1<<30, "bytes of payload to send")
	rounds := flag.Int("rounds", 3, "how often")
	flag.Parse()
	err = c.Validate()
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *rounds < 1 || *amount < 1:
		err = errors.New("-rounds and -bytes must be at least 1")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "roofline:", err)
		os.Exit(2)
	}
	for range *rounds {
		s, r, err := measure(c, 16<<20, *amount)
		if err != nil {
			fmt.Fprintln(os.Stderr, "roofline:", err)
			os.Exit(1)
		}
		gb := float64(s.Bytes) / 1e9
		fmt.Printf("%.2f Gbit/s   CPU-s per GB: sender %.3f, receiver %.3f   datagrams per call: sent %.1f, received %.1f\n",
			8*gb/s.Elapsed.Seconds(), s.CPU.Seconds()/gb, r.CPU.Seconds()/gb,
			float64(s.Packets)/float64(s.Calls), float64(r.Packets)/float64(r.Calls))
	}
}

func measure(c bare.Config, warm, amount int64) (s, r side, err error) {
	const timeout = 2 * time.Minute
	receiver, err := proc.Start(task{Config: c, Warm: warm, Amount: amount})
	if err != nil {
		return s, r, err
	}
	defer receiver.Close()
	var addr string
	if err := receiver.Hear(&addr, timeout); err != nil {
		return s, r, err
	}
	sender, err := proc.Start(task{Send: true, Addr: addr, Config: c, Warm: warm, Amount: amount})
	if err != nil {
		return s, r, err
	}
	defer sender.Close()
	if err := sender.Hear(&s, timeout); err != nil {
		return s, r, err
	}
	err = receiver.Hear(&r, timeout)
	return s, r, err
}

// help is a helper process's work.
func help(starter *proc.Peer, t task) error {
	var from, to time.Duration
	begin := func() { from = proc.CPU() }
	end := func() { to = proc.CPU() }
	var rep bare.Report
	if t.Send {
		var err error
		if rep, err = bare.Send(t.Addr, t.Config, t.Warm, t.Amount, begin, end); err != nil {
			return err
		}
	} else {
		r, err := bare.Listen(t.Config)
		if err != nil {
			return err
		}
		if err := starter.Say(r.Addr()); err != nil {
			return err
		}
		if rep, err = r.Receive(t.Warm, t.Amount, begin, end); err != nil {
			return err
		}
		if rep.Failed > 0 {
			return fmt.Errorf("%d datagrams arrived damaged", rep.Failed)
		}
	}
	return starter.Say(side{rep, to - from})
}
