package congestion

import "time"

// Pacer spreads flights over time.
type Pacer struct{}

func NewPacer(datagramSize int) *Pacer                                { return &Pacer{} }
func (p *Pacer) Budget(now time.Time) int                             { return 1 << 30 }
func (p *Pacer) OnSent(now time.Time, bytes int)                      {}
func (p *Pacer) Next(now time.Time) time.Time                         { return now }
func (p *Pacer) SetRate(cwnd int, srtt time.Duration, slowStart bool) {}
func (p *Pacer) SetDatagramSize(bytes int)                            {}
