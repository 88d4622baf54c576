package main

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on a terminal how far a transfer is. The transfer only adds
// to a counter; a ticker of its own looks at it.
type progress struct {
	moved atomic.Int64 // bytes that went through this program's hands

	terminal io.Writer // nil: nobody watches
	bar      *progressbar.ProgressBar
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu       sync.Mutex
	emitters []emitter // they count themselves what they send
}

const progressInterval = 200 * time.Millisecond

// newProgress shows nothing unless w is a terminal.
func newProgress(w io.Writer) *progress {
	p := new(progress)
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal = w
	}
	return p
}

// watch counts what es have sent, too.
func (p *progress) watch(es []emitter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emitters = es
}

func (p *progress) bytes() int64 {
	n := p.moved.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.emitters {
		n += int64(e.EmissionStats().Bytes)
	}
	return n
}

// begin starts the line of a transfer of size bytes.
func (p *progress) begin(size int64) {
	if p.terminal == nil {
		return
	}
	p.bar = progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(p.terminal),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
	)
	p.bar.StartWithoutRender() // or the first rate is that of no time at all
	p.stop = make(chan struct{})
	p.stopped.Go(func() {
		t := time.NewTicker(progressInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.bar.Set64(min(p.bytes(), size))
			case <-p.stop:
				return
			}
		}
	})
}

// end takes the line away. It may be called again, and without begin.
func (p *progress) end() {
	if p.stop == nil {
		return
	}
	close(p.stop)
	p.stopped.Wait()
	p.stop = nil
	p.bar.Clear()
}
